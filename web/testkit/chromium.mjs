// The browser of the tests: Debian's Chromium, or the one that CHROMIUM names.
import { existsSync } from 'node:fs';
import { chromium } from 'playwright-core';

export const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';

/** Whether there is a browser. */
export const hasChromium = existsSync(CHROMIUM);

/** Starts it without anything that talks to the world; `more` flags may follow. */
export function launch(more = []) {
  return chromium.launch({ executablePath: CHROMIUM, args: [...FLAGS, ...more] });
}

const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];
