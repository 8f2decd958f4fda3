//! Longest permitted time of a transfer, from its size. Pure.

use std::time::Duration;

/// The longest time of a transfer or a response of `bytes`: 139 s for 16 MiB, the largest transfer
/// of a page.
pub fn transfer_time_max(bytes: u64) -> Duration {
    GRACE + Duration::from_millis(bytes / SLOWEST_BYTES_PER_MS)
}

/// Slowest rate at which a transfer may complete, in bytes per millisecond: 1 Mbit/s. A forecast
/// from a slower transfer would be of little use to a page, and the transfer would block its slot
/// for other callers. A caller also pays for this number of bytes for each millisecond in which the
/// caller uses a slot.
pub const SLOWEST_BYTES_PER_MS: u64 = 125;
/// Time allowed in addition to the time at the slowest rate. The time covers round trips over a
/// satellite, slow start, and one or two lost packets.
const GRACE: Duration = Duration::from_secs(5);
