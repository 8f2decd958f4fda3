// The grid of all pairs in a real browser, against a mock station of a mesh.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { CHROMIUM, hasChromium, launch } from '../testkit/chromium.mjs';
import { eventually, inked, until, withPage } from '../testkit/page.mjs';

if (!hasChromium) console.log(`SKIPPED: the grid in a browser, because ${CHROMIUM} is absent (install chromium, or set CHROMIUM)`);

describe('the grid of all pairs', { skip: !hasChromium && `${CHROMIUM} is absent` }, () => {
  let browser;
  before(async () => {
    browser = await launch();
  });
  after(() => browser?.close());

  test('is absent without a mesh, and the page does not request peers', async () => {
    await withPage(browser, {}, async ({ page, mock }) => {
      await eventually(page, page.locator('#connection'), /^live$/);
      await inked(page.locator('article.card').first());
      assert.ok(!(await page.locator('#mesh').isVisible()));
      assert.ok(!mock.requests.some((path) => path.startsWith('/v1/peers')));
    });
  });

  test('the page does not request peers of a station without mesh support', async () => {
    await withPage(browser, { mock: { mesh: 3, part: null } }, async ({ page, mock }) => {
      await cellOf(page, 'aneroid', 'cirrus').waitFor();
      await until(() => mock.requests.includes('/v1/mesh'));
      mock.lag(1); // The page reads everything again; it would read peers after the series.
      await until(() => 1 < mock.requests.filter((path) => path === '/v1/mesh').length);
      assert.ok(!mock.requests.some((path) => path.startsWith('/v1/peers')));
    });
  });

  test('every cell names its pair, and screen readers get a grid', async () => {
    await withPage(browser, MESH, async ({ page }) => {
      const grid = page.getByRole('grid');
      await cellOf(page, 'aneroid', 'foehn').waitFor();
      assert.equal(await grid.getByRole('row').count(), 7);
      assert.equal(await grid.getByRole('gridcell').count(), 36);
      assert.equal(await grid.getAttribute('aria-rowcount'), '7');
      const named = async () => {
        const client = await page.context().newCDPSession(page);
        const { nodes } = await client.send('Accessibility.getFullAXTree');
        await client.detach();
        const of = (role) => nodes.filter((node) => node.role?.value === role).map((node) => node.name?.value);
        return { grids: of('grid'), cells: of('gridcell'), buttons: of('button') };
      };
      const { grids, cells, buttons } = await named();
      assert.match(grids.join(), /^Round-trip time of all pairs/);
      assert.equal(cells.length, 36);
      const names = ['aneroid', 'cirrus', 'cumulus', 'foehn', 'mistral', 'stratus'];
      for (const source of names) {
        for (const target of names.filter((name) => name !== source)) {
          const said = new RegExp(`^${source} ${target} (✕|[\\d.]+\\s?\\S+ → [\\d.]+ ± )`);
          assert.equal(buttons.filter((name) => said.test(name)).length, 1, `${source} ${target} in ${buttons.join('; ')}`);
        }
      }
    });
  });

  test('a read-only mesh is reported until it is writable again', async () => {
    const part = { role: 'archive', engine: 'nats', directory: { connected: false, read_only_s: 75, error: 'no quorum' } };
    await withPage(browser, { mock: { mesh: 3, part } }, async ({ page, mock, complaints }) => {
      await eventually(page, page.locator('#mesh_read_only'), /read-only for 1.min \(no quorum\)/);
      mock.part = { ...mock.part, directory: { connected: true } };
      mock.lag(1);
      await until(() => page.locator('#mesh_read_only').isHidden());
      assert.deepEqual(complaints, []);
    });
  });

  test('a member links to the station with all pairs', async () => {
    const part = { role: 'member', engine: 'remote', joined: 'http://head.example:10132/' };
    await withPage(browser, { mock: { part } }, async ({ page, mock, complaints }) => {
      const link = page.locator('#mesh').getByRole('link', { name: 'head.example:10132' });
      await link.waitFor();
      assert.equal(await link.getAttribute('href'), 'http://head.example:10132/');
      assert.ok(!(await page.locator('#mesh_pairs').isVisible()), 'it has no pairs but its own');
      assert.ok(!mock.requests.includes('/v1/peers'));
      mock.part = { ...mock.part, joined: 'javascript:alert(1)' };
      mock.lag(1);
      await eventually(page, page.locator('#mesh_joined'), /keeps the mesh’s archive\.$/);
      assert.equal(await page.locator('#mesh_there').getAttribute('href'), null);
      mock.part = { ...mock.part, role: 'host' };
      mock.lag(1);
      await until(() => page.locator('#mesh').isHidden());
      assert.deepEqual(complaints, []);
    });
  });

  test('a member shows the last values of other stations beside its own forecasts', async () => {
    const part = { role: 'member', engine: 'remote', joined: 'http://head.example:10132/' };
    const record = (source, target, value) => ({ source, target, quantity: 'rtt', unit: 's', time_s: Date.now() / 1000, value });
    await withPage(browser, { mock: { mesh: 1, part } }, async ({ page, mock, complaints }) => {
      await page.locator('#mesh_there').waitFor();
      mock.others = [record('cirrus', 'aneroid', 0.0123), record('cirrus', 'foehn', 0.0456), record('foehn', 'gateway', 0.001), { ...record('foehn', 'cirrus'), error: 'timeout', after_s: 5 }];
      mock.lag(1);
      const cell = cellOf(page, 'cirrus', 'foehn');
      await cell.waitFor();
      await eventually(page, cell, /^45\.6.ms forecast elsewhere <10.s$/);
      await eventually(page, cellOf(page, 'foehn', 'cirrus'), /^✕ timeout|^✕ .*/);
      assert.equal(await page.getByRole('columnheader', { name: 'gateway' }).count(), 0, 'no station');
      await cell.click();
      await eventually(page, page.locator('#mesh_chosen'), /cirrus → foehn \(for its graphs, open the page linked above\)/);
      // The grid removes what the mesh no longer has.
      mock.others = mock.others.filter(({ target }) => target !== 'foehn');
      mock.lag(1);
      await until(async () => (await cell.count()) === 0);
      assert.deepEqual(complaints, []);
    });
  });

  test('stations lost long ago are hidden until the user shows them', async () => {
    await withPage(browser, MESH, async ({ page, mock }) => {
      await until(() => mock.peer_streams.size === 1);
      assert.ok(!(await page.getByRole('checkbox', { name: /lost/ }).isVisible()));
      mock.setPeer('cirrus', 'lost', Date.now() / 1000 - 90_000);
      await page.getByRole('checkbox', { name: 'Show 1 lost' }).waitFor();
      await until(async () => (await page.getByRole('rowheader').count()) === 5);
      assert.equal(await page.getByRole('rowheader', { name: 'cirrus' }).count(), 0);
      await page.getByRole('checkbox', { name: 'Show 1 lost' }).check();
      await eventually(page, page.getByRole('rowheader').last(), /^cirrus✕ lost$/);
      await eventually(page, page.getByRole('columnheader').last(), /^cirrus✕ lost$/);
    });
  });

  test('is a grid with headers, and is updated with new points', async () => {
    await withPage(browser, MESH, async ({ page, mock, complaints }) => {
      const table = page.getByRole('grid', { name: /^Round-trip time of all pairs/ });
      await table.waitFor();
      assert.equal(await table.getByRole('rowheader').count(), 6);
      assert.equal(await table.getByRole('columnheader').count(), 7);
      assert.equal(await table.getByRole('button').count(), 30);
      const cell = cellOf(page, 'aneroid', 'foehn');
      mock.putPair('aneroid', 'foehn', 'rtt', { value: 0.123 });
      await eventually(page, cell.locator('.last'), /^123\u202fms$/);
      assert.match(await cell.locator('.next').textContent(), /^→ [\d.]+ ± [\d.]+\u202fms$/);
      mock.putPair('aneroid', 'foehn', 'rtt', { error: 'timed_out' });
      await eventually(page, cell.locator('.last'), /^✕ timed out$/);
      mock.putPair('aneroid', 'foehn', 'rtt', { value: 0.2 }, Date.now() / 1000 - 86_400);
      await eventually(page, cell.locator('.age'), /^stale, 1\u202fd$/);
      await page.getByLabel('Quantity').selectOption('goodput');
      await eventually(page, cellOf(page, 'aneroid', 'cirrus').locator('.last'), /Mbit\/s$/);
      assert.match(await page.locator('#mesh_box tbody tr').nth(0).locator('td').nth(2).textContent(), /^not measured$/);
      assert.deepEqual(complaints, []);
    });
  });

  test('arrow keys move between measured pairs, and Enter shows the graphs of a pair', async () => {
    await withPage(browser, MESH, async ({ page }) => {
      await page.getByRole('combobox', { name: 'By' }).selectOption('name');
      const focused = () => page.evaluate(() => document.activeElement.dataset.key);
      await cellOf(page, 'aneroid', 'cirrus').waitFor();
      assert.equal(await page.locator('#mesh_box [tabindex="0"]').count(), 1, 'one stop for the tabulator');
      await page.locator('#mesh_box [tabindex="0"]').focus();
      assert.equal(await focused(), keyOf('aneroid', 'cirrus'));
      await page.keyboard.press('ArrowDown');
      assert.equal(await focused(), keyOf('cumulus', 'cirrus'), 'a station does not measure itself: passed over');
      await page.keyboard.press('End');
      assert.equal(await focused(), keyOf('cumulus', 'stratus'));
      await page.keyboard.press('Control+Home');
      assert.equal(await focused(), keyOf('aneroid', 'cirrus'));
      await page.keyboard.press('ArrowUp');
      assert.equal(await focused(), keyOf('aneroid', 'cirrus'), 'the edge holds');
      assert.equal(await page.locator('#mesh_box [tabindex="0"]').count(), 1);
      await page.keyboard.press('Enter');
      await eventually(page, page.locator('#mesh_chosen'), /^aneroid → cirrus$/);
      await eventually(page, page.locator('#tally'), /^3 of \d+ series$/);
      assert.equal(await cellOf(page, 'aneroid', 'cirrus').getAttribute('aria-pressed'), 'true');
      await inked(page.locator('#held article:not([hidden])').first());
      await page.getByRole('button', { name: 'Show all' }).click();
      await eventually(page, page.locator('#tally'), /^\d+ series$/);
      assert.equal(await page.locator('#mesh_box [aria-pressed=true]').count(), 0);
    });
  });

  test('below the grid are the series of this station or of the selected pair', async () => {
    await withPage(browser, MESH, async ({ page, mock, complaints }) => {
      const own = mock.series.filter(({ source }) => source === 'aneroid').length;
      assert.ok(own < mock.series.length);
      await eventually(page, page.locator('#tally'), new RegExp(`^${own} series$`));
      await eventually(page, page.locator('#held_title'), /^What aneroid measures$/);
      mock.step(); // Points of all pairs come on the stream.
      mock.put('cpu_available', { value: 0.125 });
      await eventually(page, page.locator('#groups .last .figure'), /^12\.5/);
      assert.equal(await page.locator('#groups article').count(), own);
      await cellOf(page, 'cumulus', 'cirrus').click();
      await eventually(page, page.locator('#held_title'), /^What cumulus measures$/);
      const chosen = page.locator('#groups article:not([hidden])');
      await inked(chosen.first());
      const quantities = mock.series.filter(({ source, target }) => source === 'cumulus' && target === 'cirrus').length;
      assert.equal(await chosen.count(), quantities);
      await page.getByRole('button', { name: 'Show all' }).click();
      await eventually(page, page.locator('#held_title'), /^What aneroid measures$/);
      await until(async () => (await page.locator('#groups article').count()) === own);
      assert.deepEqual(complaints, []);
    });
  });

  test('series that applications report are below the grid, too', async () => {
    await withPage(browser, MESH, async ({ page, mock }) => {
      const own = mock.series.filter(({ source }) => source === 'aneroid').length;
      await eventually(page, page.locator('#tally'), new RegExp(`^${own} series$`));
      mock.add({ source: 'backup', target: 'backup', quantity: 'duration', unit: 's', period_s: 10, weather: () => () => ({ value: 7 }) });
      await eventually(page, page.locator('#tally'), new RegExp(`^${own + 1} series$`));
      await page.reload();
      await eventually(page, page.locator('#tally'), new RegExp(`^${own + 1} series$`));
    });
  });

  test('rows are grouped by site, and the proposal states its reason', async () => {
    await withPage(browser, MESH, async ({ page, mock, complaints }) => {
      const north = page.getByRole('rowgroup', { name: 'site north' });
      await north.waitFor();
      assert.deepEqual(await north.getByRole('rowheader').allTextContents(), ['aneroidnorth', 'cumulusnorth', 'mistralnorth']);
      assert.equal(await page.getByRole('rowgroup', { name: 'site south' }).getByRole('row').count(), 3);
      await page.locator('#mesh_sites_title').click();
      await eventually(page, page.locator('#mesh_site_list li').first(), /^north: aneroid, cumulus, mistral are within 0\.4 ms of each other; .*Too close to call: foehn\.$/);
      await page.getByRole('combobox', { name: 'By' }).selectOption('name');
      await until(async () => (await page.locator('#mesh_box tbody').count()) === 1);
      mock.sites = null;
      mock.setPeer('foehn', 'lost');
      await until(() => page.locator('#mesh_sites').isHidden());
      assert.deepEqual(complaints, ['Failed to load resource: the server responded with a status of 404 (Not Found)']);
    });
  });

  test('a lost station is marked in words, until it is back', async () => {
    await withPage(browser, MESH, async ({ page, mock }) => {
      await until(() => mock.peer_streams.size === 1);
      mock.setPeer('foehn', 'lost');
      const heading = page.getByRole('rowheader', { name: 'foehn' });
      await eventually(page, heading, /lost/);
      assert.match(await page.getByRole('columnheader', { name: 'foehn' }).textContent(), /lost/);
      assert.equal(await page.locator('#mesh_box .of-lost').count(), 10);
      mock.setPeer('foehn', 'returned');
      await eventually(page, heading, /^foehn(north|south)$/);
      assert.equal(await page.locator('#mesh_box .of-lost').count(), 0);
    });
  });

  test('a station that was removed from the mesh leaves the table', async () => {
    await withPage(browser, MESH, async ({ page, mock }) => {
      await until(() => mock.peer_streams.size === 1);
      assert.equal(await page.locator('#mesh_box').getByText('foehn').count(), 2);
      mock.setPeer('foehn', 'removed');
      await until(async () => (await page.locator('#mesh_box').getByText('foehn').count()) === 0);
    });
  });

  test('a hundred stations are shown in parts, and any pair can be found', async () => {
    await withPage(browser, { mock: { mesh: 100, warm: 3 } }, async ({ page }) => {
      await eventually(page, page.locator('#mesh_tally'), /^rows 1 to 10 of 100$/);
      assert.equal(await page.locator('#mesh_box td').count(), 1000);
      await page.locator('#mesh_pages').getByRole('button', { name: 'Next rows' }).click();
      await eventually(page, page.locator('#mesh_tally'), /^rows 11 to 20 of 100$/);
      await page.getByRole('searchbox', { name: 'From' }).fill('station-099');
      await page.getByRole('searchbox', { name: 'To' }).fill('station-098');
      await eventually(page, page.locator('#mesh_tally'), /^1 × 1$/);
      await cellOf(page, 'station-099', 'station-098').click();
      await inked(page.locator('#held article:not([hidden])').first());
    });
  });

  test('on a phone the grid scrolls in its own box', async () => {
    await withPage(browser, { ...MESH, viewport: { width: 360, height: 740 } }, async ({ page }) => {
      await cellOf(page, 'aneroid', 'cirrus').waitFor();
      assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 360);
      const box = page.locator('#mesh_box');
      assert.ok(await box.evaluate((node) => node.clientWidth < node.scrollWidth));
      await box.evaluate((node) => node.scrollTo(300, 0));
      const name = await page.getByRole('rowheader', { name: 'cumulus' }).boundingBox();
      const edge = await box.boundingBox();
      assert.ok(Math.abs(name.x - edge.x) < 3, 'names stay at the edge');
    });
  });
});

const MESH = { mock: { mesh: 6 } };

function keyOf(source, target, quantity = 'rtt') {
  return JSON.stringify([source, target, quantity]);
}

function cellOf(page, source, target) {
  return page.getByTitle(new RegExp(`^${source} → ${target}`)).and(page.locator('#mesh_box button'));
}
