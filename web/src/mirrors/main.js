// Which mirror? Ranks stations and downloads by the forecast time to download a file.
// One script: for other sites (`data-mirrors`), for programs, and for the station's own page (page.js).
import { comparerFrom } from './api.js';
import { parseMirrors } from './list.js';
import { BUDGET_BYTES } from './plan.js';
import { parseSize } from './size.js';
import { View } from './view.js';

const HOST = 'barograph-mirrors';

// Known only while the script runs for the first time; of a module script never, so its element is looked for.
const script = document.currentScript ?? moduleScript();
const base = new URL('.', script?.src ?? location.href);

const compare = comparerFrom(base, { nonce: script?.nonce });
/** Fills an element with a comparison that waits to be started. */
compare.show = (host, options) => new View(host, options, compare);
window.barographMirrors = compare;

if (script?.dataset.mirrors !== undefined) mountHere(script);

/** Puts a comparison where the script stands. */
function mountHere(script) {
  const { mirrors, size, budget, file, start, theme } = script.dataset;
  const host = document.createElement(HOST);
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

/** The element of this script where it was loaded with `type="module"`: the first that no comparison follows yet. */
function moduleScript() {
  const candidates = [...document.querySelectorAll('script[type=module][src]')];
  return candidates.find((one) => /\/mirrors\.js$/.test(new URL(one.src).pathname) && one.nextElementSibling?.localName !== HOST) ?? null;
}

/** Light or dark as the site's owner says; else dark only where the reader wants it and the site itself has it. */
function followTheme(host, theme) {
  const system = matchMedia('(prefers-color-scheme: dark)');
  const apply = () => {
    // A site may have taken it away; a parent it has none then.
    if (!host.isConnected) return system.removeEventListener('change', apply);
    const dark = system.matches && getComputedStyle(host.parentElement ?? host).colorScheme.includes('dark');
    host.dataset.theme = theme ?? (dark ? 'dark' : 'light');
    return undefined;
  };
  system.addEventListener('change', apply);
  apply();
}
