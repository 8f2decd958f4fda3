// Ten hours at 1 s on the built page, faster than real time: the tab's memory stays as it was after
// ten minutes.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { startMock } from '../mock.mjs';
import { bundleWorker } from '../testkit/bare.mjs';
import { CHROMIUM, hasChromium, launch } from '../testkit/chromium.mjs';

if (!hasChromium) console.log(`SKIPPED: ten hours of measuring, because ${CHROMIUM} is absent`);

describe('ten hours at 1 s', { skip: !hasChromium && `${CHROMIUM} is absent` }, () => {
  test('the memory of the page and its worker does not grow', async (context) => {
    const browser = await launch();
    const mock = await startMock();
    try {
      const place = await browser.newContext({ viewport: { width: 1280, height: 900 } });
      const body = await bundleWorker(fileURLToPath(new URL('../testkit/ten-hours.worker.js', import.meta.url)));
      await place.route('**/worker.js', (route) => route.fulfill({ contentType: 'text/javascript', body }));
      await place.route('**/forecast.wasm', (route) => route.fulfill({ path: FORECASTER, contentType: 'application/wasm' }));
      await place.route('**/v1/station', async (route) => {
        const response = await route.fetch();
        const echo = { path: 'v1/echo', transfer_bytes_max: 1 << 24, keeps: false };
        await route.fulfill({ response, json: { ...(await response.json()), echo } });
      });
      await place.addInitScript(initScript());
      const page = await place.newPage();
      const heaps = await attachHeaps(await place.newCDPSession(page));
      await page.goto(mock.url);
      await page.waitForFunction(() => window.barograph?.status != null);

      await pass(page, TEN_MINUTES_S);
      const early = await heaps();
      const began_ms = Date.now();
      await pass(page, TEN_HOURS_S - TEN_MINUTES_S);
      const late = await heaps();
      const { cycles, missed, gaps } = await page.evaluate(() => barograph.status);
      assert.ok(Math.abs(cycles + missed - TEN_HOURS_S) <= 2 && missed < 100, `${cycles} cycles, ${missed} missed`);
      assert.equal(gaps, 0);
      // The history is returned between two cycles, so time must pass.
      const [{ count, dropped }] = await Promise.all([page.evaluate(() => barograph.history('rtt', 10)), pass(page, 60)]);
      assert.deepEqual([count, 0 < dropped], [16_384, true]);
      const grown = late.map((bytes, i) => bytes - early[i]);
      context.diagnostic(
        `${cycles} cycles in ${((Date.now() - began_ms) / 1000).toFixed(1)} s; after 10 minutes ${early.map(mb)} MB, ` +
          `after 10 hours ${late.map(mb)} MB (page, worker)`,
      );
      assert.equal(early.length, 2, 'the page and its worker were weighed');
      assert.ok(grown[0] + grown[1] < GROWTH_BYTES_MAX, `grew by ${grown.map(mb)} MB`);
    } finally {
      await browser.close();
      await mock.stop();
    }
  });
});

function initScript() {
  const settings = JSON.stringify({ period_s: 1, bytes: 65_536, kind: 'full', experiments: QUANTITIES });
  return { content: `localStorage.setItem('barograph.here', ${JSON.stringify(settings)})` };
}

/** Lets `s` seconds pass in the worker, a minute at a time, so that the page draws in between. */
function pass(page, s) {
  return page.evaluate(async (s) => {
    const time = new BroadcastChannel('time');
    for (let minute = 0; minute < s / 60; minute += 1) {
      const passed = new Promise((resolve) => (time.onmessage = resolve));
      time.postMessage({ advance_ms: 60_000 });
      await passed;
      await new Promise((resolve) => requestAnimationFrame(resolve));
    }
    time.close();
    // When the worker answers, all its messages have arrived. This request changes nothing.
    await barograph.resume();
  }, s);
}

/**
 * Returns a function that measures the heaps of a page and its worker, in bytes, after garbage
 * collection.
 */
async function attachHeaps(cdp) {
  const workers = new Map();
  const answers = new Map();
  let asked = 0;
  cdp.on('Target.attachedToTarget', ({ sessionId, targetInfo }) => workers.set(sessionId, targetInfo.type));
  cdp.on('Target.receivedMessageFromTarget', ({ message }) => {
    const { id, result } = JSON.parse(message);
    answers.get(id)?.(result);
  });
  await cdp.send('Target.setAutoAttach', { autoAttach: true, waitForDebuggerOnStart: false, flatten: false });
  const ask = (sessionId, method) =>
    new Promise((resolve) => {
      asked += 1;
      answers.set(asked, resolve);
      cdp.send('Target.sendMessageToTarget', { sessionId, message: JSON.stringify({ id: asked, method }) }).catch(resolve);
    });
  const weigh = async (send) => {
    // Objects freed by one collection may hold objects that the next one frees.
    for (let i = 0; i < 3; i += 1) await send('HeapProfiler.collectGarbage');
    const { usedSize, embedderHeapUsedSize = 0, backingStorageSize = 0 } = await send('Runtime.getHeapUsage');
    return usedSize + embedderHeapUsedSize + backingStorageSize;
  };
  return async () => {
    const heaps = [await weigh((method) => cdp.send(method))];
    for (const [sessionId, type] of workers) if (type === 'worker') heaps.push(await weigh((method) => ask(sessionId, method)));
    return heaps;
  };
}

function mb(bytes) {
  return (bytes / 1e6).toFixed(2);
}

const FORECASTER = fileURLToPath(new URL('../../crates/station/web/forecast.wasm', import.meta.url));
const QUANTITIES = ['rtt', 'rtt_nagle', 'rtt_loaded', 'goodput', 'goodput_down'];
const TEN_MINUTES_S = 600;
const TEN_HOURS_S = 36_000;
// Most growth of a heap between ten minutes and ten hours.
const GROWTH_BYTES_MAX = 5e6;
