// A mirror that is a file on a web server: fetches parts of it, and counts bytes as they arrive.

/**
 * A file to download, measured by requests for its first bytes. `fetch` and `now` (ms) are the
 * page's, unless a test replaces them.
 */
export class Download {
  #url;
  #fetch;
  #now;
  /** The unread response from `open`, of a server that ignores ranges. */
  #whole = null;
  /** Whether the server sends the whole file for every request. */
  ignores_range = false;

  /**
   * Requests one byte. That opens the connection, and shows what cannot work. A server that ignores
   * ranges begins to send the file; `probe` continues with that response, so that nothing is sent
   * twice.
   */
  static async open(url, { signal, fetch = globalThis.fetch.bind(globalThis), now = () => performance.now() } = {}) {
    const download = new Download(url, fetch, now);
    // The response may outlive the signal of the opening.
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
   * Fetches the first `bytes` of the file: `{parts, rtts_s, came_bytes}`, with parts `{bytes,
   * took_s, streamed}`, and all received bytes in `came_bytes`. The round-trip time is the time to
   * the head of the response. It is an upper bound, because it includes the server's own time.
   * `least_rtt_s` is that of this probe, during which it moved no byte.
   *
   * A server that ignores ranges is asked once, and its stream is cut into parts. Repeated requests
   * that are broken off would each leave data in the buffers of browser and kernels, at the
   * reader's cost.
   */
  async probe(bytes, signal) {
    const { response, asked_ms, answered_ms } = this.#whole ?? (await this.#ask(bytes, signal));
    this.#whole = null;
    const waited_ms = this.#now() - answered_ms;
    const arrivals = await this.#read(response, bytes, signal);
    const rtts_s = [(answered_ms - asked_ms) / 1000];
    const last = arrivals.at(-1);
    if (!last || last.got < PART_BYTES_MIN) throw new Error('the file is too small to measure');
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
      // A cache, in the browser or on the path, is not the mirror.
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

  /**
   * Reads until `bytes` have come, the response ends, or the time of a stream is over. Returns the
   * byte count at each arrival.
   */
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
      // The requested bytes have come; a server that ignores ranges would continue.
      reader.cancel().catch(() => {});
    }
    return arrivals;
  }
}

/**
 * Puts a download's failure into words. Browsers do not tell a page the reason, so it sends another
 * request without reading the response.
 */
export async function explainFailure(url, error, { signal, fetch = globalThis.fetch.bind(globalThis) } = {}) {
  if (!(error instanceof TypeError)) return error.message;
  try {
    // Without CORS the page cannot read the response, only that there was one; HEAD has no body.
    await fetch(url, { method: 'HEAD', mode: 'no-cors', cache: 'no-store', credentials: 'omit', referrerPolicy: 'no-referrer', signal });
    return 'the site does not allow measurements from other pages';
  } catch {
    // An isolated page may not even learn that there was a response.
    return globalThis.crossOriginIsolated ? 'could not be reached, or does not allow measurements from other pages' : 'could not be reached';
  }
}

/**
 * Parts of a stream, as equal as its arrivals allow, after the first `left_out` of it: a quarter,
 * in which the rate still grows; half if the stream had to wait, because it then began with
 * buffered data.
 */
function partsOf(arrivals, left_out) {
  const all = arrivals.at(-1).got;
  const parts = [];
  let from = null;
  for (const arrival of arrivals) {
    if (arrival.got < all * left_out) continue;
    // Bytes that arrive at one instant are one arrival: dividing by no time would give no valid
    // rate.
    if (from !== null && (arrival.got - from.got < (all * (1 - left_out)) / STREAM_PARTS || arrival.at_ms <= from.at_ms)) continue;
    if (from !== null) parts.push({ bytes: arrival.got - from.got, took_s: (arrival.at_ms - from.at_ms) / 1000, streamed: true });
    from = arrival;
  }
  return parts;
}

// As many as a mirror has probes at the usual budget.
const STREAM_PARTS = 12;
// Shorter than the limit of a probe, so that a slow stream still gives its values.
const STREAM_MS_MAX = 8000;
// No buffer fills in less time, so a shorter wait does not count.
const WAITED_MS_MAX = 50;
// Fewer bytes arrive with the first window of a connection (14 600 bytes, RFC 6928): they show no
// rate.
const PART_BYTES_MIN = 2 ** 14;
