//! A stream cut into rounds, and the end of its start-up.

use crate::samples::Sample;

/// About one round trip of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// When it ended, in seconds since the stream began.
    pub end_s: f64,
    /// Bytes acknowledged since the stream began, at its end.
    pub end_bytes: u64,
    /// How long it took, in seconds, above 0.
    pub seconds: f64,
    /// Bytes acknowledged in it.
    pub bytes: u64,
    /// Segments sent again in it.
    pub retrans: u32,
    /// Whether the sender had nothing to send at its end.
    pub app_limited: bool,
}

impl Round {
    /// Its rate in bit/s.
    #[must_use]
    pub fn rate_bit_s(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds
    }
}

/// Cuts samples into rounds; the first sample begins the first.
///
/// A round lasts at least the smoothed round-trip time at its end, 20 ms, and until 64 full segments were
/// acknowledged (but no longer than half a second for their sake): in less, one burst of acknowledgements
/// more or fewer is a swing of the rate.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    /// The sample that ended the last round.
    began: Option<Sample>,
}

impl Rounds {
    /// The round that ends with this sample, if one does.
    ///
    /// A sample whose time is no number, or not later than the one before, ends none.
    pub fn push(&mut self, sample: &Sample) -> Option<Round> {
        if !sample.time_s.is_finite() {
            return None;
        }
        let Some(began) = self.began else {
            self.began = Some(*sample);
            return None;
        };
        let seconds = sample.time_s - began.time_s;
        // What never went down in a kernel goes down in no round.
        let bytes = sample.acked_bytes.saturating_sub(began.acked_bytes);
        let rtt_s = sample.rtt_s.filter(|rtt| rtt.is_finite() && 0.0 < *rtt).unwrap_or(0.0);
        let least_s = rtt_s.clamp(ROUND_S_MIN, ROUND_RTT_S_MAX);
        let is_whole = ROUND_BYTES_MIN <= bytes || PATIENCE_S <= seconds;
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

/// Finds the end of start-up: three rounds in which the rate did not grow by a quarter.
#[derive(Clone, Debug, Default)]
pub struct Startup {
    best_bit_s: f64,
    without_growth: u32,
    /// End of the round that set the best: its time and its bytes.
    candidate: Option<(f64, u64)>,
}

impl Startup {
    /// Takes a round; whether start-up is over.
    pub fn push(&mut self, round: &Round) -> bool {
        if !self.is_over() && GROWTH * self.best_bit_s <= round.rate_bit_s() && 0 < round.bytes {
            self.best_bit_s = round.rate_bit_s();
            self.without_growth = 0;
            self.candidate = Some((round.end_s, round.end_bytes));
        } else if self.candidate.is_some() {
            self.without_growth = self.without_growth.saturating_add(1);
        }
        self.is_over()
    }

    /// When start-up ended, and how many bytes were acknowledged by then; `None` while it lasts.
    #[must_use]
    pub fn ended(&self) -> Option<(f64, u64)> {
        self.candidate.filter(|_| self.is_over())
    }

    /// How many rounds ago the rate last grew, when that was, and how many bytes were acknowledged by then; `None` while
    /// nothing has arrived.
    #[must_use]
    pub fn since_growth(&self) -> Option<(u32, f64, u64)> {
        self.candidate.map(|(end_s, end_bytes)| (self.without_growth, end_s, end_bytes))
    }

    /// Whether the latest round was one of growth, or nothing has arrived yet.
    #[must_use]
    pub fn grew(&self) -> bool {
        self.without_growth == 0
    }

    fn is_over(&self) -> bool {
        ROUNDS_WITHOUT_GROWTH <= self.without_growth
    }
}

/// Shorter rounds are noise of acknowledgements and of the scheduler; a full test has 250 of these.
const ROUND_S_MIN: f64 = 0.02;
/// A round-trip time beyond this is a stall, and waiting for more of it would be no round.
const ROUND_RTT_S_MAX: f64 = 1.0;
/// 64 segments of an Ethernet path: a delayed acknowledgement, which covers two, is 3 % of them.
const ROUND_BYTES_MIN: u64 = 64 * 1448;
/// Below 1.5 Mbit/s a round ends without them.
const PATIENCE_S: f64 = 0.5;
/// Slow start doubles, or with pacing grows by a quarter at least (BBR).
const GROWTH: f64 = 1.25;
const ROUNDS_WITHOUT_GROWTH: u32 = 3;
