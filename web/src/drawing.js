// Schedules drawing in animation frames. A hidden tab has no frames.

/**
 * Collects what is to be drawn, and which cards are in view. The first cards of a page are drawn
 * even out of view, because print and full-page capture show only what is already drawn.
 */
export class Drawing {
  /** Calls `draw(keys)` in an animation frame with the keys requested since the last one. */
  constructor(draw) {
    this.draw = draw;
    this.asked = new Set();
    this.frame = null;
    this.cards = new Map();
    /** A print shows the whole page: then every card is in view. */
    this.printing = false;
    window.addEventListener('beforeprint', () => this.#print(true));
    window.addEventListener('afterprint', () => this.#print(false));
    this.watcher = new IntersectionObserver((entries) => this.#watch(entries), { rootMargin: '160px' });
  }

  /** Requests that some keys, or none in particular, are drawn in the next frame. */
  ask(...keys) {
    for (const key of keys) this.asked.add(key);
    this.frame ??= requestAnimationFrame(() => this.#run());
  }

  /** Tracks whether a card is in view, and draws it when it enters the view. */
  watch(key, card) {
    const is_kept = [...this.cards.values()].filter((one) => one.is_kept).length < KEPT_MAX;
    this.cards.set(card.root, { key, card, is_kept });
    card.setInView(is_kept);
    this.watcher.observe(card.root);
  }

  /** Stops tracking a card. */
  forget(card) {
    this.watcher.unobserve(card.root);
    this.cards.delete(card.root);
  }

  // A print shows what is drawn when the handler returns: no animation frame comes before it.
  #print(printing) {
    this.printing = printing;
    for (const { key, card, is_kept, in_view } of this.cards.values()) {
      card.setInView(printing || is_kept || in_view === true);
      if (printing) this.asked.add(key);
    }
    if (printing) this.#run();
  }

  #run() {
    const keys = this.asked;
    this.asked = new Set();
    if (this.frame !== null) cancelAnimationFrame(this.frame);
    this.frame = null;
    for (const { card, is_kept } of this.cards.values()) {
      if (is_kept && card.in_view === card.root.hidden) card.setInView(!card.root.hidden);
    }
    this.draw(keys);
  }

  #watch(entries) {
    for (const { target, isIntersecting } of entries) {
      const known = this.cards.get(target);
      if (!known) continue;
      known.in_view = isIntersecting;
      if (this.printing) continue;
      if (known.is_kept && !isIntersecting) {
        known.card.setInView(!target.hidden);
        continue;
      }
      known.card.setInView(isIntersecting);
      if (isIntersecting) this.ask(known.key);
    }
  }
}

// Graphs of each part that are drawn even out of view, for print and full-page capture. Bounded,
// because each is drawn again for each of its points.
const KEPT_MAX = 24;
