// A time limit for every wait.

/** Error of a wait that took longer than its limit. */
export class TimedOut extends Error {
  constructor(limit_ms) {
    super(`took more than ${limit_ms / 1000} s`);
    this.name = 'TimedOut';
  }
}

/**
 * Result of `task(signal)`. Rejects at once if `limit_ms` pass or `signal` aborts first, even if
 * the task ignores its signal.
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
    // Called within the promise, so that an error thrown at once also rejects it.
    new Promise((give) => give(task(inner.signal))).then(
      (value) => settle(resolve, value),
      (error) => settle(reject, error),
    );
  });
}
