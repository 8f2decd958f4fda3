//! A timed bulk test: what to send, and what its samples say.
//!
//! A real TCP stream for some seconds (Gloperf §4: five), with the system's own socket buffers, from this
//! host to a station. Two rates come out: the *whole* one, which slow start is part of, and the one *after
//! start-up*, which is what a longer transfer would see and what is forecast.

use crate::TcpInfo;
use crate::calibration::Partials;
use crate::reduce::{self, RoundTrip};
use crate::rounds::{Rounds, Startup};
use crate::stop::Reason;

pub use crate::samples::{Sample, Samples};
pub use crate::stop::Early;

/// A timed stream to one station.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamPlan {
    /// How long to send, in seconds, [`SECONDS_MIN`](Self::SECONDS_MIN) to
    /// [`SECONDS_MAX`](Self::SECONDS_MAX); beyond that as the nearest of these.
    pub seconds: f64,
    /// The most bytes to send, at least 1; the stream ends early when they are used up.
    pub bytes_max: u64,
    /// The congestion control algorithm by the kernel's name, such as `cubic` or `bbr`; `None` is the
    /// kernel's default.
    pub congestion: Option<String>,
    /// When the stream may end before its time; `None` is the full length.
    pub early: Option<Early>,
}

impl StreamPlan {
    /// The paper's full test (Gloperf §4).
    pub const SECONDS: f64 = 5.0;
    /// Less holds no slow start.
    pub const SECONDS_MIN: f64 = 0.1;
    /// What one request can ask for.
    pub const SECONDS_MAX: f64 = crate::wire::STREAM_MS_MAX as f64 / 1000.0;
    /// A second and a half at 5 Gbit/s, five at 1.7: what a responder allows in one transfer by default.
    pub const BYTES_MAX: u64 = 1 << 30;

    /// The full test of the paper.
    #[must_use]
    pub fn full() -> Self {
        Self { seconds: Self::SECONDS, bytes_max: Self::BYTES_MAX, congestion: None, early: None }
    }

    /// The length within its bounds, in whole milliseconds.
    #[must_use]
    pub fn ms(&self) -> u32 {
        // `clamp` keeps a NaN, and `as` makes it 0.
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
pub enum Ended {
    /// Its time was over.
    Full,
    /// Its bytes were used up.
    Bytes,
    /// Its rate had settled.
    Early(Reason),
}

impl Ended {
    /// As a lower-case word: `full`, `bytes`, `early`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Bytes => "bytes",
            Self::Early(_) => "early",
        }
    }
}

/// What a timed stream gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Streamed {
    /// Bytes that the station received.
    pub bytes: u64,
    /// From before the first write to the end of writing, in seconds.
    pub duration_s: f64,
    /// From before the first write until the station had said what it received, in seconds.
    pub elapsed_s: f64,
    /// All bytes over the time from the first one's arrival to the last one's, in bit/s: the elapsed time
    /// less one least round-trip time, half of which went before the first and half after the last.
    pub whole_bit_s: f64,
    /// Acknowledged bytes over the time between the end of start-up and the end of writing, in bit/s;
    /// `None` when start-up did not end, or the system does not tell what was acknowledged.
    pub settled_bit_s: Option<f64>,
    /// When start-up ended, in seconds.
    pub startup_s: Option<f64>,
    /// Why it ended.
    pub ended: Ended,
    /// The first rate that settled, whatever was done with it.
    pub proposed: Option<Reason>,
    /// The rates at the checkpoints passed: a full-length test calibrates by them.
    pub partials: Partials,
    /// It had leave to end early, and its estimate was not believed.
    pub surprised: bool,
    /// The kernel's view at the end.
    pub tcp_info: Option<TcpInfo>,
    /// Acknowledged bytes over time.
    pub samples: Samples,
}

impl Streamed {
    /// What the test says of the path, in bit/s: the rate after start-up of a full-length test, or an
    /// estimate of it from a stream that was stopped early; the whole rate where start-up did not end.
    #[must_use]
    pub fn rate_bit_s(&self) -> f64 {
        match self.ended {
            Ended::Early(Reason { rate_bit_s, .. }) => rate_bit_s,
            Ended::Full | Ended::Bytes => self.settled_bit_s.unwrap_or(self.whole_bit_s),
        }
    }
}

/// The rate of all bytes, in bit/s ([`Streamed::whole_bit_s`]); `None` when the clock saw no time pass.
#[must_use]
pub fn whole(bytes: u64, elapsed_s: f64, min_rtt_s: Option<f64>) -> Option<f64> {
    let round_trip = RoundTrip { forecast_s: min_rtt_s, least_s: min_rtt_s };
    reduce::goodput(bytes, elapsed_s, round_trip).map(|rate| rate.corrected)
}

/// When start-up ended, in seconds, and the rate from then to the last sample, in bit/s.
///
/// Start-up ends with the first round whose rate no later one of three exceeded by a quarter
/// (BBR's "full pipe": Cardwell et al. 2016, and `draft-ietf-ccwg-bbr` §5.3.1.2).
#[must_use]
pub fn after_startup(samples: &[Sample]) -> Option<(f64, f64)> {
    let mut rounds = Rounds::default();
    let mut startup = Startup::default();
    let (from_s, from_bytes) = samples.iter().find_map(|sample| {
        let round = rounds.push(sample)?;
        startup.push(&round).then(|| startup.ended())?
    })?;
    let last = samples.last()?;
    let time_s = last.time_s - from_s;
    let bytes = last.acked_bytes.checked_sub(from_bytes)?;
    let rate = bytes as f64 * 8.0 / time_s;
    (0.0 < time_s && rate.is_finite()).then_some((from_s, rate))
}
