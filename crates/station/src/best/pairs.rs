//! What a station's bank knows of pairs of hosts.

use std::sync::Mutex;

use barograph_forecast::{Name, Quantity, Series};
use barograph_mesh::{Composition, Estimate, Model};

use super::{Knowledge, Sight};
use crate::bank::{Account, Bank};
use crate::health::lock;

/// A bank at a time. It is locked for one look-up at a time, so that learning never waits for a question.
pub(crate) struct Pairs<'a> {
    pub(crate) bank: &'a Mutex<Bank>,
    pub(crate) now_unix_ns: i64,
}

impl Knowledge for Pairs<'_> {
    /// From the pair's own series; else from what the other end measured of the same path: a round trip is that of both
    /// ends, and what `to` receives from `from` is its `goodput_down`.
    fn sight(&self, from: &Name, to: &Name, what: Composition) -> Sight {
        let (own, others) = match what {
            Composition::Rtt => (Quantity::RTT, Quantity::RTT),
            Composition::Goodput => (Quantity::GOODPUT, Quantity::GOODPUT_DOWN),
        };
        let own = self.series(from, to, own, what);
        match (own, self.series_unless_fresh(own, to, from, others, what)) {
            (Sight::Fresh(..), _) | (Sight::Stale(_), Sight::Nothing) => own,
            (Sight::Stale(own_s), Sight::Stale(others_s)) => Sight::Stale(own_s.min(others_s)),
            (_, others) => others,
        }
    }
}

impl Pairs<'_> {
    /// What `source` forecasts of its round trip to `target` (s), if that counts still and its error is known.
    pub(crate) fn round_trip(&self, source: &Name, target: &Name) -> Option<Estimate> {
        let series = Series { source: source.clone(), target: target.clone(), quantity: Quantity::RTT };
        let bank = lock(self.bank);
        let account = bank.account(&series)?;
        account.interval(LEVEL)?;
        match sight(account, Composition::Rtt, self.now_unix_ns) {
            Sight::Fresh(estimate, _) => Some(estimate),
            Sight::Stale(_) | Sight::Nothing => None,
        }
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
        let bank = lock(self.bank);
        bank.account(&series).map_or(Sight::Nothing, |account| sight(account, what, self.now_unix_ns))
    }
}

/// A series' forecast as an estimate, if its newest value is new enough.
fn sight(account: &Account, what: Composition, now_unix_ns: i64) -> Sight {
    let Some(next) = account.next() else { return Sight::Nothing };
    // The wall clock may have been set back: what seems to come from the future is new.
    let age_s = now_unix_ns.saturating_sub(next.time_unix_ns).max(0) as f64 / 1e9;
    if freshness_s(account.period_s(), what) < age_s {
        return Sight::Stale(age_s);
    }
    let value = next.median.value;
    let estimate = match account.interval(LEVEL) {
        // An interval may reach 0, in which a transfer would never end.
        Some((lower, upper)) => Some(Estimate {
            value,
            lower: lower.clamp(value * LEAST, value.max(value * LEAST)),
            upper: upper.max(value),
        }),
        // One value, and nothing that was learnt of its error: a guess, as wide as that of paths.
        None => guess(value, what),
    };
    match estimate.filter(Estimate::is_positive) {
        Some(estimate) => Sight::Fresh(estimate, age_s),
        None => Sight::Nothing,
    }
}

fn guess(value: f64, what: Composition) -> Option<Estimate> {
    let nothing: [(&[Estimate], f64); 0] = [];
    Model::learnt(what, nothing).estimate(&[Estimate { value, lower: value, upper: value }])
}

/// How old a value may be (s).
fn freshness_s(period_s: Option<f64>, what: Composition) -> f64 {
    let least_s = match what {
        Composition::Rtt => RTT_S,
        Composition::Goodput => GOODPUT_S,
    };
    period_s.map_or(least_s, |period_s| least_s.max(PERIODS * period_s)).min(OLDEST_S)
}

/// Of all intervals, as of those that paths are composed with ([`Estimate`]).
pub(crate) const LEVEL: f64 = 0.9;

/// A lower end is at least this share of the forecast.
const LEAST: f64 = 1e-3;

/// So many measurements may be missing before a forecast is that of another time.
const PERIODS: f64 = 6.0;

/// Younger than this nothing is too old: a minute of round trips (a host that does not answer is seen by then); an hour
/// of goodput, which costs a forecast about a tenth of its error (Gloperf §4.2).
const RTT_S: f64 = 60.0;
const GOODPUT_S: f64 = 3600.0;

/// Older than a day nothing counts, however seldom it is measured: the paper's longest period.
const OLDEST_S: f64 = 86_400.0;
