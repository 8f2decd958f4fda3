// A worker in place of the page's: the same communicator, forecasters and histories, in a world where the page says
// how time passes and a station answers without a network. Time passes as fast as there is work.
import { ProbeError } from '../src/measure/failure.js';
import { runWorker } from '../src/measure/port.js';

const timers = [];
const began_wall_ms = Date.now();
let now_ms = 0;
let made = 0;

const world = {
  now_ms: () => now_ms,
  wall_ms: () => began_wall_ms + now_ms,
  random: () => random(),
  setTimeout: (run, delay_ms) => {
    made += 1;
    timers.push({ id: made, at_ms: now_ms + delay_ms, run });
    return made;
  },
  clearTimeout: (id) => {
    const at = timers.findIndex((timer) => timer.id === id);
    if (0 <= at) timers.splice(at, 1);
  },
  fetch: async (address, options) => {
    if (address.endsWith('.wasm')) return fetch(address, options);
    const echo = { path: 'v1/echo', transfer_bytes_max: 1 << 24, keeps: false };
    return Response.json({ host: 'aneroid', echo });
  },
  openSession: async (_, { count }) => new WeatherSession(count),
};

/** A session with a station behind weather: it shifts, it bursts, and now and then an experiment fails. */
class WeatherSession {
  is_open = true;

  constructor(count) {
    this.count = count;
  }

  async rtt(n, { when }) {
    await when;
    return exchanges(n, 0.02);
  }

  async rttNagle(n) {
    return exchanges(n, 0.06);
  }

  async goodput(bytes, { began }) {
    return this.#transfer(bytes, began);
  }

  async goodputDown(bytes, { began }) {
    return this.#transfer(bytes, began);
  }

  close() {
    this.is_open = false;
  }

  async #transfer(bytes, began) {
    began();
    const began_s = now_ms / 1000;
    const elapsed_s = 0.08 * weather();
    await passed(elapsed_s);
    this.count(bytes, bytes);
    return { value: (bytes * 8) / elapsed_s, n: 1, samples: [elapsed_s], bytes, elapsed_s, began_s, tcp: null };
  }
}

async function exchanges(n, usual_s) {
  const samples = [];
  const began_s = [];
  for (let i = 0; i < n; i += 1) {
    began_s.push(now_ms / 1000 + i * 0.001);
    samples.push(usual_s * weather());
  }
  await passed(usual_s);
  if (random() < 0.002) throw new ProbeError('timed_out', 'the weather is bad');
  return { value: samples.toSorted((a, b) => a - b)[n >> 1], n, samples, began_s };
}

function passed(s) {
  return new Promise((resolve) => world.setTimeout(resolve, s * 1000));
}

function weather() {
  const shift = Math.floor(now_ms / 600_000) % 2 === 0 ? 1 : 1.5;
  return shift * (1 + 0.2 * random()) * (random() < 0.01 ? 10 : 1);
}

// xorshift32 (Marsaglia 2003): the same ten hours every time.
let state = 20_260;
function random() {
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) / 2 ** 32;
}

/** Lets `ms` pass. */
async function advance(ms) {
  const end_ms = now_ms + ms;
  for (;;) {
    let next = null;
    for (const timer of timers) if (next === null || timer.at_ms < next.at_ms) next = timer;
    if (next === null || end_ms < next.at_ms) break;
    world.clearTimeout(next.id);
    now_ms = Math.max(now_ms, next.at_ms);
    next.run();
    await settled();
  }
  now_ms = end_ms;
}

// One turn of the event loop, without the clamp of timers: all promises that follow have run.
const turn = new MessageChannel();
let turned = null;
turn.port1.onmessage = () => turned();
function settled() {
  return new Promise((resolve) => {
    turned = resolve;
    turn.port2.postMessage(null);
  });
}

const time = new BroadcastChannel('time');
time.onmessage = async ({ data }) => {
  if (data.advance_ms === undefined) return;
  await advance(data.advance_ms);
  time.postMessage({ now_ms, timers: timers.length });
};

runWorker(self, world);
