// The built page in a real browser: its own measurements, from a communicator with invented values.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, describe, test } from 'node:test';
import { CHROMIUM, hasChromium, launch } from '../testkit/chromium.mjs';
import { PageMeasurements } from '../src/here.js';
import { DEFAULTS } from '../src/measure/settings.js';
import { eventually, inked, until, withPage } from '../testkit/page.mjs';

if (!hasChromium) console.log(`SKIPPED: what the page measures, because ${CHROMIUM} is absent (install chromium, or set CHROMIUM)`);

const OWN = { mock: { here: 80 } };

describe('what the page measures', { skip: !hasChromium && `${CHROMIUM} is absent` }, () => {
  let browser;
  before(async () => {
    browser = await launch();
  });
  after(() => browser?.close());

  test('points appear in the graph and in the console', async () => {
    await withPage(browser, OWN, async ({ page, complaints }) => {
      await inked(cardOf(page, 'Round-trip time'));
      await tell(page, 'put', 'rtt', { value: 0.123 });
      await eventually(page, cell(page, 'rtt', 'now'), /^123\u202fms$/);
      for (let i = 0; i < 8; i += 1) await tell(page, 'put', 'rtt', { value: 0.321 });
      await eventually(page, cell(page, 'rtt', 'ahead'), /^321\u202fms$/);
      assert.match(await cell(page, 'rtt', 'mse').textContent(), /^[\d.]+\u202fms²$/);
      assert.match(await cell(page, 'goodput', 'mse').textContent(), /²$/);
      assert.match(await cell(page, 'rtt', 'method').textContent(), /^median/);
      assert.match(await cardOf(page, 'Round-trip time').locator('[role=img]').getAttribute('aria-label'), /^rtt to aneroid: last 321.ms; next 321.ms/);
      assert.equal(await page.locator('#own_server').textContent(), 'aneroid');
      assert.deepEqual(complaints, [], 'no error, and nothing against the content security policy');
    });
  });

  test('the axes of a graph follow the points from the first point on', async () => {
    await withPage(browser, { mock: { here: 0 } }, async ({ page }) => {
      const card = cardOf(page, 'Goodput');
      await eventually(page, page.locator('#own_state'), /^measuring/); // Now the page listens.
      for (let i = 0; i < 5; i += 1) await tell(page, 'put', 'goodput', { value: 7e6 + i }, 1.7e9 + i);
      await eventually(page, cell(page, 'goodput', 'count'), /^5$/);
      await inked(card, ['--measured']);
      for (let i = 5; i < 30; i += 1) await tell(page, 'put', 'goodput', { value: 40e6 * (1 + (i % 3)) }, 1.7e9 + i);
      await eventually(page, cell(page, 'goodput', 'count'), /^30$/);
      await until(async () => 20 < (await inkInTheMiddle(card)));
    });
  });

  test('a failure is shown in words and counted, without a value', async () => {
    await withPage(browser, OWN, async ({ page }) => {
      await eventually(page, cell(page, 'goodput', 'count'), /^80$/);
      await tell(page, 'put', 'goodput', { error: 'timed_out' });
      await eventually(page, cell(page, 'goodput', 'now'), /^timed out$/);
      assert.equal(await cell(page, 'goodput', 'failed').textContent(), '1');
      assert.equal(await cell(page, 'goodput', 'count').textContent(), '80');
    });
  });

  test('a lower bound is marked, and two failures withdraw the forecast', async () => {
    await withPage(browser, { mock: { here: 0 } }, async ({ page }) => {
      await eventually(page, page.locator('#own_state'), /^measuring/);
      const event = { source: 'this browser', target: 'aneroid', quantity: 'goodput', unit: 'bit/s', time_s: 1.7e9 };
      const next = { time_s: 1.7e9, median: { value: 49e6, mae: 1e6, method: 'Last Value' }, at_least: true, count: 1 };
      const send = (more) =>
        page.evaluate((event) => globalThis.barograph.listeners.point.forEach((take) => take(event)), { ...event, next, ...more });
      await send({ value: 49e6, detail: { n: 1, at_least: true } });
      await eventually(page, cell(page, 'goodput', 'now'), /^at least 49\.0\u202fMbit\/s$/);
      await eventually(page, cell(page, 'goodput', 'ahead'), /^at least 49\.0\u202fMbit\/s$/);
      await send({ error: 'timed_out', time_s: 1.7e9 + 5 });
      await eventually(page, cell(page, 'goodput', 'now'), /^timed out$/);
      assert.match(await cell(page, 'goodput', 'ahead').textContent(), /^at least/, 'one failure may be an accident');
      await send({ error: 'timed_out', time_s: 1.7e9 + 10 });
      await eventually(page, cell(page, 'goodput', 'interval'), /^no answer since .*; last forecast at least 49\.0\u202fMbit\/s$/);
      assert.equal(await cell(page, 'goodput', 'ahead').textContent(), '–');
    });
  });

  test('reports that the browser is the limit only on its own computer', async () => {
    await withPage(browser, OWN, async ({ page }) => {
      await eventually(page, page.locator('#own_limit'), /the browser, not a network, is the limit/);
      await tell(page, 'say', { station_url: 'http://aneroid.example:10132/', on_this_computer: false });
      await until(async () => !(await page.locator('#own_limit').isVisible()));
      await tell(page, 'say', { on_this_computer: true });
      await eventually(page, page.locator('#own_limit'), /the browser, not a network, is the limit/);
    });
  });

  test('the fake communicator has the default size and forecaster', async () => {
    await withPage(browser, OWN, async ({ page }) => {
      const { bytes, kind } = await page.evaluate(() => globalThis.barograph.status);
      assert.deepEqual({ bytes, kind }, { bytes: DEFAULTS.bytes, kind: DEFAULTS.kind });
      await eventually(page, page.locator('#fact_hourly'), /^bulk tests at most 256\u202fMiB an hour$/);
    });
  });

  test('a station whose name becomes known keeps its graphs', async () => {
    await withPage(browser, OWN, async ({ page }) => {
      await eventually(page, cell(page, 'rtt', 'count'), /^80$/);
      await page.evaluate(() => {
        for (const series of globalThis.barograph.series.values()) series.target = 'barometer';
        globalThis.barograph.say({ server: 'barometer' });
        globalThis.barograph.put('rtt', { value: 0.5 });
      });
      await eventually(page, cell(page, 'rtt', 'now'), /^500/);
      assert.equal(await cell(page, 'rtt', 'count').textContent(), '81');
      assert.notEqual(await cell(page, 'goodput', 'now').textContent(), '–');
    });
  });

  test('period, size, forecaster and station reach the communicator', async () => {
    await withPage(browser, OWN, async ({ page }) => {
      await page.getByRole('combobox', { name: 'Every' }).selectOption('1');
      await page.getByLabel('Bulk test of').selectOption(String(1024 * 1024));
      await page.getByLabel('Forecaster').selectOption('nws');
      await page.getByLabel('Measure against').fill('https://other.example/');
      await page.getByLabel('Measure against').press('Enter');
      await eventually(page, page.locator('#own_server'), /^other\.example$/);
      assert.deepEqual(await calls(page), [['setPeriod', 1], ['setSize', 1048576], ['setForecaster', 'nws'], ['setStation', 'https://other.example/']]);
      await eventually(page, page.locator('#own_state'), /^measuring every 1\u202fs$/);
      assert.ok(await page.locator('#size option', { hasText: '16' }).isDisabled(), 'more than the station takes');
      await tell(page, 'put', 'rtt', { value: 0.5 });
      await eventually(page, cell(page, 'rtt', 'now'), /^500/);
      await until(async () => (await cardOf(page, 'Goodput').locator('canvas').count()) === 0);
      assert.equal(await cell(page, 'rtt', 'count').textContent(), '1', 'the other station has series of its own');
      assert.equal(await cell(page, 'goodput', 'now').textContent(), '–');
    });
  });

  test('an invalid address is rejected with a sentence', async () => {
    await withPage(browser, OWN, async ({ page }) => {
      await page.getByLabel('Measure against').fill('ftp://station.example/');
      await eventually(page, page.locator('#obstacle'), /\w+ .*\./);
      await page.getByRole('button', { name: 'Go there' }).click();
      assert.deepEqual(await calls(page), []);
      assert.equal(await page.getByLabel('Measure against').getAttribute('aria-invalid'), 'true');
      await page.getByLabel('Measure against').fill('http://192.168.1.1/');
      await eventually(page, page.locator('#obstacle'), /may ask/);
      await page.getByLabel('Measure against').press('Enter');
      await until(async () => (await calls(page)).length === 1);
    });
  });

  test('the buttons suspend, resume and measure now', async () => {
    await withPage(browser, OWN, async ({ page }) => {
      await page.getByRole('button', { name: 'Suspend' }).click();
      await eventually(page, page.locator('#own_state'), /^suspended$/);
      await page.getByRole('button', { name: 'Measure now' }).click();
      await page.getByRole('button', { name: 'Resume' }).click();
      await eventually(page, page.locator('#own_state'), /^measuring every/);
      assert.deepEqual(await calls(page), [['suspend'], ['measureNow'], ['resume']]);
      await eventually(page, cell(page, 'rtt', 'count'), /^81$/);
    });
  });

  test('a hidden graph does not stop the numbers of its series', async () => {
    await withPage(browser, OWN, async ({ page }) => {
      const card = cardOf(page, 'Round-trip time');
      await inked(card);
      await page.getByRole('checkbox', { name: 'Graph of Round-trip time', exact: true }).uncheck();
      await card.waitFor({ state: 'hidden' });
      await until(async () => (await card.locator('canvas').count()) === 0);
      await tell(page, 'put', 'rtt', { value: 0.777 });
      await eventually(page, cell(page, 'rtt', 'now'), /^777\u202fms$/);
      assert.deepEqual(await calls(page), [], 'the communicator is told nothing');
      await page.getByRole('checkbox', { name: 'Graph of Round-trip time', exact: true }).check();
      await inked(card);
    });
  });

  test('the forecast can have its own graph', async () => {
    await withPage(browser, OWN, async ({ page }) => {
      const card = cardOf(page, 'Goodput down');
      await inked(card);
      await page.getByLabel('Forecast in').selectOption('own');
      await until(async () => (await card.locator('canvas').count()) === 2);
      await inked(card.locator('.paper').nth(0), ['--measured']);
      await inked(card.locator('.paper').nth(1), ['--forecast']);
      await page.getByLabel('Forecast in').selectOption('same');
      await until(async () => (await card.locator('canvas').count()) === 1);
      await inked(card);
    });
  });

  test('the whole history is requested from the communicator, but not for every point', async () => {
    await withPage(browser, OWN, async ({ page }) => {
      await inked(cardOf(page, 'Round-trip time'));
      await page.locator('#own_span').selectOption('everything');
      await until(async () => (await calls(page)).some(([name, quantity]) => name === 'history' && quantity === 'rtt'));
      for (let i = 0; i < 30; i += 1) await tell(page, 'put', 'rtt', { value: 0.02 + i / 1000 });
      await eventually(page, cell(page, 'rtt', 'now'), /^49\.0/);
      assert.equal((await calls(page)).filter(([name, quantity]) => name === 'history' && quantity === 'rtt').length, 1);
      await cardOf(page, 'Round-trip time').locator('.u-over').hover();
      await eventually(page, cardOf(page, 'Round-trip time').locator('.read-out'), /ms/);
    });
  });

  test('CSV and JSON files have the name of the station', async () => {
    await withPage(browser, OWN, async ({ page }) => {
      await eventually(page, cell(page, 'rtt', 'count'), /\d/);
      for (const [button, name, start] of [
        ['Download measurements as CSV', /^barograph_aneroid_\d{4}-\d\d-\d\dT\d{6}Z\.csv$/, 'quantity,time_s'],
        ['Download measurements as JSON', /^barograph_aneroid_\d{4}-\d\d-\d\dT\d{6}Z\.json$/, '{"series":[{"source"'],
      ]) {
        const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: button }).click()]);
        assert.match(download.suggestedFilename(), name);
        assert.ok((await readFile(await download.path(), 'utf8')).startsWith(start));
      }
    });
  });

  test('the table has the points of the graph and the uncorrected rates', async () => {
    await withPage(browser, OWN, async ({ page }) => {
      const card = cardOf(page, 'Goodput');
      await card.getByRole('button', { name: /^Table of Goodput/ }).press('Enter');
      await tell(page, 'put', 'goodput', { value: 20e6 });
      await eventually(page, card.locator('caption'), /^Goodput, this browser to aneroid: the last 512 points at most$/);
      await eventually(page, card.locator('tbody tr').first(), /20\.0\u202fMbit\/s18\.6\u202fMbit\/s/);
      assert.deepEqual(await card.locator('thead th').allTextContents(), ['Time', 'Measured', 'Uncorrected', 'Forecast', 'Interval', 'Method']);
      assert.equal(await card.locator('tbody tr').count(), 81);
    });
  });

  test('problems are shown, and measured values stay', async () => {
    await withPage(browser, OWN, async ({ page }) => {
      await eventually(page, cell(page, 'rtt', 'now'), /ms/);
      await tell(page, 'say', { state: 'unreachable', message: 'The station refused the session.', gaps: 1, missed: 4 });
      await eventually(page, page.locator('#own_state'), /^aneroid cannot be reached$/);
      assert.match(await page.locator('#own_trouble').textContent(), /^The station refused the session\. /);
      assert.equal(await page.locator('#fact_gaps').textContent(), '1 gap, 4 missed');
      assert.match(await cell(page, 'rtt', 'now').textContent(), /ms/);
      await tell(page, 'say', { state: 'waiting', message: '' });
      await page.locator('#own_trouble').waitFor({ state: 'hidden' });
    });
  });

  test('a declining station is not called unreachable, and a failing quantity is shown', async () => {
    await withPage(browser, OWN, async ({ page }) => {
      await eventually(page, cell(page, 'rtt', 'now'), /ms/);
      await tell(page, 'say', { state: 'unreachable', message: 'aneroid declines: too many sessions' });
      await eventually(page, page.locator('#own_state'), /^aneroid declines$/);
      await tell(page, 'say', { state: 'waiting', message: 'the station declines: bytes an hour' });
      await eventually(page, page.locator('#own_trouble'), /^The station declines: bytes an hour\. /);
      await eventually(page, page.locator('#own_state'), /^measuring every/);
      await tell(page, 'say', { state: 'waiting', message: 'suspended' });
      await page.locator('#own_trouble').waitFor({ state: 'hidden' });
    });
  });

  test('errors of the communicator are shown', async () => {
    await withPage(browser, OWN, async ({ page }) => {
      await eventually(page, cell(page, 'rtt', 'now'), /ms/);
      await page.evaluate(() => (globalThis.barograph.setPeriod = async () => Promise.reject(new RangeError('the period is too short'))));
      await page.getByRole('combobox', { name: 'Every' }).selectOption('1');
      await eventually(page, page.locator('#own_trouble'), /^The period is too short\.$/);
      await page.getByLabel('Forecaster').selectOption('nws');
      await page.locator('#own_trouble').waitFor({ state: 'hidden' });
    });
  });

  test('the fake communicator has all methods that the page uses', async () => {
    await withPage(browser, OWN, async ({ page }) => {
      const invented = await page.evaluate(() => Object.getOwnPropertyNames(Object.getPrototypeOf(globalThis.barograph)));
      const asked = await askedOfHere();
      assert.ok(10 < asked.length, asked.join());
      const real = Object.getOwnPropertyNames(PageMeasurements.prototype);
      assert.deepEqual(asked.filter((name) => !real.includes(name)), [], 'PageMeasurements has it');
      assert.deepEqual(asked.filter((name) => name !== 'status' && !invented.includes(name)), [], 'FakeHere has it');
    });
  });

  test('points are shared only if the user agrees and the station stores them', async () => {
    await withPage(browser, OWN, async ({ page }) => {
      const share = page.getByRole('checkbox', { name: /^Store this page’s measurements on aneroid/ });
      assert.equal(await share.isChecked(), false);
      await share.check();
      assert.deepEqual(await calls(page), [['share', true]]);
      await tell(page, 'say', { keeps: false });
      await share.waitFor({ state: 'hidden' });
    });
  });

  test('window.barograph exists at once, and gives the reason if it cannot measure', async () => {
    await withPage(browser, {}, async ({ page }) => {
      const said = await page.evaluate(() => globalThis.barograph.measureNow().then(() => 'measured', (error) => error.message));
      assert.match(said, /^aneroid does not allow browser measurements/);
    });
  });

  test('a station without echo is reported, and its own series are shown', async () => {
    await withPage(browser, {}, async ({ page, complaints }) => {
      await eventually(page, page.locator('#own_unable'), /^aneroid does not allow/);
      assert.ok(!(await page.locator('#own_body').isVisible()));
      await inked(page.locator('#held article').first());
      assert.deepEqual(complaints, []);
    });
  });

  test('missing WebAssembly is reported, and the rest of the page works', async () => {
    await withPage(browser, { ...OWN, init: () => delete globalThis.WebAssembly }, async ({ page }) => {
      await eventually(page, page.locator('#own_unable'), /lacks WebAssembly/);
      await inked(page.locator('#held article').first());
    });
  });

  test('on a phone nothing is wider than the screen, and no number is cut off', async () => {
    await withPage(browser, { ...OWN, viewport: { width: 360, height: 780 } }, async ({ page }) => {
      await eventually(page, cell(page, 'goodput_down', 'now'), /Mbit/);
      await page.getByLabel('Forecast in').selectOption('own');
      await cardOf(page, 'Goodput down').scrollIntoViewIfNeeded();
      await inked(cardOf(page, 'Goodput down'), ['--measured']);
      const [wide, screen, cut] = await page.evaluate(() => [
        document.documentElement.scrollWidth,
        innerWidth,
        [...document.querySelectorAll('.console td')].filter((cell) => cell.clientWidth < cell.scrollWidth).map((cell) => cell.textContent),
      ]);
      assert.ok(wide <= screen, `${wide} px on a screen of ${screen}`);
      assert.deepEqual(cut, []);
    });
  });

  test('on a desktop no number is cut off, and new numbers do not move the layout', async () => {
    await withPage(browser, OWN, async ({ page }) => {
      await eventually(page, cell(page, 'goodput_down', 'now'), /Mbit/);
      const places = () => page.evaluate(() => [...document.querySelectorAll('.console td, .facts > div, .card.own')].map((node) => node.getBoundingClientRect().toJSON()));
      const cut = await page.evaluate(() => [...document.querySelectorAll('.console td')].filter((cell) => cell.clientWidth < cell.scrollWidth).map((cell) => cell.textContent));
      assert.deepEqual(cut, []);
      const before = await places();
      for (const [quantity, value] of [['rtt', 1.1e-5], ['rtt_loaded', 123.4], ['goodput', 9.87e9], ['goodput_down', 3]]) await tell(page, 'put', quantity, { value });
      await eventually(page, cell(page, 'goodput', 'now'), /^9\.87\u202fGbit/);
      assert.deepEqual(await places(), before);
    });
  });

  test('the keyboard reaches every control, and every control has a name', async () => {
    await withPage(browser, OWN, async ({ page }) => {
      await inked(cardOf(page, 'Goodput'));
      const wanted = await page.evaluate(() => {
        const shown = [...document.querySelectorAll('a, button, input, select')].filter((node) => node.checkVisibility() && !node.disabled);
        return shown.map((node) => node.id || node.getAttribute('aria-label') || node.textContent);
      });
      const reached = new Set();
      for (let i = 0; i < wanted.length + 5; i += 1) {
        await page.keyboard.press('Tab');
        reached.add(await page.evaluate(() => document.activeElement.id || document.activeElement.getAttribute('aria-label') || document.activeElement.textContent));
      }
      assert.deepEqual(wanted.filter((name) => !reached.has(name)), []);
      assert.deepEqual(await nameless(page), []);
    });
  });
});

/** Members of the communicator that the page's own modules use, found in their text. */
async function askedOfHere() {
  const texts = await Promise.all(['own', 'controls'].map((name) => readFile(new URL(`../src/${name}.js`, import.meta.url), 'utf8')));
  return [...new Set(texts.flatMap((text) => [...text.matchAll(/\bhere\??\.([a-z]\w*)/gi)].map(([, name]) => name)))].filter((name) => name !== 'js');
}

function cardOf(page, title) {
  return page.locator('.card.own').filter({ has: page.getByRole('heading', { name: title, exact: true, includeHidden: true }) });
}

/** Number of pixels in the middle of a card's graph with the colour of measured points. */
function inkInTheMiddle(card) {
  return card.locator('canvas').evaluate((canvas) => {
    const ink = getComputedStyle(canvas).getPropertyValue('--measured').trim();
    const wanted = [1, 3, 5].map((i) => parseInt(ink.slice(i, i + 2), 16));
    const [width, height] = [canvas.width, canvas.height].map((size) => Math.floor(size / 4));
    const { data } = canvas.getContext('2d').getImageData(width, height, 2 * width, height);
    let seen = 0;
    for (let i = 0; i < data.length; i += 4) seen += wanted.every((part, j) => data[i + j] === part);
    return seen;
  });
}

function cell(page, quantity, kind) {
  return page.locator(`.console [data-quantity="${quantity}"] .${kind}`);
}

/** Calls a method of the fake communicator. */
function tell(page, method, ...given) {
  return page.evaluate(({ method, given }) => globalThis.barograph[method](...given), { method, given });
}

/** Calls that the page has made to the communicator. */
function calls(page) {
  return page.evaluate(() => globalThis.barograph.calls);
}

/** Controls, images and regions without an accessible name. */
async function nameless(page) {
  const session = await page.context().newCDPSession(page);
  const { nodes } = await session.send('Accessibility.getFullAXTree');
  const roles = ['button', 'checkbox', 'combobox', 'textbox', 'searchbox', 'link', 'image', 'region', 'article', 'table'];
  const named = nodes.filter((node) => !node.ignored && roles.includes(node.role?.value));
  assert.ok(30 < named.length, `${named.length} controls`);
  return named.filter((node) => !node.name?.value?.trim()).map((node) => `${node.role.value} ${node.nodeId}`);
}
