//! Divides a stream into rounds and detects the end of its start-up.

use crate::samples::Sample;

/// Part of a stream that lasts about one round-trip time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// End of the round, in seconds since the stream began.
    pub end_s: f64,
    /// Bytes acknowledged from the beginning of the stream to the end of the round.
    pub end_bytes: u64,
    /// Length of the round in seconds, above 0.
    pub seconds: f64,
    /// Bytes acknowledged during the round.
    pub bytes: u64,
    /// Segments retransmitted during the round.
    pub retrans: u32,
    /// Whether the sender had nothing to send at the end of the round.
    pub app_limited: bool,
}

impl Round {
    /// Rate of the round in bit/s.
    #[must_use]
    pub fn rate_bit_s(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds
    }
}

/// Divides samples into rounds; the first sample begins the first round.
///
/// A round lasts at least 20 ms and at least the smoothed round-trip time at its end (1 s at most).
/// A round also lasts until 64 full segments were acknowledged, but waits for these segments for at
/// most half a second. In a shorter round, a single burst of acknowledgements would change the rate
/// noticeably.
#[derive(Clone, Debug, Default)]
pub struct RoundDetector {
    /// The sample that ended the last round.
    began: Option<Sample>,
}

impl RoundDetector {
    /// Adds a sample and returns the round that ends with it, if any.
    ///
    /// A sample ends no round if its time is not finite, or not later than the time of the previous
    /// sample.
    pub fn push(&mut self, sample: &Sample) -> Option<Round> {
        if !sample.time_s.is_finite() {
            return None;
        }
        let Some(began) = self.began else {
            self.began = Some(*sample);
            return None;
        };
        let seconds = sample.time_s - began.time_s;
        // A kernel counter never decreases, so the difference is not negative.
        let bytes = sample.acked_bytes.saturating_sub(began.acked_bytes);
        let rtt_s = sample.rtt_s.filter(|rtt| rtt.is_finite() && *rtt > 0.0).unwrap_or(0.0);
        let least_s = rtt_s.clamp(ROUND_S_MIN, ROUND_RTT_S_MAX);
        let is_whole = bytes >= ROUND_BYTES_MIN || seconds >= ROUND_S_MAX_FOR_BYTES;
        if seconds < least_s || !is_whole {
            return None;
        }
        self.began = Some(*sample);
        Some(Round {
            end_s: sample.time_s,
            end_bytes: sample.acked_bytes,
            seconds,
            bytes,
            retrans: sample.retrans.saturating_sub(began.retrans),
            app_limited: sample.app_limited,
        })
    }
}

/// Detects the end of start-up: three consecutive rounds in which the rate did not grow by a
/// quarter.
#[derive(Clone, Debug, Default)]
pub struct StartupDetector {
    best_bit_s: f64,
    without_growth: u32,
    /// End of the round in which the rate last grew: its time in seconds, and bytes acknowledged by
    /// then.
    candidate: Option<(f64, u64)>,
}

impl StartupDetector {
    /// Adds a round and returns whether start-up is over.
    pub fn push(&mut self, round: &Round) -> bool {
        if !self.is_over() && GROWTH * self.best_bit_s <= round.rate_bit_s() && round.bytes > 0 {
            self.best_bit_s = round.rate_bit_s();
            self.without_growth = 0;
            self.candidate = Some((round.end_s, round.end_bytes));
        } else if self.candidate.is_some() {
            self.without_growth = self.without_growth.saturating_add(1);
        }
        self.is_over()
    }

    /// End of start-up in seconds, and bytes acknowledged by then; `None` while start-up lasts.
    #[must_use]
    pub fn ended(&self) -> Option<(f64, u64)> {
        self.candidate.filter(|_| self.is_over())
    }

    /// Rounds since the rate last grew, the time of that growth in seconds, and the bytes
    /// acknowledged by then; `None` while nothing has arrived.
    #[must_use]
    pub fn since_growth(&self) -> Option<(u32, f64, u64)> {
        self.candidate.map(|(end_s, end_bytes)| (self.without_growth, end_s, end_bytes))
    }

    /// Whether the rate grew in the latest round, or nothing has arrived yet.
    #[must_use]
    pub fn grew(&self) -> bool {
        self.without_growth == 0
    }

    fn is_over(&self) -> bool {
        self.without_growth >= ROUNDS_WITHOUT_GROWTH
    }
}

/// Minimum length of a round in seconds. The rates of shorter rounds would mainly show the noise of
/// acknowledgements and of the scheduler. A full test has 250 rounds of this length.
const ROUND_S_MIN: f64 = 0.02;
/// Upper limit, in seconds, of a round's minimum duration. Up to this limit, the minimum duration
/// equals the round-trip time. A longer round-trip time is a stall, and a round does not wait for
/// the end of a stall.
const ROUND_RTT_S_MAX: f64 = 1.0;
/// Minimum number of bytes in a round: 64 segments of an Ethernet path. A delayed acknowledgement
/// covers two segments, which are only 3 % of the round.
const ROUND_BYTES_MIN: u64 = 64 * 1448;
/// Maximum time, in seconds, for which a round waits for [`ROUND_BYTES_MIN`]. A round reaches this
/// maximum at rates below 1.5 Mbit/s.
const ROUND_S_MAX_FOR_BYTES: f64 = 0.5;
/// Minimum factor by which the rate grows in a round of start-up. Slow start doubles the rate. With
/// pacing, the rate grows by at least a quarter (BBR).
const GROWTH: f64 = 1.25;
const ROUNDS_WITHOUT_GROWTH: u32 = 3;
