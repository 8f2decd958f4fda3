//! How slowly a caller may move bytes. Pure.

use std::time::Duration;

/// The longest time of a transfer or an answer of so many bytes: of a page's largest, 16 MiB, 139 s.
pub fn transfer_max(bytes: u64) -> Duration {
    GRACE + Duration::from_millis(bytes / SLOWEST_BYTES_PER_MS)
}

/// 1 Mbit/s, the slowest line on which a transfer is served to its end: a slower one makes a forecast of
/// little use to a page, and the place is kept from others. Also the price of holding a place.
pub const SLOWEST_BYTES_PER_MS: u64 = 125;
/// Before a transfer is under way: round trips of a satellite, slow start, and a lost packet or two.
const GRACE: Duration = Duration::from_secs(5);
