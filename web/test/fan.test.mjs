import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fanOf, formatAhead } from '../src/fan.js';

const horizon = (seconds, more) => ({ seconds, of: 'value', basis: 'own', median: { value: 0.03 }, lower: 0.02, upper: 0.05, ...more });

/** A series with a value every `step_s` until 1000, and with forecasts further ahead than the next. */
function seriesWith(horizons, { step_s = 10, ...more } = {}) {
  const points = [3, 2, 1, 0].map((steps) => ({ time_s: 1000 - steps * step_s, value: 0.03 }));
  const next = { time_s: 1000, level: 0.9, median: { value: 0.03 } };
  return { points, next, ahead: { time_s: 1000, level: 0.9, horizons }, failed_in_a_row: 0, ...more };
}

const secondsOf = (series) => fanOf(series).map(({ seconds }) => seconds);

test('a fan has the forecasts with an interval of their own, with their times', () => {
  const series = seriesWith([horizon(60), horizon(300, { basis: 'between' }), horizon(900, { basis: 'beyond' }), horizon(3600, { upper: undefined })]);
  assert.deepEqual(secondsOf(series), [60, 300]);
  assert.deepEqual(fanOf(series)[0], { seconds: 60, time_s: 1060, value: 0.03, lower: 0.02, upper: 0.05, level: 0.9, at_least: undefined });
  assert.deepEqual(secondsOf(seriesWith([horizon(60, { median: undefined })])), []);
});

test('a horizon of fewer than one and a half steps is the next value, and not in the fan', () => {
  const horizons = [horizon(60), horizon(300)];
  assert.deepEqual([40, 41, 201].map((step_s) => secondsOf(seriesWith(horizons, { step_s }))), [[60, 300], [300], []]);
  assert.deepEqual(secondsOf(seriesWith(horizons, { points: [{ time_s: 1000, value: 1 }] })), [], 'the step is unknown');
});

test('the usual step is that of the last 32 values, as at a station', () => {
  const early = Array.from({ length: 40 }, (_, i) => ({ time_s: i, value: 0.03 }));
  const late = Array.from({ length: 32 }, (_, i) => ({ time_s: 100 + 60 * i, value: 0.03 }));
  const failures = late.map(({ time_s }) => ({ time_s: time_s + 30, error: 'timed_out' }));
  const both = [...late, ...failures].sort((a, b) => a.time_s - b.time_s);
  assert.deepEqual(secondsOf(seriesWith([horizon(60), horizon(300)], { points: [...early, ...both] })), [300]);
});

test('times that are past are not in the fan', () => {
  const series = seriesWith([horizon(60), horizon(300)]);
  series.next.time_s = 1060;
  assert.deepEqual(secondsOf(series), [300], 'a value came after it');
  const stopped = seriesWith([horizon(60), horizon(300)]);
  stopped.ahead.now = { age_s: 61 };
  assert.deepEqual(secondsOf(stopped), [300], 'the newest value is older');
});

test('there is no fan without horizons, and none while there is no next forecast', () => {
  assert.deepEqual(fanOf(seriesWith(undefined)), []);
  assert.deepEqual(fanOf(seriesWith([], { ahead: null })), []);
  assert.deepEqual(fanOf(seriesWith([horizon(60)], { next: null })), []);
  assert.deepEqual(fanOf(seriesWith([horizon(60)], { failed_in_a_row: 2 })), []);
});

test('horizons of the next forecast itself make a fan', () => {
  const { next, ...series } = seriesWith([], { ahead: undefined });
  assert.deepEqual(secondsOf({ ...series, next: { ...next, horizons: [horizon(60)] } }), [60]);
});

test('a forecast of a fan is written with its time, interval and level', () => {
  const [one] = fanOf(seriesWith([horizon(900)]));
  assert.equal(formatAhead(one, 's'), 'in 15\u202fmin: 30.0\u202fms (90\u202f%: 20.0 – 50.0\u202fms)');
  assert.equal(formatAhead({ ...one, at_least: true }, 's', ' to '), 'in 15\u202fmin: at least 30.0\u202fms (90\u202f%: 20.0 to 50.0\u202fms)');
});
