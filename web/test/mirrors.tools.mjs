// What the tests of mirrors share.
import { readFile } from 'node:fs/promises';
import { loadForecaster } from '../src/weather/forecaster.js';

/** Numbers in [0, 1) from a seed, by a linear congruential generator (Knuth's MMIX). */
export function seeded(seed) {
  let state = BigInt(seed);
  return () => {
    state = (state * 6364136223846793005n + 1442695040888963407n) % 2n ** 64n;
    return Number(state >> 11n) / 2 ** 53;
  };
}

/** Makes batteries of the forecaster that pages have. */
export async function batteries() {
  return loadForecaster(await readFile(new URL('../../crates/station/web/forecast.wasm', import.meta.url)));
}
