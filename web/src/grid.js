// Grid of all pairs: a row for each station that measures, a column for each station that is
// measured.
import { element, setAttribute, setText } from './dom.js';
import { formatFailure, formatIn, formatValue, quantityTitle, scaleFor } from './format.js';
import { formatAge, isStale, formatReadOnly, whereItIs } from './mesh.js';
import { hasFailed, keyOf } from './store.js';

/**
 * A table of pairs that follows a mesh. It draws in animation frames, and only cells that changed.
 */
export class Grid {
  /** Calls `chosen(pair)` with the selected pair; `null` = all pairs. */
  constructor(mesh, chosen) {
    this.mesh = mesh;
    this.chosen = chosen;
    this.cells = new Map();
    this.changed = new Set();
    this.page = 0;
    this.parts = Object.fromEntries(PARTS.map((id) => [id, document.getElementById(id)]));
    const { mesh_quantity, mesh_sort, mesh_from, mesh_to, mesh_lost, mesh_before, mesh_after, mesh_all } = this.parts;
    for (const part of [mesh_quantity, mesh_sort, mesh_lost]) part.addEventListener('change', () => this.#turn(0));
    mesh_sort.addEventListener('change', () => (this.sorted = true));
    for (const part of [mesh_from, mesh_to]) part.addEventListener('input', () => this.#turn(0));
    mesh_before.addEventListener('click', () => this.#turn(this.page - 1));
    mesh_after.addEventListener('click', () => this.#turn(this.page + 1));
    mesh_all.addEventListener('click', () => this.choose(null));
    this.#build();
    setInterval(() => document.hidden || this.#tick(), TICK_MS);
  }

  /** Requests that rows and columns are those of the mesh as it is now. */
  arrange() {
    this.disordered = true;
    this.#ask();
  }

  /** Requests that one pair is drawn, if it is there. */
  redraw(pair) {
    if (pair === null) return;
    // A new pair needs a row and a column first.
    this.disordered ||= this.mesh.revision !== this.revision;
    this.changed.add(pair.key);
    this.#ask();
  }

  /** Selects the pair for which graphs are shown; `null` = all pairs. */
  choose(pair) {
    const before = this.choice;
    this.choice = pair;
    for (const one of [before, pair]) {
      if (one) this.#press(one);
    }
    this.parts.mesh_choice.hidden = pair === null;
    const elsewhere = pair && this.mesh.seriesOf(pair.source, pair.target).length === 0 ? ' (for its graphs, open the page linked above)' : '';
    if (pair) setText(this.parts.mesh_chosen, `${pair.source} → ${pair.target}${elsewhere}`);
    this.chosen(pair);
  }

  #build() {
    // A grid, not a table: screen readers keep the arrow keys of tables for themselves (WAI-ARIA
    // 1.2, `grid`).
    this.caption = element('caption', { class: 'unseen', id: 'mesh_caption' });
    this.head = element('tr', { role: 'row', 'aria-rowindex': '1' });
    const head = element('thead', { role: 'rowgroup' }, this.head);
    const table = element('table', { role: 'grid', 'aria-labelledby': 'mesh_caption' }, this.caption, head);
    table.addEventListener('click', ({ target }) => {
      const cell = this.#cellAt(target);
      if (cell) this.choose(this.#isChosen(cell) ? null : { source: cell.source, target: cell.target });
    });
    table.addEventListener('focusin', ({ target }) => this.#rove(target));
    table.addEventListener('keydown', (event) => this.#move(event));
    this.sheet = table;
    this.parts.mesh_box.replaceChildren(table);
  }

  #turn(page) {
    this.page = page;
    this.arrange();
  }

  #ask() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      if (this.disordered) this.#arrange();
      else for (const key of this.changed) this.#draw(key);
      this.changed.clear();
    });
  }

  #arrange() {
    this.disordered = false;
    this.revision = this.mesh.revision;
    const quantities = this.mesh.quantities();
    const is_member = this.#sayWhere();
    const read_only = formatReadOnly(this.mesh.part);
    this.parts.mesh_read_only.hidden = read_only === null;
    setText(this.parts.mesh_read_only, read_only ?? '');
    this.parts.mesh.hidden = quantities.length === 0 && !is_member;
    this.parts.nav_mesh.hidden = this.parts.mesh.hidden;
    this.parts.mesh_pairs.hidden = quantities.length === 0;
    if (quantities.length === 0) {
      if (this.choice) this.choose(null);
      return;
    }
    this.#offer(quantities);
    const { mesh_quantity, mesh_sort, mesh_from, mesh_to, mesh_lost } = this.parts;
    const has_sites = [...this.mesh.peers.keys()].some((host) => this.mesh.siteOf(host) !== '');
    // Until the reader selects an order.
    if (!this.sorted) mesh_sort.value = this.mesh.hasSites() ? 'site' : 'name';
    mesh_sort.parentElement.hidden = !has_sites;
    const asked = { quantity: mesh_quantity.value, from: mesh_from.value, to: mesh_to.value, sort: mesh_sort.value, page: this.page };
    const table = this.mesh.arrange({ ...asked, shows_lost: mesh_lost.checked });
    this.page = table.page;
    const sites = mesh_sort.value === 'site' && has_sites ? (name) => this.mesh.siteOf(name) : null;
    const shape = JSON.stringify([table.quantity, table.rows, table.columns, sites && [...table.rows, ...table.columns].map(sites)]);
    if (shape !== this.shape) this.#lay(table, sites);
    this.shape = shape;
    this.#nameStations(table);
    this.#tally(table);
    for (const key of this.cells.keys()) this.#draw(key);
  }

  /**
   * On a member, shows where other stations' pairs are forecast: a member forecasts only its own.
   * Returns whether the station is a member.
   */
  #sayWhere() {
    const where = whereItIs(this.mesh.part);
    const { mesh_joined, mesh_there } = this.parts;
    mesh_joined.hidden = where === null;
    if (where === null) return false;
    if (where.url === null) mesh_there.removeAttribute('href');
    else setAttribute(mesh_there, 'href', where.url);
    setText(mesh_there, where.text);
    return true;
  }

  /** Updates the list of quantities, and keeps the reader's selection. */
  #offer(quantities) {
    const select = this.parts.mesh_quantity;
    const offered = [...select.options].map((option) => option.value);
    if (offered.join() === quantities.join()) return;
    const chosen = quantities.includes(select.value) ? select.value : quantities[0];
    select.replaceChildren(...quantities.map((quantity) => element('option', { value: quantity }, quantityTitle(quantity))));
    select.value = chosen;
  }

  /**
   * Lays out a new table. `sites(name)` is the site of a station, by which the table is divided;
   * `null` = it is not divided.
   */
  #lay({ quantity, rows, columns, first }, sites) {
    const focused = this.#cellAt(document.activeElement);
    this.cells.clear();
    this.sheet.style.setProperty('--columns', columns.length);
    this.headings = new Map([...rows, ...columns].map((name) => [name, []]));
    const corner = element('th', { scope: 'col', role: 'columnheader', class: 'corner' }, 'from \\ to');
    this.head.replaceChildren(corner, ...columns.map((name, column) => this.#heading(name, 'column', column)));
    this.table = rows.map((source, row) => columns.map((target, column) => newCell({ source, target, quantity, row, column })));
    const begins = (names, at) => sites !== null && 0 < at && sites(names[at]) !== sites(names[at - 1]);
    const bodies = [];
    for (const [row, line] of this.table.entries()) {
      const divided = begins(rows, row);
      // One group of rows for each site; a screen reader reads its name.
      if (row === 0 || divided) bodies.push(element('tbody', { role: 'rowgroup', ...(sites && { 'aria-label': `site ${sites(rows[row]) || 'unknown'}` }) }));
      const place = { role: 'row', 'aria-rowindex': String(first + row + 2), ...(divided && { class: 'begins' }) };
      bodies.at(-1).append(element('tr', place, this.#heading(rows[row], 'row', row), ...line.map((cell) => cell.root)));
    }
    for (const body of [...this.sheet.tBodies]) body.remove();
    this.sheet.append(...bodies);
    for (const at of columns.keys()) {
      if (!begins(columns, at)) continue;
      this.head.children[at + 1].classList.add('begins');
      for (const line of this.table) line[at].root.classList.add('begins');
    }
    for (const cell of this.table.flat()) this.cells.set(cell.key, cell);
    this.caption.textContent = `${quantityTitle(quantity)} of all pairs of stations: newest value, forecast and its error, age`;
    const again = focused && this.table.flat().find((cell) => cell.source === focused.source && cell.target === focused.target);
    const entry = again ?? this.table.flat().find((cell) => this.mesh.pairs.has(cell.key));
    this.roving = null;
    for (const cell of this.table.flat()) this.#draw(cell.key);
    if (entry) this.#rove(entry.button);
    again?.button?.focus({ preventScroll: true });
    if (this.choice) this.#press(this.choice);
  }

  /**
   * Heading of a row or column (`which`); the accessible names of cells refer to its name alone.
   */
  #heading(name, which, at) {
    const state = element('small');
    const attributes = { scope: which === 'row' ? 'row' : 'col', role: `${which}header`, title: name };
    const heading = element('th', attributes, element('span', { id: headingId(which, at) }, name), state);
    this.headings.get(name).push({ heading, state });
    return heading;
  }

  /** Shows the site of each station, or that it is lost. */
  #nameStations({ rows, columns }) {
    for (const name of new Set([...rows, ...columns])) {
      const lost = this.mesh.isLost(name);
      const { since_s } = this.mesh.peers.get(name) ?? {};
      for (const { heading, state } of this.headings.get(name)) {
        heading.classList.toggle('lost', lost);
        setText(state, lost ? '✕ lost' : this.mesh.siteOf(name));
        setAttribute(heading, 'title', lost && Number.isFinite(since_s) ? `${name}, lost` : name);
      }
    }
  }

  #tally({ rows, columns, first, rows_total, columns_total, lost, pages, page }) {
    const all = rows.length === rows_total && columns.length === columns_total;
    const of = (count, total) => (count === total ? `${total}` : `${count} of ${total}`);
    const part = 1 < pages ? `rows ${first + 1} to ${first + rows.length} of ${rows_total}` : `${of(rows.length, rows_total)} × ${of(columns.length, columns_total)}`;
    const more = all || columns.length === columns_total ? '' : `, columns 1 to ${columns.length} of ${columns_total}: use the filters to see others`;
    setText(this.parts.mesh_tally, rows.length === 0 || columns.length === 0 ? 'No station matches these filters. Change or clear a filter.' : `${part}${1 < pages ? more : ''}`);
    setAttribute(this.sheet, 'aria-rowcount', String(1 + rows_total));
    setAttribute(this.sheet, 'aria-colcount', String(1 + columns_total));
    this.parts.mesh_lost.parentElement.hidden = lost === 0;
    setText(this.parts.mesh_lost_count, String(lost));
    this.parts.mesh_pages.hidden = pages === 1;
    this.parts.mesh_before.disabled = page === 0;
    this.parts.mesh_after.disabled = page === pages - 1;
  }

  #draw(key) {
    const cell = this.cells.get(key);
    const pair = this.mesh.pairs.get(key);
    if (!cell || !pair) return;
    if (!cell.button) furnish(cell, this.#isChosen(cell));
    const { unit, last, next } = pair;
    const failed = hasFailed(last);
    cell.root.classList.toggle('failed', failed);
    cell.root.classList.toggle('of-lost', this.mesh.isLost(cell.source) || this.mesh.isLost(cell.target));
    setAttribute(cell.button, 'title', `${cell.source} → ${cell.target}${failed ? `: ${formatFailure(last.error)}` : ''}`);
    setText(cell.now, failed ? `✕ ${formatFailure(last.error)}` : formatValue(last?.value, unit));
    setText(cell.ahead, pair.is_remote ? 'forecast elsewhere' : withError(next?.median, unit));
    this.#age(cell, pair);
  }

  #age(cell, pair) {
    const now_s = Date.now() / 1000;
    const stale = isStale(pair, now_s);
    cell.root.classList.toggle('stale', stale);
    const age = formatAge(now_s - (pair.last?.time_s ?? NaN));
    setText(cell.age, stale ? `stale, ${age}` : age);
  }

  #tick() {
    if (this.parts.mesh.hidden) return;
    for (const [key, cell] of this.cells) {
      const pair = this.mesh.pairs.get(key);
      if (pair && cell.button) this.#age(cell, pair);
    }
  }

  #cellAt(node) {
    const button = node instanceof Element ? node.closest('button') : null;
    return button && this.cells.get(button.dataset.key);
  }

  #isChosen({ source, target }) {
    return this.choice !== null && this.choice.source === source && this.choice.target === target;
  }

  #press({ source, target }) {
    const cell = (this.table ?? []).flat().find((cell) => cell.source === source && cell.target === target);
    cell?.button?.setAttribute('aria-pressed', String(this.#isChosen(cell)));
  }

  /** The Tab key reaches one cell; arrow keys move on from it. */
  #rove(node) {
    const cell = this.#cellAt(node);
    if (!cell?.button || cell === this.roving) return;
    this.roving?.button?.setAttribute('tabindex', '-1');
    cell.button.setAttribute('tabindex', '0');
    this.roving = cell;
  }

  #move(event) {
    const cell = this.#cellAt(event.target);
    const way = WAYS[event.key];
    if (!cell || !way || event.altKey || event.metaKey || (event.ctrlKey && way.length === 2)) return;
    event.preventDefault();
    const [down, right, from] = way;
    let { row, column } = cell;
    if (from !== undefined) {
      column = from === 'start' ? -1 : this.table[0].length;
      if (event.ctrlKey) row = from === 'start' ? 0 : this.table.length - 1;
    }
    // Skips pairs that are not measured.
    do {
      row += down;
      column += right;
    } while (this.table[row]?.[column] && !this.table[row][column].button);
    this.table[row]?.[column]?.button.focus();
  }

  choice = null;
  disordered = false;
  frame = null;
  revision = -1;
  roving = null;
  shape = '';
  sorted = false;
}

function newCell({ source, target, quantity, row, column }) {
  const key = keyOf({ source, target, quantity });
  const own = source === target;
  const root = element('td', { role: 'gridcell', class: own ? 'own' : 'unmeasured' }, element('span', { class: 'unseen' }, own ? 'itself' : 'not measured'));
  return { key, source, target, row, column, root, button: null };
}

/** Adds the elements of a measured pair to a cell. */
function furnish(cell, pressed) {
  cell.now = element('span', { class: 'last' });
  cell.ahead = element('span', { class: 'next' });
  cell.age = element('span', { class: 'age' });
  const id = `mesh_cell_${cell.row}_${cell.column}`;
  // Its accessible name is source, target, and the cell's own text.
  const labels = `${headingId('row', cell.row)} ${headingId('column', cell.column)} ${id}`;
  const attributes = { id, type: 'button', tabindex: '-1', 'aria-labelledby': labels, 'aria-pressed': String(pressed), 'data-key': cell.key };
  cell.button = element('button', attributes, cell.now, ' ', cell.ahead, ' ', cell.age);
  cell.root.classList.remove('own', 'unmeasured');
  cell.root.replaceChildren(cell.button);
}

function headingId(which, at) {
  return `mesh_${which}_${at}`;
}

/** A forecast and its mean absolute error in one scale: `→ 18.4 ± 0.71 ms`. */
function withError(median, unit) {
  if (!Number.isFinite(median?.value)) return 'no forecast yet';
  if (!Number.isFinite(median.mae)) return `→ ${formatValue(median.value, unit)}`;
  const scale = scaleFor(unit, Math.max(Math.abs(median.value), median.mae));
  return `→ ${formatIn(median.value, scale)} ± ${formatIn(median.mae, scale)}${scale.label && `\u202f${scale.label}`}`;
}

// Ages are written in steps of ten seconds.
const TICK_MS = 5_000;
const WAYS = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  Home: [0, 1, 'start'],
  End: [0, -1, 'end'],
};
const PARTS = [
  'mesh',
  'nav_mesh',
  'mesh_quantity',
  'mesh_sort',
  'mesh_from',
  'mesh_to',
  'mesh_lost',
  'mesh_lost_count',
  'mesh_pairs',
  'mesh_read_only',
  'mesh_joined',
  'mesh_there',
  'mesh_tally',
  'mesh_pages',
  'mesh_before',
  'mesh_after',
  'mesh_box',
  'mesh_choice',
  'mesh_chosen',
  'mesh_all',
];
