// The forecast of one mirror's goodput.

/**
 * The goodput of one mirror as two series. A long download takes the sum of many probes' times, slow ones included, so
 * its rate is forecast as a mean of times, not of rates: with one probe of five at a fifth of the rate, the mean
 * time is 1.8 times that of the others, and a geometric mean of rates says 1.4. Logarithms give the interval: rates scatter
 * by factors, so one of factors is as wide up as down, and never reaches a rate of 0, of which no time to
 * download can be told.
 */
export class Goodput {
  #times;
  #logs;

  /** `battery()` makes the forecaster of a series. */
  constructor(battery) {
    this.#times = battery();
    this.#logs = battery();
  }

  /** Learns a rate in bit/s; whether it could be learnt. */
  update(rate) {
    return this.#logs.update(Math.log(rate)) && this.#times.update(UNIT_BITS / rate);
  }

  /**
   * `{count, level, value, lower, upper, error, method}`: rates in bit/s, `value` that of a long download, the interval
   * that of one more probe; and the mean absolute error of the forecasts so far as a share of the time that is
   * forecast. What is not known yet is `null`; all of it before a value.
   */
  forecast() {
    const time = this.#times.forecast()?.mean;
    const log = this.#logs.forecast();
    if (!time || log === null) return null;
    const { count, level, lower, upper } = log;
    const rate = (log) => (log === null ? null : Math.exp(log));
    // A method that carries a trend on may end below zero, where no time is: then the rate is that of the logarithms.
    const value = 0 < time.value ? UNIT_BITS / time.value : rate(log.mean.value);
    const error = time.mae === null ? null : (time.mae * value) / UNIT_BITS;
    return { count, level, value, lower: rate(lower), upper: rate(upper), error, method: time.method };
  }

  /** Gives its memory back. */
  free() {
    this.#times.free();
    this.#logs.free();
  }
}

// Times are those of 1 MiB: of the size of the numbers that forecasters were made for, on any link.
const UNIT_BITS = 8 * 2 ** 20;
