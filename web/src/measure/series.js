// One series of a page: its forecasters, its points, and the forecasts issued for them. Pure.
import { History } from './history.js';

/** Source of the measurements of a page. */
export const CLIENT = 'this browser';

/** Units of the quantities that a page measures. */
export const UNITS = Object.freeze({
  rtt: 's',
  rtt_nagle: 's',
  rtt_loaded: 's',
  goodput: 'bit/s',
  goodput_down: 'bit/s',
});

/** The quantities, in the order in which they are shown. */
export const QUANTITIES = Object.freeze(Object.keys(UNITS));

/** Horizons whose forecasts are in `next`, as a station keeps them. */
export const HORIZONS = Object.freeze([60, 300, 900, 3600].map((seconds) => ({ seconds })));

/**
 * Points of one series with the forecast issued for each, as in
 * crates/station/src/forecast/series.rs.
 */
export class SeriesState {
  #battery;
  #value_time_s = null;
  /** Whether the newest learned value is a lower bound. */
  #is_bound = false;
  #next = null;

  /**
   * `series` is `{source, target, quantity}`; `makeBattery` makes a battery of the selected
   * forecaster with `HORIZONS`.
   */
  constructor(series, makeBattery) {
    this.series = { ...series, unit: UNITS[series.quantity] };
    this.history = new History(this.series);
    this.#battery = makeBattery();
  }

  /** Forecasts of the next value, in the shape of the API; `null` before the first value. */
  get next() {
    return this.#next;
  }

  /**
   * Adds `{value}` or `{error}` at `time_s`; returns the point with the forecast issued for it.
   * Returns `null`, and adds nothing, if the battery does not accept the value. A lower bound
   * (`detail.at_least`) is learned if `learns_bounds`; then the forecast is a bound, too.
   */
  take(outcome, time_s, detail, learns_bounds = true) {
    // After a gap, the forecast for this time differs from the one for a value without a gap.
    const issued = this.#forecasts(time_s);
    const is_learnt = outcome.value !== undefined && (learns_bounds || detail?.at_least !== true);
    if (is_learnt) {
      if (!this.#battery.update(outcome.value, time_s)) return null;
      this.#value_time_s = time_s;
      this.#is_bound = detail?.at_least === true;
      this.#next = this.#ahead();
    }
    const point = { ...this.series, time_s, ...outcome, ...issuedFor(issued), next: this.#next, detail };
    this.history.add(point, is_learnt);
    return point;
  }

  /**
   * Replaces the forecaster. The new one learns the newest values at once; points keep the
   * forecasts issued for them.
   */
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
    this.#next = this.#ahead();
  }

  /** Renames the target; it is the same station, so measurements and forecasts stay. */
  rename(target) {
    this.series = { ...this.series, target };
    this.history.series = { ...this.history.series, target };
    if (this.#next !== null) this.#next = { ...this.#next, target };
  }

  /** Frees the memory of the forecasters. */
  free() {
    this.#battery.free();
  }

  #forecasts(time_s) {
    const forecasts = this.#battery.forecast(undefined, time_s);
    if (forecasts === null) return null;
    return { ...this.series, time_s: this.#value_time_s, ...clamped(forecasts), ...(this.#is_bound ? { at_least: true } : {}) };
  }

  // The forecasts of the next value, and of the values further ahead.
  #ahead() {
    const next = this.#forecasts();
    const horizons = HORIZONS.map((horizon) => this.#battery.ahead(horizon, 'value')).filter((one) => one !== null);
    return next && { ...next, horizons: horizons.map(clamped) };
  }
}

// No time and no rate is negative, as in bounds() of forecast/series/state.rs.
function clamped({ lower, upper, ...rest }) {
  return lower === null || upper === null ? rest : { ...rest, lower: Math.max(0, lower), upper: Math.max(0, upper) };
}

function issuedFor(next) {
  if (next === null) return {};
  const ends = next.lower === undefined ? {} : { lower: next.lower, upper: next.upper };
  return { forecast: next.median.value, ...ends, method: next.median.method };
}

// As many as a page shows of a series; learning them takes some hundredths of a second.
const RELEARNT_MAX = 512;
