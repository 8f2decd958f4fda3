import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  describeSeries,
  formatCount,
  formatDuration,
  formatFailure,
  formatInterval,
  formatLevel,
  formatTicks,
  formatTime,
  formatValue,
  quantityTitle,
  formatRefused,
} from '../src/format.js';

// Narrow no-break spaces are shown as plain ones here.
const plain = (text) => text.replaceAll('\u202f', ' ');

test('values are shown in a common unit', () => {
  const cases = [
    [52.1e-6, 's', '52.1 µs'],
    [0.00999, 's', '9.99 ms'],
    [0.131, 's', '131 ms'],
    [2.5, 's', '2.50 s'],
    [600, 's', '10.0 min'],
    [0, 's', '0 µs'],
    [93.1e6, 'bit/s', '93.1 Mbit/s'],
    [1.25e9, 'bit/s', '1.25 Gbit/s'],
    [11.6e9, 'bytes', '10.80 GiB'],
    [512, 'bytes', '512 B'],
    [0.619, 'ratio', '61.9 %'],
    [0, 'ratio', '0 %'],
    [12345, '', '12 345'],
    [-3.25, '', '−3.25'],
    [7, 'widgets', '7.00 widgets'],
    [1e300, '', '1.00e+300'],
    [NaN, 's', '–'],
    [undefined, 's', '–'],
    [null, 'ratio', '–'],
  ];
  for (const [value, unit, wanted] of cases) assert.equal(plain(formatValue(value, unit)), wanted);
});

test('an interval has one unit, and is empty when a bound is absent', () => {
  assert.equal(plain(formatInterval(40.2e-6, 90e-6, 's')), '40.2 – 90.0 µs');
  assert.equal(plain(formatInterval(900e-6, 1.2e-3, 's')), '0.900 – 1.20 ms');
  assert.equal(plain(formatInterval(-2e-6, 1e-6, 's')), '−2.00 – 1.00 µs');
  assert.equal(formatInterval(undefined, 1, 's'), '');
  assert.equal(formatInterval(1, null, 's'), '');
});

test('axis labels have the decimals of their step', () => {
  assert.deepEqual(formatTicks([0, 2.5, 5]), ['0.0', '2.5', '5.0']);
  assert.deepEqual(formatTicks([10.6, 10.7, 10.8]), ['10.6', '10.7', '10.8']);
  assert.deepEqual(formatTicks([0, 20, 40]), ['0', '20', '40']);
  assert.deepEqual(formatTicks([0.002, 0.0025]), ['0.0020', '0.0025']);
  assert.deepEqual(formatTicks([3]), ['3']);
});

test('times, durations and counts are formatted', () => {
  const now = new Date(2026, 3, 5, 12, 3, 4).getTime();
  assert.equal(formatTime(now / 1000, now), '12:03:04');
  assert.equal(formatTime(now / 1000 - 86400, now), '2026-04-04 12:03:04');
  assert.equal(formatTime(undefined), '–');
  assert.equal(plain(formatDuration(59.9)), '59 s');
  assert.equal(plain(formatDuration(7384)), '2 h 3 min');
  assert.equal(plain(formatDuration(200000)), '2 d 7 h');
  assert.equal(plain(formatCount(1234567)), '1 234 567');
  assert.equal(plain(formatLevel(0.9)), '90 %');
  assert.equal(plain(formatLevel(0.995)), '99.5 %');
});

test('failures are shown in words of bounded length', () => {
  assert.equal(formatFailure('timed_out'), 'timed out');
  assert.equal(formatFailure('unreachable'), 'could not be reached', 'whatever the cause');
  assert.equal(formatFailure('no_such_word'), 'no such word');
  assert.equal(formatFailure(''), 'failed');
  assert.equal(formatFailure('constructor'), 'constructor');
  assert.equal(formatFailure('x'.repeat(5000)).length, 160);
});

test('a refused connection is shown as an answer of its host', () => {
  const words = 'answers (port refuses connections)';
  assert.equal(formatRefused({ value: 1e-3, refused: true }), words);
  assert.equal(formatRefused({ value: 1e-3, detail: { refused: true } }), words);
  for (const point of [null, undefined, {}, { refused: false, detail: {} }]) assert.equal(formatRefused(point), '');
  const last = { value: 1e-3, refused: true };
  const series = { source: 'a', target: 'b:1', quantity: 'connect', unit: 's', failures: 0, last, next: null };
  assert.equal(plain(describeSeries(series)), `connect to b:1: last 1.00 ms, ${words}; no forecast yet`);
});

test('an unknown quantity is shown by its name', () => {
  assert.equal(quantityTitle('rtt'), 'Round-trip time');
  assert.equal(quantityTitle('connect_loaded'), 'Time to connect under load');
  assert.equal(quantityTitle('queue_length'), 'queue length');
  assert.equal(quantityTitle('constructor'), 'constructor');
});

test('a series is described in one sentence', () => {
  const series = { source: 'a', target: '127.0.0.1', quantity: 'rtt', unit: 's', failures: 0, last: null, next: null };
  assert.equal(describeSeries(series), 'rtt to 127.0.0.1: no measurement yet; no forecast yet');
  series.last = { value: 50e-6 };
  series.next = { level: 0.9, lower: 40e-6, upper: 90e-6, median: { value: 60e-6, mae: 4e-6, method: 'median_w21' } };
  assert.equal(
    plain(describeSeries(series)),
    'rtt to 127.0.0.1: last 50.0 µs; next 60.0 µs, 90 % interval 40.0 to 90.0 µs; mean absolute error 4.00 µs, method median_w21',
  );
  series.last = { error: 'timed_out' };
  series.failures = 2;
  assert.match(plain(describeSeries(series)), /last attempt failed, timed out; .*; 2 failed$/);
  assert.match(describeSeries({ ...series, target: 'a', quantity: 'cpu_available' }), /^cpu_available of a: /);
});
