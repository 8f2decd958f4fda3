// Card of one series: its numbers, and its graph or its table.
import { element, setAttribute, setText } from './dom.js';
import {
  ABSENT,
  describeSeries,
  formatCount,
  formatBound,
  formatCalibrating,
  formatFailure,
  formatInterval,
  formatLevel,
  formatMethod,
  formatTime,
  formatValue,
  quantityTitle,
  formatRefused,
  formatWithdrawn,
} from './format.js';
import { fanOf, formatAhead } from './fan.js';
import { Graph, OWN_HEIGHT, PART_HEIGHT } from './graph.js';
import { POINTS_MAX, hasFailed, standingForecast } from './store.js';
import { Table } from './table.js';
import { partOf, traceOf } from './trace.js';

/** Card of one series. It draws only what `render` passes, and only while it is in view. */
export class Card {
  /** `own` marks cards of this browser's measurements: the console shows their other figures. */
  constructor(series, { own = false } = {}) {
    this.own = own;
    this.title = quantityTitle(series.quantity);
    this.in_view = false;
    this.graphs = [];
    this.separate = false;
    this.table = null;
    this.points = [];
    this.trace = null;
    this.#build(series);
  }

  /**
   * Shows the series as it is now. `points_shown` limits the graph. `points` replaces the series'
   * own points. `separate` gives the forecast a graph of its own.
   */
  render(series, { points_shown, points = series.points, separate = false }) {
    this.series = series;
    this.#nameTable(series);
    this.#separate(separate);
    this.#writeNumbers(series);
    if (!this.in_view) return;
    if (this.table) {
      this.table.update(series);
      return;
    }
    this.fan = fanOf(series);
    const further = this.fan.map((one) => formatAhead(one, series.unit, ' to '));
    setAttribute(this.figure, 'aria-label', [describeSeries(series), ...further].join('; '));
    const waiting = points.length === 0;
    this.waiting.hidden = !waiting;
    // Names of empty graphs would overlap the text in their place.
    this.papers.forEach((paper, i) => (paper.hidden = waiting || (i === 1 && !this.separate)));
    setText(this.waiting, series.history === 'present' ? 'no measurements yet…' : 'loading…');
    if (waiting) {
      // The graphs show other points.
      this.#dropGraphs();
      return;
    }
    this.points = points;
    this.trace = traceOf(points, standingForecast(series), series.unit, points_shown, this.own ? 'told' : 'guessed', this.fan);
    for (const unit of this.axis_units) setText(unit, this.trace.has_values ? this.trace.scale.label : '');
    this.#draw();
  }

  /** Sets whether the card is in view. Out of view it keeps its numbers and releases its graph. */
  setInView(in_view) {
    this.in_view = in_view;
    if (!in_view) this.#dropGraphs();
  }

  /** Reads the theme's colours again. */
  recolour() {
    for (const graph of this.graphs) graph.recolour();
  }

  /** Releases graphs and elements. */
  destroy() {
    this.#dropGraphs();
    this.root.remove();
  }

  // The names may change after the card was made: the station reports its name, or another one is
  // chosen.
  #nameTable({ source, target }) {
    setAttribute(this.toggle, 'aria-label', `Table of ${this.title}, ${target}`);
    this.table?.name(`${this.title}, ${source} to ${target}: the last ${POINTS_MAX} points at most`);
  }

  #build(series) {
    const id = `card-${(next_id += 1)}`;
    const figure = this.own ? 'span' : 'dd';
    this.last = element(figure, { class: 'figure' });
    this.last_time = element('dd', { class: 'aside' });
    this.next = element(figure, { class: 'figure' });
    this.interval = element('dd', { class: 'aside' });
    this.mae = element('dd', { class: 'figure' });
    this.method = element('dd', { class: 'aside method' });
    this.count = element('span', { class: 'count' });
    this.failures = element('span', { class: 'failures' });

    this.axis_units = PARTS.map(() => element('span', { class: 'axis-unit', 'aria-hidden': 'true' }));
    this.papers = this.axis_units.map((unit, i) =>
      element('div', { class: 'paper' }, unit, element('span', { class: 'part-name', 'aria-hidden': 'true' }, PARTS[i])),
    );
    this.papers[1].hidden = true;
    this.read_out = element('p', { class: 'read-out', hidden: '' });
    this.waiting = element('p', { class: 'waiting' });
    this.figure = element('div', { class: 'figure-box', role: 'img', 'aria-label': describeSeries(series) }, ...this.papers, this.read_out, this.waiting);
    this.body = element('div', { class: 'body' }, this.figure);

    this.toggle = element('button', { type: 'button', class: 'quiet', 'aria-pressed': 'false' }, 'Table');
    this.#nameTable(series);
    this.toggle.addEventListener('click', () => this.#toggleTable());

    const titles = [
      element(this.own ? 'h3' : 'h4', { id, class: 'title' }, this.title),
      this.own || this.title === series.quantity ? '' : element('code', {}, series.quantity),
    ];
    this.root = element(
      'article',
      { class: this.own ? 'card own' : 'card', 'aria-labelledby': id },
      element('header', {}, ...titles, ...(this.own ? [this.#pair()] : []), this.toggle),
      ...(this.own ? [this.body] : [this.#numbers(), this.body, element('footer', {}, this.count, this.failures)]),
    );
  }

  // The console has the other figures of an own card. These two are repeated here, in case it is
  // out of sight.
  #pair() {
    return element('p', { class: 'pair' }, element('span', { class: 'last' }, this.last), element('span', { class: 'next' }, this.next));
  }

  #numbers() {
    const numbers = [
      ['last', 'Last', this.last, this.last_time],
      ['next', 'Next', this.next, this.interval],
      ['mae', 'MAE so far', this.mae, this.method],
    ];
    const list = element(
      'dl',
      { class: 'numbers' },
      ...numbers.map(([kind, label, ...values]) => element('div', { class: kind }, element('dt', {}, label), ...values)),
    );
    this.mae.parentElement.title = 'Mean absolute error of the forecasts issued so far, and the method that made the next one';
    return list;
  }

  #writeNumbers(series) {
    const failed = hasFailed(series.last);
    setText(this.last, failed ? formatFailure(series.last.error) : formatBound(series.last?.value, series.unit, series.last?.detail?.at_least));
    this.last.classList.toggle('words', failed);
    const refused = formatRefused(series.last);
    setText(this.last_time, series.last ? `${formatTime(series.last.time_s)}${refused && `, ${refused}`}` : ABSENT);
    this.last_time.classList.toggle('refused', refused !== '');

    const next = standingForecast(series);
    const median = next?.median;
    setText(this.next, formatBound(median?.value, series.unit, next?.at_least));
    const interval = formatInterval(next?.lower, next?.upper, series.unit);
    const withdrawn = formatWithdrawn(series);
    setText(this.interval, withdrawn || interval || (median ? formatCalibrating(next.count) : 'no forecast yet'));
    setAttribute(this.interval, 'title', withdrawn || (interval && `${formatLevel(next.level)} of values are expected in this interval`));
    setText(this.mae, formatValue(median?.mae, series.unit));
    setText(this.method, formatMethod(median) || ABSENT);
    setAttribute(this.method, 'title', formatMethod(median));

    setText(this.count, `${formatCount(series.count)} measured`);
    setText(this.failures, failuresText(series));
  }

  #separate(separate) {
    if (separate === this.separate) return;
    this.#dropGraphs();
    this.separate = separate;
    this.papers[1].hidden = !separate;
    this.root.classList.toggle('separate', separate);
  }

  #draw() {
    const parts = this.separate ? PARTS : [null];
    if (this.graphs.length === 0) {
      const hovered = (index, ahead) => (ahead === null ? this.#readOut(index) : this.#readAhead(ahead));
      const height = this.separate ? PART_HEIGHT : this.own ? OWN_HEIGHT : undefined;
      this.graphs = parts.map((part, i) => new Graph(this.papers[i], hovered, height));
    }
    parts.forEach((part, i) => this.graphs[i].draw(part ? partOf(this.trace, part) : this.trace));
  }

  #readOut(index) {
    if (!this.trace) return;
    const [times] = this.trace.columns;
    const point = index === null ? undefined : this.points.findLast((point) => point.time_s === times[index]);
    this.read_out.hidden = !point;
    if (!point) return;
    const { unit } = this.series;
    const measured = hasFailed(point) ? formatFailure(point.error) : formatBound(point.value, unit, point.at_least);
    const interval = formatInterval(point.lower, point.upper, unit);
    this.read_out.replaceChildren(
      element('span', {}, formatTime(point.time_s)),
      element('span', { class: 'last' }, `${measured}${Number.isFinite(point.raw) ? `, uncorrected ${formatValue(point.raw, unit)}` : ''}`),
      element('span', { class: 'next' }, `${formatValue(point.forecast, unit)}${interval && ` (${interval})`}`),
      element('span', {}, point.method ?? ''),
    );
  }

  #readAhead(index) {
    const one = this.fan[index];
    this.read_out.hidden = !one;
    if (!one) return;
    this.read_out.replaceChildren(
      element('span', {}, formatTime(one.time_s)),
      element('span', { class: 'next' }, formatAhead(one, this.series.unit)),
    );
  }

  #toggleTable() {
    const shown = this.table === null;
    this.toggle.setAttribute('aria-pressed', String(shown));
    if (shown) {
      this.#dropGraphs();
      const corrected = this.own && this.series.unit === 'bit/s';
      this.table = new Table({ corrected });
      this.#nameTable(this.series);
      this.body.replaceChildren(this.table.root);
    } else {
      this.table = null;
      this.body.replaceChildren(this.figure);
    }
    this.changed?.();
  }

  #dropGraphs() {
    for (const graph of this.graphs) graph.destroy();
    this.graphs = [];
    this.read_out.hidden = true;
  }
}

function failuresText(series) {
  if (!(0 < series.failures)) return 'none failed';
  const last = series.last_failure;
  const words = last ? `, last: ${formatFailure(last.error)} at ${formatTime(last.time_s)}` : '';
  return `${formatCount(series.failures)} failed${words}`;
}

const PARTS = ['measured', 'forecast'];

let next_id = 0;
