// The communicator in virtual time, against a station that comes and goes; and the page's side of
// it.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { PageMeasurements } from '../src/here.js';
import { fanOf } from '../src/fan.js';
import { Store, keyOf } from '../src/store.js';
import { obstacle, stationUrl } from '../src/measure/address.js';
import { Communicator } from '../src/measure/communicator.js';
import { runWorker } from '../src/measure/port.js';
import { EchoSession } from '../src/measure/session.js';
import { FakeWorld, forecaster } from '../testkit/world.mjs';

const makeBattery = await forecaster();
const URL_ = 'http://aneroid.example:10132/';
const KEYS = ['is', 'source', 'target', 'quantity', 'unit', 'time_s', 'value', 'forecast', 'lower', 'upper', 'method', 'next', 'detail'];

describe('the communicator', () => {
  test('measures at once, forecasts from the second point on, and has points like a stream', async () => {
    const { world, points, series } = begin({ period_s: 10 });
    await world.advance(2000);
    assert.deepEqual(points.map((point) => point.quantity), ['rtt', 'rtt_nagle', 'goodput', 'goodput_down', 'rtt_loaded']);
    assert.ok(points.every((point) => point.forecast === undefined && point.next.count === 1));
    await world.advance(20_000);
    const third = series('rtt')[2];
    assert.deepEqual(Object.keys(third).sort(), KEYS.filter((key) => key !== 'lower' && key !== 'upper').toSorted(), 'calibrating');
    assert.deepEqual([third.source, third.target, third.unit], ['this browser', 'aneroid', 's']);
    assert.equal(series('rtt')[1].forecast, series('rtt')[0].next.median.value);
    const store = new Store();
    for (const { is, ...point } of points) store.addPoint(point);
    assert.deepEqual([...store.series.values()].map((one) => one.count), [3, 3, 3, 3, 3]);
    await world.advance(90_000);
    const twelfth = series('rtt')[11];
    assert.deepEqual(Object.keys(twelfth).sort(), KEYS.toSorted(), 'ten forecasts were scored');
    assert.ok(0 <= twelfth.lower && twelfth.lower <= twelfth.upper);
  });

  test('points have forecasts up to an hour ahead, which the page draws once they have intervals', async () => {
    const { world, communicator, series } = begin({ period_s: 10, experiments: ['rtt'] });
    await world.advance(1_205_000);
    assert.deepEqual(series('rtt')[0].next.horizons, [], 'the time between points is unknown');
    const last = series('rtt').at(-1);
    assert.deepEqual(last.next.horizons.map(({ seconds, of }) => [seconds, of]), [60, 300, 900, 3600].map((seconds) => [seconds, 'value']));
    const store = new Store();
    store.replaceSeries([{ ...last, count: 0, failures: 0, last: null, next: null }]);
    store.startHistory(keyOf(last));
    store.putHistory(keyOf(last), { points: [] });
    for (const point of series('rtt')) store.addPoint(point);
    const fan = fanOf(store.series.get(keyOf(last)));
    assert.deepEqual(fan.map(({ seconds, time_s }) => [seconds, time_s]), [60, 300].map((seconds) => [seconds, last.time_s + seconds]));
    for (const { value, lower, upper } of fan) assert.ok(0 <= lower && lower <= value && value <= upper, `${lower} ${value} ${upper}`);
    communicator.set({ kind: 'nws' });
    assert.deepEqual(communicator.history('rtt', 9).next.horizons.map(({ seconds }) => seconds), [60, 300, 900, 3600], 'another forecaster has them, too');
  });

  test('corrects rates by the round trip and keeps the raw rates', async () => {
    const { world, series } = begin({ bytes: 1 << 17 }, { rtt_ms: 100, bit_s: 8e6 });
    await world.advance(5000);
    for (const quantity of ['goodput', 'goodput_down']) {
      const { value, detail } = series(quantity)[0];
      assert.ok(Math.abs(detail.raw - 1_048_576 / 0.231) / detail.raw < 0.02, `${quantity} ${detail.raw}`);
      assert.ok(Math.abs(value - 8e6) / value < 0.02, `${quantity} ${value}`);
    }
  });

  for (const [bit_s, rtt_ms] of [[1e8, 20], [2e7, 20], [1e6, 50], [5e8, 2]]) {
    test(`rates settle with the default size: ${bit_s / 1e6} Mbit/s, ${rtt_ms} ms`, async () => {
      const { world, series, status } = begin({}, { rtt_ms, bit_s });
      await world.advance(120_000);
      assert.equal(status().bytes, 'auto');
      for (const quantity of ['goodput', 'goodput_down']) {
        for (const { value, detail } of series(quantity)) {
          assert.ok(Math.abs(value / bit_s - 1) < 0.1, `${quantity} ${value}`);
          assert.ok(value <= bit_s * 1.0001, `${quantity} ${value}: more than the link has`);
          assert.equal(detail.at_least, undefined);
        }
        assert.equal(series(quantity).at(-1).next.count, series(quantity).length);
      }
      assert.ok(12 <= series('rtt').length && 0 < series('rtt_loaded').length);
    });
  }

  test('a shorter round trip does not inflate the corrected rate', async () => {
    const bit_s = 1e7;
    const { world, series } = begin({ bytes: 65_536 }, { rtt_ms: 50, bit_s });
    await world.advance(35_000);
    world.station.rtt_ms = 5;
    await world.advance(40_000);
    for (const quantity of ['goodput', 'goodput_down']) {
      assert.ok(5 < series(quantity).length);
      for (const { value } of series(quantity)) assert.ok(value <= bit_s * 1.001, `${quantity}: ${value} bit/s on a link of ${bit_s} bit/s`);
    }
  });

  test('bulk tests stay within the displayed bytes per hour', async () => {
    const { world, series, status } = begin({ period_s: 1 }, { rtt_ms: 2, bit_s: 5e8 });
    await world.advance(600_000);
    const { traffic, bulk_bytes_per_hour_max } = status();
    assert.equal(bulk_bytes_per_hour_max, 2 ** 28);
    assert.ok(traffic.bytes < bulk_bytes_per_hour_max * (1 / 4 + 1 / 6) * 1.05, `${traffic.bytes}`);
    assert.ok(5 < series('goodput').length && series('goodput').length < 150, `${series('goodput').length} tests`);
    assert.equal(series('goodput').length, series('goodput_down').length);
    assert.equal(series('rtt').length, 600, 'the round trips go on');
    assert.notEqual(status().state, 'unreachable');
  });

  test('a page that measures only rates waits until the next test is due', async () => {
    const { world, series, status } = begin({ period_s: 1, experiments: ['goodput'] }, { rtt_ms: 2, bit_s: 5e9 });
    await world.advance(60_000);
    assert.ok(series('goodput').length < 5, `${series('goodput').length}`);
    assert.equal(status().state, 'waiting', 'a round in which nothing was due is no failure');
  });

  test('an unsettled rate is marked, and is neither forecast nor reported', async () => {
    const { world, communicator, series } = begin({}, { rtt_ms: 20, bit_s: 1e11, keeps: true });
    communicator.share('browser');
    await world.advance(9000);
    const [point] = series('goodput_down');
    assert.deepEqual([point.detail.at_least, point.detail.bytes, point.next], [true, 1 << 24, null]);
    assert.deepEqual([...new Set(world.station.reports.map(({ quantity }) => quantity))].sort(), ['rtt', 'rtt_loaded', 'rtt_nagle']);
    assert.equal(communicator.history('goodput_down', 9).points[0].at_least, true);
    assert.match(communicator.csv(), /goodput_down,bit\/s,.*,true\r\n/);
    assert.match(communicator.csv('goodput_down'), /1 rates that had not settled/);
    communicator.set({ kind: 'nws' });
    assert.equal(communicator.history('goodput_down', 9).next, null);
  });

  test('with a fixed size, lower bounds are a series with a forecast', async () => {
    const { world, communicator, series } = begin({ bytes: 65_536 }, { rtt_ms: 20, bit_s: 1e9 });
    await world.advance(25_000);
    const point = series('goodput').at(-1);
    assert.deepEqual([point.detail.at_least, point.next.at_least, point.next.count], [true, true, 3]);
    assert.equal(communicator.csv('goodput').trimEnd().split('\n').length, 3 + 3);
    communicator.set({ kind: 'nws' });
    assert.equal(communicator.history('goodput', 9).next.at_least, true);
  });

  test('corrects rates only by a round trip of the same cycle', async () => {
    const { world, communicator, series } = begin({ period_s: 20 }, { rtt_ms: 100, bit_s: 8e6 });
    await world.advance(10_000);
    assert.ok(0.1 < series('goodput')[0].detail.rtt_forecast_s);
    world.station.decline = (kind) => (kind === 1 ? 4 : 0);
    await world.advance(20_000);
    communicator.set({ experiments: ['goodput', 'goodput_down'] });
    await world.advance(20_000);
    for (const quantity of ['goodput', 'goodput_down']) {
      for (const { value, detail } of series(quantity).slice(1)) {
        assert.deepEqual([value, detail.rtt_forecast_s], [detail.raw, undefined]);
      }
      assert.equal(series(quantity).length, 3);
    }
  });

  test('times the round trip under load, and omits it without load', async () => {
    const slow = begin({ bytes: 1 << 20 }, { bit_s: 1e7 });
    await slow.world.advance(9000);
    assert.ok(5 < slow.series('rtt_loaded')[0].detail.n);
    assert.ok(slow.series('rtt_loaded')[0].detail.n <= 2 * 12 * 5);
    const declined = begin({}, { decline: (kind) => (2 < kind ? 3 : 0) });
    await declined.world.advance(5000);
    assert.deepEqual(declined.series('rtt_loaded'), []);
    assert.equal(declined.series('goodput')[0].error, 'declined');
    assert.match(declined.status().message, /share of bytes/);
    assert.equal(declined.status().state, 'waiting', 'it is there, after all');
  });

  test('an unreachable station gives failures with a reason, until it returns', async () => {
    const { world, points, series, status } = begin({ period_s: 1, experiments: ['rtt'] });
    await world.advance(3500);
    world.station.refuse = 'gone';
    for (const socket of world.open_sockets) socket.drop(1006);
    await world.advance(60_000);
    const failures = series('rtt').filter((point) => point.error);
    assert.ok(failures.every((point) => point.error === 'unreachable' && point.value === undefined));
    assert.ok(4 < failures.length && failures.length < 10, `${failures.length} failures: later and later`);
    assert.equal(failures.at(-1).next.count, 4, 'a failure is never learnt');
    assert.equal(status().state, 'unreachable');
    assert.match(status().message, /does not answer/);
    world.station.refuse = null;
    await world.advance(35_000);
    assert.equal(status().state, 'waiting');
    assert.ok(points.at(-1).value !== undefined);
    assert.equal(status().gaps, 0);
  });

  test('a connection lost during a transfer is a reset, and the next cycle reconnects', async () => {
    const { world, series } = begin({ period_s: 10, bytes: 1 << 20, experiments: ['goodput'] }, { bit_s: 1e6 });
    await world.advance(3000);
    for (const socket of world.open_sockets) socket.drop(1006);
    await world.advance(30_000);
    assert.equal(series('goodput')[0].error, 'reset');
    assert.ok(0 < series('goodput')[1].value);
  });

  test('an invalid response is a failure, never a value', async () => {
    const { world, points } = begin({ period_s: 1 }, { answer: (socket) => (socket.deliver([1, 2, 3]), true) });
    await world.advance(5000);
    assert.ok(0 < points.length);
    assert.ok(points.every((point) => point.error === 'garbage' && point.value === undefined));
  });

  for (const [name, sleep] of [
    ['a computer that slept', (world) => world.sleep(3_600_000, false)],
    ['a tab that was frozen', (world) => world.sleep(90_000)],
  ]) {
    test(`${name} leaves a gap: no point, no failure`, async () => {
      const { world, series, status } = begin({ bytes: 4 << 20, experiments: ['rtt', 'goodput'] }, { bit_s: 1e7 });
      await world.advance(1500);
      assert.deepEqual([series('rtt').length, series('goodput').length, status().state], [1, 0, 'measuring']);
      await sleep(world);
      await world.advance(12_000);
      assert.equal(status().gaps, 1);
      assert.deepEqual(series('goodput').map((point) => point.error), [undefined], 'what was under way is thrown away');
      assert.deepEqual(series('rtt').map((point) => point.detail.gap), [undefined, true]);
      assert.equal(status().missed, 0);
      const elapsed_s = series('goodput')[0].detail.elapsed_s;
      assert.ok(elapsed_s < 5, `${elapsed_s} s of sleep in a transfer`);
    });
  }

  test('an offline page has a gap and measures soon after it is online', async () => {
    const { world, communicator, points, status } = begin({ period_s: 5, bytes: 4 << 20 }, { bit_s: 1e7 });
    await world.advance(1000);
    const before = points.length;
    communicator.online(false);
    await world.advance(60_000);
    assert.deepEqual([points.length, status().state, status().next_due_s, world.open_sockets.length], [before, 'offline', null, 0]);
    assert.throws(() => communicator.measure({ quantity: 'rtt' }), /offline/);
    communicator.suspend();
    communicator.resume();
    communicator.online(true);
    await world.advance(4900);
    assert.equal(points.length, before, 'a network is there some seconds after the browser says so');
    await world.advance(1000);
    assert.ok(before < points.length);
    communicator.suspend();
    await world.sleep(3_600_000);
    await world.advance(2000);
    assert.equal(status().gaps, 1, 'only what was due');
    assert.ok(points.every((point) => point.error === undefined));
    assert.equal(points[before].detail.gap, true);
  });

  test('suspending closes its sessions; resuming measures at once', async () => {
    const { world, communicator, points, status } = begin({ period_s: 1, bytes: 65_536 });
    await world.advance(2500);
    communicator.suspend();
    await world.advance(100);
    const before = points.length;
    await world.advance(10_000);
    assert.deepEqual([points.length, status().state, world.open_sockets.length], [before, 'suspended', 0]);
    await during(world, communicator.measureNow());
    assert.equal(points.length, before + 5, 'one cycle on demand');
    assert.equal(status().state, 'suspended');
    communicator.resume();
    await world.advance(500);
    assert.equal(points.length, before + 10);
  });

  test('sessions of tests on demand are closed later when suspended', async () => {
    const { world, communicator } = begin({ period_s: 1 });
    await world.advance(2500);
    communicator.suspend();
    const opened = world.sockets.length;
    for (let i = 0; i < 5; i += 1) await during(world, communicator.measure({ quantity: 'rtt' }), 1000);
    assert.deepEqual([world.sockets.length, world.open_sockets.length], [opened + 1, 1], 'one session for all');
    await during(world, communicator.measureNow(), 1000);
    await world.advance(5000);
    assert.equal(world.open_sockets.length, 0);
    await during(world, communicator.measure({ quantity: 'rtt' }), 1000);
    assert.equal(world.open_sockets.length, 1);
  });

  test('cycles on demand do not replace scheduled cycles', async () => {
    const { world, communicator, series } = begin({ period_s: 10, experiments: ['rtt'] });
    await world.advance(1000);
    for (let i = 0; i < 4; i += 1) await during(world, communicator.measureNow(), 1000);
    await world.advance(15_500);
    const times_s = series('rtt').map((point) => Math.round(point.time_s - series('rtt')[0].time_s));
    assert.deepEqual(times_s, [0, 1, 2, 3, 4, 10, 20]);
  });

  test('an experiment that was disabled for a while continues after a gap', async () => {
    const { world, communicator, series } = begin({ period_s: 1, experiments: ['rtt', 'goodput'] });
    await world.advance(1500);
    communicator.set({ experiments: ['rtt'] });
    await world.advance(5000);
    communicator.set({ experiments: ['rtt', 'goodput', 'goodput_down'] });
    await world.advance(2000);
    assert.deepEqual(series('goodput').map((point) => point.detail.gap), [undefined, undefined, true, undefined]);
    assert.ok([...series('rtt'), ...series('goodput_down')].every((point) => point.detail.gap === undefined));
  });

  test('a slow cycle delays the next, and missed cycles are counted', async () => {
    const { world, status, series } = begin({ period_s: 1, bytes: 1 << 20, experiments: ['goodput'] }, { bit_s: 3e6 });
    await world.advance(31_000);
    assert.ok(5 < series('goodput').length);
    const steps = series('goodput').slice(1).map((point, i) => point.time_s - series('goodput')[i].time_s);
    assert.ok(steps.every((step) => 2.8 < step), `no bursts: ${steps}`);
    assert.ok(8 < status().missed);
  });

  test('an experiment on demand gives a raw value and is not recorded', async () => {
    const { world, communicator, points } = begin({ experiments: ['rtt'] }, { rtt_ms: 100, bit_s: 8e6 });
    await world.advance(5000);
    const before = points.length;
    const { value, n, samples } = await during(world, communicator.measure({ quantity: 'goodput', bytes: 65_536 }));
    assert.ok(Math.abs(value - 524_288 / 0.165) / value < 0.02);
    assert.deepEqual([n, samples.length, points.length], [1, 1, before]);
    assert.equal((await during(world, communicator.measure({ quantity: 'rtt', n: 4 }))).samples.length, 4);
    assert.throws(() => communicator.measure({ quantity: 'loss' }), RangeError);
    const wish = () => communicator.measure({ quantity: 'rtt' }).catch(() => {});
    assert.throws(() => Array.from({ length: 18 }, wish), /too many/, 'one under way and 16 that wait');
  });

  test('creates files while no exchange is timed, or after a delay', async () => {
    const { world, communicator, status } = begin({ bytes: 1 << 20, experiments: ['rtt', 'goodput'] }, { bit_s: 4e6 });
    await world.advance(1000);
    assert.equal(status().state, 'measuring');
    let told = null;
    communicator.history('goodput', 1).then(({ count }) => (told = count));
    await world.advance(500);
    assert.equal(told, null);
    await world.advance(1500);
    assert.equal(told, 1, 'the transfer has ended, and is in it');
    world.station.bit_s = 4e5;
    await world.advance(8500);
    assert.equal(status().state, 'measuring');
    communicator.csv().then((text) => (told = text));
    await world.advance(5000);
    assert.match(told, /^time_s/);
  });

  test('a page that starts offline waits without a gap', async () => {
    const world = withSessions(new FakeWorld());
    const communicator = new Communicator({ world, makeBattery, post: () => {}, clock: {} });
    communicator.start(URL_, {}, false);
    await world.advance(30_000);
    assert.deepEqual([communicator.status().state, communicator.status().gaps, world.sockets.length], ['offline', 0, 0]);
  });

  for (const [url, from_this_host, wanted] of [
    ['http://192.168.1.5:10131/', true, true],
    ['http://192.168.1.5:10131/', false, false],
    ['http://192.168.1.5:10131/', undefined, false],
    ['http://127.0.0.1:10131/', undefined, true],
  ]) {
    test(`a station at ${url} that reports ${from_this_host} is ${wanted ? '' : 'not '}on this computer`, async () => {
      const { world, communicator, status } = begin({ period_s: 1, experiments: ['rtt'] }, { from_this_host });
      communicator.set({ station_url: url });
      await world.advance(2000);
      assert.equal(status().on_this_computer, wanted);
    });
  }

  test('points measured before the station reported its name are kept', async () => {
    const { world, communicator, series, status } = begin({ period_s: 1, experiments: ['rtt'] }, { refuse: 'gone' });
    await world.advance(5000);
    const before = series('rtt').length;
    assert.ok(1 < before);
    assert.deepEqual([status().server, series('rtt')[0].target], ['aneroid.example:10132', 'aneroid.example:10132']);
    world.station.refuse = null;
    await world.advance(10_000);
    const { target, count, next, points } = communicator.history('rtt', 1000);
    assert.deepEqual([status().server, target, next.target], ['aneroid', 'aneroid', 'aneroid']);
    assert.equal(count, series('rtt').length);
    assert.equal(points.filter((point) => point.error).length, before + series('rtt').slice(before).filter((point) => point.error).length);
    world.station.host = 'barometer'; // As after a restart under another name.
    for (const socket of world.open_sockets) socket.drop(1006);
    const learnt = next.count;
    await world.advance(5000);
    assert.equal(status().server, 'barometer');
    assert.ok(learnt < communicator.history('rtt', 1).next.count);
    assert.ok(communicator.csv().split('\r\n').slice(1, -1).every((line) => line.split(',')[2] === 'barometer'));
  });

  test('a new station starts with no points, a new forecaster learns existing points', async () => {
    const { world, communicator, series, status, points } = begin({ period_s: 1, experiments: ['rtt'] });
    await world.advance(20_500);
    communicator.set({ kind: 'nws' });
    assert.equal(communicator.history('rtt', 10).next.count, 21);
    await world.advance(1000);
    assert.equal(series('rtt').at(-1).next.count, 22);
    world.station.host = 'other';
    communicator.set({ station_url: 'http://other.example/' });
    await world.advance(500);
    assert.deepEqual([status().server, points.at(-1).target, points.at(-1).next.count], ['other', 'other', 1]);
    assert.equal(world.sockets.at(-1).url, 'ws://other.example/v1/echo');
    assert.equal(world.open_sockets.length, 1);
  });

  test('reports points only if the user agreed and the station stores them', async () => {
    const { world, communicator } = begin({ period_s: 1, experiments: ['rtt'] }, { keeps: true });
    await world.advance(1500);
    assert.deepEqual(world.station.reports, []);
    communicator.share('browser');
    await world.advance(1000);
    assert.equal(world.station.reports.length, 1);
    const [{ source, quantity, value }] = world.station.reports;
    assert.deepEqual([source, quantity], ['browser', 'rtt']);
    assert.ok(Math.abs(value - 0.010) < 1e-4);
    communicator.share(null);
    await world.advance(1000);
    assert.equal(world.station.reports.length, 1);
  });

  test('consent to share with one station does not apply to another station', async () => {
    const { world, communicator, status } = begin({ period_s: 1, experiments: ['rtt'] }, { keeps: true });
    communicator.share('browser');
    await world.advance(1500);
    const before = world.station.reports.length;
    assert.ok(0 < before);
    communicator.set({ station_url: 'http://other.example/' });
    await world.advance(3000);
    assert.deepEqual([world.station.reports.length, status().sharing, status().keeps], [before, false, true]);
  });

  test('stops for good and leaves no timer, no session, no battery', async () => {
    const { world, communicator, points } = begin({ period_s: 1 });
    await world.advance(1500);
    communicator.stop();
    const before = points.length;
    await world.advance(60_000);
    assert.deepEqual([points.length, world.timers, world.open_sockets.length], [before, 0, 0]);
  });
});

describe('addresses', () => {
  const at = (href) => new URL(href);
  test('are normalized to station URLs', () => {
    assert.equal(stationUrl('https://a.example'), 'https://a.example/');
    assert.equal(stationUrl('http://[2001:DB8::1]:10132/behind/index.html?x#y'), 'http://[2001:db8::1]:10132/behind/');
    assert.equal(stationUrl('https://a.example/behind'), 'https://a.example/behind/');
    assert.equal(stationUrl('https://a.example/v1.2/x/'), 'https://a.example/v1.2/x/');
    assert.equal(stationUrl('a.example:10132', 'https:'), 'https://a.example:10132/');
    assert.equal(stationUrl('[::1]:10132'), 'http://[::1]:10132/');
    for (const bad of ['non sense', '', 'ftp://a', 42, 'ws://a', 'http://user:word@a/', 'http://']) assert.throws(() => stationUrl(bad), TypeError, bad);
  });

  test('that cannot work are rejected before connecting', () => {
    const page = at('https://station.example/');
    assert.equal(obstacle('https://other.example', page), null);
    assert.equal(obstacle('http://station.example/', at('http://station.example/x')), null);
    assert.match(obstacle('http://other.example:10132', page).reason, /cannot open plain http connections.*http:\/\/other\.example:10132\//);
    assert.equal(obstacle('http://other.example', page).blocks, true);
    assert.equal(obstacle('what is this', page).blocks, true);
    assert.equal(obstacle('other.example', page), null, 'the scheme of the page unless one is given');
    assert.equal(obstacle('gopher://x', page).blocks, true);
    assert.equal(obstacle('http://localhost:10132', page).blocks, false);
    for (const near of ['https://192.168.1.7/', 'https://[fd00::1]/', 'https://nas.local/', 'https://127.0.0.1/']) {
      assert.match(obstacle(near, page).reason, /permission/, near);
      assert.equal(obstacle(near, page).blocks, false);
    }
    for (const far of ['127.evil.example', '10.example.com', '192.168.example.com', '172.16.0.1.example.com', 'notlocalhost']) {
      assert.equal(obstacle(`https://${far}/`, page), null, far);
      assert.equal(obstacle(`http://${far}/`, page).blocks, true, far);
    }
    assert.equal(obstacle('http://127.1/', page).blocks, false);
    assert.equal(obstacle('http://192.168.1.7:10132/', at('http://192.168.1.2:10132/')), null);
  });
});

describe('window.barograph', () => {
  test('starts the worker with the stored settings, and sends requests to it', async () => {
    const { here, world, storage } = await page({ 'barograph.here': '{"period_s":2,"bytes":131072,"kind":"nws","experiments":["rtt"]}' });
    await world.advance(3500);
    assert.deepEqual([here.status.period_s, here.status.bytes, here.status.kind, here.status.cycles], [2, 'auto', 'nws', 2], 'but for the size');
    await during(world, here.setPeriod(5));
    assert.equal(here.status.period_s, 5);
    assert.deepEqual(JSON.parse(storage.getItem('barograph.here')), { period_s: 5, kind: 'nws', experiments: ['rtt'] });
    const history = await during(world, here.history('rtt', 10));
    assert.equal(history.points.length, 2);
    assert.match(await during(world, here.csv('rtt')), /^# rtt in s from this browser to aneroid\n.*\ntime_s,rtt\n/);
    assert.equal(await during(world, here.csv('goodput')), 'time_s,goodput\n', 'nothing yet, but its name');
    assert.match(await during(world, here.csv()), /^time_s,source,/);
    assert.equal((await during(world, here.json())).series[0].quantity, 'rtt');
    assert.equal((await during(world, here.measure({ quantity: 'rtt', n: 3 }))).n, 3);
    await during(world, here.setSize(1 << 20));
    assert.deepEqual([here.status.bytes, JSON.parse(storage.getItem('barograph.here')).bytes], [1 << 20, undefined]);
  });

  test('opens a new connection for an experiment on request', async () => {
    const { here, world } = await page({ 'barograph.here': '{"experiments":["rtt"]}' });
    await world.advance(1000);
    const sockets = () => world.sockets.length;
    await during(world, here.measure({ quantity: 'goodput' }));
    const before = sockets();
    await during(world, here.measure({ quantity: 'goodput' }));
    assert.equal(sockets(), before, 'the same one without');
    for (const quantity of ['goodput', 'rtt']) await during(world, here.measure({ quantity, fresh: true }));
    assert.deepEqual([sockets(), world.open_sockets.length], [before + 2, 2], 'the one before is closed');
    await assert.rejects(async () => here.measure({ quantity: 'rtt', fresh: 1 }), /fresh must be true or false/);
  });

  test('sends points to each listener until the listener is removed', async () => {
    const { here, world } = await page();
    const points = [];
    const end = here.on('point', (point) => points.push(point));
    await world.advance(1000);
    assert.equal(points.length, 5);
    assert.equal(points[0].is, undefined);
    end();
    await world.advance(20_000);
    assert.equal(points.length, 5);
  });

  test('rejects invalid arguments with a reason', async () => {
    const { here } = await page();
    for (const [wrong, kind] of [
      [() => here.setPeriod(0.5), RangeError], [() => here.setPeriod(301), RangeError], [() => here.setPeriod(NaN), RangeError],
      [() => here.setPeriod('10'), TypeError], [() => here.setSize(1000), RangeError], [() => here.setForecaster('best'), RangeError],
      [() => here.setExperiments(['loss']), RangeError], [() => here.setExperiments([]), RangeError], [() => here.setExperiments('rtt'), TypeError],
      [() => here.setExperiments(['rtt_loaded']), RangeError], [() => here.setStation('ftp://a'), TypeError],
      [() => here.measure({ quantity: 'rtt_loaded' }), RangeError], [() => here.measure({ quantity: 'rtt', n: 0 }), RangeError],
      [() => here.measure(), RangeError], [() => here.measure({ quantity: 'goodput', bytes: 1 << 25 }), RangeError],
      [() => here.history('rtt', 0), RangeError], [() => here.csv('loss'), RangeError],
      [() => here.share(true), TypeError], [() => here.share(true, 'a b'), RangeError], [() => here.share('yes'), TypeError],
    ]) {
      await assert.rejects(async () => wrong(), kind, String(wrong));
    }
    assert.throws(() => here.on('points', () => {}), RangeError);
    assert.throws(() => here.on('point', null), TypeError);
  });

  test('a failed experiment rejects with its failure', async () => {
    const { here, world } = await page({}, { refuse: 'gone' });
    await world.advance(1000);
    await here.suspend();
    await assert.rejects(during(world, here.measure({ quantity: 'rtt' })), { failure: 'unreachable' });
  });

  test('works without storage, and ignores invalid stored settings', async () => {
    for (const text of ['{"period_s":0}', 'not json', '[]', 'null']) {
      const { here, world } = await page({ 'barograph.here': text });
      await world.advance(100);
      assert.equal(here.status.period_s, 10, text);
    }
    const { here, world } = await page({}, {}, null);
    await during(world, here.setPeriod(3));
    assert.equal(here.status.period_s, 3);
  });

  test('shares under a random name, kept until the user stops sharing', async () => {
    const { here, world, storage } = await page({}, { keeps: true });
    await world.advance(500);
    await during(world, here.share(true), 100);
    const name = storage.getItem('barograph.name');
    assert.match(name, /^browser-[0-9a-f]{8}$/);
    await world.advance(10_000);
    assert.deepEqual([...new Set(world.station.reports.map(({ source }) => source))], [name]);
    await during(world, here.share(true), 100);
    assert.equal(storage.getItem('barograph.name'), name);
    await during(world, here.share(false), 100);
    assert.equal(storage.getItem('barograph.name'), null);
    assert.equal(here.status.sharing, false);
  });

  test('loading the forecaster is retried, and pending requests are then answered', async () => {
    const { here, world } = await page({}, {}, undefined, { wasm_lost: 2 });
    assert.deepEqual([here.status.state, here.status.message, here.status.period_s], ['unreachable', 'the forecaster could not be loaded: 404', 10]);
    assert.equal(here.status.next_due_s, world.wall_ms() / 1000 + 1);
    const answer = here.measure({ quantity: 'rtt', n: 3 });
    await world.advance(1000);
    assert.equal(here.status.next_due_s, world.wall_ms() / 1000 + 2);
    await world.advance(2000);
    await shown(here, world, 'unreachable');
    assert.equal((await during(world, answer)).n, 3);
    assert.deepEqual([here.status.state, world.wasm_asked], ['waiting', 3]);
  });

  test('a worker that does not load is created again', async () => {
    const { here, world, workers } = await page({}, {}, undefined, { workers_lost: 2 });
    await world.advance(10);
    assert.equal(here.status.state, 'unreachable');
    assert.ok(Number.isFinite(here.status.next_due_s));
    const answer = here.csv();
    here.setPeriod(5);
    await world.advance(4000);
    await shown(here, world, 'unreachable');
    assert.match(await during(world, answer), /^time_s,source/);
    assert.deepEqual([here.status.state, here.status.period_s, workers.length], ['waiting', 5, 3]);
    await world.advance(60_000);
    assert.equal(workers.length, 3);
  });

  test('a worker with an error continues, a dead worker is abandoned', async () => {
    const { here, world, workers } = await page();
    await world.advance(1000);
    workers[0].onerror({ message: 'a mistake' });
    await world.advance(30_000);
    assert.equal(here.status.state, 'waiting');
    workers[0].hangs = true;
    const open = here.csv();
    workers[0].onerror({ message: 'out of memory' });
    await assert.rejects(during(world, open, 11_000), /out of memory/);
    assert.deepEqual([here.status.state, here.status.next_due_s], ['unreachable', null]);
    for (let i = 0; i < 100; i += 1) await assert.rejects(here.resume(), /out of memory/);
    assert.equal(workers.length, 1);
  });

  test('requests wait for the check of browser support, and are rejected without it', async () => {
    let say;
    const asked = () => new Promise((resolve) => (say = resolve));
    const able = await page({}, {}, undefined, { unsupported: asked() });
    const answer = able.here.csv();
    await able.world.advance(5000);
    assert.deepEqual([able.here.status, able.workers.length], [null, 0]);
    say(null);
    await shown(able.here, able.world);
    assert.match(await during(able.world, answer), /^time_s,source/);
    const unable = await page({}, {}, undefined, { unsupported: asked() });
    const refused = unable.here.measureNow();
    say('aneroid does not offer measurements.');
    await assert.rejects(during(unable.world, refused), /does not offer/);
    await assert.rejects(unable.here.csv(), /does not offer/);
    assert.equal(unable.workers.length, 0);
  });

  test('a page that goes offline notifies its worker', async () => {
    const { here, world, window } = await page();
    await world.advance(2000);
    window.dispatchEvent(new Event('offline'));
    await world.advance(20_000);
    assert.deepEqual([here.status.state, here.status.cycles], ['offline', 1]);
    window.dispatchEvent(new Event('online'));
    await world.advance(7000);
    assert.equal(here.status.cycles, 2);
  });
});

/** A communicator in a world of its own, with the given settings and station. */
function begin(settings = {}, station = {}) {
  const world = withSessions(new FakeWorld(station));
  const points = [];
  const post = (message) => message.is === 'point' && points.push(structuredClone(message));
  const clock = { resolution_s: 5e-6, isolated: true };
  const communicator = new Communicator({ world, makeBattery, post, clock });
  communicator.start(URL_, settings);
  const series = (quantity) => points.filter((point) => point.quantity === quantity);
  return { world, communicator, points, series, status: () => communicator.status() };
}

/** A page with its worker in one world. */
async function page(stored = {}, station = {}, storage = memory(stored), { workers_lost = 0, wasm_lost = 0, unsupported = null } = {}) {
  const world = withSessions(new FakeWorld(station));
  const wasm = world.fetch;
  const workers = [];
  const makeWorker = () => {
    const scope = { postMessage: (data) => queueMicrotask(() => worker.onmessage?.({ data: structuredClone(data) })) };
    const worker = {
      postMessage: (data) => queueMicrotask(() => worker.hangs || scope.onmessage?.({ data: structuredClone(data) })),
      terminate: () => (worker.hangs = true),
    };
    workers.push(worker);
    if (workers.length <= workers_lost) world.setTimeout(() => worker.onerror?.({}), 10);
    else runWorker(scope, world);
    return worker;
  };
  world.wasm_asked = 0;
  world.fetch = async (address, options) => {
    if (!address.endsWith('.wasm')) return wasm(address, options);
    world.wasm_asked += 1;
    return { ok: wasm_lost < world.wasm_asked, status: 404, arrayBuffer: wasmBytes };
  };
  const window = Object.assign(new EventTarget(), {
    document: { baseURI: 'http://aneroid.example:10132/' },
    location: new URL('http://aneroid.example:10132/'),
    navigator: { onLine: true },
    setTimeout: world.setTimeout,
    clearTimeout: world.clearTimeout,
  });
  const here = new PageMeasurements({ window, storage, makeWorker, unsupported });
  if (unsupported === null && workers_lost === 0) await shown(here, world);
  return { here, world, window, storage, workers };
}

/**
 * Waits until the page connects, or its state is other than `not`. Compiling the forecaster takes
 * real time, but no time of the world.
 */
async function shown(here, world, not = null) {
  const isWaiting = () => (here.status?.state ?? null) === not && world.sockets.length === 0;
  for (let turns = 0; isWaiting() && turns < 1_000_000; turns += 1) await world.advance(0);
  assert.ok(!isWaiting(), `${here.status?.state} for ever`);
}

function withSessions(world) {
  world.openSession = (url, options) => EchoSession.open(url, { ...options, world });
  return world;
}

async function wasmBytes() {
  const { readFile } = await import('node:fs/promises');
  const { buffer, byteOffset, byteLength } = await readFile(new URL('../../crates/station/web/forecast.wasm', import.meta.url));
  return buffer.slice(byteOffset, byteOffset + byteLength);
}

function memory(stored) {
  const map = new Map(Object.entries(stored));
  return {
    getItem: (key) => map.get(key) ?? null,
    setItem: (key, value) => map.set(key, String(value)),
    removeItem: (key) => map.delete(key),
  };
}

async function during(world, promise, ms = 3000) {
  promise.catch(() => {});
  await world.advance(ms);
  return Promise.race([promise, Promise.reject(new Error(`not within ${ms} ms`))]);
}
