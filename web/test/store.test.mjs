import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fetchLatest, pollDelay, retryDelay, watchPeers } from '../src/api.js';
import { POINTS_MAX, SERIES_MAX, Store, keyOf, matches } from '../src/store.js';

const RTT = { source: 'a', target: 'b', quantity: 'rtt', unit: 's' };
const KEY = keyOf(RTT);
const summary = (more) => ({ ...RTT, count: 0, failures: 0, last: null, next: null, ...more });
const point = (time_s, more = { value: time_s }) => ({ ...RTT, time_s, ...more });

function storeWith(points) {
  const store = new Store();
  store.replaceSeries([summary()]);
  store.startHistory(KEY);
  store.putHistory(KEY, { points });
  return store;
}

test('points that arrive while the history loads follow the history once', () => {
  const store = new Store();
  store.replaceSeries([summary()]);
  store.addPoint(point(1)); // Before the history is requested; it will contain this point.
  store.startHistory(KEY);
  store.addPoint(point(2));
  store.addPoint(point(3));
  store.putHistory(KEY, { points: [point(1), point(2)] });
  assert.deepEqual(store.series.get(KEY).points.map((p) => p.time_s), [1, 2, 3]);
});

test('waiting points follow the history at any time, unless the history has them', () => {
  const store = new Store();
  store.replaceSeries([summary()]);
  store.startHistory(KEY);
  store.addPoint(point(9));
  store.addPoint(point(9, { value: 1 })); // Another point of that time.
  store.addPoint(point(5)); // The clock was set back.
  store.putHistory(KEY, { points: [point(8), point(9)] });
  assert.deepEqual(store.series.get(KEY).points.map((p) => [p.time_s, p.value]), [[8, 8], [9, 9], [9, 1], [5, 5]]);
});

test('renamed series keep their points', () => {
  const store = storeWith([point(1), point(2)]);
  store.renameTarget('b', 'c');
  store.addPoint(point(3, { target: 'c', value: 3 }));
  assert.deepEqual([...store.series.keys()], [keyOf({ ...RTT, target: 'c' })]);
  assert.deepEqual([...store.series.values()][0].points.map((p) => p.time_s), [1, 2, 3]);
});

test('forecasts further ahead are read with the history, once for each value, and not too often', () => {
  const store = storeWith([point(1)]);
  const next = (time_s) => ({ time_s, median: { value: 1 } });
  assert.equal(store.startAhead(KEY, 0), false, 'there is no forecast yet');
  store.addPoint(point(2, { value: 2, next: next(2) }));
  assert.deepEqual([0, 60_000].map((now_ms) => store.startAhead(KEY, now_ms)), [true, false]);
  store.addPoint(point(3, { value: 3, next: next(3) }));
  assert.deepEqual([10_000, 15_000].map((now_ms) => store.startAhead(KEY, now_ms)), [false, true]);
  store.replaceSeries([summary({ next: next(4) })]);
  assert.equal(store.startAhead(KEY, 90_000), false, 'the history comes first');
  assert.equal(store.startAhead('a series that is gone', 90_000), false);
});

test('the history has a bounded size after any time', () => {
  const store = storeWith([point(0)]);
  for (let i = 1; i < 3 * POINTS_MAX; i += 1) store.addPoint(point(i));
  const { points, count, appended } = store.series.get(KEY);
  assert.equal(points.length, POINTS_MAX);
  assert.equal(points.at(-1).time_s, 3 * POINTS_MAX - 1);
  assert.equal(count, 3 * POINTS_MAX - 1);
  assert.equal(appended, 3 * POINTS_MAX);
});

test('waiting points are bounded when the history never arrives', () => {
  const store = new Store();
  store.replaceSeries([summary()]);
  store.startHistory(KEY);
  for (let i = 0; i < 2 * POINTS_MAX; i += 1) store.addPoint(point(i));
  assert.equal(store.series.get(KEY).pending.length, POINTS_MAX);
});

test('a failure counts as a failure and has no value', () => {
  const store = storeWith([point(1)]);
  store.addPoint(point(2, { error: 'timed_out', after_s: 1 }));
  const series = store.series.get(KEY);
  assert.deepEqual([series.count, series.failures], [0, 1]);
  assert.equal(series.last_failure.error, 'timed_out');
  assert.equal(series.points.at(-1).value, undefined);
  store.addPoint(point(3));
  assert.deepEqual([series.count, series.failures], [1, 1]);
  assert.equal(series.last_failure.time_s, 2);
});

test('a point that is already in the list is counted once', () => {
  const store = new Store();
  store.replaceSeries([summary({ count: 5, last: point(1) })]);
  store.addPoint(point(1));
  assert.equal(store.series.get(KEY).count, 5);
  store.addPoint(point(2));
  store.addPoint(point(2));
  assert.equal(store.series.get(KEY).count, 7, 'equal points of an application are two points');
});

test('the last failure is taken from the history', () => {
  const store = storeWith([point(1, { error: 'refused' }), point(2, { error: 'reset' }), point(3)]);
  assert.equal(store.series.get(KEY).last_failure.error, 'reset');
});

test('a series that was not in the list is added', () => {
  const store = new Store();
  assert.equal(store.addPoint(point(1)), KEY);
  assert.equal(store.series.get(KEY).last.time_s, 1);
});

test('after a new list, histories are requested again, and old answers are ignored', () => {
  const store = storeWith([point(1)]);
  store.startHistory(KEY);
  store.replaceSeries([summary({ count: 9 })]);
  store.putHistory(KEY, { points: [point(8)] });
  assert.equal(store.series.get(KEY).history, 'absent');
  assert.equal(store.series.get(KEY).count, 9);
  assert.deepEqual(store.series.get(KEY).points.map((p) => p.time_s), [1], 'the old graph stays until the new comes');
  store.replaceSeries([]);
  assert.equal(store.series.size, 0);
});

test('series of other sources do not displace the own series', () => {
  const store = new Store();
  store.host = 'a';
  const others = Array.from({ length: SERIES_MAX + 7 }, (_, i) => summary({ source: 'other', target: `!${i}` }));
  store.replaceSeries([...others, summary()]);
  assert.equal(store.series.size, SERIES_MAX);
  assert.equal(store.left_out, 8);
  assert.ok(store.series.has(KEY));
  assert.equal(store.addPoint(point(1, { target: 'c', value: 1 })), keyOf({ ...RTT, target: 'c' }));
  assert.equal(store.addPoint(point(1, { source: 'other', target: 'new', value: 1 })), null);
  assert.equal(store.series.size, SERIES_MAX);
  assert.equal(store.left_out, 9);
});

test('series beyond the bound are counted and not stored', () => {
  const store = new Store();
  const list = Array.from({ length: SERIES_MAX + 7 }, (_, i) => summary({ target: `t${i}` }));
  store.replaceSeries(list);
  assert.equal(store.series.size, SERIES_MAX);
  assert.equal(store.left_out, 7);
  assert.equal(store.addPoint(point(1)), null);
});

test('series are grouped: own host, then its targets by name, then other sources', () => {
  const store = new Store();
  const of = (source, target, quantity) => summary({ source, target, quantity });
  store.replaceSeries([
    of('other', 'a', 'rtt'),
    of('me', 'z', 'rtt'),
    of('me', 'b', 'zebra'),
    of('me', 'b', 'goodput'),
    of('me', 'b', 'rtt'),
    of('me', 'me', 'memory_free'),
    of('me', 'me', 'cpu_available'),
  ]);
  const groups = store.groups('me').map(({ source, target, own, keys }) => [source, target, own, keys.map((key) => JSON.parse(key)[2])]);
  assert.deepEqual(groups, [
    ['me', 'me', true, ['cpu_available', 'memory_free']],
    ['me', 'b', false, ['rtt', 'goodput', 'zebra']],
    ['me', 'z', false, ['rtt']],
    ['other', 'a', false, ['rtt']],
  ]);
});

test("another station's series are kept only while their pair is pinned", () => {
  const store = new Store();
  store.isOtherStation = (source) => source === 'other';
  const others = Array.from({ length: SERIES_MAX }, (_, i) => summary({ source: 'other', target: `t${i}` }));
  const list = [...others, summary(), summary({ quantity: 'loss' })];
  store.replaceSeries(list);
  assert.deepEqual(store.groups('a').map(({ source, keys }) => [source, keys.length]), [['a', 2]]);
  assert.equal(store.left_out, 0);
  assert.equal(store.addPoint(point(1, { source: 'other', target: 't7', value: 1 })), null);
  store.pin({ source: 'other', target: 't7' }, [others[7]]);
  const sources = () => [...store.series.values()].map(({ source, quantity }) => `${source} ${quantity}`);
  assert.deepEqual(sources(), ['a rtt', 'a loss', 'other rtt']);
  assert.notEqual(store.addPoint(point(1, { source: 'other', target: 't7', quantity: 'goodput', value: 1 })), null);
  store.replaceSeries([...list, summary({ source: 'other', target: 't7', quantity: 'goodput' })]);
  assert.deepEqual(sources(), ['a rtt', 'a loss', 'other rtt', 'other goodput'], 'after a new list, too');
  assert.equal(store.left_out, 0);
  store.pin(null);
  assert.deepEqual(sources(), ['a rtt', 'a loss']);
});

test('series that applications and browsers report are kept', () => {
  const store = new Store();
  store.isOtherStation = (source) => source === 'other';
  const reported = [
    summary({ source: 'backup', target: 'backup' }),
    summary({ source: 'lab', target: 'b' }),
    summary({ source: 'web:reader', target: 'a' }),
    summary({ source: 'other', target: 'other' }),
  ];
  store.replaceSeries(reported.slice(0, 1));
  for (const { source, target } of reported.slice(1)) store.addPoint(point(1, { source, target, value: 1 }));
  const sources = () => [...store.series.values()].map(({ source }) => source);
  assert.deepEqual(sources(), ['backup', 'lab', 'web:reader']);
  store.replaceSeries(reported);
  assert.deepEqual(sources(), ['backup', 'lab', 'web:reader']);
});

test('series of peers that become known after the list leave the list, others stay', () => {
  let peers = new Set();
  const store = new Store();
  store.isOtherStation = (source) => peers.has(source);
  const others = Array.from({ length: SERIES_MAX }, (_, i) => summary({ source: 'other', target: `t${i}` }));
  store.replaceSeries([summary({ count: 5 }), ...others, summary({ source: 'backup' })]);
  assert.equal(store.left_out, 2);
  store.startHistory(KEY);
  store.putHistory(KEY, { points: [point(1)] });
  store.addPoint(point(2));
  peers = new Set(['other']);
  store.reapplyList();
  const sources = () => [...new Set([...store.series.values()].map(({ source }) => source))];
  assert.deepEqual([sources(), store.left_out], [['a', 'backup'], 0]);
  const { count, history, points } = store.series.get(KEY);
  assert.deepEqual([count, history, points.length], [6, 'present', 2]);
  store.addPoint(point(1, { source: 'lab', value: 1 }));
  store.pin({ source: 'other', target: 't7' }, [others[7]]);
  store.reapplyList();
  assert.deepEqual(new Set(sources()), new Set(['a', 'backup', 'lab', 'other']));
  peers = new Set();
  store.reapplyList();
  assert.equal(store.series.size, SERIES_MAX, 'a peer that was removed is any source again');
});

test('the filter matches series that contain every word', () => {
  const series = { source: 'me', target: 'mirror.example.org', quantity: 'rtt' };
  assert.ok(matches(series, 'Round-trip time', ''));
  assert.ok(matches(series, 'Round-trip time', 'MIRROR trip'));
  assert.ok(!matches(series, 'Round-trip time', 'mirror goodput'));
});

test('waits between attempts grow up to a bound', () => {
  const delays = [0, 1, 2, 3, 4, 5, 6, 100, 1e9].map((failures) => retryDelay(failures, 1));
  assert.deepEqual(delays, [1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000, 30000]);
  assert.equal(retryDelay(0, 0), 750);
});

test('polling without a stream follows the interval of the station, within bounds', () => {
  assert.deepEqual([5, 0, 1e9, undefined, 0.001].map((page_period_s) => pollDelay({ page_period_s })), [5000, 30000, 30000, 30000, 1000]);
});

test('peers are read once for several events, or for events during the read', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const streams = [];
  globalThis.EventSource = class extends EventTarget {
    constructor() {
      super();
      streams.push(this);
    }
  };
  t.after(() => delete globalThis.EventSource);
  const calls = [];
  const answers = [];
  watchPeers((is_removed) => {
    calls.push(is_removed);
    return new Promise((resolve, reject) => answers.push({ resolve, reject }));
  });
  const send = (...kinds) => kinds.forEach((kind) => streams[0].dispatchEvent(new Event(kind)));
  const wait = async () => {
    t.mock.timers.tick(1000);
    for (let i = 0; i < 5; i += 1) await null;
  };
  for (let i = 0; i < 500; i += 1) send('removed', 'joined');
  await wait();
  assert.deepEqual(calls, [true]);
  send('lost', 'returned');
  await wait();
  assert.deepEqual(calls, [true], 'while an answer is read');
  answers[0].reject(new Error('the station is gone'));
  await wait();
  await wait();
  assert.deepEqual(calls, [true, false]);
  answers[1].resolve();
  await wait();
  await wait();
  assert.deepEqual(calls, [true, false], 'nothing is left to read');
});

test('a list with further pages after the last one read is incomplete', async (t) => {
  let next = 'more';
  t.mock.method(globalThis, 'fetch', async () => new Response(JSON.stringify({ latest: ['pair'], next })));
  assert.deepEqual(await fetchLatest('rtt', 2), { found: ['pair', 'pair'], whole: false });
  next = null;
  assert.deepEqual(await fetchLatest('rtt', 2), { found: ['pair'], whole: true });
});
