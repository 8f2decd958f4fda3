// The forecast of one mirror's goodput.

/**
 * The goodput of one mirror as a series. Its battery learns logarithms: rates scatter by factors – one stalled probe
 * has a fraction of the rate – so an interval of factors is as wide up as down, and never reaches a rate of 0,
 * of which no time to download can be told.
 */
export class Goodput {
  #battery;

  constructor(battery) {
    this.#battery = battery;
  }

  /** Learns a rate in bit/s; whether it could be learnt. */
  update(rate) {
    return this.#battery.update(Math.log(rate));
  }

  /**
   * `{count, level, value, lower, upper, error, method}`: rates in bit/s, and the mean absolute error of the forecasts
   * so far as a share (0.1: wrong by a factor of 1.1). What is not known yet is `null`; all of it before a value.
   */
  forecast() {
    const next = this.#battery.forecast();
    if (next === null) return null;
    const { count, level, lower, upper } = next;
    // The mean, for a long download is the sum of many probes' times; the median would leave out the slow ones.
    const { value, mae, method } = next.mean;
    const rate = (log) => (log === null ? null : Math.exp(log));
    return { count, level, value: rate(value), lower: rate(lower), upper: rate(upper), error: mae === null ? null : Math.expm1(mae), method };
  }

  /** Gives its memory back. */
  free() {
    this.#battery.free();
  }
}
