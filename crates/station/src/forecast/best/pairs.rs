//! What a station's bank knows of pairs of hosts.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use barograph_forecast::{Interval, Name, Outcome, Quantity, Series};
use barograph_mesh::{Composition, Estimate, Model, Path, RoundTrip};
use barograph_probe::Plan;

use super::{Age, Knowledge, Sight};
use crate::forecast::bank::{Account, Bank};
use crate::sync::lock;

/// A bank at a time. It is held for [`HELD`] look-ups: one by one, each would wait for a battery that learns; all at once, learning would
/// wait for a large question.
pub(crate) struct Pairs<'a> {
    bank: &'a Mutex<Bank>,
    now_unix_ns: i64,
    pause: Duration,
    held: RefCell<Option<(MutexGuard<'a, Bank>, usize)>>,
}

impl<'a> Pairs<'a> {
    /// For a question; whoever can wait pauses between holds, and leaves the bank to others. Who cannot gives way to those that wait already.
    pub(crate) fn new(bank: &'a Mutex<Bank>, now_unix_ns: i64, pause: Duration) -> Self {
        Self { bank, now_unix_ns, pause, held: RefCell::default() }
    }
}

impl Knowledge for Pairs<'_> {
    /// From the pair's own series; else from what the other end measured of the same path: a round trip and its loss are those of both
    /// ends, and what `to` receives from `from` is its `goodput_down`.
    fn sight(&self, from: &Name, to: &Name, what: Composition) -> Sight {
        let (own, others) = match what {
            Composition::Rtt => (Quantity::RTT, Quantity::RTT),
            Composition::Goodput => (Quantity::GOODPUT, Quantity::GOODPUT_DOWN),
            Composition::Loss => (Quantity::LOSS, Quantity::LOSS),
        };
        let own = self.series(from, to, own, what);
        match (own, self.series_unless_fresh(own, to, from, others, what)) {
            (Sight::Fresh(..), _) | (Sight::Stale(_), Sight::Nothing) => own,
            (Sight::Stale(a), Sight::Stale(b)) => {
                Sight::Stale(if b.distance_s() < a.distance_s() { b } else { a })
            }
            (_, others) => others,
        }
    }

    fn rest(&self) {
        *self.held.borrow_mut() = None;
    }
}

impl Pairs<'_> {
    /// What `source` forecasts of its round trip to `target` (s), if that counts still and its interval is known.
    pub(crate) fn round_trip(&self, source: &Name, target: &Name) -> Option<Estimate> {
        let series = Series { source: source.clone(), target: target.clone(), quantity: Quantity::RTT };
        self.account(&series, |account| {
            account.interval_at(Interval::DEFAULT_LEVEL, self.now_unix_ns)?;
            match sight(account, Composition::Rtt, self.now_unix_ns) {
                Sight::Fresh(path, _) => Some(path.forecast),
                Sight::Stale(_) | Sight::Nothing => None,
            }
        })?
    }

    /// The same, and where it is not known whether it was tried: the newest point of the series is a failure.
    pub(crate) fn tried_round_trip(&self, source: &Name, target: &Name) -> RoundTrip {
        if let Some(rtt) = self.round_trip(source, target) {
            return RoundTrip::Known(rtt);
        }
        let series = Series { source: source.clone(), target: target.clone(), quantity: Quantity::RTT };
        let is_failed = |account: &Account| matches!(account.last().outcome, Outcome::Failed { .. });
        if self.account(&series, is_failed) == Some(true) { RoundTrip::Failed } else { RoundTrip::Unmeasured }
    }

    fn series_unless_fresh(
        &self,
        own: Sight,
        source: &Name,
        target: &Name,
        quantity: Quantity,
        what: Composition,
    ) -> Sight {
        match own {
            Sight::Fresh(..) => Sight::Nothing,
            Sight::Stale(_) | Sight::Nothing => self.series(source, target, quantity, what),
        }
    }

    fn series(&self, source: &Name, target: &Name, quantity: Quantity, what: Composition) -> Sight {
        let series = Series { source: source.clone(), target: target.clone(), quantity };
        self.account(&series, |account| sight(account, what, self.now_unix_ns)).unwrap_or(Sight::Nothing)
    }

    /// Looks at an account, which must not look at another: the bank is held.
    fn account<T>(&self, series: &Series, look: impl FnOnce(&Account) -> T) -> Option<T> {
        let mut held = self.held.borrow_mut();
        if held.as_ref().is_some_and(|(_, looked)| HELD <= *looked) {
            *held = None;
            if self.pause.is_zero() {
                std::thread::yield_now();
            } else {
                std::thread::sleep(self.pause);
            }
        }
        let (bank, looked) = held.get_or_insert_with(|| (lock(self.bank), 0));
        *looked += 1;
        bank.account(series).map(look)
    }
}

/// What a series tells of its path, if its newest value is new enough.
fn sight(account: &Account, what: Composition, now_unix_ns: i64) -> Sight {
    let Some(next) = account.next_at(now_unix_ns) else { return Sight::Nothing };
    // A label ahead of now, as after a clock was set back, is believed as far as one behind it.
    let age = Age::at(now_unix_ns, next.time_unix_ns, account.value_ahead_s());
    if freshness_s(account.period_s(), what) < age.distance_s() {
        return Sight::Stale(age);
    }
    let (interval, count) = (account.interval_at(Interval::DEFAULT_LEVEL, now_unix_ns), account.count());
    let path = match what {
        // Means add; the median of a path that seldom loses anything is 0, and three of them are 0 as well.
        Composition::Loss => {
            let mean = next.mean.value.clamp(0.0, 1.0);
            Path::of_losses(mean, interval, account.last_value().unwrap_or(mean), count)
        }
        Composition::Rtt | Composition::Goodput => {
            let value = next.median.value;
            let known = |forecast| Path { forecast, last: account.last_value().unwrap_or(value), count };
            let forecast = match interval {
                // An interval may reach 0, in which a transfer would never end.
                Some((lower, upper)) => Estimate {
                    value,
                    lower: lower.clamp(value * LEAST, value.max(value * LEAST)),
                    upper: upper.max(value),
                },
                None => Estimate { value, lower: value, upper: value },
            };
            match interval {
                Some(_) => Some(known(forecast)),
                // Too few errors for an interval: a guess, as wide as that of paths.
                None => Model::guessed(what).estimate(&[known(forecast)]).map(known),
            }
        }
    };
    match path.filter(|path| what.admits(&path.forecast)) {
        Some(path) => Sight::Fresh(path, age),
        None => Sight::Nothing,
    }
}

/// How old a value may be (s).
fn freshness_s(period_s: Option<f64>, what: Composition) -> f64 {
    let least_s = match what {
        Composition::Rtt | Composition::Loss => RTT_S,
        Composition::Goodput => GOODPUT_S,
    };
    period_s.map_or(least_s, |period_s| least_s.max(PERIODS * period_s)).min(OLDEST_S)
}

/// A lower end is at least this share of the forecast.
const LEAST: f64 = 1e-3;

/// Look-ups for which the bank is held, some tens of microseconds; ten hosts are asked for in two or three holds.
const HELD: usize = 64;

/// So many measurements may be missing before a forecast is that of another time.
const PERIODS: f64 = 6.0;

/// Younger than this nothing is too old: a minute of round trips and losses (a host that does not answer is seen by then); an hour
/// of goodput, which costs a forecast about a tenth of its error (Gloperf §4.2).
const RTT_S: f64 = 60.0;
const GOODPUT_S: f64 = 3600.0;

/// Older than a day nothing counts, however seldom it is measured: the paper's longest period.
const OLDEST_S: f64 = 86_400.0;

// Losses are composed as those of the probes that stations make.
const _: () = assert!(Plan::DATAGRAMS == Composition::LOSS_DATAGRAMS);
