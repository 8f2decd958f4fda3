//! Length, limits and expected cost of a test, and the state of a path after the result. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use barograph_forecast::Name;
use barograph_mesh::{BudgetConfig, Cost, TestKind};
use barograph_probe::calibration::{CHECKPOINTS, Calibration, CheckpointRates};
use barograph_probe::stop::ForecastInterval;
use barograph_probe::stream::{EarlyStopPolicy, StreamEnd, StreamPlan, StreamResult};

/// State of a path before a test.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PathHistory {
    /// Forecast of the path's goodput (bit/s); `None` = the goodput was never measured.
    pub(super) forecast_bit_s: Option<f64>,
    /// 90 % prediction interval of the path's goodput.
    pub(super) guard: Option<ForecastInterval>,
    pub(super) calibration: Calibration,
    /// Duration of the last test that ended early.
    pub(super) settled_in: Option<Duration>,
    /// Whether the last test of the path reached iperf3's bit rate limit. The forecast is then far
    /// too low, so the next test is Barograph's own stream.
    pub(super) reached_rate_limit: bool,
    /// Time (since the start) at which [`prune`] last found the peer of the path in the mesh.
    pub(super) seen: Duration,
}

/// Parameters of a test before it starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TestParameters {
    pub(super) length: Duration,
    /// Maximum number of bytes to send. The target reserves as many bytes.
    pub(super) bytes_max: u64,
    pub(super) expected: Cost,
    pub(super) early: Option<EarlyStopPolicy>,
    /// Whether the test runs for its full length although it could end early.
    pub(super) is_audit: bool,
    /// Whether the test may run for the longest time that the budget permits.
    pub(super) has_full_length: bool,
}

impl TestParameters {
    /// Whether the result calibrates early estimates: the test has its full length, and may not end
    /// early.
    fn calibrates(&self) -> bool {
        self.early.is_none() && self.has_full_length
    }
}

impl PathHistory {
    /// Expected duration of a scheduled test.
    pub(super) fn settles_in(&self, budget: &BudgetConfig) -> Duration {
        let known = self.settled_in.filter(|_| self.early().is_some());
        known.unwrap_or(budget.test_max).min(budget.test_max)
    }

    /// Parameters with which a test may end early; `None` without a forecast or a calibration.
    fn early(&self) -> Option<EarlyStopPolicy> {
        let (guard, expected) = (self.guard?, self.calibration.expected()?);
        Some(EarlyStopPolicy { guard: Some(guard), expected: Some(expected), ..EarlyStopPolicy::default() })
    }

    /// Parameters of a scheduled test, which this station starts at its turn.
    pub(super) fn scheduled(
        &self,
        kind: TestKind,
        early_stop: bool,
        budget: &BudgetConfig,
    ) -> TestParameters {
        if self.forecast_bit_s.is_none() {
            return first(budget);
        }
        let is_full = kind == TestKind::Full;
        let could = self.early().filter(|_| early_stop);
        let early = could.filter(|_| !is_full);
        let expected = match early {
            Some(_) => self.settles_in(budget),
            None => budget.test_max,
        };
        self.of(budget.test_max, expected, early, is_full && could.is_some(), budget)
    }

    /// Parameters of a requested test with the given `length`. If `length` is `None`, these are the
    /// parameters of a scheduled test.
    pub(super) fn on_demand(
        &self,
        length: Option<Duration>,
        early_stop: bool,
        budget: &BudgetConfig,
    ) -> TestParameters {
        match length {
            Some(length) => {
                let length = length.min(budget.test_max);
                self.of(length, length, None, false, budget)
            }
            None => self.scheduled(TestKind::Settled, early_stop, budget),
        }
    }

    /// Parameters of a test that a change of the path brought forward. `rtt_s` is the forecast of
    /// the round-trip time (s).
    pub(super) fn brought_forward(
        &self,
        rtt_s: Option<f64>,
        early_stop: bool,
        budget: &BudgetConfig,
    ) -> TestParameters {
        if self.forecast_bit_s.is_none() {
            return first(budget);
        }
        let rounds_s = EARLY_TEST_ROUNDS * rtt_s.map_or(0.0, |rtt| rtt.clamp(0.0, 1.0));
        let length = (EARLY_TEST_MIN + Duration::from_secs_f64(rounds_s)).min(FIRST).min(budget.test_max);
        let early = self.early().filter(|_| early_stop);
        let mut test = self.of(length, length, early, false, budget);
        // The budget of the peer has a share for short tests.
        test.bytes_max = test.bytes_max.min(budget.short_test_max().bytes.max(first_bytes(budget)));
        test.expected.bytes = test.expected.bytes.min(test.bytes_max);
        test
    }

    /// Updates the calibration with the result of a test.
    pub(super) fn learn(&mut self, parameters: &TestParameters, streamed: &StreamResult) {
        let is_whole = match streamed.ended {
            StreamEnd::Early(reason) => {
                self.settled_in = Some(Duration::from_secs_f64(streamed.elapsed_s.max(0.0)));
                return self.calibration.add_early(&reason);
            }
            StreamEnd::Full => true,
            // On a fast path the byte limit ends every full test, so there are no other tests to
            // learn from.
            StreamEnd::Bytes => {
                let mut checkpoints = CHECKPOINTS.iter().zip(&streamed.partials);
                checkpoints.any(|(rounds, rate)| *rounds >= WHOLE_ROUNDS && rate.is_some())
            }
        };
        if is_whole && parameters.calibrates() {
            self.calibration.add_full(&streamed.partials, streamed.rate_bit_s());
        } else if is_whole && streamed.estimate_rejected {
            // The ratios are those of the full length, so a shorter test teaches none.
            let partials =
                if parameters.has_full_length { streamed.partials } else { CheckpointRates::default() };
            self.calibration.add_rejected(&partials, streamed.rate_bit_s());
        }
    }

    fn of(
        &self,
        length: Duration,
        expected: Duration,
        early: Option<EarlyStopPolicy>,
        is_audit: bool,
        budget: &BudgetConfig,
    ) -> TestParameters {
        let cap = budget.test_cap();
        let usable = self.forecast_bit_s.filter(|rate| rate.is_finite() && *rate > 0.0);
        // The cast to `u64` saturates.
        let moved = |time: Duration| {
            let bytes = usable.map_or(u64::MAX, |rate| (rate / 8.0 * time.as_secs_f64()) as u64);
            bytes.min(cap.bytes).min(StreamPlan::BYTES_MAX)
        };
        let most = moved(length).saturating_mul(ROOM).max(first_bytes(budget));
        let has_full_length = length == budget.test_max;
        TestParameters {
            length,
            bytes_max: most.min(cap.bytes).min(StreamPlan::BYTES_MAX),
            expected: Cost { duration: expected.min(cap.duration), bytes: moved(expected) },
            early,
            is_audit,
            has_full_length,
        }
    }
}

/// Drops paths to peers that left more than a day ago. Of the paths to other departed peers, keeps
/// at most [`DEPARTED_MAX`]: the paths to the peers that left last.
pub(super) fn prune(paths: &mut BTreeMap<Name, PathHistory>, is_peer: impl Fn(&Name) -> bool, now: Duration) {
    for (_, path) in paths.iter_mut().filter(|(name, _)| is_peer(name)) {
        path.seen = now;
    }
    let mut left: Vec<Duration> = paths.values().map(|path| path.seen).filter(|seen| *seen < now).collect();
    left.sort_unstable_by(|a, b| b.cmp(a));
    let limit = left.get(DEPARTED_MAX).copied();
    paths.retain(|_, path| {
        now.saturating_sub(path.seen) < DEPARTED_FOR && limit.is_none_or(|limit| path.seen > limit)
    });
}

/// Parameters of the first test of a path: short and cheap, so that a new mesh has forecasts within
/// minutes and within its budget.
fn first(budget: &BudgetConfig) -> TestParameters {
    let length = FIRST.min(budget.test_max);
    let bytes_max = first_bytes(budget);
    let expected = Cost { duration: length, bytes: bytes_max };
    TestParameters { length, bytes_max, expected, early: None, is_audit: false, has_full_length: false }
}

fn first_bytes(budget: &BudgetConfig) -> u64 {
    let most = budget.test_cap().bytes.clamp(1, StreamPlan::BYTES_MAX);
    (budget.bytes_per_hour / FIRST_PART).max(BYTES_LEAST).min(most)
}

/// Length of the first test of a path. Slow start takes less than two seconds except on the longest
/// paths. In the default budget of 36 s an hour, a station that runs four such tests as source and
/// four as target uses 16 s.
const FIRST: Duration = Duration::from_secs(2);
/// Shortest test that a change brought forward. The forecast follows a change after about three
/// tests, which then take 3 s of the 4.5 s an hour that a peer grants.
const EARLY_TEST_MIN: Duration = Duration::from_secs(1);
/// Number of round trips by which such a test is longer, up to the length of a first test: slow
/// start takes eight rounds to 1 Gbit/s at 20 ms, and its end is seen three rounds later.
const EARLY_TEST_ROUNDS: f64 = 20.0;
/// The first test of a path may use the budget of bytes per hour divided by this number. In the
/// default budget of 1.25 GB these are 50 MB, which take 4 s at 100 Mbit/s and 0.4 s at 1 Gbit/s.
const FIRST_PART: u64 = 25;
/// Minimum number of bytes of a test; the smallest budget permits two such tests. At 80 Mbit/s such
/// a test takes 0.2 s. In a much smaller test, most bytes would fill buffers on the path, so the
/// result would not show the rate of the path.
const BYTES_LEAST: u64 = crate::config::BULK_BYTES_MIN / 2;
/// Byte limit of a test, as a multiple of the bytes that the forecast predicts. The limit ends the
/// test only if the path is more than twice as fast as forecast.
const ROOM: u64 = 2;
/// Number of rounds after slow start: a test that ended at its byte limit counts as full if the
/// test reached the checkpoint at this round. With rounds of 20 ms this is half a second. A shorter
/// test is not used for calibration, because early estimates are made in tests of about this
/// length.
const WHOLE_ROUNDS: u32 = 24;
/// How long the path to a departed peer is kept, the same as in the plan.
const DEPARTED_FOR: Duration = Duration::from_secs(86_400);
/// Maximum number of paths to departed peers, the same as in the plan. So many paths take about 2
/// MB.
const DEPARTED_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use barograph_probe::stop::RateEstimate;
    use barograph_probe::stream::Samples;

    use super::*;

    /// Result of a stream that passed its first `passed` checkpoints.
    fn streamed(rate: f64, ended: StreamEnd, passed: usize) -> StreamResult {
        let partials = std::array::from_fn(|at| (at < passed).then_some(rate));
        StreamResult {
            bytes: 1,
            duration_s: 1.0,
            elapsed_s: 1.0,
            whole_bit_s: rate,
            settled_bit_s: Some(rate),
            startup_s: None,
            ended,
            proposed: None,
            partials,
            estimate_rejected: false,
            tcp_info: None,
            samples: Samples::new(),
        }
    }

    #[test]
    fn byte_limited_tests_calibrate_like_full_tests_if_they_outlast_slow_start() {
        let budget = BudgetConfig::default();
        let mut path = known(5e9);
        path.guard = Some(ForecastInterval { lower_bit_s: 4e9, upper_bit_s: 6e9 });
        let full = path.scheduled(TestKind::Settled, true, &budget);
        assert!(full.calibrates() && full.bytes_max == budget.test_cap().bytes, "{full:?}");
        let mut short = path;
        for _ in 0..2 * Calibration::TESTS_MIN {
            short.learn(&full, &streamed(5e9, StreamEnd::Bytes, 5));
        }
        assert!(short.early().is_none(), "twelve rounds are no full test");
        for _ in 0..Calibration::TESTS_MIN {
            path.learn(&full, &streamed(5e9, StreamEnd::Bytes, 6));
        }
        let early = path.scheduled(TestKind::Settled, true, &budget);
        assert!(early.early.is_some() && !early.calibrates());
        let before = path.calibration;
        path.learn(&early, &streamed(2e9, StreamEnd::Bytes, 7));
        assert_eq!(path.calibration, before, "the test could end early, and no estimate was rejected");
        for passed in [5, 6, 6] {
            let rejected =
                StreamResult { estimate_rejected: true, ..streamed(2e9, StreamEnd::Bytes, passed) };
            path.learn(&early, &rejected);
        }
        assert!(path.early().is_none(), "after two rejected estimates the path is another one");
        let reason = RateEstimate {
            time_s: 0.1,
            settled_bit_s: 2e9,
            uncombined_bit_s: 2e9,
            rate_bit_s: 2e9,
            deviation: 0.1,
        };
        path.learn(&early, &streamed(2e9, StreamEnd::Early(reason), 1));
        assert_eq!(path.settled_in, Some(Duration::from_secs(1)));
    }

    #[test]
    fn paths_of_departed_peers_are_kept_for_a_day_up_to_a_limit() {
        let name = |index: usize| Name::new(&format!("h{index}")).unwrap();
        let many = DEPARTED_MAX + 2;
        let mut paths: BTreeMap<Name, PathHistory> =
            (0..=many).map(|index| (name(index), known(1e8))).collect();
        let hour = Duration::from_secs(3600);
        prune(&mut paths, |_| true, hour);
        // Two peers are present. The others left an hour ago and are too many to keep.
        prune(&mut paths, |peer| *peer == name(0) || *peer == name(1), 2 * hour);
        assert!(paths.len() <= 2 + DEPARTED_MAX && paths.contains_key(&name(1)), "{}", paths.len());
        let is_there = |peer: &Name| *peer == name(0);
        let mut few: BTreeMap<Name, PathHistory> = (0..3).map(|index| (name(index), known(1e8))).collect();
        prune(&mut few, |_| true, hour);
        prune(&mut few, is_there, 24 * hour);
        assert_eq!(few.len(), 3);
        prune(&mut few, is_there, 25 * hour);
        assert_eq!(few.keys().collect::<Vec<_>>(), [&name(0)]);
    }

    fn known(rate: f64) -> PathHistory {
        PathHistory { forecast_bit_s: Some(rate), ..PathHistory::default() }
    }

    #[test]
    fn the_first_test_is_short_and_later_tests_have_the_full_length() {
        let budget = BudgetConfig::default();
        let first = PathHistory::default().scheduled(TestKind::Full, true, &budget);
        assert_eq!((first.length, first.bytes_max), (FIRST, 50_000_000));
        assert!(!first.calibrates(), "it says nothing of full tests");
        let full = known(100e6).scheduled(TestKind::Settled, true, &budget);
        assert_eq!((full.length, full.bytes_max), (budget.test_max, 125_000_000));
        assert_eq!(full.expected, Cost { duration: budget.test_max, bytes: 62_500_000 });
        assert!(full.calibrates() && full.early.is_none(), "nothing is calibrated yet");
        let fast = known(100e9).scheduled(TestKind::Settled, true, &budget);
        assert_eq!(fast.bytes_max, budget.test_cap().bytes);
    }

    #[test]
    fn a_test_that_is_brought_forward_is_short_and_longer_on_a_long_path() {
        let budget = BudgetConfig::default();
        let length = |rtt_s| known(100e6).brought_forward(rtt_s, true, &budget).length.as_secs_f64();
        assert_eq!(length(None), 1.0);
        assert!((length(Some(0.02)) - 1.4).abs() < 1e-6, "{}", length(Some(0.02)));
        for rtt_s in [0.05, 0.6, 100.0, f64::INFINITY] {
            assert_eq!(length(Some(rtt_s)), 2.0, "{rtt_s}");
        }
        let test = known(100e6).brought_forward(None, true, &budget);
        assert_eq!(test.expected, Cost { duration: Duration::from_secs(1), bytes: 12_500_000 });
        assert!(!test.calibrates() && test.bytes_max == 50_000_000, "a rate that rose to 400 Mbit/s is seen");
        let first = PathHistory::default().brought_forward(None, true, &budget);
        assert_eq!(first, PathHistory::default().scheduled(TestKind::Full, true, &budget));
        let short = BudgetConfig { test_max: Duration::from_millis(500), ..budget };
        assert_eq!(known(100e6).brought_forward(None, true, &short).length, short.test_max);
        for rate in [500e6, 1e9, 100e9] {
            let fast = known(rate).brought_forward(Some(0.3), true, &budget);
            let most = budget.short_test_max();
            assert!(fast.length <= most.duration && fast.bytes_max == most.bytes, "{fast:?}");
            assert!(fast.expected.bytes <= fast.bytes_max, "{fast:?}");
        }
    }

    #[test]
    fn rejected_estimates_of_tests_that_are_brought_forward_teach_no_ratios() {
        let budget = BudgetConfig::default();
        let mut path = known(100e6);
        path.guard = Some(ForecastInterval { lower_bit_s: 90e6, upper_bit_s: 110e6 });
        for _ in 0..Calibration::TESTS_MIN {
            path.calibration.add_full(&[Some(100e6); 7], 100e6);
        }
        let test = path.brought_forward(None, true, &budget);
        assert!(test.early.is_some());
        for _ in 0..Calibration::REJECTIONS_MAX {
            let rejected = StreamResult { estimate_rejected: true, ..streamed(10e6, StreamEnd::Full, 7) };
            path.learn(&test, &rejected);
        }
        let mut level_only = Calibration::default();
        level_only.add_full(&[None; 7], 10e6);
        assert_eq!(path.calibration, level_only);
    }

    #[test]
    fn a_small_budget_still_allows_tests_of_a_useful_size() {
        let budget =
            BudgetConfig { bytes_per_hour: crate::config::BULK_BYTES_MIN, ..BudgetConfig::default() };
        assert!(budget.check().is_ok());
        for path in [PathHistory::default(), known(80e6), known(1e3)] {
            let parameters = path.scheduled(TestKind::Full, true, &budget);
            assert_eq!(parameters.bytes_max, 2_000_000, "{parameters:?}");
        }
        let whole = BudgetConfig { bytes_per_hour: 100_000_000, ..budget };
        assert_eq!(PathHistory::default().scheduled(TestKind::Full, true, &whole).bytes_max, 4_000_000);
    }

    #[test]
    fn tests_on_a_calibrated_path_end_early_except_audits_and_where_disabled() {
        let budget = BudgetConfig::default();
        let mut path = known(100e6);
        path.guard = Some(ForecastInterval { lower_bit_s: 90e6, upper_bit_s: 110e6 });
        for _ in 0..Calibration::TESTS_MIN {
            path.calibration.add_full(&[Some(100e6); 7], 100e6);
        }
        path.settled_in = Some(Duration::from_millis(600));
        let early = path.scheduled(TestKind::Settled, true, &budget);
        assert!(early.early.is_some() && !early.calibrates());
        assert_eq!(early.expected.duration, Duration::from_millis(600));
        let audit = path.scheduled(TestKind::Full, true, &budget);
        assert!(audit.early.is_none() && audit.is_audit && audit.calibrates());
        let never = path.scheduled(TestKind::Settled, false, &budget);
        assert!(never.early.is_none() && !never.is_audit);
        let asked = path.on_demand(Some(Duration::from_secs(60)), true, &budget);
        assert_eq!((asked.length, asked.early), (budget.test_max, None));
        assert_eq!(asked.expected, Cost { duration: budget.test_max, bytes: 62_500_000 });
    }
}
