// Drives a headless Chromium for `lab equivalence`: JSON lines on standard input and output, one answer a request.
//
//   {"do":"open","url":"http://…/","chromium":"/usr/bin/chromium","fine_clock":true,"page":"own"|"bare"}
//     → {"ready":true,"clock_resolution_s":…,"isolated":…,"browser":"…","page":"own"|"bare"}
//   {"do":"measure","quantity":"rtt"|"rtt_nagle"|"goodput"|"goodput_down","n":1,"bytes":65536,"message_bytes":65536,"fresh":true}
//     → {"value":…,"samples":[…]}        s, or bit/s without any correction
//   any → {"error":"…"}
//
// It ends, and the browser with it, when its standard input does.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { bare } from './bare.mjs';

// Installed with the page's other tools, not here.
const { chromium } = createRequire(new URL('../../web/package.json', import.meta.url))('playwright-core');

// Nothing of a browser's own traffic beside what is measured, and no throttling of a page that nobody sees.
const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--disable-background-timer-throttling',
  '--disable-renderer-backgrounding',
  '--disable-backgrounding-occluded-windows',
];
const WAIT_MS_MAX = 30_000;
// A page that has the interface has it as soon as its script ran.
const OFFER_MS_MAX = 5_000;

let browser = null;
let page = null;
let communicator = null;

const DOES = { open, measure };

// Whoever started this decides when it ends: an interrupt from the terminal reaches it too.
process.on('SIGINT', () => {});
for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    const request = JSON.parse(line);
    answer = await (DOES[request.do] ?? unknown)(request);
  } catch (error) {
    answer = { error: String(error?.message ?? error).split('\n')[0] };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser?.close();

async function open({ url, chromium: executablePath, fine_clock, page: wanted }) {
  await browser?.close();
  const secure = fine_clock ? [`--unsafely-treat-insecure-origin-as-secure=${new URL(url).origin}`] : [];
  browser = await chromium.launch({ executablePath, args: [...FLAGS, ...secure], handleSIGINT: false, timeout: WAIT_MS_MAX });
  page = await browser.newPage();
  page.setDefaultTimeout(WAIT_MS_MAX);
  await page.goto(url);
  const offered = wanted === 'own' && (await page.waitForFunction(() => typeof globalThis.barograph?.measure === 'function', null, { timeout: OFFER_MS_MAX }).then(() => true, () => false));
  communicator = offered ? 'own' : 'bare';
  if (offered) await page.evaluate(() => globalThis.barograph.suspend());
  else await page.evaluate(bare);
  const clock = await page.evaluate(resolutionOfClock);
  return { ready: true, ...clock, browser: `Chromium ${browser.version()}`, page: communicator };
}

async function measure({ quantity, n, bytes, message_bytes, fresh }) {
  if (page === null) throw new Error('no page is open');
  // What is left to the page is absent: null is no number of bytes.
  const request = { quantity, n, bytes, message_bytes: message_bytes ?? undefined, fresh };
  if (fresh && communicator === 'own') await page.evaluate(giveSessionsBack);
  const measured = await page.evaluate(
    ([name, asked]) => globalThis[name].measure(asked),
    [communicator === 'own' ? 'barograph' : 'barographBare', request],
  );
  return { value: measured.raw ?? measured.value, samples: Array.from(measured.samples ?? []) };
}

function unknown(request) {
  throw new Error(`cannot do ${JSON.stringify(request.do)}`);
}

// The page's own communicator keeps its sessions until it is suspended, which it is: so it is woken for a moment.
async function giveSessionsBack() {
  const woken = globalThis.barograph.resume();
  await Promise.all([woken, globalThis.barograph.suspend()]);
}

/** The smallest step that the page's clock is seen to make, in s. */
function resolutionOfClock() {
  let least_ms = Infinity;
  for (let seen = 0, last = performance.now(), end = last + 200; seen < 200 && last < end; ) {
    const now = performance.now();
    if (last < now) {
      least_ms = Math.min(least_ms, now - last);
      last = now;
      seen += 1;
    }
  }
  return { clock_resolution_s: least_ms / 1000, isolated: globalThis.crossOriginIsolated === true };
}
