import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatGaps, formatLimit, formatNext, formatState, formatTrouble, expectedPerHour, formatHourly } from '../src/controls.js';
import { formatPeriod, formatSquared } from '../src/format.js';
import { fileName } from '../src/save.js';
import { unsupportedReason } from '../src/support.js';

const plain = (text) => text.replaceAll('\u202f', ' ');

test('squared errors are shown in the square of a common unit', () => {
  assert.equal(plain(formatSquared(4e-6, 's')), '4.00 ms²');
  assert.equal(plain(formatSquared(2.5e-9, 's')), '2 500 µs²');
  assert.equal(plain(formatSquared(1.44e-10, 's')), '144 µs²');
  assert.equal(plain(formatSquared(5.1e11, 'bit/s')), '0.510 (Mbit/s)²');
  assert.equal(plain(formatSquared(0, 'bit/s')), '0 (bit/s)²');
  assert.equal(plain(formatSquared(3, '')), '3.00');
  assert.equal(formatSquared(null, 's'), '–');
  assert.equal(formatSquared(undefined, 's'), '–');
});

test('periods are shown in short form', () => {
  assert.deepEqual([0, 1, 59, 60, 90, 300, 3600, 5400, undefined].map((period_s) => plain(formatPeriod(period_s))), ['0 s', '1 s', '59 s', '1 min', '90 s', '5 min', '1 h', '90 min', '–']);
});

test('the text of the state is the same while measuring and waiting', () => {
  const words = (state) => plain(formatState({ state, period_s: 1, server: 'vm' }));
  assert.equal(words('measuring'), words('waiting'));
  assert.equal(words('measuring'), 'measuring every 1 s');
  assert.equal(words('unreachable'), 'vm cannot be reached');
  assert.equal(formatState({ state: 'connecting' }), 'connecting to the station');
  assert.equal(formatState({ state: 'new one', message: 'what it says' }), 'what it says');
});

test('the time of the next measurement is not in the past, and empty if unknown', () => {
  const words = (status) => plain(formatNext(status, 100));
  assert.equal(words({ state: 'waiting', next_due_s: 107.2 }), 'in 8 s');
  assert.equal(words({ state: 'waiting', next_due_s: 90 }), 'in 0 s');
  assert.equal(words({ state: 'measuring', next_due_s: 107 }), 'now');
  assert.equal(words({ state: 'suspended', next_due_s: 107 }), '–');
  assert.equal(words({ state: 'waiting', next_due_s: null }), '–');
});

test('gaps and missed measurements are counted in words', () => {
  assert.deepEqual([formatGaps(0, 0), formatGaps(1, 31), formatGaps(2, 0), formatGaps(0, 3), formatGaps()], ['no gaps', '1 gap, 31 missed', '2 gaps', 'no gaps, 3 missed', 'no gaps']);
});

test('problems are shown as sentences', () => {
  assert.match(formatTrouble({ state: 'offline', message: '' }), /^The browser is offline\./);
  assert.equal(formatTrouble({ state: 'unreachable', message: 'vm does not answer', next_due_s: 5 }), 'vm does not answer. Retrying automatically.');
  assert.equal(formatTrouble({ state: 'unreachable', message: 'the worker failed' }), 'The worker failed.', 'none comes');
  assert.match(formatTrouble({ state: 'waiting', message: 'vm declines', next_due_s: 5 }), /^vm declines\. /);
  assert.equal(formatTrouble({ state: 'waiting', message: 'offline', next_due_s: 5 }), '');
  assert.equal(formatTrouble({ state: 'unreachable' }), '');
});

test('the browser is reported as the limit only on its own computer', () => {
  assert.match(formatLimit({ station_url: 'http://192.168.1.5:10131/', on_this_computer: true }), /this computer itself: the browser, not a network, is the limit/);
  assert.equal(formatLimit({ station_url: 'http://192.168.1.5:10131/', on_this_computer: false }), '');
});

test('file names contain no characters that a file system rejects', () => {
  const now = new Date('2026-11-22T01:07:02.5Z');
  assert.equal(fileName('vm', 'csv', now), 'barograph_vm_2026-11-22T010702Z.csv');
  assert.equal(fileName('../../[fd00::1]:80/<b>', 'csv', now), 'barograph_fd00-1-80-b_2026-11-22T010702Z.csv');
  assert.equal(fileName(null, 'json', now), 'barograph_2026-11-22T010702Z.json');
  assert.equal(fileName('x'.repeat(500), 'csv', now).length, 'barograph__2026-11-22T010702Z.csv'.length + 40);
});

test('the reason why a browser cannot measure is a sentence', () => {
  const able = { Worker: class {}, WebSocket: class {}, WebAssembly: {} };
  assert.equal(unsupportedReason({ host: 'vm', echo: { keeps: false } }, able), null);
  assert.equal(unsupportedReason(null, able), null, 'a station that did not answer may answer later');
  assert.match(unsupportedReason({ host: 'vm' }, able), /^vm does not allow browser measurements\. .*echo\.enabled = true/);
  assert.match(unsupportedReason({ host: 'vm', echo: {} }, { ...able, WebAssembly: undefined }), /it lacks WebAssembly\. Use a current browser\.$/);
});

test('the expected bytes per hour follow the settings at once', () => {
  const both = ['rtt', 'goodput', 'goodput_down'];
  const expected = expectedPerHour({ bytes: 1 << 20, period_s: 10, experiments: both });
  assert.equal(expected, 2 * 360 * (1 << 20));
  assert.equal(expectedPerHour({ bytes: 1 << 20, period_s: 10, experiments: ['rtt'] }), 0);
  assert.equal(formatHourly(expected * 1.1, expected), '792\u202fMiB an hour');
  assert.equal(formatHourly(null, expected), 'from now on about 720\u202fMiB an hour');
  assert.equal(formatHourly(47 << 20, expected), 'from now on about 720\u202fMiB an hour');
  assert.equal(formatHourly(undefined, undefined), '');
});
