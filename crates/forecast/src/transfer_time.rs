//! Time that a transfer of a number of bytes takes over TCP (docs/spec/transfer-time.md).

mod forecast;
mod learned;

use crate::{Horizon, QUANTILE_RANGE};

pub use forecast::{GoodputForecast, TransferForecast};
pub(crate) use learned::LearnedTimes;

/// Bytes that TCP sends in its first round trip: ten segments of 1448 bytes, the payload of a
/// packet of 1500 bytes with timestamps (RFC 6928 §2).
pub const INITIAL_WINDOW_BYTES: u64 = 14_480;

/// Model of a transfer over TCP: set-up, slow start, then a steady rate.
///
/// ```
/// use barograph_forecast::{TransferModel, TransferPath};
///
/// let path = TransferPath { rate_bit_s: 20e6, rtt_s: 0.16 };
/// let [early, late] = [0.05, 0.95].map(|share| TransferModel::TCP.time_s(100_000, path, share));
/// // Four round trips, of which two are slow start, and 57 kB at 20 Mbit/s. A window that grows by
/// // half instead of doubling takes one round trip more, and some of a further one.
/// assert!((early.expect("valid") - 0.663).abs() < 1e-3);
/// assert!((late.expect("valid") - 0.851).abs() < 1e-3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferModel {
    /// Round trips in which no content moves: handshakes, and the way of the request and of the
    /// last byte, or of the first byte and of its acknowledgement.
    pub set_up_round_trips: u32,
}

/// Path of a transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransferPath {
    /// Rate after slow start, in bit/s; above 0, may be infinite.
    pub rate_bit_s: f64,
    /// Round-trip time, in seconds; above 0.
    pub rtt_s: f64,
}

/// Rate after slow start that follows from a test of a given size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SettledRate {
    /// The rate, in bit/s; never less than the goodput of the test.
    pub rate_bit_s: f64,
    /// Whether the test ended before its window filled the path, so that the path may be faster.
    pub is_lower_bound: bool,
}

impl TransferModel {
    /// A new connection without encryption: the handshake (RFC 9293 §3.5), and a round trip for the
    /// request or the acknowledgement.
    pub const TCP: Self = Self { set_up_round_trips: 2 };
    /// A new connection with TLS 1.3: one round trip more for its handshake (RFC 8446 §2).
    pub const TLS: Self = Self { set_up_round_trips: 3 };

    /// Time of a transfer of `bytes` over `path`, in seconds.
    ///
    /// `share` is the share of transfers that take at most this time, on a path with exactly this
    /// rate and round-trip time. Up to 0.5, the window doubles in each round trip. From 0.95 on, it
    /// grows to 1.5 times, and is spread over half a round trip. The time grows with the bytes, the
    /// round-trip time and the share, and falls with the rate. `None` if the path is not valid, or
    /// the share is outside [`QUANTILE_RANGE`].
    #[must_use]
    pub fn time_s(&self, bytes: u64, path: TransferPath, share: f64) -> Option<f64> {
        if !path.is_valid() || !QUANTILE_RANGE.contains(&share) {
            return None;
        }
        let set_up_s = f64::from(self.set_up_round_trips) * path.rtt_s;
        let time_s = set_up_s + content_s(bytes as f64, path, lateness(share));
        time_s.is_finite().then_some(time_s)
    }

    /// Time of a transfer with a rate that depends on the time of the transfer, in seconds.
    ///
    /// `rate_over` returns the mean rate over the next so many seconds (bit/s). It is called with
    /// 1, 2, 4, … seconds, at most [`Horizon::SECONDS_MAX`], until the transfer ends within that
    /// time. The result is not less than the time before. So it grows with the bytes, whatever
    /// `rate_over` returns. `None` as for [`Self::time_s`], if `rate_over` returns `None`, and if
    /// the transfer does not end within [`Horizon::SECONDS_MAX`].
    #[must_use]
    pub fn time_over(
        &self,
        bytes: u64,
        rtt_s: f64,
        share: f64,
        mut rate_over: impl FnMut(f64) -> Option<f64>,
    ) -> Option<f64> {
        let (mut shorter_s, mut horizon_s) = (0.0, HORIZON_MIN_S);
        loop {
            let rate_bit_s = rate_over(horizon_s)?;
            let time_s = self.time_s(bytes, TransferPath { rate_bit_s, rtt_s }, share)?;
            if time_s <= horizon_s {
                return Some(time_s.max(shorter_s));
            }
            if Horizon::SECONDS_MAX <= horizon_s {
                return None;
            }
            shorter_s = horizon_s;
            horizon_s = (2.0 * horizon_s).min(Horizon::SECONDS_MAX);
        }
    }
}

/// The shares of transfers that take at most the lower and at most the upper end of an interval at
/// `level`, 0 to 0.99.
///
/// More transfers are later than the interval than are earlier: 6.8 % and 3.2 % at 90 %. Times have
/// a long tail, so this interval is shorter than one that leaves the same share on both sides.
///
/// ```
/// let [early, late] = barograph_forecast::transfer_interval_shares(0.9);
/// assert!((early - 0.032).abs() < 1e-9 && (late - 0.932).abs() < 1e-9);
/// ```
#[must_use]
pub fn transfer_interval_shares(level: f64) -> [f64; 2] {
    let early = (0.5 * (1.0 - level) * (1.0 - SKEW * level)).max(*QUANTILE_RANGE.start());
    [early, early + level]
}

impl TransferPath {
    fn is_valid(&self) -> bool {
        0.0 < self.rate_bit_s && 0.0 < self.rtt_s && self.rtt_s.is_finite()
    }

    /// Time to send `bytes` at the steady rate (s).
    fn sending_s(&self, bytes: f64) -> f64 {
        8.0 * bytes / self.rate_bit_s
    }
}

impl SettledRate {
    /// The rate after slow start of a path on which a test of `test_bytes` had the goodput
    /// `goodput_bit_s`, from the first byte sent to the last.
    ///
    /// The inverse of the time that the content takes by [`TransferModel`] with a window that
    /// doubles. `None` if a number is not above 0, or is infinite.
    ///
    /// ```
    /// use barograph_forecast::SettledRate;
    ///
    /// // 1 MiB took 1.3 s, of which slow start took four round trips of 160 ms.
    /// let settled = SettledRate::of_test(1 << 20, 6.453e6, 0.16).expect("valid");
    /// assert!(!settled.is_lower_bound && (settled.rate_bit_s / 10.08e6 - 1.0).abs() < 1e-3);
    /// ```
    #[must_use]
    pub fn of_test(test_bytes: u64, goodput_bit_s: f64, rtt_s: f64) -> Option<Self> {
        let is_valid = |number: f64| 0.0 < number && number.is_finite();
        if test_bytes == 0 || !is_valid(goodput_bit_s) || !is_valid(rtt_s) {
            return None;
        }
        let mut left = test_bytes as f64;
        let mut left_s = 8.0 * left / goodput_bit_s;
        let mut window = INITIAL_WINDOW_BYTES as f64;
        loop {
            let rate_bit_s = 8.0 * left / left_s;
            let filling_bit_s = 8.0 * window / rtt_s;
            if left <= window || left_s <= rtt_s && filling_bit_s < rate_bit_s {
                let rate_bit_s = rate_bit_s.min(filling_bit_s).max(goodput_bit_s);
                return Some(Self { rate_bit_s, is_lower_bound: true });
            }
            if rate_bit_s <= filling_bit_s {
                return Some(Self { rate_bit_s, is_lower_bound: false });
            }
            left -= window;
            left_s -= rtt_s;
            window *= DOUBLED;
        }
    }
}

/// Time from the first byte sent to the last byte sent (s). A window that does not fill the path
/// takes a round trip: the sender waits for acknowledgements (RFC 5681 §3.1; Cardwell, Savage,
/// Anderson 2000, §II-B). `lateness` is from 0 to 1.
fn content_s(bytes: f64, path: TransferPath, lateness: f64) -> f64 {
    let growth = DOUBLED + (DELAYED - DOUBLED) * lateness;
    let (mut left, mut window, mut time_s) = (bytes, INITIAL_WINDOW_BYTES as f64, 0.0);
    while window < left && path.sending_s(window) < path.rtt_s {
        time_s += path.rtt_s;
        left -= window;
        window *= growth;
    }
    let pacing_s = PACED * lateness * path.rtt_s * (left / window).min(1.0);
    time_s + path.sending_s(left).max(pacing_s)
}

/// How slow the start is of a transfer that is slower than the share `share` of transfers, 0 to 1.
fn lateness(share: f64) -> f64 {
    ((share - 0.5) / (LATE_SHARE - 0.5)).clamp(0.0, 1.0)
}

/// Growth of the window in a round trip if every acknowledged byte lets the sender send one byte
/// more (RFC 5681 §3.1 with the byte counting of RFC 3465 §2).
const DOUBLED: f64 = 2.0;
/// Growth if only every second segment is acknowledged, and each acknowledgement adds one segment
/// (RFC 1122 §4.2.3.2, RFC 5681 §3.1; Cardwell, Savage, Anderson 2000: γ = 1 + 1/b with b = 2).
const DELAYED: f64 = 1.5;
/// Share of a round trip over which a late sender spreads a window: Linux paces slow start at twice
/// the window for each round trip (`net.ipv4.tcp_pacing_ss_ratio`), BBR at 2.77 times
/// (draft-ietf-ccwg-bbr §5.3.1.1).
const PACED: f64 = 0.5;
/// Share from which on a start is slowest: the end of the interval at 90 %.
const LATE_SHARE: f64 = 0.95;
/// Share of the early side that the late side of an interval takes, at a level near 1. On the first
/// halves of the open traces of goodput, 0.4 made intervals at 90 % shorter by a tenth than 0.
const SKEW: f64 = 0.4;
/// Shortest horizon of a rate (s). Series of goodput have minutes between values, so that shorter
/// horizons are the next value as well.
const HORIZON_MIN_S: f64 = 1.0;
