// Invented mirrors and sites, for the tests of mirrors and for looking at the page.
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { loadForecaster } from '../src/measure/forecaster.js';

/** Numbers in [0, 1) from a seed, by a linear congruential generator (Knuth's MMIX). */
export function seeded(seed) {
  let state = BigInt(seed);
  return () => {
    state = (state * 6364136223846793005n + 1442695040888963407n) % 2n ** 64n;
    return Number(state >> 11n) / 2 ** 53;
  };
}

/** Makes batteries of the forecaster that pages have. */
export async function batteries() {
  return loadForecaster(await readFile(new URL('../../crates/station/web/forecast.wasm', import.meta.url)));
}

/**
 * A web server with a file of 64 MiB, paced to about `rate` bit/s by a seeded generator. `cors` allows other sites,
 * `ranges` serves parts, `hangs` accepts and says nothing. `sent_bytes` counts what went into bodies.
 */
export async function startMirror({ rate = 1e9, cors = true, ranges = true, hangs = false, spread = 0.02, seed = 1, status = null } = {}) {
  const random = seeded(seed);
  const mirror = { sent_bytes: 0, requests: 0 };
  const answer = (request, response) => {
    mirror.requests += 1;
    if (hangs) return;
    if (cors) response.setHeader('access-control-allow-origin', '*');
    const [, end] = /^bytes=0-(\d+)$/.exec(request.headers.range ?? '') ?? [];
    const part = ranges && end !== undefined;
    const bytes = part ? Math.min(FILE_BYTES, Number(end) + 1) : FILE_BYTES;
    response.writeHead(status ?? (part ? 206 : 200), { 'content-length': bytes, 'content-type': 'application/octet-stream' });
    if (request.method === 'HEAD' || status !== null) return response.end();
    pace(response, bytes, rate * Math.exp(spread * (random() + random() + random() - 1.5) * 2), (sent) => (mirror.sent_bytes += sent));
  };
  return Object.assign(mirror, await listen(answer), { file: '/pub/file.iso' });
}

/** A site of `files`: path to `{body, type, headers}`. */
export function startSite(files) {
  return listen((request, response) => {
    const file = files[new URL(request.url, 'http://site').pathname];
    if (!file) return response.writeHead(404).end();
    response.writeHead(200, { 'content-type': file.type ?? 'text/html; charset=utf-8', ...file.headers }).end(file.body);
  });
}

/** The built page as a station serves it, policies included. */
export async function startStationSite() {
  const types = { html: 'text/html; charset=utf-8', js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml', wasm: 'application/wasm' };
  const names = ['mirrors.html', 'mirrors.js', 'mirrors-page.js', 'mirrors-stations.js', 'mirrors-page.css', 'app.css', 'icon.svg', 'forecast.wasm'];
  const open = ['mirrors.js', 'mirrors-stations.js', 'forecast.wasm'];
  const files = {};
  for (const name of names) {
    const everyone = open.includes(name) ? { 'access-control-allow-origin': '*', 'cross-origin-resource-policy': 'cross-origin' } : { 'cross-origin-resource-policy': 'same-origin' };
    files[`/${name}`] = {
      body: await readFile(new URL(`../../crates/station/web/${name}`, import.meta.url)),
      type: types[name.split('.').at(-1)],
      headers: {
        ...everyone,
        'cross-origin-opener-policy': 'same-origin',
        'cross-origin-embedder-policy': 'require-corp',
        'content-security-policy':
          "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; style-src 'self'; " +
          "img-src 'self' data:; connect-src 'self' http: https: ws: wss:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      },
    };
  }
  return startSite(files);
}

function pace(response, bytes, rate, count) {
  const began_ms = performance.now();
  let sent = 0;
  const timer = setInterval(() => {
    const due = Math.min(bytes, Math.ceil(((performance.now() - began_ms) * rate) / 8000));
    // A slow reader is not written to without end.
    if (due <= sent || response.writableNeedDrain) return;
    const chunk = Math.min(due - sent, 2 ** 18);
    sent += chunk;
    count(chunk);
    response.write(ZEROS.subarray(0, chunk));
    if (sent === bytes) {
      clearInterval(timer);
      response.end();
    }
  }, 1);
  response.on('close', () => clearInterval(timer));
}

async function listen(answer) {
  const server = createServer(answer);
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const stop = () =>
    new Promise((resolve) => {
      server.close(resolve);
      server.closeAllConnections();
    });
  return { url: `http://127.0.0.1:${server.address().port}`, stop };
}

const FILE_BYTES = 2 ** 26;
const ZEROS = Buffer.alloc(2 ** 18);
