//! Bulk tests between two turns: a change of a path brings its next test forward
//! (docs/spec/plan.md §3).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::budget::{BudgetConfig, Cost, HOUR};
use crate::rng::SeededRng;

mod latency;
mod pair;
mod trains;

use pair::PairWatch;
pub use pair::WatchedQuantity;
use trains::TrainChange;

/// Decides which peer gets a bulk test between two turns, and which peer gets the next packet
/// train.
///
/// Four changes bring a test forward, see [`EarlyTestReason`]. Two limits apply, beside the budgets
/// of both hosts ([`TestAdmission`](crate::TestAdmission)):
///
/// - All early tests of the host earn a fifth of half the budget. At most half an hour's budget is
///   saved. So a path that changes all the time costs a known part of the budget.
/// - A peer has at most six early tests in a row, and later one an hour. So one peer that reports
///   false changes leaves early tests for the others.
///
/// Early tests are no turns: the [`Planner`](crate::Planner) does not count them.
///
/// Call [`EarlyTests::next_train`] and [`EarlyTests::next_test`] about once a second.
#[derive(Debug)]
pub struct EarlyTests {
    budget: BudgetConfig,
    rng: SeededRng,
    pairs: BTreeMap<Arc<str>, PairWatch>,
    credit: EarlyCredit,
    counts: EarlyTestCounts,
}

/// A test to run now, although it is not the turn of its peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlyTest {
    /// Name of the receiver.
    pub peer: Arc<str>,
    /// What brought the test forward.
    pub reason: EarlyTestReason,
}

/// What brings a test forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyTestReason {
    /// Two packet trains in a row were faster, or slower, than the trains before them.
    Train,
    /// Four of five round-trip times were outside the forecast interval, on the same side.
    Rtt,
    /// Four of five loss values were outside the forecast interval, on the same side.
    Loss,
    /// The goodput of the last test is not what the forecast says after that test.
    Goodput,
}

/// Counts of early tests and packet trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EarlyTestCounts {
    /// Number of tests that were made, for each of [`EarlyTestReason::ALL`].
    pub tests: [u64; EarlyTestReason::ALL.len()],
    /// Number of trains that gave a rate.
    pub trains: u64,
    /// Number of trains without a rate: declined, lost, or sent while a bulk transfer ran.
    pub trains_lost: u64,
}

/// Budget that is available for early tests, in seconds and bytes. The credit is negative if the
/// last test cost more than was available.
#[derive(Debug)]
struct EarlyCredit {
    at: Duration,
    seconds: f64,
    bytes: f64,
}

impl EarlyTestReason {
    /// All reasons, in the order of [`EarlyTestCounts::tests`].
    pub const ALL: [Self; 4] = [Self::Train, Self::Rtt, Self::Loss, Self::Goodput];

    /// Name of the reason, as `/metrics` shows it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Rtt => "rtt",
            Self::Loss => "loss",
            Self::Goodput => "goodput",
        }
    }
}

impl EarlyTests {
    /// Creates the early tests of a host without peers. The host's name and the seed determine the
    /// times of trains, so stations that start together do not send together.
    #[must_use]
    pub fn new(host: &str, budget: BudgetConfig, seed: u64, now: Duration) -> Self {
        let most = saved_most(&budget);
        Self {
            budget,
            rng: SeededRng::new(seed, host),
            pairs: BTreeMap::new(),
            credit: EarlyCredit { at: now, seconds: most.duration.as_secs_f64(), bytes: most.bytes as f64 },
            counts: EarlyTestCounts::default(),
        }
    }

    /// Sets the peers that the directory has now, each with whether it answers packet trains. A
    /// peer that returns keeps the number of tests that it used.
    pub fn set_peers<'a>(&mut self, now: Duration, peers: impl IntoIterator<Item = (&'a str, bool)>) {
        for pair in self.pairs.values_mut() {
            pair.is_peer = false;
        }
        let Self { pairs, rng, .. } = self;
        for (peer, takes_trains) in peers {
            let spread = learning_period(train_period(pairs.len() + 1));
            let pair = pairs
                .entry(peer.into())
                .or_insert_with(|| PairWatch::new(now, now.saturating_add(spread.mul_f64(rng.uniform()))));
            pair.is_peer = true;
            pair.takes_trains = takes_trains;
        }
        // Each absent pair that is kept has used a test within six hours, and the host's budget
        // bounds the number of tests.
        self.pairs.retain(|_, pair| pair.is_peer || !pair.has_all_tests(now));
    }

    /// Counts of early tests and trains so far.
    #[must_use]
    pub fn counts(&self) -> EarlyTestCounts {
        self.counts
    }

    /// Shortest usual time between two trains to one peer: 20 s with up to five peers, and 4 s for
    /// each peer with more.
    #[must_use]
    pub fn train_period(&self) -> Duration {
        train_period(self.pairs.values().filter(|pair| pair.is_peer && pair.takes_trains).count())
    }

    /// Returns the peer to which a train is due. Report its result with
    /// [`EarlyTests::record_train`].
    pub fn next_train(&mut self, now: Duration) -> Option<Arc<str>> {
        let jitter = 1.0 + JITTER * (2.0 * self.rng.uniform() - 1.0);
        let next_at = now.saturating_add(self.train_period().mul_f64(jitter));
        let due = self.pairs.iter_mut().filter(|(_, pair)| pair.is_train_due(now));
        let (peer, pair) = due.min_by_key(|(_, pair)| pair.train_at)?;
        pair.train_at = next_at;
        Some(Arc::clone(peer))
    }

    /// Records the rate (bit/s) that a train showed. `None`, or a rate that is not finite and above
    /// 0, means that the train was lost: it changes nothing, and the next train comes later.
    pub fn record_train(&mut self, now: Duration, peer: &str, rate_bit_s: Option<f64>) {
        let period = self.train_period();
        let rate = rate_bit_s.filter(|rate| rate.is_finite() && *rate > 0.0);
        self.counts.trains += u64::from(rate.is_some());
        self.counts.trains_lost += u64::from(rate.is_none());
        let Some(pair) = self.pairs.get_mut(peer) else { return };
        let Some(rate) = rate else {
            pair.trains_lost = pair.trains_lost.saturating_add(1);
            let doubled = period.saturating_mul(1 << pair.trains_lost.min(DOUBLINGS_MAX));
            pair.train_at = now.saturating_add(doubled.min(TRAIN_BACK_OFF_MAX.max(period)));
            return;
        };
        pair.trains_lost = 0;
        let rest = Duration::from_secs_f64((TRAIN_BITS / (TRAIN_PART * rate)).min(REST_MAX_S));
        let change = pair.trains.push(rate);
        let next =
            if pair.trains.is_known() { pair.train_at } else { now.saturating_add(learning_period(period)) };
        pair.train_at = next.max(now.saturating_add(rest));
        match change {
            TrainChange::None => {}
            TrainChange::Suspected => pair.train_at = now.saturating_add(CONFIRM_AFTER),
            TrainChange::Confirmed => pair.want(now, EarlyTestReason::Train),
        }
    }

    /// Records a value of a series to the peer. `issued` is the 90 % interval that was issued for
    /// this value; `None` if there was none.
    pub fn observe(
        &mut self,
        now: Duration,
        peer: &str,
        what: WatchedQuantity,
        value: f64,
        issued: Option<(f64, f64)>,
    ) {
        if let Some(pair) = self.pairs.get_mut(peer) {
            pair.observe(now, what, value, issued);
        }
    }

    /// Returns the early test to run now: the one that has been wanted for longest. `forecast`
    /// returns the forecast of a peer's goodput (bit/s). Report the result with
    /// [`EarlyTests::record_test`] or [`EarlyTests::record_refusal`].
    pub fn next_test(&mut self, now: Duration, forecast: impl Fn(&str) -> Option<f64>) -> Option<EarlyTest> {
        self.earn(now);
        for (peer, pair) in &mut self.pairs {
            pair.drop_needless(now, || forecast(peer));
        }
        if self.credit.seconds <= 0.0 || self.credit.bytes <= 0.0 {
            return None;
        }
        let ready = self.pairs.iter().filter_map(|(peer, pair)| Some((peer, pair.ready(now)?)));
        let (peer, wanted) = ready.min_by_key(|(_, wanted)| wanted.since)?;
        Some(EarlyTest { peer: Arc::clone(peer), reason: wanted.reason })
    }

    /// Records an early test that was made, its cost, and whether it measured a rate. The rate
    /// arrives as a value of the series ([`EarlyTests::observe`]).
    pub fn record_test(&mut self, now: Duration, test: &EarlyTest, cost: Cost, is_measured: bool) {
        self.earn(now);
        let cost = cost.at_most(self.budget.test_cap());
        self.credit.seconds -= cost.duration.as_secs_f64();
        self.credit.bytes -= cost.bytes as f64;
        self.counts.tests[test.reason as usize] += 1;
        if let Some(pair) = self.pairs.get_mut(&test.peer) {
            pair.record_test(now, is_measured);
        }
    }

    /// Records that one of the two hosts refused an early test. The test is tried again after
    /// `retry_after`, at most a minute, and given up ten minutes after the change.
    pub fn record_refusal(&mut self, now: Duration, peer: &str, retry_after: Duration) {
        if let Some(pair) = self.pairs.get_mut(peer) {
            pair.record_refusal(now, retry_after);
        }
    }

    /// Adds what was earned since the last call.
    fn earn(&mut self, now: Duration) {
        let most = saved_most(&self.budget);
        let hours = now.saturating_sub(self.credit.at).as_secs_f64() / HOUR.as_secs_f64();
        let per_hour = self.budget.per_hour();
        let earned = |hourly: f64| hours * hourly / 2.0 * EARNED_PART;
        self.credit = EarlyCredit {
            at: self.credit.at.max(now),
            seconds: (self.credit.seconds + earned(per_hour.duration.as_secs_f64()))
                .min(most.duration.as_secs_f64()),
            bytes: (self.credit.bytes + earned(per_hour.bytes as f64)).min(most.bytes as f64),
        };
    }
}

/// Time between two trains to one of `peers` peers.
fn train_period(peers: usize) -> Duration {
    TRAIN_PERIOD.max(TRAIN_SHARE.saturating_mul(u32::try_from(peers).unwrap_or(u32::MAX)))
}

/// Time between the first trains to a peer, at a usual time of `period`.
fn learning_period(period: Duration) -> Duration {
    CONFIRM_AFTER.max(period / LEARNING_PART)
}

/// Most that early tests can save: half an hour's budget. With 36 s an hour these are 18 s. If the
/// host's own access slows down, all paths change at once: three tests of 1 s to each of five peers
/// take 15 s.
fn saved_most(budget: &BudgetConfig) -> Cost {
    let Cost { duration, bytes } = budget.per_hour();
    Cost { duration: duration / 2, bytes: bytes / 2 }
}

/// Part of half the budget that early tests earn. Turns use 70 %, so a tenth is left for requests
/// of peers that come at random times.
const EARNED_PART: f64 = 0.2;

/// Time between two trains to a peer. A fall is then seen after 10 s on average. 48 packets of 1228
/// bytes in 20 s are 24 kbit/s.
const TRAIN_PERIOD: Duration = Duration::from_secs(20);

/// Time for each peer that answers trains: a station sends at most one train in 4 s on average,
/// which is 118 kbit/s, whatever the number of peers. The first trains and those that confirm a
/// change come sooner.
const TRAIN_SHARE: Duration = Duration::from_secs(4);

/// Bits of a train: 48 packets of 1228 bytes.
const TRAIN_BITS: f64 = 48.0 * 1228.0 * 8.0;

/// Largest part of the rate of a path that trains use. Other packets wait while a train passes the
/// slowest link: half a second at 1 Mbit/s. There trains are 47 s apart.
const TRAIN_PART: f64 = 0.01;

/// Longest time (s) between two trains because of their part of the rate, as for lost trains.
const REST_MAX_S: f64 = TRAIN_BACK_OFF_MAX.as_secs() as f64;

/// The first trains to a peer come this many times as often as later ones, so that a station can
/// notice a change soon after its start: from half a minute on with up to five peers.
const LEARNING_PART: u32 = 4;

/// Time from a train that shows a change to the train that confirms it. A queue of other traffic
/// that lasts longer than 5 s is a change.
const CONFIRM_AFTER: Duration = Duration::from_secs(5);

/// Largest jitter of the time between two trains, as a share that is added or subtracted.
const JITTER: f64 = 0.1;

/// Longest time between two trains to a peer that does not answer them.
const TRAIN_BACK_OFF_MAX: Duration = Duration::from_secs(300);

/// Number of doublings of the back-off. Four exceed the longest back-off.
const DOUBLINGS_MAX: u32 = 4;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
