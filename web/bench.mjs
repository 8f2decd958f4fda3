// What the page promises in figures that depend on the computer: printed, and nothing fails. `npm run bench`
import { launch } from './testkit/chromium.mjs';
import { startStation } from './testkit/station.mjs';

const browser = await launch();
const station = await startStation();
try {
  const page = await browser.newPage();
  await page.goto(station.url);
  await page.waitForFunction(() => 0 < Number(document.querySelector('.console [data-quantity="rtt"] .count')?.textContent));
  const [shown_ms, clock] = await page.evaluate(() => [performance.now(), barograph.status.clock]);
  console.log(`first round-trip time shown ${shown_ms.toFixed(0)} ms after the page began to load`);
  console.log(`clock resolution ${(clock.resolution_s * 1e6).toFixed(1)} µs, ${clock.isolated ? 'isolated' : 'not isolated'}`);
} finally {
  await browser.close();
  await station.end();
}
