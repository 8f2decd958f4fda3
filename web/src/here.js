// The page's side of its own measurements: requests to the worker, and the interface for scripts
// (docs/spec/page.md).
import { obstacle, stationUrl } from './measure/address.js';
import { ProbeError } from './measure/failure.js';
import { retryDelay } from './measure/schedule.js';
import { DEFAULTS, SIZES, checkBuckets, checkExperiment, checkQuantity, checkSettings } from './measure/settings.js';

export { SIZES, obstacle };

/**
 * This browser's measurements of a station. `window.barograph` is one.
 *
 * Settings are stored in `storage` if the browser allows it. Tests replace `window` and
 * `makeWorker`. Measuring starts when `unsupported` resolves with `null`; earlier requests wait. If
 * it resolves with a sentence, all requests are rejected with it.
 */
export class PageMeasurements {
  #worker = null;
  #makeWorker;
  #window;
  #storage;
  #listeners = { point: new Set(), status: new Set() };
  #questions = new Map();
  #asked = START;
  #settings;
  #status = null;
  #timer = null;
  #has_loaded = false;
  #failures = 0;
  /** Why all requests are rejected; `null` if they are not. */
  #broken = null;

  constructor({
    window = globalThis.window,
    storage = storageOf(window),
    makeWorker = () => new window.Worker('worker.js'),
    unsupported = null,
  } = {}) {
    this.#window = window;
    this.#storage = storage;
    this.#makeWorker = makeWorker;
    this.#settings = { ...DEFAULTS, ...remembered(storage) };
    for (const name of ['online', 'offline']) {
      // The worker receives the state at its start, so an earlier change is not lost.
      window.addEventListener(name, () => this.#worker?.postMessage({ do: 'online', online: name === 'online' }));
    }
    if (unsupported === null) this.#launch();
    else unsupported.then((reason) => (reason === null ? this.#launch() : this.#break(reason)));
  }

  /** Calls `listener` with every further `point` or `status`; returns a function that ends this. */
  on(event, listener) {
    if (this.#listeners[event] === undefined) throw new RangeError(`there is no event ${event}, expected point or status`);
    if (typeof listener !== 'function') throw new TypeError('the listener is not a function');
    this.#listeners[event].add(listener);
    return () => void this.#listeners[event].delete(listener);
  }

  /** The newest status; `null` before the first. */
  get status() {
    return this.#status;
  }

  /** Sets the time between two cycles: 1 to 300 s. */
  setPeriod(period_s) {
    return this.#set({ period_s });
  }

  /**
   * Sets the bytes of a transfer: `'auto'` for automatic size, or 64, 128, 256, 512 KiB, 1, 4 or 16
   * MiB.
   */
  setSize(bytes) {
    return this.#set({ bytes });
  }

  /** Sets the forecasters: `full`, `nws`, `mse` or `mae`. */
  setForecaster(kind) {
    return this.#set({ kind });
  }

  /** Sets the quantities that are measured. */
  setExperiments(experiments) {
    return this.#set({ experiments: Array.isArray(experiments) ? [...experiments] : experiments });
  }

  /**
   * Measures another station, which must consent (its `echo.origins`). The series begin anew. Not
   * stored.
   */
  async setStation(url) {
    const inTheWay = obstacle(url, this.#window.location);
    if (inTheWay?.blocks) throw new TypeError(inTheWay.reason);
    await this.#send({ do: 'set', settings: { station_url: stationUrl(url, this.#window.location.protocol) } });
  }

  /**
   * What prevents measurements of the station at `url` from this page: `null` or `{blocks,
   * reason}`.
   */
  obstacle(url) {
    return obstacle(url, this.#window.location);
  }

  /** Stops measuring until `resume`. */
  suspend() {
    return this.#send({ do: 'suspend' });
  }

  /** Resumes measuring at once. */
  resume() {
    return this.#send({ do: 'resume' });
  }

  /** Runs one cycle now; resolves when its points are there. */
  measureNow() {
    return this.#send({ do: 'cycle' });
  }

  /**
   * Runs one experiment without recording it. `quantity` is `rtt`, `rtt_nagle`, `goodput` or
   * `goodput_down`. Resolves with `{quantity, value, n, samples, …}` in s or bit/s; goodput is not
   * corrected.
   */
  async measure(experiment) {
    return this.#send({ do: 'measure', experiment: checkExperiment(experiment) });
  }

  /** Points of one quantity, oldest first, at most three for each of `buckets`, with `next`. */
  async history(quantity, buckets = 512) {
    return this.#send({ do: 'history', quantity: checkQuantity(quantity), buckets: checkBuckets(buckets) });
  }

  /**
   * All points as CSV; or times and values of one quantity, in the format of `barograph forecast`.
   */
  async csv(quantity) {
    return this.#send({ do: 'csv', quantity: quantity === undefined ? undefined : checkQuantity(quantity) });
  }

  /** All points as an object for JSON. */
  json() {
    return this.#send({ do: 'json' });
  }

  /**
   * Reports the measurements to the station, if it keeps them (`status.keeps`) and the reader
   * agreed. The series is from `web:NAME`. Without `name`, a random one is made and stored until
   * `share(false)`.
   */
  async share(agreed, name = this.#name()) {
    if (typeof agreed !== 'boolean') throw new TypeError('share takes true or false');
    if (!/^[A-Za-z0-9._-]{1,64}$/.test(name)) throw new RangeError('a name must have 1 to 64 letters, digits, dots, dashes and underscores');
    if (agreed && !this.#status?.keeps) throw new TypeError('this station does not store the measurements of pages');
    remember(this.#storage, NAME_KEY, agreed ? name : null);
    await this.#send({ do: 'share', name: agreed ? name : null });
  }

  #name() {
    const random = () => [...crypto.getRandomValues(new Uint8Array(4))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
    try {
      return this.#storage.getItem(NAME_KEY) ?? `browser-${random()}`;
    } catch {
      return `browser-${random()}`;
    }
  }

  async #set(changes) {
    checkSettings(changes);
    Object.assign(this.#settings, changes);
    // The size is not stored: opening a page must not cost gigabytes an hour unexpectedly.
    remember(this.#storage, STORAGE_KEY, JSON.stringify({ ...this.#settings, bytes: undefined }));
    await this.#send({ do: 'set', settings: changes });
  }

  #send(message) {
    if (this.#broken !== null) return Promise.reject(new Error(this.#broken));
    if (QUESTIONS_MAX <= this.#questions.size) return Promise.reject(new RangeError('too many requests are pending'));
    this.#asked += 1;
    const id = this.#asked;
    const asked = { ...message, id };
    const answer = new Promise((resolve, reject) => this.#questions.set(id, { asked, resolve, reject }));
    // A caller may ignore the result: the status reports the failure.
    answer.catch(() => {});
    this.#worker?.postMessage(asked);
    return answer;
  }

  #launch() {
    let worker;
    try {
      worker = this.#makeWorker();
    } catch (error) {
      return this.#relaunch(null, error.message);
    }
    const base = this.#window.document.baseURI;
    this.#worker = worker;
    worker.onmessage = ({ data }) => this.#take(data);
    worker.onerror = (event) => this.#onWorkerError(worker, event.message);
    this.#timer = this.#window.setTimeout(() => this.#relaunch(worker, 'the worker that measures did not load'), LOAD_MS_MAX);
    worker.postMessage({
      do: 'start',
      id: START,
      station_url: new URL('.', base).href,
      forecaster_url: new URL('forecast.wasm', base).href,
      settings: { ...this.#settings },
      online: this.#window.navigator.onLine !== false,
    });
    // Requests made without a worker, or to one that did not load.
    for (const { asked } of this.#questions.values()) worker.postMessage(asked);
    return undefined;
  }

  // A worker that did not load has no data, and the next one may load: a station restarts within
  // seconds.
  #relaunch(worker, message) {
    this.#dismiss(worker);
    this.#failures += 1;
    const wait_s = retryDelay(this.#failures + 1, Math.random());
    this.#reportStatus(message, Date.now() / 1000 + wait_s);
    this.#timer = this.#window.setTimeout(() => this.#launch(), wait_s * 1000);
  }

  // A worker survives an error in its code, and has all measurements: it is given up only if it
  // does not answer.
  #onWorkerError(worker, message = 'the worker that measures did not load') {
    if (!this.#has_loaded) return this.#relaunch(worker, message);
    this.#window.clearTimeout(this.#timer);
    this.#timer = this.#window.setTimeout(() => this.#break(`${message}; reload the page to measure`), ALIVE_MS_MAX);
    worker.postMessage({ do: 'ping' });
    return undefined;
  }

  #dismiss(worker) {
    this.#window.clearTimeout(this.#timer);
    this.#worker = null;
    if (worker === null) return;
    worker.onmessage = null;
    worker.onerror = null;
    worker.terminate?.();
  }

  #take(message) {
    if (message.is === 'answer') return this.#answered(message);
    if (message.is === 'alive') return this.#alive();
    if (message.is === 'trouble') return this.#reportStatus(message.message, message.next_due_s);
    const { is, ...rest } = message;
    if (is === 'status') this.#status = rest;
    for (const listener of this.#listeners[is] ?? []) listener(rest);
    return undefined;
  }

  #alive() {
    this.#has_loaded = true;
    this.#failures = 0;
    this.#window.clearTimeout(this.#timer);
  }

  #answered({ id, result, error }) {
    if (id === START) return error === undefined ? undefined : this.#break(error.message);
    const question = this.#questions.get(id);
    this.#questions.delete(id);
    return error === undefined ? question?.resolve(result) : question?.reject(revived(error));
  }

  #break(message) {
    this.#dismiss(this.#worker);
    this.#broken = message;
    for (const { reject } of this.#questions.values()) reject(new Error(message));
    this.#questions.clear();
    this.#reportStatus(message, null);
  }

  // Status that the worker cannot send. `next_due_s` is the time of the next attempt, `null` if
  // there is none.
  #reportStatus(message, next_due_s) {
    this.#take({ ...this.#settings, ...this.#status, is: 'status', state: 'unreachable', message, next_due_s });
  }
}

function revived({ name, message, failure }) {
  if (failure !== undefined) return new ProbeError(failure, message);
  const known = { TypeError, RangeError }[name] ?? Error;
  return new known(message);
}

// Private windows and blocked cookies forbid storage by throwing.
function storageOf(window) {
  try {
    return window.localStorage;
  } catch {
    return null;
  }
}

function remembered(storage) {
  try {
    const { period_s, kind, experiments } = JSON.parse(storage.getItem(STORAGE_KEY));
    return checkSettings({ period_s, kind, experiments });
  } catch {
    // There is nothing, or nothing of this version.
    return {};
  }
}

function remember(storage, key, text) {
  try {
    if (text === null) storage.removeItem(key);
    else storage.setItem(key, text);
  } catch {
    // Then the value holds for this visit.
  }
}

// Id of the first request, which every new worker receives.
const START = 0;
// The worker's script is a tenth of the page: on a slow phone link it takes some seconds.
const LOAD_MS_MAX = 30_000;
// A worker that works answers within milliseconds, on a busy phone within a second.
const ALIVE_MS_MAX = 10_000;
const NAME_KEY = 'barograph.name';
const STORAGE_KEY = 'barograph.here';
// Far more than a reader needs, or a script that waits for its responses.
const QUESTIONS_MAX = 64;
