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
    /// Within bounds. The smallest error lets a perfectly known pair still have its turns by age.
    pub(super) fn checked(self) -> Self {
        let relative_error =
            if self.relative_error.is_nan() { 1.0 } else { self.relative_error.clamp(0.01, 1.0) };
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
    pub(super) was_tested: bool,
    pub(super) forecast: Option<PairForecast>,
    pub(super) is_audit: bool,
    pub(super) not_before: Duration,
    /// Refusals and failures since it was last tested.
    pub(super) refusals: u32,
}

impl Pair {
    pub(super) fn new(joined: u64, rank: u64) -> Self {
        Self {
            joined,
            rank,
            last: None,
            was_tested: false,
            forecast: None,
            is_audit: false,
            not_before: Duration::ZERO,
            refusals: 0,
        }
    }

    pub(super) fn length(&self) -> Length {
        if self.was_tested && !self.is_audit { Length::Settled } else { Length::Full }
    }

    /// Forecast error × time since its last turn; nothing before the first. One tested but not forecast
    /// is as uncertain as can be.
    pub(super) fn need(&self, now: Duration) -> Option<f64> {
        let (_, at) = self.last?;
        let error = self.forecast.map_or(1.0, |forecast| forecast.relative_error);
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
