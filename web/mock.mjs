// A station that is not one: serves the built page and invented series, for tests and for drawing.
// `node mock.mjs [--port 7000] [--period-ms 1000] [--empty] [--many 40]`
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { pathToFileURL } from 'node:url';

/** Starts a mock station; with `period_ms` 0 nothing moves until `step()`. */
export async function startMock({ port = 0, period_ms = 0, empty = false, many = 0, stream = true, seed = 1 } = {}) {
  const mock = new Mock({ empty, many, stream, seed });
  await mock.start(port);
  if (0 < period_ms) mock.timer = setInterval(() => mock.step(), period_ms);
  return mock;
}

class Mock {
  constructor({ empty, many, stream, seed }) {
    this.gives_stream = stream;
    this.requests = [];
    this.streams = new Set();
    this.random = seeded(seed);
    this.started_s = Date.now() / 1000 - 7384;
    this.series = (empty ? [] : [...WEATHER, ...manyOf(many)]).map((weather) => new FakeSeries(weather, this.random));
    const now_s = Date.now() / 1000;
    for (const series of this.series) series.warmUp(now_s);
  }

  /** Begins to answer on `port`, or on the port it had before. */
  async start(port = this.port) {
    this.server = createServer((request, response) => this.#answer(request, response));
    await new Promise((resolve, reject) => {
      this.server.once('error', reject);
      this.server.listen(port, '127.0.0.1', resolve);
    });
    this.port = this.server.address().port;
    this.url = `http://127.0.0.1:${this.port}/`;
  }

  /** Goes away as a killed station does: every connection is cut. */
  async stop() {
    clearInterval(this.timer);
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
    this.streams.clear();
  }

  /** Measures every series once more and tells every stream. */
  step(time_s = Date.now() / 1000) {
    for (const series of this.series) this.#send(series, series.measure(time_s));
  }

  /** Adds a series that was not there before, with its first measurement. */
  add(weather, time_s = Date.now() / 1000) {
    const series = new FakeSeries(weather, this.random);
    this.series.push(series);
    this.#send(series, series.measure(time_s));
  }

  /** Gives one series the next `outcome`: `{value}` or `{error}`. */
  put(quantity, outcome, time_s = Date.now() / 1000) {
    const series = this.series.find((series) => series.quantity === quantity);
    this.#send(series, series.put(time_s, outcome));
  }

  /** Tells every stream that it missed something. */
  lag(missed) {
    for (const stream of this.streams) stream.write(`event: lag\ndata: ${JSON.stringify({ missed })}\n\n`);
  }

  #send(series, point) {
    const data = JSON.stringify({ ...point, ...series.identity(), next: series.next() });
    for (const stream of this.streams) stream.write(`event: point\ndata: ${data}\n\n`);
  }

  async #answer(request, response) {
    const { pathname, searchParams } = new URL(request.url, this.url);
    this.requests.push(pathname);
    response.setHeader('content-security-policy', "default-src 'self'");
    response.setHeader('x-content-type-options', 'nosniff');
    if (pathname === '/v1/station') {
      json(response, {
        host: 'aneroid',
        version: '0.1.0',
        uptime_s: Date.now() / 1000 - this.started_s,
        started_s: this.started_s,
        page_period_s: 10,
      });
    } else if (pathname === '/v1/series') {
      json(response, { series: this.series.map((series) => series.summary()) });
    } else if (pathname === '/v1/recent') {
      const wanted = this.series.find((series) =>
        ['source', 'target', 'quantity'].every((name) => series[name] === searchParams.get(name)),
      );
      if (wanted) json(response, wanted.recent());
      else json(response, { error: 'no such series' }, 404);
    } else if (pathname === '/v1/stream') {
      if (this.gives_stream) this.#stream(response);
      else json(response, { error: 'too many streams' }, 503);
    } else {
      await file(response, pathname);
    }
  }

  #stream(response) {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
    response.write(': barograph\n\n');
    this.streams.add(response);
    response.on('close', () => this.streams.delete(response));
  }
}

/** One invented series: weather, a history, and a plain forecaster that is honest about its errors. */
class FakeSeries {
  constructor({ target, quantity, unit, period_s, weather }, random) {
    Object.assign(this, { source: 'aneroid', target, quantity, unit, period_s, random });
    this.weather = weather(random);
    this.points = [];
    this.values = [];
    this.errors = [];
    this.error_sum = 0;
    this.count = 0;
    this.failures = 0;
  }

  identity() {
    const { source, target, quantity, unit } = this;
    return { source, target, quantity, unit };
  }

  warmUp(now_s) {
    for (let i = 400; 0 < i; i -= 1) this.measure(now_s - this.period_s * (i + 0.2 * this.random()));
  }

  measure(time_s) {
    return this.put(time_s, this.weather());
  }

  put(time_s, outcome) {
    const forecast = this.#forecast();
    const point = { time_s, ...outcome, ...forecast };
    if (outcome.error === undefined) {
      this.count += 1;
      if (forecast.forecast !== undefined) {
        const error = Math.abs(outcome.value - forecast.forecast);
        this.error_sum += error;
        this.errors = [...this.errors.slice(-99), error];
      }
      this.values = [...this.values.slice(-20), outcome.value];
    } else {
      this.failures += 1;
    }
    this.points = [...this.points.slice(-511), point];
    return point;
  }

  next() {
    const forecast = this.#forecast();
    if (forecast.forecast === undefined) return null;
    const mae = this.error_sum / Math.max(1, this.count - 1);
    const of = (value, method) => ({ value, mse: mae * mae * 1.6, mae, recent_mse: mae * mae, recent_mae: mae, method });
    const { lower, upper } = forecast;
    return {
      ...this.identity(),
      time_s: this.points.at(-1).time_s,
      count: this.count,
      level: 0.9,
      mean: of(mean(this.values), 'sliding_mean_21'),
      median: of(forecast.forecast, forecast.method),
      ...(lower === undefined ? {} : { lower, upper }),
    };
  }

  summary() {
    const point = this.points.at(-1);
    const last = point ? { ...this.identity(), time_s: point.time_s, value: point.value, error: point.error } : null;
    return { ...this.identity(), count: this.count, failures: this.failures, last, next: this.next() };
  }

  recent() {
    return { ...this.identity(), level: 0.9, points: this.points, next: this.next() };
  }

  #forecast() {
    if (this.values.length === 0) return {};
    const few = this.values.slice(-7);
    const forecast = 0.6 * median(few) + 0.4 * this.values.at(-1);
    const method = this.values.length < 7 ? 'last_value' : 'median_w7+exp_g40';
    if (this.errors.length < 10) return { forecast, method };
    const half = [...this.errors].sort((a, b) => a - b)[Math.floor(0.9 * this.errors.length)];
    const floor = this.values.every((value) => 0 <= value) ? 0 : -Infinity;
    return { forecast, method, lower: Math.max(floor, forecast - half), upper: forecast + half };
  }
}

// Heavy-tailed times, shares that wander, rates that shift level: what the real ones look like.
const WEATHER = [
  { target: 'aneroid', quantity: 'cpu_available', unit: 'ratio', period_s: 5, weather: wanderer(0.82, 0.05, 0.02, 1) },
  { target: 'aneroid', quantity: 'memory_free', unit: 'bytes', period_s: 5, weather: wanderer(11.6e9, 4e7, 9e9, 13e9) },
  { target: '127.0.0.1:7311', quantity: 'rtt', unit: 's', period_s: 5, weather: delay(52e-6, 0.12, 0.01, 0) },
  { target: '127.0.0.1:7311', quantity: 'rtt_nagle', unit: 's', period_s: 30, weather: delay(40.6e-3, 0.01, 0.01, 0) },
  { target: '192.168.1.1:80', quantity: 'connect', unit: 's', period_s: 10, weather: delay(1.9e-3, 0.25, 0.03, 0.05) },
  { target: 'https://mirror.example.org/debian/', quantity: 'connect', unit: 's', period_s: 30, weather: delay(24e-3, 0.06, 0.02, 0.01) },
  { target: 'https://mirror.example.org/debian/', quantity: 'response_time', unit: 's', period_s: 30, weather: delay(131e-3, 0.15, 0.03, 0.02) },
  { target: 'stratus.example.org:7311', quantity: 'rtt', unit: 's', period_s: 10, weather: delay(18.4e-3, 0.04, 0.02, 0.004) },
  { target: 'stratus.example.org:7311', quantity: 'goodput', unit: 'bit/s', period_s: 60, weather: shifter(93e6, 61e6) },
  { target: 'stratus.example.org:7311', quantity: 'loss', unit: 'ratio', period_s: 60, weather: losses() },
];

/** `count` further targets with a round-trip time each, for a page with many series. */
function manyOf(count) {
  return Array.from({ length: count }, (_, i) => ({
    target: `host-${String(i).padStart(3, '0')}.example.org:7311`,
    quantity: 'rtt',
    unit: 's',
    period_s: 10,
    weather: delay((5 + i) * 1e-3, 0.08, 0.02, 0.01),
  }));
}

function delay(base, spread, spikes, failing) {
  return (random) => () => {
    if (random() < failing) return { error: random() < 0.7 ? 'timed_out' : 'refused' };
    const tail = random() < spikes ? 1 + 6 * random() : 1;
    return { value: base * tail * Math.exp(spread * Math.abs(normal(random))) };
  };
}

function wanderer(start, step, low, high) {
  return (random) => {
    let level = start;
    return () => {
      level += 0.08 * (start - level) + step * normal(random);
      if (random() < 0.01) level -= 8 * step;
      level = Math.min(high, Math.max(low, level));
      return { value: level };
    };
  };
}

function shifter(high, low) {
  return (random) => {
    let level = high;
    return () => {
      if (random() < 0.025) level = level === high ? low : high;
      return { value: level * (1 - 0.04 * Math.abs(normal(random))) };
    };
  };
}

function losses() {
  return (random) => () => ({ value: random() < 0.85 ? 0 : Math.ceil(2 * random()) / 10 });
}

async function file(response, pathname) {
  const name = pathname === '/' ? 'index.html' : pathname.slice(1);
  const type = TYPES[name];
  const contents = type && (await readFile(new URL(name, PAGE)).catch(() => null));
  if (!contents) {
    json(response, { error: 'no such page' }, 404);
    return;
  }
  response.writeHead(200, { 'content-type': type });
  response.end(contents);
}

function json(response, body, status = 200) {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function median(values) {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
}

// Box and Muller (1958).
function normal(random) {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}

// A seeded linear congruential generator (Knuth's MMIX constants, TAOCP 2 §3.3.4): the same weather in every run.
function seeded(seed) {
  let state = BigInt(seed);
  return () => {
    state = BigInt.asUintN(64, state * 6364136223846793005n + 1442695040888963407n);
    return Number(state >> 11n) / 2 ** 53;
  };
}

const PAGE = new URL('../crates/station/web/', import.meta.url);
const TYPES = {
  'index.html': 'text/html; charset=utf-8',
  'app.js': 'text/javascript; charset=utf-8',
  'app.css': 'text/css; charset=utf-8',
  'icon.svg': 'image/svg+xml',
  'LICENSES.txt': 'text/plain; charset=utf-8',
};

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const option = (name, otherwise) => {
    const at = process.argv.indexOf(`--${name}`);
    return at < 0 ? otherwise : Number(process.argv[at + 1]);
  };
  const mock = await startMock({
    port: option('port', 0),
    period_ms: option('period-ms', 1000),
    many: option('many', 0),
    empty: process.argv.includes('--empty'),
  });
  console.log(`listening on ${mock.url}`);
}
