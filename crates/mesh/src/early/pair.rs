//! Change detectors of one peer's path, and its pending early test.

use std::time::Duration;

use super::EarlyTestReason;
use super::latency::ShiftDetector;
use super::trains::TrainHistory;
use crate::budget::HOUR;

/// Series of a path that can bring a test forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchedQuantity {
    /// Round-trip time (s).
    Rtt,
    /// Share of lost datagrams, 0 to 1.
    Loss,
    /// Goodput of bulk tests (bit/s), early or not.
    Goodput,
}

/// Change detectors of one peer's path, and its pending early test.
#[derive(Debug)]
pub(super) struct PairWatch {
    pub(super) is_peer: bool,
    pub(super) takes_trains: bool,
    pub(super) trains: TrainHistory,
    /// Time of the next train.
    pub(super) train_at: Duration,
    /// Number of lost trains since the last train with a rate.
    pub(super) trains_lost: u32,
    rtt: ShiftDetector,
    loss: ShiftDetector,
    /// The newest goodput (bit/s).
    rate_bit_s: f64,
    /// Whether an early test has measured a rate that did not arrive yet.
    awaits_rate: bool,
    wanted: Option<WantedTest>,
    tests: TestAllowance,
}

/// An early test that is not made yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct WantedTest {
    pub(super) reason: EarlyTestReason,
    /// Time of the change.
    pub(super) since: Duration,
    not_before: Duration,
}

/// Number of early tests that the peer may have, up to [`TESTS_MAX`], at the time `at`.
#[derive(Clone, Copy, Debug)]
struct TestAllowance {
    left: f64,
    at: Duration,
}

impl PairWatch {
    pub(super) fn new(now: Duration, train_at: Duration) -> Self {
        Self {
            is_peer: true,
            takes_trains: false,
            trains: TrainHistory::default(),
            train_at,
            trains_lost: 0,
            rtt: ShiftDetector::default(),
            loss: ShiftDetector::default(),
            rate_bit_s: 0.0,
            awaits_rate: false,
            wanted: None,
            tests: TestAllowance { left: TESTS_MAX, at: now },
        }
    }

    pub(super) fn observe(
        &mut self,
        now: Duration,
        what: WatchedQuantity,
        value: f64,
        issued: Option<(f64, f64)>,
    ) {
        match what {
            WatchedQuantity::Rtt if self.rtt.push(value, issued) => self.want(now, EarlyTestReason::Rtt),
            WatchedQuantity::Loss if self.loss.push(value, issued) => self.want(now, EarlyTestReason::Loss),
            WatchedQuantity::Rtt | WatchedQuantity::Loss => {}
            WatchedQuantity::Goodput => {
                let is_outside = issued.is_some_and(|(lower, upper)| !(lower..=upper).contains(&value));
                self.rate_bit_s = value;
                // The value answers what a test was wanted for.
                self.wanted = None;
                if std::mem::take(&mut self.awaits_rate) || is_outside {
                    self.want(now, EarlyTestReason::Goodput);
                }
            }
        }
    }

    /// Whether a train is due.
    pub(super) fn is_train_due(&self, now: Duration) -> bool {
        self.is_peer && self.takes_trains && self.train_at <= now
    }

    /// Schedules an early test. A test that is already scheduled remains.
    pub(super) fn want(&mut self, now: Duration, reason: EarlyTestReason) {
        let pause = if reason == EarlyTestReason::Goodput { SPACING } else { Duration::ZERO };
        let not_before = now.saturating_add(pause);
        self.wanted.get_or_insert(WantedTest { reason, since: now, not_before });
    }

    /// Drops the wanted test if its change is long ago, or if the forecast already says what the
    /// last test measured.
    pub(super) fn drop_needless(&mut self, now: Duration, forecast: impl Fn() -> Option<f64>) {
        let Some(wanted) = self.wanted else { return };
        let is_over = !self.is_peer || now.saturating_sub(wanted.since) > GIVE_UP_AFTER;
        let is_settled = || {
            let is_near = |forecast: f64| {
                self.rate_bit_s <= forecast * SETTLED_FACTOR && forecast <= self.rate_bit_s * SETTLED_FACTOR
            };
            wanted.reason == EarlyTestReason::Goodput
                && wanted.not_before <= now
                && forecast().is_none_or(is_near)
        };
        if is_over || is_settled() {
            self.wanted = None;
        }
    }

    /// The wanted test, if it may be made now.
    pub(super) fn ready(&self, now: Duration) -> Option<WantedTest> {
        self.wanted.filter(|wanted| wanted.not_before <= now && self.tests.left_at(now) >= 1.0)
    }

    pub(super) fn record_test(&mut self, now: Duration, is_measured: bool) {
        self.tests = TestAllowance { left: self.tests.left_at(now) - 1.0, at: now };
        self.wanted = None;
        self.awaits_rate = is_measured;
    }

    pub(super) fn record_refusal(&mut self, now: Duration, retry_after: Duration) {
        if let Some(wanted) = &mut self.wanted {
            wanted.not_before = now.saturating_add(retry_after.clamp(SPACING, RETRY_MAX));
        }
    }

    /// Whether the pair has not used any of its tests, or has earned them all again.
    pub(super) fn has_all_tests(&self, now: Duration) -> bool {
        self.tests.left_at(now) >= TESTS_MAX
    }
}

impl TestAllowance {
    fn left_at(self, now: Duration) -> f64 {
        let hours = now.saturating_sub(self.at).as_secs_f64() / HOUR.as_secs_f64();
        (self.left + hours * TESTS_PER_HOUR).min(TESTS_MAX)
    }
}

/// Most early tests of a peer in a row. The forecast follows a change after two or three tests, so
/// these are enough for a fall and the rise after it.
const TESTS_MAX: f64 = 6.0;

/// Number of early tests that a peer earns in an hour. One test of at most 2 s is about half of
/// what the host earns for all early tests (3.6 s).
const TESTS_PER_HOUR: f64 = 1.0;

/// Shortest time from a test to the next early test of the same peer. A path needs some seconds to
/// drain its queues.
const SPACING: Duration = Duration::from_secs(5);

/// Longest time after which a refused test is tried again. A refusal for longer is often shortened,
/// because other tests end.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Time after which a wanted test is given up: the time of two turns.
const GIVE_UP_AFTER: Duration = Duration::from_secs(600);

/// Largest factor between the forecast and the last rate at which no further test is made.
const SETTLED_FACTOR: f64 = 1.5;
