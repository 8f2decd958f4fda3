//! Plan of one station: which peer it tests next, and when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::budget::{BudgetError, Cost, HOUR};
use crate::rng::{SeededRng, hash_rank};

mod config;
mod gain;
mod pair;
mod turn;

pub use config::{PlanConfig, SelectionPolicy};
use gain::GainPrior;
use pair::Pair;
pub use pair::PairForecast;
pub use turn::{PlannedTest, TestKind, TurnCounts};

/// Plan of one station's bulk tests.
///
/// Call [`Planner::next`] at [`Planner::next_at`]. Then report the result with
/// [`Planner::record_test`], [`Planner::record_failure`], [`Planner::record_refusal`] or
/// [`Planner::postpone`], and call [`Planner::next`] again.
///
/// **Promise** of [`SelectionPolicy::Gain`], with P peers: in any 4 P turns with a test, each pair
/// that does not refuse is tested at least once. A new peer is tested at least once in its first 2
/// P turns. The proof:
///
/// 1. A pair that was not tested in 2 P turns is overdue. Only new pairs, and pairs that have
///    waited longer, are tested before this pair. So at most P − 1 overdue pairs are tested before
///    this pair.
/// 2. New and overdue pairs alternate while there are both, so these P pairs take at most 2 P
///    turns.
/// 3. New pairs are tested in the order in which they joined, and before pairs that are not
///    overdue.
///
/// A turn takes at most [`PlanConfig::turn_max`] if the host is in one group, and otherwise
/// [`PlanConfig::turn_max_in`]. With [`SelectionPolicy::Paper`], each pair is tested at least once
/// in any 2 P − 1 turns.
///
/// The promise counts turns of peers that do not refuse. Peers are out of budget only for a short
/// time if each host receives no more requests for tests than it sends. This condition is met in
/// one group, and if hosts in several groups call [`Planner::set_groups`]. If peers ask for more
/// tests than their plan allows, peers stay out of budget longer, and pairs wait longer.
///
/// A pair that refuses is asked again after a back-off that doubles and is jittered. The pair keeps
/// its age, so it is tested first after the back-off. The computing time of a turn is linear in P.
/// With 10 000 peers, a turn takes well below a millisecond of computing time.
#[derive(Debug)]
pub struct Planner {
    config: PlanConfig,
    host: Arc<str>,
    rng: SeededRng,
    pairs: BTreeMap<Arc<str>, Pair>,
    /// Peers that left, each with the time at which it left. A peer that returns within a day keeps
    /// its history.
    departed: BTreeMap<Arc<str>, (Duration, Pair)>,
    groups: u32,
    /// The latest time passed to [`Planner::next`].
    now: Duration,
    /// For [`SelectionPolicy::Paper`]: the peers that are not yet tested in this cycle. The last
    /// peer in the list is tested next.
    list: Vec<Arc<str>>,
    /// Number of turns with a test so far. The age of a pair is counted in such turns.
    turn: u64,
    was_new: bool,
    next_at: Duration,
    /// When the current turn began, and how many peers have refused in it.
    began: Option<Duration>,
    refusals: u32,
    credit: TestCredit,
    turn_counts: TurnCounts,
}

/// Budget that is available for the next test. The budget is negative if the last tests cost more
/// than was available. Its magnitude is at most the cost of one full test.
#[derive(Debug)]
struct TestCredit {
    at: Duration,
    seconds: f64,
    bytes: f64,
}

impl Planner {
    /// Creates the plan of a host without peers. The host's name and the seed determine the time of
    /// the first turn within the first interval, so stations that start together do not test
    /// together.
    pub fn new(host: &str, config: PlanConfig, now: Duration) -> Result<Self, BudgetError> {
        config.check()?;
        let mut rng = SeededRng::new(config.seed, host);
        let phase = config.every.mul_f64(rng.uniform());
        let cap = config.budget.test_cap();
        Ok(Self {
            config,
            host: host.into(),
            rng,
            pairs: BTreeMap::new(),
            departed: BTreeMap::new(),
            groups: 1,
            now,
            list: Vec::new(),
            turn: 0,
            was_new: false,
            next_at: now.saturating_add(phase),
            began: None,
            refusals: 0,
            credit: TestCredit { at: now, seconds: cap.duration.as_secs_f64(), bytes: cap.bytes as f64 },
            turn_counts: TurnCounts::default(),
        })
    }

    /// Sets the number of groups of this host's peers. The number is 1 at first, and 0 counts as 1.
    ///
    /// The members of each group ask this host for tests: a representative gets requests from the
    /// hosts of its site, and also from the other representatives. To reserve budget for all
    /// groups, the wait for the budget after a test is longer by the factor `groups`.
    pub fn set_groups(&mut self, groups: u32) {
        self.groups = groups.max(1);
    }

    /// Sets the peers that the directory has now: compatible stations in a common group. The host's
    /// own name is left out.
    ///
    /// A peer that returns within a day keeps its history. Otherwise a peer that comes and goes
    /// would be new each time, and be tested before others.
    pub fn set_peers<'a>(&mut self, peers: impl IntoIterator<Item = &'a str>) {
        let now = self.now;
        self.departed.retain(|_, (at, _)| now.saturating_sub(*at) < DEPARTED_FOR);
        let mut kept = BTreeMap::new();
        // Each station has its own order of new peers; otherwise all stations would test the same
        // peer first.
        let seed = hash_rank(self.config.seed, &self.host);
        for peer in peers.into_iter().filter(|peer| *peer != &*self.host) {
            let (name, pair) = self
                .pairs
                .remove_entry(peer)
                .or_else(|| self.departed.remove_entry(peer).map(|(name, (_, pair))| (name, pair)))
                .unwrap_or_else(|| (peer.into(), Pair::new(self.turn, hash_rank(seed, peer))));
            kept.insert(name, pair);
        }
        let left = std::mem::replace(&mut self.pairs, kept);
        self.departed.extend(left.into_iter().map(|(name, pair)| (name, (now, pair))));
        if self.departed.len() > DEPARTED_MAX {
            let mut times: Vec<Duration> = self.departed.values().map(|(at, _)| *at).collect();
            let (_, limit, _) = times.select_nth_unstable(self.departed.len() - DEPARTED_MAX);
            let limit = *limit;
            self.departed.retain(|_, (at, _)| *at > limit);
        }
    }

    /// Number of peers in the plan.
    pub fn peers(&self) -> usize {
        self.pairs.len()
    }

    /// Sets the goodput forecast of a peer. A rate that is not a finite number above 0 removes the
    /// forecast. Unknown peers are ignored.
    pub fn set_forecast(&mut self, peer: &str, forecast: PairForecast) {
        let rate = forecast.goodput_bit_s;
        if let Some(pair) = self.pairs.get_mut(peer) {
            pair.forecast = Some(forecast).filter(|_| rate.is_finite() && rate > 0.0);
        }
    }

    /// Time at which to call [`Planner::next`] again.
    pub fn next_at(&self) -> Duration {
        self.next_at
    }

    /// Moves the next turn to `at`, or to the time when the budget covers the tests so far if that
    /// time is later. The next turn never becomes later. Call this method in a mesh of new pairs,
    /// so that each pair need not wait for an interval. With [`SelectionPolicy::Paper`] the budget
    /// is not checked.
    pub fn advance_next_turn(&mut self, at: Duration) {
        let paid = self.credit.at.saturating_add(self.time_until_paid());
        self.next_at = self.next_at.min(at.max(paid));
    }

    /// Counts of the turns so far, by their results.
    pub fn turn_counts(&self) -> TurnCounts {
        self.turn_counts
    }

    /// Longest time that a pair waits for its next test while no peer refuses, with the current
    /// groups of this host. The time follows from the promise of [`Planner`] and the forecast of
    /// the costliest pair (a full test at the cap, if there is no forecast).
    pub fn revisit_bound(&self) -> Duration {
        let cap = self.config.budget.test_cap();
        let full = |pair: &Pair| pair.expected(TestKind::Full, cap);
        let costliest = self.pairs.values().map(full).max_by_key(|cost| self.config.pace(*cost));
        let turns = self.config.policy.turns_max(u32::try_from(self.pairs.len()).unwrap_or(u32::MAX));
        self.config.turn_max_in(costliest.unwrap_or(cap), self.groups).saturating_mul(turns)
    }

    /// Returns the test to run now. Returns `None` before [`Planner::next_at`], and if no peer can
    /// be asked. In the second case, [`Planner::next_at`] returns a later time afterwards.
    pub fn next(&mut self, now: Duration) -> Option<PlannedTest> {
        self.now = self.now.max(now);
        if now < self.next_at {
            return None;
        }
        let Some(peer) = self.chosen(now) else {
            match self.soon(now) {
                Some(at) => self.next_at = at,
                None => self.pass(now),
            }
            return None;
        };
        self.began.get_or_insert(now);
        let pair = self.pairs.get(&peer)?;
        let kind = pair.test_kind();
        Some(PlannedTest { kind, expected: pair.expected(kind, self.config.budget.test_cap()), peer })
    }

    /// Records a test that was made, its cost, and its rate (bit/s; ignored if it is not a finite
    /// number of at least 0). Ends the turn.
    pub fn record_test(&mut self, now: Duration, peer: &str, cost: Cost, goodput_bit_s: f64) {
        let is_audit = self.rng.uniform() < AUDITS;
        if let Some(pair) = self.pairs.get_mut(peer) {
            let forecast = pair.forecast.map(|forecast| forecast.goodput_bit_s);
            pair.gains.learn(self.turn + 1, forecast, goodput_bit_s);
            pair.failures = 0;
            pair.is_audit = is_audit;
            pair.not_before = Duration::ZERO;
            pair.refusals = 0;
        }
        self.made(now, peer, cost);
    }

    /// Records a test that failed, and its cost. Ends the turn. The pair backs off as after a
    /// refusal. From its second failure on, [`SelectionPolicy::Gain`] ranks the pair below all
    /// other pairs, by age alone, until the pair is overdue or a test succeeds.
    pub fn record_failure(&mut self, now: Duration, peer: &str, cost: Cost) {
        self.back_off(now, peer, Duration::ZERO);
        if let Some(pair) = self.pairs.get_mut(peer) {
            pair.failures = pair.failures.saturating_add(1);
        }
        self.made(now, peer, cost);
    }

    /// Records that the peer refused or did not answer. The turn continues at once with another
    /// peer; the turn is skipped when four peers have refused.
    ///
    /// A `retry_after` above a quarter of an hour counts as a quarter of an hour, so a peer cannot
    /// avoid tests for ever.
    pub fn record_refusal(&mut self, now: Duration, peer: &str, retry_after: Duration) {
        self.turn_counts.refusals += 1;
        self.refusals += 1;
        self.back_off(now, peer, retry_after);
        if let Some(index) = self.list.iter().rposition(|listed| **listed == *peer) {
            // Move this peer to the end of the current cycle, unless the peer has refused too
            // often.
            let listed = self.list.remove(index);
            if self.pairs.get(&listed).is_some_and(|pair| pair.refusals < ASKED_MAX) {
                self.list.insert(0, listed);
            }
        }
        if self.refusals >= ASKED_MAX {
            self.pass(now);
        }
    }

    /// Postpones the turn by at most an hour, because this host is in another test or its budget is
    /// spent.
    pub fn postpone(&mut self, now: Duration, retry_after: Duration) {
        self.turn_counts.deferrals += 1;
        self.next_at = now.saturating_add(retry_after.min(HOUR));
    }

    fn made(&mut self, now: Duration, peer: &str, cost: Cost) {
        self.turn_counts.tests += 1;
        self.turn += 1;
        self.list.retain(|listed| **listed != *peer);
        if let Some(pair) = self.pairs.get_mut(peer) {
            self.was_new = pair.last.is_none();
            pair.last = Some(self.turn);
        }
        self.charge(now, cost);
        self.turn_over(now);
    }

    /// Skips the turn: no peer could be asked.
    fn pass(&mut self, now: Duration) {
        if !self.pairs.is_empty() {
            self.turn_counts.skipped += 1;
        }
        self.turn_over(now);
    }

    fn turn_over(&mut self, now: Duration) {
        let interval = self.config.every.mul_f64(1.0 + JITTER * (2.0 * self.rng.uniform() - 1.0));
        let began = self.began.take().unwrap_or(now);
        self.refusals = 0;
        self.next_at = began.saturating_add(interval).max(now.saturating_add(self.time_until_paid()));
    }

    fn back_off(&mut self, now: Duration, peer: &str, retry_after: Duration) {
        let jitter = 0.5 + self.rng.uniform();
        if let Some(pair) = self.pairs.get_mut(peer) {
            let doubled = BACK_OFF_MIN.saturating_mul(1 << pair.refusals.min(16));
            pair.refusals = pair.refusals.saturating_add(1);
            let wait = retry_after.max(doubled).min(BACK_OFF_MAX).mul_f64(jitter);
            pair.not_before = now.saturating_add(wait);
        }
    }

    fn chosen(&mut self, now: Duration) -> Option<Arc<str>> {
        match self.config.policy {
            SelectionPolicy::Paper => self.listed(now),
            SelectionPolicy::Gain => self.most_needed(now),
        }
    }

    fn listed(&mut self, now: Duration) -> Option<Arc<str>> {
        self.list.retain(|peer| self.pairs.contains_key(peer));
        if self.list.is_empty() {
            self.list.extend(self.pairs.keys().cloned());
            // Shuffle the list by the method of Fisher and Yates, from its end.
            for last in (1..self.list.len()).rev() {
                self.list.swap(last, self.rng.index_below(last + 1));
            }
        }
        let is_open = |peer: &&Arc<str>| self.pairs.get(*peer).is_some_and(|pair| pair.not_before <= now);
        self.list.iter().rev().find(is_open).cloned()
    }

    /// The earliest time at which a peer may be asked again, if this time is within half an
    /// interval of the start of this turn. Only [`SelectionPolicy::Paper`] needs this time: the
    /// last peer of its list may refuse because it is in a test for some seconds.
    fn soon(&self, now: Duration) -> Option<Duration> {
        let backs = self.list.iter().filter_map(|peer| Some(self.pairs.get(peer)?.not_before));
        let at = backs.min().filter(|_| self.config.policy == SelectionPolicy::Paper)?;
        (at <= self.began.unwrap_or(now).saturating_add(self.config.every / 2)).then_some(at)
    }

    fn most_needed(&self, now: Duration) -> Option<Arc<str>> {
        let open = || self.pairs.iter().filter(|(_, pair)| pair.not_before <= now);
        let new = open().filter(|(_, pair)| pair.last.is_none());
        let first_new = new.min_by_key(|(_, pair)| (pair.joined, pair.rank)).map(|(peer, _)| peer);
        let overdue_after = OVERDUE_CYCLES * self.pairs.len() as u64;
        let overdue = open()
            .filter_map(|(peer, pair)| Some((pair.last?, peer)))
            .filter(|(last, _)| overdue_after <= self.turn - last)
            .min()
            .map(|(_, peer)| peer);
        let needed = || {
            let prior = GainPrior::new(self.pairs.values().map(|pair| &pair.gains));
            open()
                .filter_map(|(peer, pair)| {
                    // Use the age after this turn. Otherwise the pair tested last would have age 0
                    // and could never be tested twice in a row.
                    let age = self.turn + 1 - pair.last?;
                    Some((pair.need(&prior, age), age, pair.rank, peer))
                })
                .max_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))))
                .map(|(_, _, _, peer)| peer)
        };
        let (first, second) = if self.was_new { (overdue, first_new) } else { (first_new, overdue) };
        first.or(second).or_else(needed).cloned()
    }

    fn charge(&mut self, now: Duration, cost: Cost) {
        let cap = self.config.budget.test_cap();
        let elapsed = now.saturating_sub(self.credit.at).as_secs_f64();
        let (most_s, most_bytes) = (cap.duration.as_secs_f64(), cap.bytes as f64);
        let cost = cost.at_most(cap);
        let groups = f64::from(self.groups);
        let earned = |have: f64, rate: f64, most: f64| (have + elapsed * rate / groups).min(most);
        let seconds = earned(self.credit.seconds, self.config.seconds_per_second(), most_s);
        let bytes = earned(self.credit.bytes, self.config.bytes_per_second(), most_bytes);
        self.credit = TestCredit {
            at: self.credit.at.max(now),
            seconds: (seconds - cost.duration.as_secs_f64()).max(-most_s),
            bytes: (bytes - cost.bytes as f64).max(-most_bytes),
        };
    }

    /// Returns how long to wait until the budget covers the tests so far.
    fn time_until_paid(&self) -> Duration {
        if self.config.policy == SelectionPolicy::Paper {
            return Duration::ZERO;
        }
        let by_time = -self.credit.seconds / self.config.seconds_per_second();
        let by_bytes = -self.credit.bytes / self.config.bytes_per_second();
        config::bounded_seconds(by_time.max(by_bytes) * f64::from(self.groups))
    }
}

/// Largest jitter of an interval between turns, as a share that is added or subtracted. Two
/// stations that have one turn at the same time have their next turns at different times.
const JITTER: f64 = 0.1;

/// Share of tests that are audits: one test in twenty is a full test although it could stop early.
/// If a test that stops early costs a tenth of a full test, audits increase the mean cost of tests
/// by half.
const AUDITS: f64 = 0.05;

/// Number of turns for each peer after which a pair without a test is overdue. Overdue pairs are
/// tested first. Below 2, overdue pairs would take almost all turns. A larger number makes the
/// bound of the revisit time longer.
const OVERDUE_CYCLES: u64 = 2;

/// Longest absence after which a peer keeps its history: a day, the longest cycle of path
/// forecasts.
const DEPARTED_FOR: Duration = Duration::from_secs(86_400);

/// Maximum number of departed peers that are remembered: enough for a large group that loses
/// contact with this host and returns. These peers take some megabytes of memory. The peers that
/// left first are forgotten.
const DEPARTED_MAX: usize = 10_000;

/// Maximum number of peers that are asked in one turn. If one peer in three refuses, all four peers
/// refuse in about one turn of a hundred.
const ASKED_MAX: u32 = 4;

/// Shortest back-off after a refusal: about the time for which a full test occupies a peer.
const BACK_OFF_MIN: Duration = Duration::from_secs(10);

/// Longest back-off without jitter: three turns of five minutes. A peer may be out of budget for
/// longer, but one more request costs only one exchange.
const BACK_OFF_MAX: Duration = Duration::from_secs(900);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
