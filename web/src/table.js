// Table of a series: the points of its graph, newest first, for reading and for screen readers.
import { element, setAttribute, setText } from './dom.js';
import { ABSENT, formatBound, formatFailure, formatInterval, formatTime, formatValue } from './format.js';
import { hasFailed } from './store.js';

/**
 * A table that follows its series. New rows are added above, so that a reader's position does not
 * move.
 */
export class Table {
  /** `corrected` adds a column with the uncorrected values. */
  constructor({ corrected = false } = {}) {
    this.corrected = corrected;
    this.revision = -1;
    this.appended = 0;
    this.rows = element('tbody');
    this.caption = element('caption', { class: 'unseen' });
    const heads = ['Time', 'Measured', ...(corrected ? ['Uncorrected'] : []), 'Forecast', 'Interval', 'Method'];
    this.root = element(
      'div',
      { class: 'table', tabindex: '0', role: 'region' },
      element(
        'table',
        {},
        this.caption,
        element('thead', {}, element('tr', {}, ...heads.map((head) => element('th', { scope: 'col' }, head)))),
        this.rows,
      ),
    );
  }

  /** Sets the caption and the accessible name. */
  name(caption) {
    setText(this.caption, caption);
    setAttribute(this.root, 'aria-label', caption);
  }

  /** Shows the series' points as they are now. */
  update(series) {
    const { points } = series;
    const fresh =
      series.revision === this.revision ? Math.min(series.appended - this.appended, points.length) : points.length;
    if (fresh === 0) return;
    const added = points.slice(points.length - fresh).reverse().map((point) => rowOf(point, series.unit, this.corrected));
    if (series.revision === this.revision) this.rows.prepend(...added);
    else this.rows.replaceChildren(...added);
    while (points.length < this.rows.childElementCount) this.rows.lastElementChild.remove();
    this.revision = series.revision;
    this.appended = series.appended;
  }
}

function rowOf(point, unit, corrected) {
  const failed = hasFailed(point);
  return element(
    'tr',
    failed ? { class: 'failed' } : {},
    element('th', { scope: 'row' }, formatTime(point.time_s)),
    element('td', {}, failed ? formatFailure(point.error) : formatBound(point.value, unit, point.at_least)),
    ...(corrected ? [element('td', {}, formatValue(point.raw, unit))] : []),
    element('td', {}, formatValue(point.forecast, unit)),
    element('td', {}, formatInterval(point.lower, point.upper, unit) || ABSENT),
    element('td', {}, point.method ?? ABSENT),
  );
}
