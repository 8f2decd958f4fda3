// Which mirror? Ranks stations and downloads by the forecast time to download a file.
// One script: for other sites (`data-mirrors`), for programs, and for the station's own page (page.js).
import { comparerFrom } from './api.js';
import { parseMirrors } from './list.js';
import { BUDGET_BYTES } from './plan.js';
import { parseSize } from './size.js';
import { View } from './view.js';

// Known only while the script runs for the first time.
const script = document.currentScript;
const base = new URL('.', script?.src ?? location.href);

const compare = comparerFrom(base);
/** Fills an element with a comparison that waits to be started. */
compare.show = (host, options) => new View(host, options, compare);
window.barographMirrors = compare;

if (script?.dataset.mirrors !== undefined) mountHere(script);

/** Puts a comparison where the script stands. */
function mountHere(script) {
  const { mirrors, size, budget, file, start, theme } = script.dataset;
  const host = document.createElement('barograph-mirrors');
  script.after(host);
  followTheme(host, theme);
  try {
    const view = compare.show(host, {
      mirrors: parseMirrors(mirrors, { secure: location.protocol === 'https:' }),
      size_bytes: parseSize(size),
      budget_bytes: budget === undefined ? BUDGET_BYTES.usual : parseSize(budget),
      file,
      about: new URL('mirrors.html', base).href,
    });
    if (start === 'auto') view.start();
  } catch (error) {
    // For the site's owner: what is wrong with the attributes.
    host.textContent = `Which mirror? ${error.message}`;
  }
}

/** Light or dark as the site's owner says; else dark only where the reader wants it and the site itself has it. */
function followTheme(host, theme) {
  const system = matchMedia('(prefers-color-scheme: dark)');
  const apply = () => {
    const dark = system.matches && getComputedStyle(host.parentElement).colorScheme.includes('dark');
    host.dataset.theme = theme ?? (dark ? 'dark' : 'light');
  };
  system.addEventListener('change', apply);
  apply();
}
