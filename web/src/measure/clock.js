// Resolution of this browser's clock.

/**
 * Measures the smallest step of `now_ms` during a short spin (s), and whether the page is isolated
 * from others. Browsers give isolated pages the finer clock (High Resolution Time §7: 5 µs against
 * 100 µs).
 */
export function measureClock(now_ms = () => performance.now(), isolated = globalThis.crossOriginIsolated === true) {
  const end_ms = now_ms() + SPIN_MS;
  let smallest_ms = Infinity;
  let before_ms = now_ms();
  // A clock that stands still ends the spin, too.
  for (let reads = 0; before_ms < end_ms && reads < READS_MAX; reads += 1) {
    const at_ms = now_ms();
    if (before_ms < at_ms) smallest_ms = Math.min(smallest_ms, at_ms - before_ms);
    before_ms = at_ms;
  }
  return { resolution_s: Number.isFinite(smallest_ms) ? smallest_ms / 1000 : null, isolated };
}

// Twenty steps of a clock of 1 ms, the coarsest in use; a reader does not notice the spin in a
// worker.
const SPIN_MS = 20;
const READS_MAX = 10_000_000;
