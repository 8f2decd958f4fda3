// The station's own page of mirrors: a form, its shareable address, and the comparison under it.
import './page.css';
import { element, setText } from '../dom.js';
import { followTheme } from '../theme.js';
import { parseMirrors } from './list.js';
import { BUDGET_BYTES } from './plan.js';
import { formatSize, parseSize } from './size.js';

/** Starts `mirrors.html`; `mirrors.js` must be loaded before. */
function mount() {
  const form = document.getElementById('mirrors');
  const place = document.getElementById('result');
  const trouble = document.getElementById('trouble_text');
  let view = null;

  const follow = () => {
    for (const host of place.children) host.dataset.theme = document.documentElement.dataset.theme;
  };
  followTheme(document.getElementById('theme'), follow);
  const fill = () => {
    for (const [name, value] of readAddress(location.hash)) form.elements[name].value = value;
  };
  fill();
  addEventListener('hashchange', fill);

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    view?.cancel();
    place.replaceChildren();
    setText(trouble, '');
    document.getElementById('embed').hidden = true;
    try {
      const options = readForm(form);
      history.replaceState(null, '', `#${writeAddress(form)}`);
      const host = element('barograph-mirrors');
      place.append(host);
      follow();
      view = window.barographMirrors.show(host, options);
      view.start();
      showSnippet(form);
    } catch (error) {
      setText(trouble, error.message);
      form.elements[error.field ?? 'list'].focus();
    }
  });
}

function readForm({ elements }) {
  const field = (name, read) => {
    try {
      return read(elements[name].value);
    } catch (error) {
      error.field = name;
      throw error;
    }
  };
  return {
    mirrors: field('list', (text) => parseMirrors(text, { secure: location.protocol === 'https:' })),
    size_bytes: field('size', parseSize),
    budget_bytes: field('budget', (text) => {
      const bytes = parseSize(text);
      if (BUDGET_BYTES.least <= bytes && bytes <= BUDGET_BYTES.most) return bytes;
      throw new RangeError(`Measure each mirror with ${formatSize(BUDGET_BYTES.least)} to ${formatSize(BUDGET_BYTES.most)}.`);
    }),
  };
}

/**
 * Fields of the form from an address. The address may come from anyone, so it fills the fields and
 * starts nothing.
 */
function readAddress(hash) {
  const said = new URLSearchParams(hash.slice(1, ADDRESS_CHARS_MAX));
  const known = [...said].filter(([name]) => NAMES.includes(name));
  return known.map(([name, value]) => [name, name === 'list' ? value.split(/[\s,]+/).join('\n') : value]);
}

/** The form as text for the part after `#`, which browsers send to no server. */
function writeAddress({ elements }) {
  const words = elements.list.value.trim().split(/[\s,]+/).join(' ');
  return new URLSearchParams({ size: elements.size.value, budget: elements.budget.value, list: words }).toString();
}

function showSnippet({ elements }) {
  const quoted = (text) => text.trim().replaceAll('&', '&amp;').replaceAll('"', '&quot;');
  const attributes = [
    `src="${new URL('mirrors.js', location.href).href}"`,
    `data-size="${quoted(elements.size.value)}"`,
    `data-budget="${quoted(elements.budget.value)}"`,
    `data-mirrors="${quoted(elements.list.value.trim().split(/[\s,]+/).join('\n    '))}"`,
  ];
  setText(document.getElementById('snippet'), `<script ${attributes.join('\n  ')}></script>`);
  document.getElementById('embed').hidden = false;
}

const NAMES = ['list', 'size', 'budget'];
// Enough for 32 long addresses.
const ADDRESS_CHARS_MAX = 20_000;

mount();
