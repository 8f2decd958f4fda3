// What one cycle measures of a station, in its order: the round trips, then the transfers and the round trips beside them.
import { ProbeError } from './failure.js';
import { goodput, typicalTime } from './reduce.js';

/**
 * Makes the experiments named in `experiments` once.
 *
 * `sessions` gives the sessions `small` and `bulk`; `forecastOf(quantity)` the forecast in use, or `null`;
 * `record(quantity, outcome, detail)` takes every value and failure, and throws when the cycle no longer
 * counts. Gives how many experiments gave values.
 */
export async function runCycle({ experiments, period_s, bytes, sessions, signal, forecastOf, record }) {
  const measured = new Set();
  const attempt = async (quantity, body) => {
    if (!experiments.includes(quantity)) return;
    const { outcome, detail } = await tried(body);
    record(quantity, outcome, detail);
    if (outcome.value !== undefined) measured.add(quantity);
  };
  await attempt('rtt', async () => {
    const small = await sessions.get('small', signal);
    return timed(await small.rtt(affordable(EXCHANGES, 3, period_s, forecastOf('rtt')), { signal }));
  });
  await attempt('rtt_nagle', async () => {
    const small = await sessions.get('small', signal);
    return timed(await small.rttNagle(affordable(NAGLE_EXCHANGES, 1, period_s, forecastOf('rtt_nagle')), { signal }));
  });
  const load = experiments.includes('rtt_loaded') ? new Load(sessions, signal) : null;
  for (const quantity of ['goodput', 'goodput_down']) {
    // A round trip that was not measured in this cycle may be that of another hour, or of another way.
    const rtt_forecast_s = measured.has('rtt') ? forecastOf('rtt') : null;
    await attempt(quantity, () => transfer(quantity, { bytes, sessions, signal, load, rtt_forecast_s }));
  }
  if (load !== null && load.has_result) await attempt('rtt_loaded', () => load.result());
  return measured.size;
}

async function transfer(quantity, { bytes, sessions, signal, load, rtt_forecast_s }) {
  const bulk = await sessions.get('bulk', signal);
  const beside = load?.start();
  let moved;
  try {
    const options = { signal, began: () => beside?.begin() };
    moved = await (quantity === 'goodput' ? bulk.goodput(bytes, options) : bulk.goodputDown(bytes, options));
  } finally {
    await beside?.end(moved);
  }
  const { raw, corrected } = goodput(bytes, moved.elapsed_s, rtt_forecast_s);
  const detail = { n: 1, raw, bytes, elapsed_s: moved.elapsed_s };
  if (rtt_forecast_s !== null) detail.rtt_forecast_s = rtt_forecast_s;
  if (moved.tcp !== null) detail.tcp = moved.tcp;
  return { value: corrected, detail };
}

/** The exchanges that began while a transfer was under way, of all transfers of a cycle. */
class Load {
  #samples = [];
  #error = null;

  constructor(sessions, signal) {
    this.sessions = sessions;
    this.signal = signal;
  }

  /** Whether there is something to tell: a transfer may be over before any exchange began. */
  get has_result() {
    return this.#error !== null || this.#samples.length !== 0;
  }

  async result() {
    if (this.#samples.length === 0) throw this.#error;
    const value = typicalTime(this.#samples);
    if (value === null) throw new ProbeError('local', "the exchanges took no time by this browser's clock");
    return { value, detail: { n: this.#samples.length } };
  }

  /** Exchanges from `begin()`, right before the transfer's first byte, to `end(moved)`. */
  start() {
    let begin;
    const begun = new Promise((resolve) => (begin = resolve));
    let is_over = false;
    const seen = [];
    const failed = this.#exchange(seen, begun, () => is_over).catch((error) => error);
    return {
      begin,
      end: async (moved) => {
        is_over = true;
        begin();
        const error = await failed;
        if (error !== undefined && !(error instanceof ProbeError)) throw error;
        // A transfer that failed was no load.
        if (moved === undefined) return;
        this.#error ??= error ?? null;
        this.#keep(seen, moved);
      },
    };
  }

  async #exchange(seen, begun, isOver) {
    const small = await this.sessions.get('small', this.signal);
    for (let batch = 0; batch < LOADED_BATCHES_MAX && (batch === 0 || !isOver()); batch += 1) {
      const when = batch === 0 ? begun : null;
      const { samples, began_s } = await small.rtt(LOADED_EXCHANGES, { signal: this.signal, timeout_ms: LOADED_MS_MAX, when });
      samples.forEach((sample, i) => seen.push({ sample, began_s: began_s[i] }));
    }
  }

  #keep(seen, { began_s, elapsed_s }) {
    for (const exchange of seen) {
      if (began_s <= exchange.began_s && exchange.began_s < began_s + elapsed_s) this.#samples.push(exchange.sample);
    }
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
  // What took less than a step of the clock is not known to have taken no time.
  return { value, detail: least === 0 ? { n } : { n, least } };
}

/** How many exchanges of about `each_s` fit into their share of a period: `most` at most, odd, `least` at least. */
export function affordable(most, least, period_s, each_s) {
  if (each_s === null || each_s <= 0) return most;
  const fitting = Math.floor((SHARE * period_s) / each_s);
  const n = Math.max(least, Math.min(most, fitting));
  return n % 2 === 0 ? n - 1 : n;
}

// As crates/probe/src/plan.rs: a median of eleven shrugs off five disturbed exchanges.
const EXCHANGES = 11;
// Each waits for a delayed acknowledgement, 40 ms and more.
const NAGLE_EXCHANGES = 3;
// The two kinds of round trips take half of a period at most, and leave the rest to the transfers.
const SHARE = 0.25;
// Small batches, so that few exchanges run on after the transfer has ended; together as many as three rtts.
const LOADED_EXCHANGES = 5;
const LOADED_BATCHES_MAX = 6;
// The first batch waits for the transfer's reply, 2 s at most, and any may stand in its queue.
const LOADED_MS_MAX = 20_000;
