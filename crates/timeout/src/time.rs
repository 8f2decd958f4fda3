//! Conversion of seconds to `Duration`.

use core::time::Duration;

/// Converts a time in seconds: at least 1 ns, because a timeout of 0 would cut off every attempt,
/// and at most `limit`. NaN becomes the limit.
pub(crate) fn bounded(seconds: f64, limit: Duration) -> Duration {
    // A comparison with NaN is false, so NaN becomes the limit.
    if seconds < limit.as_secs_f64() {
        Duration::try_from_secs_f64(seconds.max(1e-9)).unwrap_or(limit)
    } else {
        limit
    }
}
