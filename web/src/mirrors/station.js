// A mirror that is a station: probes over WebSocket (docs/spec/echo.md).
import { median } from '../measure/reduce.js';
import { EchoSession } from '../measure/session.js';
import { EXCHANGES } from './plan.js';

/** A station to measure, with the interface of `Download`. */
export class Station {
  #session;
  ignores_range = false;

  static async open(url, { signal } = {}) {
    return new Station(await EchoSession.open(url, { signal }));
  }

  constructor(session) {
    this.#session = session;
  }

  /** Runs some small exchanges, then receives `bytes`. */
  async probe(bytes, signal) {
    const { samples } = await this.#session.rtt(EXCHANGES, { signal });
    const { elapsed_s, tcp } = await this.#session.goodputDown(bytes, { signal });
    const least_rtt_s = Math.min(...samples, tcp?.min_rtt_s ?? Infinity);
    return { parts: [{ bytes, took_s: elapsed_s }], rtts_s: [median(samples)], least_rtt_s };
  }

  close() {
    this.#session.close();
  }
}
