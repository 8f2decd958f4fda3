//! Longest permitted time of a transfer, from its size. Pure.

use std::time::Duration;

/// The longest time of a transfer or a response of `bytes`: 139 s for 16 MiB, the largest transfer
/// of a page.
pub fn transfer_time_max(bytes: u64) -> Duration {
    GRACE + Duration::from_millis(bytes / SLOWEST_BYTES_PER_MS)
}

/// 1 Mbit/s, the slowest rate at which a transfer may complete. A slower transfer gives a page a
/// forecast of little use, and blocks its slot for others. A caller also pays for this many bytes
/// for each millisecond in which it holds a slot.
pub const SLOWEST_BYTES_PER_MS: u64 = 125;
/// Time until a transfer has started: round trips of a satellite, slow start, and a lost packet or
/// two.
const GRACE: Duration = Duration::from_secs(5);
