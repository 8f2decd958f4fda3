// Forecasts further ahead than the next value: which of them a graph shows, and their text. Pure.
import { formatBound, formatInterval, formatLevel, formatPeriod } from './format.js';
import { hasFailed, standingForecast } from './store.js';
import { typicalStep } from './trace.js';

/**
 * Forecasts of a series further ahead than the next value, the nearest first, in the unit of the
 * API: `{seconds, time_s, value, lower, upper, level, at_least}`.
 *
 * Empty if the series has no forecast of the next value. Leaves out what is no forecast of its own:
 * a horizon shorter than the usual step (it is the next value), one that is past, and one without
 * an interval from errors at such a horizon. A horizon is past if a value came after it, or if the
 * station said that the newest value is older.
 */
export function fanOf(series) {
  const next = standingForecast(series);
  if (next === null) return [];
  const { time_s, level, at_least, horizons = [], now } = series.ahead ?? next;
  const period_s = typicalStep(series.points.filter((point) => !hasFailed(point)).slice(-PERIOD_VALUES));
  const past_s = Math.max(next.time_s - time_s, now?.age_s ?? 0);
  return horizons
    .map(({ seconds, basis, median, lower, upper }) => ({
      seconds,
      time_s: time_s + seconds,
      value: basis === 'beyond' ? undefined : median?.value,
      lower,
      upper,
      level,
      at_least,
    }))
    .filter(
      ({ seconds, value, lower, upper }) =>
        STEPS_MIN * period_s <= seconds && past_s < seconds && [value, lower, upper].every(Number.isFinite),
    );
}

/** One forecast of a fan: `in 15 min: 31.7 ms (90 %: 31.0 – 32.4 ms)`. */
export function formatAhead({ seconds, value, lower, upper, level, at_least }, unit, between) {
  return `in ${formatPeriod(seconds)}: ${formatBound(value, unit, at_least)} (${formatLevel(level)}: ${formatInterval(lower, upper, unit, between)})`;
}

// A horizon of fewer steps is the next value (docs/spec/ahead.md, Other horizons).
const STEPS_MIN = 1.5;
// Values whose distances make the period (docs/spec/ahead.md, Windows).
const PERIOD_VALUES = 32;
