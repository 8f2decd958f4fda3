// Bulk tests of automatic size: when a rate has settled, and what tests cost.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { seeded } from '../testkit/weather.mjs';
import { AutoSize, BYTES_MAX, BulkTest, hasSettled } from '../src/measure/sizing.js';

const BOTH = ['goodput', 'goodput_down'];

test('a rate has settled when three in a row agree, or after start-up is over', () => {
  const after = (...rates) => rates.map((rate) => ({ elapsed_s: 0.1, rate }));
  assert.equal(hasSettled(after(60e6, 90e6, 95e6, 92e6), 0.02), true);
  assert.equal(hasSettled(after(60e6, 90e6, 95e6), 0.02), false);
  assert.equal(hasSettled(after(90e6, 95e6), 0.0001), false, 'two and short');
  assert.equal(hasSettled(after(30e6, 60e6, 28e6), 0.02), false, 'a stall');
  const long = (elapsed_s) => [{ elapsed_s, rate: 95e6 }];
  assert.equal(hasSettled(long(0.5), 0.02), true);
  assert.equal(hasSettled(long(0.5), 0.3), false, 'over a satellite half a second is start-up');
  assert.equal(hasSettled(long(9), null), false, 'without a round trip nobody knows');
});

test('transfers double until the rate settles at 90 % of the link or more', () => {
  for (const bit_s of [1e5, 1e6, 2e7, 1e8, 5e8]) {
    for (const rtt_s of [0.001, 0.02, 0.08]) {
      const sizing = new AutoSize(0);
      const { settled, rate, sizes } = run(sizing.begin('goodput', ['goodput_down'], 0, false), bit_s, rtt_s);
      assert.deepEqual(sizes, sizes.map((_, i) => 2 ** (16 + i)));
      if (settled) assert.ok(0.8 * bit_s <= rate, `${rate} of ${bit_s} at ${rtt_s} s`);
      if (bit_s * rtt_s < 1e7) assert.ok(settled, `${bit_s} at ${rtt_s} s`);
    }
  }
});

test('a rate reduced by a stall has not settled', () => {
  const random = seeded(5);
  // A busy path: one transfer in three meets a stall, of 20 ms in the mean.
  const stall = () => (random() < 0.3 ? -0.02 * Math.log(random()) : 0);
  for (const bit_s of [1e8, 5e8]) {
    let [settled, low] = [0, 0];
    for (let i = 0; i < 400; i += 1) {
      const result = run(new AutoSize(0).begin('goodput', [], 0, true), bit_s, 0.02, stall);
      settled += result.settled;
      low += result.settled && result.rate < 0.8 * bit_s;
    }
    assert.ok(300 < settled && low < 0.03 * settled, `${low} of ${settled} are too low at ${bit_s} bit/s`);
  }
});

test('a link too fast for the largest transfer does not settle', () => {
  const { settled, sizes } = run(new AutoSize(0).begin('goodput', [], 0, false), 1e11, 0.02);
  assert.deepEqual([settled, sizes.at(-1)], [false, BYTES_MAX]);
});

test('the next test begins three steps below, and a fixed size is one transfer', () => {
  const sizing = new AutoSize(0);
  const reached = run(sizing.begin('goodput', [], 0, false), 1e8, 0.02).sizes.at(-1);
  assert.equal(run(sizing.begin('goodput', [], 0, false), 1e8, 0.02).sizes[0], reached / 8);
  assert.deepEqual(run(new BulkTest(65_536), 1e8, 0.02).sizes, [65_536]);
});

test('tests stay within the byte budget of an hour for any link and period', () => {
  const random = seeded(3);
  for (let round = 0; round < 60; round += 1) {
    const sizing = new AutoSize(0);
    const transfer_bytes_max = random() < 0.5 ? null : Math.floor(2 ** (17 + 9 * random()));
    sizing.allow(transfer_bytes_max);
    const period_s = 1 + 30 * random();
    let spent = 0;
    for (let now_s = 0; now_s < 7200; now_s += period_s) {
      if (!sizing.isDue(BOTH, now_s)) continue;
      const bit_s = 1e5 * 1e6 ** random();
      BOTH.forEach((quantity, i) => {
        for (const bytes of run(sizing.begin(quantity, BOTH.slice(i + 1), now_s, false), bit_s, 0.02).sizes) spent += bytes;
      });
      const bound = sizing.bytes_per_hour * (1 / 4 + now_s / 3600) + 2 * 65_536;
      assert.ok(spent <= bound, `${spent} bytes in ${now_s} s, more than ${bound}`);
      if (transfer_bytes_max !== null && transfer_bytes_max < BYTES_MAX) {
        // The station allows an eighth of an hour's bytes at once (docs/spec/echo.md §3).
        assert.ok(spent <= 8 * transfer_bytes_max * (1 / 8 + now_s / 3600), 'beyond what the station pays');
      }
    }
    assert.ok(0 < spent, `nothing is ever due with ${transfer_bytes_max}`);
  }
});

test('tests settle by agreement also with small transfers, both ways and again', () => {
  for (const transfer_bytes_max of [50_001, 131_072, 200_000, 262_144, 600_000, 1 << 20]) {
    const sizing = new AutoSize(0);
    sizing.allow(transfer_bytes_max);
    // 1 GB/s over 1 µs: no transfer lasts half a second, and none meets a start-up.
    for (let now_s = 0; now_s < 14_400; now_s += 10) {
      if (!sizing.isDue(BOTH, now_s)) continue;
      BOTH.forEach((quantity, i) => {
        const { settled, sizes } = run(sizing.begin(quantity, BOTH.slice(i + 1), now_s, false), 8e9, 1e-6);
        const least = Math.min(65_536, Math.floor(transfer_bytes_max / 14));
        assert.deepEqual([settled, sizes], [true, [least, 2 * least, 4 * least]], `${quantity} with ${transfer_bytes_max} at ${now_s} s`);
      });
    }
  }
});

test('the budget of a due test covers the first three sizes both ways', () => {
  const sizing = new AutoSize(0);
  // Both settle with their first transfer, which takes more than half a second; then the account is
  // emptied.
  for (const quantity of BOTH) run(sizing.begin(quantity, [], 0, true), 1e5, 0.02);
  for (let i = 0; i < 9; i += 1) run(sizing.begin('another', [], 0, true), 1e11, 0.02);
  let now_s = 0;
  while (now_s < 7200 && !sizing.isDue(BOTH, now_s)) now_s += 1;
  assert.ok(0 < now_s && now_s < 7200);
  BOTH.forEach((quantity, i) => {
    const { settled, sizes } = run(sizing.begin(quantity, BOTH.slice(i + 1), now_s, false), 8e9, 1e-6);
    assert.deepEqual([settled, sizes.length], [true, 3], quantity);
  });
});

test('small transfers that settle have the rate of the link', () => {
  for (const transfer_bytes_max of [50_001, 131_072, 262_144]) {
    for (const bit_s of [1e5, 1e6, 2e7, 1e8, 5e8]) {
      for (const rtt_s of [0.001, 0.02, 0.08]) {
        const sizing = new AutoSize(0);
        sizing.allow(transfer_bytes_max);
        const { settled, rate } = run(sizing.begin('goodput', ['goodput_down'], 0, false), bit_s, rtt_s);
        if (settled) assert.ok(0.8 * bit_s <= rate, `${rate} of ${bit_s} at ${rtt_s} s with ${transfer_bytes_max}`);
      }
    }
  }
});

test('tests on demand run at once, and later tests wait for the budget', () => {
  const sizing = new AutoSize(0);
  for (let i = 0; i < 5; i += 1) assert.equal(run(sizing.begin('goodput', [], 0, true), 1e11, 0.02).sizes.at(-1), BYTES_MAX);
  assert.equal(sizing.isDue(['goodput'], 60), false);
  assert.equal(sizing.isDue(['goodput'], 3600), true);
});

/**
 * Runs `test` on a link with a TCP that doubles its window from 14 600 bytes in each round trip, as
 * a used connection does.
 */
function run(test, bit_s, rtt_s, stall = () => 0) {
  const sizes = [];
  let window_bytes = 14_600;
  let rate = 0;
  while (test.next_bytes !== null) {
    const bytes = test.next_bytes;
    sizes.push(bytes);
    let [left, elapsed_s] = [bytes, rtt_s];
    while (0 < left) {
      const sent = Math.min(left, window_bytes);
      left -= sent;
      const full = rtt_s * bit_s <= window_bytes * 8;
      elapsed_s += left === 0 || full ? (sent * 8) / bit_s : rtt_s;
      if (!full) window_bytes *= 2;
    }
    elapsed_s += stall();
    rate = (bytes * 8) / (elapsed_s - Math.min(rtt_s, elapsed_s / 2));
    test.take({ elapsed_s, rate }, rtt_s);
  }
  return { sizes, rate, settled: test.settled };
}
