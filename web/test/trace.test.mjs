import assert from 'node:assert/strict';
import { test } from 'node:test';
import { partOf, traceOf, typicalStep } from '../src/trace.js';

const at = (time_s, value, more = {}) => ({ time_s, value, ...more });

test('columns are scaled, and absent values are null', () => {
  const points = [
    at(10, 0.002),
    at(20, 0.003, { forecast: 0.002, lower: 0.001, upper: 0.004, method: 'm' }),
    { time_s: 30, error: 'timed_out', forecast: 0.0025 },
  ];
  const next = { median: { value: 0.0026 }, lower: 0.001, upper: 0.004 };
  const { columns, failures, ahead, scale } = traceOf(points, next, 's', 512);
  assert.equal(scale.label, 'ms');
  assert.deepEqual(columns[0], [10, 20, 30]);
  assert.deepEqual(columns[1], [null, 4, null]);
  assert.deepEqual(columns[2], [null, 1, null]);
  assert.deepEqual(columns[3], [null, 2, 2.5]);
  assert.deepEqual(columns[4], [2, 3, null]);
  assert.deepEqual(failures, [30]);
  assert.deepEqual(ahead, { value: 2.6, lower: 1, upper: 4 });
});

test('a failure has no value even if the point has one', () => {
  const { columns } = traceOf([at(1, 5), { time_s: 2, value: 0, error: 'reset' }], null, '', 512);
  assert.deepEqual(columns[4], [5, null]);
});

test('a long time without points breaks every line', () => {
  const points = [0, 1, 2, 3, 60, 61].map((time_s) => at(time_s, 1, { forecast: 1 }));
  const { columns } = traceOf(points, null, '', 512);
  assert.deepEqual(columns[0], [0, 1, 2, 3, 31.5, 60, 61]);
  for (const column of columns.slice(1)) assert.equal(column[4], null);
});

test('if gaps are marked, only gaps break the lines', () => {
  const points = [0, 1, 2, 60, 120, 121].map((time_s) => at(time_s, 1, { forecast: 1, ...(time_s === 2 ? { gap: true } : {}) }));
  const { columns } = traceOf(points, null, '', 512, 'told');
  assert.deepEqual(columns[0], [0, 1, 1.5, 2, 60, 120, 121]);
  assert.deepEqual(columns[4], [1, 1, null, 1, 1, 1, 1]);
});

test('a part of a trace keeps the range of its axis', () => {
  const points = [at(1, 5, { forecast: 4, lower: 3, upper: 6 }), { time_s: 2, error: 'reset', forecast: 5 }];
  const whole = traceOf(points, { median: { value: 4 }, lower: 3, upper: 5 }, '', 512);
  const [measured, forecast] = [partOf(whole, 'measured'), partOf(whole, 'forecast')];
  assert.deepEqual([measured.columns[3], measured.columns[4]], [[null, null], [5, null]]);
  assert.deepEqual([forecast.columns[3], forecast.columns[4]], [[4, 5], [null, null]]);
  assert.deepEqual([measured.failures, forecast.failures], [[2], []], 'a failure is of what was measured');
  assert.deepEqual([measured.ahead, forecast.ahead], [null, whole.ahead]);
  assert.deepEqual([measured.range, forecast.range], [whole.range, whole.range], 'so that heights can be compared');
});

test('only the requested number of newest points is drawn', () => {
  const points = Array.from({ length: 100 }, (_, i) => at(i, i));
  assert.deepEqual(traceOf(points, null, '', 60).columns[0].length, 60);
});

test('an empty trace, a single point and a flat line have an axis range', () => {
  for (const points of [[], [at(1, 0)], [at(1, 7), at(2, 7)], [{ time_s: 1, error: 'refused' }]]) {
    const [low, high] = traceOf(points, null, 's', 512).range;
    assert.ok(low < high, JSON.stringify(points));
  }
});

test('a forecast that differs by rounding does not widen the axis range', () => {
  const range = (forecast) => traceOf([at(1, 0.0132)], { median: { value: forecast } }, '', 512).range;
  const [low, high] = range(0.013200000000000002);
  assert.ok(low < 0.0131 && 0.0133 < high, `${low} to ${high}`);
  const [flat_low, flat_high] = range(0.0132);
  assert.ok(Math.abs(low - flat_low) < 1e-9 && Math.abs(high - flat_high) < 1e-9, 'as for equal ones');
});

test('a single spike is outside the axis range, a level shift is inside', () => {
  const calm = Array.from({ length: 100 }, (_, i) => at(i, 50 + (i % 5)));
  const spiked = traceOf([...calm, at(100, 5000)], null, '', 512).range;
  assert.ok(spiked[1] < 100);
  const shifted = traceOf([...calm, ...calm.map((p) => at(100 + p.time_s, p.value * 40))], null, '', 512).range;
  assert.ok(2160 <= shifted[1]);
});

test('the next forecast and its interval are in the axis range; shares end at 0 and 100 %', () => {
  const points = Array.from({ length: 20 }, (_, i) => at(i, 0.95 + 0.001 * i));
  const { range, ahead } = traceOf(points, { median: { value: 0.97 }, lower: 0.9, upper: 0.999 }, 'ratio', 512);
  assert.ok(range[0] <= ahead.lower && ahead.upper <= range[1]);
  assert.equal(range[1], 100);
});

test('forecasts further ahead are scaled, and in the axis range as the next one is', () => {
  const points = Array.from({ length: 20 }, (_, i) => at(i, 0.05 + 0.001 * (i % 3)));
  const fan = [{ seconds: 60, value: 0.05, lower: 0.04, upper: 0.06 }];
  const whole = traceOf(points, { median: { value: 0.05 } }, 's', 512, 'guessed', fan);
  assert.deepEqual(whole.fan, [{ seconds: 60, value: 50, lower: 40, upper: 60 }]);
  assert.ok(whole.range[0] <= 40 && 60 <= whole.range[1], `${whole.range}`);
  assert.ok(traceOf(points, { median: { value: 0.05 } }, 's', 512).range[1] < 60, 'without them it is narrower');
  assert.deepEqual([partOf(whole, 'measured').fan, partOf(whole, 'forecast').fan], [whole.fan, whole.fan], 'so that both parts have one width');
});

test('the usual step is the median', () => {
  assert.equal(typicalStep([at(0), at(1), at(2), at(50)]), 1);
  assert.equal(typicalStep([at(0)]), Infinity);
  assert.equal(typicalStep([at(5), at(5)]), Infinity);
});

test('a clock that is set back gives ascending times and a gap', () => {
  const points = [10, 20, 30, 40, 25, 35].map((time_s) => at(time_s, time_s));
  points[3] = { time_s: 40, error: 'reset' };
  const { columns, failures } = traceOf(points, null, '', 512);
  assert.deepEqual(columns[0], [10, 20, 22.5, 25, 35]);
  assert.deepEqual(columns[4], [10, 20, null, 25, 35]);
  assert.deepEqual(failures, []);
  const far_back = traceOf([at(100, 1), at(110, 2), at(1, 3)], null, '', 512);
  assert.deepEqual(far_back.columns[0], [1]);
});

test('all points with the same time are drawn', () => {
  assert.deepEqual(traceOf([at(1, 1), at(1, 2), at(2, 3)], null, '', 512).columns[0], [1, 1, 2]);
});

test('an axis has no numbers if there are only failures', () => {
  assert.equal(traceOf([{ time_s: 1, error: 'reset' }], null, 's', 512).has_values, false);
  assert.equal(traceOf([at(1, 0)], null, 's', 512).has_values, true);
});
