// Whether the page is in view: browsers may slow, freeze or drop the work of a hidden tab.

/**
 * Watches a document: `lapses` counts how often it went out of view, `ready(signal)` waits until it
 * is in view.
 */
export function watchAttention(document) {
  let lapses = 0;
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) lapses += 1;
  });
  return {
    get lapses() {
      return lapses;
    },
    async ready(signal) {
      if (!document.hidden) return;
      await new Promise((resolve, reject) => {
        const settle = () => {
          if (document.hidden && !signal?.aborted) return;
          document.removeEventListener('visibilitychange', settle);
          signal?.removeEventListener('abort', settle);
          if (signal?.aborted) reject(signal.reason);
          else resolve();
        };
        document.addEventListener('visibilitychange', settle);
        signal?.addEventListener('abort', settle);
        settle();
      });
    },
  };
}
