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
 * The rate of `bytes` in `elapsed_s`, of which one round trip moved nothing (JavaNws §2.1.1), in bit/s:
 * `raw` over the whole time, `corrected` less the forecast round trip. A forecast that cannot have been part
 * of the time is left out. `null` when the clock saw no time pass.
 */
export function goodput(bytes, elapsed_s, rtt_forecast_s) {
  if (!(Number.isFinite(elapsed_s) && 0 < elapsed_s)) return null;
  const bits = bytes * 8;
  const usable = Number.isFinite(rtt_forecast_s) && 0 < rtt_forecast_s && rtt_forecast_s < elapsed_s;
  const raw = bits / elapsed_s;
  return { raw, corrected: usable ? bits / (elapsed_s - rtt_forecast_s) : raw };
}
