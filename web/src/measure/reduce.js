// Reduces timed exchanges to reported values, by the rules of crates/probe/src/reduce.rs. Pure.

/**
 * Median of `samples`; the mean of the two middle ones if their number is even; `null` without
 * samples.
 */
export function median(samples) {
  if (samples.length === 0) return null;
  const sorted = Float64Array.from(samples).sort();
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/**
 * One time for exchanges, timed with a clock that may be coarse: their median. If most exchanges
 * began and ended within one step of the clock, the median is 0; then the mean, because the
 * observed steps of many exchanges are as long as they took. `null` if the clock saw no time pass,
 * or without samples.
 */
export function typicalTime(samples) {
  const middle = median(samples);
  if (middle !== 0) return middle;
  const total = samples.reduce((sum, sample) => sum + sample, 0);
  return 0 < total ? total / samples.length : null;
}

/**
 * Rate of `bytes` in `elapsed_s`, in bit/s: `raw` over the whole time, `corrected` without the
 * round trip that moved no byte (JavaNws §2.1.1). `null` if the clock saw no time pass.
 *
 * `rtt` is `{forecast_s, least_s}`. The forecast is subtracted, but never more than `least_s`, the
 * least known round trip of this path, which no transfer can avoid; and never more than half of the
 * time, so that an error of `least_s` stays small. If either is missing, nothing is subtracted.
 */
export function goodput(bytes, elapsed_s, rtt = {}) {
  if (!(Number.isFinite(elapsed_s) && 0 < elapsed_s)) return null;
  const bits = bytes * 8;
  const idle_s = Math.min(positive(rtt.forecast_s), positive(rtt.least_s), elapsed_s / 2);
  return { raw: bits / elapsed_s, corrected: bits / (elapsed_s - idle_s) };
}

/** `value` if it is a positive number, otherwise 0. */
function positive(value) {
  return Number.isFinite(value) && 0 < value ? value : 0;
}
