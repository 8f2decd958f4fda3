// A page in a real browser that measures a real station: it comes, it goes, it is suspended, it is
// offline.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, before, describe, test } from 'node:test';
import { serveBare } from '../testkit/bare.mjs';
import { CHROMIUM, hasChromium, launch } from '../testkit/chromium.mjs';
import { BAROGRAPH, hasStation, startStation } from '../testkit/station.mjs';

const missing = !hasChromium ? `${CHROMIUM} is absent` : !hasStation ? `${BAROGRAPH} is absent` : false;
if (missing) console.log(`SKIPPED: a page that measures a station, because ${missing}`);
const WAIT_MS_MAX = 60_000;

describe('a page that measures its station', { skip: missing }, () => {
  let browser;
  before(async () => {
    browser = await launch(SERVED_BY_TEST);
  });
  after(() => browser?.close());

  test('has its first points after it is loaded, and a forecast from the second on', async () => {
    await withPage(browser, async ({ page }) => {
      await page.evaluate(() => barograph.setPeriod(1));
      await page.waitForFunction(() => 2 <= points.filter((point) => point.quantity === 'rtt').length);
      const points = await page.evaluate(() => points);
      assert.deepEqual(points.filter((point) => point.error), []);
      const [first, second] = points.filter((point) => point.quantity === 'rtt');
      assert.deepEqual([first.source, first.target, first.unit, first.detail.n], ['this browser', 'aneroid', 's', 11]);
      assert.equal(first.forecast, undefined);
      assert.equal(second.forecast, first.next.median.value);
      for (const quantity of ['rtt', 'rtt_nagle', 'goodput', 'goodput_down']) {
        assert.ok(points.some((point) => point.quantity === quantity && 0 < point.value), quantity);
      }
      const nagle = points.find((point) => point.quantity === 'rtt_nagle');
      assert.ok(first.value < nagle.value, 'the delayed acknowledgement shows');
      // The forecast round trip is subtracted if it is shorter than the transfer; on a busy
      // computer that is not every cycle.
      await page.waitForFunction(() => points.some(({ quantity, value, detail }) => quantity === 'goodput' && detail.raw < value));
      const { clock, server, traffic, transfer_bytes_max, state } = await page.evaluate(() => barograph.status);
      assert.equal(clock.isolated, true);
      assert.ok(0 < clock.resolution_s, `${clock.resolution_s} s`);
      // Transfers of automatic size cost at most 64 MiB at once; the rest is small.
      assert.ok(2 * 65_536 < traffic.bytes && traffic.bytes < 68 * 2 ** 20, `${traffic.bytes} bytes`);
      assert.deepEqual([server, transfer_bytes_max], ['aneroid', 1 << 24]);
      assert.match(state, /waiting|measuring/);
    });
  });

  test('accepts a new period and size, and can be suspended and resumed', async () => {
    await withPage(browser, async ({ page }) => {
      await page.evaluate(() => barograph.setSize(1 << 20));
      await page.evaluate(() => barograph.setPeriod(1));
      await page.waitForFunction(() => points.some((point) => point.detail.bytes === 1 << 20));
      await page.evaluate(() => barograph.suspend());
      const [before, state, due_s] = await page.evaluate(() => [points.length, barograph.status.state, barograph.status.next_due_s]);
      assert.deepEqual([state, due_s], ['suspended', null]);
      // Bounded by experiments, not by time: measurements on demand are not recorded.
      for (let i = 0; i < 20; i += 1) await page.evaluate(() => barograph.measure({ quantity: 'rtt', n: 99 }));
      assert.equal(await page.evaluate(() => points.length), before);
      await page.evaluate(() => barograph.resume());
      await page.waitForFunction((before) => before < points.length, before);
      assert.equal(await page.evaluate((before) => points[before].detail.gap, before), true);
      await page.reload();
      await page.waitForFunction(() => barograph.status !== null);
      // The period is stored; large transfers must be selected again at each visit.
      assert.deepEqual(await page.evaluate(() => [barograph.status.period_s, barograph.status.bytes]), [1, 'auto']);
    });
  });

  test('runs single experiments of every kind and size', async () => {
    await withPage(browser, async ({ page }) => {
      await page.evaluate(() => barograph.suspend());
      const made = await page.evaluate(async () => {
        const made = [];
        for (const bytes of sizes) {
          for (const quantity of ['goodput', 'goodput_down']) made.push(await barograph.measure({ quantity, bytes }));
        }
        for (const message_bytes of [512, 32_768]) made.push(await barograph.measure({ quantity: 'goodput', bytes: 65_536, message_bytes }));
        made.push(await barograph.measure({ quantity: 'rtt', n: 300 }), await barograph.measure({ quantity: 'rtt_nagle', n: 2 }));
        return made;
      });
      assert.equal(made.length, 18);
      assert.ok(made.every(({ value, n, samples }) => 0 < value && n === samples.length));
    });
  });

  test('has a gap and no failure while it is offline', async () => {
    await withPage(browser, async ({ page, context }) => {
      await page.evaluate(() => barograph.setPeriod(1));
      await page.waitForFunction(() => 5 <= points.length);
      await context.setOffline(true);
      await page.waitForFunction(() => barograph.status.state === 'offline');
      const before = await page.evaluate(() => points.length);
      await context.setOffline(false);
      await page.waitForFunction((before) => before + 5 <= points.length, before);
      const [failed, gap] = await page.evaluate((before) => [points.filter((point) => point.error), points[before].detail.gap], before);
      assert.deepEqual([failed, gap], [[], true]);
    });
  });

  test('has failures without values while its station is down, and then measures again', async () => {
    await withPage(browser, async ({ page, station }) => {
      await page.evaluate(() => barograph.setPeriod(1));
      await page.waitForFunction(() => 10 <= points.length);
      const bytes = await page.evaluate(() => barograph.setSize(1 << 24).then(() => barograph.status.bytes));
      assert.equal(bytes, 1 << 24);
      await page.waitForFunction(() => barograph.status.state === 'measuring');
      await station.kill();
      await page.waitForFunction(() => barograph.status.state === 'unreachable');
      const failed = await page.evaluate(() => points.filter((point) => point.error));
      assert.ok(0 < failed.length);
      assert.ok(failed.every((point) => /^(reset|unreachable)$/.test(point.error) && point.value === undefined && point.detail.message));
      assert.match(await page.evaluate(() => barograph.status.message), /does not answer/);
      const before = await page.evaluate(() => points.length);
      await station.start();
      await page.waitForFunction((before) => points.slice(before).some((point) => 0 < point.value), before);
      assert.equal(await page.evaluate(() => statuses.some(({ state }) => state === 'offline')), false, 'nobody was away but the station');
    });
  });

  test('exports its points as files that barograph reads', async () => {
    await withPage(browser, async ({ page }) => {
      await page.evaluate(() => barograph.setExperiments(['rtt', 'goodput']));
      for (let i = 0; i < 12; i += 1) await page.evaluate(() => barograph.measureNow());
      const values = await page.evaluate(() => barograph.csv('rtt'));
      const steps = execFileSync(BAROGRAPH, ['forecast', '-', '--steps', '--json'], { input: values, encoding: 'utf8' });
      const rows = steps.trimEnd().split('\n').map((line) => JSON.parse(line));
      const points = await page.evaluate(() => points.filter((point) => point.quantity === 'rtt'));
      // The page's forecasts equal those of the command line from the page's file.
      for (const [i, row] of rows.entries()) assert.equal(points[i + 1].forecast, row.mae_forecast, `point ${i + 1}`);
      const all = (await page.evaluate(() => barograph.csv())).trimEnd().split('\r\n');
      assert.match(all[0], /^time_s,source,target,quantity,unit,value,error,/);
      assert.ok(2 * rows.length <= all.length - 1);
      const { series, status } = await page.evaluate(() => barograph.json());
      assert.deepEqual(series.map((one) => one.quantity), ['rtt', 'goodput']);
      assert.equal(status.server, 'aneroid');
      const { points: thin } = await page.evaluate(() => barograph.history('rtt', 2));
      assert.ok(2 <= thin.length && thin.length <= 6);
    });
  });

  test('measures another station that allows its origin, and reports one that does not', async () => {
    await withPage(browser, async ({ page, station }) => {
      const other = await startStation({ host: 'bourdon', settings: { 'echo.origins': new URL(station.url).origin } });
      const closed = await startStation({ host: 'fortin' });
      try {
        await page.evaluate((url) => barograph.setStation(url), other.url);
        await page.waitForFunction(() => points.at(-1)?.target === 'bourdon' && 0 < points.at(-1).value);
        await page.evaluate((url) => barograph.setStation(url), closed.url);
        await page.waitForFunction(() => barograph.status.state === 'unreachable' && points.at(-1).error === 'declined');
        const last = await page.evaluate(() => points.at(-1));
        assert.match(last.detail.message, new RegExp(`echo\\.origins = \\["${new URL(station.url).origin}"\\]`));
        await assert.rejects(page.evaluate(() => barograph.setStation('ftp://nowhere')), /http or https/);
      } finally {
        await other.end();
        await closed.end();
      }
    });
  });

  test('sends points that the user agreed to share to a station that stores them', async () => {
    await withPage(
      browser,
      async ({ page, station }) => {
        await page.waitForFunction(() => barograph.status?.keeps && 0 < points.length);
        const kept = async () => (await (await fetch(`${station.url}v1/series`)).json()).series.filter(({ source }) => source.startsWith('web:'));
        assert.deepEqual(await kept(), []);
        await page.evaluate(() => barograph.share(true));
        const name = await page.evaluate(() => localStorage.getItem('barograph.name'));
        let series = [];
        for (let i = 0; i < 100 && series.length < 4; i += 1) {
          await page.evaluate(() => barograph.measureNow());
          series = await kept();
        }
        assert.ok(4 <= series.length);
        assert.ok(series.every(({ source, target }) => source === `web:${name}` && target === 'aneroid'));
      },
      { settings: { 'echo.keep': true } },
    );
  });

  test('measures the clock of a page that is not isolated', async () => {
    await withPage(
      browser,
      async ({ page }) => {
        await page.waitForFunction(() => 1 <= points.length);
        const { clock } = await page.evaluate(() => barograph.status);
        assert.equal(clock.isolated, false);
        assert.ok(0 < clock.resolution_s, `${clock.resolution_s} s`);
      },
      { isolated: false },
    );
  });
});

/** Runs `body` with a new station and a new page on it, then removes both. */
async function withPage(browser, body, { settings, ...options } = {}) {
  const station = await startStation({ settings });
  const context = await browser.newContext();
  try {
    await serveBare(context, station.url, options);
    const page = await context.newPage();
    page.setDefaultTimeout(WAIT_MS_MAX);
    const complaints = [];
    page.on('pageerror', (error) => complaints.push(String(error)));
    await page.goto(`${station.url}bare.html`);
    await body({ page, context, station });
    assert.deepEqual(complaints, []);
  } finally {
    await context.close();
    await station.end();
  }
}

// A response that a test serves for a station has no address, so the browser treats it as a public
// page.
const SERVED_BY_TEST = ['--disable-features=LocalNetworkAccessChecks'];
