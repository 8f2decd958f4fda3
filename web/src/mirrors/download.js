// A mirror that is a file on a web server: parts of it are fetched, and their bytes counted as they arrive.

/**
 * A file to download, measured by requests for its first bytes. `fetch` and `now` (milliseconds) are those of
 * the page unless a test gives its own.
 */
export class Download {
  #url;
  #fetch;
  #now;
  /** The answer that `open` left unread, of a server that ignores ranges. */
  #whole = null;
  /** Whether the server sends the whole file whatever is asked for. */
  ignores_range = false;

  /**
   * Asks for one byte: that opens the connection, and finds out what cannot work. A server that ignores ranges begins to
   * send the file: `probe` goes on with that answer, so that nothing comes twice.
   */
  static async open(url, { signal, fetch = globalThis.fetch.bind(globalThis), now = () => performance.now() } = {}) {
    const download = new Download(url, fetch, now);
    // The answer may outlive the signal of the opening.
    const gone = new AbortController();
    const give_up = () => gone.abort(signal.reason);
    signal?.throwIfAborted();
    signal?.addEventListener('abort', give_up, { once: true });
    try {
      const answer = await download.#ask(1, gone.signal);
      const { status, headers } = answer.response;
      download.ignores_range = status === 200 && headers.get('content-length') !== '1';
      if (download.ignores_range) download.#whole = answer;
      else await answer.response.arrayBuffer();
    } finally {
      signal?.removeEventListener('abort', give_up);
    }
    return download;
  }

  constructor(url, fetch, now) {
    this.#url = url;
    this.#fetch = fetch;
    this.#now = now;
  }

  /**
   * Fetches the first `bytes` of the file: `{parts, rtts_s}`, parts `{bytes, took_s, streamed}`, and `came_bytes`, what came in all. The round trip is
   * the time to the head of the answer: at most that, for the server's own time is in it. `least_rtt_s`, that of this probe, moved no byte of it.
   *
   * A server that ignores ranges is asked once, and its stream cut into parts: to ask again and break off each
   * time would leave what was already under way, in the buffers of browser and kernels, to be paid for by the reader.
   */
  async probe(bytes, signal) {
    const { response, asked_ms, answered_ms } = this.#whole ?? (await this.#ask(bytes, signal));
    this.#whole = null;
    const waited_ms = this.#now() - answered_ms;
    const arrivals = await this.#read(response, bytes, signal);
    const rtts_s = [(answered_ms - asked_ms) / 1000];
    const last = arrivals.at(-1);
    if (!last || last.got < PART_BYTES_MIN) throw new Error('the file is too small to measure by');
    const came_bytes = last.got;
    if (this.ignores_range) return { parts: partsOf(arrivals, waited_ms < WAITED_MS_MAX ? 1 / 4 : 1 / 2), rtts_s, came_bytes };
    return { parts: [{ bytes: last.got, took_s: (last.at_ms - asked_ms) / 1000, streamed: false }], rtts_s, least_rtt_s: rtts_s[0], came_bytes };
  }

  close() {
    this.#whole?.response.body?.cancel().catch(() => {});
    this.#whole = null;
  }

  async #ask(bytes, signal) {
    const asked_ms = this.#now();
    const response = await this.#fetch(this.#url, {
      signal,
      mode: 'cors',
      // A cache, the browser's or one on the way, is not the mirror.
      cache: 'no-store',
      credentials: 'omit',
      referrerPolicy: 'no-referrer',
      // One range from a first byte is safelisted: no preflight (Fetch §2.2.2).
      headers: { range: `bytes=0-${bytes - 1}` },
    });
    const answered_ms = this.#now();
    if (response.status !== 206 && response.status !== 200) {
      await response.body?.cancel();
      throw new Error(response.status === 416 ? 'the file is empty' : `answered with status ${response.status}`);
    }
    return { response, asked_ms, answered_ms };
  }

  /** Reads until `bytes` have come, the answer ends or the time of a stream is over; when how many had come. */
  async #read(response, bytes, signal) {
    signal?.throwIfAborted();
    const reader = response.body.getReader();
    const stop = () => reader.cancel(signal.reason).catch(() => {});
    signal?.addEventListener('abort', stop, { once: true });
    const arrivals = [];
    const began_ms = this.#now();
    let got = 0;
    try {
      while (got < bytes) {
        const { done, value } = await reader.read();
        signal?.throwIfAborted();
        if (done) break;
        got += value.byteLength;
        arrivals.push({ got, at_ms: this.#now() });
        if (this.ignores_range && STREAM_MS_MAX < this.#now() - began_ms) break;
      }
    } finally {
      signal?.removeEventListener('abort', stop);
      // What was asked for has come; a server that ignores ranges would send on.
      reader.cancel().catch(() => {});
    }
    return arrivals;
  }
}

/** What a download's failure means, in words: a page is told nothing, so it is asked again without reading. */
export async function explainFailure(url, error, { signal, fetch = globalThis.fetch.bind(globalThis) } = {}) {
  if (!(error instanceof TypeError)) return error.message;
  try {
    // Without CORS the page may not see the answer, only that there was one; HEAD has no body.
    await fetch(url, { method: 'HEAD', mode: 'no-cors', cache: 'no-store', credentials: 'omit', referrerPolicy: 'no-referrer', signal });
    return 'the site does not allow measuring from other pages';
  } catch {
    // A page that isolates itself may not even know that there was an answer.
    return globalThis.crossOriginIsolated ? 'could not be reached, or does not allow measuring from other pages' : 'could not be reached';
  }
}

/**
 * The parts of a stream, as alike as its arrivals allow, after the first `left_out` of it: a quarter, in which the rate still
 * grows; half where the stream waited for its turn, for that began with what had come into the buffers meanwhile.
 */
function partsOf(arrivals, left_out) {
  const all = arrivals.at(-1).got;
  const parts = [];
  let from = null;
  for (const arrival of arrivals) {
    if (arrival.got < all * left_out) continue;
    // What arrives at one instant came together: to divide by no time would make a rate of nothing.
    if (from !== null && (arrival.got - from.got < (all * (1 - left_out)) / STREAM_PARTS || arrival.at_ms <= from.at_ms)) continue;
    if (from !== null) parts.push({ bytes: arrival.got - from.got, took_s: (arrival.at_ms - from.at_ms) / 1000, streamed: true });
    from = arrival;
  }
  return parts;
}

// As many as a mirror has probes at the usual budget.
const STREAM_PARTS = 12;
// Less than what a comparison waits for a probe, so that a slow stream still gives what it gave.
const STREAM_MS_MAX = 8000;
// In less time no buffer fills: a stream that waited no longer did not wait.
const WAITED_MS_MAX = 50;
// Less arrives with the first window of a connection (14 600 bytes, RFC 6928): no rate can be told from it.
const PART_BYTES_MIN = 2 ** 14;
