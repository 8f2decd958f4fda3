//! Time labels from the wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Time label of now, in nanoseconds since 1970-01-01 UTC.
pub(crate) fn now_unix_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
