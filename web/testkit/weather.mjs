// Invented weather and a plain forecaster, for a station and a communicator that are not real.
// Runs in Node and in browsers.

/** One invented series: weather, a history, and a plain forecaster that is honest about its errors. */
export class FakeSeries {
  constructor({ source = 'aneroid', target, quantity, unit, period_s, weather }, random) {
    Object.assign(this, { source, target, quantity, unit, period_s, random });
    this.weather = weather(random);
    this.points = [];
    this.values = [];
    this.errors = [];
    this.error_sum = 0;
    this.count = 0;
    this.failures = 0;
  }

  identity() {
    const { source, target, quantity, unit } = this;
    return { source, target, quantity, unit };
  }

  warmUp(now_s, count = 400) {
    for (let i = count; 0 < i; i -= 1) this.measure(now_s - this.period_s * (i + 0.2 * this.random()));
  }

  measure(time_s) {
    return this.put(time_s, this.weather());
  }

  put(time_s, outcome) {
    const forecast = this.#forecast();
    const point = { time_s, ...outcome, ...forecast };
    if (outcome.error === undefined) {
      this.count += 1;
      if (forecast.forecast !== undefined) {
        const error = Math.abs(outcome.value - forecast.forecast);
        this.error_sum += error;
        this.errors = [...this.errors.slice(-99), error];
      }
      this.values = [...this.values.slice(-20), outcome.value];
    } else {
      this.failures += 1;
    }
    this.points = [...this.points.slice(-511), point];
    return point;
  }

  next() {
    const forecast = this.#forecast();
    if (forecast.forecast === undefined) return null;
    const mae = this.error_sum / Math.max(1, this.count - 1);
    const of = (value, method) => ({ value, mse: mae * mae * 1.6, mae, recent_mse: mae * mae, recent_mae: mae, method });
    const { lower, upper } = forecast;
    return {
      ...this.identity(),
      time_s: this.points.at(-1).time_s,
      count: this.count,
      level: 0.9,
      mean: of(mean(this.values), 'sliding_mean_21'),
      median: of(forecast.forecast, forecast.method),
      ...(lower === undefined ? {} : { lower, upper }),
    };
  }

  /** Forecasts further ahead, whose errors grow as those of a random walk do; in the shape of `/v1/forecast`. */
  ahead(seconds) {
    const next = this.next();
    if (next === null) return null;
    const horizons = seconds.map((seconds) => {
      const { median, lower, upper } = next;
      const horizon = { seconds, of: 'value', scored: this.count, mean: next.mean, median, basis: 'own' };
      if (lower === undefined || this.count * this.period_s < 2 * seconds) return horizon;
      const wider = 1 + 0.25 * Math.log(1 + seconds / this.period_s);
      const half = wider * (upper - median.value);
      const most = this.unit === 'ratio' ? 1 : Infinity;
      return { ...horizon, lower: Math.max(0, median.value - half), upper: Math.min(most, median.value + half) };
    });
    return { ...next, horizons };
  }

  summary() {
    const point = this.points.at(-1);
    const last = point ? { ...this.identity(), time_s: point.time_s, value: point.value, error: point.error } : null;
    return { ...this.identity(), count: this.count, failures: this.failures, last, next: this.next() };
  }

  recent() {
    return { ...this.identity(), level: 0.9, points: this.points, next: this.next() };
  }

  #forecast() {
    if (this.values.length === 0) return {};
    const few = this.values.slice(-7);
    const forecast = 0.6 * median(few) + 0.4 * this.values.at(-1);
    const method = this.values.length < 7 ? 'last_value' : 'median_w7+exp_g40';
    if (this.errors.length < 10) return { forecast, method };
    const half = [...this.errors].sort((a, b) => a - b)[Math.floor(0.9 * this.errors.length)];
    const floor = this.values.every((value) => 0 <= value) ? 0 : -Infinity;
    return { forecast, method, lower: Math.max(floor, forecast - half), upper: forecast + half };
  }
}

// Heavy-tailed times, shares that wander, rates that shift level: what the real ones look like.

export function delay(base, spread, spikes, failing) {
  return (random) => () => {
    if (random() < failing) return { error: random() < 0.7 ? 'timed_out' : 'refused' };
    const tail = random() < spikes ? 1 + 6 * random() : 1;
    return { value: base * tail * Math.exp(spread * Math.abs(normal(random))) };
  };
}

export function wanderer(start, step, low, high) {
  return (random) => {
    let level = start;
    return () => {
      level += 0.08 * (start - level) + step * normal(random);
      if (random() < 0.01) level -= 8 * step;
      level = Math.min(high, Math.max(low, level));
      return { value: level };
    };
  };
}

export function shifter(high, low) {
  return (random) => {
    let level = high;
    return () => {
      if (random() < 0.025) level = level === high ? low : high;
      return { value: level * (1 - 0.04 * Math.abs(normal(random))) };
    };
  };
}

export function losses() {
  return (random) => () => ({ value: random() < 0.85 ? 0 : Math.ceil(2 * random()) / 10 });
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function median(values) {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
}

// Box and Muller (1958).
function normal(random) {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}

// A seeded linear congruential generator (Knuth's MMIX constants, TAOCP 2 §3.3.4): the same weather in every run.
export function seeded(seed) {
  let state = BigInt(seed);
  return () => {
    state = BigInt.asUintN(64, state * 6364136223846793005n + 1442695040888963407n);
    return Number(state >> 11n) / 2 ** 53;
  };
}
