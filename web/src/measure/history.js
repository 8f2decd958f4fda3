// Points of one series: a ring of numbers with a fixed size, allocated once. Pure.
import { FAILURES } from './failure.js';

/** Points kept of a series: four and a half hours at 1 s, in 1 MB. */
export const HISTORY_POINTS_MAX = 16_384;

/** The newest points of one series. Beyond `points_max`, the oldest are dropped and counted. */
export class History {
  #columns = new Map();
  #errors;
  #methods;
  #gaps;
  #bounds;
  #names = [];
  #total = 0;

  constructor({ source, target, quantity, unit }, points_max = HISTORY_POINTS_MAX) {
    this.series = { source, target, quantity, unit };
    this.points_max = points_max;
    for (const name of NUMBERS) this.#columns.set(name, new Float64Array(points_max));
    this.#errors = new Uint8Array(points_max);
    this.#methods = new Uint8Array(points_max);
    this.#gaps = new Uint8Array(points_max);
    this.#bounds = new Uint8Array(points_max);
  }

  /** Number of points. */
  get length() {
    return Math.min(this.#total, this.points_max);
  }

  /** Number of older points that were dropped. */
  get dropped() {
    return this.#total - this.length;
  }

  /**
   * Adds a point in the shape of the API, with optional `raw`, `gap` and `at_least` in its
   * `detail`. `is_learnt` says whether forecasters may learn its value.
   */
  add(point, is_learnt = true) {
    const at = this.#total % this.points_max;
    for (const name of NUMBERS) {
      const number = name === 'raw' ? point.detail?.raw : point[name];
      this.#columns.get(name)[at] = Number.isFinite(number) ? number : NaN;
    }
    this.#errors[at] = point.error === undefined ? 0 : FAILURES.indexOf(point.error) + 1 || FAILURES.length;
    this.#methods[at] = this.#methodCode(point.method);
    this.#gaps[at] = point.detail?.gap === true ? 1 : 0;
    this.#bounds[at] = point.detail?.at_least !== true ? EXACT : is_learnt ? BOUND : UNLEARNT_BOUND;
    this.#total += 1;
  }

  /**
   * Point `index`, 0 for the oldest, in the shape of the API. `gap` = measuring had paused before
   * it; `at_least` = its value is a lower bound.
   */
  point(index) {
    const at = (this.dropped + index) % this.points_max;
    const point = { time_s: this.#columns.get('time_s')[at] };
    if (this.#errors[at] === 0) point.value = this.#columns.get('value')[at];
    else point.error = FAILURES[this.#errors[at] - 1];
    for (const name of ['forecast', 'lower', 'upper', 'raw']) {
      const number = this.#columns.get(name)[at];
      if (!Number.isNaN(number)) point[name] = number;
    }
    if (this.#methods[at] !== 0) point.method = this.#names[this.#methods[at] - 1];
    if (this.#gaps[at] === 1) point.gap = true;
    if (this.#bounds[at] !== EXACT) point.at_least = true;
    return point;
  }

  /**
   * Whether forecasters may learn point `index`: it has a value, and is not a bound among other
   * values.
   */
  isLearnt(index) {
    const at = (this.dropped + index) % this.points_max;
    return this.#errors[at] === 0 && this.#bounds[at] !== UNLEARNT_BOUND;
  }

  /** All points, oldest first. */
  *[Symbol.iterator]() {
    for (let i = 0; i < this.length; i += 1) yield this.point(i);
  }

  /**
   * At most three points for each of `buckets` equal runs of points, oldest first: the least and
   * the greatest value and the last failure. A gap within a run is marked at the first of its
   * points.
   */
  decimate(buckets) {
    if (this.length <= buckets) return [...this];
    const given = [];
    for (let bucket = 0; bucket < buckets; bucket += 1) {
      const from = Math.floor((bucket * this.length) / buckets);
      const until = Math.floor(((bucket + 1) * this.length) / buckets);
      given.push(...this.#extremes(from, until));
    }
    return given;
  }

  #extremes(from, until) {
    const value = this.#columns.get('value');
    let [least, most, failed, gap] = [-1, -1, -1, false];
    for (let i = from; i < until; i += 1) {
      const at = (this.dropped + i) % this.points_max;
      gap ||= this.#gaps[at] === 1;
      if (this.#errors[at] !== 0) {
        failed = i;
        continue;
      }
      if (least < 0 || value[at] < value[(this.dropped + least) % this.points_max]) least = i;
      if (most < 0 || value[(this.dropped + most) % this.points_max] < value[at]) most = i;
    }
    const kept = [...new Set([least, most, failed])].filter((i) => 0 <= i).sort((a, b) => a - b);
    const points = kept.map((i) => this.point(i));
    if (gap) points[0].gap = true;
    return points;
  }

  // A battery has some dozens of method names. A name beyond the limit is left out.
  #methodCode(method) {
    if (method === undefined) return 0;
    let code = this.#names.indexOf(method) + 1;
    if (code === 0 && this.#names.length < METHODS_MAX) code = this.#names.push(method);
    return code;
  }
}

/**
 * Points of several histories as CSV (RFC 4180), sorted by time: a header, then
 * `time_s,source,target,quantity,unit,value,error,forecast,lower,upper,method,raw,at_least`. Each
 * history that dropped older points has a comment at the end.
 */
export function toCsv(histories) {
  const rows = histories.flatMap((history) => {
    const { source, target, quantity, unit } = history.series;
    return [...history].map((point) => ({ ...point, source, target, quantity, unit }));
  });
  rows.sort((a, b) => a.time_s - b.time_s);
  const lines = rows.map((row) => COLUMNS.map((name) => field(row[name])).join(','));
  const short = histories.filter((history) => 0 < history.dropped);
  // At the end, because programs read the first line as the header.
  const dropped = short.map((history) => `# ${history.series.quantity}: ${history.dropped} older points were dropped`);
  return [COLUMNS.join(','), ...lines, ...dropped, ''].join('\r\n');
}

/**
 * Values of one history in the format of `barograph forecast` and `compare`: times, and values in a
 * column named after the quantity. `compare` uses the name to decide whether larger or smaller
 * values are better.
 *
 * It leaves out failures, lower bounds that no forecaster learned, and points with later labels
 * from before a clock was set back; a comment counts them.
 */
export function toValuesCsv(history) {
  const { source, target, quantity, unit } = history.series;
  const kept = [];
  let set_back = 0;
  let failures = 0;
  let bounds = 0;
  for (let i = 0; i < history.length; i += 1) {
    const { time_s, value } = history.point(i);
    if (!history.isLearnt(i)) {
      if (value === undefined) failures += 1;
      else bounds += 1;
      continue;
    }
    while (0 < kept.length && time_s < kept.at(-1)[0]) {
      kept.pop();
      set_back += 1;
    }
    kept.push([time_s, value]);
  }
  const title = `# ${quantity} in ${unit} from ${source} to ${target}`.replace(/[\r\n]/g, ' ');
  const left_out = `# left out: ${failures} failures, ${bounds} rates that had not settled, ${set_back} points before a clock was set back, ${history.dropped} older points`;
  return [title, left_out, `time_s,${quantity}`, ...kept.map((row) => row.join(',')), ''].join('\n');
}

/** Points of several histories as an object for JSON, with the number of dropped points. */
export function toJson(histories) {
  return {
    series: histories.map((history) => ({ ...history.series, dropped: history.dropped, points: [...history] })),
  };
}

function field(value) {
  if (value === undefined) return '';
  const text = String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const NUMBERS = ['time_s', 'value', 'forecast', 'lower', 'upper', 'raw'];
const COLUMNS = 'time_s,source,target,quantity,unit,value,error,forecast,lower,upper,method,raw,at_least'.split(',');
// Codes fit into a byte; a battery has fewer than a hundred methods.
const METHODS_MAX = 254;
// Kinds of values.
const EXACT = 0;
const BOUND = 1;
const UNLEARNT_BOUND = 2;
