// A communicator that measures nothing: the interface of src/here.js with invented weather, for tests and for drawing.
import { FakeSeries, delay, seeded, shifter } from './weather.mjs';

class FakeHere {
  constructor({ points, period_ms }) {
    this.calls = [];
    this.listeners = { point: [], status: [] };
    this.random = seeded(7);
    this.points_before = points;
    this.period_ms = period_ms;
    this.status = {
      state: 'waiting',
      message: '',
      client: 'this browser',
      server: 'aneroid',
      station_url: new URL('.', location.href).href,
      period_s: 5,
      bytes: 'auto',
      kind: 'full',
      clock: { resolution_s: 1e-4, isolated: false },
      cycles: points,
      missed: 0,
      gaps: 0,
      next_due_s: Date.now() / 1000 + 4,
      traffic: { bytes: 58_720_256, bytes_per_hour: 96_468_992, since_s: Date.now() / 1000 - 2191 },
      keeps: true,
      sharing: false,
      transfer_bytes_max: 4 * 2 ** 20,
      bulk_bytes_per_hour_max: 256 * 2 ** 20,
      on_this_computer: true,
    };
    this.begin();
  }

  begin() {
    this.series = new Map(
      OWN.map((weather) => [weather.quantity, new FakeSeries({ source: 'this browser', target: this.status.server, period_s: 5, ...weather }, this.random)]),
    );
  }

  on(kind, listener) {
    this.listeners[kind].push(listener);
    if (kind !== 'point') return;
    queueMicrotask(() => {
      this.warmUp(this.points_before);
      if (0 < this.period_ms) setInterval(() => this.step(), this.period_ms);
    });
  }

  /** Measures `count` times in the past, with a hole: a lid was closed. */
  warmUp(count) {
    const now_s = Date.now() / 1000;
    for (let i = count; 0 < i; i -= 1) this.step(now_s - 5 * i - (i < HOLE ? 0 : 240), i === HOLE - 1);
  }

  step(time_s = Date.now() / 1000, gap = false) {
    for (const series of this.series.values()) this.#send(series, series.measure(time_s), gap);
  }

  /** Gives one series the next `outcome`: `{value}` or `{error}`. */
  put(quantity, outcome, time_s = Date.now() / 1000) {
    const series = this.series.get(quantity);
    this.#send(series, series.put(time_s, outcome));
  }

  /** Changes the status, as the communicator does by itself. */
  say(change) {
    this.status = { ...this.status, ...change };
    for (const listener of this.listeners.status) listener(this.status);
  }

  setPeriod(period_s) {
    this.#called('setPeriod', period_s);
    this.say({ period_s });
  }

  setSize(bytes) {
    this.#called('setSize', bytes);
    this.say({ bytes });
  }

  setForecaster(kind) {
    this.#called('setForecaster', kind);
    this.say({ kind });
  }

  async setStation(url) {
    this.#called('setStation', url);
    this.say({ station_url: url, server: new URL(url).hostname });
    this.begin();
  }

  suspend() {
    this.#called('suspend');
    this.say({ state: 'suspended' });
  }

  resume() {
    this.#called('resume');
    this.say({ state: 'waiting' });
  }

  async measureNow() {
    this.#called('measureNow');
    this.step();
  }

  async share(sharing) {
    this.#called('share', sharing);
    this.say({ sharing });
  }

  async history(quantity, buckets) {
    this.#called('history', quantity, buckets);
    return { points: this.series.get(quantity).points };
  }

  obstacle(url) {
    if (url.startsWith('http://192.168.')) return { blocks: false, reason: 'The browser may ask for your permission.' };
    return /^https?:/.test(url) ? null : { blocks: true, reason: `${url} is not the address of a station.` };
  }

  async csv() {
    const lines = [...this.series.values()].flatMap((series) => series.points.map((point) => [series.quantity, point.time_s, point.value ?? '', point.error ?? '']));
    return `${[['quantity', 'time_s', 'value', 'error'], ...lines].map((line) => line.join(',')).join('\n')}\n`;
  }

  async json() {
    return { series: [...this.series.values()].map((series) => series.recent()) };
  }

  #called(...call) {
    this.calls.push(call);
  }

  #send(series, point, gap = false) {
    const detail = { n: 1, ...(gap ? { gap } : {}), ...(series.unit === 'bit/s' && point.value !== undefined ? { raw: point.value * 0.93 } : {}) };
    const event = { ...point, ...series.identity(), next: series.ahead([60, 300, 900, 3600]), detail };
    for (const listener of this.listeners.point) listener(event);
  }
}

const HOLE = 60;

// A link of a few tens of Mbit/s and 18 ms: times with tails, delayed acknowledgements, rates that shift level.
const OWN = [
  { quantity: 'rtt', unit: 's', weather: delay(18.4e-3, 0.05, 0.02, 0.006) },
  { quantity: 'rtt_nagle', unit: 's', weather: delay(58.9e-3, 0.02, 0.02, 0.004) },
  { quantity: 'rtt_loaded', unit: 's', weather: delay(31e-3, 0.35, 0.02, 0.004) },
  { quantity: 'goodput', unit: 'bit/s', weather: shifter(18.2e6, 11.4e6) },
  { quantity: 'goodput_down', unit: 'bit/s', weather: shifter(47e6, 39e6) },
];

const { points, periodMs } = document.getElementById('fake').dataset;
window.barograph = new FakeHere({ points: Number(points), period_ms: Number(periodMs) });
