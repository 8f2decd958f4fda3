//! What a plan keeps of one peer.

use std::time::Duration;

use super::Length;
use crate::budget::Cost;

/// What is forecast of the goodput towards a peer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairForecast {
    /// Mean absolute error of the forecast so far, as a share of the forecast. Taken as at least 0.01 and at most 1; NaN as 1.
    pub relative_error: f64,
    /// The rate (bit/s). One that is no number or not above 0 is as if none were forecast.
    pub goodput_bit_s: f64,
    /// How long a test takes that stops once its rate has settled.
    pub settles_in: Duration,
}

impl PairForecast {
    /// Within bounds.
    pub(super) fn checked(self) -> Self {
        let relative_error =
            if self.relative_error.is_nan() { 1.0 } else { self.relative_error.clamp(ERROR_MIN, 1.0) };
        Self { relative_error, ..self }
    }
}

#[derive(Debug)]
pub(super) struct Pair {
    /// The turn in which it came.
    pub(super) joined: u64,
    /// Its place among equals.
    pub(super) rank: u64,
    /// Its last turn, and when that was.
    pub(super) last: Option<(u64, Duration)>,
    pub(super) forecast: Option<PairForecast>,
    /// Tests that failed since one succeeded.
    pub(super) failures: u32,
    pub(super) is_audit: bool,
    pub(super) not_before: Duration,
    /// Refusals and failures since a test succeeded.
    pub(super) refusals: u32,
}

impl Pair {
    pub(super) fn new(joined: u64, rank: u64) -> Self {
        Self {
            joined,
            rank,
            last: None,
            failures: 0,
            forecast: None,
            is_audit: false,
            not_before: Duration::ZERO,
            refusals: 0,
        }
    }

    pub(super) fn length(&self) -> Length {
        if self.forecast.is_some() && !self.is_audit { Length::Settled } else { Length::Full }
    }

    /// Forecast error × time since its last turn; nothing before the first. One tested but not forecast
    /// is as uncertain as can be. One that failed twice has its turns by age alone: a dead peer is uncertain too,
    /// and its tests the costliest.
    pub(super) fn need(&self, now: Duration) -> Option<f64> {
        let (_, at) = self.last?;
        let error = match self.forecast {
            _ if 1 < self.failures => ERROR_MIN,
            Some(forecast) => forecast.relative_error,
            None => 1.0,
        };
        Some(error * now.saturating_sub(at).as_secs_f64())
    }

    /// What a test is expected to cost: the cap, as far as nothing is forecast.
    pub(super) fn expected(&self, length: Length, cap: Cost) -> Cost {
        let Some(forecast) = self.forecast else { return cap };
        let duration = match length {
            Length::Settled => forecast.settles_in.min(cap.duration),
            Length::Full => cap.duration,
        };
        if !(forecast.goodput_bit_s.is_finite() && 0.0 < forecast.goodput_bit_s) {
            return Cost { duration, ..cap };
        }
        // A cast saturates.
        let bytes = (forecast.goodput_bit_s / 8.0 * duration.as_secs_f64()) as u64;
        Cost { duration, bytes }.at_most(cap)
    }
}

/// No pair is known better than to 1 %: one that seems to be still has its turns by age.
const ERROR_MIN: f64 = 0.01;
