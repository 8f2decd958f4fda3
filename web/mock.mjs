// A station that is not one: serves the built page and invented series, for tests and for drawing.
// `node mock.mjs [--port 7000] [--period-ms 1000] [--empty] [--many 40] [--mesh 6] [--here]`
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { pathToFileURL } from 'node:url';
import { FakeSeries, delay, losses, seeded, shifter, wanderer } from './testkit/weather.mjs';

/**
 * Starts a mock station; with `period_ms` 0 nothing moves until `step()`. With `here` its page gets a communicator
 * that is not one either (testkit/fake-here.mjs), with `here` points measured before. With `mesh` it knows all
 * pairs of so many stations, each with `warm` points; `part` is what it says of itself in `/v1/mesh`, `null` = no such
 * address.
 */
export async function startMock({ port = 0, period_ms = 0, empty = false, many = 0, mesh = 0, part = {}, warm = 400, stream = true, horizons = true, seed = 1, here } = {}) {
  const mock = new Mock({ empty, many, mesh, part, warm, stream, horizons, seed, here, period_ms });
  await mock.start(port);
  if (0 < period_ms) mock.timer = setInterval(() => mock.step(), period_ms);
  return mock;
}

class Mock {
  constructor({ empty, many, mesh, part, warm, stream, horizons, seed, here, period_ms }) {
    this.here = here;
    this.here_period_ms = period_ms;
    this.gives_stream = stream;
    this.gives_horizons = horizons;
    this.requests = [];
    this.peers = mesh === 0 ? null : peersOf(mesh);
    this.part = { host: 'aneroid', role: 'host', engine: 'local', site: 'north', groups: ['local:north'], ...part };
    if (part === null) this.part = null;
    this.sites = mesh === 0 ? null : SITES;
    this.others = []; // What the mesh has beside the own series.
    this.peer_streams = new Set();
    this.streams = new Set();
    this.random = seeded(seed);
    this.started_s = Date.now() / 1000 - 7384;
    this.refusing = []; // What the station says that it refuses.
    this.series = (empty ? [] : [...WEATHER, ...manyOf(many), ...pairsOf(mesh)]).map((weather) => new FakeSeries(weather, this.random));
    const now_s = Date.now() / 1000;
    for (const series of this.series) series.warmUp(now_s, warm);
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
    this.peer_streams.clear();
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

  /** As `put`, of one of several series of a quantity. */
  putPair(source, target, quantity, outcome, time_s = Date.now() / 1000) {
    const series = this.series.find((one) => one.source === source && one.target === target && one.quantity === quantity);
    this.#send(series, series.put(time_s, outcome));
  }

  /** Says that a station of the mesh is `lost`, has `returned` or was `removed`, since `since_s`. */
  setPeer(host, kind, since_s = Date.now() / 1000) {
    const peer = this.peers.find((peer) => peer.host === host);
    if (kind === 'removed') {
      this.peers = this.peers.filter((other) => other !== peer);
      this.series = this.series.filter(({ source, target }) => source !== host && target !== host);
    }
    peer.state = kind === 'lost' ? 'lost' : 'up';
    peer.since_s = since_s;
    for (const stream of this.peer_streams) stream.write(`event: ${kind}\ndata: ${JSON.stringify(peer)}\n\n`);
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
        refusing: this.refusing,
        ...(this.here === undefined ? {} : { echo: { keeps: true } }),
      });
    } else if (pathname === '/v1/series') {
      json(response, { series: this.series.map((series) => series.summary()) });
    } else if (pathname === '/v1/recent') {
      const wanted = this.#seriesOf(searchParams);
      if (wanted) json(response, wanted.recent());
      else json(response, { error: 'no such series' }, 404);
    } else if (pathname === '/v1/forecast') {
      if (this.gives_horizons) json(response, { forecasts: this.#forecasts(searchParams) });
      else json(response, { error: 'unknown parameter `horizon`' }, 400);
    } else if (pathname === '/v1/stream') {
      if (this.gives_stream) this.#stream(response, this.streams);
      else json(response, { error: 'too many streams' }, 503);
    } else if (pathname === '/v1/mesh' && this.part !== null) {
      json(response, this.part);
    } else if (pathname === '/v1/latest') {
      const quantity = searchParams.get('quantity');
      const latest = this.others.filter((record) => record.quantity === quantity);
      json(response, { latest, next: null });
    } else if (pathname === '/v1/sites' && this.sites) {
      json(response, this.sites);
    } else if (pathname === '/v1/peers' && this.peers !== null) {
      json(response, { peers: this.peers });
    } else if (pathname === '/v1/peers/events' && this.peers !== null) {
      this.#stream(response, this.peer_streams);
    } else {
      await this.#file(response, pathname);
    }
  }

  #seriesOf(searchParams) {
    return this.series.find((series) => ['source', 'target', 'quantity'].every((name) => series[name] === searchParams.get(name)));
  }

  // Of one series, with the horizons in seconds, minutes or hours.
  #forecasts(searchParams) {
    const seconds = searchParams.get('horizon').split(',').map((text) => parseFloat(text) * { s: 1, m: 60, h: 3600 }[text.at(-1)]);
    const ahead = this.#seriesOf(searchParams)?.ahead(seconds);
    return ahead ? [ahead] : [];
  }

  async #file(response, pathname) {
    const name = pathname === '/' ? 'index.html' : pathname.slice(1);
    const type = TYPES[name];
    const from = name.startsWith('testkit/') ? import.meta.url : PAGE;
    let contents = type && (await readFile(new URL(name, from), 'utf8').catch(() => null));
    if (!contents) {
      json(response, { error: 'no such page' }, 404);
      return;
    }
    if (name === 'index.html' && this.here !== undefined) {
      const fake = `<script type="module" src="testkit/fake-here.mjs" id="fake" data-points="${this.here}" data-period-ms="${this.here_period_ms}"></script>`;
      contents = contents.replace('<script', `${fake}\n    <script`);
    }
    response.writeHead(200, { 'content-type': type });
    response.end(contents);
  }

  #stream(response, streams) {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
    response.write(': barograph\n\n');
    streams.add(response);
    response.on('close', () => streams.delete(response));
  }
}

const SITES = {
  host: 'aneroid',
  mode: 'propose',
  hold_s: 600,
  now: { site: 'north', represents: false, from: 'configured' },
  proposed: { site: 'north', represents: true },
  pending: null,
  sees: 'all',
  level: 0.9,
  sites: [
    {
      site: 'north',
      hosts: ['aneroid', 'cumulus', 'mistral'],
      representative: 'aneroid',
      reason: 'aneroid, cumulus, mistral are within 0.4 ms of each other; the next host, cirrus, is 11.0 ms away',
      within: { forecast: 4e-4, lower: 3e-4, upper: 6e-4 },
      next: { host: 'cirrus', forecast: 0.011, lower: 0.0102, upper: 0.0121 },
      too_close_to_call: ['foehn'],
    },
    {
      site: 'south',
      hosts: ['cirrus'],
      representative: 'cirrus',
      reason: 'cirrus stands alone; the next host, aneroid, is 10.8 ms away',
      within: null,
      next: { host: 'aneroid', forecast: 0.0108, lower: 0.01, upper: 0.012 },
      too_close_to_call: [],
    },
  ],
  unknown: ['stratus'],
  left_out: 0,
};

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

const PLACES = ['aneroid', 'cirrus', 'cumulus', 'foehn', 'mistral', 'stratus'];

function stationsOf(count) {
  return Array.from({ length: count }, (_, i) => PLACES[i] ?? `station-${String(i).padStart(3, '0')}`);
}

/** Every pair of `count` stations: times by distance, shares lost, and of some the goodput. */
function pairsOf(count) {
  const names = stationsOf(count);
  return names.flatMap((source, i) =>
    names.flatMap((target, j) => {
      if (i === j) return [];
      const rtt_s = 2e-3 + 7e-3 * Math.abs(i - j);
      const pair = [{ source, target, quantity: 'rtt', unit: 's', period_s: 10, weather: delay(rtt_s, 0.06, 0.02, 0.01) }];
      if (6 < count) return pair;
      pair.push({ source, target, quantity: 'loss', unit: 'ratio', period_s: 10, weather: losses() });
      if ((i + j) % 2) pair.push({ source, target, quantity: 'goodput', unit: 'bit/s', period_s: 600, weather: shifter(93e6, 61e6) });
      return pair;
    }),
  );
}

function peersOf(count) {
  return stationsOf(count).slice(1).map((host, i) => ({
    host,
    state: 'up',
    version: '0.1.0',
    groups: [`local:${i % 2 ? 'north' : 'south'}`],
    capabilities: { responder: true, bulk: false, archive: false },
    addresses: [`192.0.2.${i + 2}:10132`],
    address: `192.0.2.${i + 2}:10132`,
    since_s: Date.now() / 1000 - 3600,
    reason: null,
  }));
}

function json(response, body, status = 200) {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}

const PAGE = new URL('../crates/station/web/', import.meta.url);
const TYPES = {
  'testkit/fake-here.mjs': 'text/javascript; charset=utf-8',
  'testkit/weather.mjs': 'text/javascript; charset=utf-8',
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
    mesh: option('mesh', 0),
    empty: process.argv.includes('--empty'),
    here: process.argv.includes('--here') ? 400 : undefined,
  });
  console.log(`listening on ${mock.url}`);
}
