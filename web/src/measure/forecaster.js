// The forecasters of crates/forecast as WebAssembly (bindings/wasm). The page has no others.

/**
 * Compiles the forecaster from a response or its bytes; returns a function that makes batteries:
 * `(kind, horizons, exact)`, as for `Battery`.
 */
export async function loadForecaster(source) {
  const bytes = source instanceof Response ? await source.arrayBuffer() : source;
  const { instance } = await WebAssembly.instantiate(bytes);
  return (kind, horizons, exact) => new Battery(instance.exports, kind, horizons, exact);
}

/**
 * The forecasters of one series. `kind` is `full`, the default, or one of the kinds with the methods
 * of the Network Weather Service: `nws` with its two levels of selection, `mse` with the method of
 * the least squared error so far, as in the JavaNws paper, or `mae` with that of the least absolute
 * error.
 *
 * `horizons` are kept, each with forecasts, errors and intervals of its own: `{seconds}` or
 * `{steps}`, a number of values; at most 19. Other horizons are interpolated. With `exact`, the
 * forecast after each value is scored, in up to 1.7 MB a horizon; else eight in a horizon, as at a
 * station.
 */
export class Battery {
  #wasm;
  #number;

  constructor(wasm, kind = 'full', horizons = [], exact = false) {
    this.#wasm = wasm;
    if (NUMBERS < horizons.length) throw new RangeError('there are too many horizons');
    this.#numbers().set(horizons.map(lengthOf));
    this.#number = wasm.battery_new(KINDS.indexOf(kind), horizons.length, Number(exact));
    if (this.#number === 0) throw new RangeError('there are too many batteries, or a horizon is out of range');
  }

  /**
   * Scores the issued forecast with `value`, measured at `time` (s), and learns it. Returns whether
   * it was learned.
   */
  update(value, time = NaN) {
    return this.#wasm.battery_update(this.#number, value, time) === 1;
  }

  /**
   * Forecasts of the next value, or of one at `time` (s), in the shape of the API: `{count, level,
   * mean, median, lower, upper}`. Unknown parts are `null`; all of it is `null` before the first
   * value.
   */
  forecast(level = LEVEL, time = NaN) {
    if (this.#wasm.battery_forecast(this.#number, level, time) === 0) return null;
    const numbers = this.#numbers();
    return { count: numbers[0], level, ...this.#forecasts(numbers) };
  }

  /**
   * Forecasts for a horizon, `{seconds}` or `{steps}`, in the shape of the API's `Horizon`: of the
   * `mean` of the values up to the horizon, or of the `value` at the horizon. Unknown parts are
   * `null`; all of it is `null` before the first value, for seconds before five times between
   * values are known, and for a horizon that is out of range.
   */
  ahead(horizon, of = 'mean', level = LEVEL) {
    const wasm = this.#wasm;
    if (wasm.battery_ahead(this.#number, level, lengthOf(horizon), Number(of !== 'mean')) === 0) return null;
    const numbers = this.#numbers();
    const [scored, basis, ...from_steps] = numbers.slice(15);
    return {
      ...horizon,
      of,
      scored,
      ...this.#forecasts(numbers),
      basis: ['own', 'between', 'beyond'][basis],
      from_steps: from_steps.filter(Number.isFinite),
    };
  }

  /** Frees the memory; the battery must not be used again. */
  free() {
    this.#wasm.battery_free(this.#number);
    this.#number = 0;
  }

  /** The block of numbers. The memory may have grown and moved since the last call. */
  #numbers() {
    // The first call of `numbers` allocates the block.
    const address = this.#wasm.numbers();
    return new Float64Array(this.#wasm.memory.buffer, address, NUMBERS);
  }

  #forecasts(numbers) {
    const number = (index) => (Number.isNaN(numbers[index]) ? null : numbers[index]);
    const forecast = (from, which, weight) => ({
      value: number(from),
      mse: number(from + 1),
      mae: number(from + 2),
      recent_mse: number(from + 3),
      recent_mae: number(from + 4),
      method: this.#method(which),
      weight: number(weight),
    });
    return { mean: forecast(1, 0, 13), median: forecast(6, 1, 14), lower: number(11), upper: number(12) };
  }

  #method(which) {
    const { memory, method, method_length } = this.#wasm;
    return String.fromCharCode(...new Uint8Array(memory.buffer, method(which), method_length(which)));
  }
}

/** Kinds of forecasters, in the order of their numbers in bindings/wasm/src/lib.rs. */
export const KINDS = Object.freeze(['full', 'nws', 'mse', 'mae']);

/** Level of the displayed intervals, as on a station's page. */
export const LEVEL = 0.9;

/** The length of a horizon in seconds, or with a negative sign in values; 0 or NaN is invalid. */
function lengthOf({ seconds, steps }) {
  return seconds === undefined ? -Math.max(0, steps) : Math.max(0, seconds);
}

// The layout is in bindings/wasm/src/lib.rs.
const NUMBERS = 19;
