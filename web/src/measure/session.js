// One session of docs/spec/echo.md: a WebSocket on which one experiment runs at a time.
import { ProbeError } from './failure.js';
import { goodput, typicalTime } from './reduce.js';
import { WireError, decodeDone, decodeReply, encodeRequest } from './wire.js';

/**
 * A session with a station.
 *
 * Every experiment returns `{value, n, samples, …}` in s or bit/s, or throws a `ProbeError`. After
 * any failure but *declined* the session is closed: messages that still arrive belong to no
 * experiment, and a closed socket cannot be mistaken for a response to the next request.
 */
export class EchoSession {
  #socket;
  #world;
  #count;
  #payload = null;
  #busy = false;
  /** Time of the last message from the station (ms). */
  #heard_ms = 0;
  /** Handlers of the running experiment: for a message, and for the end of the session. */
  #take = null;
  #fail = null;

  /**
   * Opens a session with the station at `station_url` (`http`, `https`), within `timeout_ms`.
   * `signal` aborts it. `count(sent, received)` receives the bytes of every message, framing
   * included. `world` has the browser's `WebSocket`, `fetch`, `now_ms`, `setTimeout` and
   * `clearTimeout`, and the page's `origin`.
   */
  static async open(station_url, { signal, timeout_ms = OPEN_MS_MAX, count = () => {}, world = browser } = {}) {
    const url = echoUrl(station_url);
    const began_ms = world.now_ms();
    const socket = await connect(url, { signal, timeout_ms, world }).catch(async (error) => {
      if (error.failure !== 'unreachable') throw error;
      const left_ms = Math.max(1, timeout_ms - (world.now_ms() - began_ms));
      throw await refusalOf(station_url, { signal, timeout_ms: left_ms, world });
    });
    return new EchoSession(socket, world, count);
  }

  constructor(socket, world, count) {
    this.#socket = socket;
    this.#world = world;
    this.#count = count;
    socket.onmessage = ({ data }) => this.#received(data);
    // A close event follows, with a reason.
    socket.onerror = null;
    socket.onclose = (event) => this.#closed(event);
  }

  /** Whether the session accepts experiments. */
  get is_open() {
    return this.#socket !== null;
  }

  /** Ends the session, and the experiment that runs on it. */
  close(reason = new ProbeError('local', 'the session was closed')) {
    const socket = this.#socket;
    this.#socket = null;
    if (socket !== null) {
      socket.onmessage = null;
      socket.onclose = null;
      try {
        socket.close(1000);
      } catch {
        // It was closed already.
      }
    }
    this.#fail?.(reason);
  }

  /**
   * Runs `n` exchanges of two bytes; the value is their median. `began_s` is the start of each.
   * After the station is ready, the first exchange waits for the promise `when`: until the load
   * that is to disturb it has begun.
   */
  rtt(n, { signal, timeout_ms, when = null } = {}) {
    return this.#experiment({ kind: 'rtt', count: n }, { signal, ...boundsOf(n, timeout_ms) }, async (exchange) => {
      if (when !== null) await exchange.while(when);
      return timed(await exchange.times(n, 1), 0);
    });
  }

  /**
   * Runs `n` exchanges in which the station writes its response in two parts with Nagle's algorithm
   * on. An additional first exchange is left out.
   */
  rttNagle(n, { signal, timeout_ms } = {}) {
    return this.#experiment({ kind: 'rtt_nagle', count: n + 1 }, { signal, ...boundsOf(n + 1, timeout_ms) }, async (exchange) => {
      return timed(await exchange.times(n + 1, 2), 1);
    });
  }

  /** Sends `bytes` in messages of `message_bytes`; calls `began` right before the first. */
  goodput(bytes, { message_bytes = MESSAGE_BYTES_MAX, began = () => {}, signal, timeout_ms = TRANSFER_MS_MAX } = {}) {
    if (!Number.isSafeInteger(message_bytes) || message_bytes < 1 || MESSAGE_BYTES_MAX < message_bytes) {
      throw new RangeError(`message_bytes is ${message_bytes}, expected 1 to ${MESSAGE_BYTES_MAX}`);
    }
    return this.#experiment({ kind: 'goodput', bytes }, { signal, timeout_ms }, async (exchange) => {
      began();
      const began_ms = this.#world.now_ms();
      const answer = exchange.next();
      await exchange.while(this.#upload(bytes, message_bytes));
      const { data, at_ms } = await answer;
      return moved(bytes, began_ms, at_ms, data);
    });
  }

  /** Requests `bytes`; calls `began` right before. */
  goodputDown(bytes, { began = () => {}, signal, timeout_ms = TRANSFER_MS_MAX } = {}) {
    return this.#experiment({ kind: 'goodput_down', bytes }, { signal, timeout_ms }, async (exchange) => {
      began();
      const began_ms = this.#world.now_ms();
      const arrived = exchange.bytes(bytes);
      this.#send(new Uint8Array(2));
      const at_ms = await arrived;
      const { data } = await exchange.next();
      return moved(bytes, began_ms, at_ms, data);
    });
  }

  /**
   * Reports a measurement to the station, if it keeps such reports and the reader agreed. Between
   * experiments only.
   */
  report({ source, quantity, value }) {
    if (this.#socket === null || this.#busy) return false;
    const text = JSON.stringify({ source, quantity, value });
    this.#socket.send(text);
    this.#count(framed(new TextEncoder().encode(text).length, true), 0);
    return true;
  }

  async #experiment(request, { signal, timeout_ms, silence_ms = timeout_ms }, body) {
    const frame = encodeRequest(request);
    if (this.#socket === null) throw new ProbeError('reset', 'the session was closed before the experiment');
    if (this.#busy) throw new ProbeError('local', 'another experiment is under way');
    signal?.throwIfAborted();
    this.#busy = true;
    const exchange = new Exchange(this.#world, (bytes) => this.#send(bytes));
    this.#take = (data) => exchange.take(data);
    this.#fail = (error) => exchange.fail(error);
    const given_up = () => this.close(signal.reason);
    signal?.addEventListener('abort', given_up, { once: true });
    const endWatch = this.#watch(timeout_ms, silence_ms);
    try {
      const answer = exchange.next();
      this.#send(frame);
      acceptReply((await answer).data);
      return await body(exchange);
    } catch (error) {
      const failure = error instanceof WireError ? new ProbeError('garbage', error.message) : error;
      if (!failure.is_open_after) this.close(failure);
      throw failure;
    } finally {
      endWatch();
      signal?.removeEventListener('abort', given_up);
      this.#take = null;
      this.#fail = null;
      this.#busy = false;
    }
  }

  // Ends the session after `timeout_ms`, or when the station was silent for `silence_ms`; returns a
  // function that ends the watch. It is one timer that checks the last message: a timer for each
  // exchange would delay it.
  #watch(timeout_ms, silence_ms) {
    const end_ms = this.#world.now_ms() + timeout_ms;
    this.#heard_ms = this.#world.now_ms();
    let timer;
    const look = () => {
      const now_ms = this.#world.now_ms();
      const due_ms = Math.min(end_ms, this.#heard_ms + silence_ms);
      if (now_ms < due_ms) {
        timer = this.#world.setTimeout(look, due_ms - now_ms);
        return;
      }
      const bound_ms = due_ms === end_ms ? timeout_ms : silence_ms;
      this.close(new ProbeError('timed_out', `the station did not answer within ${bound_ms / 1000} s`));
    };
    timer = this.#world.setTimeout(look, Math.min(timeout_ms, silence_ms));
    return () => this.#world.clearTimeout(timer);
  }

  // A browser buffers everything that a page sends. So the page waits while much is buffered.
  async #upload(bytes, message_bytes) {
    const payload = (this.#payload ??= noise());
    for (let sent = 0; sent < bytes; ) {
      while (this.#socket !== null && BUFFERED_BYTES_MAX < this.#socket.bufferedAmount) {
        await new Promise((resolve) => this.#world.setTimeout(resolve, DRAIN_MS));
      }
      if (this.#socket === null) return;
      const length = Math.min(message_bytes, bytes - sent);
      this.#send(length === payload.length ? payload : payload.subarray(0, length));
      sent += length;
    }
  }

  #send(bytes) {
    if (this.#socket === null) return;
    this.#socket.send(bytes);
    this.#count(framed(bytes.length, true), 0);
  }

  #received(data) {
    const length = typeof data === 'string' ? data.length : (data.byteLength ?? 0);
    this.#count(0, framed(length, false));
    if (this.#take === null) {
      this.close(new ProbeError('garbage', 'the station sent an unexpected message'));
    } else {
      this.#take(data);
      // After the message was timed.
      this.#heard_ms = this.#world.now_ms();
    }
  }

  #closed({ code, reason }) {
    this.#socket = null;
    this.#fail?.(endOf(code, reason));
  }
}

/**
 * What an experiment waits for: one thing at a time. A message without a waiting experiment is
 * garbage.
 */
class Exchange {
  #world;
  #send;
  #waiting = null;
  #reject;
  #ended;

  constructor(world, send) {
    this.#world = world;
    this.#send = send;
    this.#ended = new Promise((_, reject) => (this.#reject = reject));
    // The waiting caller receives the error; there may be none.
    this.#ended.catch(() => {});
  }

  take(data) {
    const waiting = this.#waiting;
    if (waiting === null) this.fail(new WireError('the station sent more than was requested'));
    else waiting(data);
  }

  fail(error) {
    this.#waiting = null;
    this.#reject(error);
  }

  /** Result of `promise`, unless the session ends first. */
  while(promise) {
    const first = Promise.race([promise, this.#ended]);
    // A response that has no waiting caller yet, during an upload.
    first.catch(() => {});
    return first;
  }

  /** The next message, and when it came. */
  next() {
    return this.#wait((data, resolve) => resolve({ data, at_ms: this.#world.now_ms() }));
  }

  /**
   * Receives `bytes` bytes in messages of any length; resolves with the time of the last one (ms).
   */
  bytes(bytes) {
    let left = bytes;
    return this.#wait((data, resolve) => {
      // The clock first: what follows is not network time.
      const at_ms = this.#world.now_ms();
      if (!(data instanceof ArrayBuffer)) return this.fail(new WireError('the station sent text instead of bytes'));
      left -= data.byteLength;
      if (left < 0) return this.fail(new WireError('the station sent more bytes than were requested'));
      return left === 0 ? resolve(at_ms) : undefined;
    });
  }

  /** `n` exchanges of two bytes, each answered in `parts` messages. */
  times(n, parts) {
    const samples = [];
    const began_s = [];
    let part = 0;
    let began_ms = 0;
    const begin = () => {
      const bytes = counted(samples.length);
      began_ms = this.#world.now_ms();
      this.#send(bytes);
    };
    const done = this.#wait((data, resolve) => {
      const at_ms = this.#world.now_ms();
      if (!isPart(data, counted(samples.length), part, parts)) {
        return this.fail(new WireError('the station did not return the bytes of an exchange'));
      }
      part = (part + 1) % parts;
      if (part !== 0) return undefined;
      samples.push((at_ms - began_ms) / 1000);
      began_s.push(began_ms / 1000);
      return samples.length === n ? resolve({ samples, began_s }) : begin();
    });
    begin();
    return done;
  }

  #wait(take) {
    return this.while(
      new Promise((resolve) => {
        this.#waiting = (data) =>
          take(data, (value) => {
            this.#waiting = null;
            resolve(value);
          });
      }),
    );
  }
}

/** Address of a station's echo service: `ws` for `http`, `wss` for `https`. */
export function echoUrl(station_url) {
  const url = new URL('v1/echo', station_url);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  return url.href;
}

function connect(url, { signal, timeout_ms, world }) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const socket = new world.WebSocket(url, [SUBPROTOCOL]);
    socket.binaryType = 'arraybuffer';
    const settle = (outcome) => {
      world.clearTimeout(timer);
      signal?.removeEventListener('abort', given_up);
      socket.onopen = socket.onclose = socket.onerror = null;
      if (outcome === null) {
        resolve(socket);
      } else {
        reject(outcome);
        socket.close();
      }
    };
    const given_up = () => settle(signal.reason);
    signal?.addEventListener('abort', given_up, { once: true });
    const timer = world.setTimeout(() => {
      settle(new ProbeError('timed_out', `no connection within ${timeout_ms / 1000} s`));
    }, timeout_ms);
    socket.onerror = () => {}; // A close event follows.
    socket.onclose = () => settle(new ProbeError('unreachable', 'no connection'));
    socket.onopen = () => {
      const spoken = socket.protocol === SUBPROTOCOL && socket.extensions === '';
      settle(spoken ? null : new ProbeError('garbage', 'the server does not support barograph-probe.1; check the address'));
    };
  });
}

// Browsers do not tell a page why a WebSocket was refused, so it sends a plain HTTP request
// (echo.md §1). Only pages of origins in `echo.origins` may read that response, but every page may
// read the worker's script.
async function refusalOf(station_url, { signal, timeout_ms, world }) {
  const { host, origin } = new URL(station_url);
  const gone = new AbortController();
  const timer = world.setTimeout(() => gone.abort(), timeout_ms);
  const given_up = () => gone.abort();
  signal?.addEventListener('abort', given_up, { once: true });
  const ask = (path, method) => {
    return world.fetch(new URL(path, station_url).href, { method, cache: 'no-store', credentials: 'omit', signal: gone.signal });
  };
  try {
    const response = await ask('v1/echo', 'GET').catch(async (error) => {
      if (origin === world.origin || gone.signal.aborted) throw error;
      return (await ask('worker.js', 'HEAD')).ok ? null : Promise.reject(error);
    });
    if (response === null) {
      return new ProbeError('declined', `${host} declines measurements from ${pageOf(world.origin)} in its barograph.toml`);
    }
    const sentence = await sentenceOf(response);
    if (response.status === 426) return new ProbeError('reset', `${host} answers, but the WebSocket connection was cut; if there is a proxy, it must forward WebSockets`);
    if (response.status === 403 || response.status === 503) return new ProbeError('declined', `${host} declines: ${sentence}`);
    return new ProbeError('garbage', `${host} is not a station that pages can measure (it answered ${response.status}); check the address`);
  } catch {
    if (signal?.aborted) return signal.reason;
    if (gone.signal.aborted) return new ProbeError('timed_out', `${host} did not answer`);
    return new ProbeError('unreachable', `${host} does not answer${origin === world.origin ? '' : otherReasons(station_url)}`);
  } finally {
    world.clearTimeout(timer);
    signal?.removeEventListener('abort', given_up);
  }
}

// The page as a station sees it, and the setting that lets it measure. `echo.origins` accepts only
// http(s) origins; the origin of a file is `null`.
function pageOf(page_origin) {
  if (!/^https?:/.test(page_origin)) return 'this page, which has no http or https address; open the station’s own page, and check that echo.enabled is not false';
  return `pages of ${page_origin}; to allow them, set echo.origins = ["${page_origin}"] and echo.enabled = true`;
}

// Reasons other than silence why a page may not read a station's response, and the setting that
// changes it.
function otherReasons(station_url) {
  const { hostname, port } = new URL(station_url);
  const is_name = !/^[\d.]+$|^\[/.test(hostname);
  const name = is_name ? `; if the station’s own name is not ${hostname}, set allowed_hosts = ["${hostname}"] in its barograph.toml` : '';
  return `, or the browser does not allow measurements from this page${name}${port === '' ? '; stations usually use port 10132' : ''}`;
}

async function sentenceOf(response) {
  try {
    const { error } = await response.json();
    return String(error).slice(0, SENTENCE_MAX);
  } catch {
    return `status ${response.status}`;
  }
}

function acceptReply(data) {
  const { status, limit } = decodeReply(data);
  if (status === 'ready') return;
  const beyond = limit === undefined ? '' : `, at most ${limit}`;
  const error = new ProbeError('declined', `the station declines: ${DECLINED[status]}${beyond}`);
  error.is_open_after = status !== 'malformed' && status !== 'stopping'; // echo.md §2
  error.status = status;
  throw error;
}

/** Bounds for `n` exchanges and for silence between them (ms); `timeout_ms` if it is given. */
function boundsOf(n, timeout_ms) {
  if (timeout_ms !== undefined) return { timeout_ms };
  return { timeout_ms: Math.max(EXCHANGES_MS_MAX, n * EXCHANGE_MS_MAX), silence_ms: EXCHANGES_MS_MAX };
}

/** Result of exchanges, without the first `left_out`. */
function timed({ samples, began_s }, left_out) {
  const kept = samples.slice(left_out);
  const value = typicalTime(kept);
  if (value === null) throw tooCoarse("this browser's clock is too coarse to time the exchanges");
  return { value, n: kept.length, samples: kept, began_s: began_s.slice(left_out) };
}

/** Result of a transfer: the uncorrected rate, in bit/s. */
function moved(bytes, began_ms, at_ms, data) {
  const done = decodeDone(data);
  if (done.bytes !== bytes) throw new WireError(`the station counted ${done.bytes} of ${bytes} bytes`);
  const elapsed_s = (at_ms - began_ms) / 1000;
  const rate = goodput(bytes, elapsed_s);
  if (rate === null) throw tooCoarse("this browser's clock is too coarse to time the transfer; choose a larger bulk test");
  return { value: rate.raw, n: 1, samples: [elapsed_s], bytes, elapsed_s, began_s: began_ms / 1000, tcp: done.tcp };
}

// The session is in order; only the clock is too coarse.
function tooCoarse(sentence) {
  const error = new ProbeError('local', sentence);
  error.is_open_after = true;
  return error;
}

/** The two bytes of exchange `index` (probe.md §2.1). */
function counted(index) {
  return new Uint8Array([(index >> 8) & 0xff, index & 0xff]);
}

function isPart(data, sent, part, parts) {
  const size = sent.length / parts;
  if (!(data instanceof ArrayBuffer) || data.byteLength !== size) return false;
  return new Uint8Array(data).every((byte, i) => byte === sent[part * size + i]);
}

function endOf(code, reason) {
  const why = reason ? `: ${String(reason).slice(0, SENTENCE_MAX)}` : '';
  if (code === 1001) return new ProbeError('declined', `the station ended the session${why}`);
  if (code === 1008) return new ProbeError('declined', `the station cut the session because a limit was exceeded${why}`);
  return new ProbeError('reset', `the connection was lost (${code})${why}`);
}

/** Bytes of a message with its frame header. The page masks its frames (RFC 6455 §5.2). */
function framed(bytes, is_sent) {
  const length = bytes < 126 ? 0 : bytes < 65_536 ? 2 : 8;
  return bytes + 2 + length + (is_sent ? 4 : 0);
}

/** 64 KiB that cannot be compressed. */
function noise() {
  return crypto.getRandomValues(new Uint8Array(MESSAGE_BYTES_MAX));
}

const browser = {
  get WebSocket() {
    return globalThis.WebSocket;
  },
  fetch: (...args) => globalThis.fetch(...args),
  get origin() {
    return globalThis.location?.origin;
  },
  now_ms: () => performance.now(),
  setTimeout: (...args) => globalThis.setTimeout(...args),
  clearTimeout: (timer) => globalThis.clearTimeout(timer),
};

/** Longest message of a transfer (echo.md §2); the largest costs least. */
export const MESSAGE_BYTES_MAX = 65_536;
const SUBPROTOCOL = 'barograph-probe.1';
// Longer than any healthy response, also over a satellite.
const OPEN_MS_MAX = 10_000;
// Eleven exchanges over a satellite take seven seconds; no single response takes as long.
const EXCHANGES_MS_MAX = 10_000;
// An exchange over a satellite takes 0.7 s with Nagle's algorithm. This leaves time for any number
// of them.
const EXCHANGE_MS_MAX = 1000;
// The largest transfer, 16 MiB, may take 139 s (echo.md §3), and its reply may be 2 s late; the
// rest is the path.
const TRANSFER_MS_MAX = 144_000;
// Most bytes that wait in the browser: a check every DRAIN_MS (timers are clamped to 4 ms) still
// feeds 8 Gbit/s.
const BUFFERED_BYTES_MAX = 4 << 20;
const DRAIN_MS = 1;
// A reason sent by another host is shown, but shortened.
const SENTENCE_MAX = 200;
const DECLINED = {
  busy: 'it is busy with other transfers',
  'too large': 'that is more than it allows',
  spent: 'this address has used its share of bytes; try again later',
  'not served': 'it does not serve this experiment',
  full: 'it has no free session; try again later',
  malformed: 'it does not understand the request',
  stopping: 'it is stopping',
};
