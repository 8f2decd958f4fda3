// The comparison: opens the mirrors, probes them in the plan's order, forecasts, ranks. Clocks,
// sockets and forecasters are passed in.
import { goodput } from '../measure/reduce.js';
import { Goodput } from './goodput.js';
import { TimedOut, within } from './limit.js';
import { Plan } from './plan.js';
import { rank } from './rank.js';

/**
 * Measures `mirrors` (from `parseMirrors`), each within `budget_bytes`, and ranks them for a file
 * of `size_bytes`. Returns the result of `rank`, with `{kind, bytes, probes, failures}` of each
 * mirror. Rejects only if `signal` aborts, with its reason.
 *
 * - `battery()` makes the forecaster of a series.
 * - `open(mirror, signal)` opens a source.
 * - `explain(mirror, error, signal)` puts a failure into words.
 * - `onProgress({share, mirrors: [{url, state, probes}]})` is called after every step.
 * - `visibility` (from `watchVisibility`) reports when the page is in view: otherwise nothing is
 *   probed, and a running probe is no value.
 *
 * One probe runs at a time: two would share the reader's own link and measure each other.
 */
export async function compare({ mirrors, size_bytes, budget_bytes, seed, signal, onProgress = () => {}, battery, open, explain, visibility }) {
  const plan = new Plan({ mirrors: mirrors.length, budget_bytes, seed });
  const states = mirrors.map((mirror) => new State(mirror, battery));
  const tell = (turn = null) => {
    const shown = states.map((state, index) => ({ url: state.mirror.url, state: state.word(index === turn), probes: state.probes }));
    onProgress({ share: plan.progress(), mirrors: shown });
  };
  const giveUp = async (index, error) => {
    const state = states[index];
    state.stop();
    plan.finish(index);
    state.failure = await explained(explain, state.mirror, error, signal);
  };

  try {
    tell();
    // Servers that send the whole file have already begun: they are probed as soon as they are
    // open, in turn.
    let wholes = Promise.resolve();
    // Opening costs almost nothing, so all mirrors open at once, and one that hangs delays no
    // other.
    await Promise.all(
      states.map(async (state, index) => {
        try {
          if (state.mirror.refusal) throw new Error(state.mirror.refusal);
          await state.open(open, signal);
          if (state.source.ignores_range) wholes = wholes.then(() => probed(index));
        } catch (error) {
          signal?.throwIfAborted();
          await giveUp(index, error);
        }
        tell();
      }),
    // After a cancellation it is not awaited.
    ).finally(() => wholes.catch(() => {}));
    await wholes;
    for (let order = plan.round(); order.length !== 0; order = plan.round()) {
      for (const index of order) await probed(index);
    }
    return rank(states.map((state, index) => state.result(plan.spentBytes(index), size_bytes)), size_bytes);
  } finally {
    for (const state of states) state.free();
  }

  /** Probes one mirror while the page is in view, and reports progress. */
  async function probed(index) {
    await visibility.ready(signal);
    signal?.throwIfAborted();
    tell(index);
    await turn(states[index], index);
    tell();
  }

  /** Probes one mirror, and handles success and failure. */
  async function turn(state, index) {
    const whole = state.source?.ignores_range;
    const bytes = whole ? plan.leftBytes(index) : plan.bytes(index);
    const { hidden_count } = visibility;
    try {
      if (state.source === null) await state.open(open, signal);
      const { parts, rtts_s, least_rtt_s, came_bytes = parts[0].bytes } = await within(PROBE_MS_MAX, signal, (inner) => state.source.probe(bytes, inner));
      // Parts of one stream come after its growth, so all of them count.
      const seen = visibility.hidden_count === hidden_count;
      const counts = plan.record(index, came_bytes, parts.reduce((sum, part) => sum + part.took_s, 0), seen) || (whole && seen);
      state.learn(parts, rtts_s, least_rtt_s, counts);
      if (whole) plan.finish(index);
    } catch (error) {
      signal?.throwIfAborted();
      plan.recordFailure(index, bytes);
      if (state.fail() || whole) await giveUp(index, error);
    }
  }
}

/** State of one mirror during the comparison. */
class State {
  source = null;
  probes = 0;
  failures = 0;
  failure = null;
  #failures_in_a_row = 0;
  #probe_bytes = 0;
  #rtt;
  #goodput;

  constructor(mirror, battery) {
    this.mirror = mirror;
    this.#rtt = battery();
    this.#goodput = new Goodput(battery);
  }

  async open(open, signal) {
    this.source = await within(OPEN_MS_MAX, signal, async (inner) => {
      const source = await open(this.mirror, inner);
      // It came too late: the caller has given up.
      if (inner.aborted) source.close();
      return source;
    });
  }

  learn(parts, rtts_s, least_rtt_s, counts) {
    this.#failures_in_a_row = 0;
    this.probes += parts.length;
    // The forecast round trip from before this probe (docs/spec/probe.md §2.3).
    const forecast_s = this.#rtt.forecast()?.median.value ?? rtts_s[0];
    if (!counts) return;
    for (const value of rtts_s) this.#rtt.update(value);
    for (const { bytes, took_s, streamed } of parts) {
      const rate = goodput(bytes, took_s, streamed ? {} : { forecast_s, least_s: least_rtt_s });
      // If the clock saw no time pass, there is no value, rather than an infinite one.
      if (rate !== null && this.#goodput.update(rate.corrected)) this.#probe_bytes = bytes;
    }
  }

  /**
   * Counts a failed probe; returns whether it was one too many. The next attempt uses a new
   * connection.
   */
  fail() {
    this.failures += 1;
    this.#failures_in_a_row += 1;
    this.stop();
    return FAILURES_MAX <= this.#failures_in_a_row;
  }

  stop() {
    this.source?.close();
    this.source = null;
  }

  word(has_turn) {
    if (this.failure !== null) return 'failed';
    return has_turn ? 'probing' : this.source === null && this.probes === 0 ? 'opening' : 'waiting';
  }

  result(bytes, size_bytes) {
    const { url, kind } = this.mirror;
    // Before a value, there is no forecast either.
    const goodput = this.#goodput.forecast(size_bytes / Math.max(1, this.#probe_bytes));
    const enough = VALUES_MIN <= (goodput?.count ?? 0);
    return {
      url,
      kind,
      rtt: enough ? rttOf(this.#rtt.forecast()) : null,
      goodput: enough ? goodput : null,
      bytes,
      probes: this.probes,
      failures: this.failures,
      failure: this.failure,
    };
  }

  free() {
    this.stop();
    this.#rtt.free();
    this.#goodput.free();
  }
}

/**
 * Forecast of a round-trip time (s), in the shape of `Goodput.forecast`, but with the error in s.
 */
function rttOf({ count, level, lower, upper, median: { value, mae, method } }) {
  return { count, level, value, lower, upper, error: mae, method };
}

async function explained(explain, mirror, error, signal) {
  if (mirror.refusal || error instanceof TimedOut) return mirror.refusal ?? error.message;
  try {
    return await within(OPEN_MS_MAX, signal, (inner) => explain(mirror, error, inner));
  } catch {
    return error.message;
  }
}

// A name lookup, a connection, TLS and a first response, with two lost packets (RFC 6298 §2: 1 s,
// then 2 s).
const OPEN_MS_MAX = 6000;
// Each probe but the smallest follows one of half its size that took less than half a second.
const PROBE_MS_MAX = 10_000;
// One failure may be an accident.
const FAILURES_MAX = 2;
// With fewer values, such as half of a plan if the rest failed, the spread is unknown.
const VALUES_MIN = 4;
