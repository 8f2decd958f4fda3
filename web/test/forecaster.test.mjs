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
import { isDeepStrictEqual, promisify } from 'node:util';
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

  test('has forecasts further ahead, each with errors and an interval of its own', () => {
    const one = battery('full', [{ seconds: 600 }, { steps: 20 }]);
    assert.equal(one.ahead({ steps: 20 }), null);
    for (const [i, value] of inventedSeries(1000).entries()) {
      one.update(value, 10 * i);
      assert.equal(one.ahead({ seconds: 600 }) === null, i < 5, 'the time between values is known after five');
    }
    const bases = [
      [{ seconds: 600 }, 'own', []],
      [{ seconds: 200 }, 'own', []],
      [{ steps: 40 }, 'between', [20, 60]],
      [{ seconds: 3600 }, 'beyond', [60]],
    ];
    for (const [horizon, basis, from_steps] of bases) {
      for (const of of ['mean', 'value']) {
        const ahead = one.ahead(horizon, of);
        assert.deepEqual([ahead.basis, ahead.from_steps, ahead.of], [basis, from_steps, of]);
        assert.ok(ahead.lower <= ahead.median.value && ahead.median.value <= ahead.upper && 50 < ahead.scored);
      }
    }
    const { mean, median, lower, upper } = one.forecast();
    assert.deepEqual(one.ahead({ steps: 1 }), { steps: 1, of: 'mean', scored: 999, mean, median, lower, upper, basis: 'own', from_steps: [] });
    one.free();
  });

  test('rejects horizons that are out of range', () => {
    const invalid = [{ seconds: 0 }, { seconds: -30 }, { steps: 0 }, { steps: -5 }, { steps: 1e7 }, { seconds: NaN }, {}];
    for (const horizon of invalid) assert.throws(() => battery('full', [horizon]), RangeError, JSON.stringify(horizon));
    assert.throws(() => battery('full', Array(20).fill({ steps: 2 })), RangeError);
    const one = battery();
    one.update(1);
    for (const horizon of invalid) assert.equal(one.ahead(horizon), null, JSON.stringify(horizon));
    one.free();
  });

  const invented = 'equals the native forecaster on a synthetic series with outliers, level shifts and gaps';
  test(invented, { skip: !native }, async () => {
    const folder = await mkdtemp(join(tmpdir(), 'barograph-'));
    try {
      const file = join(folder, 'invented.csv');
      await writeFile(file, `time_s,value\n${inventedSeries(3000).map((value, i) => `${i + 40 * Math.floor(i / 50)},${value}`).join('\n')}\n`);
      for (const kind of KINDS) await assertEqual(file, kind);
      for (const [horizon, of] of AHEAD) await assertAheadEqual(file, horizon, of);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  test('equals the native forecaster on every open trace', { skip: !native || !open, timeout: 300_000 }, async () => {
    const names = (await readdir(traces)).filter((name) => name.endsWith('.csv'));
    assert.ok(0 < names.length);
    for (const [i, name] of names.entries()) {
      await assertEqual(join(traces, name), 'full');
      await assertAheadEqual(join(traces, name), ...AHEAD[i % AHEAD.length]);
    }
  });
});

// Forecasts further ahead: a horizon as `--horizon` has it, and `--of`.
const AHEAD = [
  ['30', 'mean'],
  ['5', 'value'],
  ['300s', 'value'],
  ['60s', 'mean'],
];

async function assertAheadEqual(file, text, of) {
  const horizon = text.endsWith('s') ? { seconds: Number.parseFloat(text) } : { steps: Number(text) };
  const options = ['--interval', '0.9', '--horizon', text, '--of', of];
  const rows = new Map((await nativeSteps(file, options)).map((row) => [row.index, row]));
  const one = battery('full', [horizon], true);
  for (const [index, [time, value]] of (await samplesOf(file)).entries()) {
    const ahead = one.ahead(horizon, of);
    const row = rows.get(index);
    const ours = ahead && figuresOf(ahead);
    if (!isDeepStrictEqual(ours, row ? figuresOfRow(row) : null)) {
      assert.fail(`${file}, ${text}, ${of}, value ${index}: ${ours} is not ${row && figuresOfRow(row)}`);
    }
    assert.ok(one.update(value, time));
  }
  assert.ok(100 < rows.size, 'there are enough forecasts');
  const last = JSON.parse((await run(barograph, ['forecast', file, '--json', ...options])).stdout);
  const { from_steps, ...ahead } = one.ahead(horizon, of);
  assert.deepStrictEqual(ahead, last.horizon, `${file}, ${text}, ${of}`);
  one.free();
}

// The command line prints 0 for an error without any scored forecast.
function figuresOf({ mean, median, lower, upper }) {
  return [mean.value, mean.mse ?? 0, mean.method, median.value, median.mae ?? 0, median.method, lower, upper];
}

function figuresOfRow(row) {
  return [row.mse_forecast, row.mse_error, row.mse_method, row.mae_forecast, row.mae_error, row.mae_method, row.lower, row.upper];
}

/** The rows of `barograph forecast --steps`. */
async function nativeSteps(file, options) {
  const { stdout } = await run(barograph, ['forecast', file, '--steps', '--json', ...options], { maxBuffer: 1 << 28 });
  return stdout.trimEnd().split('\n').map((line) => JSON.parse(line));
}

/** The times and values of a file. */
async function samplesOf(file) {
  return (await readFile(file, 'utf8')).trimEnd().split('\n').slice(1).map((line) => line.split(',').map(Number));
}

async function assertEqual(file, kind) {
  const preset = kind === 'full' ? [] : ['--preset', 'nws', '--select', kind === 'nws' ? 'two-level' : kind];
  const rows = await nativeSteps(file, ['--interval', '0.9', ...preset]);
  const samples = await samplesOf(file);
  const one = battery(kind);
  let compared = 0;
  for (const [index, [time, value]] of samples.entries()) {
    if (0 < index) {
      const { mean, median, lower, upper } = one.forecast(0.9, time);
      const row = rows[index - 1];
      const [ours, theirs] = [figuresOf({ mean, median, lower, upper }), figuresOfRow(row)];
      if (!isDeepStrictEqual(ours, theirs)) assert.fail(`${file}, ${kind}, value ${index}: ${ours} is not ${theirs}`);
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
