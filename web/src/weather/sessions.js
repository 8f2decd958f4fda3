// The two sessions of a page with its station: one for transfers, one for the small exchanges beside them.
import { ProbeError } from './failure.js';

/** Opens `small` and `bulk` when they are needed, and again when they were lost. */
export class Sessions {
  #open;
  #sessions = new Map();
  #errors = new Map();
  #closed = false;

  /** `open(signal)` gives a new session or fails. */
  constructor(open) {
    this.#open = open;
  }

  /** A new cycle: what could not be opened may be tried again. */
  begin() {
    this.#errors.clear();
  }

  /** Whether `name` needs no opening. */
  has(name) {
    return this.#sessions.get(name)?.is_open === true;
  }

  /** The session `name`. In one cycle no station is asked again after it failed. */
  async get(name, signal) {
    if (this.has(name)) return this.#sessions.get(name);
    if (this.#errors.has(name)) throw this.#errors.get(name);
    try {
      const session = await this.#open(signal);
      if (this.#closed) {
        session.close();
        throw new ProbeError('local', 'the sessions were closed');
      }
      this.#sessions.set(name, session);
      return session;
    } catch (error) {
      if (error instanceof ProbeError) this.#errors.set(name, error);
      throw error;
    }
  }

  /** Closes `name` alone: the next that needs it has a new connection. */
  closeOne(name) {
    this.#sessions.get(name)?.close();
    this.#sessions.delete(name);
  }

  /** Closes both for good; what runs on them ends. */
  close() {
    this.#closed = true;
    for (const session of this.#sessions.values()) session.close();
    this.#sessions.clear();
  }
}
