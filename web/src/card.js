// One series on the page: its numbers, and its graph or its table.
import { element, setAttribute, setText } from './dom.js';
import {
  ABSENT,
  describeSeries,
  formatCount,
  formatFailure,
  formatInterval,
  formatLevel,
  formatTime,
  formatValue,
  quantityTitle,
} from './format.js';
import { Graph } from './graph.js';
import { hasFailed } from './store.js';
import { Table } from './table.js';
import { traceOf } from './trace.js';

/** A card for one series. It draws only what `render` gives it and only while it is in view. */
export class Card {
  constructor(series) {
    this.title = quantityTitle(series.quantity);
    this.in_view = false;
    this.graph = null;
    this.table = null;
    this.trace = null;
    this.#build(series);
  }

  /** Shows the series as it is now; `points_shown` is how far back the graph reaches. */
  render(series, points_shown) {
    this.series = series;
    this.#writeNumbers(series);
    if (!this.in_view) return;
    if (this.table) {
      this.table.update(series);
      return;
    }
    setAttribute(this.figure, 'aria-label', describeSeries(series));
    const waiting = series.points.length === 0;
    this.waiting.hidden = !waiting;
    setText(this.waiting, series.history === 'present' ? 'no measurements yet…' : 'reading…');
    if (waiting) return;
    this.graph ??= new Graph(this.paper, (index) => this.#readOut(index));
    this.trace = traceOf(series.points, series.next, series.unit, points_shown);
    setText(this.axis_unit, this.trace.has_values ? this.trace.scale.label : '');
    this.graph.draw(this.trace);
  }

  /** Says whether the card is in view; out of view it keeps its numbers and gives its graph back. */
  setInView(in_view) {
    this.in_view = in_view;
    if (!in_view) this.#dropGraph();
  }

  /** Reads the theme's colours again. */
  recolour() {
    this.graph?.recolour();
  }

  /** Gives everything back. */
  destroy() {
    this.#dropGraph();
    this.root.remove();
  }

  #build(series) {
    const id = `card-${(next_id += 1)}`;
    this.last = element('dd', { class: 'figure' });
    this.last_time = element('dd', { class: 'aside' });
    this.next = element('dd', { class: 'figure' });
    this.interval = element('dd', { class: 'aside' });
    this.mae = element('dd', { class: 'figure' });
    this.method = element('dd', { class: 'aside method' });
    this.count = element('span', { class: 'count' });
    this.failures = element('span', { class: 'failures' });

    this.axis_unit = element('span', { class: 'axis-unit', 'aria-hidden': 'true' });
    this.paper = element('div', { class: 'paper' });
    this.read_out = element('p', { class: 'read-out', hidden: '' });
    this.waiting = element('p', { class: 'waiting' });
    this.figure = element('div', { class: 'figure-box', role: 'img' }, this.paper, this.axis_unit, this.read_out, this.waiting);
    this.body = element('div', { class: 'body' }, this.figure);

    this.toggle = element('button', { type: 'button', class: 'quiet', 'aria-pressed': 'false' }, 'Table');
    this.toggle.setAttribute('aria-label', `Table of ${this.title}, ${series.target}`);
    this.toggle.addEventListener('click', () => this.#toggleTable());

    const numbers = [
      ['last', 'Last', this.last, this.last_time],
      ['next', 'Next', this.next, this.interval],
      ['mae', 'MAE so far', this.mae, this.method],
    ];
    this.root = element(
      'article',
      { class: 'card', 'aria-labelledby': id },
      element(
        'header',
        {},
        element('h3', { id }, this.title),
        this.title === series.quantity ? '' : element('code', {}, series.quantity),
        this.toggle,
      ),
      element(
        'dl',
        { class: 'numbers' },
        ...numbers.map(([kind, label, ...values]) => element('div', { class: kind }, element('dt', {}, label), ...values)),
      ),
      this.body,
      element('footer', {}, this.count, this.failures),
    );
    this.mae.parentElement.title = 'Mean absolute error of the forecasts issued so far, and the method that made the next one';
  }

  #writeNumbers(series) {
    const failed = hasFailed(series.last);
    setText(this.last, failed ? formatFailure(series.last.error) : formatValue(series.last?.value, series.unit));
    this.last.classList.toggle('words', failed);
    setText(this.last_time, series.last ? formatTime(series.last.time_s) : ABSENT);

    const median = series.next?.median;
    setText(this.next, formatValue(median?.value, series.unit));
    const interval = formatInterval(series.next?.lower, series.next?.upper, series.unit);
    setText(this.interval, interval || (median ? 'interval not known yet' : 'no forecast yet'));
    setAttribute(this.interval, 'title', interval && `${formatLevel(series.next.level)} of values are expected in this interval`);
    setText(this.mae, formatValue(median?.mae, series.unit));
    setText(this.method, median?.method ?? ABSENT);
    setAttribute(this.method, 'title', median?.method ?? '');

    setText(this.count, `${formatCount(series.count)} measured`);
    setText(this.failures, failuresText(series));
  }

  #readOut(index) {
    if (!this.trace) return;
    const [times] = this.trace.columns;
    const point = index === null ? undefined : this.series.points.findLast((point) => point.time_s === times[index]);
    this.read_out.hidden = !point;
    if (!point) return;
    const { unit } = this.series;
    const measured = hasFailed(point) ? formatFailure(point.error) : formatValue(point.value, unit);
    const interval = formatInterval(point.lower, point.upper, unit);
    this.read_out.replaceChildren(
      element('span', {}, formatTime(point.time_s)),
      element('span', { class: 'last' }, measured),
      element('span', { class: 'next' }, `${formatValue(point.forecast, unit)}${interval && ` (${interval})`}`),
      element('span', {}, point.method ?? ''),
    );
  }

  #toggleTable() {
    const shown = this.table === null;
    this.toggle.setAttribute('aria-pressed', String(shown));
    if (shown) {
      this.#dropGraph();
      this.table = new Table(`${this.title}, ${this.series.source} to ${this.series.target}`);
      this.body.replaceChildren(this.table.root);
    } else {
      this.table = null;
      this.body.replaceChildren(this.figure);
    }
    this.changed?.();
  }

  #dropGraph() {
    this.graph?.destroy();
    this.graph = null;
    this.read_out.hidden = true;
  }
}

function failuresText(series) {
  if (!(0 < series.failures)) return 'none failed';
  const last = series.last_failure;
  const words = last ? `, last: ${formatFailure(last.error)} at ${formatTime(last.time_s)}` : '';
  return `${formatCount(series.failures)} failed${words}`;
}

let next_id = 0;
