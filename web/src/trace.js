// Converts a series' points to what a graph draws: columns, gaps and the range of its axis. Pure.
import { scaleFor } from './format.js';
import { hasFailed } from './store.js';

/**
 * Columns of a graph, in a scale that suits them.
 *
 * `columns` are `[time_s, upper, lower, forecast, measured]`. `null` stands for a failure, a
 * missing forecast or a gap in time; the graph leaves it empty. `failures` are the times of
 * failures. A point with `gap` comes after a pause that was not a failure. With `gaps` = 'told'
 * there are no other gaps, because a changed period makes no gap and decimated points are not
 * evenly spaced.
 *
 * Times ascend, as the graph needs them. If a clock was set back, points with later labels are
 * removed, and a gap marks the position. `has_values` says whether the axis range comes from
 * values; without values the axis has no labels. `has_ahead` says whether the margin is for the
 * next forecast. `fan` are the forecasts further ahead (see `fanOf`), in the same scale.
 */
export function traceOf(points, next, unit, points_shown, gaps = 'guessed', further = []) {
  const shown = points.slice(-points_shown);
  const scale = scaleFor(unit, typical(shown, next));
  const hole_s = gaps === 'told' ? Infinity : HOLE_STEPS * typicalStep(shown);
  const columns = [[], [], [], [], []];
  const failures = [];
  const scaled = (value) => (Number.isFinite(value) ? value * scale.factor : null);

  let before_s = null;
  for (const point of shown) {
    const set_back = before_s !== null && point.time_s < before_s;
    if (set_back) {
      while (point.time_s <= columns[0].at(-1)) columns.forEach((column) => column.pop());
      while (point.time_s <= failures.at(-1)) failures.pop();
      before_s = columns[0].at(-1) ?? null;
    }
    if (before_s !== null && (set_back || point.gap || hole_s < point.time_s - before_s)) {
      pushRow(columns, (before_s + point.time_s) / 2, null, null, null, null);
    }
    const failed = hasFailed(point);
    if (failed) failures.push(point.time_s);
    pushRow(
      columns,
      point.time_s,
      scaled(point.upper),
      scaled(point.lower),
      scaled(point.forecast),
      failed ? null : scaled(point.value),
    );
    before_s = point.time_s;
  }

  const ahead = next?.median
    ? { value: scaled(next.median.value), lower: scaled(next.lower), upper: scaled(next.upper) }
    : null;
  const fan = further.map(({ seconds, value, lower, upper }) => ({ seconds, value: scaled(value), lower: scaled(lower), upper: scaled(upper) }));
  const has_values = [...columns[3], ...columns[4], ahead?.value].some(Number.isFinite);
  const range = rangeOf(columns, [ahead, ...fan], unit, scale);
  return { columns, failures, ahead, fan, has_ahead: true, scale, has_values, range };
}

/**
 * One part of a trace, `measured` or `forecast`, with the same range: for two graphs instead of
 * one.
 */
export function partOf(trace, part) {
  const [times, upper, lower, forecast, measured] = trace.columns;
  const none = times.map(() => null);
  return part === 'measured'
    ? { ...trace, columns: [times, none, none, none, measured], ahead: null, has_ahead: false }
    : { ...trace, columns: [times, upper, lower, forecast, none], failures: [] };
}

/**
 * Range of the value axis, `[low, high]` in the trace's scale.
 *
 * It contains the measured values and the forecasts `ahead`. Rare outliers beyond `OUTLIER_SPREADS`
 * times the spread of the rest are left out (the graph marks them at its edge), so that one stalled
 * exchange does not flatten the hour around it.
 */
export function rangeOf(columns, ahead, unit, scale) {
  const values = [...columns[3], ...columns[4], ...ahead.flatMap((one) => [one?.value, one?.lower, one?.upper])]
    .filter(Number.isFinite)
    .sort((a, b) => a - b);
  if (values.length === 0) return [0, 1];

  const low_usual = quantile(values, 0.03);
  const high_usual = quantile(values, 0.97);
  const reach = OUTLIER_SPREADS * (between(low_usual, high_usual) || Math.abs(high_usual) * 0.02);
  let low = values.find((value) => low_usual - reach <= value);
  let high = values.findLast((value) => value <= high_usual + reach);

  const spread = between(low, high) || Math.abs(high) * 0.1 || 1;
  const floor = 0 <= values[0] ? 0 : -Infinity;
  const ceiling = unit === 'ratio' ? scale.factor : Infinity;
  // If the lowest value is near zero, the axis begins at zero, so that heights can be compared.
  low = floor === 0 && low < 0.4 * high ? 0 : Math.max(floor, low - PADDING * spread);
  high = Math.min(Math.max(ceiling, values.at(-1)), high + PADDING * spread);
  return [low, low < high ? high : low + 1];
}

/** Usual time between two points, in seconds; infinite if there are fewer than two points. */
export function typicalStep(points) {
  const steps = [];
  for (let i = 1; i < points.length; i += 1) {
    const step = points[i].time_s - points[i - 1].time_s;
    // A negative step is a clock that was set back.
    if (0 <= step) steps.push(step);
  }
  steps.sort((a, b) => a - b);
  return steps.length === 0 ? Infinity : quantile(steps, 0.5) || Infinity;
}

function typical(points, next) {
  const sizes = points
    .map((point) => (hasFailed(point) ? NaN : Math.abs(point.value)))
    .concat(next?.median ? Math.abs(next.median.value) : NaN)
    .filter(Number.isFinite)
    .sort((a, b) => a - b);
  return sizes.length === 0 ? 0 : quantile(sizes, 0.5);
}

function pushRow(columns, ...row) {
  row.forEach((value, i) => columns[i].push(value));
}

/** Distance of two values; 0 if only rounding differs. */
function between(low, high) {
  return high - low <= ROUNDING * Math.abs(high) ? 0 : high - low;
}

function quantile(sorted, share) {
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}

// A blend of equal forecasts differs from them in the last digits.
const ROUNDING = 1e-9;
// Probes run with jitter, and failures take until their deadline; four usual steps without a record
// are a gap.
const HOLE_STEPS = 4;
// Wide enough that level shifts and bursts stay on the axis; only single spikes leave it.
const OUTLIER_SPREADS = 4;
// Space above and below the trace, as a share of its spread.
const PADDING = 0.1;
