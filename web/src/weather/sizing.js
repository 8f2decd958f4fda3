// How large the transfers of a bulk test are, when its rate has settled, and what tests may cost an hour. Pure.

/** The size that stands for "found by itself". */
export const AUTO = 'auto';

/** First and greatest automatic transfer, in bytes; each size is twice the one before. */
const BYTES_MIN = 2 ** 16;
export const BYTES_MAX = 2 ** 24;

/**
 * Whether the last of `transfers`, `{elapsed_s, rate}` each, has the rate of the path and not that of TCP's start-up (RFC 5681
 * §3.1) or of an accident: it agrees with the two right before it, each of half the bytes of the next, or it outlasted
 * start-up: half a second and many round trips. `least_rtt_s` is `null` where none is known.
 */
export function hasSettled(transfers, least_rtt_s) {
  const rates = transfers.slice(-AGREEING).map(({ rate }) => rate);
  if (rates.length === AGREEING && Math.max(...rates) <= SPREAD_MAX * Math.min(...rates)) return true;
  const { elapsed_s } = transfers.at(-1);
  return LONG_S <= elapsed_s && least_rtt_s !== null && ROUND_TRIPS_MIN * least_rtt_s <= elapsed_s;
}

/** One bulk test: the transfers that it makes one right after the other. Its rate is that of the last. */
export class BulkTest {
  #bytes_max;
  #pay;
  #transfers = [];
  /** Bytes of the next transfer; `null` when the test is over. */
  next_bytes;
  settled = false;

  /** Begins with `bytes`, doubles up to `bytes_max`; `pay(bytes)` says whether a further transfer may be paid. */
  constructor(bytes, bytes_max = bytes, pay = () => true) {
    this.next_bytes = bytes;
    this.#bytes_max = bytes_max;
    this.#pay = pay;
  }

  /** Takes the transfer of `next_bytes`, `{elapsed_s, rate}`, and decides whether another follows. */
  take(transfer, least_rtt_s) {
    this.#transfers.push(transfer);
    this.settled = hasSettled(this.#transfers, least_rtt_s);
    const bytes = 2 * this.next_bytes;
    const goes_on = !this.settled && transfer.elapsed_s < TOO_LONG_S && bytes <= this.#bytes_max && this.#pay(bytes);
    this.next_bytes = goes_on ? bytes : null;
  }

  /** Ends the test with what it has. */
  stop() {
    this.next_bytes = null;
  }
}

/** The sizes of automatic tests of one station, and the account of bytes that pays for them. */
export class AutoSize {
  #bytes_max = BYTES_MAX;
  #bytes_min = BYTES_MIN;
  #hour_bytes = HOUR_BYTES;
  #held_bytes = HOUR_BYTES / HELD_SHARE;
  #now_s;
  /** By quantity: the size of the last transfer of its last test. */
  #reached = new Map();

  constructor(now_s) {
    this.#now_s = now_s;
  }

  /** What tests may cost an hour, in bytes. */
  get bytes_per_hour() {
    return this.#hour_bytes;
  }

  /** Takes what the station allows in one transfer (`null` = unknown): a station with a small account gives the page less an hour. */
  allow(transfer_bytes_max) {
    this.#bytes_max = Math.max(1, Math.min(BYTES_MAX, transfer_bytes_max ?? BYTES_MAX));
    // Below the greatest transfer, what is allowed is an eighth of an hour's account (docs/spec/echo.md §3): half of that hour.
    this.#hour_bytes = this.#bytes_max < BYTES_MAX ? 4 * this.#bytes_max : HOUR_BYTES;
    this.#held_bytes = Math.min(this.#held_bytes, this.#hour_bytes / HELD_SHARE);
    // Then the account, which holds `bytes_max`, pays a test of three sizes both ways.
    this.#bytes_min = Math.max(1, Math.min(BYTES_MIN, Math.floor(this.#bytes_max / (2 * SETTLING))));
  }

  /** Whether tests of all `quantities` can be paid at `now_s`. */
  isDue(quantities, now_s) {
    this.#fill(now_s);
    const cost = quantities.reduce((sum, quantity) => sum + this.#cost(quantity), 0);
    return cost <= this.#held_bytes;
  }

  /**
   * Begins a test of `quantity` three steps below the last size of the test before: the smaller transfers open TCP's window
   * again, and each rate is compared with new ones. A test may end at a smaller size than the one before. What tests of
   * `others` cost is left to them; a test that the reader asked for (`wanted`) is paid also by what comes later.
   */
  begin(quantity, others, now_s, wanted) {
    this.#fill(now_s);
    const reserved = others.reduce((sum, other) => sum + this.#cost(other), 0);
    const begun = Math.floor((this.#reached.get(quantity) ?? 0) / 8);
    const first = Math.min(this.#bytes_max, Math.max(this.#bytes_min, begun));
    const pay = (bytes) => {
      if (!wanted && this.#held_bytes - reserved < bytes) return false;
      this.#spend(quantity, bytes);
      return true;
    };
    this.#spend(quantity, first);
    return new BulkTest(first, this.#bytes_max, pay);
  }

  // Enough for a test that settles where three rates agree at the first three sizes, and for one that ends at the size of the
  // test before, begun three steps below it. Before the first test it is the climb from the first size to the greatest.
  #cost(quantity) {
    const reached = this.#reached.get(quantity);
    const most = this.#hour_bytes / HELD_SHARE / 2;
    return reached === undefined ? most : Math.min(most, Math.max(SETTLING * this.#bytes_min, 2 * reached));
  }

  #spend(quantity, bytes) {
    this.#reached.set(quantity, bytes);
    this.#held_bytes = Math.max(-this.#hour_bytes / HELD_SHARE, this.#held_bytes - bytes);
  }

  #fill(now_s) {
    const filled = this.#held_bytes + (this.#hour_bytes * Math.max(0, now_s - this.#now_s)) / 3600;
    this.#held_bytes = Math.min(this.#hour_bytes / HELD_SHARE, filled);
    this.#now_s = now_s;
  }
}

// A quarter of what a station gives one address an hour (docs/spec/echo.md §3): four readers behind one address.
const HOUR_BYTES = 2 ** 28;
// The account holds a quarter of an hour's bytes, 64 MiB: both ways once from the least size to the greatest.
const HELD_SHARE = 4;
/** A transfer of half a second holds several round trips anywhere on Earth. */
export const LONG_S = 0.5;
// Start-up takes six to eight round trips to 100 Mbit/s over 20 ms, and fills a part of each.
const ROUND_TRIPS_MIN = 20;
// In start-up twice the bytes come at half as much again or more, so that no three rates are within a quarter of each other.
// Two of which the second is hardly above the first are often an accident: where one transfer in three meets a stall of 20 ms,
// 118 of 400 such rates were a fifth or more below the 100 Mbit/s of the link; of three within a quarter under 3 % are (sizing.test.mjs).
const AGREEING = 3;
const SPREAD_MAX = 1.25;
// What the first `AGREEING` transfers cost together, in bytes of the first.
const SETTLING = 2 ** AGREEING - 1;
// The next would take twice as long.
const TOO_LONG_S = 2;
