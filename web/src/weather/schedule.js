// When to measure, and when what was measured cannot be believed. Pure: the time is told.

/** The least and the most time between two cycles, in s. */
export const PERIOD_S_MIN = 1;
export const PERIOD_S_MAX = 300;

/** Cycles at a period: the first at once, no bursts after one that was late, and missed ones counted. */
export class Timetable {
  #due_s = null;
  missed = 0;

  constructor(period_s) {
    this.period_s = period_s;
  }

  /** Seconds until the next cycle; 0 = now. */
  wait(now_s) {
    return this.#due_s === null ? 0 : Math.max(0, this.#due_s - now_s);
  }

  /** When the next cycle is due, on the clock of `now_s`; `null` = now. */
  get due_s() {
    return this.#due_s;
  }

  /** A cycle begins. The next is due a period after this one was, or after now if that has passed; one before its time moves none. */
  begin(now_s) {
    const due_s = this.#due_s ?? now_s;
    if (now_s < due_s) return;
    const late = Math.max(0, Math.floor((now_s - due_s) / this.period_s));
    this.missed += late;
    // In step with the first: a late tick moves none of those that follow.
    this.#due_s = due_s + (late + 1) * this.period_s;
  }

  /** Another period: the next cycle is due that long after the last began, or now; nothing was missed before it was chosen. */
  setPeriod(period_s, now_s) {
    if (this.#due_s !== null) this.#due_s += period_s - this.period_s;
    this.period_s = period_s;
    if (this.#due_s !== null && this.#due_s < now_s) this.restart();
  }

  /** Nothing is due before `at_s`. What passes over until then is not missed. */
  notBefore(at_s) {
    if (this.#due_s === null || this.#due_s < at_s) this.#due_s = at_s;
  }

  /** The next cycle is due now, and those after it count from there: after a pause nothing was missed. */
  restart() {
    this.#due_s = null;
  }
}

/**
 * Notices that time passed over this program: a computer that slept, a tab that was frozen.
 *
 * It is told both clocks at every beat, and before any result is taken. Asleep, one of them stands still
 * and the other does not, or both go on and the beat is late; either way the times of what was under way mean nothing.
 */
export class Vigil {
  #beat_s = null;
  #offset_s = null;

  /** `monotonic_s` and `wall_s` are now; gives why nothing under way counts, or `null`. */
  check(monotonic_s, wall_s) {
    const offset_s = wall_s - monotonic_s;
    const silent_s = this.#beat_s === null ? 0 : monotonic_s - this.#beat_s;
    const jump_s = this.#offset_s === null ? 0 : offset_s - this.#offset_s;
    this.#beat_s = monotonic_s;
    this.#offset_s = offset_s;
    if (BEAT_S + LATE_S_MAX < silent_s) return `this page stood still for ${Math.round(silent_s)} s`;
    if (JUMP_S_MAX < Math.abs(jump_s)) return `the clock jumped by ${Math.round(jump_s)} s`;
    return null;
  }
}

/** Seconds before attempt `failures` + 1 after so many failures in a row; `chance` in 0…1 spreads pages out. */
export function retryDelay(failures, chance) {
  if (failures <= 1) return 0; // The first retry is the next cycle.
  return Math.min(RETRY_S_MAX, 2 ** Math.min(failures - 2, 16)) * (0.75 + 0.25 * chance);
}

/** How often the watch looks at the clocks, in s: nothing here takes longer than a fraction of that. */
export const BEAT_S = 1;
// A worker on a busy computer is late by tenths of a second; asleep, by seconds.
const LATE_S_MAX = 2;
// NTP steps are rare and below this; a clock set by hand is a gap too, for the labels jump.
const JUMP_S_MAX = 2;
// A host that is off may stay off; it is asked twice a minute.
const RETRY_S_MAX = 30;
