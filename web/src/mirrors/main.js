// Which mirror? Ranks stations and downloads by the forecast time to download a file. One script
// for other sites (`data-mirrors`), for programs, and for the station's own page (page.js).
import { comparerFrom } from './api.js';
import { parseMirrors } from './list.js';
import { BUDGET_BYTES } from './plan.js';
import { parseSize } from './size.js';
import { View } from './view.js';

const HOST = 'barograph-mirrors';

// Only known while the script first runs, and never for a module script; then its element is
// searched.
const script = document.currentScript ?? moduleScript();
const base = new URL('.', script?.src ?? location.href);

const compare = comparerFrom(base, { nonce: script?.nonce });
/** Fills an element with a comparison that waits for its start. */
compare.show = (host, options) => new View(host, options, compare);
window.barographMirrors = compare;

if (script?.dataset.mirrors !== undefined) mountHere(script);

/** Inserts a comparison after the script element. */
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

/**
 * Element of this script if it was loaded with `type="module"`: the first without a comparison
 * after it.
 */
function moduleScript() {
  const candidates = [...document.querySelectorAll('script[type=module][src]')];
  return candidates.find((one) => /\/mirrors\.js$/.test(new URL(one.src).pathname) && one.nextElementSibling?.localName !== HOST) ?? null;
}

/**
 * Applies the theme that the site's owner set; otherwise dark only if the reader prefers it and the
 * site has it.
 */
function followTheme(host, theme) {
  const system = matchMedia('(prefers-color-scheme: dark)');
  const apply = () => {
    // The site may have removed the element, which then has no parent.
    if (!host.isConnected) return system.removeEventListener('change', apply);
    const dark = system.matches && getComputedStyle(host.parentElement ?? host).colorScheme.includes('dark');
    host.dataset.theme = theme ?? (dark ? 'dark' : 'light');
    return undefined;
  };
  system.addEventListener('change', apply);
  apply();
}
