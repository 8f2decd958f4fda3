// The comparison in a browser: `window.barographMirrors`, documented in docs/guide/mirrors.md.
import { loadForecaster } from '../measure/forecaster.js';
import { watchVisibility } from './visibility.js';
import { compare } from './compare.js';
import { Download, explainFailure } from './download.js';
import { within } from './limit.js';
import { parseMirrors } from './list.js';
import { BUDGET_BYTES } from './plan.js';

/**
 * Makes the compare function for a script from `base`, the station with the forecaster. `nonce` is
 * the one that the page's policy requires of scripts, if any.
 *
 * It measures on the thread of the page. A worker from another origin needs a blob address, which
 * the policy of an embedding site may forbid, and the reader of a download would still pass its
 * bytes between threads. A busy page makes probes look slower, never faster, and, because of the
 * rounds, those of all mirrors alike.
 */
export function comparerFrom(base, { nonce = '' } = {}) {
  const violations = watchPolicy();
  const visibility = watchVisibility(document);
  let forecaster = null;

  return async function barographMirrors(options = {}) {
    const { mirrors: list, size_bytes, budget_bytes = BUDGET_BYTES.usual, seed = randomSeed(), signal, onProgress } = options;
    if (!(Number.isFinite(size_bytes) && 1 <= size_bytes)) throw new RangeError('size_bytes must be the size of the file, at least 1.');
    const mirrors = parseMirrors(list, { secure: location.protocol === 'https:' });
    // Before the first probe: without a forecaster, no bytes are spent.
    forecaster ??= within(LOAD_MS_MAX, undefined, (inner) => readForecaster(base, inner));
    const battery = await within(LOAD_MS_MAX, signal, () => forecaster).catch((error) => {
      forecaster = null;
      throw error;
    });
    if (mirrors.some(({ kind, refusal }) => kind === 'station' && !refusal)) {
      // Without it, downloads can still be measured; only stations are refused.
      await within(LOAD_MS_MAX, signal, () => loadStation(base, nonce)).catch((error) => {
        signal?.throwIfAborted();
        for (const mirror of mirrors) if (mirror.kind === 'station') mirror.refusal ??= error.message;
      });
    }
    const { Station } = window.barographMirrors;
    const open = ({ kind, url }, inner) => (kind === 'station' ? Station : Download).open(url, { signal: inner });
    const explain = async ({ kind, url }, error, inner) => {
      const text = kind === 'station' ? error.message : await explainFailure(url, error, { signal: inner });
      // The browser reports a violation in a task of its own.
      await new Promise((resolve) => setTimeout(resolve));
      return violations.has(new URL(url).host) ? FORBIDDEN : text;
    };
    return compare({ mirrors, size_bytes, budget_bytes, seed, signal, onProgress, battery, open, explain, visibility });
  };
}

async function readForecaster(base, signal) {
  const response = await fetch(new URL('forecast.wasm', base), { signal, credentials: 'omit' }).catch(() => null);
  if (!response?.ok) throw new Error(`The forecaster could not be loaded from ${base.host}. Check the connection, then compare again.`);
  try {
    return await loadForecaster(response);
  } catch (error) {
    if (!(error instanceof WebAssembly.CompileError)) throw error;
    throw new Error("This page's Content-Security-Policy does not allow WebAssembly: its script-src needs 'wasm-unsafe-eval'.");
  }
}

/**
 * Loads the script that measures stations (stations.js). A script, because a policy that allowed
 * this one, by its host or a nonce, allows that one, too.
 */
async function loadStation(base, nonce) {
  if (window.barographMirrors.Station) return;
  const script = document.createElement('script');
  if (nonce) script.nonce = nonce;
  script.src = new URL('mirrors-stations.js', base).href;
  await new Promise((resolve, reject) => {
    script.onload = resolve;
    script.onerror = () => reject(new Error(`the script that measures stations could not be loaded from ${base.host}`));
    document.head.append(script);
  }).finally(() => script.remove());
}

/** Hosts to which the page's own policy forbids requests. */
function watchPolicy() {
  const hosts = new Set();
  document.addEventListener('securitypolicyviolation', ({ effectiveDirective, blockedURI }) => {
    if (effectiveDirective !== 'connect-src' || HOSTS_MAX <= hosts.size) return;
    try {
      hosts.add(new URL(blockedURI).host);
    } catch {
      // Not an address, so not a mirror.
    }
  });
  return hosts;
}

function randomSeed() {
  return crypto.getRandomValues(new Uint32Array(1))[0];
}

const FORBIDDEN = "this page's own Content-Security-Policy does not allow this address; add it to connect-src";
// 40 KB over any link on which mirrors matter.
const LOAD_MS_MAX = 15_000;
// A policy may forbid many requests; only some hosts are kept.
const HOSTS_MAX = 1000;
