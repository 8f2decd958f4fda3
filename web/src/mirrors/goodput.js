// Forecast of one mirror's goodput.

/**
 * Goodput of one mirror as two series.
 *
 * A long download takes the sum of many probes' times, slow ones included, so its rate is forecast
 * as a mean of times, not of rates. If one probe of five has a fifth of the rate, the mean time is
 * 1.8 times that of the others; a geometric mean of rates would give 1.4. Logarithms give the
 * interval: rates vary by factors, so the interval is as wide up as down, and never reaches a rate
 * of 0, for which there is no time to download.
 *
 * While probes vary independently, the interval of one more probe stands for that of the download
 * (rank.js). If the rate wanders, the download sees rates that no probe saw: then the interval is
 * that of the mean over as many probes as the download is long. A dozen probes calibrate no such
 * interval, so the forecaster extrapolates it: as after a random walk, up to a limit. The ratio of
 * the mean square of steps to the variance decides (von Neumann 1941): it is about 2 for
 * independent values.
 */
export class Goodput {
  #times;
  #logs;
  #count = 0;
  #mean = 0;
  #squares = 0;
  #last = 0;
  #steps = 0;

  /** `battery()` makes the forecaster of a series. */
  constructor(battery) {
    this.#times = battery();
    this.#logs = battery();
  }

  /** Learns a rate in bit/s; returns whether it was learned. */
  update(rate) {
    const log = Math.log(rate);
    if (!this.#logs.update(log)) return false;
    if (this.#count !== 0) this.#steps += (log - this.#last) ** 2;
    this.#last = log;
    this.#count += 1;
    const off = log - this.#mean;
    this.#mean += off / this.#count;
    this.#squares += off * (log - this.#mean);
    return this.#times.update(UNIT_BITS / rate);
  }

  /**
   * `{count, level, value, lower, upper, error, method}`: rates in bit/s. `value` is the rate of a
   * long download, and `lower` and `upper` are its interval, for a download as long as so many
   * `probes`. `error` is the mean absolute error of the forecasts so far, as a share of the forecast
   * time. Unknown parts are `null`; all of it is `null` before a value.
   */
  forecast(probes = 1) {
    const time = this.#times.forecast()?.mean;
    const log = this.#logs.forecast();
    if (!time || log === null) return null;
    const wanders = this.#steps < WANDERING * this.#squares;
    const steps = Math.min(Math.max(1, Math.ceil(probes)), STEPS_MAX);
    const { lower, upper } = wanders ? this.#logs.ahead({ steps }) : log;
    const { count, level } = log;
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

// Below it, rates wander. Of 15 independent values one in sixty is below, of 24 one in 250.
const WANDERING = 1;
// The longest horizon of a forecaster (crates/forecast).
const STEPS_MAX = 1e6;
