// The comparison itself: opens the mirrors, probes them in the plan's order, forecasts, ranks.
// The world – clocks, sockets, forecasters – is handed in.
import { goodput } from '../weather/reduce.js';
import { Goodput } from './goodput.js';
import { TimedOut, within } from './limit.js';
import { Plan } from './plan.js';
import { rank } from './rank.js';

/**
 * Measures `mirrors` (of `parseMirrors`), each within `budget_bytes`, and ranks them for a file of `size_bytes`:
 * what `rank` gives, with `{kind, bytes, probes, failures}` of each mirror besides. `battery()` makes the
 * forecaster of a series; `open(mirror, signal)` a source; `explain(mirror, error, signal)` puts a failure in words.
 * `onProgress({share, mirrors: [{url, state, probes}]})` is called after every step. `attention` (of `watchAttention`)
 * says when the page is in view: nothing is probed else, and what was under way then is no value. Rejects only when `signal`
 * aborts, with its reason.
 *
 * One probe at a time: two would share the reader's own link and measure each other.
 */
export async function compare({ mirrors, size_bytes, budget_bytes, seed, signal, onProgress = () => {}, battery, open, explain, attention }) {
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
    state.failure = await inWords(explain, state.mirror, error, signal);
  };

  try {
    tell();
    // Those that send all of the file whatever is asked have begun to: they are probed as soon as they are open, in turn.
    let wholes = Promise.resolve();
    // Opening costs next to nothing, so all wait at once: those that hang hold up nobody.
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
    ).finally(() => wholes.catch(() => {})); // Cancelled, it is not awaited.
    await wholes;
    for (let order = plan.round(); order.length !== 0; order = plan.round()) {
      for (const index of order) await probed(index);
    }
    return rank(states.map((state, index) => state.result(plan.spentBytes(index))), size_bytes);
  } finally {
    for (const state of states) state.free();
  }

  /** One probe of one mirror while somebody looks, and what is told of it. */
  async function probed(index) {
    await attention.ready(signal);
    signal?.throwIfAborted();
    tell(index);
    await turn(states[index], index);
    tell();
  }

  /** One probe of one mirror, whatever comes of it. */
  async function turn(state, index) {
    const whole = state.source?.ignores_range;
    const bytes = whole ? plan.leftBytes(index) : plan.bytes(index);
    const { lapses } = attention;
    try {
      if (state.source === null) await state.open(open, signal);
      const { parts, rtts_s, least_rtt_s, came_bytes = parts[0].bytes } = await within(PROBE_MS_MAX, signal, (inner) => state.source.probe(bytes, inner));
      // Parts of one stream are cut past its growth: all of them count.
      const seen = attention.lapses === lapses;
      const counts = plan.book(index, came_bytes, parts.reduce((sum, part) => sum + part.took_s, 0), seen) || (whole && seen);
      state.learn(parts, rtts_s, least_rtt_s, counts);
      if (whole) plan.finish(index);
    } catch (error) {
      signal?.throwIfAborted();
      plan.bookFailure(index, bytes);
      if (state.fail() || whole) await giveUp(index, error);
    }
  }
}

/** One mirror while it is compared. */
class State {
  source = null;
  probes = 0;
  failures = 0;
  failure = null;
  #failures_in_a_row = 0;
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
      // It came too late: nobody waits for it.
      if (inner.aborted) source.close();
      return source;
    });
  }

  learn(parts, rtts_s, least_rtt_s, counts) {
    this.#failures_in_a_row = 0;
    this.probes += parts.length;
    // The round trip as it had been forecast before this probe (docs/spec/probe.md §2.3).
    const forecast_s = this.#rtt.forecast()?.median.value ?? rtts_s[0];
    if (!counts) return;
    for (const value of rtts_s) this.#rtt.update(value);
    for (const { bytes, took_s, streamed } of parts) {
      const rate = goodput(bytes, took_s, streamed ? {} : { forecast_s, least_s: least_rtt_s });
      // No time that the clock could see: no value, rather than an infinite one.
      if (rate !== null) this.#goodput.update(rate.corrected);
    }
  }

  /** Counts a failed probe; whether it was one too many. A new try begins with a new connection. */
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

  result(bytes) {
    const { url, kind } = this.mirror;
    const goodput = this.#goodput.forecast();
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

/** The forecast of a round trip in s, in the shape of `Goodput.forecast`, but with the error in s. */
function rttOf({ count, level, lower, upper, median: { value, mae, method } }) {
  return { count, level, value, lower, upper, error: mae, method };
}

async function inWords(explain, mirror, error, signal) {
  if (mirror.refusal || error instanceof TimedOut) return mirror.refusal ?? error.message;
  try {
    return await within(OPEN_MS_MAX, signal, (inner) => explain(mirror, error, inner));
  } catch {
    return error.message;
  }
}

// A name, a connection, TLS and a first answer, with two lost packets among them (RFC 6298 §2: 1 s, then 2 s).
const OPEN_MS_MAX = 6000;
// A probe that is larger than the smallest was preceded by one of half its size that took less than half a second.
const PROBE_MS_MAX = 10_000;
// One may be an accident.
const FAILURES_MAX = 2;
// With fewer values, such as half of what a plan gives and the rest failed, there is no spread to speak of.
const VALUES_MIN = 4;
