//! Accepts records that stations forward to an archive. Records that the archive discards count as
//! seen; otherwise a gap would stop the station's watermark for ever.

use std::time::Instant;

use barograph_forecast::{Failure, Name, Outcome, Quantity, SeriesId};
use rusqlite::Transaction;

use super::store::{BatchResult, ChangedRanges, GAPS_ALL_MAX, Index, Row};
use crate::{HostId, Record};

/// Counts of one batch of forwarded records; see
/// [`Local::append_forwarded`](crate::Local::append_forwarded).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardedCounts {
    /// Number of records that this call stored.
    pub stored: u64,
    /// Number of records that were seen before: each was stored, discarded or skipped once already.
    pub repeated: u64,
    /// Number of records that were counted as seen and not stored. There are four causes: the
    /// record is older than retention keeps, is not the writer's own, belongs to a series for which
    /// the archive or the writer's share has no room, or is a marker of skipped numbers.
    pub discarded: u64,
    /// Number of records that were neither stored nor counted as seen, so the watermark stays below
    /// them. The cause is one of these: the archive has no room for a further origin or for a
    /// further gap in a sequence, or the record's number is too far above the origin's highest one
    /// ([`Record::is_seq_plausible`]).
    pub refused: u64,
}

/// Forwarded records that an archive did not store, by cause; see
/// [`LocalStatistics`](crate::LocalStatistics).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounts {
    /// Number of records that were discarded because the archive has no room for a further series
    /// of any member ([`LocalConfig::series_max`](crate::LocalConfig::series_max)).
    pub series: u64,
    /// Number of records that were discarded because the member has used its share of all series.
    pub member_series: u64,
    /// Number of records that were discarded because they are older than retention keeps.
    pub old: u64,
    /// Number of records that were discarded because they are not their writer's own.
    pub foreign: u64,
    /// Number of records that were refused because there are too many origins.
    pub origins: u64,
    /// Number of records that were refused because there are too many gaps in the sequences.
    pub gaps: u64,
    /// Number of records that were refused because their sequence numbers are too far above the
    /// highest number of their origin.
    pub numbers: u64,
}

impl DropCounts {
    pub(super) fn add(&mut self, other: Self) {
        self.series += other.series;
        self.member_series += other.member_series;
        self.old += other.old;
        self.foreign += other.foreign;
        self.origins += other.origins;
        self.gaps += other.gaps;
        self.numbers += other.numbers;
    }
}

/// Whether a batch is stored as a whole, or each record by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AppendMode {
    /// All records are stored, or the batch is refused.
    AllOrNothing,
    /// Like [`AllOrNothing`](Self::AllOrNothing), for records that a caller numbers; see
    /// [`Local::append_numbered`](crate::Local::append_numbered).
    Numbered,
    /// Each record is stored, discarded or refused by itself; see
    /// [`Local::append_forwarded`](crate::Local::append_forwarded).
    Forwarded,
}

impl Index {
    /// Returns the counter of the reason to discard a forwarded record that is seen for the first
    /// time; `None` if the record is stored.
    ///
    /// One member gets at most its share of series, and all members together leave a share for the
    /// station itself.
    fn discard_counter<'n>(
        &self,
        record: &Record,
        cutoff_unix_ns: i64,
        dropped_by_cause: &'n mut DropCounts,
    ) -> Option<&'n mut u64> {
        if !record.is_own() {
            return Some(&mut dropped_by_cause.foreign);
        }
        if record.time_unix_ns < cutoff_unix_ns {
            return Some(&mut dropped_by_cause.old);
        }
        if self.series.contains_key(&record.series) {
            return None;
        }
        let (share, of_source) =
            (self.series_max / MEMBER_DIVISOR, self.series_of.get(&record.series.source));
        if share <= of_source.copied().unwrap_or(0) {
            return Some(&mut dropped_by_cause.member_series);
        }
        (self.series_max - share <= self.series.len()).then_some(&mut dropped_by_cause.series)
    }

    /// Returns the counter of the reason to refuse a forwarded record; `None` if the record may
    /// count as seen.
    fn refuse_counter<'n>(
        &mut self,
        record: &Record,
        run: (u64, u64),
        dropped_by_cause: &'n mut DropCounts,
    ) -> Option<&'n mut u64> {
        if !self.is_seq_plausible(&record.origin, run.1) {
            return Some(&mut dropped_by_cause.numbers);
        }
        if !self.has_room_for_origin(&record.origin) {
            return Some(&mut dropped_by_cause.origins);
        }
        let has_room = self.has_room_for_gap(&record.origin, run) && self.has_spare_gap(&record.origin, run);
        (!has_room).then_some(&mut dropped_by_cause.gaps)
    }

    /// Returns true if the run of numbers makes no further gap, or if gaps are free besides those
    /// that are reserved for the station itself. A different limit already keeps each origin to a
    /// tenth of all gaps.
    fn has_spare_gap(&self, origin: &HostId, (first, last): (u64, u64)) -> bool {
        self.gaps() < GAPS_ALL_MAX - GAPS_ALL_MAX / MEMBER_DIVISOR || self.touches(origin, first, last)
    }

    /// Returns whether the origin may use this number. If not, logs a warning, at most once a
    /// minute for each origin.
    fn is_seq_plausible(&mut self, origin: &HostId, seq: u64) -> bool {
        let highest = self.highest(origin);
        let may = Record::is_seq_plausible(seq, highest);
        if !may && self.log_limiter.is_due(origin.as_str(), Instant::now()) {
            tracing::warn!(
                %origin, seq, highest,
                "refused a record: its sequence number is too far above the station's highest"
            );
        }
        may
    }

    /// Stores, discards or refuses each record of the batch by itself.
    pub(super) fn append_forwarded<'a>(
        &mut self,
        transaction: &Transaction<'_>,
        batch: &'a [Record],
        cutoff_unix_ns: i64,
        rows: &mut Vec<Row<'a>>,
        changed: &mut ChangedRanges<'a>,
    ) -> rusqlite::Result<BatchResult> {
        let (mut counts, mut dropped_by_cause) = BatchResult::default();
        for record in batch {
            let skipped = record.skipped_range();
            let run = skipped.unwrap_or((record.seq, record.seq));
            if let Some(counter) = self.refuse_counter(record, run, &mut dropped_by_cause) {
                *counter += 1;
                counts.refused += 1;
                continue;
            }
            self.mark_forwarded(transaction, &record.origin)?;
            if !self.mark_seen(transaction, record, run, changed)? {
                counts.repeated += 1;
            } else if skipped.is_some() {
                // A marker has no measurement, so its cause is not counted.
                counts.discarded += 1;
            } else if let Some(counter) = self.discard_counter(record, cutoff_unix_ns, &mut dropped_by_cause)
            {
                *counter += 1;
                counts.discarded += 1;
            } else {
                self.add_row(transaction, record, rows)?;
                counts.stored += 1;
            }
        }
        Ok((counts, dropped_by_cause))
    }
}

impl Record {
    /// Makes a marker that is never stored: it reports to an archive that the numbers `first` to
    /// `last` of this station will get no record.
    /// [`Local::append_forwarded`](crate::Local::append_forwarded) counts these numbers as seen.
    /// Use a marker only for numbers without a record.
    ///
    /// The marker has a source other than its origin, so an engine without support for markers
    /// stores no measurement of the origin. At most, that engine counts the number of the marker as
    /// seen. The marker's detail has the first number of the run.
    #[must_use]
    pub fn skip_marker(origin: &HostId, first: u64, last: u64) -> Self {
        let usual = Name::new(SKIP_SOURCE).expect("it is a name");
        // If a station has the name that markers use as their source, the markers of this station
        // use a different source.
        let source =
            if *origin == usual { Name::new(SKIP_SOURCE_ALTERNATIVE).expect("it is a name") } else { usual };
        Self {
            origin: origin.clone(),
            seq: last,
            series: SeriesId { source, target: origin.clone(), quantity: Quantity::LOSS },
            time_unix_ns: 0,
            outcome: Outcome::Failed { failure: Failure::Refused, after_s: 0.0 },
            detail: format!("{DETAIL_BEFORE}{first}{DETAIL_AFTER}"),
        }
    }

    /// Returns the first and last number that this marker skips; `None` for an ordinary record.
    #[must_use]
    pub fn skipped_range(&self) -> Option<(u64, u64)> {
        let first = self.detail.strip_prefix(DETAIL_BEFORE)?.strip_suffix(DETAIL_AFTER)?;
        let first = first.parse().ok().filter(|first| (1..=self.seq).contains(first))?;
        (!self.is_own()).then_some((first, self.seq))
    }
}

/// Divisor of the number of all series: one member gets at most an eighth. An eighth is enough for
/// thousands of targets, and leaves room for other members if one member is faulty. A further
/// eighth is reserved for the station itself.
pub(super) const MEMBER_DIVISOR: usize = 8;

/// Source of a marker, which no station measured.
const SKIP_SOURCE: &str = "nobody";

/// Source of a marker if the origin of the marker has the name of the usual source.
const SKIP_SOURCE_ALTERNATIVE: &str = "nobody-else";

/// Detail of a marker, as JSON: the text before and after the first skipped number.
const DETAIL_BEFORE: &str = "{\"passes_over_from\":";
const DETAIL_AFTER: &str = "}";
