// Schedule of measurements, and detection of times in which they are not valid. Pure: the caller
// passes the time in.

/** The least and the most time between two cycles (s). */
export const PERIOD_S_MIN = 1;
export const PERIOD_S_MAX = 300;

/**
 * Timetable of cycles at a period: the first at once, no bursts after a late one, and missed ones
 * counted.
 */
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

  /**
   * Begins a cycle. The next one is due a period after this one was due, or at the first such time
   * after now. A cycle before its time changes nothing.
   */
  begin(now_s) {
    const due_s = this.#due_s ?? now_s;
    if (now_s < due_s) return;
    const late = Math.max(0, Math.floor((now_s - due_s) / this.period_s));
    this.missed += late;
    // In step with the first cycle: a late one does not move the following ones.
    this.#due_s = due_s + (late + 1) * this.period_s;
  }

  /**
   * Sets another period. The next cycle is due that long after the last began, or now. This counts
   * no missed cycles.
   */
  setPeriod(period_s, now_s) {
    if (this.#due_s !== null) this.#due_s += period_s - this.period_s;
    this.period_s = period_s;
    if (this.#due_s !== null && this.#due_s < now_s) this.restart();
  }

  /** Schedules no cycle before `at_s`. Cycles until then do not count as missed. */
  notBefore(at_s) {
    if (this.#due_s === null || this.#due_s < at_s) this.#due_s = at_s;
  }

  /**
   * Schedules the next cycle now, and later ones from there. After a pause no cycle counts as
   * missed.
   */
  restart() {
    this.#due_s = null;
  }
}

/**
 * Detects that this program did not run for a while: the computer slept, or the tab was frozen.
 *
 * It receives both clocks at every beat, and before any result counts. During sleep one clock may
 * stop, or both go on and the beat is late; in either case, times of running experiments are not
 * valid.
 */
export class SleepDetector {
  #beat_s = null;
  #offset_s = null;

  /**
   * `monotonic_s` and `wall_s` are now. Returns why running experiments do not count, or `null`.
   */
  check(monotonic_s, wall_s) {
    const offset_s = wall_s - monotonic_s;
    const silent_s = this.#beat_s === null ? 0 : monotonic_s - this.#beat_s;
    const jump_s = this.#offset_s === null ? 0 : offset_s - this.#offset_s;
    this.#beat_s = monotonic_s;
    this.#offset_s = offset_s;
    if (BEAT_S + LATE_S_MAX < silent_s) return `this page did not run for ${Math.round(silent_s)} s`;
    if (JUMP_S_MAX < Math.abs(jump_s)) return `the clock jumped by ${Math.round(jump_s)} s`;
    return null;
  }
}

/**
 * Seconds before the next attempt after this many failures in a row; `chance` in 0…1 spreads pages
 * out.
 */
export function retryDelay(failures, chance) {
  // The first retry is the next cycle.
  if (failures <= 1) return 0;
  return Math.min(RETRY_S_MAX, 2 ** Math.min(failures - 2, 16)) * (0.75 + 0.25 * chance);
}

/** Time between two checks of the clocks (s). */
export const BEAT_S = 1;
// A worker on a busy computer is late by tenths of a second; after sleep, by seconds.
const LATE_S_MAX = 2;
// NTP steps are rare and smaller. A clock set by hand is a gap, too, because the labels jump.
const JUMP_S_MAX = 2;
// A host that is off may stay off; it is tried twice a minute.
const RETRY_S_MAX = 30;
