// Builds the page into the station's crate, where it is embedded in the binary.
// `node build.mjs` writes; `node build.mjs --check` fails when what is committed differs.
import { mkdir, readFile, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

// Everything the browser loads, in bytes, as gzip sends it: small enough to open over the link being measured.
const WEIGHT_MAX = 155_000;

const here = fileURLToPath(new URL('.', import.meta.url));
const out = join(here, '../crates/station/web');

const bundle = await build({
  absWorkingDir: here,
  entryPoints: { app: 'src/main.js', worker: 'src/measure/worker.js', mirrors: 'src/mirrors/main.js', 'mirrors-stations': 'src/mirrors/stations.js', 'mirrors-page': 'src/mirrors/page.js' },
  outdir: out,
  bundle: true,
  minify: true,
  format: 'iife',
  target: ['chrome111', 'firefox113', 'safari16.4'],
  charset: 'utf8',
  legalComments: 'none',
  write: false,
});

const notice = await readFile(join(here, 'node_modules/uplot/LICENSE'), 'utf8');
const uplot = JSON.parse(await readFile(join(here, 'node_modules/uplot/package.json'), 'utf8'));
const files = new Map([
  ...bundle.outputFiles.map(({ path, contents }) => [path.slice(out.length + 1), Buffer.from(contents)]),
  ['index.html', await readFile(join(here, 'src/index.html'))],
  ['mirrors.html', await readFile(join(here, 'src/mirrors.html'))],
  ['icon.svg', await readFile(join(here, 'src/icon.svg'))],
  ['LICENSES.txt', Buffer.from(`The page contains uPlot ${uplot.version} (${uplot.homepage}):\n\n${notice.trim()}\n`)],
]);

// Built by scripts/build-wasm, not here: that needs Rust.
files.set('forecast.wasm', await readFile(join(out, 'forecast.wasm')));

const weighed = new Map([...files].map(([name, contents]) => [name, gzipSync(contents).length]));
const weight = [...weighed.values()].reduce((sum, bytes) => sum + bytes, 0);
if (WEIGHT_MAX < weight) throw new Error(`the page weighs ${weight} bytes compressed, more than ${WEIGHT_MAX}`);

if (process.argv.includes('--check')) await check();
else await write();
for (const [name, bytes] of weighed) console.log(`${String(bytes).padStart(7)} ${name}`);
console.log(`${String(weight).padStart(7)} bytes in all, compressed`);

async function write() {
  await mkdir(out, { recursive: true });
  for (const [name, contents] of files) await writeFile(join(out, name), contents);
}

async function check() {
  const stale = [];
  for (const [name, contents] of files) {
    const committed = await readFile(join(out, name)).catch(() => null);
    if (!committed?.equals(contents)) stale.push(name);
  }
  for (const name of await readdir(out).catch(() => [])) {
    if (!files.has(name)) stale.push(`${name} (not part of the page)`);
  }
  if (stale.length !== 0) throw new Error(`crates/station/web is not what web/ builds: ${stale.join(', ')}; run npm run build`);
}
