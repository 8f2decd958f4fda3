// Reduction of timed exchanges: the cases of crates/probe/src/reduce.rs, and those of a coarse
// clock.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { seeded } from '../testkit/weather.mjs';
import { goodput, median, typicalTime } from '../src/measure/reduce.js';

test('the median is the middle sample or the mean of two', () => {
  for (const [samples, expected] of [[[], null], [[3], 3], [[9, 1], 5], [[9, 1, 2], 2], [[4, 1, 3, 2], 2.5], [[10, 9, 100], 10]]) {
    const given = [...samples];
    assert.equal(median(samples), expected, String(samples));
    assert.deepEqual(samples, given, 'the samples keep their order');
  }
});

test('the forecast round trip is subtracted up to the least measured one', () => {
  // JavaNws §2.1.1: a small probe over a long path is mostly round trip.
  const { raw, corrected } = goodput(64 * 1024, 0.25, { forecast_s: 0.1, least_s: 0.1 });
  assert.ok(Math.abs(raw - 524_288 / 0.25) < 1e-3);
  assert.ok(Math.abs(corrected - 524_288 / 0.15) < 1e-3);
});

test('an unusable round trip leaves the rate uncorrected', () => {
  for (const rtt of [undefined, {}, ...[null, 0, -1, NaN, Infinity].flatMap((none) => [{ forecast_s: none, least_s: 0.01 }, { forecast_s: 0.01, least_s: none }])]) {
    assert.deepEqual(goodput(1000, 0.1, rtt), { raw: 80_000, corrected: 80_000 }, JSON.stringify(rtt));
  }
  for (const elapsed of [0, -1, NaN, Infinity]) assert.equal(goodput(1000, elapsed), null, String(elapsed));
});

test('no forecast inflates the corrected rate beyond that of the link', () => {
  const random = seeded(8);
  for (let i = 0; i < 20_000; i += 1) {
    const [bit_s, rtt_s, bytes] = [1e4 * 1e6 ** random(), 1e-5 * 1e5 ** random(), 1 + Math.floor(2 ** (24 * random()))];
    // Delays outside the link only add to the time.
    const elapsed_s = rtt_s + (bytes * 8) / bit_s + (random() < 0.5 ? 0 : random());
    const forecast_s = elapsed_s * 2 * random();
    const { raw, corrected } = goodput(bytes, elapsed_s, { forecast_s, least_s: rtt_s });
    assert.ok(raw <= corrected && corrected <= bit_s * (1 + 1e-9), `${corrected} bit/s of ${bytes} bytes on ${bit_s} bit/s, ${rtt_s} s, forecast ${forecast_s} s`);
    // Whatever the assumed least round trip.
    const doubtful = goodput(bytes, elapsed_s, { forecast_s, least_s: 2 * random() * elapsed_s });
    assert.ok(doubtful.corrected <= 2 * doubtful.raw, `${doubtful.corrected} of ${doubtful.raw}`);
  }
});

test('a median of 0 from a coarse clock is replaced by the mean', () => {
  for (const [samples, expected] of [[[], null], [[0], null], [[0, 0, 0], null], [[0, 0, 3], 1], [[0, 2, 4], 2], [[0, 0, 0, 4], 1], [[1, 2, 9], 2]]) {
    assert.equal(typicalTime(samples), expected, String(samples));
  }
});
