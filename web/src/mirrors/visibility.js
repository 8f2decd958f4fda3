// Whether the page is in view: browsers may slow, freeze or drop the work of a hidden tab.

/**
 * Watches a document: `hidden_count` counts how often it went out of view, `ready(signal)` waits
 * until it is in view.
 */
export function watchVisibility(document) {
  let hidden_count = 0;
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) hidden_count += 1;
  });
  return {
    get hidden_count() {
      return hidden_count;
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
