// Bytes that measuring costs: every message with its frame header, in both directions. Pure. Not
// counted: the handshake of a session, about 1 KiB; overhead of TLS, TCP and IP; and HTTP requests.

/** Bytes so far and in the last hour. */
export class Traffic {
  #minutes = new Float64Array(MINUTES);
  #minute;
  #began_s;
  sent = 0;
  received = 0;

  /** Counts from `now_s` on, with a monotonic clock. */
  constructor(now_s) {
    this.#began_s = now_s;
    this.#minute = Math.floor(now_s / 60);
  }

  add(sent, received, now_s) {
    this.#advance(now_s);
    this.sent += sent;
    this.received += received;
    this.#minutes[this.#minute % MINUTES] += sent + received;
  }

  /** Bytes in both directions. */
  get bytes() {
    return this.sent + this.received;
  }

  /**
   * Bytes an hour: of the last hour, or extrapolated from a shorter time; `null` in the first
   * minute.
   */
  perHour(now_s) {
    this.#advance(now_s);
    const age_s = now_s - this.#began_s;
    if (age_s < 60) return null;
    const recent = this.#minutes.reduce((sum, bytes) => sum + bytes, 0);
    return age_s < 3600 ? (this.bytes / age_s) * 3600 : recent;
  }

  #advance(now_s) {
    const minute = Math.floor(now_s / 60);
    const passed = Math.min(MINUTES, minute - this.#minute);
    for (let i = 1; i <= passed; i += 1) this.#minutes[(this.#minute + i) % MINUTES] = 0;
    this.#minute = Math.max(this.#minute, minute);
  }
}

const MINUTES = 60;
