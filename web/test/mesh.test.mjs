import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CELLS_MAX, Mesh, formatAge, isStale, formatReadOnly, whereItIs } from '../src/mesh.js';
import { SERIES_MAX, Store, keyOf } from '../src/store.js';

const series = (source, target, quantity = 'rtt', more = {}) => ({ source, target, quantity, unit: 's', count: 1, failures: 0, last: null, next: null, ...more });
const all = (names, quantity) => names.flatMap((a) => names.filter((b) => a !== b).map((b) => series(a, b, quantity)));
const peer = (host, site, state = 'up') => ({ host, state, groups: ['global', `local:${site}`] });

function meshWith(list, peers = null) {
  const mesh = new Mesh();
  mesh.replaceSeries(list);
  mesh.setPeers(peers);
  return mesh;
}

test('a single source, a browser, or hosts without measured peers make no mesh', () => {
  const lonely = [series('a', 'b'), series('a', 'a', 'cpu_available'), series('web:x', 'a')];
  assert.deepEqual(meshWith(lonely, [peer('b', 'x')]).quantities(), []);
  assert.deepEqual(meshWith([series('a', 'gateway'), series('b', 'gateway')]).quantities(), []);
  assert.deepEqual(meshWith([series('a', 'b'), series('b', 'a')]).quantities(), ['rtt']);
});

test('the quantity of the most pairs comes first', () => {
  const list = [...all(['a', 'b', 'c'], 'loss'), series('a', 'b', 'rtt'), ...all(['a', 'b', 'c'], 'queue_length'), ...all(['a', 'b'], 'goodput')];
  assert.deepEqual(meshWith(list).quantities(), ['loss', 'queue_length', 'goodput', 'rtt']);
});

test('rows are sources, columns are stations, in the selected order', () => {
  const list = [...all(['s10', 's9', 's1']), series('s1', 'quiet'), series('s1', 'http://elsewhere/')];
  const mesh = meshWith(list, [peer('s10', 'north'), peer('s9', 'south'), peer('quiet', 'east'), peer('old', 'x', 'ignored')]);
  const byName = mesh.arrange({ quantity: 'rtt' });
  assert.deepEqual(byName.rows, ['s1', 's9', 's10'], 'numbers count as numbers');
  assert.deepEqual(byName.columns, ['quiet', 's1', 's9', 's10'], 'a peer is a column, also when it measures nobody');
  assert.deepEqual(mesh.arrange({ quantity: 'rtt', sort: 'site' }).columns, ['s1', 'quiet', 's10', 's9']);
  assert.deepEqual(mesh.arrange({ quantity: 'rtt', from: 'south', to: 'S1' }).rows, ['s9'], 'a site is a word too');
  assert.deepEqual(mesh.arrange({ quantity: 'rtt', to: 'S1' }).columns, ['s1', 's10']);
  assert.deepEqual(mesh.arrange({ quantity: 'rtt', from: 'none such' }).rows, []);
});

test('every peer is a known station until it is removed, also an ignored peer', () => {
  const mesh = meshWith([], [peer('s2', 'x'), peer('s3', 'x', 'lost'), peer('old', 'x', 'ignored')]);
  assert.deepEqual([...mesh.hosts], ['s2', 's3', 'old']);
  mesh.setPeers([peer('s2', 'x')]);
  assert.deepEqual([...mesh.hosts], ['s2']);
  mesh.setPeers(null);
  assert.equal(mesh.hosts.size, 0);
});

test('the own station is at the site of its mesh part', () => {
  const mesh = meshWith(all(['s1', 's2']), [peer('s2', 'north')]);
  assert.equal(mesh.siteOf('s1'), '');
  mesh.setPart({ host: 's1', site: 'south' });
  assert.deepEqual(['s1', 's2'].map((name) => mesh.siteOf(name)), ['south', 'north']);
  assert.deepEqual(mesh.arrange({ quantity: 'rtt', from: 'south' }).rows, ['s1']);
});

test('lost stations come last, and those lost long ago or with many others only on request', () => {
  const lost = (host, since_s) => ({ ...peer(host, 'x', 'lost'), since_s });
  const names = ['s1', 's2', 's3', 's4'];
  const mesh = meshWith(all(names), [lost('s1', 100_000), lost('s2', 0), peer('s3', 'x')]);
  const rows = (now_s, shows_lost) => mesh.arrange({ quantity: 'rtt', now_s, shows_lost }).rows;
  assert.deepEqual(rows(86_400, false), ['s3', 's4', 's1', 's2'], 'a day is not more than a day');
  assert.deepEqual(rows(86_401, false), ['s3', 's4', 's1']);
  assert.deepEqual(rows(86_401, true), ['s3', 's4', 's1', 's2']);
  assert.equal(mesh.arrange({ quantity: 'rtt', now_s: 86_401, shows_lost: true }).lost, 1);
  assert.equal(mesh.arrange({ quantity: 'rtt', now_s: 86_401, from: 's1', to: 's1' }).lost, 0, 'of those asked for');
  const hosts = (count, state) => Array.from({ length: count }, (_, i) => ({ ...peer(`${state}${i}`, 'x', state), since_s: 0 }));
  const columns = (lost, up) => meshWith(all(['s1', 's2']), [...hosts(lost, 'lost'), ...hosts(up, 'up')]).arrange({ quantity: 'rtt', now_s: 1, shows_lost: false }).columns.length;
  assert.equal(columns(10, 0), 12, 'ten leave room for the others');
  assert.equal(columns(11, 0), 2);
  assert.equal(columns(11, 9), 11, 'ten are up with the station itself');
  assert.equal(columns(11, 10), 23, 'not more than are up');
});

test('only a member points to another station, and only by HTTP', () => {
  assert.equal(whereItIs(null), null);
  assert.equal(whereItIs({ role: 'host' }), null);
  assert.equal(whereItIs({ role: 'archive', engine: 'nats' }), null);
  assert.deepEqual(whereItIs({ role: 'member', joined: 'https://[2001:db8::1]:10132/a/' }), { text: '[2001:db8::1]:10132', url: 'https://[2001:db8::1]:10132/a/' });
  for (const joined of [undefined, 'head', 'javascript:alert(1)', 'head.example:10132']) {
    assert.equal(whereItIs({ role: 'member', joined }).url, null);
  }
});

test('a read-only mesh is reported', () => {
  for (const part of [null, {}, { directory: { connected: true } }, { directory: { read_only_s: null } }]) assert.equal(formatReadOnly(part), null);
  assert.match(formatReadOnly({ directory: { connected: false, read_only_s: 130, error: 'no quorum' } }), /read-only for 2\u202fmin \(no quorum\)\. .*no station is marked as lost/);
  assert.match(formatReadOnly({ directory: { connected: true, read_only_s: 12 } }), /for 10\u202fs\. /);
});

test('every pair of a hundred stations is on a page with a bounded number of cells', () => {
  const names = Array.from({ length: 100 }, (_, i) => `h${i}`);
  const mesh = meshWith(all(names));
  const seen = new Set();
  const { pages } = mesh.arrange({ quantity: 'rtt' });
  for (let page = 0; page < pages; page += 1) {
    const { rows, columns } = mesh.arrange({ quantity: 'rtt', page });
    assert.ok(rows.length * columns.length <= CELLS_MAX);
    for (const row of rows) for (const column of columns) seen.add(`${row} ${column}`);
  }
  assert.equal(seen.size, 10_000);
  assert.equal(mesh.arrange({ quantity: 'rtt', page: 99 }).page, pages - 1);
});

test('new points update a pair, and only a new pair changes rows and columns', () => {
  const mesh = meshWith(all(['a', 'b']));
  const { revision } = mesh;
  const pair = mesh.addPoint({ source: 'a', target: 'b', quantity: 'rtt', unit: 's', time_s: 100, value: 0.5, next: { median: { value: 0.4, mae: 0.1 } } });
  mesh.addPoint({ source: 'a', target: 'b', quantity: 'rtt', unit: 's', time_s: 400, error: 'timed_out', next: null });
  assert.deepEqual([pair.last.error, pair.gap_s, pair.count, pair.failures], ['timed_out', 300, 2, 1]);
  assert.equal(mesh.revision, revision);
  mesh.addPoint({ ...series('b', 'c'), time_s: 1, value: 1 });
  assert.notEqual(mesh.revision, revision);
  assert.equal(mesh.addPoint({ ...series('web:x', 'a'), time_s: 1, value: 1 }), null);
});

test('a pair is stale some time after its last value, later with longer gaps', () => {
  const at = (time_s, more) => ({ unit: 's', last: { time_s }, gap_s: 0, ...more });
  assert.deepEqual([isStale(at(0), 299), isStale(at(0), 301)], [false, true]);
  assert.deepEqual([isStale(at(0, { gap_s: 100 }), 499), isStale(at(0, { gap_s: 100 }), 501)], [false, true]);
  assert.equal(isStale(at(0, { unit: 'bit/s' }), 3_000), false, 'bulk tests are rare');
  assert.equal(isStale({ last: null }, 1e9), false);
  assert.deepEqual([-3, 9, 59, 61, 7200, 200_000, NaN].map(formatAge).join('|'), '<10\u202fs|<10\u202fs|50\u202fs|1\u202fmin|2\u202fh|2\u202fd|');
});

test('the series of a selected pair are kept beyond the bound until deselected', () => {
  const many = Array.from({ length: SERIES_MAX + 5 }, (_, i) => series('a', `h${i}`));
  const store = new Store();
  store.replaceSeries(many);
  const last = many.at(-1);
  store.pin(last, [last]);
  assert.equal(store.series.size, SERIES_MAX + 1);
  store.replaceSeries(many);
  assert.ok(store.series.has(keyOf(last)), 'also after everything was read again');
  assert.equal(store.left_out, 4);
  store.pin(many[0], [many[0]]);
  assert.ok(!store.series.has(keyOf(last)));
  store.pin(null);
  assert.equal(store.series.size, SERIES_MAX, 'what is there anyhow stays');
});
