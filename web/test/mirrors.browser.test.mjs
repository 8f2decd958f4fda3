// Mirrors compared in a real browser: on the station's page, embedded in another site, and with
// real stations.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { CHROMIUM, hasChromium, launch } from '../testkit/chromium.mjs';
import { startMirror, startSite, startStationSite } from '../testkit/mirrors.mjs';
import { BAROGRAPH, hasStation, startStation } from '../testkit/station.mjs';

const WAIT_MS_MAX = 60_000;
const MEBIBYTE = 2 ** 20;
// For real servers only the order is tested. How sure the page is depends on how busy this computer
// is, and is tested in virtual time.
const MEASURED = /is fastest|Too close to call/;

if (!hasChromium) console.log(`SKIPPED: browser tests of mirrors, because ${CHROMIUM} is absent (install chromium, or set CHROMIUM)`);
if (!hasStation) console.log(`SKIPPED: real stations compared, because ${BAROGRAPH} is absent`);

describe('which mirror', { skip: !hasChromium && `${CHROMIUM} is absent` }, () => {
  let browser;
  let station;
  before(async () => {
    browser = await launch();
    station = await startStationSite();
  });
  after(async () => {
    await browser?.close();
    await station?.stop();
  });

  test('ranks downloads, reports why others failed, and keeps the budget', async () => {
    await withMirrors({ slow: { rate: 1.5e6 }, closed: { cors: false }, fast: { rate: 16e6 }, hung: { hangs: true }, gone: { status: 404 } }, async (mirrors) => {
      await withPage(browser, async (page, complaints) => {
        await page.goto(`${station.url}/mirrors.html#${new URLSearchParams({ size: '700 MB', budget: '1 MiB', list: addresses(mirrors) })}`);
        assert.equal(await page.getByLabel('Size of the file').inputValue(), '700 MB');
        assert.equal(mirrors.fast.requests, 0, 'an address fills the form and starts nothing');
        await page.getByRole('button', { name: 'Compare' }).click();
        await verdict(page, MEASURED);
        const rows = await page.getByRole('row').allInnerTexts();
        assert.equal(rows.length, 6);
        assert.match(rows[1], new RegExp(`^=?1\\s+${host(mirrors.fast)}`));
        assert.match(rows[2], new RegExp(`^(2|=1)\\s+${host(mirrors.slow)}`));
        const failed = rows.slice(3).join('\n');
        assert.match(failed, new RegExp(`${host(mirrors.closed)}.*\\s+could not be reached, or does not allow measurements from other pages`));
        assert.match(failed, new RegExp(`${host(mirrors.hung)}.*\\s+took more than 6 s`));
        assert.match(failed, new RegExp(`${host(mirrors.gone)}.*\\s+answered with status 404`));
        for (const [name, { sent_bytes }] of Object.entries(mirrors)) assert.ok(sent_bytes <= MEBIBYTE, `${name} sent ${sent_bytes} bytes`);
        assert.ok(MEBIBYTE / 2 < mirrors.fast.sent_bytes, 'and uses it');
        assert.equal(await page.locator('[aria-live]').count(), 1, 'only the verdict speaks by itself');
        assert.deepEqual(complaints.filter((text) => !/CORS|ERR_|status of 404/.test(text)), []);
        const shared = new URLSearchParams(new URL(page.url()).hash.slice(1));
        assert.deepEqual([shared.get('size'), shared.get('list')], ['700 MB', addresses(mirrors)]);
      });
    });
  });

  test('equal mirrors are too close to call, and a mirror ten times as fast is fastest', async () => {
    const cases = [
      [{ 'one.invalid': 20e6, 'other.invalid': 20e6 }, /^Too close to call: /, ['=1', '=1']],
      [{ 'one.invalid': 2e6, 'other.invalid': 20e6 }, /^other\.invalid is fastest: about .* against .* for the next\.$/, ['1\t', '2\t']],
    ];
    for (const [rates, pattern, ranks] of cases) {
      await withPage(browser, async (page) => {
        await page.addInitScript(serveInVirtualTime, rates);
        const list = Object.keys(rates).map((name) => `https://${name}/f`).join(' ');
        await page.goto(`${station.url}/mirrors.html#${new URLSearchParams({ size: '1 GiB', budget: '1 MiB', list })}`);
        await page.getByRole('button', { name: 'Compare' }).click();
        await verdict(page, pattern);
        assert.deepEqual((await page.getByRole('row').allInnerTexts()).slice(1).map((text) => text.slice(0, 2)), ranks);
      });
    }
  });

  test('cancel ends a comparison at once', async () => {
    await withMirrors({ slow: { rate: 1e6 }, hung: { hangs: true } }, async (mirrors) => {
      await withPage(browser, async (page) => {
        await page.goto(`${station.url}/mirrors.html#${new URLSearchParams({ size: '1 GiB', list: addresses(mirrors) })}`);
        await page.getByRole('button', { name: 'Compare' }).click();
        await until(async () => 0 < mirrors.slow.requests);
        await page.getByRole('button', { name: 'Cancel' }).click();
        await verdict(page, /^Cancelled\.$/);
        await until(async () => !(await page.getByRole('button', { name: 'Cancel' }).isVisible()));
        assert.ok(await page.getByRole('button', { name: 'Compare', exact: true }).last().evaluate((node) => node === node.getRootNode().activeElement), 'the focus is not lost');
        const { requests } = mirrors.slow;
        // A round trip with the page: it would have sent any pending request by then.
        await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
        assert.equal(mirrors.slow.requests, requests);
      });
    });
  });

  test('shows errors of the form at the field', async () => {
    await withPage(browser, async (page) => {
      await page.goto(`${station.url}/mirrors.html`);
      const cases = [
        ['Size of the file', '700 M', /write MB or MiB/],
        ['Measure each mirror with at most', '1 GiB', /256 KiB to 256 MiB/],
      ];
      await page.getByRole('textbox', { name: /^Mirrors/ }).fill('https://a.example/');
      for (const [label, text, message] of cases) {
        const field = page.getByLabel(label);
        const usual = await field.inputValue();
        await field.fill(text);
        await page.getByRole('button', { name: 'Compare' }).click();
        assert.match(await page.getByRole('alert').textContent(), message);
        assert.ok(await field.evaluate((node) => node === document.activeElement));
        await field.fill(usual);
      }
    });
  });

  test('one script tag embeds it into another site with a strict content policy', async () => {
    await withMirrors({ fast: { rate: 16e6 }, slow: { rate: 1.5e6 }, forbidden: {}, closed: { cors: false } }, async (mirrors) => {
      const site = await startSite({
        '/': embedding(station, `data-size="700 MB" data-budget="1 MiB" data-mirrors="${addresses(mirrors)}"`, {
          script: `${station.url} 'wasm-unsafe-eval'`,
          connect: `${station.url} ${mirrors.fast.url} ${mirrors.slow.url} ${mirrors.closed.url}`,
        }),
      });
      try {
        await withPage(browser, async (page) => {
          await page.goto(site.url);
          assert.equal(await page.evaluate(() => document.querySelector('script').nextElementSibling.localName), 'barograph-mirrors');
          const button = page.getByRole('button', { name: 'Compare' });
          await button.waitFor({ timeout: WAIT_MS_MAX });
          assert.equal(mirrors.fast.requests, 0, 'nothing is measured before a click');
          await button.click();
          await verdict(page, MEASURED);
          const rows = (await page.getByRole('row').allInnerTexts()).slice(1);
          const reason = (mirror) => rows.find((row) => row.includes(host(mirror)));
          assert.match(reason(mirrors.forbidden), /this page's own Content-Security-Policy does not allow this address; add it to connect-src/);
          assert.match(reason(mirrors.closed), /the site does not allow measurements from other pages/);
          assert.equal(mirrors.forbidden.requests, 0);
          assert.equal(await page.getByRole('link', { name: new RegExp(host(mirrors.fast)) }).getAttribute('href'), `${mirrors.fast.url}/pub/file.iso`);
          const own = await page.evaluate(() => getComputedStyle(document.querySelector('p')).color);
          assert.equal(own, 'rgb(1, 2, 3)', 'the site keeps its own styles');
        });
      } finally {
        await site.stop();
      }
    });
  });

  test('a nonce is passed on, and without a nonce only the stations are refused', { skip: !hasStation }, async () => {
    const files = {};
    const site = await startSite(files);
    const home = await consenting([site.url]);
    try {
      await withMirrors({ fast: { rate: 60e6 } }, async (mirrors) => {
        const list = `${home.url}/ ${addresses(mirrors)}`;
        const attributes = `nonce="r4nd0m" data-size="700 MB" data-budget="256 KiB" data-mirrors="${list}"`;
        const connect = `${station.url} ${home.url} ${home.url.replace('http', 'ws')} ${mirrors.fast.url}`;
        files['/'] = embedding(station, attributes, { script: "'nonce-r4nd0m' 'wasm-unsafe-eval'", connect });
        files['/one'] = embedding(station, attributes, { script: `${station.url}/mirrors.js 'wasm-unsafe-eval'`, connect });
        files['/module'] = embedding(station, `type="module" crossorigin ${attributes}`, { script: "'nonce-r4nd0m' 'wasm-unsafe-eval'", connect });
        for (const [path, pattern] of Object.entries({ '/': MEASURED, '/one': /No other mirror could/, '/module': MEASURED })) {
          await withPage(browser, async (page) => {
            await page.goto(`${site.url}${path}`);
            await page.getByRole('button', { name: 'Compare' }).click();
            await verdict(page, pattern);
            const rows = (await page.getByRole('row').allInnerTexts()).slice(1);
            if (path === '/one') assert.match(rows[1], /the script that measures stations could not be loaded/);
          });
        }
      });
    } finally {
      await Promise.all([site.stop(), home.end()]);
    }
  });

  test('without permission for WebAssembly no mirror is probed', async () => {
    await withMirrors({ fast: {} }, async (mirrors) => {
      const site = await startSite({ '/': embedding(station, `data-size="1 GB" data-mirrors="${addresses(mirrors)}" data-start="auto"`, { script: station.url, connect: '*' }) });
      try {
        await withPage(browser, async (page) => {
          await page.goto(site.url);
          await verdict(page, /script-src needs 'wasm-unsafe-eval'/);
          assert.equal(mirrors.fast.requests, 0);
        });
      } finally {
        await site.stop();
      }
    });
  });

  test('scripts receive the ranking and can cancel a comparison', async () => {
    await withMirrors({ whole: { rate: 16e6, ranges: false }, slow: { rate: 1.5e6 } }, async (mirrors) => {
      await withPage(browser, async (page) => {
        await page.goto(`${station.url}/mirrors.html`);
        const ranking = await page.evaluate((list) => window.barographMirrors({ mirrors: list, size_bytes: 1e8, budget_bytes: 2 ** 20, seed: 1 }), addresses(mirrors).split(' '));
        assert.match(ranking.verdict, /^(first|close)$/);
        assert.equal(ranking.mirrors[0].url, `${mirrors.whole.url}/pub/file.iso`, JSON.stringify(ranking));
        // It is paced: a busy computer makes it slower, and nothing makes it faster.
        const { value } = ranking.mirrors[1].goodput;
        assert.ok(0 < value && value < 2 * 1.5e6, `${value} of 1.5e6 bit/s`);
        const told = await page.evaluate((list) => {
          const cancel = new AbortController();
          return window
            .barographMirrors({ mirrors: list, size_bytes: 1e8, signal: cancel.signal, onProgress: () => cancel.abort(new Error('enough')) })
            .catch((error) => error.message);
        }, addresses(mirrors).split(' '));
        assert.equal(told, 'enough');
        const wrong = await page.evaluate(() => Promise.all([{}, { mirrors: 'https://a.example/' }, { mirrors: '', size_bytes: 1 }].map((options) => window.barographMirrors(options).catch((error) => error.message))));
        assert.deepEqual(wrong.map((text) => /size_bytes|at least one/.test(text)), [true, true, true], wrong.join());
      });
    });
  });

  test('on a phone neither form nor ranking is wider than the screen', async () => {
    await withMirrors({ fast: { rate: 60e6 }, closed: { cors: false } }, async (mirrors) => {
      await withPage(
        browser,
        async (page) => {
          await page.goto(`${station.url}/mirrors.html#${new URLSearchParams({ size: '1 GiB', budget: '256 KiB', list: addresses(mirrors) })}`);
          await page.getByRole('button', { name: 'Compare' }).click();
          await verdict(page, /No other mirror could be measured/);
          const [wide, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
          assert.ok(wide <= screen, `${wide} px on a screen of ${screen}`);
          assert.equal(await page.getByRole('cell').count(), 6 + 3, 'still a table');
        },
        { viewport: { width: 360, height: 740 } },
      );
    });
  });

  test('a real station ranks itself and a consenting station, and reports a refusing one', { skip: !hasStation }, async () => {
    const stations = [await consenting([])];
    try {
      const [home] = stations;
      stations.push(...(await Promise.all([[home.url], []].map(consenting))));
      const urls = stations.map(({ url }) => `${url}/`);
      await withPage(browser, async (page, complaints) => {
        await page.goto(`${home.url}/mirrors.html#${new URLSearchParams({ size: '700 MB', budget: '4 MiB', list: urls.join(' ') })}`);
        await page.getByRole('button', { name: 'Compare' }).click();
        await verdict(page, MEASURED);
        const rows = (await page.getByRole('row').allInnerTexts()).slice(1);
        assert.deepEqual(rows.map((row) => row.trim()[0] === '–'), [false, false, true], rows.join('\n'));
        assert.match(rows[2], new RegExp(`${new URL(urls[2]).host} declines measurements from pages of .*echo\\.origins`, 's'));
        assert.deepEqual(complaints.filter((text) => !/CORS|ERR_FAILED|WebSocket/.test(text)), []);
      });
    } finally {
      await Promise.all(stations.map((one) => one.end()));
    }
  });

  test('another site embeds a real station and ranks two consenting stations', { skip: !hasStation }, async () => {
    const files = {};
    const site = await startSite(files);
    const stations = [];
    try {
      stations.push(...(await Promise.all([[site.url], ['*']].map(consenting))));
      const [home, other] = stations;
      const policy = { script: `${home.url} 'wasm-unsafe-eval'`, connect: stations.map(({ url }) => `${url} ${url.replace('http', 'ws')}`).join(' ') };
      files['/'] = embedding(home, `data-size="1 GB" data-budget="1 MiB" data-mirrors="${home.url}/ ${other.url}/" data-file="pub/file.iso" data-start="auto"`, policy);
      await withPage(browser, async (page) => {
        await page.goto(site.url);
        const ranking = await page.evaluate((mirrors) => window.barographMirrors({ mirrors, size_bytes: 7e8, budget_bytes: 2 ** 22 }), [`${home.url}/`, `${other.url}/`]);
        assert.deepEqual(ranking.mirrors.map(({ rank, failure }) => [rank, failure]), [[1, null], [2, null]]);
        for (const { kind, time_s, lower_s, upper_s, rtt, goodput, bytes, probes } of ranking.mirrors) {
          assert.equal(kind, 'station');
          assert.ok(lower_s <= time_s && time_s <= upper_s && 0 < rtt.value && 0 < goodput.value && goodput.method !== '');
          assert.ok(8 <= probes && bytes <= 2 ** 22, `${probes} probes, ${bytes} bytes`);
        }
        await verdict(page, MEASURED);
        const links = await page.getByRole('link').evaluateAll((nodes) => nodes.map((node) => node.href));
        assert.deepEqual(links.filter((link) => link.endsWith('/pub/file.iso')).sort(), stations.map(({ url }) => `${url}/pub/file.iso`).sort());
      });
    } finally {
      await Promise.all([site.stop(), ...stations.map((one) => one.end())]);
    }
  });
});

/**
 * Runs in the page: serves files at about `rates` (host to bit/s), with a clock that only they
 * advance.
 */
function serveInVirtualTime(rates) {
  const asks = globalThis.fetch.bind(globalThis);
  let clock_ms = 0;
  let state = 1;
  const random = () => (state = (state * 48_271) % 2_147_483_647) / 2_147_483_647; // Park & Miller 1988
  performance.now = () => clock_ms;
  globalThis.fetch = async (url, init) => {
    const rate = rates[new URL(url, location.href).host];
    if (rate === undefined) return asks(url, init);
    const bytes = Number(/bytes=0-(\d+)/.exec(init.headers.range)[1]) + 1;
    clock_ms += 10;
    const body = new ReadableStream(
      {
        pull(controller) {
          clock_ms += (bytes * 8000) / rate * Math.exp(0.3 * (random() - 0.5));
          controller.enqueue(new Uint8Array(bytes));
          controller.close();
        },
      },
      { highWaterMark: 0 },
    );
    return new Response(body, { status: 206 });
  };
}

/** A page of another site with one script tag. */
function embedding(station, attributes, { script, connect }) {
  return {
    body: `<!doctype html><meta charset="utf-8"><title>A project</title><link rel="stylesheet" href="data:text/css,p{color:rgb(1,2,3)}"><h1>Downloads</h1><p>Take it.</p><script src="${station.url}/mirrors.js" ${attributes}></script><p>More.</p>`,
    headers: { 'content-security-policy': `default-src 'none'; script-src ${script}; style-src data:; connect-src ${connect}` },
  };
}

/** A station that pages of `origins` may measure, beside its own page. */
async function consenting(origins) {
  const station = await startStation({ settings: { 'echo.origins': origins.join(',') } });
  return { url: new URL(station.url).origin, end: () => station.end() };
}

async function withMirrors(wanted, body) {
  const started = await Promise.all(Object.entries(wanted).map(async ([name, options]) => [name, await startMirror(options)]));
  try {
    await body(Object.fromEntries(started));
  } finally {
    await Promise.all(started.map(([, mirror]) => mirror.stop()));
  }
}

async function withPage(browser, body, options = {}) {
  const place = await browser.newContext({ viewport: { width: 1100, height: 900 }, ...options });
  try {
    const page = await place.newPage();
    page.setDefaultTimeout(WAIT_MS_MAX);
    const complaints = [];
    page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
    page.on('pageerror', (error) => complaints.push(String(error)));
    await body(page, complaints);
  } finally {
    await place.close();
  }
}

function addresses(mirrors) {
  return Object.values(mirrors).map(({ url, file }) => url + file).join(' ');
}

function host(mirror) {
  return new URL(mirror.url).host;
}

async function verdict(page, pattern) {
  let text = '';
  await until(async () => {
    text = (await page.locator('.verdict').textContent()) ?? '';
    return pattern.test(text);
  }).catch(() => assert.match(text, pattern));
}

async function until(condition) {
  const end_ms = Date.now() + WAIT_MS_MAX;
  while (!(await condition())) {
    if (end_ms < Date.now()) throw new Error(`not within ${WAIT_MS_MAX} ms`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
