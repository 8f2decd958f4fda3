// The page as it is shipped: a real station serves it, and a real browser uses its controls.
// Nothing is replaced.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { after, before, describe, test } from 'node:test';
import { CHROMIUM, hasChromium, launch } from '../testkit/chromium.mjs';
import { BAROGRAPH, hasStation, startStation } from '../testkit/station.mjs';

const missing = !hasChromium ? `${CHROMIUM} is absent` : !hasStation ? `${BAROGRAPH} is absent` : false;
if (missing) console.log(`SKIPPED: the page of a real station, because ${missing}`);
const WAIT_MS_MAX = 60_000;

describe('the page of a real station', { skip: missing }, () => {
  let browser;
  before(async () => {
    browser = await launch();
  });
  after(() => browser?.close());

  test('measures, obeys its controls, and exports its points as a file', async () => {
    await withPage(browser, async ({ page, context, station, complaints, requests }) => {
      const { count, text } = readers(page);
      await page.waitForFunction(() => document.querySelector('.console [data-quantity="rtt"] .count')?.textContent === '1');
      assert.equal(await page.evaluate(() => crossOriginIsolated), true, "by the station's own headers");
      assert.equal(await page.evaluate(() => barograph.status.clock.isolated), true, 'and its worker too');
      assert.equal(await text('#own_server'), 'aneroid');
      // Settings reach the worker, and the next points follow them.
      await page.evaluate(() => {
        window.points = [];
        barograph.on('point', (point) => window.points.push(point));
      });
      await page.getByRole('combobox', { name: 'Every' }).selectOption('1');
      await page.getByLabel('Bulk test of').selectOption(String(131_072));
      await page.waitForFunction(() => points.some(({ quantity, value, detail }) => quantity === 'goodput' && 0 < value && detail.bytes === 131_072));
      await page.waitForFunction(() => /^measuring every 1\D?s$/.test(document.getElementById('own_state').textContent));
      for (const quantity of ['rtt', 'rtt_nagle', 'goodput', 'goodput_down']) {
        await page.waitForFunction((quantity) => points.some((point) => point.quantity === quantity && 0 < point.value && point.forecast !== undefined), quantity);
        assert.match(await text(`.console [data-quantity="${quantity}"] .ahead`), /\d/, `${quantity} is forecast`);
      }

      await page.getByRole('button', { name: 'Suspend' }).click();
      await page.waitForFunction(() => document.getElementById('own_state').textContent === 'suspended');
      const before = await count('rtt');
      await page.getByRole('button', { name: 'Measure now' }).click();
      await page.waitForFunction((before) => before < Number(document.querySelector('.console [data-quantity="rtt"] .count').textContent), before);
      assert.equal(await count('rtt'), before + 1, 'suspended, it measures what it is asked to and no more');
      await page.getByRole('button', { name: 'Resume' }).click();
      await page.waitForFunction((before) => before + 2 < Number(document.querySelector('.console [data-quantity="rtt"] .count').textContent), before);
      assert.deepEqual(complaints, [], 'no error, and nothing against the content security policy');

      await context.setOffline(true);
      await page.waitForFunction(() => barograph.status.state === 'offline');
      await page.waitForFunction(() => document.getElementById('own_state').textContent === 'this browser is offline');
      const away = await page.evaluate(() => points.length);
      await context.setOffline(false);
      await page.waitForFunction((away) => points.slice(away).some(({ value, detail }) => 0 < value && detail.gap), away);
      assert.deepEqual(await page.evaluate(() => points.filter(({ error }) => error)), [], 'a gap is no failure');
      assert.deepEqual(complaints.filter((text) => !/ERR_INTERNET_DISCONNECTED/.test(text)), []);
      assert.deepEqual(requests.filter((url) => !url.startsWith(station.url) && !/^(blob|data):/.test(url)), [], 'only its station is asked');

      await page.getByRole('button', { name: 'Suspend' }).click();
      await page.waitForFunction(() => document.getElementById('own_state').textContent === 'suspended');
      const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Download measurements as CSV' }).click()]);
      assert.match(download.suggestedFilename(), /^barograph_aneroid_.*\.csv$/);
      const rows = readRows(await readFile(await download.path(), 'utf8'));
      const measured = rows.filter(({ quantity, value }) => quantity === 'rtt' && value !== '').map(({ time_s, value }) => [Number(time_s), Number(value)]);
      assert.equal(measured.length, await count('rtt'));
      // The values are those that `barograph forecast` reads, and its forecast is that of the page.
      const [values, next] = await page.evaluate(async () => [await barograph.csv('rtt'), (await barograph.history('rtt', 1)).next]);
      assert.deepEqual(values.split(/\r?\n/).filter((line) => /^\d/.test(line)).map((line) => Number(line.split(',')[1])), measured.map(([, value]) => value));
      const told = JSON.parse(execFileSync(BAROGRAPH, ['forecast', '-', '--json'], { input: values, encoding: 'utf8' }));
      assert.equal(told.median.value, next.median.value, JSON.stringify(told));
    });
  });
});

/** Readers of the figures in the console and the facts. */
function readers(page) {
  const text = (selector) => page.locator(selector).textContent();
  return { text, count: async (quantity) => Number(await text(`.console [data-quantity="${quantity}"] .count`)) };
}

/** Rows of a CSV file without quoted texts. */
function readRows(csv) {
  const [head, ...lines] = csv.trimEnd().split(/\r?\n/).map((line) => line.split(','));
  return lines.map((line) => Object.fromEntries(head.map((name, i) => [name, line[i]])));
}

/** Runs `body` on the page that a new station serves. */
async function withPage(browser, body) {
  const station = await startStation();
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  try {
    const page = await context.newPage();
    page.setDefaultTimeout(WAIT_MS_MAX);
    const complaints = [];
    const requests = [];
    page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('request', (request) => requests.push(request.url()));
    await page.goto(station.url);
    await body({ page, context, station, complaints, requests });
  } finally {
    await context.close();
    await station.end();
  }
}
