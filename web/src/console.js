// Console: a row of figures for each quantity that this browser measures.
import { element, setAttribute, setText } from './dom.js';
import {
  ABSENT,
  formatBound,
  formatCount,
  formatCalibrating,
  formatFailure,
  formatInterval,
  formatMethod,
  formatSquared,
  formatValue,
  quantityTitle,
  formatWithdrawn,
} from './format.js';
import { hasFailed, standingForecast } from './store.js';

/**
 * Table of `quantities` with their current values, forecasts and errors. It changes only in
 * `update`.
 */
export class Console {
  /** Calls `toggled(quantity, shown)` when the reader shows or hides a graph. */
  constructor(quantities, toggled) {
    this.rows = new Map(quantities.map((quantity) => [quantity, new Row(quantity, toggled)]));
    // On a narrow screen the rows become blocks. Roles keep them a table for screen readers.
    this.root = element(
      'table',
      { class: 'console', role: 'table' },
      element('caption', { class: 'unseen' }, 'What this browser measures: values, forecasts and their errors'),
      element(
        'thead',
        { role: 'rowgroup' },
        element('tr', { role: 'row' }, ...COLUMNS.map(([kind, head]) => element('th', { scope: 'col', role: 'columnheader', class: kind }, head))),
      ),
      element('tbody', { role: 'rowgroup' }, ...[...this.rows.values()].map((row) => row.root)),
    );
  }

  /** Shows a series as it is now. */
  update(series) {
    this.rows.get(series.quantity)?.update(series);
  }
}

class Row {
  constructor(quantity, toggled) {
    const title = quantityTitle(quantity);
    const box = element('input', { type: 'checkbox', 'aria-label': `Graph of ${title}` });
    box.checked = true;
    box.addEventListener('change', () => toggled(quantity, box.checked));
    const head = element('th', { scope: 'row', role: 'rowheader', class: 'quantity' }, element('label', {}, box, element('span', {}, title), element('code', {}, quantity)));
    this.cells = Object.fromEntries(
      COLUMNS.slice(1).map(([kind, label]) => [kind, element('td', { role: 'cell', class: kind, 'data-label': label }, ABSENT)]),
    );
    this.root = element('tr', { role: 'row', 'data-quantity': quantity }, head, ...Object.values(this.cells));
  }

  update(series) {
    const { unit, last, count, failures } = series;
    const next = standingForecast(series);
    const { median } = next ?? {};
    const failed = hasFailed(last);
    this.cells.now.classList.toggle('words', failed);
    this.#write('now', failed ? formatFailure(last.error) : formatBound(last?.value, unit, last?.detail?.at_least));
    this.#write('ahead', formatBound(median?.value, unit, next?.at_least));
    this.#write('interval', formatWithdrawn(series) || formatInterval(next?.lower, next?.upper, unit) || (next ? formatCalibrating(next.count) : ABSENT));
    this.#write('method', formatMethod(median) || ABSENT);
    this.#write('mae', formatValue(median?.mae, unit));
    this.#write('mse', formatSquared(median?.mse, unit));
    this.#write('count', formatCount(count));
    this.#write('failed', formatCount(failures));
    this.cells.failed.classList.toggle('words', 0 < failures);
  }

  #write(kind, text) {
    const cell = this.cells[kind];
    setText(cell, text);
    // These may be cut.
    if (CUT.has(kind)) setAttribute(cell, 'title', text);
  }
}

// Columns that may be cut; the title has the whole text.
const CUT = new Set(['now', 'interval', 'method']);
const COLUMNS = [
  ['quantity', 'Graph of'],
  ['now', 'Now'],
  ['ahead', 'Next'],
  ['interval', 'Its 90\u202f% interval'],
  ['method', 'Method in force'],
  ['mae', 'MAE so far'],
  ['mse', 'MSE so far'],
  ['count', 'Measured'],
  ['failed', 'Failed'],
];
