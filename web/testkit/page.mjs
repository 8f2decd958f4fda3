// The built page of the mock station in a real browser, and what tests wait for on it.
import assert from 'node:assert/strict';
import { startMock } from '../mock.mjs';

/** The longest that a test waits for anything. */
export const WAIT_MS_MAX = 60_000;

/** Runs `body` with a fresh mock and a fresh page on it, in which `init` ran first, and takes both away. */
export async function withPage(browser, { mock: options, init, ...context }, body) {
  const mock = await startMock(options);
  const place = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...context });
  try {
    const page = await place.newPage();
    page.setDefaultTimeout(WAIT_MS_MAX);
    const requests = [];
    const complaints = [];
    page.on('request', (request) => requests.push(request.url()));
    page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
    page.on('pageerror', (error) => complaints.push(String(error)));
    if (init) await page.addInitScript(init);
    await page.goto(mock.url);
    await body({ page, mock, requests, complaints });
  } finally {
    await place.close();
    await mock.stop().catch(() => {});
  }
}

/** Waits until the first graph in `card` has some inks on it: of measured points and of forecasts. */
export async function inked(card, inks = ['--measured', '--forecast']) {
  const place = card.locator('canvas').first();
  await place.waitFor({ timeout: WAIT_MS_MAX });
  const canvas = await place.elementHandle();
  await card.page().waitForFunction(
    ({ canvas, inks }) => {
      const style = getComputedStyle(canvas);
      const wanted = inks.map((name) => style.getPropertyValue(name).trim());
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      return wanted.every((colour) => {
        const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
        let seen = 0;
        for (let i = 0; i < data.length; i += 4) seen += data[i] === r && data[i + 1] === g && data[i + 2] === b;
        return 20 < seen;
      });
    },
    { canvas, inks },
    { timeout: WAIT_MS_MAX },
  );
}

/** Waits until a locator's text matches. */
export async function eventually(page, locator, pattern) {
  let text = '';
  await until(async () => {
    text = (await locator.first().textContent()) ?? '';
    return pattern.test(text);
  }).catch(() => assert.match(text, pattern));
}

/** Waits until `condition` holds, or fails. */
export async function until(condition) {
  const end_ms = Date.now() + WAIT_MS_MAX;
  while (!(await condition())) {
    if (end_ms < Date.now()) throw new Error(`not within ${WAIT_MS_MAX} ms`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
