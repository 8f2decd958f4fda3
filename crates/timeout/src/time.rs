//! Between `Duration` and seconds.

use core::time::Duration;

/// A time in seconds as a `Duration`, at least 1 ns (a timeout of nothing would cut everything) and at most
/// `limit`; NaN counts as the limit.
pub(crate) fn bounded(seconds: f64, limit: Duration) -> Duration {
    // Comparisons with NaN are false.
    if seconds < limit.as_secs_f64() {
        Duration::try_from_secs_f64(seconds.max(1e-9)).unwrap_or(limit)
    } else {
        limit
    }
}
