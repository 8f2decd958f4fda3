//! Timed bulk test: what to send, and the rates computed from its samples.
//!
//! The test sends a TCP stream for some seconds (Gloperf §4: five) from this host to a station,
//! with the system's own socket buffers. The test gives two rates. The *whole* rate includes slow
//! start. The rate *after start-up* is the rate that a longer transfer would reach, and is the rate
//! that is forecast.

use crate::TcpInfo;
use crate::calibration::CheckpointRates;
use crate::reduce::{self, RoundTrip};
use crate::rounds::{RoundDetector, StartupDetector};
use crate::stop::RateEstimate;

pub use crate::samples::{Sample, Samples};
pub use crate::stop::EarlyStopPolicy;

/// Parameters of a timed stream to one station.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamPlan {
    /// Time to send, in seconds, limited to the range from [`SECONDS_MIN`](Self::SECONDS_MIN) to
    /// [`SECONDS_MAX`](Self::SECONDS_MAX).
    pub seconds: f64,
    /// Maximum number of bytes to send, at least 1; the stream ends when this number of bytes was
    /// sent.
    pub bytes_max: u64,
    /// Name of the kernel's congestion control, such as `cubic` or `bbr`; `None` = the kernel's
    /// default.
    pub congestion: Option<String>,
    /// Conditions under which the stream may end early; `None` always runs the full length.
    pub early: Option<EarlyStopPolicy>,
}

impl StreamPlan {
    /// Length of the full test in seconds (Gloperf §4).
    pub const SECONDS: f64 = 5.0;
    /// Minimum length in seconds; a shorter stream may end before slow start is over.
    pub const SECONDS_MIN: f64 = 0.1;
    /// Maximum length in seconds, the limit of one request.
    pub const SECONDS_MAX: f64 = crate::wire::STREAM_MS_MAX as f64 / 1000.0;
    /// Default maximum number of bytes. A stream of this size takes 1.7 s at 5 Gbit/s, and 5 s at
    /// 1.7 Gbit/s. A responder has the same default limit for one transfer.
    pub const BYTES_MAX: u64 = 1 << 30;

    /// The full test of Gloperf §4: 5 s, at most 1 GiB.
    #[must_use]
    pub fn full() -> Self {
        Self { seconds: Self::SECONDS, bytes_max: Self::BYTES_MAX, congestion: None, early: None }
    }

    /// Length in whole milliseconds, within its bounds.
    #[must_use]
    pub fn ms(&self) -> u32 {
        // `clamp` keeps NaN, and `as` converts NaN to 0.
        let seconds = self.seconds.clamp(Self::SECONDS_MIN, Self::SECONDS_MAX);
        ((seconds * 1000.0).round() as u32).max(1)
    }
}

impl Default for StreamPlan {
    fn default() -> Self {
        Self::full()
    }
}

/// Why a stream ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StreamEnd {
    /// The stream reached its maximum time.
    Full,
    /// The stream reached its maximum number of bytes.
    Bytes,
    /// The rate had settled, or the estimate at a checkpoint was accepted.
    Early(RateEstimate),
}

impl StreamEnd {
    /// Returns the reason as a lower-case word: `full`, `bytes`, `early`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Bytes => "bytes",
            Self::Early(_) => "early",
        }
    }
}

/// Result of a timed stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamResult {
    /// Bytes that the station received.
    pub bytes: u64,
    /// Time from before the first write to the end of writing, in seconds.
    pub duration_s: f64,
    /// Time from before the first write until the station's byte count was received, in seconds.
    pub elapsed_s: f64,
    /// Rate of all bytes, in bit/s, over the time from the arrival of the first byte to the arrival
    /// of the last byte. This time is the elapsed time minus the least round-trip time. Half of the
    /// round-trip time passes before the first arrival, and half after the last arrival.
    pub whole_bit_s: f64,
    /// Rate of the acknowledged bytes between the end of start-up and the end of writing, in bit/s;
    /// `None` if start-up did not end, or the system does not report acknowledged bytes.
    pub settled_bit_s: Option<f64>,
    /// End of start-up in seconds, if it ended.
    pub startup_s: Option<f64>,
    /// Why the stream ended.
    pub ended: StreamEnd,
    /// The first settled rate, whether it ended the stream or not.
    pub proposed: Option<RateEstimate>,
    /// Rates at the checkpoints that were passed; a full-length test calibrates with them.
    pub partials: CheckpointRates,
    /// Whether the stream was allowed to end early, but its estimate was rejected.
    pub estimate_rejected: bool,
    /// `TCP_INFO` of the sender at the end of writing.
    pub tcp_info: Option<TcpInfo>,
    /// Acknowledged bytes over time.
    pub samples: Samples,
}

impl StreamResult {
    /// Result of the test, in bit/s: the rate after start-up of a full-length test, or an estimate
    /// of that rate if the stream ended early. If start-up did not end, the result is the whole
    /// rate.
    #[must_use]
    pub fn rate_bit_s(&self) -> f64 {
        match self.ended {
            StreamEnd::Early(RateEstimate { rate_bit_s, .. }) => rate_bit_s,
            StreamEnd::Full | StreamEnd::Bytes => self.settled_bit_s.unwrap_or(self.whole_bit_s),
        }
    }
}

/// Rate of all bytes, in bit/s ([`StreamResult::whole_bit_s`]); `None` if the elapsed time is not
/// positive.
#[must_use]
pub fn whole(bytes: u64, elapsed_s: f64, min_rtt_s: Option<f64>) -> Option<f64> {
    let round_trip = RoundTrip { forecast_s: min_rtt_s, least_s: min_rtt_s };
    reduce::goodput(bytes, elapsed_s, round_trip).map(|rate| rate.corrected)
}

/// End of start-up in seconds, and the rate from then to the last sample in bit/s.
///
/// Start-up ends with the first round after which three successive rounds are all less than a
/// quarter faster than that round (BBR's "full pipe": Cardwell et al. 2016, and
/// `draft-ietf-ccwg-bbr` §5.3.1.2).
#[must_use]
pub fn after_startup(samples: &[Sample]) -> Option<(f64, f64)> {
    let mut rounds = RoundDetector::default();
    let mut startup = StartupDetector::default();
    let (from_s, from_bytes) = samples.iter().find_map(|sample| {
        let round = rounds.push(sample)?;
        startup.push(&round).then(|| startup.ended())?
    })?;
    let last = samples.last()?;
    let time_s = last.time_s - from_s;
    let bytes = last.acked_bytes.checked_sub(from_bytes)?;
    let rate = bytes as f64 * 8.0 / time_s;
    (time_s > 0.0 && rate.is_finite()).then_some((from_s, rate))
}
