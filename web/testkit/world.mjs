// A world without network for tests: virtual time, and a station behind fake sockets that can misbehave.
import { readFile } from 'node:fs/promises';
import { loadForecaster } from '../src/measure/forecaster.js';

/** Virtual clocks, timers, sockets and HTTP. `advance` runs what is due, in order. */
export class FakeWorld {
  #timers = [];
  #number = 0;
  #now_ms = 1000;
  /** Wall clock less monotonic clock, ms. */
  offset_ms = 1_700_000_000_000;
  sockets = [];

  constructor(station = {}) {
    const world = this;
    this.station = { rtt_ms: 10, bit_s: 1e9, host: 'aneroid', keeps: false, reports: [], refuse: null, ...station };
    this.WebSocket = class extends FakeSocket {
      constructor(url, protocols) {
        super(world, url, protocols);
      }
    };
  }

  now_ms = () => this.#now_ms;
  wall_ms = () => this.#now_ms + this.offset_ms;
  random = () => 1;
  /** Of the page; a station at another one is another station. */
  origin = 'http://page.example';

  setTimeout = (run, delay_ms = 0) => {
    this.#number += 1;
    this.#timers.push({ at_ms: this.#now_ms + Math.max(0, delay_ms), number: this.#number, run });
    return this.#number;
  };

  clearTimeout = (number) => {
    this.#timers = this.#timers.filter((timer) => timer.number !== number);
  };

  fetch = (address, { signal, method } = {}) =>
    new Promise((resolve, reject) => {
      const { station } = this;
      signal?.addEventListener('abort', () => reject(signal.reason), { once: true });
      if (station.refuse === 'silence') return;
      this.setTimeout(() => {
        if (station.refuse === 'gone') return reject(new TypeError('Failed to fetch'));
        if (station.refuse === 'origin') return method === 'HEAD' && address.endsWith('worker.js') ? resolve(answer(200, null)) : reject(new TypeError('Failed to fetch'));
        if (address.endsWith('v1/echo')) return resolve(answer(station.echo_status ?? 426, { error: 'no place here' }));
        const echo = { path: 'v1/echo', transfer_bytes_max: 1 << 24, keeps: station.keeps };
        return resolve(answer(200, { host: station.host, from_this_host: station.from_this_host, echo }));
      }, station.rtt_ms);
    });

  /** Lets `ms` pass. */
  async advance(ms) {
    const end_ms = this.#now_ms + ms;
    await settled();
    for (;;) {
      const next = this.#timers.reduce((a, b) => (a === null || b.at_ms < a.at_ms || (b.at_ms === a.at_ms && b.number < a.number) ? b : a), null);
      if (next === null || end_ms < next.at_ms) break;
      this.clearTimeout(next.number);
      this.#now_ms = Math.max(this.#now_ms, next.at_ms);
      next.run();
      await settled();
    }
    this.#now_ms = end_ms;
  }

  /** Lets `ms` pass in which nothing runs; with `both` false only the wall clock sees them. */
  async sleep(ms, both = true) {
    if (both) this.#now_ms += ms;
    else this.offset_ms += ms;
    await settled();
  }

  /** How many timers wait. */
  get timers() {
    return this.#timers.length;
  }

  get open_sockets() {
    return this.sockets.filter((socket) => socket.readyState === 1);
  }
}

/** A WebSocket to the station of a world. */
class FakeSocket {
  readyState = 0;
  protocol = '';
  extensions = '';
  bufferedAmount = 0;
  buffered_max = 0;
  sent = [];
  #expects = null;
  #wire_free_ms = 0;

  constructor(world, url, protocols) {
    Object.assign(this, { world, url, protocols });
    world.sockets.push(this);
    const { station } = world;
    if (station.refuse === 'silence') return;
    world.setTimeout(() => {
      if (this.readyState !== 0) return;
      if (station.refuse !== null) return this.drop(1006);
      this.readyState = 1;
      this.protocol = station.protocol ?? protocols[0];
      this.onopen?.({});
    }, station.rtt_ms);
  }

  send(data) {
    if (this.readyState !== 1) return;
    if (typeof data === 'string') {
      this.world.station.reports.push(JSON.parse(data));
      return;
    }
    const bytes = data.slice();
    const { world } = this;
    this.sent.push(bytes);
    this.bufferedAmount += bytes.length;
    this.buffered_max = Math.max(this.buffered_max, this.bufferedAmount);
    this.#wire_free_ms = Math.max(world.now_ms(), this.#wire_free_ms) + (bytes.length * 8000) / world.station.bit_s;
    world.setTimeout(() => {
      this.bufferedAmount -= bytes.length;
    }, this.#wire_free_ms - world.now_ms());
    world.setTimeout(() => this.#arrived(bytes), this.#wire_free_ms - world.now_ms() + world.station.rtt_ms / 2);
  }

  close() {
    this.readyState = 3;
  }

  /** The connection ends from the other side. */
  drop(code = 1006, reason = '') {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.onerror?.({});
    this.onclose?.({ code, reason });
  }

  /** The station sends `bytes`, half a round trip from now. */
  deliver(bytes, after_ms = this.world.station.rtt_ms / 2) {
    const data = typeof bytes === 'string' ? bytes : Uint8Array.from(bytes).buffer;
    this.world.setTimeout(() => this.readyState === 1 && this.onmessage?.({ data }), after_ms);
  }

  #arrived(bytes) {
    const { station } = this.world;
    if (this.readyState !== 1 || station.hang) return;
    if (station.answer?.(this, bytes) === true) return;
    if (this.#expects === null) this.#request(bytes);
    else this.#continue(bytes);
  }

  #request(bytes) {
    const view = new DataView(bytes.buffer, bytes.byteOffset);
    const [kind, count, size] = [bytes[1], view.getUint32(4), Number(view.getBigUint64(8))];
    const status = this.world.station.decline?.(kind) ?? 0;
    this.deliver(reply(status));
    if (status === 0) this.#expects = { kind, count, size, left: size };
  }

  #continue(bytes) {
    const expects = this.#expects;
    if (expects.kind <= 2) {
      if (expects.kind === 1) this.deliver(bytes);
      else for (const byte of bytes) this.deliver([byte], 40 + this.world.station.rtt_ms / 2);
      expects.count -= 1;
      if (expects.count === 0) this.#expects = null;
    } else if (expects.kind === 3) {
      expects.left -= bytes.length;
      if (expects.left <= 0) this.#end(expects.size);
    } else {
      let after_ms = this.world.station.rtt_ms / 2;
      for (let left = expects.size; 0 < left; left -= 65_536) {
        const length = Math.min(left, 65_536);
        after_ms += (length * 8000) / this.world.station.bit_s;
        this.deliver(new Uint8Array(length), after_ms);
      }
      this.#end(expects.size, after_ms);
    }
  }

  #end(bytes, after_ms) {
    this.#expects = null;
    this.deliver(done(this.world.station.count ?? bytes), after_ms);
  }
}

/** A reply of the probe protocol. */
export function reply(status, number = 0) {
  const frame = new Uint8Array(16);
  frame[0] = 0xb2;
  frame[1] = status;
  new DataView(frame.buffer).setBigUint64(8, BigInt(number));
  return frame;
}

/** The end of a transfer without the kernel's view. */
export function done(bytes) {
  const frame = new Uint8Array(48);
  frame[0] = 0xb3;
  new DataView(frame.buffer).setBigUint64(8, BigInt(bytes));
  return frame;
}

/** The real forecaster. */
export async function forecaster() {
  return loadForecaster(await readFile(new URL('../../crates/station/web/forecast.wasm', import.meta.url)));
}

function answer(status, body) {
  return { ok: status < 400, status, json: async () => body };
}

// Promises that follow from promises: all run before the next turn of the loop.
function settled() {
  return new Promise((resolve) => setImmediate(resolve));
}
