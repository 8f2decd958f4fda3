// What is reported of what was timed: the cases of crates/probe/src/reduce.rs, and those of a coarse clock.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { goodput, median, typicalTime } from '../src/weather/reduce.js';

test('medians', () => {
  for (const [samples, expected] of [[[], null], [[3], 3], [[9, 1], 5], [[9, 1, 2], 2], [[4, 1, 3, 2], 2.5], [[10, 9, 100], 10]]) {
    const given = [...samples];
    assert.equal(median(samples), expected, String(samples));
    assert.deepEqual(samples, given, 'the samples keep their order');
  }
});

test('the forecast round trip is subtracted', () => {
  // JavaNws §2.1.1: a small probe over a long path is mostly round trip.
  const { raw, corrected } = goodput(64 * 1024, 0.15, 0.1);
  assert.ok(Math.abs(raw - 524_288 / 0.15) < 1e-3);
  assert.ok(Math.abs(corrected - 524_288 / 0.05) < 1e-3);
});

test('an unusable forecast corrects nothing', () => {
  for (const forecast of [null, undefined, 0, -1, NaN, Infinity, 0.1, 0.2]) {
    assert.deepEqual(goodput(1000, 0.1, forecast), { raw: 80_000, corrected: 80_000 }, String(forecast));
  }
  for (const elapsed of [0, -1, NaN, Infinity]) assert.equal(goodput(1000, elapsed, null), null, String(elapsed));
});

test('a corrected rate is finite and never below the raw one', () => {
  for (const bytes of [1, 65_536, 2 ** 40]) {
    for (const elapsed of [1e-9, 0.1, 1e6]) {
      for (const forecast of [elapsed / 1e9, elapsed / 2, elapsed * (1 - Number.EPSILON), elapsed, elapsed * 2]) {
        const { raw, corrected } = goodput(bytes, elapsed, forecast);
        assert.ok(Number.isFinite(corrected) && raw <= corrected, `${bytes} ${elapsed} ${forecast}`);
      }
    }
  }
});

test('a median of 0 is that of a coarse clock', () => {
  for (const [samples, expected] of [[[], null], [[0], null], [[0, 0, 0], null], [[0, 0, 3], 1], [[0, 2, 4], 2], [[0, 0, 0, 4], 1], [[1, 2, 9], 2]]) {
    assert.equal(typicalTime(samples), expected, String(samples));
  }
});
