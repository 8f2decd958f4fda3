// When to draw: in animation frames, what was asked for; a hidden tab has no frames.

/** Collects what is to be drawn, and knows which cards are in view. */
export class Drawing {
  /** `draw(keys)` is called in an animation frame with the keys that were asked for since the last. */
  constructor(draw) {
    this.draw = draw;
    this.asked = new Set();
    this.frame = null;
    this.cards = new WeakMap();
    this.watcher = new IntersectionObserver((entries) => this.#watch(entries), { rootMargin: '160px' });
  }

  /** Asks for some keys, or for none in particular, to be drawn in the next frame. */
  ask(...keys) {
    for (const key of keys) this.asked.add(key);
    this.frame ??= requestAnimationFrame(() => this.#run());
  }

  /** Follows whether a card is in view; one that comes into it is drawn. */
  watch(key, card) {
    this.cards.set(card.root, { key, card });
    this.watcher.observe(card.root);
  }

  /** Follows a card no longer. */
  forget(card) {
    this.watcher.unobserve(card.root);
    this.cards.delete(card.root);
  }

  #run() {
    const keys = this.asked;
    this.asked = new Set();
    this.frame = null;
    this.draw(keys);
  }

  #watch(entries) {
    for (const { target, isIntersecting } of entries) {
      const known = this.cards.get(target);
      if (!known) continue;
      known.card.setInView(isIntersecting);
      if (isIntersecting) this.ask(known.key);
    }
  }
}
