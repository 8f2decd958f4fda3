// State of the page: the station and its series, each with a bounded history. Pure: methods take
// what arrived, and properties return plain state.

/** The station's series as they are known so far. */
export class Store {
  constructor() {
    /** Series by key. */
    this.series = new Map();
    /** Number of series that the station has beyond `SERIES_MAX`. */
    this.left_out = 0;
    /** Name of the station. Its own series have priority over those that others report to it. */
    this.host = null;
    /**
     * Whether a source is another station of the mesh: its series are in the grid of all pairs, not
     * here.
     */
    this.isOtherStation = () => false;
    /** The pair that always keeps its series. */
    this.pinned = null;
  }

  /**
   * Applies the response of `/v1/series`: adds new series, removes missing ones, updates the rest.
   * Leaves out series of other stations of the mesh. Histories become stale, because points may
   * have been missed.
   */
  replaceSeries(list) {
    this.#list = list;
    this.#keep(list, update);
  }

  /**
   * Applies the last list again after `isOtherStation` changed. Series that stay keep their history.
   */
  reapplyList() {
    const listed = new Set(this.#list.map(keyOf));
    const since = [...this.series.values()].filter((series) => !listed.has(keyOf(series)));
    this.#keep([...this.#list, ...since], (series, summary) => this.series.has(keyOf(summary)) || update(series, summary));
  }

  #keep(list, take) {
    const kept = new Map();
    const any = list.filter((summary) => this.#isWanted(summary));
    const is_own = ({ source }) => source === this.host;
    const wanted = [...any.filter(is_own), ...any.filter((summary) => !is_own(summary))];
    const room = new Set(wanted.slice(0, SERIES_MAX));
    const pinned = list.filter((summary) => this.#isPinned(summary) && !room.has(summary));
    for (const summary of [...room, ...pinned]) {
      const key = keyOf(summary);
      const series = this.series.get(key) ?? newSeries(summary);
      take(series, summary);
      kept.set(key, series);
    }
    this.series = kept;
    this.extra = pinned.map(keyOf);
    this.left_out = wanted.length - wanted.filter((summary) => room.has(summary) || this.#isPinned(summary)).length;
  }

  /**
   * Keeps the series `summaries` of a pair even if there is no room for others; `null` releases
   * them.
   */
  pin(pair, summaries = []) {
    for (const key of this.extra) this.series.delete(key);
    this.pinned = pair;
    this.extra = summaries.map(keyOf).filter((key) => !this.series.has(key));
    for (const summary of summaries) {
      const key = keyOf(summary);
      if (this.series.has(key)) continue;
      const { count, failures, last, next } = summary;
      this.series.set(key, { ...newSeries(summary), count, failures, last, listed: last, next });
    }
  }

  /** Renames the target `from` of series to `to`; they keep all their data. */
  renameTarget(from, to) {
    this.series = new Map(
      [...this.series.values()].map((series) => {
        if (series.target === from) series.target = to;
        return [keyOf(series), series];
      }),
    );
  }

  /** Marks a history as being read. Points that arrive meanwhile wait for it. */
  startHistory(key) {
    const series = this.series.get(key);
    if (!series) return;
    series.history = 'loading';
    series.pending = [];
  }

  /** Applies the response of `/v1/recent`, then the points that arrived during the request. */
  putHistory(key, recent) {
    const series = this.series.get(key);
    if (!series || series.history !== 'loading') return;
    series.points = recent.points.slice(-POINTS_MAX);
    series.appended += 1;
    series.revision += 1;
    const failed = series.points.findLast(hasFailed);
    if (failed) series.last_failure = failed;
    series.failed_in_a_row = series.points.length - 1 - series.points.findLastIndex((point) => !hasFailed(point));
    // Times do not show which points the history has: a clock may be set back, and an application
    // may give several points one time.
    const had = series.points;
    for (const point of series.pending.filter((point) => !had.some((one) => isSame(one, point)))) {
      appendPoint(series, point);
      series.failed_in_a_row = hasFailed(point) ? series.failed_in_a_row + 1 : 0;
    }
    series.pending = [];
    series.history = 'present';
  }

  /** Marks a history as not read, so that it is requested again. */
  failHistory(key) {
    const series = this.series.get(key);
    if (series?.history === 'loading') series.history = 'absent';
  }

  /**
   * Whether the forecasts further ahead of a series should be read now: at most once for each
   * value and `AHEAD_MS_MIN`, and only with its history. If so, they count as read. `now_ms` is of
   * a clock that is never set.
   */
  startAhead(key, now_ms) {
    const series = this.series.get(key);
    const value_s = series?.next?.time_s;
    if (series?.history !== 'present' || value_s === undefined) return false;
    if (value_s === series.ahead_value_s || now_ms - series.ahead_ms < AHEAD_MS_MIN) return false;
    series.ahead_value_s = value_s;
    series.ahead_ms = now_ms;
    return true;
  }

  /** Applies the forecasts further ahead, in the shape of `/v1/forecast`. */
  putAhead(key, forecasts) {
    const series = this.series.get(key);
    if (series) series.ahead = forecasts;
  }

  /**
   * Applies a `point` event. Returns the key of its series, or `null` if the series is not kept: it
   * belongs to another station, or there is no room.
   */
  addPoint(event) {
    const key = keyOf(event);
    let series = this.series.get(key);
    if (!series) {
      const is_wanted = this.#isWanted(event);
      if (!(is_wanted || this.#isPinned(event))) return null;
      if (SERIES_MAX <= this.series.size && !(event.source === this.host && this.#makeRoom())) return null;
      if (!is_wanted) this.extra.push(key);
      series = newSeries(event);
      this.series.set(key, series);
    }
    // The list read meanwhile counts it already.
    const known = isSame(series.listed, event);
    series.listed = null;
    series.last = event;
    series.next = event.next ?? null;
    if (hasFailed(event)) series.last_failure = event;
    // For points that a history being read may also hold, the history counts.
    series.failed_in_a_row = hasFailed(event) ? series.failed_in_a_row + (known ? 0 : 1) : 0;
    if (!known) series[hasFailed(event) ? 'failures' : 'count'] += 1;
    if (series.history === 'present') appendPoint(series, event);
    else if (series.history === 'loading' && series.pending.length < POINTS_MAX) series.pending.push(event);
    return key;
  }

  /**
   * Series grouped by source and target; groups of the station itself come first. The order is by
   * name, so that nothing moves when points arrive.
   */
  groups(host) {
    const groups = new Map();
    for (const [key, series] of this.series) {
      const id = JSON.stringify([series.source, series.target]);
      if (!groups.has(id)) {
        const own = series.source === host && series.target === host;
        groups.set(id, { id, source: series.source, target: series.target, own, keys: [] });
      }
      groups.get(id).keys.push(key);
    }
    const rank = (key) => {
      const at = ORDER.indexOf(this.series.get(key).quantity);
      return at < 0 ? ORDER.length : at;
    };
    for (const group of groups.values()) {
      group.keys.sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
    }
    return [...groups.values()].sort(
      (a, b) =>
        Number(b.own) - Number(a.own) ||
        Number(b.source === host) - Number(a.source === host) ||
        a.target.localeCompare(b.target) ||
        a.source.localeCompare(b.source),
    );
  }

  // Removes a series that another source reported.
  #makeRoom() {
    const keys = [...this.series].filter(([, { source }]) => source !== this.host).map(([key]) => key);
    const last = keys.findLast((key) => !this.extra.includes(key));
    this.left_out += last === undefined ? 0 : 1;
    return last !== undefined && this.series.delete(last);
  }

  // Applications and browsers report under names of their own, which are not stations of the mesh.
  #isWanted({ source }) {
    return !this.isOtherStation(source);
  }

  #isPinned({ source, target }) {
    return this.pinned !== null && this.pinned.source === source && this.pinned.target === target;
  }

  // The last response of `/v1/series`.
  #list = [];
  // Keys that are kept only because they are pinned.
  extra = [];
}

/** Identity of a series: its source, target and quantity as one text. */
export function keyOf({ source, target, quantity }) {
  return JSON.stringify([source, target, quantity]);
}

/** Whether a record or point is of an experiment that failed; such a point has no value. */
export function hasFailed(point) {
  return typeof point?.error === 'string';
}

/**
 * Forecast of a series' next value. `null` if there is none, or if attempts have failed in a row
 * since: then the next point is probably not a value.
 */
export function standingForecast({ next, failed_in_a_row }) {
  return next === null || next === undefined || FAILURES_IN_A_ROW_MAX <= (failed_in_a_row ?? 0) ? null : next;
}

/** Whether every word of `query` occurs in the names of a series. */
export function matches(series, title, query) {
  const text = `${series.source} ${series.target} ${series.quantity} ${title}`.toLowerCase();
  return query
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

/**
 * Points kept of a series, as many as `/v1/recent` returns: ten hours at 1 s take as much memory as
 * ten minutes.
 */
export const POINTS_MAX = 512;

// One failure may be an accident.
const FAILURES_IN_A_ROW_MAX = 2;

/**
 * Shortest time between two reads of the forecasts further ahead of a series (ms): a quarter of the
 * shortest horizon. The fan of a series with many values changes no faster.
 */
export const AHEAD_MS_MIN = 15_000;

/** Series kept: each costs the page a card. For more, use the API. */
export const SERIES_MAX = 1000;

function newSeries({ source, target, quantity, unit }) {
  return {
    source,
    target,
    quantity,
    unit,
    count: 0,
    failures: 0,
    last: null,
    listed: null,
    last_failure: null,
    failed_in_a_row: 0,
    next: null,
    ahead: null,
    ahead_ms: -Infinity,
    history: 'absent',
    points: [],
    pending: [],
    appended: 0,
    revision: 0,
  };
}

function update(series, { unit, count, failures, last = null, next = null }) {
  series.unit = unit;
  series.count = count;
  series.failures = failures;
  series.last = last;
  series.listed = last;
  series.next = next;
  if (hasFailed(last)) series.last_failure = last;
  // A list only shows that earlier failures are later than the value that the forecast was made
  // from.
  series.failed_in_a_row = hasFailed(last) ? Math.max(1, series.failed_in_a_row) : 0;
  series.history = 'absent';
  series.pending = [];
}

function isSame(record, event) {
  return record !== null && ['time_s', 'value', 'error'].every((name) => record[name] === event[name]);
}

function appendPoint(series, { time_s, value, error, forecast, lower, upper, method, detail }) {
  series.points.push({ time_s, value, error, forecast, lower, upper, method, raw: detail?.raw, gap: detail?.gap, at_least: detail?.at_least });
  if (POINTS_MAX < series.points.length) series.points.shift();
  series.appended += 1;
}

// Order within a group: the most used quantities first.
const ORDER = [
  'cpu_available',
  'memory_free',
  'rtt',
  'rtt_nagle',
  'rtt_loaded',
  'rtt_tls',
  'rtt_udp',
  'loss',
  'connect',
  'first_byte',
  'response_time',
  'goodput',
  'goodput_down',
  'transfer',
];
