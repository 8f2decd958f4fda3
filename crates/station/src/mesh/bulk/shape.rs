//! Length, limits and expected cost of a test, and the state of a path after the result. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use barograph_forecast::Name;
use barograph_mesh::{BudgetConfig, Cost, Length};
use barograph_probe::calibration::{CHECKPOINTS, Calibration};
use barograph_probe::stop::Guard;
use barograph_probe::stream::{Early, Ended, StreamPlan, Streamed};

/// State of a path before a test.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Path {
    /// Forecast of the path's goodput (bit/s); `None` = the goodput was never measured.
    pub(super) forecast_bit_s: Option<f64>,
    /// 90 % prediction interval of its goodput.
    pub(super) guard: Option<Guard>,
    pub(super) calibration: Calibration,
    /// Duration of the last test that ended early.
    pub(super) settled_in: Option<Duration>,
    /// Whether the last test of the path reached iperf3's bit rate limit. The forecast is then far
    /// too low, so the next test is Barograph's own stream.
    pub(super) outgrew_tool: bool,
    /// Time (since the start) at which [`prune`] last found the peer of the path in the mesh.
    pub(super) seen: Duration,
}

/// Parameters of a test before it starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    pub(super) length: Duration,
    /// Maximum number of bytes to send. The target reserves as many bytes.
    pub(super) bytes_max: u64,
    pub(super) expected: Cost,
    pub(super) early: Option<Early>,
    /// Whether the test runs for its full length although it could end early.
    pub(super) is_audit: bool,
    /// Whether the test has the full length, so that its result calibrates early estimates.
    pub(super) calibrates: bool,
}

impl Path {
    /// Expected duration of a scheduled test.
    pub(super) fn settles_in(&self, budget: &BudgetConfig) -> Duration {
        let known = self.settled_in.filter(|_| self.early().is_some());
        known.unwrap_or(budget.test_max).min(budget.test_max)
    }

    /// Parameters with which a test may end early; `None` without a forecast or a calibration.
    fn early(&self) -> Option<Early> {
        let (guard, expected) = (self.guard?, self.calibration.expected()?);
        Some(Early { guard: Some(guard), expected: Some(expected), ..Early::default() })
    }

    /// Parameters of a scheduled test, which the station starts in its own turn.
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

    /// Parameters of a requested test, with the given length; without a length, those of a
    /// scheduled test.
    pub(super) fn on_demand(
        &self,
        length: Option<Duration>,
        early_stop: bool,
        budget: &BudgetConfig,
    ) -> Shape {
        match length {
            Some(length) => {
                let length = length.min(budget.test_max);
                self.of(length, length, None, false, budget)
            }
            None => self.scheduled(Length::Settled, early_stop, budget),
        }
    }

    /// Updates the calibration with the result of a test.
    pub(super) fn learn(&mut self, shape: &Shape, streamed: &Streamed) {
        let is_whole = match streamed.ended {
            Ended::Early(reason) => {
                self.settled_in = Some(Duration::from_secs_f64(streamed.elapsed_s.max(0.0)));
                return self.calibration.learn_early(&reason);
            }
            Ended::Full => true,
            // On a fast path the byte limit ends every full test, so there are no other tests to
            // learn from.
            Ended::Bytes => {
                let mut checkpoints = CHECKPOINTS.iter().zip(&streamed.partials);
                checkpoints.any(|(rounds, rate)| WHOLE_ROUNDS <= *rounds && rate.is_some())
            }
        };
        if is_whole && shape.calibrates {
            self.calibration.learn_full(&streamed.partials, streamed.rate_bit_s());
        } else if is_whole && streamed.surprised {
            self.calibration.learn_surprise(&streamed.partials, streamed.rate_bit_s());
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
        // The cast to `u64` saturates.
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

/// Drops paths to peers that left over a day ago. If more than [`DEPARTED_MAX`] others have left,
/// drops those that left first.
pub(super) fn prune(paths: &mut BTreeMap<Name, Path>, is_peer: impl Fn(&Name) -> bool, now: Duration) {
    for (_, path) in paths.iter_mut().filter(|(name, _)| is_peer(name)) {
        path.seen = now;
    }
    let mut left: Vec<Duration> = paths.values().map(|path| path.seen).filter(|seen| *seen < now).collect();
    left.sort_unstable_by(|a, b| b.cmp(a));
    let limit = left.get(DEPARTED_MAX).copied();
    paths.retain(|_, path| {
        now.saturating_sub(path.seen) < DEPARTED_FOR && limit.is_none_or(|limit| limit < path.seen)
    });
}

/// Parameters of the first test of a path: short and cheap, so that a new mesh has forecasts within
/// minutes and within its budget.
fn first(budget: &BudgetConfig) -> Shape {
    let length = FIRST.min(budget.test_max);
    let bytes_max = first_bytes(budget);
    let expected = Cost { duration: length, bytes: bytes_max };
    Shape { length, bytes_max, expected, early: None, is_audit: false, calibrates: false }
}

fn first_bytes(budget: &BudgetConfig) -> u64 {
    let most = budget.test_cap().bytes.clamp(1, StreamPlan::BYTES_MAX);
    (budget.bytes_per_hour / FIRST_PART).max(BYTES_LEAST).min(most)
}

/// Length of the first test of a path. Two seconds are longer than slow start on all but the
/// longest paths. Four such tests at each end take 16 of the 36 s of an hour's budget.
const FIRST: Duration = Duration::from_secs(2);
/// Divisor of an hour's bytes for the first test: at most 50 MB of 1.25 GB, which take 4 s at 100
/// Mbit/s and 0.4 s at 1 Gbit/s.
const FIRST_PART: u64 = 25;
/// Minimum number of bytes of a test; the smallest budget permits two such tests. At 80 Mbit/s such
/// a test takes 0.2 s. In a much smaller test, most bytes would fill buffers on the path, so the
/// result would not show the rate of the path.
const BYTES_LEAST: u64 = crate::config::BULK_BYTES_MIN / 2;
/// Byte limit of a test, as a multiple of the forecast: a path may be twice as fast as forecast
/// before the limit ends the test.
const ROOM: u64 = 2;
/// A test that ended at its byte limit counts as full if it reached this checkpoint: half a second
/// after slow start, in rounds of 20 ms. A shorter test does not calibrate, because calibration
/// evaluates tests of such lengths.
const WHOLE_ROUNDS: u32 = 24;
/// How long the path to a departed peer is kept, the same as in the plan.
const DEPARTED_FOR: Duration = Duration::from_secs(86_400);
/// Maximum number of paths to departed peers, as many as in the plan; they take about 2 MB.
const DEPARTED_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use barograph_probe::stop::Reason;
    use barograph_probe::stream::Samples;

    use super::*;

    /// Result of a stream that passed its first `passed` checkpoints.
    fn streamed(rate: f64, ended: Ended, passed: usize) -> Streamed {
        let partials = std::array::from_fn(|at| (at < passed).then_some(rate));
        Streamed {
            bytes: 1,
            duration_s: 1.0,
            elapsed_s: 1.0,
            whole_bit_s: rate,
            settled_bit_s: Some(rate),
            startup_s: None,
            ended,
            proposed: None,
            partials,
            surprised: false,
            tcp_info: None,
            samples: Samples::new(),
        }
    }

    #[test]
    fn tests_that_bytes_end_well_after_startup_teach_what_full_ones_do() {
        let budget = BudgetConfig::default();
        let mut path = known(5e9);
        path.guard = Some(Guard { lower_bit_s: 4e9, upper_bit_s: 6e9 });
        let full = path.scheduled(Length::Settled, true, &budget);
        assert!(full.calibrates && full.bytes_max == budget.test_cap().bytes, "{full:?}");
        let mut short = path;
        for _ in 0..2 * Calibration::TESTS_MIN {
            short.learn(&full, &streamed(5e9, Ended::Bytes, 5));
        }
        assert!(short.early().is_none(), "twelve rounds are no full test");
        for _ in 0..Calibration::TESTS_MIN {
            path.learn(&full, &streamed(5e9, Ended::Bytes, 6));
        }
        let early = path.scheduled(Length::Settled, true, &budget);
        assert!(early.early.is_some() && !early.calibrates);
        let kept = path.calibration;
        path.learn(&early, &streamed(2e9, Ended::Bytes, 7));
        assert_eq!(path.calibration, kept, "it had leave, and was no surprise");
        for passed in [5, 6, 6] {
            let surprise = Streamed { surprised: true, ..streamed(2e9, Ended::Bytes, passed) };
            path.learn(&early, &surprise);
        }
        assert!(path.early().is_none(), "after two surprises the path is another one");
        let reason =
            Reason { time_s: 0.1, settled_bit_s: 2e9, alone_bit_s: 2e9, rate_bit_s: 2e9, deviation: 0.1 };
        path.learn(&early, &streamed(2e9, Ended::Early(reason), 1));
        assert_eq!(path.settled_in, Some(Duration::from_secs(1)));
    }

    #[test]
    fn paths_are_kept_for_a_day_after_their_peers_left_and_no_more_than_so_many() {
        let name = |index: usize| Name::new(&format!("h{index}")).unwrap();
        let many = DEPARTED_MAX + 2;
        let mut paths: BTreeMap<Name, Path> = (0..=many).map(|index| (name(index), known(1e8))).collect();
        let hour = Duration::from_secs(3600);
        prune(&mut paths, |_| true, hour);
        // Two peers are present. The others left an hour ago and are too many to keep.
        prune(&mut paths, |peer| *peer == name(0) || *peer == name(1), 2 * hour);
        assert!(paths.len() <= 2 + DEPARTED_MAX && paths.contains_key(&name(1)), "{}", paths.len());
        let is_there = |peer: &Name| *peer == name(0);
        let mut few: BTreeMap<Name, Path> = (0..3).map(|index| (name(index), known(1e8))).collect();
        prune(&mut few, |_| true, hour);
        prune(&mut few, is_there, 24 * hour);
        assert_eq!(few.len(), 3);
        prune(&mut few, is_there, 25 * hour);
        assert_eq!(few.keys().collect::<Vec<_>>(), [&name(0)]);
    }

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
    fn a_small_budget_makes_no_test_that_is_over_before_it_says_something() {
        let budget =
            BudgetConfig { bytes_per_hour: crate::config::BULK_BYTES_MIN, ..BudgetConfig::default() };
        assert!(budget.check().is_ok());
        for path in [Path::default(), known(80e6), known(1e3)] {
            let shape = path.scheduled(Length::Full, true, &budget);
            assert_eq!(shape.bytes_max, 2_000_000, "{shape:?}");
        }
        let whole = BudgetConfig { bytes_per_hour: 100_000_000, ..budget };
        assert_eq!(Path::default().scheduled(Length::Full, true, &whole).bytes_max, 4_000_000);
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
        assert_eq!(asked.expected, Cost { duration: budget.test_max, bytes: 62_500_000 });
    }
}
