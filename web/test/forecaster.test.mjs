// Compares the WebAssembly forecaster with the native one: every forecast, error and interval, to
// the bit.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { KINDS, loadForecaster } from '../src/measure/forecaster.js';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../..', import.meta.url));
// `cargo test` has built it; `BAROGRAPH` names another.
const barograph = process.env.BAROGRAPH ?? join(root, 'target/debug/barograph');
const traces = process.env.TRACES ?? join(root, '../shared/traces');
const battery = await loadForecaster(await readFile(join(root, 'crates/station/web/forecast.wasm')));

const native = existsSync(barograph);
if (!native) console.log(`SKIPPED: whether WebAssembly forecasts as native code does, because ${barograph} is absent`);
const open = existsSync(traces);
if (!open) console.log(`SKIPPED: the same on the open traces, because ${traces} is absent`);

describe('the forecaster', () => {
  test('has no forecast before the first value and no error before the second', () => {
    const one = battery();
    assert.equal(one.forecast(), null);
    assert.ok(one.update(5));
    const next = one.forecast();
    assert.deepEqual([next.count, next.median.value, next.median.mae, next.lower], [1, 5, null, null]);
    assert.equal(next.median.method, 'Last Value');
    const calibrated = battery();
    for (let i = 0; i < 10; i += 1) calibrated.update(i % 3);
    assert.equal(calibrated.forecast().lower, null, 'nine errors are too few for an interval');
    calibrated.update(2);
    assert.ok(calibrated.forecast().lower !== null && 0 < calibrated.forecast().median.weight);
    calibrated.free();
    assert.ok(!one.update(NaN) && !one.update(Infinity));
    assert.equal(one.forecast().count, 1, 'what cannot be learnt changes nothing');
    one.free();
    assert.ok(!one.update(1));
  });

  test('reuses the memory of freed batteries', () => {
    for (let i = 0; i < 5000; i += 1) battery().free();
  });

  const invented = 'equals the native forecaster on a synthetic series with outliers, level shifts and gaps';
  test(invented, { skip: !native }, async () => {
    const folder = await mkdtemp(join(tmpdir(), 'barograph-'));
    try {
      const file = join(folder, 'invented.csv');
      await writeFile(file, `time_s,value\n${inventedSeries(3000).map((value, i) => `${i + 40 * Math.floor(i / 50)},${value}`).join('\n')}\n`);
      for (const kind of KINDS) await assertEqual(file, kind);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  test('equals the native forecaster on every open trace', { skip: !native || !open, timeout: 300_000 }, async () => {
    const names = (await readdir(traces)).filter((name) => name.endsWith('.csv'));
    assert.ok(0 < names.length);
    for (const name of names) await assertEqual(join(traces, name), 'full');
  });
});

async function assertEqual(file, kind) {
  const preset = kind === 'full' ? [] : ['--preset', 'nws', '--select', kind === 'nws' ? 'two-level' : kind];
  const { stdout } = await run(barograph, ['forecast', file, '--steps', '--json', '--interval', '0.9', ...preset], {
    maxBuffer: 1 << 28,
  });
  const rows = stdout.trimEnd().split('\n').map((line) => JSON.parse(line));
  const samples = (await readFile(file, 'utf8')).trimEnd().split('\n').slice(1).map((line) => line.split(',').map(Number));
  const one = battery(kind);
  let compared = 0;
  for (const [index, [time, value]] of samples.entries()) {
    if (0 < index) {
      const { mean, median, lower, upper } = one.forecast(0.9, time);
      const row = rows[index - 1];
      // The command line prints 0 for an error without any scored forecast.
      const ours = [mean.value, mean.mse ?? 0, median.value, median.mae ?? 0, lower, upper];
      const theirs = [row.mse_forecast, row.mse_error, row.mae_forecast, row.mae_error, row.lower, row.upper];
      for (const [i, number] of ours.entries()) {
        if (!Object.is(number, theirs[i])) assert.fail(`${file}, ${kind}, value ${index}: ${ours} is not ${theirs}`);
      }
      assert.deepEqual([mean.method, median.method], [row.mse_method, row.mae_method]);
      compared += 1;
    }
    assert.ok(one.update(value, time));
  }
  assert.ok(compared === samples.length - 1 && 0 < compared && rows.length === compared);
  // All figures of a forecast that the page shows, after the last value: they are sums over every
  // step before.
  const last = await run(barograph, ['forecast', file, '--json', '--interval', '0.9', ...preset]);
  const { count, level, mean, median, lower, upper } = JSON.parse(last.stdout);
  assert.deepStrictEqual(one.forecast(0.9), { count, level, mean, median, lower, upper }, `${file}, ${kind}`);
  one.free();
}

/**
 * Heavy tails, level shifts, plateaus and outliers, from a linear congruential generator (Knuth's
 * MMIX).
 */
function inventedSeries(count) {
  let state = 1n;
  const chance = () => {
    state = (state * 6364136223846793005n + 1442695040888963407n) % 2n ** 64n;
    return Number(state >> 11n) / 2 ** 53;
  };
  let level = 10;
  return Array.from({ length: count }, (_, i) => {
    if (chance() < 0.01) level = 1 + 100 * chance();
    if (500 <= i && i < 600) return level;
    return chance() < 0.005 ? level * 1000 : level * (1 + 0.2 * chance() ** 4);
  });
}
