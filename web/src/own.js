// Measurements of this browser: the console, a graph for each quantity, and the reason if there are
// none.
import { Card } from './card.js';
import { Console } from './console.js';
import { Controls } from './controls.js';
import { setText } from './dom.js';
import { Drawing } from './drawing.js';
import { Store, keyOf } from './store.js';
import { CLIENT, QUANTITIES, UNITS } from './measure/series.js';

/**
 * The part of the page that shows the measurements of this browser. It draws only what changed and
 * is in view.
 */
export class Own {
  constructor() {
    this.parts = Object.fromEntries(PARTS.map((id) => [id, document.getElementById(id)]));
    this.store = new Store();
    this.here = null;
    this.server = null;
    this.wholes = new Map();
    this.drawing = new Drawing((quantities) => this.#draw(quantities));
    this.console = new Console(QUANTITIES, (quantity, shown) => this.#show(quantity, shown));
    this.cards = new Map();
  }

  /** Shows why this browser does not measure, instead of measurements. */
  showReason(sentence) {
    this.parts.own_unable.hidden = false;
    setText(this.parts.own_unable, sentence);
  }

  /** Shows what `here` measures. */
  start(here) {
    this.here = here;
    this.parts.own_unable.hidden = true;
    this.parts.own_body.hidden = false;
    this.parts.actions.hidden = false;
    this.parts.own_console.append(this.console.root);
    this.controls = new Controls(here);
    this.parts.own_span.addEventListener('change', () => this.redrawAll());
    this.parts.own_separate.addEventListener('change', () => this.redrawAll());
    this.#begin({ source: CLIENT, target: here.status?.server ?? '' });
    here.on('point', (event) => this.#take(event));
    here.on('status', () => this.drawing.ask());
  }

  /** Requests that every quantity is drawn. */
  redrawAll() {
    this.drawing.ask(...this.cards.keys());
  }

  /** Reads the theme's colours again. */
  recolour() {
    for (const card of this.cards.values()) card.recolour();
  }

  /** The series of a quantity, for the current station. */
  seriesOf(quantity) {
    return this.store.series.get(keyOf({ ...this.pair, quantity }));
  }

  #showStatus(status) {
    if (!status || status === this.shown) return;
    this.shown = status;
    setText(this.parts.own_server, status.server ?? 'this station');
    this.parts.own.dataset.state = status.state;
    this.controls.show(status);
  }

  #take(event) {
    if (!QUANTITIES.includes(event.quantity)) return;
    if (event.target !== this.pair.target || event.source !== this.pair.source) this.#follow(event);
    this.store.addPoint(event);
    this.drawing.ask(event.quantity);
  }

  // A new name with the same address belongs to the same station.
  #follow({ source, target }) {
    const { station_url } = this.here.status ?? {};
    if (source !== this.pair.source || (station_url ?? null) !== this.station_url) return this.#begin({ source, target });
    this.store.renameTarget(this.pair.target, target);
    this.pair.target = target;
    return this.redrawAll();
  }

  // Another pair has other series: the old points would be read as its own.
  #begin({ source, target }) {
    this.pair = { source, target };
    this.station_url = this.here.status?.station_url ?? null;
    this.wholes.clear();
    const list = Object.entries(UNITS).map(([quantity, unit]) => ({ source, target, quantity, unit, count: 0, failures: 0 }));
    this.store.replaceSeries(list);
    for (const series of list) {
      this.store.startHistory(keyOf(series));
      this.store.putHistory(keyOf(series), { points: [] });
      if (!this.cards.has(series.quantity)) this.#addCard(this.seriesOf(series.quantity));
    }
    this.redrawAll();
  }

  #addCard(series) {
    const card = new Card(series, { own: true });
    card.series = series;
    card.changed = () => this.drawing.ask(series.quantity);
    this.cards.set(series.quantity, card);
    this.parts.own_cards.append(card.root);
    this.drawing.watch(series.quantity, card);
  }

  // Hiding a graph stops neither the figures of the console nor the experiments of the worker.
  #show(quantity, shown) {
    this.cards.get(quantity).root.hidden = !shown;
    this.drawing.ask(quantity);
  }

  #draw(quantities) {
    this.#showStatus(this.here.status);
    const span = this.parts.own_span.value;
    const separate = this.parts.own_separate.value === 'own';
    for (const quantity of quantities) {
      const series = this.seriesOf(quantity);
      const card = this.cards.get(quantity);
      if (!series || !card) continue;
      this.console.update(series);
      if (span !== 'everything') {
        card.render(series, { points_shown: Number(span), separate });
        continue;
      }
      if (card.in_view) this.#refreshWhole(quantity);
      card.render(series, { points_shown: Infinity, points: this.#whole(series), separate });
    }
  }

  /** All points so far, decimated, followed by the points since that was read. */
  #whole(series) {
    const whole = this.wholes.get(series.quantity)?.points ?? [];
    const until_s = whole.at(-1)?.time_s ?? -Infinity;
    return [...whole, ...series.points.filter((point) => until_s < point.time_s)];
  }

  async #refreshWhole(quantity) {
    const { wholes } = this;
    const whole = wholes.get(quantity) ?? { points: [], read_ms: -Infinity };
    const now_ms = performance.now();
    if (now_ms - whole.read_ms < WHOLE_MS) return;
    wholes.set(quantity, { ...whole, read_ms: now_ms });
    const pair = this.pair;
    const { points } = await this.here.history(quantity, WHOLE_BUCKETS);
    // These points are of the previous station.
    if (pair !== this.pair) return;
    wholes.set(quantity, { points, read_ms: now_ms });
    this.drawing.ask(quantity);
  }
}

// Each gives up to three points: together about as many as a wide graph has pixels.
const WHOLE_BUCKETS = 250;
// A bucket of an hour is 9 s wide: reading more often would show nothing new.
const WHOLE_MS = 10_000;
const PARTS = ['own', 'own_server', 'own_unable', 'own_body', 'actions', 'own_console', 'own_cards', 'own_span', 'own_separate'];
