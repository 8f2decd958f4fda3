// Measures one station from this page, cycle by cycle: values, typed failures, and gaps in between.
import { isLoopback } from './address.js';
import { runCycle } from './cycle.js';
import { ProbeError } from './failure.js';
import { toCsv, toJson, toValuesCsv } from './history.js';
import { CLIENT, HORIZONS, QUANTITIES, SeriesState } from './series.js';
import { BEAT_S, Timetable, SleepDetector, retryDelay } from './schedule.js';
import { Sessions } from './sessions.js';
import { AUTO, AutoSize, BulkTest } from './sizing.js';
import { checkBuckets, checkExperiment, checkQuantity, checkSettings, DEFAULTS } from './settings.js';
import { Traffic } from './traffic.js';

/**
 * The communicator. All effects go through `world`: `now_ms()`, a monotonic clock; `wall_ms()`,
 * `random()`, `setTimeout`, `clearTimeout`, `fetch`, and `openSession(station_url, {signal,
 * count})`. `makeBattery(kind, horizons)` makes forecasters; `post(message)` receives points and
 * statuses.
 */
export class Communicator {
  #world;
  #makeBattery;
  #post;
  #clock;
  #settings = { ...DEFAULTS };
  #station = null;
  /** Automatic sizes for this station. */
  #sizing;
  #series_states = new Map();
  #sessions = null;
  #timetable = new Timetable(DEFAULTS.period_s);
  #sleep_detector = new SleepDetector();
  #traffic;
  #timer = null;
  #watch = null;
  /** The current cycle or single experiment. Results of any other run are dropped. */
  #run = null;
  #requests = [];
  #cycle_requests = [];
  #deferred = [];
  /** Series for which the next point comes after a gap. */
  #after_gap = new Set();
  #state = 'connecting';
  #message = '';
  #suspended = false;
  #online = true;
  #failures = 0;
  #cycles = 0;
  #gaps = 0;
  #sharing = null;

  constructor({ world, makeBattery, post, clock }) {
    this.#world = world;
    this.#makeBattery = makeBattery;
    this.#post = post;
    this.#clock = clock;
    this.#traffic = new Traffic(this.#now_s());
    this.since_s = world.wall_ms() / 1000;
  }

  /** Starts measuring the station at `station_url` with `settings`; `online` as below. */
  start(station_url, settings = {}, online = true) {
    this.#online = online;
    Object.assign(this.#settings, checkSettings(settings));
    this.#timetable.setPeriod(this.#settings.period_s, this.#now_s());
    this.#switchStation(station_url);
    this.#heartbeat();
    this.#pump();
  }

  /** Changes settings. `station_url` changes the station, and its series begin anew. */
  set({ station_url, ...changes }) {
    checkSettings(changes);
    const { kind, experiments } = this.#settings;
    Object.assign(this.#settings, changes);
    // A quantity that was not measured for a while continues after a gap.
    for (const quantity of this.#settings.experiments) {
      if (!experiments.includes(quantity) && this.#series_states.has(quantity)) this.#after_gap.add(quantity);
    }
    if (changes.period_s !== undefined) this.#timetable.setPeriod(changes.period_s, this.#now_s());
    if (this.#settings.kind !== kind) this.#whenIdle(() => this.#relearn());
    if (station_url !== undefined && station_url !== this.#station?.url) {
      this.#interrupt('another station was chosen', false);
      this.#switchStation(station_url);
    }
    this.#pump();
    this.#postStatus();
  }

  /** Stops measuring. Drops the current run, and closes the sessions. */
  suspend() {
    if (this.#suspended) return;
    this.#suspended = true;
    this.#interrupt('suspended');
    this.#pump();
  }

  /** Resumes measuring at once. */
  resume() {
    if (!this.#suspended) return;
    this.#suspended = false;
    this.#restart();
  }

  /**
   * Sets whether the computer has a network, as the browser reports it. Without one there are
   * neither measurements nor failures.
   */
  online(online) {
    if (online === this.#online) return;
    if (!online) this.#interrupt('offline');
    this.#online = online;
    // Browsers report a link some seconds before there is an address.
    this.#restart(online ? WAKE_S : 0);
  }

  /** Runs one cycle now, also while suspended; resolves when it has ended. */
  measureNow() {
    if (REQUESTS_MAX <= this.#cycle_requests.length) throw new RangeError('too many cycles are pending');
    if (!this.#online) throw new ProbeError('local', 'this computer is offline');
    const done = new Promise((resolve, reject) => this.#cycle_requests.push({ resolve, reject }));
    this.#pump();
    return done;
  }

  /**
   * Runs one experiment without recording it; returns `{quantity, value, n, samples, …}`, goodput
   * uncorrected.
   */
  measure(experiment) {
    const request = checkExperiment(experiment);
    if (REQUESTS_MAX <= this.#requests.length) throw new RangeError('too many experiments are pending');
    if (!this.#online) throw new ProbeError('local', 'this computer is offline');
    const done = new Promise((resolve, reject) => this.#requests.push({ request, resolve, reject }));
    this.#pump();
    return done;
  }

  /**
   * Sets the `name` under which values are reported to a station that keeps them; `null` ends that.
   * Only if the reader agreed.
   */
  share(name) {
    this.#sharing = name;
    this.#postStatus();
  }

  /**
   * Points of one quantity, oldest first, at most three for each of `buckets`; `next` as in the
   * API. This and the files below would delay a measurement: they are returned at once if none
   * runs, otherwise as a promise.
   */
  history(quantity, buckets) {
    checkQuantity(quantity);
    checkBuckets(buckets);
    return this.#whenIdle(() => {
      const series_state = this.#series_states.get(quantity);
      if (series_state === undefined) return { quantity, points: [], next: null, dropped: 0, count: 0 };
      const { history, series, next } = series_state;
      return { ...series, points: history.decimate(buckets), next, dropped: history.dropped, count: history.length };
    });
  }

  /** All points as CSV, or values of one quantity in the format of `barograph forecast`. */
  csv(quantity) {
    if (quantity === undefined) return this.#whenIdle(() => toCsv(this.#histories()));
    checkQuantity(quantity);
    return this.#whenIdle(() => {
      const series_state = this.#series_states.get(quantity);
      return series_state === undefined ? `time_s,${quantity}\n` : toValuesCsv(series_state.history);
    });
  }

  /** All points and the current settings, for JSON. */
  json() {
    return this.#whenIdle(() => ({ ...toJson(this.#histories()), status: this.status() }));
  }

  /** Stops for good, and frees all resources. */
  stop() {
    this.#suspended = true;
    this.#interrupt('stopped');
    for (const work of this.#deferred.splice(0)) work();
    this.#world.clearTimeout(this.#timer);
    this.#world.clearTimeout(this.#watch);
    for (const series_state of this.#series_states.values()) series_state.free();
    this.#series_states.clear();
  }

  /** The current status, as specified in docs/spec/page.md. */
  status() {
    const { period_s, bytes, kind, experiments } = this.#settings;
    const due_s = this.#timetable.due_s;
    const has_next = !this.#suspended && this.#online && due_s !== null;
    return {
      is: 'status',
      state: this.#state,
      message: this.#message,
      client: CLIENT,
      server: this.#station?.name ?? null,
      station_url: this.#station?.url ?? null,
      period_s,
      bytes,
      kind,
      experiments,
      clock: this.#clock,
      cycles: this.#cycles,
      missed: this.#timetable.missed,
      gaps: this.#gaps,
      next_due_s: has_next ? this.#wall_s() + due_s - this.#now_s() : null,
      traffic: { bytes: this.#traffic.bytes, bytes_per_hour: this.#traffic.perHour(this.#now_s()), since_s: this.since_s },
      keeps: this.#station?.keeps ?? false,
      on_this_computer: this.#station?.on_this_computer ?? false,
      sharing: this.#sharing !== null,
      transfer_bytes_max: this.#station?.transfer_bytes_max ?? null,
      bulk_bytes_per_hour_max: bytes === AUTO ? (this.#sizing?.bytes_per_hour ?? null) : null,
    };
  }

  // Decides what comes next. Every change calls it; only one run is active at a time.
  #pump() {
    this.#world.clearTimeout(this.#timer);
    if (this.#run !== null || this.#station === null) return;
    for (const work of this.#deferred.splice(0)) work();
    if (!this.#online) return this.#enter('offline', '');
    if (0 < this.#requests.length) return void this.#serve(this.#requests.shift());
    const wanted = 0 < this.#cycle_requests.length;
    if (this.#suspended && !wanted) return this.#rest();
    const wait_s = wanted ? 0 : this.#timetable.wait(this.#now_s());
    if (wait_s === 0) return void this.#cycle(this.#cycle_requests.splice(0));
    this.#timer = this.#world.setTimeout(() => this.#pump(), wait_s * 1000);
    return this.#enter(0 < this.#failures ? 'unreachable' : 'waiting', this.#message);
  }

  // Keeps the sessions for the next measurement on demand, but only for a short time: other pages
  // need their slots.
  #rest() {
    this.#timer = this.#world.setTimeout(() => {
      this.#sessions.close();
      this.#sessions = this.#newSessions();
    }, KEPT_MS_MAX);
    return this.#enter('suspended', '');
  }

  async #cycle(requests) {
    const run = this.#begin();
    this.#timetable.begin(this.#now_s());
    let error = null;
    try {
      await this.#connect(run);
      const { period_s } = this.#settings;
      const experiments = this.#dueExperiments(0 < requests.length);
      const shared = [];
      const values = await runCycle({
        experiments,
        period_s,
        bulkTest: (quantity) => this.#bulkTest(quantity, 0 < requests.length),
        sessions: this.#sessions,
        signal: run.controller.signal,
        pause: (ms, over) => this.#pause(ms, over),
        forecastOf: (quantity) => this.#series_states.get(quantity)?.next?.median.value ?? null,
        record: (quantity, outcome, detail) => shared.push(this.#record(run, quantity, outcome, detail)),
      });
      this.#assertValid(run);
      this.#finish(run, values, experiments.length);
      await this.#report(run, shared);
    } catch (caught) {
      error = caught;
      if (run === this.#run) this.#abandon(caught);
    }
    if (run === this.#run) this.#run = null;
    for (const { resolve, reject } of requests) error === null ? resolve() : reject(error);
    this.#pump();
    this.#postStatus();
  }

  // Leaves out bulk tests of automatic size that exceed the byte account, unless the reader
  // requested this cycle.
  #dueExperiments(wanted) {
    const { experiments, bytes } = this.#settings;
    if (wanted || bytes !== AUTO || this.#sizing.isDue(experiments.filter(isBulk), this.#now_s())) return experiments;
    return experiments.filter((quantity) => !isBulk(quantity) && quantity !== 'rtt_loaded');
  }

  #bulkTest(quantity, wanted) {
    const { experiments, bytes } = this.#settings;
    if (bytes !== AUTO) return new BulkTest(bytes);
    const bulk = experiments.filter(isBulk);
    return this.#sizing.begin(quantity, bulk.slice(bulk.indexOf(quantity) + 1), this.#now_s(), wanted);
  }

  async #pause(ms, over) {
    let timer;
    const passed = new Promise((resolve) => (timer = this.#world.setTimeout(resolve, ms)));
    await Promise.race([passed, over]);
    this.#world.clearTimeout(timer);
  }

  async #serve({ request, resolve, reject }) {
    const run = this.#begin();
    const { quantity, n, bytes, message_bytes, fresh } = request;
    const { signal } = run.controller;
    try {
      this.#enter('measuring', this.#message);
      // On a used connection, earlier transfers have shaped the congestion window.
      if (fresh) this.#sessions.closeOne('bulk');
      const session = await this.#sessions.get('bulk', signal);
      const result = await {
        rtt: () => session.rtt(n, { signal }),
        rtt_nagle: () => session.rttNagle(n, { signal }),
        goodput: () => session.goodput(bytes, { signal, message_bytes }),
        goodput_down: () => session.goodputDown(bytes, { signal }),
      }[quantity]();
      this.#assertValid(run);
      resolve({ quantity, ...result });
    } catch (error) {
      reject(error);
    }
    if (run === this.#run) this.#run = null;
    this.#pump();
  }

  #begin() {
    this.#world.clearTimeout(this.#timer);
    this.#run = { controller: new AbortController() };
    this.#sessions.begin();
    return this.#run;
  }

  // Opens both sessions and reads the station's name at once: the first point should not wait for
  // three more round trips.
  async #connect(run) {
    const { signal } = run.controller;
    const { experiments } = this.#settings;
    const needed = experiments.some(isBulk) ? ['small', 'bulk'] : ['small'];
    const is_new = needed.some((name) => !this.#sessions.has(name));
    this.#enter(is_new ? 'connecting' : 'measuring', this.#message);
    if (!is_new) return;
    const opened = needed.map((name) => this.#sessions.get(name, signal));
    const [, ...outcomes] = await Promise.allSettled([this.#identify(run), ...opened]);
    this.#assertValid(run);
    // Each experiment that needs a failed session records the failure. Only errors of another kind
    // are thrown here.
    for (const { reason } of outcomes) if (reason !== undefined && !(reason instanceof ProbeError)) throw reason;
    this.#enter('measuring', this.#message);
  }

  async #identify(run) {
    const station = this.#station;
    const gone = new AbortController();
    const timer = this.#world.setTimeout(() => gone.abort(), ANSWER_MS_MAX);
    const given_up = () => gone.abort();
    run.controller.signal.addEventListener('abort', given_up, { once: true });
    try {
      const address = new URL('v1/station', station.url).href;
      const response = await this.#world.fetch(address, { cache: 'no-store', credentials: 'omit', signal: gone.signal });
      const { host, echo, from_this_host } = await response.json();
      if (station !== this.#station || typeof host !== 'string') return;
      const name = host.slice(0, NAME_MAX);
      if (name !== station.name) this.#rename(name);
      station.on_this_computer ||= from_this_host === true;
      station.keeps = echo?.keeps === true;
      station.transfer_bytes_max = Number.isSafeInteger(echo?.transfer_bytes_max) ? echo.transfer_bytes_max : null;
      this.#sizing.allow(station.transfer_bytes_max);
    } catch {
      // The sessions find out what is wrong. Until then the station's name is its address.
    } finally {
      this.#world.clearTimeout(timer);
    }
  }

  #record(run, quantity, outcome, detail) {
    this.#assertValid(run);
    const time_s = this.#wall_s();
    // With a chosen size, bounds are a series of their own kind; among settled rates, a bound does
    // not predict the next value.
    const learns_bounds = this.#settings.bytes !== AUTO;
    const told = this.#after_gap.has(quantity) ? { ...detail, gap: true } : detail;
    const point = this.#seriesState(quantity).take(outcome, time_s, told, learns_bounds);
    if (point === null) return null;
    this.#after_gap.delete(quantity);
    if (point.error === undefined) run.has_value = true;
    else run.message = detail.message;
    this.#post({ is: 'point', ...point });
    return point;
  }

  /** Throws if results of `run` are not valid: it was given up, or the computer slept. */
  #assertValid(run) {
    this.#checkClocks();
    if (run !== this.#run || run.controller.signal.aborted) throw run.controller.signal.reason;
  }

  #checkClocks() {
    const reason = this.#sleep_detector.check(this.#now_s(), this.#wall_s());
    if (reason === null) return;
    this.#interrupt(reason);
    // A computer that wakes has its network some seconds after its clock.
    this.#restart(WAKE_S);
  }

  // Runs work of some tenths of a second. It waits while something is timed, but not longer than a
  // reader would.
  #whenIdle(work) {
    if (this.#run === null) return work();
    if (REQUESTS_MAX <= this.#deferred.length) throw new RangeError('too many requests are pending');
    return new Promise((resolve, reject) => {
      let is_done = false;
      const run_once = () => {
        if (is_done) return;
        is_done = true;
        this.#world.clearTimeout(timer);
        try {
          resolve(work());
        } catch (error) {
          reject(error);
        }
      };
      const timer = this.#world.setTimeout(run_once, QUIET_MS_MAX);
      this.#deferred.push(run_once);
    });
  }

  #relearn() {
    for (const series_state of this.#series_states.values()) series_state.replaceBattery(() => this.#battery());
  }

  #heartbeat() {
    this.#checkClocks();
    this.#watch = this.#world.setTimeout(() => this.#heartbeat(), BEAT_S * 1000);
  }

  // A gap: neither a point nor a failure, because it shows nothing about the network.
  #interrupt(reason, is_gap = true) {
    const run = this.#run;
    this.#run = null;
    const interrupted = new ProbeError('local', reason);
    interrupted.is_gap = true;
    run?.controller.abort(interrupted);
    for (const { reject } of [...this.#requests.splice(0), ...this.#cycle_requests.splice(0)]) reject(interrupted);
    this.#sessions?.close();
    this.#sessions = this.#newSessions();
    if (is_gap) {
      // While suspended or offline, nothing was due.
      if (this.#online && !this.#suspended) this.#gaps += 1;
      for (const quantity of QUANTITIES) this.#after_gap.add(quantity);
    }
    this.#message = reason;
    this.#timetable.restart();
  }

  #restart(wait_s = 0) {
    this.#timetable.restart();
    if (0 < wait_s) this.#timetable.notBefore(this.#now_s() + wait_s);
    this.#failures = 0;
    this.#pump();
    this.#postStatus();
  }

  #finish(run, values, attempts) {
    this.#cycles += 1;
    // A cycle without a due experiment shows nothing about the station.
    if (0 < attempts) this.#failures = 0 < values ? 0 : this.#failures + 1;
    this.#message = run.message ?? '';
    const wait_s = retryDelay(this.#failures, this.#world.random());
    if (0 < wait_s) this.#timetable.notBefore(this.#now_s() + wait_s);
  }

  // An error that is neither a value nor a network failure is a defect here: it is reported, and is
  // no point.
  #abandon(error) {
    this.#failures += 1;
    this.#message = String(error?.message ?? error);
    this.#timetable.notBefore(this.#now_s() + retryDelay(this.#failures, this.#world.random()));
  }

  async #report(run, points) {
    if (this.#sharing === null || !this.#station.keeps || !this.#sessions.has('small')) return;
    const small = await this.#sessions.get('small', run.controller.signal);
    for (const point of points) {
      // A station would keep a lower bound as a value.
      if (point?.value !== undefined && !point.detail.at_least) small.report({ source: this.#sharing, quantity: point.quantity, value: point.value });
    }
  }

  #switchStation(station_url) {
    const name = new URL(station_url).host;
    const on_this_computer = isLoopback(new URL(station_url).hostname);
    this.#station = { url: station_url, name, on_this_computer, keeps: false, transfer_bytes_max: null };
    this.#sessions = this.#newSessions();
    this.#sizing = new AutoSize(this.#now_s());
    this.#failures = 0;
    this.#message = '';
    // The reader's consent was for the previous station only.
    this.#sharing = null;
    this.#freeSeries();
    this.#timetable.restart();
  }

  // It is the same station; only its name was not known yet.
  #rename(name) {
    this.#station.name = name;
    for (const series_state of this.#series_states.values()) series_state.rename(name);
    this.#postStatus();
  }

  #freeSeries() {
    for (const series_state of this.#series_states.values()) series_state.free();
    this.#series_states.clear();
  }

  #newSessions() {
    return new Sessions((signal) => {
      const count = (sent, received) => this.#traffic.add(sent, received, this.#now_s());
      return this.#world.openSession(this.#station.url, { signal, count });
    });
  }

  #seriesState(quantity) {
    let series_state = this.#series_states.get(quantity);
    if (series_state === undefined) {
      const series = { source: CLIENT, target: this.#station.name, quantity };
      series_state = new SeriesState(series, () => this.#battery());
      this.#series_states.set(quantity, series_state);
    }
    return series_state;
  }

  #histories() {
    return QUANTITIES.flatMap((quantity) => this.#series_states.get(quantity)?.history ?? []);
  }

  #battery() {
    return this.#makeBattery(this.#settings.kind, HORIZONS);
  }

  #enter(state, message) {
    if (state === this.#state && message === this.#message) return;
    this.#state = state;
    this.#message = message;
    this.#postStatus();
  }

  #postStatus() {
    this.#post(this.status());
  }

  #now_s() {
    return this.#world.now_ms() / 1000;
  }

  #wall_s() {
    return this.#world.wall_ms() / 1000;
  }
}

function isBulk(quantity) {
  return quantity.startsWith('goodput');
}

// Longest wait for a station's response to a small request, as in api.js.
const ANSWER_MS_MAX = 10_000;
// A wireless network is joined again in two to five seconds; failures before that show nothing
// about the station.
const WAKE_S = 5;
// A script that measures repeatedly continues within milliseconds, a person within seconds.
const KEPT_MS_MAX = 5000;
// Requests that may wait for the current run.
const REQUESTS_MAX = 16;
// A reader does not wait longer for a file; a transfer that still runs then is long compared with
// this work.
const QUIET_MS_MAX = 5000;
// A host name has at most 253 letters (RFC 1035 §2.3.4).
const NAME_MAX = 253;
