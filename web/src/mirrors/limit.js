// A bound on every wait.

/** Says that a wait was longer than its limit. */
export class TimedOut extends Error {
  constructor(limit_ms) {
    super(`took more than ${limit_ms / 1000} s`);
    this.name = 'TimedOut';
  }
}

/**
 * What `task(signal)` gives, unless `limit_ms` pass or `signal` aborts first: then it rejects at once, even when
 * the task does not heed the signal that it was given.
 */
export function within(limit_ms, signal, task) {
  return new Promise((resolve, reject) => {
    const inner = new AbortController();
    const settle = (act, what) => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', cancelled);
      act(what);
    };
    const stop = (reason) => {
      settle(reject, reason);
      inner.abort(reason);
    };
    const cancelled = () => stop(signal.reason);
    const timer = setTimeout(() => stop(new TimedOut(limit_ms)), limit_ms);
    if (signal?.aborted) return cancelled();
    signal?.addEventListener('abort', cancelled, { once: true });
    // Called within the promise, so that what the task throws at once is its failure too.
    new Promise((give) => give(task(inner.signal))).then(
      (value) => settle(resolve, value),
      (error) => settle(reject, error),
    );
  });
}
