// The built page in a real browser, against the mock station: what the station measures.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { CHROMIUM, hasChromium, launch } from '../testkit/chromium.mjs';
import { WAIT_MS_MAX, eventually, inked, until, withPage } from '../testkit/page.mjs';

if (!hasChromium) console.log(`SKIPPED: the page in a browser, because ${CHROMIUM} is absent (install chromium, or set CHROMIUM)`);

describe('the page', { skip: !hasChromium && `${CHROMIUM} is absent` }, () => {
  let browser;
  before(async () => {
    browser = await launch();
  });
  after(() => browser?.close());

  test('shows a graph for each series, and only talks to its station', async () => {
    await withPage(browser, {}, async ({ page, mock, requests, complaints }) => {
      const card = cardOf(page, 'rtt', '127.0.0.1:7311');
      await inked(card);
      assert.match(await card.locator('[role=img]').getAttribute('aria-label'), /^rtt to 127\.0\.0\.1:7311: last .*µs; next .*µs, 90.% interval .* method median/);
      assert.equal(await page.locator('#host').textContent(), 'aneroid');
      assert.equal(await page.locator('article.card').count(), mock.series.length);
      assert.equal(await page.locator('#groups section').first().locator('h3 span').textContent(), 'aneroid');
      assert.deepEqual(requests.filter((url) => !url.startsWith(mock.url)), []);
      assert.deepEqual(complaints, [], 'no error, and nothing against the content security policy');
    });
  });

  test('numbers change when points arrive', async () => {
    await withPage(browser, {}, async ({ page, mock }) => {
      const card = cardOf(page, 'connect', '192.168.1.1:80');
      await inked(card);
      mock.put('connect', { value: 0.123 });
      await eventually(page, card.locator('.last .figure'), /^123\u202fms$/);
      const before = await card.locator('.next .figure').textContent();
      for (let i = 0; i < 8; i += 1) mock.put('connect', { value: 0.321 });
      await eventually(page, card.locator('.next .figure'), /^321\u202fms$/);
      assert.notEqual(before, await card.locator('.next .figure').textContent());
    });
  });

  test('shows the requests that its station refused, if any', async () => {
    await withPage(browser, {}, async ({ page, mock }) => {
      await inked(cardOf(page, 'rtt', '127.0.0.1:7311'));
      assert.equal(await page.locator('#refusing').isVisible(), false);
      mock.refusing = [
        'records while the mesh accepted none: refused in the last 3 s, 7 since the start; raise mesh.spool_records_max',
        'live streams: refused in the last 9 s, 2 since the start; raise limits.streams_max',
      ];
      await page.reload();
      await eventually(page, page.locator('#refused'), /7 since the start; raise mesh\.spool_records_max; live streams: refused in the last 9 s/);
      assert.equal(await page.locator('#refusing').isVisible(), true);
    });
  });

  test('a failure is shown in words and without a value', async () => {
    await withPage(browser, {}, async ({ page, mock }) => {
      const card = cardOf(page, 'connect', '192.168.1.1:80');
      await inked(card);
      mock.put('connect', { error: 'timed_out' });
      await eventually(page, card.locator('.last .figure'), /^timed out$/);
      await eventually(page, card.locator('footer'), /failed, last: timed out at \d\d:\d\d:\d\d/);
    });
  });

  test('the table shows the same points as the graph and is updated with new points', async () => {
    await withPage(browser, {}, async ({ page, mock }) => {
      const card = cardOf(page, 'rtt', '127.0.0.1:7311');
      await inked(card);
      await card.getByRole('button', { name: /^Table of/ }).press('Enter');
      await card.locator('tbody tr').first().waitFor({ timeout: WAIT_MS_MAX });
      assert.equal(await card.locator('canvas').count(), 0);
      mock.put('rtt', { value: 0.5 });
      await eventually(page, card.locator('tbody tr').first(), /500\u202fms/);
      for (let i = 0; i < 200; i += 1) mock.put('rtt', { error: 'refused' });
      await eventually(page, card.locator('tbody tr').first(), /connection refused/);
      await eventually(page, card.locator('footer'), /200 failed/);
      assert.equal(await card.locator('tbody tr').count(), 512);
      await card.getByRole('button', { name: /^Table of/ }).click();
      await card.locator('canvas').waitFor({ timeout: WAIT_MS_MAX });
    });
  });

  test('reports a lost connection to the station and reconnects automatically', async () => {
    await withPage(browser, {}, async ({ page, mock }) => {
      await eventually(page, page.locator('#connection'), /^live$/);
      await mock.stop();
      await eventually(page, page.locator('#connection'), /^reconnecting$/);
      assert.ok(await page.getByRole('alert').isVisible());
      assert.notEqual(await page.locator('article.card .last .figure').first().textContent(), '–', 'what was known stays');
      await mock.start();
      await eventually(page, page.locator('#connection'), /^live$/);
      assert.ok(!(await page.getByRole('alert').isVisible()));
      mock.put('cpu_available', { value: 0.125 });
      await eventually(page, cardOf(page, 'cpu_available', 'aneroid').locator('.last .figure'), /^12\.5\u202f%$/);
    });
  });

  test('without a stream the page polls the station and reports it', async () => {
    await withPage(browser, { mock: { stream: false } }, async ({ page }) => {
      await eventually(page, page.locator('#connection'), /^no live stream$/);
      await inked(cardOf(page, 'rtt', '127.0.0.1:7311'));
    });
  });

  test('reads the histories again after it missed events', async () => {
    await withPage(browser, {}, async ({ page, mock }) => {
      await inked(cardOf(page, 'rtt', '127.0.0.1:7311'));
      const before = mock.requests.filter((path) => path === '/v1/recent').length;
      mock.lag(12);
      await until(() => before < mock.requests.filter((path) => path === '/v1/recent').length);
    });
  });

  test('a station without series is reported as empty until the first series arrives', async () => {
    await withPage(browser, { mock: { empty: true } }, async ({ page, mock }) => {
      await eventually(page, page.locator('#empty'), /^No measurements yet/);
      mock.add({ target: '<b>bold</b>', quantity: 'queue_length', unit: '', period_s: 1, weather: () => () => ({ value: 42 }) });
      await eventually(page, page.locator('.group h3 span'), /^<b>bold<\/b>$/);
      assert.equal(await page.locator('b').count(), 0, 'names are text, never markup');
      await eventually(page, page.locator('.last .figure'), /^42\.0$/);
      assert.ok(!(await page.locator('#empty').isVisible()));
    });
  });

  test('the filter hides other series, and only visible graphs are drawn', async () => {
    await withPage(browser, { mock: { many: 60 } }, async ({ page, mock }) => {
      await eventually(page, page.locator('#tally'), new RegExp(`^${mock.series.length} series$`));
      await inked(cardOf(page, 'rtt', '127.0.0.1:7311'));
      const drawn = await page.locator('#held canvas').count();
      assert.ok(drawn < 30, `${drawn} graphs at once`);
      await page.getByLabel('Filter').fill('host-042');
      await eventually(page, page.locator('#tally'), /^1 of \d+ series$/);
      await inked(cardOf(page, 'rtt', 'host-042.example.org:7311'));
      await page.getByLabel('Filter').fill('nothing like it');
      await eventually(page, page.locator('#empty'), /^No series matches this filter/);
    });
  });

  test('the theme follows the system until the user chooses one, and the choice is kept', async () => {
    await withPage(browser, { colorScheme: 'dark' }, async ({ page }) => {
      const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
      await inked(cardOf(page, 'rtt', '127.0.0.1:7311'));
      assert.equal(await theme(), 'dark');
      await page.getByRole('button', { name: 'Use the light theme' }).click();
      assert.equal(await theme(), 'light');
      await page.reload();
      await eventually(page, page.locator('#connection'), /^live$/);
      assert.equal(await theme(), 'light');
    });
  });

  test('on a phone nothing is wider than the screen', async () => {
    await withPage(browser, { viewport: { width: 360, height: 740 } }, async ({ page }) => {
      await inked(cardOf(page, 'cpu_available', 'aneroid'));
      const [wide, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(wide <= screen, `${wide} px on a screen of ${screen}`);
    });
  });

  test('every graph is drawn without scrolling, and fills the paper in print', async () => {
    await withPage(browser, { mock: { here: 80 } }, async ({ page }) => {
      const blank = () =>
        page.evaluate(() =>
          [...document.querySelectorAll('article.card:not([hidden])')]
            .filter((card) => {
              const canvas = card.querySelector('canvas');
              if (canvas === null) return true;
              const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
              const { width } = canvas.getBoundingClientRect();
              return !data.some((part) => part !== 0) || Math.abs(width - card.querySelector('.paper').clientWidth) > 2;
            })
            .map((card) => card.querySelector('.title').textContent),
        );
      await eventually(page, page.locator('#tally'), /^[1-9]\d* series$/);
      await until(async () => (await blank()).length === 0).catch(async () => assert.deepEqual(await blank(), []));
      for (const width of [560, 1000]) {
        // This print has no event, and no script runs for it: only what is drawn and the style
        // sheet count.
        await page.emulateMedia({ media: 'print' });
        await page.setViewportSize({ width, height: 900 });
        assert.deepEqual(await blank(), [], `${width} px of paper`);
      }
    });
  });

  test('the message of an empty graph is not covered by a title', async () => {
    await withPage(browser, { mock: { here: 0 } }, async ({ page }) => {
      const card = page.locator('#own_cards article').first();
      await eventually(page, card.locator('.waiting'), /^no measurements yet/);
      await page.locator('#own_separate').selectOption('own');
      await card.and(page.locator('.separate')).waitFor();
      const overlaps = await card.evaluate((card) => {
        const box = card.querySelector('.waiting').getBoundingClientRect();
        const titles = [...card.querySelectorAll('.part-name, .axis-unit')].map((title) => title.getBoundingClientRect());
        return titles.filter(({ left, right, top, bottom, width }) => width > 0 && left < box.right && box.left < right && top < box.bottom && box.top < bottom).length;
      });
      assert.equal(overlaps, 0);
    });
  });

  test('a refused connection is shown as an answer of its host', async () => {
    await withPage(browser, {}, async ({ page, mock }) => {
      const card = cardOf(page, 'connect', '192.168.1.1:80');
      await eventually(page, page.locator('#connection'), /^live$/);
      await inked(card);
      mock.putPair('aneroid', '192.168.1.1:80', 'connect', { value: 2e-3, refused: true });
      await eventually(page, card.locator('.last .aside'), /, answers \(port refuses connections\)$/);
      assert.ok(await card.locator('.last .aside').evaluate((node) => node.scrollWidth <= node.clientWidth), 'all of it is to be seen');
      mock.putPair('aneroid', '192.168.1.1:80', 'connect', { value: 2e-3 });
      await eventually(page, card.locator('.last .aside'), /\d$/);
    });
  });

  test('draws the forecasts up to an hour ahead as a fan, whose figures the pointer shows', async () => {
    await withPage(browser, {}, async ({ page, mock }) => {
      const card = cardOf(page, 'rtt_nagle', '127.0.0.1:7311');
      await inked(card);
      const figure = card.locator('[role=img]');
      await until(async () => /in 1\D?min: .*in 5\D?min: .*in 15\D?min: .*in 1\D?h: .*90.% *: .* to /.test(await figure.getAttribute('aria-label')));
      const { x, y, width } = await card.locator('canvas').boundingBox();
      // From the right edge: half of the margin for the next value, then one step for each time.
      const readOut = async (steps) => {
        await page.mouse.move(x + width - 17 - 24 * steps, y + 40);
        return card.locator('.read-out');
      };
      await eventually(page, await readOut(0), /^\d\d:\d\d:\d\d *in 1\D?h: [\d.]+\D?ms \(90\D?%: [\d.]+ – [\d.]+\D?ms\)$/);
      await eventually(page, await readOut(2), /in 5\D?min: /);
      mock.putPair('aneroid', '127.0.0.1:7311', 'rtt_nagle', { value: 0.0417 });
      await eventually(page, card.locator('.last .figure'), /^41\.7/);
      assert.match(await card.locator('.read-out').textContent(), /in 5\D?min: /, 'new points keep what the pointer shows');
      await page.mouse.move(x + 60, y - 20);
      await until(async () => !(await card.locator('.read-out').isVisible()));
    });
  });

  test('a fan has its margin, also if no axis changes, and leaves most of a narrow graph', async () => {
    for (const [width, margin] of [[1280, 34 + 4 * 24], [320, 0.4 * (280 - 46)]]) {
      await withPage(browser, { viewport: { width, height: 900 } }, async ({ page, mock }) => {
        for (const series of mock.series) {
          const ahead = series.ahead.bind(series);
          const narrow = (one) => ({ ...one, lower: one.median.value, upper: one.median.value });
          series.ahead = (seconds) => ({ ...ahead(seconds), horizons: ahead(seconds).horizons.map(narrow) });
        }
        await page.reload();
        const card = cardOf(page, 'rtt_nagle', '127.0.0.1:7311');
        await card.scrollIntoViewIfNeeded();
        await until(async () => /in 1\D?h: /.test(await card.locator('[role=img]').getAttribute('aria-label')));
        const right = async (name) => {
          const { x, width } = await card.locator(name).boundingBox();
          return x + width;
        };
        await until(async () => Math.abs((await right('canvas')) - (await right('.u-over')) - margin) < 3);
        const { y } = await card.locator('canvas').boundingBox();
        await page.mouse.move((await right('canvas')) - 17, y + 40);
        await eventually(page, card.locator('.read-out'), /in 1\D?h: /);
      });
    }
  });

  test('a value that came soon after the fan was read has its fan soon, too', async () => {
    await withPage(browser, {}, async ({ page, mock, requests }) => {
      const forecasts = () => requests.filter((url) => /forecast\?.*quantity=rtt_nagle&/.test(url)).length;
      await until(() => forecasts() === 1);
      await page.clock.install();
      await page.reload();
      const card = cardOf(page, 'rtt_nagle', '127.0.0.1:7311');
      await until(async () => {
        await page.clock.runFor(100);
        return forecasts() === 2;
      });
      mock.putPair('aneroid', '127.0.0.1:7311', 'rtt_nagle', { value: 0.0417 });
      await until(async () => {
        await page.clock.runFor(100);
        return /^41\.7/.test(await card.locator('.last .figure').textContent());
      });
      assert.equal(forecasts(), 2, 'another read would be too early');
      await page.clock.runFor(15_000);
      await until(() => forecasts() === 3);
    });
  });

  test('reads the fan of a series only once while no value arrives', async () => {
    await withPage(browser, {}, async ({ page, mock, requests }) => {
      const forecasts = () => requests.filter((url) => url.includes('/v1/forecast?'));
      await until(async () => forecasts().length === mock.series.length);
      await page.getByLabel('Show').last().selectOption('60');
      await page.getByRole('button', { name: 'Use the dark theme' }).click();
      mock.lag(1);
      await until(() => mock.requests.filter((path) => path === '/v1/recent').length === 2 * mock.series.length);
      await inked(cardOf(page, 'rtt', '127.0.0.1:7311'));
      assert.equal(forecasts().length, mock.series.length);
    });
  });

  test('a station without horizons has no fan and no trouble', async () => {
    await withPage(browser, { mock: { horizons: false } }, async ({ page, mock }) => {
      const card = cardOf(page, 'rtt', '127.0.0.1:7311');
      await inked(card);
      await until(() => mock.requests.includes('/v1/forecast'));
      mock.put('rtt', { value: 0.5 });
      await eventually(page, card.locator('.last .figure'), /^500/);
      assert.doesNotMatch(await card.locator('[role=img]').getAttribute('aria-label'), /in \d+.min/);
      assert.ok(!(await page.getByRole('alert').isVisible()));
      assert.ok(mock.requests.filter((path) => path === '/v1/forecast').length <= 3, 'no more than were on their way');
    });
  });

  test('the pointer shows the value of a single point', async () => {
    await withPage(browser, {}, async ({ page }) => {
      const card = cardOf(page, 'rtt', '127.0.0.1:7311');
      await inked(card);
      await card.locator('.u-over').hover();
      await eventually(page, card.locator('.read-out'), /\d\d:\d\d:\d\d.*µs/);
    });
  });
});

function cardOf(page, quantity, target) {
  return page
    .locator('.group')
    .filter({ has: page.locator('h3 span', { hasText: new RegExp(`^${target.replaceAll('.', '\\.')}$`) }) })
    .locator('article')
    .filter({ has: page.locator('code', { hasText: new RegExp(`^${quantity}$`) }) });
}
