// What the station measures, or one pair of the mesh: header, groups of cards, filter, and the text
// shown when there is nothing to show.
import { Card } from './card.js';
import { element, setText } from './dom.js';
import { Drawing } from './drawing.js';
import { formatDuration, quantityTitle } from './format.js';
import { matches } from './store.js';

/** The part of the page that shows a station's store. It draws only what changed and is in view. */
export class View {
  /** Calls `seen(key)` when a card in view is drawn, so that its history can be read. */
  constructor(store, { seen, retry }) {
    this.store = store;
    this.seen = seen;
    this.cards = new Map();
    this.sections = new Map();
    this.drawing = new Drawing((keys) => this.#draw(keys));
    this.station = null;
    this.parts = Object.fromEntries(PARTS.map((id) => [id, document.getElementById(id)]));
    this.parts.filter.addEventListener('input', () => this.#filter());
    this.parts.span.addEventListener('change', () => this.redrawAll());
    this.parts.retry.addEventListener('click', retry);
    setInterval(() => this.#tick(), 1000);
  }

  /** Shows name, version and uptime of the station. */
  setStation(station) {
    this.station = station;
    this.started_ms = Date.now() - station.uptime_s * 1000;
    setText(this.parts.host, station.host);
    this.#nameSource();
    setText(this.parts.nav_held, station.host);
    setText(this.parts.version, station.version);
    // Older stations do not report it.
    const refusing = station.refusing ?? [];
    this.parts.refusing.hidden = refusing.length === 0;
    setText(this.parts.refused, refusing.join('; '));
    document.title = `${station.host} · Barograph`;
    this.#tick();
  }

  /** Shows the state of the connection: `live`, `connecting`, `polling` or `reconnecting`. */
  setConnection(state, retry_ms = 0) {
    this.retry_at_ms = Date.now() + retry_ms;
    this.connection = state;
    document.body.dataset.connection = state;
    setText(this.parts.connection, state === 'polling' ? 'no live stream' : state);
    this.parts.trouble.hidden = state !== 'reconnecting' && state !== 'polling';
    setText(
      this.parts.trouble_text,
      state === 'polling'
        ? 'The station answers, but without a live stream. Showing data from its last answer.'
        : 'The station does not answer. Showing last known data.',
    );
    this.#tick();
    this.#showEmpty();
  }

  /** Requests groups and cards that match the store's series, and draws all of them. */
  arrange() {
    this.disordered = true;
    this.drawing.ask();
  }

  /** Requests that a series is drawn in the next frame. */
  redraw(key) {
    // A new series needs a position first.
    this.disordered ||= !this.cards.has(key);
    this.drawing.ask(key);
  }

  /** Requests that every series is drawn. */
  redrawAll() {
    this.drawing.ask(...this.cards.keys());
  }

  /** Shows only the groups of one pair; `null` = all groups. */
  choose(pair) {
    this.choice = pair;
    this.#nameSource();
    this.arrange();
    const part = this.parts.groups.parentElement;
    // Scrolls up far enough to show a graph, unless one is in view already.
    if (pair && 0.6 * window.innerHeight < part.getBoundingClientRect().top) part.scrollIntoView({ block: 'start' });
  }

  // A pair that was selected in the grid may be another station's.
  #nameSource() {
    setText(this.parts.held_by, this.choice?.source ?? this.station?.host ?? 'the station');
  }

  /** Reads the theme's colours again. */
  recolour() {
    for (const card of this.cards.values()) card.recolour();
  }

  #draw(asked) {
    const rearranged = this.disordered;
    if (rearranged) this.#arrange();
    const points_shown = Number(this.parts.span.value);
    for (const key of rearranged ? this.cards.keys() : asked) {
      const series = this.store.series.get(key);
      const card = this.cards.get(key);
      if (!series || !card) continue;
      card.render(series, { points_shown });
      if (card.in_view) this.seen(key);
    }
  }

  #arrange() {
    this.disordered = false;
    const groups = this.store.groups(this.station?.host);
    const known = new Set(groups.map((group) => group.id));
    for (const [id, section] of this.sections) {
      if (!known.has(id)) {
        section.root.remove();
        this.sections.delete(id);
      }
    }
    for (const [key, card] of this.cards) {
      if (this.store.series.has(key)) continue;
      this.drawing.forget(card);
      card.destroy();
      this.cards.delete(key);
    }
    groups.forEach((group, i) => {
      const section = this.#section(group);
      placeAt(this.parts.groups, section.root, i);
      group.keys.forEach((key, j) => placeAt(section.cards, this.#card(key).root, j));
    });
    this.#filter();
  }

  #section(group) {
    if (!this.sections.has(group.id)) {
      const relation = element('small');
      const id = `group-${(next_id += 1)}`;
      const cards = element('div', { class: 'cards' });
      const heading = element(
        'h3',
        { id },
        relation,
        ' ',
        element('span', {}, group.target),
      );
      this.sections.set(group.id, { root: element('section', { class: 'group', 'aria-labelledby': id }, heading, cards), cards, relation });
    }
    const section = this.sections.get(group.id);
    // The first points may come before the station has reported its name.
    const from = group.source === this.station?.host ? 'target' : `${group.source} to`;
    setText(section.relation, group.own ? 'this host' : from);
    return section;
  }

  #card(key) {
    let card = this.cards.get(key);
    if (!card) {
      const series = this.store.series.get(key);
      card = new Card(series);
      card.series = series;
      card.changed = () => this.redraw(key);
      this.cards.set(key, card);
      this.drawing.watch(key, card);
    }
    return card;
  }

  #filter() {
    const query = this.parts.filter.value.trim();
    let shown = 0;
    for (const [key, card] of this.cards) {
      const series = this.store.series.get(key);
      const hidden = !series || !this.#isChosen(series) || !matches(series, quantityTitle(series.quantity), query);
      card.root.hidden = hidden;
      if (!hidden) shown += 1;
    }
    for (const { root, cards } of this.sections.values()) {
      const count = [...cards.children].filter((card) => !card.hidden).length;
      root.hidden = count === 0;
      root.style.setProperty('--cards', count);
    }
    const total = this.cards.size;
    const more = this.store.left_out ? `, ${this.store.left_out} more through the API only` : '';
    setText(this.parts.tally, `${shown === total ? total : `${shown} of ${total}`} series${more}`);
    this.#showEmpty();
  }

  #showEmpty() {
    // The next frame arranges the cards first.
    if (this.disordered) return;
    const total = this.cards.size;
    const hidden = 0 < total && [...this.cards.values()].some((card) => !card.root.hidden);
    this.parts.empty.hidden = hidden;
    setText(
      this.parts.empty,
      0 < total
        ? 'No series matches this filter. Change or clear the filter.'
        : this.connection === 'live' || this.connection === 'polling'
          ? 'No measurements yet. The first ones arrive within a minute.'
          : this.connection === 'reconnecting'
            ? 'No data until the station answers.'
            : 'Waiting for the station…',
    );
  }

  #tick() {
    if (document.hidden) return;
    if (this.station && this.connection !== 'reconnecting') {
      setText(this.parts.uptime, formatDuration((Date.now() - this.started_ms) / 1000));
    }
    const wait_s = Math.max(0, Math.ceil((this.retry_at_ms - Date.now()) / 1000));
    setText(this.parts.countdown, 0 < wait_s ? `Trying again in ${wait_s}\u202fs.` : 'Trying again…');
  }

  #isChosen({ source, target }) {
    return this.choice === null || (this.choice.source === source && this.choice.target === target);
  }

  choice = null;
  disordered = false;
  connection = 'connecting';
  retry_at_ms = 0;
}

function placeAt(parent, child, index) {
  if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null);
}

const PARTS = [
  'host',
  'version',
  'uptime',
  'connection',
  'refusing',
  'refused',
  'held_by',
  'nav_held',
  'filter',
  'tally',
  'span',
  'trouble',
  'trouble_text',
  'countdown',
  'retry',
  'groups',
  'empty',
];

let next_id = 0;
