// One series as a page keeps it: its forecasters, its points, and the forecasts issued for them. Pure.
import { History } from './history.js';

/** The source of what a page measures. */
export const CLIENT = 'this browser';

/** Units by quantity: what a page measures of a station. */
export const UNITS = Object.freeze({
  rtt: 's',
  rtt_nagle: 's',
  rtt_loaded: 's',
  goodput: 'bit/s',
  goodput_down: 'bit/s',
});

/** The quantities, in the order in which they are shown. */
export const QUANTITIES = Object.freeze(Object.keys(UNITS));

/** The points of one series with the forecast issued for each, as crates/station/src/forecast/bank.rs makes them. */
export class Ledger {
  #battery;
  #value_time_s = null;
  /** Whether the newest value that was learnt is a lower bound. */
  #is_bound = false;
  #next = null;

  /** `series` is `{source, target, quantity}`; `makeBattery` gives a battery of the forecaster in use. */
  constructor(series, makeBattery) {
    this.series = { ...series, unit: UNITS[series.quantity] };
    this.history = new History(this.series);
    this.#battery = makeBattery();
  }

  /** The forecasts of the next value, in the shape of the API; `null` before the first value. */
  get next() {
    return this.#next;
  }

  /**
   * Takes `{value}` or `{error}` at `time_s`; gives the point with the forecast that had been issued for it.
   * `null` when no battery takes the value: what cannot be forecast from is not shown either. A value that is only a lower
   * bound (`detail.at_least`) is learnt where `learns_bounds`; then the forecast is one, too.
   */
  take(outcome, time_s, detail, learns_bounds = true) {
    // After a gap what was issued is another forecast than the one for a value in time.
    const issued = this.#forecasts(time_s);
    const is_learnt = outcome.value !== undefined && (learns_bounds || detail?.at_least !== true);
    if (is_learnt) {
      if (!this.#battery.update(outcome.value, time_s)) return null;
      this.#value_time_s = time_s;
      this.#is_bound = detail?.at_least === true;
      this.#next = this.#forecasts();
    }
    const point = { ...this.series, time_s, ...outcome, ...issuedFor(issued), next: this.#next, detail };
    this.history.add(point, is_learnt);
    return point;
  }

  /** Another forecaster: it learns the newest values at once, and the points keep what was issued for them. */
  replaceBattery(makeBattery) {
    this.#battery.free();
    this.#battery = makeBattery();
    const { history } = this;
    for (let i = Math.max(0, history.length - RELEARNT_MAX); i < history.length; i += 1) {
      if (!history.isLearnt(i)) continue;
      const { value, time_s, at_least = false } = history.point(i);
      this.#battery.update(value, time_s);
      this.#is_bound = at_least;
    }
    this.#next = this.#forecasts();
  }

  /** Gives the series another target: what was measured and learnt is of the same station. */
  rename(target) {
    this.series = { ...this.series, target };
    this.history.series = { ...this.history.series, target };
    if (this.#next !== null) this.#next = { ...this.#next, target };
  }

  /** Gives the forecasters' memory back. */
  free() {
    this.#battery.free();
  }

  #forecasts(time_s) {
    const forecasts = this.#battery.forecast(undefined, time_s);
    if (forecasts === null) return null;
    const { lower, upper, ...rest } = forecasts;
    // No time and no rate is negative: as bounds() of bank.rs.
    const ends = lower === null || upper === null ? {} : { lower: Math.max(0, lower), upper: Math.max(0, upper) };
    return { ...this.series, time_s: this.#value_time_s, ...rest, ...ends, ...(this.#is_bound ? { at_least: true } : {}) };
  }
}

function issuedFor(next) {
  if (next === null) return {};
  const ends = next.lower === undefined ? {} : { lower: next.lower, upper: next.upper };
  return { forecast: next.median.value, ...ends, method: next.median.method };
}

// What a page shows of a series; learning them takes some hundredths of a second.
const RELEARNT_MAX = 512;
