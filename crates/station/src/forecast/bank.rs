//! A battery of forecasters for every series, with the newest points and the forecasts issued for them.
//!
//! Pure: no clock, no lock, no storage. The recorder feeds it, the API reads it.

mod account;
mod ring;
mod shares;

use std::collections::BTreeMap;

use barograph_engine::{Record, Selector, is_late};
use barograph_forecast::{Config, Name, Outcome, Series};

pub use account::{Account, Issued, Next, Point};
pub(crate) use account::{RATE_MAX_BIT_S, bounds};
use ring::Methods;
use shares::Shares;

/// Levels whose intervals are kept with every point; the API offers these for history.
pub const LEVELS: [f64; 5] = [0.5, 0.8, 0.9, 0.95, 0.99];

/// Points kept of each series: at a period of 10 s the last hour and a half, a page's width.
pub const POINTS_MAX: usize = 512;

/// One member gets a quarter of all series: enough for hundreds of peers.
pub(crate) const MEMBER_SHARE: usize = 4;

/// A label this long after the removal of a station shows that it is back, or measured all the same, ns. A record may
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

/// All series, at most so many.
#[derive(Clone, Debug)]
pub struct Bank {
    accounts: BTreeMap<Series, Account>,
    shares: Shares,
    /// Stations whose series are not kept, each with the time of its removal (ns since 1970-01-01 UTC).
    excluded: BTreeMap<Name, i64>,
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
            shares: Shares::default(),
            excluded: BTreeMap::new(),
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
        if self.excludes(&measured.series, measured.time_unix_ns) {
            return Observed::Excluded;
        }
        if !self.has_room_for(&measured.series) && !self.make_room_for(&measured.series.source) {
            self.refused += 1;
            return Observed::Refused;
        }
        if let Some(account) = self.accounts.get_mut(&measured.series) {
            let newest = account.last().time_unix_ns;
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
        self.shares.add(&measured.series.source);
        Observed::New(point)
    }

    /// Drops all series from and to a station that was removed at `at_unix_ns`, and learns none of them until it
    /// is included, or a value arrives that was measured more than two minutes later: by the station itself,
    /// which is back, or by one that goes on measuring it without a mesh.
    pub fn exclude(&mut self, station: &Name, at_unix_ns: i64) {
        self.excluded.insert(station.clone(), at_unix_ns);
        self.accounts.retain(|series, _| series.source != *station && series.target != *station);
        self.shares.count_again(self.accounts.keys().map(|series| &series.source));
    }

    /// The opposite of [`Bank::exclude`]: its series are learned from the beginning.
    pub fn include(&mut self, station: &Name) {
        self.excluded.remove(station);
    }

    /// Whether an end of `series` is an excluded station, and a value of then is not to be shown or learnt.
    #[must_use]
    pub fn excludes(&self, series: &Series, time_unix_ns: i64) -> bool {
        let is_of_before = |at: &i64| time_unix_ns <= at.saturating_add(RETURNED_AFTER_NS);
        [&series.source, &series.target]
            .into_iter()
            .any(|end| self.excluded.get(end).is_some_and(is_of_before))
    }

    /// Whether the series of `station` are not kept.
    #[must_use]
    pub fn is_excluded(&self, station: &Name) -> bool {
        self.excluded.contains_key(station)
    }

    /// Counts from 0 again what fell outside its interval: what is replayed at a start is no news, and whoever
    /// watches a counter takes a smaller number for one that began at 0.
    pub fn restart_scores(&mut self) {
        self.accounts.values_mut().for_each(Account::restart_scores);
    }

    /// Whether a measurement of `series` would be accepted.
    #[must_use]
    pub fn has_room_for(&self, series: &Series) -> bool {
        self.accounts.len() < self.series_max || self.accounts.contains_key(series)
    }

    /// Keeps room for so many series of each source, and for no others.
    pub fn reserve(&mut self, reserved: BTreeMap<Name, usize>) {
        self.shares.reserve(reserved);
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
            let kept = self.unused(|source| Some(self.count_of(source)));
            self.accounts.len() + kept < self.series_max
        }
    }

    /// Notes that this source is a member or a page: its series beyond its reserve may be dropped for others.
    pub fn note_guest(&mut self, source: &Name) {
        self.shares.note_guest(source);
    }

    /// Where `source` has fewer series than are reserved for it, drops a series of the guest that is
    /// furthest above its own reserve: the series without a value for longest. Returns whether it did.
    fn make_room_for(&mut self, source: &Name) -> bool {
        if self.reserved_for(source) <= self.count_of(source) {
            return false;
        }
        let Some(most) = self.shares.furthest_above_reserve() else { return false };
        let of_most = self.accounts.iter().filter(|(series, _)| series.source == *most);
        let silent = of_most.min_by_key(|(_, account)| account.last().time_unix_ns);
        let Some(series) = silent.map(|(series, _)| series.clone()) else { return false };
        self.accounts.remove(&series);
        self.shares.take_one(&series.source);
        true
    }

    /// How many series are reserved for this source.
    #[must_use]
    pub fn reserved_for(&self, source: &Name) -> usize {
        self.shares.reserved_for(source)
    }

    /// How many of the reserved series are free where each source has `taken`.
    pub fn unused(&self, taken: impl Fn(&Name) -> Option<usize>) -> usize {
        self.shares.unused(taken)
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
        0 < self.count_of(source)
    }

    /// How many series there are of one source. Kept, as it is asked for every record of a further series.
    #[must_use]
    pub fn count_of(&self, source: &Name) -> usize {
        self.shares.count_of(source)
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

/// The order of lists: by quantity, target, source.
pub(crate) fn in_order(a: &Series, b: &Series) -> std::cmp::Ordering {
    (&a.quantity, &a.target, &a.source).cmp(&(&b.quantity, &b.target, &b.source))
}

/// The place of `level` in [`LEVELS`], or `None` when its intervals are not kept.
#[must_use]
pub fn level_index(level: f64) -> Option<usize> {
    LEVELS.iter().position(|known| (known - level).abs() < 1e-9)
}

#[cfg(test)]
mod tests;
