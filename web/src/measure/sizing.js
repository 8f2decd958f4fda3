// Sizes of the transfers of a bulk test, detection of a settled rate, and the hourly cost of tests.
// Pure.

/** The setting for automatic sizes. */
export const AUTO = 'auto';

/** First and greatest automatic transfer, in bytes; each size is twice the one before. */
const BYTES_MIN = 2 ** 16;
export const BYTES_MAX = 2 ** 24;

/**
 * Whether the last of `transfers`, `{elapsed_s, rate}` each, has the rate of the path. It does not
 * during TCP's start-up (RFC 5681 §3.1), or by accident. It has if it agrees with the two before
 * it, each of half the bytes of the next; or if it outlasted start-up: half a second and many round
 * trips. `least_rtt_s` is `null` if unknown.
 */
export function hasSettled(transfers, least_rtt_s) {
  const rates = transfers.slice(-AGREEING).map(({ rate }) => rate);
  if (rates.length === AGREEING && Math.max(...rates) <= SPREAD_MAX * Math.min(...rates)) return true;
  const { elapsed_s } = transfers.at(-1);
  return LONG_S <= elapsed_s && least_rtt_s !== null && ROUND_TRIPS_MIN * least_rtt_s <= elapsed_s;
}

/** One bulk test: transfers in a row. Its rate is that of the last one. */
export class BulkTest {
  #bytes_max;
  #pay;
  #transfers = [];
  /** Bytes of the next transfer; `null` when the test is over. */
  next_bytes;
  settled = false;

  /**
   * Begins with `bytes`, and doubles up to `bytes_max`. `pay(bytes)` says whether the account pays
   * a further transfer.
   */
  constructor(bytes, bytes_max = bytes, pay = () => true) {
    this.next_bytes = bytes;
    this.#bytes_max = bytes_max;
    this.#pay = pay;
  }

  /**
   * Adds the transfer of `next_bytes`, `{elapsed_s, rate}`, and decides whether another follows.
   */
  take(transfer, least_rtt_s) {
    this.#transfers.push(transfer);
    this.settled = hasSettled(this.#transfers, least_rtt_s);
    const bytes = 2 * this.next_bytes;
    const goes_on = !this.settled && transfer.elapsed_s < TOO_LONG_S && bytes <= this.#bytes_max && this.#pay(bytes);
    this.next_bytes = goes_on ? bytes : null;
  }

  /** Ends the test with its results so far. */
  stop() {
    this.next_bytes = null;
  }
}

/** Sizes of automatic tests of one station, and the account of bytes that pays for them. */
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

  /** Most bytes that tests may cost in an hour. */
  get bytes_per_hour() {
    return this.#hour_bytes;
  }

  /**
   * Applies the largest transfer that the station allows (`null` = unknown). A station with a small
   * account gives the page fewer bytes an hour.
   */
  allow(transfer_bytes_max) {
    this.#bytes_max = Math.max(1, Math.min(BYTES_MAX, transfer_bytes_max ?? BYTES_MAX));
    // Below the greatest transfer, the station allows an eighth of an hour's account
    // (docs/spec/echo.md §3). The page uses half of that hour.
    this.#hour_bytes = this.#bytes_max < BYTES_MAX ? 4 * this.#bytes_max : HOUR_BYTES;
    this.#held_bytes = Math.min(this.#held_bytes, this.#hour_bytes / HELD_SHARE);
    // With this, the account, which holds `bytes_max`, pays a test of three sizes in both
    // directions.
    this.#bytes_min = Math.max(1, Math.min(BYTES_MIN, Math.floor(this.#bytes_max / (2 * SETTLING))));
  }

  /** Whether the account can pay tests of all `quantities` at `now_s`. */
  isDue(quantities, now_s) {
    this.#fill(now_s);
    const cost = quantities.reduce((sum, quantity) => sum + this.#cost(quantity), 0);
    return cost <= this.#held_bytes;
  }

  /**
   * Begins a test of `quantity` three steps below the last size of its last test. The smaller
   * transfers open TCP's window again, and each rate is compared with new ones; a test may end at a
   * smaller size than the one before. The bytes for tests of `others` are reserved. A test that the
   * reader requested (`wanted`) may overdraw the account.
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

  // Enough for a test that settles when three rates agree at the first three sizes, and for one
  // that ends at the size of its last test, begun three steps below. Before the first test: from
  // the first size to the greatest.
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

// A quarter of what a station gives one address in an hour (docs/spec/echo.md §3): four readers
// share an address.
const HOUR_BYTES = 2 ** 28;
// The account holds a quarter of an hour's bytes, 64 MiB: from the least size to the greatest, once
// in each direction.
const HELD_SHARE = 4;
/** A transfer of half a second contains several round trips anywhere on Earth. */
export const LONG_S = 0.5;
// Start-up takes six to eight round trips to 100 Mbit/s over 20 ms, and fills a part of each.
const ROUND_TRIPS_MIN = 20;
// During start-up, twice the bytes have a rate that is at least half as high again, so no three
// rates are within a quarter of each other. Two rates with the second hardly above the first are
// often an accident: if one transfer in three meets a stall of 20 ms, 118 of 400 such rates were a
// fifth or more below the link's 100 Mbit/s. Of three within a quarter, under 3 % are
// (sizing.test.mjs).
const AGREEING = 3;
const SPREAD_MAX = 1.25;
// Cost of the first `AGREEING` transfers together, in bytes of the first.
const SETTLING = 2 ** AGREEING - 1;
// The next transfer would take twice as long.
const TOO_LONG_S = 2;
