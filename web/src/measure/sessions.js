// The two sessions of a page with its station: one for transfers, one for small exchanges beside
// them.
import { ProbeError } from './failure.js';

/** Opens `small` and `bulk` when they are needed, and again after they were lost. */
export class Sessions {
  #open;
  #sessions = new Map();
  #errors = new Map();
  #closed = false;

  /** `open(signal)` returns a new session or fails. */
  constructor(open) {
    this.#open = open;
  }

  /** Begins a cycle: sessions that could not be opened may be tried again. */
  begin() {
    this.#errors.clear();
  }

  /** Whether the session `name` is open. */
  has(name) {
    return this.#sessions.get(name)?.is_open === true;
  }

  /** Returns the session `name`. After a failure, it is not opened again in the same cycle. */
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

  /** Closes `name` alone; its next use opens a new connection. */
  closeOne(name) {
    this.#sessions.get(name)?.close();
    this.#sessions.delete(name);
  }

  /** Closes both sessions for good, and ends their experiments. */
  close() {
    this.#closed = true;
    for (const session of this.#sessions.values()) session.close();
    this.#sessions.clear();
  }
}
