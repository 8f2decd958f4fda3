//! How long a test is to be, and what it may cost. Pure.

use std::time::Duration;

use barograph_mesh::{BudgetConfig, Cost, Length};
use barograph_probe::calibration::Calibration;
use barograph_probe::stop::Guard;
use barograph_probe::stream::{Early, StreamPlan};

/// What is known of a path before a test.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Path {
    /// Forecast of its goodput (bit/s); `None` = it was never measured.
    pub(super) forecast_bit_s: Option<f64>,
    /// Where 90 % of its values are expected.
    pub(super) guard: Option<Guard>,
    pub(super) calibration: Calibration,
    /// How long the last test took that ended early.
    pub(super) settled_in: Option<Duration>,
    /// Its last test was held by iperf3's limit: the forecast is far too low, and our own stream has to say so.
    pub(super) outgrew_tool: bool,
}

/// A test as it is to be made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    pub(super) length: Duration,
    /// The most that it sends; the target reserves as much.
    pub(super) bytes_max: u64,
    pub(super) expected: Cost,
    pub(super) early: Option<Early>,
    /// It has its full length although it could end early.
    pub(super) is_audit: bool,
    /// It has the full length of a test, and did not have to have it.
    pub(super) calibrates: bool,
}

impl Path {
    /// How long a scheduled test is expected to take.
    pub(super) fn settles_in(&self, budget: &BudgetConfig) -> Duration {
        let known = self.settled_in.filter(|_| self.early().is_some());
        known.unwrap_or(budget.test_max).min(budget.test_max)
    }

    /// Leave for a test to end early; `None` of a path without a forecast, or one that is not calibrated.
    fn early(&self) -> Option<Early> {
        let (guard, expected) = (self.guard?, self.calibration.expected()?);
        Some(Early { guard: Some(guard), expected: Some(expected), ..Early::default() })
    }

    /// A test in its turn.
    pub(super) fn scheduled(&self, length: Length, early_stop: bool, budget: &BudgetConfig) -> Shape {
        if self.forecast_bit_s.is_none() {
            return first(budget);
        }
        let is_full = length == Length::Full;
        let could = self.early().filter(|_| early_stop);
        let early = could.filter(|_| !is_full);
        let expected = match early {
            Some(_) => self.settles_in(budget),
            None => budget.test_max,
        };
        self.of(budget.test_max, expected, early, is_full && could.is_some(), budget)
    }

    /// A test that somebody asked for, of so many seconds, or as the path's own.
    pub(super) fn on_demand(
        &self,
        length: Option<Duration>,
        early_stop: bool,
        budget: &BudgetConfig,
    ) -> Shape {
        match length {
            Some(length) => self.of(length.min(budget.test_max), length, None, false, budget),
            None => self.scheduled(Length::Settled, early_stop, budget),
        }
    }

    fn of(
        &self,
        length: Duration,
        expected: Duration,
        early: Option<Early>,
        is_audit: bool,
        budget: &BudgetConfig,
    ) -> Shape {
        let cap = budget.test_cap();
        let usable = self.forecast_bit_s.filter(|rate| rate.is_finite() && 0.0 < *rate);
        // A cast saturates.
        let moved = |time: Duration| {
            let bytes = usable.map_or(u64::MAX, |rate| (rate / 8.0 * time.as_secs_f64()) as u64);
            bytes.min(cap.bytes).min(StreamPlan::BYTES_MAX)
        };
        let most = moved(length).saturating_mul(ROOM).max(first_bytes(budget));
        Shape {
            length,
            bytes_max: most.min(cap.bytes).min(StreamPlan::BYTES_MAX),
            expected: Cost { duration: expected.min(cap.duration), bytes: moved(expected) },
            early,
            is_audit,
            calibrates: early.is_none() && length == budget.test_max,
        }
    }
}

/// The first test of a path is short and cheap, so that a new mesh has forecasts within minutes and within its budget.
fn first(budget: &BudgetConfig) -> Shape {
    let length = FIRST.min(budget.test_max);
    let bytes_max = first_bytes(budget);
    let expected = Cost { duration: length, bytes: bytes_max };
    Shape { length, bytes_max, expected, early: None, is_audit: false, calibrates: false }
}

fn first_bytes(budget: &BudgetConfig) -> u64 {
    (budget.bytes_per_hour / FIRST_PART).clamp(1, StreamPlan::BYTES_MAX)
}

/// How long the first test of a path is: two seconds are past start-up on all but the longest paths, and
/// four such tests at each end take 16 of the 36 s that an hour has.
const FIRST: Duration = Duration::from_secs(2);
/// The first test takes at most this part of an hour's bytes: 50 MB of 1.25 GB, four seconds at 100 Mbit/s and 0.4 s at 1 Gbit/s.
const FIRST_PART: u64 = 25;
/// A path may be faster than forecast: the stream may move twice as much before it is ended for its bytes.
const ROOM: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn known(rate: f64) -> Path {
        Path { forecast_bit_s: Some(rate), ..Path::default() }
    }

    #[test]
    fn the_first_test_is_short_and_later_ones_have_their_length() {
        let budget = BudgetConfig::default();
        let first = Path::default().scheduled(Length::Full, true, &budget);
        assert_eq!((first.length, first.bytes_max), (FIRST, 50_000_000));
        assert!(!first.calibrates, "it says nothing of full tests");
        let full = known(100e6).scheduled(Length::Settled, true, &budget);
        assert_eq!((full.length, full.bytes_max), (budget.test_max, 125_000_000));
        assert_eq!(full.expected, Cost { duration: budget.test_max, bytes: 62_500_000 });
        assert!(full.calibrates && full.early.is_none(), "nothing is calibrated yet");
        let fast = known(100e9).scheduled(Length::Settled, true, &budget);
        assert_eq!(fast.bytes_max, budget.test_cap().bytes);
    }

    #[test]
    fn a_calibrated_path_ends_early_but_for_audits_and_where_it_may_not() {
        let budget = BudgetConfig::default();
        let mut path = known(100e6);
        path.guard = Some(Guard { lower_bit_s: 90e6, upper_bit_s: 110e6 });
        for _ in 0..Calibration::TESTS_MIN {
            path.calibration.learn_full(&[Some(100e6); 7], 100e6);
        }
        path.settled_in = Some(Duration::from_millis(600));
        let early = path.scheduled(Length::Settled, true, &budget);
        assert!(early.early.is_some() && !early.calibrates);
        assert_eq!(early.expected.duration, Duration::from_millis(600));
        let audit = path.scheduled(Length::Full, true, &budget);
        assert!(audit.early.is_none() && audit.is_audit && audit.calibrates);
        let never = path.scheduled(Length::Settled, false, &budget);
        assert!(never.early.is_none() && !never.is_audit);
        let asked = path.on_demand(Some(Duration::from_secs(60)), true, &budget);
        assert_eq!((asked.length, asked.early), (budget.test_max, None));
    }
}
