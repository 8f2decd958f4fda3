// The comparison with invented mirrors, and downloads from an invented server.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { watchVisibility } from '../src/mirrors/visibility.js';
import { compare } from '../src/mirrors/compare.js';
import { Download, explainFailure } from '../src/mirrors/download.js';
import { TimedOut, within } from '../src/mirrors/limit.js';
import { parseMirrors } from '../src/mirrors/list.js';
import { batteries, seeded } from '../testkit/mirrors.mjs';

const battery = await batteries();

describe('a download', () => {
  test('counts the received bytes of the requested range', async () => {
    const server = fakeServer({ size: 1e6 });
    const download = await Download.open('https://a.example/f', server);
    assert.ok(!download.ignores_range);
    const { parts, rtts_s } = await download.probe(65_536);
    assert.deepEqual(parts, [{ bytes: 65_536, took_s: parts[0].took_s, streamed: false }]);
    assert.deepEqual(rtts_s, [0.02], 'the time to the head');
    assert.equal(parts[0].took_s, 0.02 + 4 * 0.01);
    assert.deepEqual(server.asked.map(({ headers }) => headers.range), ['bytes=0-0', 'bytes=0-65535']);
    assert.ok(server.asked.every(({ cache, credentials }) => cache === 'no-store' && credentials === 'omit'));
  });

  test('from a server that ignores ranges is one stream within the budget, cut into parts', async () => {
    const server = fakeServer({ size: 1e9, ranges: false });
    const download = await Download.open('https://a.example/f', server);
    assert.ok(download.ignores_range);
    const { parts, came_bytes } = await download.probe(2 ** 22);
    assert.ok(8 <= parts.length && parts.length <= 12, `${parts.length} parts`);
    assert.ok(parts.reduce((sum, part) => sum + part.bytes, 0) <= 0.75 * 2 ** 22 + 16_384);
    assert.ok(server.sent <= 2 ** 22 + 2 * 16_384, `${server.sent} sent`);
    assert.equal(server.asked.length, 1, 'the answer that opened it is the one that is measured');
    assert.equal(came_bytes, server.sent, 'what came is what is booked');
    for (const { bytes, took_s } of parts) assert.ok(Math.abs(bytes / took_s / 1_638_400 - 1) < 1e-9);
    assert.equal(server.open, 0, 'nothing is left to send');
    const unused = await Download.open('https://a.example/f', server);
    unused.close();
    assert.equal(server.open, 0, 'nor where it was not even probed');
  });

  test('fails with a reason', async () => {
    await assert.rejects(Download.open('https://a/f', fakeServer({ status: 404 })), /status 404/);
    await assert.rejects(Download.open('https://a/f', fakeServer({ status: 416 })), /empty/);
    const small = await Download.open('https://a/f', fakeServer({ size: 1000 }));
    await assert.rejects(small.probe(65_536), /too small/);
    const refused = new TypeError('Failed to fetch');
    assert.match(await explainFailure('https://a/f', refused, { fetch: async () => ({ type: 'opaque' }) }), /does not allow measurements from other pages/);
    assert.match(await explainFailure('https://a/f', refused, { fetch: async () => Promise.reject(refused) }), /could not be reached/);
    assert.equal(await explainFailure('https://a/f', new Error('answered with status 404')), 'answered with status 404');
  });

  test('ends when it is cancelled', async () => {
    const server = fakeServer({ size: 1e9, stalls: true });
    const download = await Download.open('https://a.example/f', server);
    const gone = new AbortController();
    const probe = download.probe(65_536, gone.signal);
    gone.abort(new Error('enough'));
    await assert.rejects(probe, /enough/);
  });
});

describe('a limit', () => {
  test('ends a wait that does not observe its signal', async () => {
    await assert.rejects(within(1, undefined, () => new Promise(() => {})), TimedOut);
    const gone = new AbortController();
    const waiting = within(60_000, gone.signal, () => new Promise(() => {}));
    gone.abort(new Error('enough'));
    await assert.rejects(waiting, /enough/);
    await assert.rejects(within(60_000, gone.signal, () => assert.fail('it is not even tried')), /enough/);
    assert.equal(await within(60_000, undefined, async () => 7), 7);
  });
});

describe('a comparison', () => {
  test('ranks by the probes, within the budget, and names failed mirrors', async () => {
    const rates = { 'https://fast/': 80e6, 'https://slow/': 8e6 };
    const random = seeded(3);
    const spent = {};
    const ranking = await compared('https://slow/ https://gone/ https://fast/ ftp://old/f', {
      open: async ({ url }) => {
        if (url === 'https://gone/') throw new Error('nobody there');
        return source((bytes) => {
          spent[url] = (spent[url] ?? 0) + bytes;
          return { parts: [{ bytes, took_s: 0.01 + (bytes * 8) / rates[url] / (0.9 + 0.2 * random()) }], rtts_s: [0.01], least_rtt_s: 0.01 };
        });
      },
    });
    assert.equal(ranking.verdict, 'first');
    assert.deepEqual(ranking.mirrors.map(({ url, rank, failure }) => [url, rank, failure]), [
      ['https://fast/', 1, null],
      ['https://slow/', 2, null],
      ['https://gone/', null, 'nobody there'],
      ['ftp://old/f', null, 'ftp: cannot be measured, only http: and https:'],
    ]);
    for (const [url, bytes] of Object.entries(spent)) assert.ok(bytes <= 2 ** 23, `${url} ${bytes}`);
    const [fast] = ranking.mirrors;
    assert.ok(Math.abs(fast.goodput.value / 80e6 - 1) < 0.1, 'the round trip is subtracted');
    assert.ok(0.95 < fast.time_s / 10 && fast.time_s / 10 < 1.1 && fast.lower_s < fast.upper_s);
    assert.deepEqual([fast.failures, fast.kind, 8 <= fast.probes, fast.bytes <= 2 ** 23], [0, 'station', true, true]);
  });

  test('accepts one failed probe, but not two in a row', async () => {
    const opened = {};
    const ranking = await compared('https://once/ https://often/', {
      open: async ({ url }) => {
        opened[url] = (opened[url] ?? 0) + 1;
        let probes = 0;
        return source((bytes) => {
          probes += 1;
          if (url === 'https://often/' && probes === 3) throw new Error('cut off');
          if (url === 'https://often/' && opened[url] === 2) throw new Error('cut off again');
          if (url === 'https://once/' && opened[url] === 1 && probes === 4) throw new Error('an accident');
          return { parts: [{ bytes, took_s: bytes / 1e6 }], rtts_s: [0.01] };
        });
      },
    });
    assert.deepEqual(ranking.mirrors.map(({ url, rank, failures, failure }) => [url, rank, failures, failure]), [
      ['https://once/', 1, 1, null],
      ['https://often/', null, 2, 'cut off again'],
    ]);
  });

  test('probes one mirror at a time, each round in a new random order', async () => {
    const turns = [];
    let running = 0;
    await compared('https://a/ https://b/ https://c/', {
      open: async ({ url }) =>
        source(async (bytes) => {
          assert.equal((running += 1), 1, 'one at a time');
          await Promise.resolve();
          running -= 1;
          turns.push(url);
          return { parts: [{ bytes, took_s: 0.1 }], rtts_s: [0.01] };
        }),
    });
    const rounds = Array.from({ length: turns.length / 3 }, (_, i) => turns.slice(3 * i, 3 * i + 3).join());
    assert.ok(rounds.every((round) => new Set(round.split(',')).size === 3), 'every mirror once a round');
    assert.ok(2 < new Set(rounds).size, `${rounds}`);
  });

  test('servers that ignore ranges get one request, and their bytes are counted', async () => {
    const servers = {};
    let running = 0;
    const ranking = await compared('https://a.example/f https://b.example/f', {
      open: async ({ url }) => {
        servers[url] = fakeServer({ size: 1e9, ranges: false });
        const download = await Download.open(url, servers[url]);
        return {
          ignores_range: download.ignores_range,
          probe: async (bytes, signal) => {
            assert.equal((running += 1), 1, 'one at a time');
            const result = await download.probe(bytes, signal);
            running -= 1;
            return result;
          },
          close: () => download.close(),
        };
      },
    });
    for (const { url, bytes, failure } of ranking.mirrors) {
      assert.equal(failure, null);
      const { sent, asked, open } = servers[url];
      assert.deepEqual([asked.length, open], [1, 0]);
      assert.ok(sent <= bytes && bytes <= 2 ** 23 + 2 * 16_384, `${sent} sent, ${bytes} booked`);
    }
  });

  test('ends at once when it is cancelled, and closes its connections', async () => {
    const cancel = new AbortController();
    let closed = 0;
    const running = compared('https://a/ https://hangs/', {
      signal: cancel.signal,
      open: async ({ url }) => ({
        ignores_range: false,
        probe: (bytes) => {
          if (url === 'https://a/') return Promise.resolve({ parts: [{ bytes, took_s: 0.1 }], rtts_s: [0.01] });
          queueMicrotask(() => cancel.abort(new Error('the reader left')));
          return new Promise(() => {});
        },
        close: () => (closed += 1),
      }),
    });
    await assert.rejects(running, /the reader left/);
    assert.equal(closed, 2);
  });

  test('waits while the page is hidden, and uses no value from that time', async () => {
    const page = Object.assign(new EventTarget(), { hidden: false });
    const show = (hidden) => {
      page.hidden = hidden;
      page.dispatchEvent(new Event('visibilitychange'));
    };
    let probes = 0;
    const ranking = await compared('https://a/', {
      visibility: watchVisibility(page),
      open: async () =>
        source((bytes) => {
          assert.ok(!page.hidden, 'nothing is asked out of view');
          probes += 1;
          if (probes % 3 === 0) {
            show(true);
            setImmediate(() => show(false));
          }
          // Out of view everything is slow.
          return { parts: [{ bytes, took_s: (page.hidden ? 100 : 1) * (bytes / 1e7) }], rtts_s: [0] };
        }),
    });
    assert.ok(Math.abs(ranking.mirrors[0].goodput.value / 8e7 - 1) < 1e-9, `${ranking.mirrors[0].goodput.value}`);
    page.hidden = true;
    const cancel = new AbortController();
    const waiting = watchVisibility(page).ready(cancel.signal);
    cancel.abort(new Error('enough'));
    await assert.rejects(waiting, /enough/);
  });

  test('shows its progress', async () => {
    const seen = [];
    await compared('https://a/ https://b/', {
      onProgress: (now) => seen.push(structuredClone(now)),
      open: async () => source((bytes) => ({ parts: [{ bytes, took_s: 0.1 }], rtts_s: [0.01] })),
    });
    assert.deepEqual([seen[0].share, seen.at(-1).share], [0, 1]);
    assert.ok(seen.every(({ share }, i) => i === 0 || seen[i - 1].share <= share), 'never backwards');
    assert.deepEqual(seen[0].mirrors.map(({ state }) => state), ['opening', 'opening']);
    assert.ok(seen.some(({ mirrors }) => mirrors[1].state === 'probing'));
  });
});

function compared(list, options) {
  return compare({
    mirrors: parseMirrors(list),
    size_bytes: 1e8,
    budget_bytes: 2 ** 23,
    seed: 1,
    battery,
    explain: async (_, error) => error.message,
    visibility: { hidden_count: 0, ready: async () => {} },
    ...options,
  });
}

function source(probe) {
  return { ignores_range: false, probe: async (bytes) => probe(bytes), close: () => {} };
}

/** A web server in virtual time: 20 ms to the head, then 16 KiB every 10 ms. */
function fakeServer({ size = 0, ranges = true, status = null, stalls = false }) {
  const server = { asked: [], sent: 0, open: 0, clock_ms: 0, now: () => server.clock_ms };
  server.fetch = async (url, init) => {
    server.asked.push(init);
    server.clock_ms += 20;
    const [, end] = /^bytes=0-(\d+)$/.exec(init.headers.range);
    let left = ranges ? Math.min(size, Number(end) + 1) : size;
    const headers = new Headers({ 'content-length': String(left) });
    if (status !== null) return new Response(null, { status });
    server.open += 1;
    const body = new ReadableStream(
      {
        pull(controller) {
          if (stalls && 1 < server.asked.length) return new Promise(() => {});
          const chunk = Math.min(16_384, left);
          server.clock_ms += 10;
          server.sent += chunk;
          left -= chunk;
          controller.enqueue(new Uint8Array(chunk));
          if (left === 0) {
            controller.close();
            server.open -= 1;
          }
        },
        cancel: () => {
          server.open -= 1;
        },
      },
      { highWaterMark: 0 },
    );
    return new Response(body, { status: ranges ? 206 : 200, headers });
  };
  return server;
}
