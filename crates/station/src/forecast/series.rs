//! A forecaster for every series, with its newest points and the forecasts issued for them.
//!
//! Pure: no clock, no lock, no storage. The recorder adds measurements; the API reads forecasts.

mod ahead;
mod quota;
mod ring;
mod slow_start;
mod state;

use std::collections::BTreeMap;

use barograph_engine::{Record, Selector, is_late};
use barograph_forecast::{Name, Outcome, Quantity, SeriesId};

pub use ahead::HORIZONS_S;
use ahead::{ForecasterConfigs, SERIES_WITH_HORIZONS_MAX, SERIES_WITH_TRANSFERS_MAX};
use quota::SeriesQuota;
use ring::Methods;
pub use state::{IssuedForecast, NextForecasts, SeriesPoint, SeriesState};
pub(crate) use state::{RATE_MAX_BIT_S, bounds};

/// Levels of the intervals that each point has; the API offers these levels for history.
pub const LEVELS: [f64; 5] = [0.5, 0.8, 0.9, 0.95, 0.99];

/// Maximum number of points of a series; at a period of 10 s these points cover the last hour and a
/// half, which the page shows.
pub const POINTS_MAX: usize = 512;

/// Divisor of the number of all series for the share of one member; a quarter is enough for
/// hundreds of peers.
pub(crate) const MEMBER_SHARE: usize = 4;

/// Time (ns) after the removal of a station, after which the label of a measurement shows that the
/// station is back, or that a host measures the station without the mesh. This time is twice
/// [`Record::LABEL_AHEAD_MAX`]: once for a label that is ahead of its arrival, and once for a
/// record that arrives late.
const RETURNED_AFTER_NS: i64 = 2 * Record::LABEL_AHEAD_MAX.as_nanos() as i64;

/// One measurement of a series, as the station handles it.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Source, target and quantity.
    pub series: SeriesId,
    /// Wall-clock label, nanoseconds since 1970-01-01 UTC.
    pub time_unix_ns: i64,
    /// The value or the typed failure.
    pub outcome: Outcome,
    /// Further facts as JSON text; empty if there are no further facts.
    pub detail: String,
}

/// How a measurement arrives at the series table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// This station measured the value, or reads it from the archive.
    Own,
    /// The station that is the source of the series measured and forwarded the value.
    Forwarded,
    /// An application submitted the value, and gave it a sequence number.
    Numbered,
    /// An application submitted the value without a sequence number. A value older than the newest
    /// of its series is too late for a forecast ([`is_late`]), and is not learnt.
    Submitted {
        /// Time of arrival (ns since 1970-01-01 UTC).
        at_unix_ns: i64,
    },
}

/// Result of offering a measurement to the series table.
#[derive(Clone, Debug, PartialEq)]
pub enum ObserveResult {
    /// The newest measurement of its series, as a point.
    New(SeriesPoint),
    /// The measurement is older than the newest measurement of its series, and was not learnt.
    Late,
    /// The source or the target was removed from the mesh ([`SeriesTable::remove_station`]).
    Removed,
    /// The series table is full, and the series is new.
    Refused,
    /// The battery does not accept the value, or the quantity cannot have it.
    Impossible,
}

/// All series with their forecasters, up to a maximum number.
#[derive(Clone, Debug)]
pub struct SeriesTable {
    states: BTreeMap<SeriesId, SeriesState>,
    quota: SeriesQuota,
    /// Stations that were removed from the mesh and have not returned.
    removed: BTreeMap<Name, Removal>,
    series_max: usize,
    refused: u64,
    late: u64,
    /// Number of series with [`HORIZONS_S`], and its maximum.
    with_horizons: usize,
    with_horizons_max: usize,
    configs: ForecasterConfigs,
    methods: Methods,
}

#[derive(Clone, Copy, Debug)]
struct Removal {
    /// Time of the removal (ns since 1970-01-01 UTC).
    at_unix_ns: i64,
    /// Whether this station measures a target of this name without the mesh. All series with this
    /// name are then shown.
    is_target: bool,
}

impl SeriesTable {
    /// An empty series table for at most `series_max` series.
    #[must_use]
    pub fn new(series_max: usize) -> Self {
        let configs = ForecasterConfigs::new();
        let methods = Methods::of(&configs.with_horizons.battery);
        Self {
            states: BTreeMap::new(),
            quota: SeriesQuota::default(),
            removed: BTreeMap::new(),
            series_max,
            refused: 0,
            late: 0,
            with_horizons: 0,
            with_horizons_max: SERIES_WITH_HORIZONS_MAX,
            configs,
            methods,
        }
    }

    /// Adds a measurement of this station: keeps the forecast that was issued for it, then learns
    /// its value.
    ///
    /// A failure becomes a point and is never learnt: it is not a number (invariant 4).
    /// Measurements are used in the order of their arrival and not of their time labels, because
    /// the wall clock of a station may be set back.
    pub fn observe(&mut self, measurement: &Measurement) -> ObserveResult {
        self.observe_from(measurement, Arrival::Own)
    }

    /// As [`SeriesTable::observe`], for a measurement that may come from another station or from an
    /// application. If the source or target was removed from the mesh, `arrival` decides whether
    /// the value is accepted ([`SeriesTable::remove_station`]).
    pub fn observe_from(&mut self, measurement: &Measurement, arrival: Arrival) -> ObserveResult {
        let label_unix_ns = measurement.time_unix_ns;
        let is_after = |removal: &Removal| removal.returned_at_unix_ns() < label_unix_ns;
        if arrival == Arrival::Forwarded && self.removed.get(&measurement.series.source).is_some_and(is_after)
        {
            // A removed station that measures again is back.
            self.admit_station(&measurement.series.source);
        }
        let is_of_before = |removal: &Removal| match arrival {
            Arrival::Own | Arrival::Forwarded => label_unix_ns <= removal.returned_at_unix_ns(),
            Arrival::Numbered | Arrival::Submitted { .. } => label_unix_ns <= removal.at_unix_ns,
        };
        if self.is_hidden(&measurement.series, is_of_before) {
            return ObserveResult::Removed;
        }
        if !self.has_room_for(&measurement.series) && !self.evict_for(&measurement.series.source) {
            self.refused += 1;
            return ObserveResult::Refused;
        }
        if let Some(state) = self.states.get_mut(&measurement.series) {
            if let Arrival::Submitted { at_unix_ns } = arrival
                && is_late(label_unix_ns, state.last().time_unix_ns, at_unix_ns)
            {
                self.late += 1;
                return ObserveResult::Late;
            }
            return state.observe(measurement).map_or(ObserveResult::Impossible, ObserveResult::New);
        }
        // Add a state only for an accepted value: a state without points would be shown as a
        // series.
        let is_goodput = [Quantity::GOODPUT, Quantity::GOODPUT_DOWN].contains(&measurement.series.quantity);
        let config = if self.with_horizons >= self.with_horizons_max {
            &self.configs.next_value_only
        } else if is_goodput && self.count_with_transfers() < SERIES_WITH_TRANSFERS_MAX {
            &self.configs.with_transfers
        } else {
            &self.configs.with_horizons
        };
        let mut state = SeriesState::new(measurement, config, &self.methods);
        let Some(point) = state.observe(measurement) else { return ObserveResult::Impossible };
        self.with_horizons += usize::from(state.has_horizons());
        self.states.insert(measurement.series.clone(), state);
        self.quota.add(&measurement.series.source);
        ObserveResult::New(point)
    }

    /// Number of series with learned times of transfers. Counted only for a new series of goodput.
    fn count_with_transfers(&self) -> usize {
        self.states.values().filter(|state| state.has_transfers()).count()
    }

    /// Removes all series from and to a station that was removed from the mesh at `at_unix_ns`.
    /// Until [`SeriesTable::admit_station`], these values of its series are accepted:
    ///
    /// - what an application submits, with a label after the removal;
    /// - what this station or another station measures, with a label more than two minutes after
    ///   the removal. If the removed station itself forwards such a measurement, it is admitted.
    pub fn remove_station(&mut self, station: &Name, at_unix_ns: i64) {
        self.removed.insert(station.clone(), Removal { at_unix_ns, is_target: false });
        self.drop_series(|end| end == station);
    }

    /// As [`SeriesTable::remove_station`], if a target of this station has the same name. Its
    /// series stay, and all values are accepted.
    pub fn remove_target_station(&mut self, station: &Name, at_unix_ns: i64) {
        self.removed.insert(station.clone(), Removal { at_unix_ns, is_target: true });
    }

    /// Sets which removed stations have the same name as a target of this station. Their series are
    /// shown as long as the target exists.
    pub fn set_targets(&mut self, is_target: impl Fn(&Name) -> bool) {
        let mut hidden = Vec::new();
        for (name, removal) in &mut self.removed {
            let was_target = std::mem::replace(&mut removal.is_target, is_target(name));
            if was_target && !removal.is_target {
                hidden.push(name.clone());
            }
        }
        if !hidden.is_empty() {
            self.drop_series(|end| hidden.contains(end));
        }
    }

    fn drop_series(&mut self, has_end: impl Fn(&Name) -> bool) {
        self.states.retain(|series, _| !has_end(&series.source) && !has_end(&series.target));
        self.quota.count_again(self.states.keys().map(|series| &series.source));
        self.with_horizons = self.states.values().filter(|state| state.has_horizons()).count();
    }

    /// Reverts [`SeriesTable::remove_station`]: the station's series are learnt from the beginning.
    pub fn admit_station(&mut self, station: &Name) {
        self.removed.remove(station);
    }

    /// Whether a series of the archive is not shown, because its source or target is a removed
    /// station. `newest_unix_ns` is the label of its newest record.
    #[must_use]
    pub fn hides(&self, series: &SeriesId, newest_unix_ns: i64) -> bool {
        let is_of_before = |removal: &Removal| newest_unix_ns <= removal.returned_at_unix_ns();
        !self.states.contains_key(series) && self.is_hidden(series, is_of_before)
    }

    fn is_hidden(&self, series: &SeriesId, is_of_before: impl Fn(&Removal) -> bool) -> bool {
        let hides = |removal: &Removal| !removal.is_target && is_of_before(removal);
        [&series.source, &series.target].into_iter().any(|end| self.removed.get(end).is_some_and(hides))
    }

    /// Whether `station` is removed.
    #[must_use]
    pub fn is_removed(&self, station: &Name) -> bool {
        self.removed.contains_key(station)
    }

    /// Resets the counts of values outside their intervals to 0. Values replayed at the start are
    /// not new, and readers of a counter treat a smaller number as a restart at 0.
    pub fn restart_scores(&mut self) {
        self.states.values_mut().for_each(SeriesState::restart_scores);
    }

    /// Whether the series table accepts a measurement of `series` without removing another series.
    #[must_use]
    pub fn has_room_for(&self, series: &SeriesId) -> bool {
        self.states.len() < self.series_max || self.states.contains_key(series)
    }

    /// Reserves room for the given number of series of each source, and cancels all earlier
    /// reservations.
    pub fn reserve(&mut self, reserved: BTreeMap<Name, usize>) {
        self.quota.reserve(reserved);
    }

    /// Whether a further series of `member` is within the member's share. The share is at least the
    /// number of series reserved for the member. The share is a quarter of all series if there is
    /// also room for the series that are reserved for other sources.
    pub fn is_within_quota(&mut self, member: &Name) -> bool {
        self.mark_evictable(member);
        let count = self.count_of(member);
        if count < self.reserved_for(member) {
            return true;
        }
        count < self.series_max / MEMBER_SHARE && {
            let kept = self.unused_reserve(|source| Some(self.count_of(source)));
            self.states.len() + kept < self.series_max
        }
    }

    /// Marks a source as a member or a page: series of this source beyond its reservation may be
    /// removed for other sources.
    pub fn mark_evictable(&mut self, source: &Name) {
        self.quota.mark_evictable(source);
    }

    /// If `source` has fewer series than reserved, removes one series of the evictable source that
    /// is furthest above its own reservation. This is the series of that source that has received
    /// no point for the longest time. Returns whether a series was removed.
    fn evict_for(&mut self, source: &Name) -> bool {
        if self.reserved_for(source) <= self.count_of(source) {
            return false;
        }
        let Some(most) = self.quota.furthest_above_reserve() else { return false };
        let of_most = self.states.iter().filter(|(series, _)| series.source == *most);
        let silent = of_most.min_by_key(|(_, state)| state.last().time_unix_ns);
        let Some(series) = silent.map(|(series, _)| series.clone()) else { return false };
        if let Some(removed) = self.states.remove(&series) {
            self.with_horizons -= usize::from(removed.has_horizons());
        }
        self.quota.take_one(&series.source);
        true
    }

    /// Number of series reserved for this source.
    #[must_use]
    pub fn reserved_for(&self, source: &Name) -> usize {
        self.quota.reserved_for(source)
    }

    /// Number of reserved series that are free; `taken` returns the number of series of a source.
    pub fn unused_reserve(&self, taken: impl Fn(&Name) -> Option<usize>) -> usize {
        self.quota.unused_reserve(taken)
    }

    /// Number of series that may still be added.
    #[must_use]
    pub fn room(&self) -> usize {
        self.series_max.saturating_sub(self.states.len())
    }

    /// The state of one series.
    #[must_use]
    pub fn get(&self, series: &SeriesId) -> Option<&SeriesState> {
        self.states.get(series)
    }

    /// The series that `selector` matches, with their states, ordered by quantity, target,
    /// source.
    #[must_use]
    pub fn select(&self, selector: &Selector) -> Vec<(&SeriesId, &SeriesState)> {
        let mut found: Vec<_> = self.states.iter().filter(|(series, _)| selector.matches(series)).collect();
        found.sort_by(|(a, _), (b, _)| in_order(a, b));
        found
    }

    /// The series that `selector` matches; callers sort the series with `in_order` for lists.
    #[must_use]
    pub fn names(&self, selector: &Selector) -> Vec<SeriesId> {
        self.states.keys().filter(|series| selector.matches(series)).cloned().collect()
    }

    /// Whether `name` is the source or target of a series with a source for which `of_source` is
    /// true.
    #[must_use]
    pub fn has_end(&self, name: &Name, of_source: impl Fn(&Name) -> bool) -> bool {
        let has_end = |series: &&SeriesId| series.source == *name || series.target == *name;
        self.states.keys().filter(has_end).any(|series| of_source(&series.source))
    }

    /// Whether there is a series of this source.
    #[must_use]
    pub fn has_source(&self, source: &Name) -> bool {
        self.count_of(source) > 0
    }

    /// Number of series of one source. The number is kept in a counter, because it is read for
    /// every record of a new series.
    #[must_use]
    pub fn count_of(&self, source: &Name) -> usize {
        self.quota.count_of(source)
    }

    /// Maximum number of series that the series table accepts.
    #[must_use]
    pub fn series_max(&self) -> usize {
        self.series_max
    }

    /// Number of series in the series table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Whether the series table has no series.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Counts series of the archive for which the series table had no room during the replay.
    pub(crate) fn count_left_out(&mut self, series: usize) {
        self.refused += series as u64;
    }

    /// Number of measurements refused because the series table had no room for their series, plus
    /// the number of series left out during the replay.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Number of measurements not learnt because they were older than the newest of their series.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }
}

impl Removal {
    /// A later measurement shows that the station is back, or that a host measures it without the
    /// mesh (ns since 1970-01-01 UTC).
    fn returned_at_unix_ns(&self) -> i64 {
        self.at_unix_ns.saturating_add(RETURNED_AFTER_NS)
    }
}

/// Order of series in lists: by quantity, target, source.
pub(crate) fn in_order(a: &SeriesId, b: &SeriesId) -> std::cmp::Ordering {
    (&a.quantity, &a.target, &a.source).cmp(&(&b.quantity, &b.target, &b.source))
}

/// Index of `level` in [`LEVELS`]; `None` if its intervals are not kept.
#[must_use]
pub fn level_index(level: f64) -> Option<usize> {
    LEVELS.iter().position(|known| (known - level).abs() < 1e-9)
}

#[cfg(test)]
mod tests;
