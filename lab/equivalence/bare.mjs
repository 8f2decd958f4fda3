// A bare communicator for a page: docs/spec/echo.md in as few lines as it takes, in the page's own thread.
//
// What the page's own communicator adds to it – a worker, checks, books – is the difference between the two.

/** Runs in the page; puts `barographBare.measure({quantity, n, bytes, message_bytes, fresh})` there. */
export function bare() {
  const KINDS = { rtt: 1, rtt_nagle: 2, goodput: 3, goodput_down: 4 };
  const noise = crypto.getRandomValues(new Uint8Array(65_536));
  let socket = null;
  let take = () => {};
  let fail = () => {};

  const open = () =>
    new Promise((resolve, reject) => {
      const url = new URL('/v1/echo', location.href);
      url.protocol = 'ws:';
      socket = new WebSocket(url, ['barograph-probe.1']);
      socket.binaryType = 'arraybuffer';
      socket.onopen = resolve;
      socket.onmessage = ({ data }) => take(data);
      socket.onclose = ({ code }) => {
        socket = null;
        const error = new Error(`the connection ended (${code})`);
        reject(error);
        fail(error);
      };
    });
  const next = () =>
    new Promise((resolve, reject) => {
      take = (data) => resolve({ data, at_ms: performance.now() });
      fail = reject;
    });
  const arrived = (bytes) =>
    new Promise((resolve, reject) => {
      let left = bytes;
      take = (data) => {
        const at_ms = performance.now();
        left -= data.byteLength;
        if (left <= 0) resolve(at_ms);
      };
      fail = reject;
    });

  const ask = async (kind, count, bytes) => {
    const frame = new DataView(new ArrayBuffer(16));
    frame.setUint8(0, 0xb1);
    frame.setUint8(1, kind);
    frame.setUint32(4, count);
    frame.setBigUint64(8, BigInt(bytes));
    const answer = next();
    socket.send(frame.buffer);
    const status = new DataView((await answer).data).getUint8(1);
    if (status !== 0) throw new Error(`the station declines (${status})`);
  };
  const exchanges = async (n, bytes) => {
    const samples = [];
    for (let i = 0; i < n; i += 1) {
      const answer = arrived(bytes);
      const began_ms = performance.now();
      socket.send(new Uint8Array([i >> 8, i & 0xff]));
      samples.push(((await answer) - began_ms) / 1000);
    }
    return samples;
  };
  const upload = async (bytes, message_bytes) => {
    const answer = next();
    const began_ms = performance.now();
    for (let sent = 0; sent < bytes; sent += message_bytes) {
      socket.send(noise.subarray(0, Math.min(message_bytes, bytes - sent)));
    }
    return ((await answer).at_ms - began_ms) / 1000;
  };
  const download = async (bytes) => {
    const all = arrived(bytes);
    const began_ms = performance.now();
    socket.send(new Uint8Array(2));
    const elapsed_s = ((await all) - began_ms) / 1000;
    return elapsed_s;
  };
  const rate = (bytes, elapsed_s) => ({ value: (bytes * 8) / elapsed_s, samples: [(bytes * 8) / elapsed_s] });

  globalThis.barographBare = {
    async measure({ quantity, n = 1, bytes = 65_536, message_bytes = 65_536, fresh = false }) {
      if (socket !== null && fresh) {
        socket.onclose = null;
        socket.close();
        socket = null;
      }
      if (socket === null) await open();
      if (quantity === 'goodput' || quantity === 'goodput_down') {
        await ask(KINDS[quantity], 0, bytes);
        const is_up = quantity === 'goodput';
        const elapsed_s = await (is_up ? upload(bytes, message_bytes) : download(bytes));
        if (!is_up) await next();
        return rate(bytes, elapsed_s);
      }
      const is_nagle = quantity === 'rtt_nagle';
      await ask(KINDS[quantity], is_nagle ? n + 1 : n, 0);
      // The first exchange with Nagle's algorithm meets acknowledgements that are not delayed yet.
      const samples = (await exchanges(is_nagle ? n + 1 : n, 2)).slice(is_nagle ? 1 : 0);
      const sorted = [...samples].sort((a, b) => a - b);
      return { value: sorted[sorted.length >> 1], samples };
    },
  };
}
