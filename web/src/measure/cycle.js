// One cycle of measurements of a station: round trips first, then transfers with round trips beside
// them.
import { ProbeError } from './failure.js';
import { goodput, typicalTime } from './reduce.js';

/**
 * Runs each of `experiments` once; returns how many gave values.
 *
 * - `sessions` has the sessions `small` and `bulk`.
 * - `forecastOf(quantity)` is the current forecast, or `null`.
 * - `bulkTest(quantity)` makes the `BulkTest` of a rate.
 * - `record(quantity, outcome, detail)` receives each value and failure, and throws if the cycle no
 *   longer counts.
 * - `pause(ms, over)` resolves after `ms`, or with `over`.
 */
export async function runCycle({ experiments, period_s, bulkTest, sessions, signal, forecastOf, record, pause }) {
  const measured = new Set();
  let least_s = null;
  const attempt = async (quantity, body) => {
    if (!experiments.includes(quantity)) return;
    const { outcome, detail } = await tried(body);
    record(quantity, outcome, detail);
    if (outcome.value !== undefined) measured.add(quantity);
  };
  await attempt('rtt', async () => {
    const small = await sessions.get('small', signal);
    const exchanges = await small.rtt(affordable(EXCHANGES, 3, period_s, forecastOf('rtt')), { signal });
    least_s = Math.min(...exchanges.samples);
    return timed(exchanges);
  });
  await attempt('rtt_nagle', async () => {
    const small = await sessions.get('small', signal);
    return timed(await small.rttNagle(affordable(NAGLE_EXCHANGES, 1, period_s, forecastOf('rtt_nagle')), { signal }));
  });
  const load = experiments.includes('rtt_loaded') ? new LoadedRoundTrips(sessions, signal, pause) : null;
  for (const quantity of ['goodput', 'goodput_down']) {
    // A round trip that was not measured in this cycle may be from another time or another path.
    const rtt_forecast_s = measured.has('rtt') ? forecastOf('rtt') : null;
    const rtt = { forecast_s: rtt_forecast_s, least_s };
    await attempt(quantity, () => rateOf(quantity, { test: bulkTest(quantity), sessions, signal, load, rtt }));
  }
  if (load !== null && load.has_result) await attempt('rtt_loaded', () => load.result());
  return measured.size;
}

/** Rate of the last transfer of `test`; a lower bound if the rate had not settled. */
async function rateOf(quantity, { test, sessions, signal, load, rtt }) {
  const bulk = await sessions.get('bulk', signal);
  const beside = load?.start();
  const transfers = [];
  let rate = null;
  try {
    while (test.next_bytes !== null) {
      const moved = await transfer(bulk, quantity, test.next_bytes, { signal, began: () => beside?.begin() }).catch((error) => {
        // A station that declines a larger transfer has still answered the smaller ones.
        if (rate === null || !error.is_open_after) throw error;
        return null;
      });
      if (moved === null) break;
      transfers.push(moved);
      const least_s = leastOf(rtt.least_s, moved.tcp?.min_rtt_s);
      rate = { ...goodput(moved.bytes, moved.elapsed_s, { ...rtt, least_s }), moved };
      test.take({ elapsed_s: moved.elapsed_s, rate: rate.corrected }, least_s);
    }
  } finally {
    await beside?.end(transfers);
  }
  const { raw, corrected, moved } = rate;
  const detail = { n: 1, raw, bytes: moved.bytes, elapsed_s: moved.elapsed_s };
  if (!test.settled) detail.at_least = true;
  if (rtt.forecast_s !== null) detail.rtt_forecast_s = rtt.forecast_s;
  if (moved.tcp !== null) detail.tcp = moved.tcp;
  return { value: corrected, detail };
}

function transfer(bulk, quantity, bytes, options) {
  return quantity === 'goodput' ? bulk.goodput(bytes, options) : bulk.goodputDown(bytes, options);
}

/** The lower of two round-trip times, each of which may be unknown; `null` if both are. */
function leastOf(a, b) {
  const known = [a, b].filter((rtt) => Number.isFinite(rtt));
  return known.length === 0 ? null : Math.min(...known);
}

/** Exchanges that began during a transfer, for all transfers of a cycle. */
class LoadedRoundTrips {
  #samples = [];
  #error = null;

  constructor(sessions, signal, pause) {
    this.sessions = sessions;
    this.signal = signal;
    this.pause = pause;
  }

  /** Whether there is a result: a transfer may end before any exchange began. */
  get has_result() {
    return this.#error !== null || this.#samples.length !== 0;
  }

  async result() {
    if (this.#samples.length === 0) throw this.#error;
    const value = typicalTime(this.#samples);
    if (value === null) throw new ProbeError('local', "this browser's clock is too coarse to time the exchanges");
    return { value, detail: { n: this.#samples.length } };
  }

  /**
   * Runs exchanges from `begin()`, called before the first byte of the first transfer, to
   * `end(transfers)`.
   */
  start() {
    let begin;
    const begun = new Promise((resolve) => (begin = resolve));
    const transfer = { begun, is_over: false };
    transfer.over = new Promise((resolve) => (transfer.end = resolve));
    const sampler = new EvenSampler(LOADED_BATCHES_MAX);
    const failed = this.#exchange(sampler, transfer).catch((error) => error);
    return {
      begin,
      end: async (transfers) => {
        transfer.is_over = true;
        transfer.end();
        begin();
        const error = await failed;
        if (error !== undefined && !(error instanceof ProbeError)) throw error;
        // A transfer that failed was no load.
        if (transfers.length === 0) return;
        this.#error ??= error ?? null;
        this.#keep(sampler.batches.flat(), transfers);
      },
    };
  }

  async #exchange(sampler, transfer) {
    const small = await this.sessions.get('small', this.signal);
    let when = transfer.begun;
    do {
      const { samples, began_s } = await small.rtt(LOADED_EXCHANGES, { signal: this.signal, timeout_ms: LOADED_MS_MAX, when });
      when = null;
      const wait_s = sampler.add(samples.map((sample, i) => ({ sample, began_s: began_s[i] })));
      if (0 < wait_s && !transfer.is_over) await this.pause(wait_s * 1000, transfer.over);
    } while (!transfer.is_over);
  }

  #keep(seen, transfers) {
    for (const exchange of seen) {
      const loaded = transfers.some(({ began_s, elapsed_s }) => began_s <= exchange.began_s && exchange.began_s < began_s + elapsed_s);
      if (loaded) this.#samples.push(exchange.sample);
    }
  }
}

/**
 * Batches of exchanges, spread evenly over a time of unknown length. When there are `batches_max`,
 * every other one is dropped, and the following ones are twice as far apart.
 */
export class EvenSampler {
  #batches_max;
  #step_s = 0;
  batches = [];

  constructor(batches_max) {
    this.#batches_max = batches_max;
  }

  /**
   * Adds the batch that has just ended, `[{sample, began_s}]`; returns the wait until the next one
   * (s).
   */
  add(batch) {
    this.batches.push(batch);
    const [first, last] = [this.batches[0][0], batch.at(-1)];
    const ended_s = last.began_s + last.sample;
    if (this.batches.length === this.#batches_max) {
      this.batches = this.batches.filter((_, i) => i % 2 === 0);
      this.#step_s = (ended_s - first.began_s) / this.batches.length;
    }
    return Math.max(0, batch[0].began_s + this.#step_s - ended_s);
  }
}

async function tried(body) {
  try {
    const { value, detail } = await body();
    return { outcome: { value }, detail };
  } catch (error) {
    if (!(error instanceof ProbeError)) throw error;
    return { outcome: { error: error.failure }, detail: { n: 0, message: error.message } };
  }
}

function timed({ value, n, samples }) {
  const least = Math.min(...samples);
  // An exchange shorter than a step of the clock still took some time.
  return { value, detail: least === 0 ? { n } : { n, least } };
}

/**
 * How many exchanges of about `each_s` fit into their share of a period: an odd number from `least`
 * to `most`.
 */
export function affordable(most, least, period_s, each_s) {
  if (each_s === null || each_s <= 0) return most;
  const fitting = Math.floor((SHARE * period_s) / each_s);
  const n = Math.max(least, Math.min(most, fitting));
  return n % 2 === 0 ? n - 1 : n;
}

// As in crates/probe/src/plan.rs: a median of eleven tolerates five disturbed exchanges.
const EXCHANGES = 11;
// Each waits for a delayed acknowledgement, 40 ms and more.
const NAGLE_EXCHANGES = 3;
// The two kinds of round trips take at most half of a period, and leave the rest to the transfers.
const SHARE = 0.25;
// Small batches, so that few exchanges continue after the transfer. At most this many are kept of a
// transfer; half of them are replaced with each doubling of its length.
const LOADED_EXCHANGES = 5;
const LOADED_BATCHES_MAX = 12;
// The first batch waits for the transfer's reply, 2 s at most, and each may wait in its queue.
const LOADED_MS_MAX = 20_000;
