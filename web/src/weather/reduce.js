// From what was timed to what is reported: the rules of crates/probe/src/reduce.rs. Pure.

/** The median of `samples`, the mean of the two middle ones where their count is even; `null` without any. */
export function median(samples) {
  if (samples.length === 0) return null;
  const sorted = Float64Array.from(samples).sort();
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/**
 * One time for exchanges timed with a clock that may be coarse: their median; where that is 0, because most
 * began and ended within one step of the clock, their mean, for the steps seen of many are as long as they took.
 * `null` when the clock saw no time pass, or without any.
 */
export function typicalTime(samples) {
  const middle = median(samples);
  if (middle !== 0) return middle;
  const total = samples.reduce((sum, sample) => sum + sample, 0);
  return 0 < total ? total / samples.length : null;
}

/**
 * The rate of `bytes` in `elapsed_s`, in bit/s: `raw` over the whole time, `corrected` less the round trip that moved
 * no byte (JavaNws §2.1.1). `null` when the clock saw no time pass.
 *
 * `rtt` is `{forecast_s, least_s}`. The forecast is subtracted, but never more than `least_s`, the least round trip known
 * of this path, which a transfer cannot have avoided; and never more than half of the time, so that an error of `least_s`
 * stays small beside what is left. Without either of the two nothing is subtracted.
 */
export function goodput(bytes, elapsed_s, rtt = {}) {
  if (!(Number.isFinite(elapsed_s) && 0 < elapsed_s)) return null;
  const bits = bytes * 8;
  const idle_s = Math.min(positive(rtt.forecast_s), positive(rtt.least_s), elapsed_s / 2);
  return { raw: bits / elapsed_s, corrected: bits / (elapsed_s - idle_s) };
}

/** `value` where it is a positive number, else 0. */
function positive(value) {
  return Number.isFinite(value) && 0 < value ? value : 0;
}
