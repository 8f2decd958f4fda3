// The station's HTTP API as the page uses it (docs/spec/api.md): some requests and one live stream,
// in a mesh two. Addresses are relative, so the page works behind a proxy that serves it under a
// path.

import { HORIZONS } from './measure/series.js';

/** `GET /v1/station`. */
export function fetchStation() {
  return fetchJson('v1/station');
}

/** `GET /v1/series`: the list of series with their last values and forecasts. */
export async function fetchSeries() {
  const { series } = await fetchJson('v1/series');
  return series;
}

/** `GET /v1/mesh`: the station's part in a mesh; `null` if it knows no meshes. */
export function fetchMesh() {
  return fetchJson('v1/mesh', [404]);
}

/**
 * `GET /v1/latest`: the newest record of each series of `quantity` in the mesh. A member reads it
 * from the mesh's archive. Returns the records of at most `pages_max` pages of a thousand, up to
 * the first page that failed; `whole` says whether these are all.
 */
export async function fetchLatest(quantity, pages_max = 10) {
  const found = [];
  let after = null;
  for (let page = 0; page < pages_max; page += 1) {
    const query = new URLSearchParams({ quantity, ...(after === null ? {} : { after }) });
    const answer = await fetchJson(`v1/latest?${query}`).catch(() => null);
    if (answer === null) return { found, whole: false };
    found.push(...answer.latest);
    after = answer.next;
    if (after === null) return { found, whole: true };
  }
  return { found, whole: false };
}

/**
 * `GET /v1/sites`: which stations form a site by their forecasts; `null` if the station knows none.
 */
export function fetchSites() {
  return fetchJson('v1/sites', [404]);
}

/** `GET /v1/peers`: the other stations of the mesh; `null` if there is no mesh. */
export async function fetchPeers() {
  const { peers } = (await fetchJson('v1/peers', [404])) ?? { peers: null };
  return peers;
}

/**
 * Calls `changed(is_removed)` after events of `/v1/peers/events` until the stream breaks; returns
 * the stream. `is_removed` says whether one of the events removed a station from the mesh. The
 * stream begins with up to a thousand past events. Events that come close together, or during a
 * call, make one call.
 */
export function watchPeers(changed) {
  const stream = new EventSource('v1/peers/events');
  const notify = coalesce(changed);
  for (const kind of ['joined', 'lost', 'returned']) stream.addEventListener(kind, () => notify(false));
  stream.addEventListener('removed', () => notify(true));
  // It is opened again with the stream of points; until then the heartbeat reads the peers.
  stream.addEventListener('error', () => stream.close());
  return stream;
}

/** `GET /v1/recent` of one series: its last points, each with the forecast issued for it. */
export function fetchRecent({ source, target, quantity }) {
  return fetchJson(`v1/recent?${new URLSearchParams({ source, target, quantity })}`);
}

/**
 * `GET /v1/forecast` of one series at some times ahead; `null` if the station has no such forecasts.
 */
export async function fetchAhead({ source, target, quantity }) {
  // Older stations reject a parameter that they do not have.
  const horizon = HORIZONS.map(({ seconds }) => `${seconds}s`);
  const query = new URLSearchParams({ source, target, quantity, horizon, of: 'value' });
  const answer = await fetchJson(`v1/forecast?${query}`, [400, 404]);
  // A series without a forecast has no row.
  return answer && (answer.forecasts[0] ?? {});
}

/**
 * Keeps one stream to the station open. When it breaks, opens another, after longer and longer
 * waits.
 *
 * `handlers`:
 *
 * - `open()`: the stream is open; the handler reads again what was missed. If its promise fails, so
 *   has the stream.
 * - `point(data)`, `lag(data)`: an event of the stream.
 * - `alive(station)`: the station answered the heartbeat.
 * - `lost(retry_ms, failures)`: the stream is lost after `failures` failures in a row; the next
 *   attempt is in `retry_ms`.
 */
export class Connection {
  constructor(handlers) {
    this.handlers = handlers;
    this.failures = 0;
    this.stream = null;
    this.timer = null;
  }

  /** Opens the stream now, even if a later attempt is scheduled. */
  connect() {
    this.#close();
    const stream = new EventSource('v1/stream');
    this.stream = stream;
    // A station that accepts and sends nothing must not hold the page for ever.
    this.timer = setTimeout(() => this.#lose(stream), ANSWER_MS_MAX);
    stream.addEventListener('open', () => this.#opened(stream));
    stream.addEventListener('error', () => this.#lose(stream));
    stream.addEventListener('point', (event) => this.#deliver('point', event));
    stream.addEventListener('lag', (event) => this.#deliver('lag', event));
  }

  /** Moves a scheduled attempt to `retry_ms` from now; returns whether one was scheduled. */
  retryAfter(retry_ms) {
    if (this.stream !== null) return false;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.connect(), retry_ms);
    return true;
  }

  async #opened(stream) {
    if (stream !== this.stream) return;
    clearTimeout(this.timer);
    try {
      await this.handlers.open();
    } catch {
      this.#lose(stream);
      return;
    }
    if (stream !== this.stream) return;
    this.failures = 0;
    this.#watch(stream);
  }

  // A pulled cable closes no connection; only a request without a response shows it.
  #watch(stream) {
    this.timer = setTimeout(async () => {
      try {
        const station = await fetchStation();
        if (stream !== this.stream) return;
        this.handlers.alive(station);
        this.#watch(stream);
      } catch {
        this.#lose(stream);
      }
    }, HEARTBEAT_MS);
  }

  #deliver(kind, event) {
    let data;
    try {
      data = JSON.parse(event.data);
    } catch {
      // Half a message is no message; the next reading of the history fills the gap.
      return;
    }
    this.handlers[kind](data);
  }

  #lose(stream) {
    if (stream !== this.stream) return;
    this.#close();
    const retry_ms = retryDelay(this.failures, Math.random());
    this.failures += 1;
    this.timer = setTimeout(() => this.connect(), retry_ms);
    this.handlers.lost(retry_ms, this.failures);
  }

  #close() {
    clearTimeout(this.timer);
    this.stream?.close();
    this.stream = null;
  }
}

/**
 * Milliseconds between two reads without a stream: `page_period_s` of the station, within bounds.
 */
export function pollDelay({ page_period_s }) {
  return Math.min(RETRY_MS_MAX, Math.max(RETRY_MS_MIN, page_period_s * 1000 || RETRY_MS_MAX));
}

/** Milliseconds before the next attempt, doubling to a bound. `chance` in 0…1 spreads pages out. */
export function retryDelay(failures, chance) {
  const whole_ms = Math.min(RETRY_MS_MAX, RETRY_MS_MIN * 2 ** Math.min(failures, 16));
  return whole_ms * (0.75 + 0.25 * chance);
}

/**
 * Returns a function that calls `work` soon, once for all of its own calls until then; with `true`
 * if one of them had `true`.
 */
function coalesce(work) {
  let waiting = null;
  let is_busy = false;
  const start = () => {
    is_busy = true;
    setTimeout(async () => {
      const flag = waiting;
      waiting = null;
      await Promise.resolve(work(flag)).catch(() => {});
      is_busy = false;
      if (waiting !== null) start();
    }, COALESCE_MS);
  };
  return (flag) => {
    waiting = flag || waiting === true;
    if (!is_busy) start();
  };
}

/** Reads an address; `null` if the answer's status is one of those in `absent`. */
async function fetchJson(address, absent = []) {
  const response = await fetch(address, {
    cache: 'no-store',
    headers: { accept: 'application/json' },
    signal: AbortSignal.timeout(ANSWER_MS_MAX),
  });
  if (absent.includes(response.status)) return null;
  if (!response.ok) throw new Error(`${address.split('?')[0]} answered ${response.status}`);
  return response.json();
}

// Longer than any healthy response, also over a satellite.
const ANSWER_MS_MAX = 10_000;
// Often enough to notice a lost station before a person does; one small request costs nothing.
const HEARTBEAT_MS = 15_000;
// A person does not see this delay, and events that a station sends together arrive within it.
const COALESCE_MS = 200;
// A restart of the station takes about a second; a host that is off may stay off.
const RETRY_MS_MIN = 1_000;
const RETRY_MS_MAX = 30_000;
