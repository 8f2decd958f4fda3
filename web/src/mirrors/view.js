// The comparison on the page: a button, its progress, the ranking. It is in a shadow tree, so that
// the styles of an embedding site and these do not affect each other.
import { element, setText } from '../dom.js';
import { formatCount, formatLevel, formatValue } from '../format.js';
import { mirrorName } from './list.js';
import { formatSize } from './size.js';
import css from './view.css' with { type: 'text' };
import { describeVerdict, formatSeconds, formatTimes } from './verdict.js';

/** One comparison in the page. */
export class View {
  #options;
  #compare;
  #parts;
  #cancel = null;

  /**
   * Fills `host`. `options` are `mirrors` (from `parseMirrors`), `size_bytes`, `budget_bytes`, and
   * optionally `file`, the path of the file at stations, and `about`, a page to compare other
   * mirrors. `compare` does the work.
   */
  constructor(host, options, compare) {
    this.#options = options;
    this.#compare = compare;
    const root = host.attachShadow({ mode: 'open' });
    const sheet = new CSSStyleSheet();
    // A constructed style sheet, because a site's policy may forbid inline styles.
    sheet.replaceSync(css);
    root.adoptedStyleSheets = [sheet];
    this.#parts = this.#build(root);
    this.#show('ready');
  }

  /** Starts the comparison; does nothing while it runs. */
  async start() {
    if (this.#cancel !== null) return;
    const { mirrors, size_bytes, budget_bytes } = this.#options;
    const { verdict, progress } = this.#parts;
    this.#cancel = new AbortController();
    verdict.className = 'verdict';
    setText(verdict, '');
    progress.value = 0;
    this.#show('running');
    try {
      const ranking = await this.#compare({
        mirrors: mirrors.map((mirror) => mirror.url),
        size_bytes,
        budget_bytes,
        signal: this.#cancel.signal,
        onProgress: (now) => this.#progress(now),
      });
      this.#result(ranking);
    } catch (error) {
      if (this.#cancel.signal.aborted) {
        setText(verdict, 'Cancelled.');
        this.#show('ready');
      } else {
        verdict.classList.add('trouble');
        setText(verdict, error.message);
        this.#show('ready');
      }
    } finally {
      this.#cancel = null;
    }
  }

  /** Cancels a running comparison. */
  cancel() {
    this.#cancel?.abort(new DOMException('The comparison was cancelled.', 'AbortError'));
  }

  #build(root) {
    const { mirrors, size_bytes, budget_bytes, about } = this.#options;
    const many = mirrors.length === 1 ? '1 mirror' : `${mirrors.length} mirrors`;
    const all = mirrors.length === 1 ? '' : `, ${formatSize(budget_bytes * mirrors.length)} in all`;
    const parts = {
      box: element('section', { 'aria-label': 'Which mirror?' }),
      button: element('button', { type: 'button', class: 'go' }, 'Compare'),
      stop: element('button', { type: 'button' }, 'Cancel'),
      progress: element('progress', { max: '1', value: '0', 'aria-label': 'Comparison' }),
      turns: element('ul', { class: 'turns' }),
      // The only part that a screen reader reads by itself: it would read progress without end.
      verdict: element('p', { class: 'verdict', role: 'status', 'aria-live': 'polite' }),
      table: element('div', { class: 'table' }),
      notes: notes(about),
    };
    parts.running = element('div', { class: 'running' }, element('div', { class: 'bar' }, parts.progress, parts.stop), parts.turns);
    parts.box.append(
      element('header', {}, element('h2', {}, 'Which mirror?', ' ', element('small', {}, `for ${formatSize(size_bytes)}`)), parts.button),
      element('p', { class: 'cost' }, `Downloads up to ${formatSize(budget_bytes)} from each of ${many}${all}, to forecast how long the file will take.`),
      parts.running,
      parts.verdict,
      parts.table,
      parts.notes,
    );
    root.append(parts.box);
    parts.button.addEventListener('click', () => {
      this.start();
      parts.stop.focus();
    });
    parts.stop.addEventListener('click', () => this.cancel());
    return parts;
  }

  #show(state) {
    const { box, button, stop, running, table, notes } = this.#parts;
    const focused = box.getRootNode().activeElement;
    box.dataset.state = state;
    button.hidden = state === 'running';
    running.hidden = state !== 'running';
    table.hidden = notes.hidden = state !== 'done';
    setText(button, state === 'done' ? 'Compare again' : 'Compare');
    // The focused button may be gone: keyboard users continue from here.
    if (focused === stop && state !== 'running') button.focus();
  }

  #progress({ share, mirrors }) {
    const { progress, turns } = this.#parts;
    progress.value = share;
    while (turns.children.length < mirrors.length) turns.append(element('li', {}, nameOf(mirrors[turns.children.length].url), element('span')));
    for (const [index, { state, probes }] of mirrors.entries()) {
      const item = turns.children[index];
      item.dataset.state = state;
      const count = probes === 1 ? '1 probe' : `${probes} probes`;
      setText(item.lastChild, state === 'failed' ? 'failed' : probes === 0 ? state : count);
    }
  }

  #result(ranking) {
    const { verdict, table } = this.#parts;
    verdict.classList.add(ranking.verdict);
    table.replaceChildren(tableOf(ranking, this.#options));
    this.#show('done');
    setText(verdict, describeVerdict(ranking));
  }
}

function tableOf(ranking, options) {
  const end_s = scaleEnd(ranking.mirrors);
  const level = formatLevel(ranking.mirrors.find((one) => one.goodput)?.goodput.level);
  // The roles are explicit, because a table with a layout for phones would lose them.
  const head = (text) => element('th', { role: 'columnheader', scope: 'col' }, text);
  return element(
    'table',
    { role: 'table' },
    element('caption', { class: 'unseen' }, `Mirrors by forecast time to download ${formatSize(options.size_bytes)}`),
    element(
      'thead',
      { role: 'rowgroup' },
      element('tr', { role: 'row' }, ...['#', 'Mirror', `Forecast time, ${level} interval`, 'Goodput', 'Round trip', 'Probes', 'Used'].map(head)),
    ),
    element('tbody', { role: 'rowgroup' }, ...ranking.mirrors.map((mirror) => rowOf(mirror, ranking, end_s, options))),
  );
}

function rowOf(mirror, { verdict, close }, end_s, options) {
  const cell = (name, ...children) => element('td', { role: 'cell', class: name }, ...children);
  const tied = mirror.close && verdict === 'close' && 1 < close;
  const place = mirror.rank === null ? '–' : tied ? '=1' : String(mirror.rank);
  const row = element(
    'tr',
    { role: 'row', class: mirror.rank === null ? 'failed' : tied ? 'tied' : mirror.rank === 1 ? 'first' : '' },
    cell('place', place),
    element('th', { role: 'rowheader', scope: 'row', class: 'name' }, linkTo(mirror, options)),
  );
  if (mirror.rank === null) {
    const reason = cell('reason', mirror.failure);
    reason.colSpan = 4;
    row.append(reason);
  } else {
    row.append(
      cell('time', element('strong', {}, formatSeconds(mirror.time_s)), element('span', { class: 'aside' }, formatTimes(mirror)), drawing(mirror, end_s)),
      cell('goodput', formatValue(mirror.goodput.value, 'bit/s'), trust(mirror.goodput, 'ratio')),
      cell('rtt', formatValue(mirror.rtt?.value, 's'), trust(mirror.rtt, 's')),
      cell('probes', formatCount(mirror.probes), mirror.failures === 0 ? '' : ` (${mirror.failures} failed)`),
    );
  }
  row.append(cell('used', formatValue(mirror.bytes, 'bytes')));
  return row;
}

/** Error of the forecasts so far, and the method. */
function trust(forecast, unit) {
  return element('span', { class: 'aside trust' }, forecast === null ? '' : `error ${formatValue(forecast.error, unit)}, ${forecast.method}`);
}

/** The interval as a band with the forecast on it, as in the station's graphs. */
function drawing({ time_s, lower_s, upper_s }, end_s) {
  const part = (tag, attributes) => {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return node;
  };
  const percent = (s) => `${Math.min(100, (100 * s) / end_s).toFixed(2)}%`;
  const svg = part('svg', { width: '100%', height: '10', 'aria-hidden': 'true' });
  svg.append(part('line', { x1: '0', x2: '100%', y1: '5', y2: '5', class: 'axis' }));
  if (lower_s !== null) {
    const wide = Math.max(0.5, (100 * (Math.min(end_s, upper_s) - lower_s)) / end_s);
    svg.append(part('rect', { x: percent(lower_s), width: `${Math.max(0, wide).toFixed(2)}%`, y: '1', height: '8', class: 'band' }));
  }
  svg.append(part('circle', { cx: percent(time_s), cy: '5', r: '3.5', class: 'mark' }));
  return svg;
}

/** End of the axis: the longest time. Longer intervals of an erratic mirror are cut. */
function scaleEnd(mirrors) {
  const ends = mirrors.filter((one) => one.rank !== null).map((one) => Math.max(one.time_s * 1.05, Math.min(one.upper_s ?? 0, one.time_s * 2)));
  return Math.max(...ends, Number.MIN_VALUE);
}

/** A mirror's name, with a link to the file if that is known. */
function linkTo({ url, kind }, { file }) {
  const name = nameOf(url);
  if (!/^https?:/.test(url) || (kind === 'station' && !file)) return name;
  const href = kind === 'station' ? addressAt(file, url) : url;
  return href === null ? name : element('a', { href, rel: 'noreferrer' }, name);
}

/**
 * Address of `file` on the host of the station at `url`; `null` if it is not a web address, such as
 * a script.
 */
function addressAt(file, url) {
  try {
    const address = new URL(file, url);
    return /^https?:$/.test(address.protocol) ? address.href : null;
  } catch {
    return null;
  }
}

/** A mirror's host, with its path in smaller letters. */
function nameOf(url) {
  const [host, ...path] = mirrorName(url).split('/');
  const rest = path.length === 0 ? '' : `/${path.join('/')}`;
  return element('span', { class: 'mirror' }, host, element('small', {}, rest));
}

function notes(about) {
  const list = element('ul', {}, ...NOTES.map((text) => element('li', {}, text)));
  const more = about === undefined ? [] : [element('p', {}, element('a', { href: about }, 'Compare your own mirrors'))];
  return element('details', {}, element('summary', {}, 'Limits of this forecast'), list, ...more);
}

const SVG = 'http://www.w3.org/2000/svg';

const NOTES = [
  'The forecast assumes that the conditions of the last seconds continue. During a download of minutes or hours they may change.',
  'Probes are short. Connections start slowly, also after each pause between rounds, so on long and fast paths a real download is faster than the forecast. Where servers throttle long downloads, it is slower. For this reason the small probes at the start do not count; to use larger probes, increase the budget.',
  'The interval is that of one more probe: nine of ten should fall inside. Two mirrors are too close to call if the forecast of either lies inside the interval of the other.',
  'For a file on a web server, the round trip is the time to its first byte, including the server’s own delay.',
  'Used bytes do not include packet headers; failed probes count in full. If a server cannot send a part of a file, its transfer is broken off, and bytes that are still on the way are not counted.',
];
