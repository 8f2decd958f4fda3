// Drives a headless Chromium for `lab equivalence`: JSON lines on standard input and output, one answer a request.
// Every request has an `id`, which its answer repeats.
//
//   {"id":1,"do":"open","url":"http://…/","chromium":"/usr/bin/chromium","fine_clock":true}
//     → {"id":1,"clock_resolution_s":…,"isolated":…,"browser":"…"}
//   {"id":2,"do":"measure","quantity":"rtt"|"rtt_nagle"|"goodput"|"goodput_down","n":1,"bytes":65536,"message_bytes":65536,"fresh":true}
//     → {"id":2,"value":…,"samples":[…]}        s, or bit/s without any correction
//   {"id":3,"do":"cycle","size":"auto"|65536}
//     → {"id":3,"goodput":{"value":…,"at_least":…,"bytes":…},"goodput_down":{…}}        bit/s, as the page shows it
//   any → {"id":4,"error":"…"}; with "lost":true the page is gone, and has to be opened again
//
// It ends, and the browser with it, when its standard input does.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

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
// Its worker and forecaster are 65 KB, a third of a second on the slow link, and start once more after a failure.
const OFFER_MS_MAX = 15_000;
// Longer than the page itself allows a transfer.
const MEASURE_MS_MAX = 150_000;
const CLOSE_MS_MAX = 5_000;

class Late extends Error {}

let browser = null;
let page = null;

const DOES = { open, measure, cycle };

// Whoever started this decides when it ends: an interrupt from the terminal reaches it too.
process.on('SIGINT', () => {});
for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  let id = null;
  try {
    const request = JSON.parse(line);
    id = request.id;
    answer = await (DOES[request.do] ?? unknown)(request);
  } catch (error) {
    answer = { error: String(error?.message ?? error).split('\n')[0] };
    if (page === null) answer.lost = true;
  }
  process.stdout.write(`${JSON.stringify({ ...answer, id })}\n`);
}
await close();

async function open({ url, chromium: executablePath, fine_clock }) {
  await close();
  const secure = fine_clock ? [`--unsafely-treat-insecure-origin-as-secure=${new URL(url).origin}`] : [];
  browser = await chromium.launch({ executablePath, args: [...FLAGS, ...secure], handleSIGINT: false, timeout: WAIT_MS_MAX });
  const opened = await browser.newPage();
  opened.setDefaultTimeout(WAIT_MS_MAX);
  await opened.goto(url);
  const offered = opened.waitForFunction(() => globalThis.barograph?.status?.clock, null, { timeout: OFFER_MS_MAX });
  await offered.catch(() => {
    throw new Error('the page offers no window.barograph that measures');
  });
  await within(WAIT_MS_MAX, opened.evaluate(() => globalThis.barograph.suspend()));
  const { resolution_s, isolated } = await within(WAIT_MS_MAX, opened.evaluate(() => globalThis.barograph.status.clock));
  page = opened;
  return { clock_resolution_s: resolution_s, isolated, browser: `Chromium ${browser.version()}` };
}

async function measure({ quantity, n, bytes, message_bytes, fresh }) {
  if (page === null) throw new Error('no page is open');
  // What is left to the page is absent: null is no number of bytes.
  const request = { quantity, n, bytes, message_bytes: message_bytes ?? undefined, fresh };
  const asked = page.evaluate((request) => globalThis.barograph.measure(request), request);
  const measured = await within(MEASURE_MS_MAX, asked);
  return { value: measured.raw ?? measured.value, samples: Array.from(measured.samples ?? []) };
}

async function cycle({ size }) {
  if (page === null) throw new Error('no page is open');
  const measured = page.evaluate(async (size) => {
    const points = {};
    globalThis.barograph.setSize(size);
    const end = globalThis.barograph.on('point', (point) => (points[point.quantity] = point));
    try {
      await globalThis.barograph.measureNow();
    } finally {
      end();
    }
    const shown = ({ value, error, detail }) => ({ value, error, at_least: detail?.at_least === true, bytes: detail?.bytes });
    return Object.fromEntries(['goodput', 'goodput_down'].map((quantity) => [quantity, shown(points[quantity] ?? {})]));
  }, size);
  const points = await within(MEASURE_MS_MAX, measured);
  for (const [quantity, { value, error }] of Object.entries(points)) {
    if (value === undefined) throw new Error(`${quantity}: ${error ?? 'no value'}`);
  }
  return points;
}

/** What a page does, unless it takes too long: then nobody knows what it still does, and the browser is closed. */
async function within(ms, asked) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Late(`the page did not answer within ${ms / 1000} s`)), ms);
  });
  try {
    return await Promise.race([asked, late]);
  } catch (error) {
    // A page that answers late finds nobody.
    asked.catch(() => {});
    if (error instanceof Late || browser?.isConnected() !== true || page?.isClosed() === true) await close();
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** A browser that does not close in good time is left to itself: the next one is another. */
async function close() {
  const closing = browser?.close().catch(() => {});
  browser = null;
  page = null;
  let timer;
  await Promise.race([closing, new Promise((resolve) => (timer = setTimeout(resolve, CLOSE_MS_MAX)))]);
  clearTimeout(timer);
}

function unknown(request) {
  throw new Error(`cannot do ${JSON.stringify(request.do)}`);
}
