// The forecasters of crates/forecast, as WebAssembly (bindings/wasm): the only ones a page has.

/** Compiles the forecaster from a response or its bytes; gives a function that makes batteries. */
export async function loadForecaster(source) {
  const bytes = source instanceof Response ? await source.arrayBuffer() : source;
  const { instance } = await WebAssembly.instantiate(bytes);
  return (kind) => new Battery(instance.exports, kind);
}

/** The forecasters of one series; `kind` is `full`, the default, or `nws`, those that JavaNws had. */
export class Battery {
  #wasm;
  #number;

  constructor(wasm, kind = 'full') {
    this.#wasm = wasm;
    this.#number = wasm.battery_new(kind === 'nws' ? 1 : 0);
    if (this.#number === 0) throw new RangeError('there are too many batteries');
  }

  /** Scores what was issued on `value`, measured at `time` (s), and learns it; whether it could be learnt. */
  update(value, time = NaN) {
    return this.#wasm.battery_update(this.#number, value, time) === 1;
  }

  /**
   * The forecasts of the next value, or of one at `time` (s), in the shape that the API gives them: `{count, level, mean, median,
   * lower, upper}`; what is not known yet is `null`. `null` before the first value.
   */
  forecast(level = LEVEL, time = NaN) {
    if (this.#wasm.battery_forecast(this.#number, level, time) === 0) return null;
    // The memory may have grown and moved since the last time.
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

  /** Gives its memory back; it must not be used again. */
  free() {
    this.#wasm.battery_free(this.#number);
    this.#number = 0;
  }

  #method(which) {
    const { memory, method, method_length } = this.#wasm;
    return String.fromCharCode(...new Uint8Array(memory.buffer, method(which), method_length(which)));
  }
}

/** The level of the intervals that are shown: that of a station's page. */
export const LEVEL = 0.9;

// As bindings/wasm/src/lib.rs lays them out.
const NUMBERS = 15;
