// Settings of a reader, and their possible values. Pure; used on the page and in its worker.
import { KINDS } from './forecaster.js';
import { QUANTITIES } from './series.js';
import { PERIOD_S_MAX, PERIOD_S_MIN } from './schedule.js';
import { AUTO } from './sizing.js';

/**
 * Sizes of a transfer that can be chosen, in bytes. 64 KiB is that of the Network Weather Service.
 */
export const SIZES = Object.freeze([64, 128, 256, 512, 1024, 4096, 16_384].map((kib) => kib * 1024));

/** Settings before the reader changes any. */
export const DEFAULTS = Object.freeze({ period_s: 10, bytes: AUTO, kind: 'full', experiments: QUANTITIES });

/** Check of each setting: throws if the value is not possible. */
const CHECKS = {
  period_s: (value) => {
    if (typeof value !== 'number') throw new TypeError('the period must be a number of seconds');
    if (!(PERIOD_S_MIN <= value && value <= PERIOD_S_MAX)) {
      throw new RangeError(`the period is ${value} s, expected ${PERIOD_S_MIN} to ${PERIOD_S_MAX} s`);
    }
  },
  bytes: (value) => {
    if (value !== AUTO && !SIZES.includes(value)) {
      throw new RangeError(`the size is ${value}, expected ${AUTO} or one of ${SIZES.join(', ')} bytes`);
    }
  },
  kind: (value) => {
    if (!KINDS.includes(value)) throw new RangeError(`the forecaster is ${value}, expected one of ${KINDS.join(', ')}`);
  },
  experiments: (value) => {
    if (!Array.isArray(value)) throw new TypeError('the experiments must be a list of quantities');
    const unknown = value.find((quantity) => !QUANTITIES.includes(quantity));
    if (unknown !== undefined) throw new RangeError(`there is no quantity ${unknown}, expected ${QUANTITIES.join(', ')}`);
    if (value.length === 0) throw new RangeError('the list of experiments is empty; to stop measuring, suspend instead');
    if (value.includes('rtt_loaded') && !value.some((quantity) => quantity.startsWith('goodput'))) {
      throw new RangeError('rtt_loaded needs goodput or goodput_down, which is the load');
    }
  },
};

/**
 * Returns `changes` if all of them are possible; otherwise throws a `RangeError` or `TypeError`
 * with the reason.
 */
export function checkSettings(changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (CHECKS[name] === undefined) throw new TypeError(`there is no setting ${name}`);
    CHECKS[name](value);
  }
  return changes;
}

/** One experiment for `measure`, with defaults filled in; throws like `checkSettings`. */
export function checkExperiment({ quantity, n = 11, bytes = SIZES[0], message_bytes = 65_536, fresh = false } = {}) {
  if (!MEASURABLE.includes(quantity)) {
    throw new RangeError(`there is no experiment ${quantity}, expected ${MEASURABLE.join(', ')}`);
  }
  whole('n', n, 1, 999);
  whole('bytes', bytes, 1, SIZES.at(-1));
  whole('message_bytes', message_bytes, 1, 65_536);
  if (typeof fresh !== 'boolean') throw new TypeError('fresh must be true or false');
  return { quantity, n, bytes, message_bytes, fresh };
}

/** Checks the number of buckets of a history. */
export function checkBuckets(buckets) {
  return whole('buckets', buckets, 1, 16_384);
}

/** Checks that a page measures the quantity. */
export function checkQuantity(quantity) {
  if (!QUANTITIES.includes(quantity)) throw new RangeError(`there is no quantity ${quantity}, expected ${QUANTITIES.join(', ')}`);
  return quantity;
}

function whole(name, value, least, most) {
  if (!Number.isSafeInteger(value) || value < least || most < value) {
    throw new RangeError(`${name} is ${value}, expected a whole number from ${least} to ${most}`);
  }
  return value;
}

// Round trips under load have no experiment of their own.
const MEASURABLE = QUANTITIES.filter((quantity) => quantity !== 'rtt_loaded');
