// A page with nothing but `window.barograph`, in the origin of a station: the communicator without the display.
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const src = fileURLToPath(new URL('../src/', import.meta.url));
const wasm = fileURLToPath(new URL('../../crates/station/web/forecast.wasm', import.meta.url));

/** Serves the bare page at `bare.html` of the station at `url`; `worker` is the source of another worker. */
export async function serveBare(context, url, { worker = `${src}measure/worker.js`, isolated = true } = {}) {
  const page = await bundle({
    stdin: {
      contents: `import { PageMeasurements, SIZES, obstacle } from './here.js';
        window.points = []; window.statuses = []; window.sizes = SIZES; window.inTheWay = obstacle;
        window.barograph = new PageMeasurements();
        window.barograph.on('point', (point) => window.points.push({ ...point, seen_ms: performance.now() }));
        window.barograph.on('status', (status) => { if (window.statuses.push(status) > 1000) window.statuses.shift(); });`,
      resolveDir: src,
    },
  });
  const files = {
    'bare.html': ['text/html', '<!doctype html><title>bare</title><script src="bare.js"></script>'],
    'bare.js': ['text/javascript', page],
    'worker.js': ['text/javascript', await bundleWorker(worker)],
    'forecast.wasm': ['application/wasm', await readFile(wasm)],
  };
  for (const [name, [contentType, body]] of Object.entries(files)) {
    await context.route(`${url}${name}`, (route) => route.fulfill({ contentType, body, headers: isolated ? ISOLATING : {} }));
  }
}

/** The source of the worker at `path` as one script. */
export function bundleWorker(path) {
  return bundle({ entryPoints: [path] });
}

async function bundle(options) {
  const built = await build({ bundle: true, format: 'iife', write: false, logLevel: 'error', ...options });
  return Buffer.from(built.outputFiles[0].contents);
}

// As a station sends them: the finer clock is for pages that are isolated from others.
const ISOLATING = {
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-embedder-policy': 'require-corp',
  'cross-origin-resource-policy': 'same-origin',
};
