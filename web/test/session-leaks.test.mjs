// Thousands of experiments on one session leave nothing behind: no listener, no timer, no bytes.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { EchoSession } from '../src/measure/session.js';
import { done, reply } from '../testkit/world.mjs';

setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc');

test('the memory of a session does not grow with its experiments', async (context) => {
  const timers = new Set();
  const socket = new EchoingSocket();
  const world = {
    WebSocket: class {
      constructor() {
        return socket.open();
      }
    },
    now_ms: () => performance.now(),
    setTimeout: (run, ms) => {
      const timer = setTimeout(() => timers.delete(timer) && run(), ms);
      timers.add(timer);
      return timer;
    },
    clearTimeout: (timer) => {
      timers.delete(timer);
      clearTimeout(timer);
    },
  };
  const gone = new CountingSignal();
  const session = await EchoSession.open('http://station.example/', { signal: gone.signal, world });
  const round = async (times) => {
    for (let i = 0; i < times; i += 1) {
      await session.rtt(11, { signal: gone.signal });
      await session.rttNagle(3, { signal: gone.signal });
      await session.goodput(65_536, { signal: gone.signal });
      await session.goodputDown(65_536, { signal: gone.signal });
    }
    gc();
    return process.memoryUsage().heapUsed;
  };
  const early = await round(500);
  const late = await round(5000);
  context.diagnostic(`${((late - early) / 1e6).toFixed(2)} MB more after 20 000 further experiments`);
  // It would show if 50 bytes of each were kept.
  assert.ok(late - early < 1e6, `${late - early} bytes were kept`);
  assert.deepEqual([timers.size, gone.listeners], [0, 0]);
  session.close();
});

/** A socket to a station that answers at once. */
class EchoingSocket {
  protocol = 'barograph-probe.1';
  extensions = '';
  bufferedAmount = 0;
  #expects = null;

  open() {
    queueMicrotask(() => this.onopen({}));
    return this;
  }

  close() {}

  send(bytes) {
    if (this.#expects === null) {
      const view = new DataView(bytes.buffer, bytes.byteOffset);
      this.#expects = { kind: bytes[1], count: view.getUint32(4), size: Number(view.getBigUint64(8)) };
      return this.#say(reply(0));
    }
    const { kind, size } = this.#expects;
    this.#expects.count -= 1;
    if (kind === 1) this.#say(bytes);
    else if (kind === 2) for (const byte of bytes) this.#say(Uint8Array.of(byte));
    else {
      if (kind === 4) this.#say(new Uint8Array(size));
      this.#say(done(size));
    }
    if (2 < kind || this.#expects.count === 0) this.#expects = null;
  }

  #say(bytes) {
    const data = bytes.slice().buffer;
    setImmediate(() => this.onmessage({ data })); // One task for each, as in a browser.
  }
}

/** An abort signal that counts its listeners. */
class CountingSignal {
  listeners = 0;
  signal = new AbortController().signal;

  constructor() {
    const { signal } = this;
    const [add, remove] = [signal.addEventListener.bind(signal), signal.removeEventListener.bind(signal)];
    signal.addEventListener = (...args) => (this.listeners++, add(...args));
    signal.removeEventListener = (...args) => (this.listeners--, remove(...args));
  }
}
