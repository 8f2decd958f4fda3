// The comparison with the browser's world around it: `window.barographMirrors`, documented in docs/mirrors.md.
import { loadForecaster } from '../weather/forecaster.js';
import { watchAttention } from './attention.js';
import { compare } from './compare.js';
import { Download, explainFailure } from './download.js';
import { within } from './limit.js';
import { parseMirrors } from './list.js';
import { BUDGET_BYTES } from './plan.js';

/**
 * Makes the function that compares, for a script that came from `base`, the station that has the forecaster;
 * `nonce` is what the page's policy asks of scripts, if it does.
 *
 * It measures on the thread of the page: a worker from another origin needs a blob address, which the policy of an
 * embedding site may forbid, and the reader of a download would still hand its bytes over between threads. A page
 * that is busy makes probes look slower, never faster, and because of the rounds those of all mirrors alike.
 */
export function comparerFrom(base, { nonce = '' } = {}) {
  const violations = watchPolicy();
  const attention = watchAttention(document);
  let forecaster = null;

  return async function barographMirrors(options = {}) {
    const { mirrors: list, size_bytes, budget_bytes = BUDGET_BYTES.usual, seed = randomSeed(), signal, onProgress } = options;
    if (!(Number.isFinite(size_bytes) && 1 <= size_bytes)) throw new RangeError('size_bytes is the size of the file, at least 1.');
    const mirrors = parseMirrors(list, { secure: location.protocol === 'https:' });
    // Before the first probe: nobody's bytes are spent when there is no forecast to be had.
    forecaster ??= within(LOAD_MS_MAX, undefined, (inner) => readForecaster(base, inner));
    const battery = await within(LOAD_MS_MAX, signal, () => forecaster).catch((error) => {
      forecaster = null;
      throw error;
    });
    if (mirrors.some(({ kind, refusal }) => kind === 'station' && !refusal)) {
      // Without it downloads can still be measured; only the stations are refused.
      await within(LOAD_MS_MAX, signal, () => loadStation(base, nonce)).catch((error) => {
        signal?.throwIfAborted();
        for (const mirror of mirrors) if (mirror.kind === 'station') mirror.refusal ??= error.message;
      });
    }
    const { Station } = window.barographMirrors;
    const open = ({ kind, url }, inner) => (kind === 'station' ? Station : Download).open(url, { signal: inner });
    const explain = async ({ kind, url }, error, inner) => {
      const text = kind === 'station' ? error.message : await explainFailure(url, error, { signal: inner });
      // The browser tells of a violation in a task of its own.
      await new Promise((resolve) => setTimeout(resolve));
      return violations.has(new URL(url).host) ? FORBIDDEN : text;
    };
    return compare({ mirrors, size_bytes, budget_bytes, seed, signal, onProgress, battery, open, explain, attention });
  };
}

async function readForecaster(base, signal) {
  const response = await fetch(new URL('forecast.wasm', base), { signal, credentials: 'omit' }).catch(() => null);
  if (!response?.ok) throw new Error(`The forecaster could not be loaded from ${base.host}.`);
  try {
    return await loadForecaster(response);
  } catch (error) {
    if (!(error instanceof WebAssembly.CompileError)) throw error;
    throw new Error("This page's Content-Security-Policy does not allow WebAssembly: its script-src needs 'wasm-unsafe-eval'.");
  }
}

/** What measures stations (stations.js): a script, because a policy that allowed this one, by its host or a nonce, allows that one too. */
async function loadStation(base, nonce) {
  if (window.barographMirrors.Station) return;
  const script = document.createElement('script');
  if (nonce) script.nonce = nonce;
  script.src = new URL('mirrors-stations.js', base).href;
  await new Promise((resolve, reject) => {
    script.onload = resolve;
    script.onerror = () => reject(new Error(`what measures stations could not be loaded from ${base.host}`));
    document.head.append(script);
  }).finally(() => script.remove());
}

/** The hosts that this page's own policy forbade to ask. */
function watchPolicy() {
  const hosts = new Set();
  document.addEventListener('securitypolicyviolation', ({ effectiveDirective, blockedURI }) => {
    if (effectiveDirective !== 'connect-src' || HOSTS_MAX <= hosts.size) return;
    try {
      hosts.add(new URL(blockedURI).host);
    } catch {
      // Not an address, so not one of ours.
    }
  });
  return hosts;
}

function randomSeed() {
  return crypto.getRandomValues(new Uint32Array(1))[0];
}

const FORBIDDEN = "this page's own Content-Security-Policy does not allow asking it (connect-src)";
// 40 KB over any link on which mirrors matter.
const LOAD_MS_MAX = 15_000;
// A page may be refused many things; only what concerns mirrors is kept.
const HOSTS_MAX = 1000;
