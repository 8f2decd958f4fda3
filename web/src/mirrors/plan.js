// Plan of a comparison: which mirror is probed next, and with how many bytes. Pure.
import { LONG_S } from '../measure/sizing.js';

/**
 * Schedules probes of several mirrors in rounds. In each round every mirror has one turn, in a new
 * random order, so that a change of the reader's own link affects all of them and none is always
 * first.
 *
 * Sizes grow until there is budget for just as many probes of one size as make a forecast; only
 * those count. The smaller ones end before TCP's slow start does (RFC 5681 §3.1), and would measure
 * it rather than the path.
 *
 * The plan does not stop early when one mirror seems ahead: checking after every round and stopping
 * at the first clear lead finds a lead by chance more often than its interval says.
 */
export class Plan {
  #budget_bytes;
  #random;
  #mirrors;

  /**
   * `mirrors` is their number, `budget_bytes` is for each (payload and request costs), `seed` is
   * for the order.
   */
  constructor({ mirrors, budget_bytes, seed }) {
    if (!(BUDGET_BYTES.least <= budget_bytes && budget_bytes <= BUDGET_BYTES.most)) {
      throw new RangeError('The budget of a mirror must be from 256 KiB to 256 MiB.');
    }
    this.#budget_bytes = budget_bytes;
    this.#random = randomFrom(seed);
    const top = topOf(budget_bytes);
    this.#mirrors = Array.from({ length: mirrors }, () => ({
      size_index: growsFrom(top),
      top,
      spent_bytes: 0,
      spent_s: 0,
      probes: 0,
      scored: 0,
      done: false,
    }));
  }

  /** Mirrors of the next round, in the order of their turns; empty when all are done. */
  round() {
    const order = [...this.#mirrors.keys()].filter((mirror) => 0 < this.bytes(mirror));
    // Fisher and Yates, as in Knuth (The Art of Computer Programming, vol. 2, §3.4.2, algorithm P).
    for (let last = order.length - 1; 0 < last; last -= 1) {
      const other = Math.floor(this.#random() * (last + 1));
      [order[last], order[other]] = [order[other], order[last]];
    }
    return order;
  }

  /** Payload of the mirror's next probe in bytes; 0 when its part is done. */
  bytes(mirror) {
    const { size_index, spent_bytes, spent_s, scored, done } = this.#mirrors[mirror];
    if (done || SCORED_MAX <= scored || (SCORED_MIN <= scored && SPENT_S_MAX < spent_s)) return 0;
    return SIZES_BYTES[size_index] + ASKING_BYTES <= this.#budget_bytes - spent_bytes ? SIZES_BYTES[size_index] : 0;
  }

  /** Most bytes that the mirror has cost so far. */
  spentBytes(mirror) {
    return this.#mirrors[mirror].spent_bytes;
  }

  /** Remaining budget of the mirror for the payload of one last probe. */
  leftBytes(mirror) {
    return Math.max(0, this.#budget_bytes - this.#mirrors[mirror].spent_bytes - ASKING_BYTES);
  }

  /**
   * Records a probe that moved `bytes` in `took_s`; returns whether its rate counts for the
   * forecast. A probe that was not `seen`, because the page was out of view, costs bytes and time,
   * and does not count.
   */
  record(mirror, bytes, took_s, seen = true) {
    const one = this.#mirrors[mirror];
    one.spent_bytes += bytes + ASKING_BYTES;
    one.spent_s += took_s;
    one.probes += 1;
    if (!seen) return false;
    if (one.size_index < one.top) {
      if (took_s < LONG_S) {
        one.size_index += 1;
        return false;
      }
      // It already outlasts many round trips: larger probes would only take the reader's time.
      one.top = one.size_index;
    }
    // The first probe of a connection includes its start.
    if (one.probes === 1) return false;
    one.scored += 1;
    return true;
  }

  /**
   * Records a probe that failed. The moved bytes are unknown, so it costs all that it might have
   * moved.
   */
  recordFailure(mirror, bytes) {
    this.#mirrors[mirror].spent_bytes += bytes + ASKING_BYTES;
  }

  /** Ends the mirror's part. */
  finish(mirror) {
    this.#mirrors[mirror].done = true;
  }

  /** Share of the work that is done, 0 to 1: by budget, number or time, whichever is ahead. */
  progress() {
    const shares = this.#mirrors.map((one, mirror) =>
      this.bytes(mirror) === 0
        ? 1
        : Math.max(one.spent_bytes / this.#budget_bytes, one.scored / SCORED_MAX, one.spent_s / SPENT_S_MAX),
    );
    return shares.length === 0 ? 1 : shares.reduce((sum, share) => sum + Math.min(1, share), 0) / shares.length;
  }
}

/** Bytes that one mirror may cost: fewer make no forecast, more are a download of their own. */
export const BUDGET_BYTES = { least: 2 ** 18, usual: 2 ** 23, most: 2 ** 28 };

/**
 * Cost of requesting a probe beside its payload: headers, replies and small exchanges, rounded up.
 */
export const ASKING_BYTES = 1024;

/** Most small exchanges before a probe: with their frames they stay below `ASKING_BYTES`. */
export const EXCHANGES = 4;

/** The largest size of which the budget allows enough probes. */
function topOf(budget_bytes) {
  let top = 0;
  for (let size_index = 1; size_index < SIZES_BYTES.length; size_index += 1) {
    let cost = (SCORED_MIN + 1) * (SIZES_BYTES[size_index] + ASKING_BYTES);
    for (let below = growsFrom(size_index); below < size_index; below += 1) cost += SIZES_BYTES[below] + ASKING_BYTES;
    if (cost <= budget_bytes) top = size_index;
  }
  return top;
}

/** Where sizes begin: at 64 KiB, unless the budget is too small for that. */
function growsFrom(top) {
  return Math.min(top, 1);
}

/**
 * Numbers in [0, 1) from a seed: mulberry32 (T. Ettinger, public domain), sufficient for an order
 * of turns.
 */
function randomFrom(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

// 32 KiB for the smallest budgets only; 64 KiB to 1 MiB, which take several round trips of slow
// start (from 14 600 bytes, RFC 6928) even on a free path; and for larger budgets up to the most
// that a station sends at once (docs/spec/echo.md §3).
const SIZES_BYTES = Array.from({ length: 10 }, (_, size_index) => 2 ** (15 + size_index));

// Fewer give no interval: a forecaster first scores ten forecasts
// (crates/forecast/src/interval.rs). Failed probes cost budget; less than half of these are enough
// to rank a mirror (compare.js).
const SCORED_MIN = 11;
// More hardly narrow a forecast, because probes are not independent of each other, and cost the
// reader time.
const SCORED_MAX = 24;
// So that 32 slow mirrors take minutes and not an hour.
const SPENT_S_MAX = 30;
