//! A battery of forecasters for every series, with the newest points and the forecasts issued for them.
//!
//! Pure: no clock, no lock, no storage. The recorder feeds it, the API reads it.

mod ring;

use std::collections::{BTreeMap, BTreeSet};

use barograph_engine::{Record, Selector, is_late, labelled_unix_ns};
use barograph_forecast::{Battery, Config, Forecast, Interval, Loss, Name, Outcome, Quantity, Series};

use ring::{Methods, Ring};

/// Levels whose intervals are kept with every point; the API offers these for history.
pub const LEVELS: [f64; 5] = [0.5, 0.8, 0.9, 0.95, 0.99];

/// Points kept of each series: at a period of 10 s the last hour and a half, a page's width.
pub const POINTS_MAX: usize = 512;

/// One member gets a quarter of all series: enough for hundreds of peers.
pub(crate) const MEMBER_SHARE: usize = 4;

/// A label this long after the removal of its station shows that the station is back, ns. A record may
/// be labelled ahead of its arrival, and has as long again to arrive if it was on its way.
const RETURNED_AFTER_NS: i64 = 2 * Record::LABEL_AHEAD_MAX.as_nanos() as i64;

/// One measurement on its way through the station.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What was measured.
    pub series: Series,
    /// Wall-clock label, nanoseconds since 1970-01-01 UTC.
    pub time_unix_ns: i64,
    /// The value or the typed failure.
    pub outcome: Outcome,
    /// Further facts as a JSON text; empty = none.
    pub detail: String,
}

/// The forecast that was issued before a point was seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Issued {
    /// Under absolute loss, in the series' unit.
    pub forecast: f64,
    /// The method that made it.
    pub method: &'static str,
    /// Lower and upper end at each of [`LEVELS`], where calibrated.
    pub intervals: [Option<(f64, f64)>; LEVELS.len()],
}

/// A point of a series and what had been expected of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Wall-clock label, nanoseconds since 1970-01-01 UTC.
    pub time_unix_ns: i64,
    /// The value or the typed failure.
    pub outcome: Outcome,
    /// The value is the time of a refused connection: the host answers, the port is closed.
    pub refused: bool,
    /// `None` = no forecast had been issued.
    pub issued: Option<Issued>,
}

/// The forecasts of a series' next value.
#[derive(Clone, Debug, PartialEq)]
pub struct Next {
    /// Time of the newest value they were made from.
    pub time_unix_ns: i64,
    /// Aims at the mean: least squared error.
    pub mean: Forecast,
    /// Aims at the median: least absolute error.
    pub median: Forecast,
}

/// What became of a measurement offered to the bank.
#[derive(Clone, Debug, PartialEq)]
pub enum Observed {
    /// It is the newest of its series; here is its point.
    New(Point),
    /// It is older than the newest of its series, and was not learnt.
    Late,
    /// One end of its series is a station that was removed from the mesh ([`Bank::exclude`]).
    Excluded,
    /// Its series would be one too many.
    Refused,
    /// Its value is one that no battery takes, or that its quantity cannot have.
    Impossible,
}

/// Everything the bank knows of one series.
#[derive(Clone, Debug)]
pub struct Account {
    battery: Battery,
    ring: Ring,
    failures: u64,
    scored: u64,
    outside: u64,
    last: Measured,
    value_time_unix_ns: i64,
    /// How far the newest value was labelled ahead of its arrival; 0 = it was not.
    value_ahead_ns: i64,
    residual: Option<f64>,
}

/// All series, at most so many.
#[derive(Clone, Debug)]
pub struct Bank {
    accounts: BTreeMap<Series, Account>,
    /// How many of them each source has, where it has any.
    sources: BTreeMap<Name, usize>,
    /// Stations whose series are not kept, each with the time of its removal (ns since 1970-01-01 UTC).
    excluded: BTreeMap<Name, i64>,
    /// How many series each source is to find room for.
    reserved: BTreeMap<Name, usize>,
    /// Sources whose series make room for others: members of a mesh and pages, not applications or this host.
    guests: BTreeSet<Name>,
    series_max: usize,
    refused: u64,
    late: u64,
    config: Config,
    methods: Methods,
}

impl Bank {
    /// An empty bank for at most `series_max` series.
    #[must_use]
    pub fn new(series_max: usize) -> Self {
        let config = Config { levels: LEVELS.to_vec(), ..Config::default() };
        let methods = Methods::of(&config);
        Self {
            accounts: BTreeMap::new(),
            sources: BTreeMap::new(),
            excluded: BTreeMap::new(),
            reserved: BTreeMap::new(),
            guests: BTreeSet::new(),
            series_max,
            refused: 0,
            late: 0,
            config,
            methods,
        }
    }

    /// Takes a measurement: keeps the forecast that had been issued for it, then learns its value.
    ///
    /// A failure is kept as a point and never learnt: it is not a number (invariant 4). The order of
    /// arrival counts, whatever the time labels say: the wall clock may be set back under a station.
    pub fn observe(&mut self, measured: &Measured) -> Observed {
        self.take(measured, None)
    }

    /// As [`Bank::observe`], for values with labels that others gave, arriving at `now_unix_ns`: one that is older
    /// than the newest of its series comes too late to be forecast ([`is_late`]), and is left out.
    pub fn observe_in_order(&mut self, measured: &Measured, now_unix_ns: i64) -> Observed {
        self.take(measured, Some(now_unix_ns))
    }

    fn take(&mut self, measured: &Measured, in_order_at: Option<i64>) -> Observed {
        let has_returned = |at: &i64| at.saturating_add(RETURNED_AFTER_NS) < measured.time_unix_ns;
        if self.excluded.get(&measured.series.source).is_some_and(has_returned) {
            // It measures again, so it was admitted again.
            self.include(&measured.series.source);
        }
        if self.excludes(&measured.series) {
            return Observed::Excluded;
        }
        if !self.has_room_for(&measured.series) && !self.make_room_for(&measured.series.source) {
            self.refused += 1;
            return Observed::Refused;
        }
        if let Some(account) = self.accounts.get_mut(&measured.series) {
            let newest = account.last.time_unix_ns;
            if in_order_at.is_some_and(|now| is_late(measured.time_unix_ns, newest, now)) {
                self.late += 1;
                return Observed::Late;
            }
            return account.observe(measured).map_or(Observed::Impossible, Observed::New);
        }
        // There is an account only of what was taken: one without any point would be shown as a series.
        let mut account = Account::new(measured, &self.config, &self.methods);
        let Some(point) = account.observe(measured) else { return Observed::Impossible };
        self.accounts.insert(measured.series.clone(), account);
        *self.sources.entry(measured.series.source.clone()).or_default() += 1;
        Observed::New(point)
    }

    /// Drops all series from and to a station that was removed at `at_unix_ns`, and learns none of them until it
    /// is included, or a value arrives that the station itself measured more than two minutes later.
    pub fn exclude(&mut self, station: &Name, at_unix_ns: i64) {
        self.excluded.insert(station.clone(), at_unix_ns);
        self.accounts.retain(|series, _| series.source != *station && series.target != *station);
        self.sources.clear();
        for series in self.accounts.keys() {
            *self.sources.entry(series.source.clone()).or_default() += 1;
        }
    }

    /// The opposite of [`Bank::exclude`]: its series are learned from the beginning.
    pub fn include(&mut self, station: &Name) {
        self.excluded.remove(station);
    }

    /// Whether an end of `series` is an excluded station.
    #[must_use]
    pub fn excludes(&self, series: &Series) -> bool {
        [&series.source, &series.target].into_iter().any(|end| self.is_excluded(end))
    }

    /// Whether the series of `station` are not kept.
    #[must_use]
    pub fn is_excluded(&self, station: &Name) -> bool {
        self.excluded.contains_key(station)
    }

    /// Counts from 0 again what fell outside its interval: what is replayed at a start is no news, and whoever
    /// watches a counter takes a smaller number for one that began at 0.
    pub fn restart_scores(&mut self) {
        for account in self.accounts.values_mut() {
            (account.scored, account.outside) = (0, 0);
        }
    }

    /// Whether a measurement of `series` would be accepted.
    #[must_use]
    pub fn has_room_for(&self, series: &Series) -> bool {
        self.accounts.len() < self.series_max || self.accounts.contains_key(series)
    }

    /// Keeps room for so many series of each source, and for no others.
    pub fn reserve(&mut self, reserved: BTreeMap<Name, usize>) {
        self.reserved = reserved;
    }

    /// Whether a further series of a member is within its share: the room that is reserved for it, and
    /// beyond that a quarter of all series, as long as what is reserved for others stays free.
    pub fn has_share_for(&mut self, member: &Name) -> bool {
        self.note_guest(member);
        let count = self.count_of(member);
        if count < self.reserved_for(member) {
            return true;
        }
        count < self.series_max / MEMBER_SHARE && {
            let kept = self.unused(|source| self.sources.get(source).copied());
            self.accounts.len() + kept < self.series_max
        }
    }

    /// Notes that this source is a member or a page: its series beyond its reserve may be dropped for others.
    pub fn note_guest(&mut self, source: &Name) {
        if !self.guests.contains(source) {
            self.guests.insert(source.clone());
        }
    }

    /// Where `source` has fewer series than are reserved for it, drops a series of the guest that is
    /// furthest above its own reserve: the series without a value for longest. Returns whether it did.
    fn make_room_for(&mut self, source: &Name) -> bool {
        if self.reserved_for(source) <= self.count_of(source) {
            return false;
        }
        let above = |guest: &&Name| self.count_of(guest).saturating_sub(self.reserved_for(guest));
        let Some(most) = self.guests.iter().max_by_key(above).filter(|guest| 0 < above(guest)) else {
            return false;
        };
        let of_most = self.accounts.iter().filter(|(series, _)| series.source == *most);
        let silent = of_most.min_by_key(|(_, account)| account.last.time_unix_ns);
        let Some(series) = silent.map(|(series, _)| series.clone()) else { return false };
        self.accounts.remove(&series);
        match self.count_of(&series.source) {
            0 | 1 => {
                self.sources.remove(&series.source);
                // It is noted again with its next series.
                self.guests.remove(&series.source);
            }
            count => drop(self.sources.insert(series.source, count - 1)),
        }
        true
    }

    /// How many series are reserved for this source.
    #[must_use]
    pub fn reserved_for(&self, source: &Name) -> usize {
        self.reserved.get(source).copied().unwrap_or(0)
    }

    /// How many of the reserved series are free where each source has `taken`.
    pub fn unused(&self, taken: impl Fn(&Name) -> Option<usize>) -> usize {
        let unused =
            |(source, reserved): (&Name, &usize)| reserved.saturating_sub(taken(source).unwrap_or(0));
        self.reserved.iter().map(unused).sum()
    }

    /// How many series may still be added.
    #[must_use]
    pub fn room(&self) -> usize {
        self.series_max.saturating_sub(self.accounts.len())
    }

    /// One series.
    #[must_use]
    pub fn account(&self, series: &Series) -> Option<&Account> {
        self.accounts.get(series)
    }

    /// The series that `selector` matches, ordered by quantity, target, source.
    #[must_use]
    pub fn select(&self, selector: &Selector) -> Vec<(&Series, &Account)> {
        let mut found: Vec<_> = self.accounts.iter().filter(|(series, _)| selector.matches(series)).collect();
        found.sort_by(|(a, _), (b, _)| in_order(a, b));
        found
    }

    /// The names of the series that `selector` matches; `in_order` is the order of lists.
    #[must_use]
    pub fn names(&self, selector: &Selector) -> Vec<Series> {
        self.accounts.keys().filter(|series| selector.matches(series)).cloned().collect()
    }

    /// Whether there is a series of this source.
    #[must_use]
    pub fn has_source(&self, source: &Name) -> bool {
        self.sources.contains_key(source)
    }

    /// How many series there are of one source. Kept, as it is asked for every record of a further series.
    #[must_use]
    pub fn count_of(&self, source: &Name) -> usize {
        self.sources.get(source).copied().unwrap_or(0)
    }

    /// The most series there may be.
    #[must_use]
    pub fn series_max(&self) -> usize {
        self.series_max
    }

    /// How many series there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.accounts.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    /// So many series of the archive found no room here when history was read.
    pub(crate) fn leave_out(&mut self, series: usize) {
        self.refused += series as u64;
    }

    /// Measurements refused because their series would have been one too many, and series left out when history
    /// was read.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Measurements not learnt because they were older than the newest of their series.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }
}

impl Account {
    fn new(measured: &Measured, config: &Config, methods: &Methods) -> Self {
        Self {
            battery: Battery::new(config),
            ring: Ring::new(config, methods),
            failures: 0,
            scored: 0,
            outside: 0,
            last: Measured { time_unix_ns: i64::MIN, ..measured.clone() },
            value_time_unix_ns: 0,
            value_ahead_ns: 0,
            residual: None,
        }
    }

    fn observe(&mut self, measured: &Measured) -> Option<Point> {
        let usual = self.battery.forecast(Loss::Absolute).map(|median| median.value);
        let issued = self.issue(measured.time_unix_ns);
        match measured.outcome {
            // A value out of a battery's range could be shown, but never be forecast from; one that its quantity
            // cannot have comes of a bad neighbour, and neither.
            Outcome::Value(value) => {
                let (least, most) = bounds(&measured.series.quantity);
                if !(least..=most).contains(&value)
                    || self.battery.update_at(value, seconds(measured.time_unix_ns)).is_err()
                {
                    return None;
                }
                self.value_time_unix_ns = measured.time_unix_ns;
                self.value_ahead_ns = labelled_unix_ns(&measured.detail)
                    .map_or(0, |label| label.saturating_sub(measured.time_unix_ns).max(0));
                self.score(issued.as_ref(), value);
            }
            Outcome::Failed { .. } => self.failures += 1,
        }
        let Measured { time_unix_ns, outcome, .. } = *measured;
        let refused = matches!(outcome, Outcome::Value(_)) && crate::detail::is_refused(&measured.detail);
        let point = Point { time_unix_ns, outcome, refused, issued };
        self.residual = match (point.outcome, issued) {
            (Outcome::Value(value), Some(issued)) => Some(value - issued.forecast),
            _ => None,
        };
        self.ring.push(&point, usual);
        self.last = measured.clone();
        Some(point)
    }

    /// Counts whether `value` lies in the interval that had been issued for it.
    fn score(&mut self, issued: Option<&Issued>, value: f64) {
        if let Some((lower, upper)) = issued.and_then(|issued| issued.intervals[SCORED_LEVEL]) {
            self.scored += 1;
            self.outside += u64::from(value < lower || upper < value);
        }
    }

    fn issue(&self, time_unix_ns: i64) -> Option<Issued> {
        let median = self.battery.forecast_at(Loss::Absolute, seconds(time_unix_ns))?;
        let intervals = LEVELS.map(|level| self.interval_at(level, time_unix_ns));
        Some(Issued { forecast: median.value, method: median.method.0, intervals })
    }

    /// The forecasts of the next value; `None` before the first value.
    #[must_use]
    pub fn next(&self) -> Option<Next> {
        Some(Next {
            time_unix_ns: self.value_time_unix_ns,
            mean: self.battery.forecast(Loss::Squared)?,
            median: self.battery.forecast(Loss::Absolute)?,
        })
    }

    /// As [`Account::next`], of a value at `time_unix_ns`: others after a gap.
    #[must_use]
    pub fn next_at(&self, time_unix_ns: i64) -> Option<Next> {
        let time_s = seconds(time_unix_ns);
        Some(Next {
            time_unix_ns: self.value_time_unix_ns,
            mean: self.battery.forecast_at(Loss::Squared, time_s)?,
            median: self.battery.forecast_at(Loss::Absolute, time_s)?,
        })
    }

    /// The interval for the next value at `level`, where calibrated, as far as values can lie: no time
    /// is negative, and no share exceeds 1. What is cut off holds no value, so that the level stays.
    #[must_use]
    pub fn interval(&self, level: f64) -> Option<(f64, f64)> {
        cut(self.battery.interval(level), &self.last.series.quantity)
    }

    /// As [`Account::interval`], for a value at `time_unix_ns`.
    #[must_use]
    pub fn interval_at(&self, level: f64, time_unix_ns: i64) -> Option<(f64, f64)> {
        cut(self.battery.interval_at(level, seconds(time_unix_ns)), &self.last.series.quantity)
    }

    /// The newest points, oldest first, at most [`POINTS_MAX`], as they were when they were new.
    pub fn points(&self) -> impl Iterator<Item = Point> + '_ {
        self.ring.points(&self.last.series.quantity)
    }

    /// The newest measurement, value or failure.
    #[must_use]
    pub fn last(&self) -> &Measured {
        &self.last
    }

    /// Whether the newest point is a value, and the time of a refused connection.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.ring.is_refused()
    }

    /// The newest value, if it is among the points kept.
    #[must_use]
    pub fn last_value(&self) -> Option<f64> {
        self.ring.last_value()
    }

    /// How far ahead of its arrival the newest value was labelled (s); `None` = it was not.
    #[must_use]
    pub fn value_ahead_s(&self) -> Option<f64> {
        (0 < self.value_ahead_ns).then(|| seconds(self.value_ahead_ns))
    }

    /// The mean time between the newest points, nine at most (s); `None` before the second, or when the clock was set
    /// back between.
    #[must_use]
    pub fn period_s(&self) -> Option<f64> {
        self.ring.period_s()
    }

    /// The newest value minus the forecast that had been issued for it, in the series' unit; `None` when the
    /// newest point is a failure, or nothing had been issued.
    #[must_use]
    pub fn residual(&self) -> Option<f64> {
        self.residual
    }

    /// Values for which an interval at 90 % had been issued, since [`Bank::restart_scores`].
    #[must_use]
    pub fn scored(&self) -> u64 {
        self.scored
    }

    /// How many of [`Account::scored`] were outside that interval: one in ten, while the link behaves as
    /// it did.
    #[must_use]
    pub fn outside(&self) -> u64 {
        self.outside
    }

    /// How many values were learnt, with those replayed at the start.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.battery.forecast(Loss::Absolute).map_or(0, |forecast| forecast.count)
    }

    /// How many failures were seen, with those replayed at the start.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures
    }
}

/// The order of lists: by quantity, target, source.
pub(crate) fn in_order(a: &Series, b: &Series) -> std::cmp::Ordering {
    (&a.quantity, &a.target, &a.source).cmp(&(&b.quantity, &b.target, &b.source))
}

/// A time label in seconds, as batteries take it.
fn seconds(unix_ns: i64) -> f64 {
    unix_ns as f64 / 1e9
}

/// The ends of an interval as far as values of `quantity` can lie.
fn cut(interval: Option<Interval>, quantity: &Quantity) -> Option<(f64, f64)> {
    let (least, most) = bounds(quantity);
    interval.map(|interval| (interval.lower.clamp(least, most), interval.upper.clamp(least, most)))
}

/// Between which values a quantity can lie; an application's own can be anything.
pub(crate) fn bounds(quantity: &Quantity) -> (f64, f64) {
    match crate::unit(quantity) {
        "ratio" => (0.0, 1.0),
        "bit/s" => (0.0, RATE_MAX_BIT_S),
        "s" => (0.0, TIME_MAX_S),
        "" => (f64::NEG_INFINITY, f64::INFINITY),
        _ => (0.0, f64::INFINITY),
    }
}

/// Ten Tbit/s, ten times the fastest single link there is (IEEE 802.3df: 800 Gbit/s).
pub(crate) const RATE_MAX_BIT_S: f64 = 1e13;

/// An hour: longer than any experiment waits for an answer.
pub(crate) const TIME_MAX_S: f64 = 3600.0;

/// The place of `level` in [`LEVELS`], or `None` when its intervals are not kept.
#[must_use]
pub fn level_index(level: f64) -> Option<usize> {
    LEVELS.iter().position(|known| (known - level).abs() < 1e-9)
}

/// The place in [`LEVELS`] of the level whose misses are counted: 90 %, which the page shows.
const SCORED_LEVEL: usize = 2;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use barograph_forecast::{Failure, Name};

    /// Later than every label of these tests.
    const NOW: i64 = 1_000_000_000_000_000;

    fn measured(target: &str, second: i64, outcome: Outcome) -> Measured {
        let series = Series {
            source: Name::new("here").unwrap(),
            target: Name::new(target).unwrap(),
            quantity: Quantity::RTT,
        };
        Measured { series, time_unix_ns: second * 1_000_000_000, outcome, detail: String::new() }
    }

    #[test]
    fn the_first_point_has_no_forecast_and_the_second_has_the_one_issued_for_it() {
        let mut bank = Bank::new(10);
        let Observed::New(first) = bank.observe(&measured("a", 1, Outcome::Value(5.0))) else { panic!() };
        assert_eq!(first.issued, None);
        let before = bank.account(&measured("a", 0, Outcome::Value(0.0)).series).unwrap().next().unwrap();
        let Observed::New(second) = bank.observe(&measured("a", 2, Outcome::Value(9.0))) else { panic!() };
        assert_eq!(second.issued.unwrap().forecast, before.median.value);
    }

    #[test]
    fn failures_are_points_but_never_values() {
        let mut bank = Bank::new(10);
        bank.observe(&measured("a", 1, Outcome::Value(5.0)));
        let failed = Outcome::Failed { failure: Failure::TimedOut, after_s: 3.0 };
        let Observed::New(point) = bank.observe(&measured("a", 2, failed)) else { panic!() };
        assert_eq!(point.outcome, failed);
        let account = bank.account(&measured("a", 0, failed).series).unwrap();
        assert_eq!((account.count(), account.failures()), (1, 1));
        assert_eq!(account.last_value(), Some(5.0));
        assert_eq!(account.next().unwrap().time_unix_ns, 1_000_000_000);
        assert_eq!(account.last().outcome, failed);
    }

    #[test]
    fn late_and_infinite_values_change_nothing() {
        let mut bank = Bank::new(10);
        bank.observe(&measured("a", 5, Outcome::Value(5.0)));
        assert_eq!(bank.observe_in_order(&measured("a", 4, Outcome::Value(1.0)), NOW), Observed::Late);
        assert_eq!(bank.observe(&measured("a", 6, Outcome::Value(f64::NAN))), Observed::Impossible);
        assert_eq!(bank.observe(&measured("ghost", 6, Outcome::Value(1e71))), Observed::Impossible);
        assert_eq!(bank.observe(&measured("a", 6, Outcome::Value(-1.0))), Observed::Impossible, "no time is");
        assert_eq!(bank.len(), 1, "a value that is not taken makes no series");
        let account = bank.account(&measured("a", 0, Outcome::Value(0.0)).series).unwrap();
        assert_eq!((account.count(), account.points().count()), (1, 1));
        assert_eq!(bank.late(), 1);
        assert!(matches!(
            bank.observe_in_order(&measured("a", 5, Outcome::Value(1.0)), NOW),
            Observed::New(_)
        ));
        assert!(
            matches!(bank.observe(&measured("a", 1, Outcome::Value(1.0))), Observed::New(_)),
            "a clock set back"
        );
    }

    #[test]
    fn a_clock_that_was_ahead_makes_nothing_late() {
        let mut bank = Bank::new(1);
        let mut feed = |second: i64, now_s: i64| {
            let measured = measured("a", second, Outcome::Value(1.0));
            bank.observe_in_order(&measured, now_s * 1_000_000_000)
        };
        let is_new = |observed| matches!(observed, Observed::New(_));
        let year = 365 * 86_400;
        assert!(is_new(feed(100, 100)));
        assert!(is_new(feed(20 * year, 20 * year)), "the clock jumps ahead");
        assert!(is_new(feed(104, 104)), "and back");
        assert!(is_new(feed(105, 105)));
        assert_eq!(feed(103, 106), Observed::Late);
    }

    #[test]
    fn the_number_of_series_is_bounded_and_refusals_are_counted() {
        let mut bank = Bank::new(2);
        bank.observe(&measured("a", 1, Outcome::Value(1.0)));
        bank.observe(&measured("b", 1, Outcome::Value(1.0)));
        assert_eq!(bank.observe(&measured("c", 1, Outcome::Value(1.0))), Observed::Refused);
        assert!(matches!(bank.observe(&measured("a", 2, Outcome::Value(1.0))), Observed::New(_)));
        assert_eq!((bank.len(), bank.refused(), bank.room()), (2, 1, 0));
    }

    #[test]
    fn an_excluded_station_is_at_no_end_of_a_series_until_it_is_included() {
        let mut bank = Bank::new(9);
        let to = measured("gone", 1, Outcome::Value(1.0));
        let Series { source, target, quantity } = to.series.clone();
        let from =
            Measured { series: Series { source: target.clone(), target: source, quantity }, ..to.clone() };
        let other = measured("a", 1, Outcome::Value(1.0));
        for measured in [&to, &from, &other] {
            bank.observe(measured);
        }
        bank.exclude(&target, 1_000_000_000);
        assert_eq!(
            [&to, &from].map(|measured| bank.observe(measured)),
            [Observed::Excluded, Observed::Excluded]
        );
        assert_eq!((bank.len(), bank.refused()), (1, 0));
        bank.include(&target);
        let Observed::New(point) = bank.observe(&to) else { panic!() };
        assert_eq!(point.issued, None, "from the beginning");
        // A label may be ahead of its arrival, and a record may arrive after the removal of its station.
        bank.exclude(&target, 1_000_000_000);
        let at = |seconds: i64| Measured { time_unix_ns: seconds * 1_000_000_000, ..from.clone() };
        assert_eq!(bank.observe_in_order(&from, NOW), Observed::Excluded);
        assert_eq!(bank.observe(&at(1 + 55)), Observed::Excluded, "it may have been on its way");
        assert!(matches!(bank.observe(&at(1 + 121)), Observed::New(_)), "the station is back");
        assert!(!bank.is_excluded(&target) && matches!(bank.observe(&to), Observed::New(_)));
    }

    #[test]
    fn series_are_counted_by_source() {
        let mut bank = Bank::new(3);
        let name = |text: &str| Name::new(text).unwrap();
        let from = |source: &str, target: &str, value: f64| {
            let mut measured = measured(target, 1, Outcome::Value(value));
            measured.series.source = name(source);
            measured
        };
        for measured in [from("a", "x", 1.0), from("a", "x", 2.0), from("a", "y", 1.0), from("b", "x", 1.0)] {
            bank.observe(&measured);
        }
        bank.observe(&from("c", "x", f64::NAN));
        bank.observe(&from("d", "x", 1.0));
        let counts = |bank: &Bank| ["a", "b", "c", "d"].map(|source| bank.count_of(&name(source)));
        assert_eq!(counts(&bank), [2, 1, 0, 0]);
        bank.exclude(&name("x"), 0);
        assert_eq!(counts(&bank), [1, 0, 0, 0], "those of other sources to it are gone, too");
        assert_eq!(["a", "b"].map(|source| bank.has_source(&name(source))), [true, false]);
        bank.exclude(&name("a"), 0);
        assert_eq!((counts(&bank), bank.is_empty()), ([0; 4], true));
    }

    #[test]
    fn an_impossible_value_is_no_want_of_room() {
        let mut bank = Bank::new(1);
        let impossible = measured("a", 1, Outcome::Value(-1.0));
        assert_eq!(bank.observe(&impossible), Observed::Impossible);
        assert!(matches!(bank.observe(&measured("a", 1, Outcome::Value(1.0))), Observed::New(_)));
        assert_eq!(bank.observe(&impossible), Observed::Impossible);
        assert_eq!(bank.refused(), 0);
        assert_eq!(bank.observe(&measured("b", 1, Outcome::Value(-1.0))), Observed::Refused);
        assert_eq!(bank.refused(), 1);
    }

    #[test]
    fn points_are_bounded_and_oldest_go_first() {
        let mut bank = Bank::new(1);
        for second in 0..600 {
            bank.observe(&measured("a", second, Outcome::Value(second as f64)));
        }
        let account = bank.account(&measured("a", 0, Outcome::Value(0.0)).series).unwrap();
        assert_eq!(account.points().count(), POINTS_MAX);
        assert_eq!(account.points().next().unwrap().outcome, Outcome::Value(88.0));
        assert_eq!(account.count(), 600);
    }

    #[test]
    fn selection_filters_and_orders_by_quantity_then_target() {
        let mut bank = Bank::new(9);
        for target in ["b", "a"] {
            bank.observe(&measured(target, 1, Outcome::Value(1.0)));
            let mut other = measured(target, 1, Outcome::Value(1.0));
            other.series.quantity = Quantity::CONNECT;
            bank.observe(&other);
        }
        let names = |selector: &Selector| -> Vec<String> {
            bank.select(selector).iter().map(|(s, _)| format!("{} {}", s.quantity, s.target)).collect()
        };
        assert_eq!(names(&Selector::default()), ["connect a", "connect b", "rtt a", "rtt b"]);
        let only = Selector { target: Some(Name::new("a").unwrap()), ..Selector::default() };
        assert_eq!(names(&only), ["connect a", "rtt a"]);
    }

    #[test]
    fn intervals_stay_where_values_can_lie() {
        let mut bank = Bank::new(2);
        let mut shares = measured("a", 0, Outcome::Value(0.0));
        shares.series.quantity = Quantity::CPU_AVAILABLE;
        for second in 0..60 {
            let value = f64::from(u8::from(second % 7 == 0));
            for series in [&shares, &measured("a", 0, Outcome::Value(0.0))] {
                let outcome = Outcome::Value(value);
                bank.observe(&Measured { outcome, time_unix_ns: second, ..series.clone() });
            }
        }
        let (lower, upper) = bank.account(&shares.series).unwrap().interval(0.99).unwrap();
        assert!(0.0 <= lower && lower <= upper && upper <= 1.0, "{lower} to {upper}");
        let rtt = measured("a", 0, Outcome::Value(0.0)).series;
        assert!(0.0 <= bank.account(&rtt).unwrap().interval(0.99).unwrap().0);
        assert_eq!(bounds(&Quantity::new("own").unwrap()), (f64::NEG_INFINITY, f64::INFINITY));
        assert_eq!(bounds(&Quantity::GOODPUT), (0.0, 1e13));
        assert_eq!(bounds(&Quantity::new("connect_loaded").unwrap()), (0.0, 3600.0));
        assert_eq!(bounds(&Quantity::MEMORY_FREE), (0.0, f64::INFINITY));
    }

    /// The most percent of 30 values in a row that were outside, of a series with a heavy tail; from value
    /// 1000 on the tail is longer by `factor`, and every value by `shift`.
    fn most_outside_percent(factor: f64, shift: f64) -> u64 {
        let mut bank = Bank::new(1);
        let mut state = 1_u64;
        let mut outside = vec![0];
        for second in 0..5000 {
            // A linear congruential generator (Knuth, TAOCP 2 §3.3.4): the same series in every run.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let tail = -0.001 * (1.0 - (state >> 11) as f64 / (1_u64 << 53) as f64).ln();
            let value = if second < 1000 { 0.02 + tail } else { 0.02 + tail * factor + shift };
            bank.observe(&measured("a", second, Outcome::Value(value)));
            let account = bank.account(&measured("a", 0, Outcome::Value(0.0)).series).unwrap();
            outside.push(account.outside());
        }
        outside.windows(31).map(|window| (window[30] - window[0]) * 100 / 30).max().unwrap()
    }

    #[test]
    fn many_of_thirty_values_are_outside_when_a_link_becomes_restless_and_only_then() {
        // deploy/prometheus/rules.yml alerts above 35 %.
        let (calm, shifted, restless) = (
            most_outside_percent(1.0, 0.0),
            most_outside_percent(1.0, 0.04),
            most_outside_percent(10.0, 0.0),
        );
        assert!(calm < 35 && 35 < restless, "{calm} % and {restless} %");
        assert!(shifted < 35, "{shifted} %: forecasts follow a new level within some values");
    }

    #[test]
    fn scores_begin_at_0_when_they_are_restarted() {
        let mut bank = Bank::new(1);
        for (second, value) in (0..40).zip([1.0, 1.1].into_iter().cycle()) {
            bank.observe(&measured("a", second, Outcome::Value(value)));
        }
        let scores = |bank: &Bank| {
            let account = bank.account(&measured("a", 0, Outcome::Value(0.0)).series).unwrap();
            (account.scored(), account.outside())
        };
        assert_eq!(
            scores(&bank).0,
            29,
            "ten errors come before the first interval, and the first value has none"
        );
        bank.restart_scores();
        bank.observe(&measured("a", 50, Outcome::Value(1000.0)));
        assert_eq!(scores(&bank), (1, 1));
        let residual =
            bank.account(&measured("a", 0, Outcome::Value(0.0)).series).unwrap().residual().unwrap();
        assert!((998.0..1000.0).contains(&residual), "{residual}");
    }

    #[test]
    fn levels_are_found_by_value() {
        assert_eq!(level_index(0.9), Some(2));
        assert_eq!(level_index(0.91), None);
        assert_eq!(level_index(f64::NAN), None);
    }

    #[test]
    fn what_a_member_invents_leaves_the_room_that_others_need() {
        let name = |text: &str| Name::new(text).unwrap();
        let observe = |bank: &mut Bank, source: &str, target: i64| {
            let mut measured = measured(&format!("t{target}"), target, Outcome::Value(1.0));
            measured.series.source = name(source);
            let has_share = bank.has_share_for(&measured.series.source);
            has_share && matches!(bank.observe(&measured), Observed::New(_))
        };
        let of_all = |of: [&str; 4]| of.map(|of| (name(of), if of == "loud" { 1 } else { 12 })).into();
        let reserved: BTreeMap<Name, usize> = of_all(["a", "b", "c", "loud"]);
        for is_first in [false, true] {
            let mut bank = Bank::new(40);
            if !is_first {
                bank.reserve(reserved.clone());
            }
            // A quarter is ten.
            let invented = (0..40).filter(|target| observe(&mut bank, "loud", *target)).count();
            assert_eq!(invented, if is_first { 10 } else { 4 });
            bank.reserve(reserved.clone());
            for of in ["a", "b", "c"] {
                assert!((0..12).all(|target| observe(&mut bank, of, target)), "{of}, {is_first}");
            }
            assert_eq!((bank.count_of(&name("loud")), bank.len()), (4, 40));
            assert!(!observe(&mut bank, "a", 12), "it has what it needs");
        }
    }

    /// Run by hand: `cargo test -p barograph-station -- --ignored --nocapture resident`.
    #[test]
    #[ignore = "prints what depends on the computer"]
    fn resident_memory_of_full_series_is_printed() {
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
        };
        // A bank that is kept leaves no memory to the next one.
        let mut kept = Vec::new();
        for series in [300, 10_000] {
            let before = resident();
            let mut bank = Bank::new(series);
            for place in 0..series {
                for second in 0..POINTS_MAX as i64 {
                    let value = 0.02 + 0.001 * f64::from((second * 7919 % 101) as i32);
                    bank.observe(&measured(&format!("station-{place}"), second, Outcome::Value(value)));
                }
            }
            let kib = resident() - before;
            eprintln!("{series} series of {POINTS_MAX} points: {kib} KiB, {} B each", kib * 1024 / series);
            let account = bank.accounts.values().next().unwrap();
            eprintln!("of these, the battery {} B", account.battery.size_bytes());
            kept.push(bank);
        }
    }
}
