// The forecasters of crates/forecast as WebAssembly (bindings/wasm). The page has no others.

/**
 * Compiles the forecaster from a response or its bytes; returns a function that makes batteries.
 */
export async function loadForecaster(source) {
  const bytes = source instanceof Response ? await source.arrayBuffer() : source;
  const { instance } = await WebAssembly.instantiate(bytes);
  return (kind) => new Battery(instance.exports, kind);
}

/**
 * The forecasters of one series. `kind` is `full`, the default, or one of the kinds with the methods
 * of the Network Weather Service: `nws` with its two levels of selection, `mse` with the method of
 * the least squared error so far, as in the JavaNws paper, or `mae` with that of the least absolute
 * error.
 */
export class Battery {
  #wasm;
  #number;

  constructor(wasm, kind = 'full') {
    this.#wasm = wasm;
    this.#number = wasm.battery_new(KINDS.indexOf(kind));
    if (this.#number === 0) throw new RangeError('there are too many batteries');
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
    // The memory may have grown and moved since the last call.
    const numbers = new Float64Array(this.#wasm.memory.buffer, this.#wasm.numbers(), NUMBERS);
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
    return {
      count: numbers[0],
      level,
      mean: forecast(1, 0, 13),
      median: forecast(6, 1, 14),
      lower: number(11),
      upper: number(12),
    };
  }

  /** Frees the memory; the battery must not be used again. */
  free() {
    this.#wasm.battery_free(this.#number);
    this.#number = 0;
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

// The layout is in bindings/wasm/src/lib.rs.
const NUMBERS = 15;
