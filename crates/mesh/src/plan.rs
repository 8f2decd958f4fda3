//! Which peer is tested next, and when: one station's plan.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::budget::{BudgetError, Cost, HOUR};
use crate::chance::{Chance, rank};

mod config;
mod gain;
mod pair;
mod turn;

pub use config::{PlanConfig, Policy};
use gain::Pool;
use pair::Pair;
pub use pair::PairForecast;
pub use turn::{Length, Next, Statistics};

/// One station's plan of bulk tests.
///
/// Ask [`Planner::next`] at [`Planner::next_at`]; then tell it with [`Planner::tested`], [`Planner::failed`],
/// [`Planner::refused`] or [`Planner::deferred`] what came of it, and ask again.
///
/// **Promise** of [`Policy::Gain`], with P peers: of any 4 P turns with a test, each pair that does not refuse has at
/// least one; a new peer among 2 P. For: (1) a pair left out of 2 P turns is overdue, and goes before all but new ones,
/// the longest left out first, so at most P − 1 go before it; (2) new and overdue ones take turns while there are both,
/// so these P take at most 2 P turns; (3) new ones go in the order in which they came, and before those that are not
/// overdue. A turn takes at most [`PlanConfig::turn_max`], if the host is in one group, and else
/// [`PlanConfig::turn_max_in`]. Of [`Policy::Paper`]: of any 2 P − 1 turns.
///
/// The promise counts turns of peers that do not refuse. Peers do not run out of budget for long where
/// each host is asked for no more than it asks itself: in one group, or where those of several tell
/// [`Planner::set_groups`]. Where others ask more than their plan allows, they do, and pairs wait longer.
///
/// A pair that refuses is asked again after a wait that doubles and is jittered, and keeps its age, so that it
/// goes first when it is back. The work of a turn is linear in P: with 10 000 peers well below a millisecond every five
/// minutes.
#[derive(Debug)]
pub struct Planner {
    config: PlanConfig,
    host: Arc<str>,
    chance: Chance,
    pairs: BTreeMap<Arc<str>, Pair>,
    /// Peers that left, and when: back within a day they go on where they were.
    departed: BTreeMap<Arc<str>, (Duration, Pair)>,
    groups: u32,
    /// The latest time that it was told.
    now: Duration,
    /// Of [`Policy::Paper`]: who is left of this cycle, the next one last.
    list: Vec<Arc<str>>,
    /// Turns with a test so far: the age of pairs is counted in these.
    turn: u64,
    was_new: bool,
    next_at: Duration,
    /// When the turn that is on began, and how many peers have refused in it.
    began: Option<Duration>,
    refusals: u32,
    credit: Credit,
    statistics: Statistics,
}

/// What tests have earned or owe: at most one full test either way.
#[derive(Debug)]
struct Credit {
    at: Duration,
    seconds: f64,
    bytes: f64,
}

impl Planner {
    /// The plan of a host without peers. Its first turn is at a point of the first interval that its name
    /// and the seed decide, so that stations started at once spread themselves.
    pub fn new(host: &str, config: PlanConfig, now: Duration) -> Result<Self, BudgetError> {
        config.check()?;
        let mut chance = Chance::new(config.seed, host);
        let phase = config.every.mul_f64(chance.uniform());
        let cap = config.budget.test_cap();
        Ok(Self {
            config,
            host: host.into(),
            chance,
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
            credit: Credit { at: now, seconds: cap.duration.as_secs_f64(), bytes: cap.bytes as f64 },
            statistics: Statistics::default(),
        })
    }

    /// In how many groups its peers are, 1 at first; 0 counts as 1.
    ///
    /// A host of several is asked by the members of each: a site's representative by as many turns of its site's hosts
    /// as any of these, and by those of the other representatives. So that there is room for both, tests earn their
    /// next turn as many times as slowly.
    pub fn set_groups(&mut self, groups: u32) {
        self.groups = groups.max(1);
    }

    /// The peers that the directory has now: compatible, and in a common group. Itself is left out.
    ///
    /// One that left and is back within a day goes on where it was: else one that comes and goes would be new each
    /// time, and be tested before others.
    pub fn set_peers<'a>(&mut self, peers: impl IntoIterator<Item = &'a str>) {
        let now = self.now;
        self.departed.retain(|_, (at, _)| now.saturating_sub(*at) < DEPARTED_FOR);
        let mut kept = BTreeMap::new();
        // Its own order of new peers: else all stations would test the same one first.
        let seed = rank(self.config.seed, &self.host);
        for peer in peers.into_iter().filter(|peer| *peer != &*self.host) {
            let (name, pair) = self
                .pairs
                .remove_entry(peer)
                .or_else(|| self.departed.remove_entry(peer).map(|(name, (_, pair))| (name, pair)))
                .unwrap_or_else(|| (peer.into(), Pair::new(self.turn, rank(seed, peer))));
            kept.insert(name, pair);
        }
        let left = std::mem::replace(&mut self.pairs, kept);
        self.departed.extend(left.into_iter().map(|(name, pair)| (name, (now, pair))));
        if DEPARTED_MAX < self.departed.len() {
            let mut times: Vec<Duration> = self.departed.values().map(|(at, _)| *at).collect();
            let (_, limit, _) = times.select_nth_unstable(self.departed.len() - DEPARTED_MAX);
            let limit = *limit;
            self.departed.retain(|_, (at, _)| limit < *at);
        }
    }

    /// How many peers there are.
    pub fn peers(&self) -> usize {
        self.pairs.len()
    }

    /// What is forecast of the goodput towards a peer; a rate that is none takes back what was. A peer that is none is
    /// passed over.
    pub fn set_forecast(&mut self, peer: &str, forecast: PairForecast) {
        let rate = forecast.goodput_bit_s;
        if let Some(pair) = self.pairs.get_mut(peer) {
            pair.forecast = Some(forecast).filter(|_| rate.is_finite() && 0.0 < rate);
        }
    }

    /// When to ask for the next test.
    pub fn next_at(&self) -> Duration {
        self.next_at
    }

    /// Brings the next turn forward to `at`, or to when nothing is owed if that is later: for a mesh whose pairs
    /// are new, and need not wait an interval each. By [`Policy::Paper`] nothing is owed.
    pub fn hasten(&mut self, at: Duration) {
        let paid = self.credit.at.saturating_add(self.debt());
        self.next_at = self.next_at.min(at.max(paid));
    }

    /// What became of the turns so far.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// The longest that a pair waits for its next test while nobody refuses, as this host's groups are now: by the
    /// promise above, and what is forecast of the costliest pair (a full test at the cap, where nothing is).
    pub fn revisit_bound(&self) -> Duration {
        let cap = self.config.budget.test_cap();
        let full = |pair: &Pair| pair.expected(Length::Full, cap);
        let costliest = self.pairs.values().map(full).max_by_key(|cost| self.config.pace(*cost));
        let turns = self.config.policy.turns_max(u32::try_from(self.pairs.len()).unwrap_or(u32::MAX));
        self.config.turn_max_in(costliest.unwrap_or(cap), self.groups).saturating_mul(turns)
    }

    /// The test to make now; nothing before [`Planner::next_at`], and nothing if no peer is to be asked, which moves
    /// it.
    pub fn next(&mut self, now: Duration) -> Option<Next> {
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
        let length = pair.length();
        Some(Next { length, expected: pair.expected(length, self.config.budget.test_cap()), peer })
    }

    /// A test was made, cost this much, and found this rate (bit/s; one that is no number or below 0 teaches nothing);
    /// the turn is over.
    pub fn tested(&mut self, now: Duration, peer: &str, cost: Cost, goodput_bit_s: f64) {
        let is_audit = self.chance.uniform() < AUDITS;
        if let Some(pair) = self.pairs.get_mut(peer) {
            let forecast = pair.forecast.map(|forecast| forecast.goodput_bit_s);
            pair.record.learn(self.turn + 1, forecast, goodput_bit_s);
            pair.failures = 0;
            pair.is_audit = is_audit;
            pair.not_before = Duration::ZERO;
            pair.refusals = 0;
        }
        self.made(now, peer, cost);
    }

    /// A test was made in vain, and cost this much; the turn is over, and the pair waits as if it had refused. From
    /// its second failure on it has its turns by age alone, until a test succeeds.
    pub fn failed(&mut self, now: Duration, peer: &str, cost: Cost) {
        self.back_off(now, peer, Duration::ZERO);
        if let Some(pair) = self.pairs.get_mut(peer) {
            pair.failures = pair.failures.saturating_add(1);
        }
        self.made(now, peer, cost);
    }

    /// The peer refused, or did not answer when it was asked. The turn goes on at once with another, until four have
    /// refused; then it is skipped.
    ///
    /// What lies above a quarter of an hour in `retry_after` is passed over: a peer may not put itself off for ever.
    pub fn refused(&mut self, now: Duration, peer: &str, retry_after: Duration) {
        self.statistics.refusals += 1;
        self.refusals += 1;
        self.back_off(now, peer, retry_after);
        if let Some(index) = self.list.iter().rposition(|listed| **listed == *peer) {
            // To the end of this cycle's list, unless it has had its chances.
            let listed = self.list.remove(index);
            if self.pairs.get(&listed).is_some_and(|pair| pair.refusals < ASKED_MAX) {
                self.list.insert(0, listed);
            }
        }
        if ASKED_MAX <= self.refusals {
            self.pass(now);
        }
    }

    /// This host's own token or budget was not to be had: the turn takes place later, within the hour.
    pub fn deferred(&mut self, now: Duration, retry_after: Duration) {
        self.statistics.deferrals += 1;
        self.next_at = now.saturating_add(retry_after.min(HOUR));
    }

    fn made(&mut self, now: Duration, peer: &str, cost: Cost) {
        self.statistics.tests += 1;
        self.turn += 1;
        self.list.retain(|listed| **listed != *peer);
        if let Some(pair) = self.pairs.get_mut(peer) {
            self.was_new = pair.last.is_none();
            pair.last = Some(self.turn);
        }
        self.pay(now, cost);
        self.turn_over(now);
    }

    /// No peer could be asked.
    fn pass(&mut self, now: Duration) {
        if !self.pairs.is_empty() {
            self.statistics.skipped += 1;
        }
        self.turn_over(now);
    }

    fn turn_over(&mut self, now: Duration) {
        let interval = self.config.every.mul_f64(1.0 + JITTER * (2.0 * self.chance.uniform() - 1.0));
        let began = self.began.take().unwrap_or(now);
        self.refusals = 0;
        self.next_at = began.saturating_add(interval).max(now.saturating_add(self.debt()));
    }

    fn back_off(&mut self, now: Duration, peer: &str, retry_after: Duration) {
        let jitter = 0.5 + self.chance.uniform();
        if let Some(pair) = self.pairs.get_mut(peer) {
            let doubled = BACK_OFF_MIN.saturating_mul(1 << pair.refusals.min(16));
            pair.refusals = pair.refusals.saturating_add(1);
            let wait = retry_after.max(doubled).min(BACK_OFF_MAX).mul_f64(jitter);
            pair.not_before = now.saturating_add(wait);
        }
    }

    fn chosen(&mut self, now: Duration) -> Option<Arc<str>> {
        match self.config.policy {
            Policy::Paper => self.listed(now),
            Policy::Gain => self.most_needed(now),
        }
    }

    fn listed(&mut self, now: Duration) -> Option<Arc<str>> {
        self.list.retain(|peer| self.pairs.contains_key(peer));
        if self.list.is_empty() {
            self.list.extend(self.pairs.keys().cloned());
            // Fisher and Yates, from the end.
            for last in (1..self.list.len()).rev() {
                self.list.swap(last, self.chance.below(last + 1));
            }
        }
        let is_open = |peer: &&Arc<str>| self.pairs.get(*peer).is_some_and(|pair| pair.not_before <= now);
        self.list.iter().rev().find(is_open).cloned()
    }

    /// By [`Policy::Paper`] the last of a list may refuse because it is in a test for some seconds: when it may be
    /// asked again, if that is in this turn.
    fn soon(&self, now: Duration) -> Option<Duration> {
        let backs = self.list.iter().filter_map(|peer| Some(self.pairs.get(peer)?.not_before));
        let at = backs.min().filter(|_| self.config.policy == Policy::Paper)?;
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
            let pool = Pool::new(self.pairs.values().map(|pair| &pair.record));
            open()
                .filter_map(|(peer, pair)| {
                    // As it will be when the test is made; else a pair just tested could not be the next.
                    let age = self.turn + 1 - pair.last?;
                    Some((pair.need(&pool, age), age, pair.rank, peer))
                })
                .max_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))))
                .map(|(_, _, _, peer)| peer)
        };
        let (first, second) = if self.was_new { (overdue, first_new) } else { (first_new, overdue) };
        first.or(second).or_else(needed).cloned()
    }

    fn pay(&mut self, now: Duration, cost: Cost) {
        let cap = self.config.budget.test_cap();
        let elapsed = now.saturating_sub(self.credit.at).as_secs_f64();
        let (most_s, most_bytes) = (cap.duration.as_secs_f64(), cap.bytes as f64);
        let cost = cost.at_most(cap);
        let groups = f64::from(self.groups);
        let earned = |have: f64, rate: f64, most: f64| (have + elapsed * rate / groups).min(most);
        let seconds = earned(self.credit.seconds, self.config.seconds_per_second(), most_s);
        let bytes = earned(self.credit.bytes, self.config.bytes_per_second(), most_bytes);
        self.credit = Credit {
            at: self.credit.at.max(now),
            seconds: (seconds - cost.duration.as_secs_f64()).max(-most_s),
            bytes: (bytes - cost.bytes as f64).max(-most_bytes),
        };
    }

    /// How long until nothing is owed.
    fn debt(&self) -> Duration {
        if self.config.policy == Policy::Paper {
            return Duration::ZERO;
        }
        let by_time = -self.credit.seconds / self.config.seconds_per_second();
        let by_bytes = -self.credit.bytes / self.config.bytes_per_second();
        config::bounded_seconds(by_time.max(by_bytes) * f64::from(self.groups))
    }
}

/// What intervals between turns vary by, either way, so that stations which met once do not meet again.
const JITTER: f64 = 0.1;

/// One test in twenty is an audit (a full test though it could stop): at an early stop that costs a
/// tenth, they cost half as much again.
const AUDITS: f64 = 0.05;

/// A pair that was left out for so many turns of each goes first. Below 2 the order by need would
/// hardly be free; the bound grows with it.
const OVERDUE_CYCLES: u64 = 2;

/// A peer that was away for longer is forecast anew: the day is the longest cycle that forecasts of paths have.
const DEPARTED_FOR: Duration = Duration::from_secs(86_400);

/// As many as a large group that parts from this host and is back; some megabytes. The last to leave are kept.
const DEPARTED_MAX: usize = 10_000;

/// Peers asked in one turn: where one in three refuses, all do so in about one turn of a hundred.
const ASKED_MAX: u32 = 4;

/// About how long a full test holds a peer.
const BACK_OFF_MIN: Duration = Duration::from_secs(10);

/// Before the jitter: three turns of five minutes. A peer may be out of budget for longer; to ask costs one exchange.
const BACK_OFF_MAX: Duration = Duration::from_secs(900);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
