//! Forecasts of pairs of hosts, from a station's bank.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use barograph_forecast::{Interval, Name, Outcome, Quantity, Series};
use barograph_mesh::{Composition, Estimate, Model, Path, RoundTrip};
use barograph_probe::Plan;

use super::{Age, Knowledge, Sight};
use crate::forecast::bank::{Account, Bank};
use crate::sync::lock;

/// Access to the bank, which is locked for [`HELD`] look-ups at a time. If each look-up locked the
/// bank, each one would wait for a battery that learns. If one lock covered all look-ups, batteries
/// would wait for a large question.
pub(crate) struct Pairs<'a> {
    bank: &'a Mutex<Bank>,
    now_unix_ns: i64,
    pause: Duration,
    held: RefCell<Option<(MutexGuard<'a, Bank>, usize)>>,
}

impl<'a> Pairs<'a> {
    /// Creates access for one question. With a `pause`, sleeps between two locks, so that others
    /// can use the bank. Without one, yields to threads that already wait.
    pub(crate) fn new(bank: &'a Mutex<Bank>, now_unix_ns: i64, pause: Duration) -> Self {
        Self { bank, now_unix_ns, pause, held: RefCell::default() }
    }
}

impl Knowledge for Pairs<'_> {
    /// Forecast of the pair's own series; otherwise from measurements of the other end: the round
    /// trip and the loss are the same from both ends, and the goodput from `from` to `to` is the
    /// `goodput_down` that `to` measures.
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
    /// Forecast of `source` for its round trip to `target` (s), if it is fresh and its interval is
    /// known.
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

    /// As [`Pairs::round_trip`]. If unknown, also returns whether the newest measurement failed.
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

    /// Applies `look` to an account. `look` must not read a second account, because the bank is
    /// locked.
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

/// Forecast of a series for its path, if its newest value is fresh.
fn sight(account: &Account, what: Composition, now_unix_ns: i64) -> Sight {
    let Some(next) = account.next_at(now_unix_ns) else { return Sight::Nothing };
    // A label can be ahead of now after a clock was set back. Such a value stays fresh as long as
    // one with a label equally far in the past.
    let age = Age::at(now_unix_ns, next.time_unix_ns, account.value_ahead_s());
    if freshness_s(account.period_s(), what) < age.distance_s() {
        return Sight::Stale(age);
    }
    let (interval, count) = (account.interval_at(Interval::DEFAULT_LEVEL, now_unix_ns), account.count());
    let path = match what {
        // Use the mean, because means add. The median of a path with rare losses is 0, and so is
        // the sum of three medians.
        Composition::Loss => {
            let mean = next.mean.value.clamp(0.0, 1.0);
            Path::of_losses(mean, interval, account.last_value().unwrap_or(mean), count)
        }
        Composition::Rtt | Composition::Goodput => {
            let value = next.median.value;
            let known = |forecast| Path { forecast, last: account.last_value().unwrap_or(value), count };
            let forecast = match interval {
                // The interval may include 0, at which a transfer would never end.
                Some((lower, upper)) => Estimate {
                    value,
                    lower: lower.clamp(value * LEAST, value.max(value * LEAST)),
                    upper: upper.max(value),
                },
                None => Estimate { value, lower: value, upper: value },
            };
            match interval {
                Some(_) => Some(known(forecast)),
                // Too few errors for an interval: use an estimated interval, as wide as that of a
                // composed path.
                None => Model::guessed(what).estimate(&[known(forecast)]).map(known),
            }
        }
    };
    match path.filter(|path| what.admits(&path.forecast)) {
        Some(path) => Sight::Fresh(path, age),
        None => Sight::Nothing,
    }
}

/// Largest age of a fresh value (s).
fn freshness_s(period_s: Option<f64>, what: Composition) -> f64 {
    let least_s = match what {
        Composition::Rtt | Composition::Loss => RTT_S,
        Composition::Goodput => GOODPUT_S,
    };
    period_s.map_or(least_s, |period_s| least_s.max(PERIODS * period_s)).min(OLDEST_S)
}

/// Minimum of the lower end of an interval, as a share of the forecast.
const LEAST: f64 = 1e-3;

/// Number of look-ups under one lock of the bank, which take some tens of microseconds; a question
/// about ten hosts takes two or three locks.
const HELD: usize = 64;

/// Number of periods after which a forecast without new measurements is stale.
const PERIODS: f64 = 6.0;

/// Values of this age are always fresh (s): a minute for round trips and losses, which is enough to
/// notice a host that does not respond; an hour for goodput; an age of an hour increases the error
/// of its forecast by about a tenth (Gloperf §4.2).
const RTT_S: f64 = 60.0;
const GOODPUT_S: f64 = 3600.0;

/// Values older than a day are never fresh (s): the longest period in the Gloperf paper.
const OLDEST_S: f64 = 86_400.0;

// Losses are composed for the probes that stations make.
const _: () = assert!(Plan::DATAGRAMS == Composition::LOSS_DATAGRAMS);
