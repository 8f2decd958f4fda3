// When cycles are due, and detection of time in which the page did not run.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { measureClock } from '../src/measure/clock.js';
import { EvenSampler, affordable } from '../src/measure/cycle.js';
import { Timetable, SleepDetector, retryDelay } from '../src/measure/schedule.js';
import { Traffic } from '../src/measure/traffic.js';

describe('the timetable', () => {
  test('begins at once and keeps its period', () => {
    const table = new Timetable(10);
    assert.equal(table.wait(5), 0);
    table.begin(5);
    assert.equal(table.wait(5.4), 9.6);
    table.begin(15.3);
    assert.equal(table.due_s, 25, 'a tick that is late by a little moves none of the next');
    assert.equal(table.missed, 0);
  });

  test('counts missed cycles and does not catch up', () => {
    const table = new Timetable(1);
    table.begin(0);
    table.begin(4.5);
    assert.deepEqual([table.missed, table.due_s], [3, 5]);
    assert.equal(table.wait(4.5), 0.5, 'one cycle, not four');
  });

  test('keeps its times after a cycle on demand', () => {
    const table = new Timetable(10);
    table.begin(0);
    for (const now_s of [1, 2, 9]) table.begin(now_s);
    assert.deepEqual([table.due_s, table.missed], [10, 0]);
  });

  test('applies a new period from the last cycle on', () => {
    const table = new Timetable(300);
    table.begin(100);
    table.setPeriod(200, 150);
    assert.equal(table.due_s, 300);
    table.setPeriod(1, 150);
    assert.equal(table.wait(150), 0);
    table.begin(150);
    assert.deepEqual([table.missed, table.due_s], [0, 151], 'what was not due was not missed');
    table.setPeriod(10, 150.2);
    assert.equal(table.due_s, 160);
  });

  test('backs off after failures without missed cycles, and restarts after a pause', () => {
    const table = new Timetable(1);
    table.begin(0);
    table.notBefore(8.5);
    assert.equal(table.wait(0.5), 8);
    table.begin(8.5);
    assert.deepEqual([table.missed, table.due_s], [0, 9.5]);
    table.restart();
    table.begin(500);
    assert.deepEqual([table.missed, table.due_s], [0, 501]);
  });
});

describe('the detector', () => {
  test('reports no pause while its ticks are frequent enough', () => {
    const detector = new SleepDetector();
    for (let s = 0; s < 100; s += 1) assert.equal(detector.check(s + (s % 7) / 10, 1e9 + s + (s % 7) / 10), null);
  });

  test('detects a page that was frozen, and a clock that jumped either way', () => {
    const detector = new SleepDetector();
    detector.check(0, 1e9);
    assert.match(detector.check(60, 1e9 + 60), /did not run for 60 s/);
    assert.equal(detector.check(61, 1e9 + 61), null, 'once');
    assert.match(detector.check(62, 1e9 + 362), /jumped by 300 s/);
    assert.match(detector.check(63, 1e9 + 63), /jumped by -300 s/);
  });
});

test('waits between retries grow up to a bound', () => {
  assert.deepEqual([0, 1, 2, 3, 6, 7, 99].map((failures) => retryDelay(failures, 1)), [0, 0, 1, 2, 16, 30, 30]);
  assert.equal(retryDelay(7, 0), 22.5);
});

test('the number of exchanges fits into their share of a period', () => {
  assert.equal(affordable(11, 3, 10, null), 11);
  assert.equal(affordable(11, 3, 10, 0.095), 11);
  assert.equal(affordable(11, 3, 1, 0.035), 7);
  assert.equal(affordable(11, 3, 1, 0.030), 7, 'odd: a median is one of its samples');
  assert.equal(affordable(11, 3, 1, 0.6), 3);
  assert.equal(affordable(3, 1, 1, 0.2), 1);
});

test('exchanges under load are spread over a transfer of any length', () => {
  for (const [length_s, each_s] of [[0.1, 1e-3], [1, 1e-3], [60, 1e-4], [60, 0.1], [60, 2]]) {
    const sampler = new EvenSampler(12);
    let made = 0;
    for (let now_s = 0; now_s < length_s; made += 1) {
      const batch = Array.from({ length: 5 }, (_, i) => ({ sample: each_s, began_s: now_s + i * each_s }));
      now_s += 5 * each_s + sampler.add(batch);
    }
    const starts_s = sampler.batches.map((batch) => batch[0].began_s);
    assert.ok(made < 130 && sampler.batches.length < 12, `${made} batches of ${length_s} s`);
    for (const [from, until] of [[0, 0.5], [0.5, 1]]) {
      const share = starts_s.filter((at_s) => from * length_s <= at_s && at_s < until * length_s).length / starts_s.length;
      assert.ok(0.3 <= share && share <= 0.7, `${share} of ${starts_s} in ${from} to ${until} of ${length_s} s`);
    }
  }
});

test('bytes are counted in total and per hour', () => {
  const traffic = new Traffic(30);
  traffic.add(600, 400, 31);
  assert.equal(traffic.perHour(60), null, 'a minute says nothing of an hour');
  assert.equal(traffic.perHour(630), 6000);
  for (let minute = 1; minute <= 180; minute += 1) traffic.add(10, 0, 60 * minute);
  assert.equal(traffic.bytes, 2800);
  assert.equal(traffic.perHour(60 * 180 + 30), 600);
  assert.equal(traffic.perHour(60 * 1000), 0, 'a day later the hour is empty');
});

test('the resolution of a clock is measured, also of a clock that stands still', () => {
  let reads = 0;
  const coarse = () => Math.floor((reads += 1) / 50) * 0.1;
  assert.ok(Math.abs(measureClock(coarse, false).resolution_s - 1e-4) < 1e-9);
  assert.deepEqual(measureClock(() => 0, true), { resolution_s: null, isolated: true });
});
