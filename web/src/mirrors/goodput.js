// Forecast of one mirror's goodput.

/**
 * Goodput of one mirror as two series.
 *
 * A long download takes the sum of many probes' times, slow ones included, so its rate is forecast
 * as a mean of times, not of rates. If one probe of five has a fifth of the rate, the mean time is
 * 1.8 times that of the others; a geometric mean of rates would give 1.4. Logarithms give the
 * interval: rates vary by factors, so the interval is as wide up as down, and never reaches a rate
 * of 0, for which there is no time to download.
 */
export class Goodput {
  #times;
  #logs;

  /** `battery()` makes the forecaster of a series. */
  constructor(battery) {
    this.#times = battery();
    this.#logs = battery();
  }

  /** Learns a rate in bit/s; returns whether it was learned. */
  update(rate) {
    return this.#logs.update(Math.log(rate)) && this.#times.update(UNIT_BITS / rate);
  }

  /**
   * `{count, level, value, lower, upper, error, method}`: rates in bit/s. `value` is the rate of a
   * long download, the interval that of one more probe. `error` is the mean absolute error of the
   * forecasts so far, as a share of the forecast time. Unknown parts are `null`; all of it is
   * `null` before a value.
   */
  forecast() {
    const time = this.#times.forecast()?.mean;
    const log = this.#logs.forecast();
    if (!time || log === null) return null;
    const { count, level, lower, upper } = log;
    const rate = (log) => (log === null ? null : Math.exp(log));
    // A method that extrapolates a trend may end below zero, which is no time: then the logarithms
    // give the rate.
    const value = 0 < time.value ? UNIT_BITS / time.value : rate(log.mean.value);
    const error = time.mae === null ? null : (time.mae * value) / UNIT_BITS;
    return { count, level, value, lower: rate(lower), upper: rate(upper), error, method: time.method };
  }

  /** Frees the memory of both series. */
  free() {
    this.#times.free();
    this.#logs.free();
  }
}

// Times are those of 1 MiB: on any link, numbers of the size that the forecasters were made for.
const UNIT_BITS = 8 * 2 ** 20;
