//! Accepts records that stations forward to an archive. Records that it discards count as seen, so
//! that no gap stops a station's watermark for ever.

use std::time::Instant;

use barograph_forecast::{Failure, Name, Outcome, Quantity, Series};
use rusqlite::Transaction;

use super::store::{GAPS_ALL_MAX, Index, Row, Taken, Touched};
use crate::{HostId, Record};

/// Counts of one batch of forwarded records; see [`Local::absorb`](crate::Local::absorb).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Absorbed {
    /// Records stored by this call.
    pub stored: u64,
    /// Records seen before: stored, discarded or skipped once already.
    pub repeated: u64,
    /// Records counted as seen and not stored: older than retention keeps, not the writer's own, of
    /// a series for which the archive or the writer's share has no room, or markers of skipped
    /// numbers.
    pub discarded: u64,
    /// Records neither stored nor counted as seen, so the watermark stays below them: the archive
    /// has no room for a further origin or for a further gap in a sequence, or the record's number
    /// is too far above the origin's highest one ([`Record::may_reach`]).
    pub refused: u64,
}

/// Forwarded records that an archive did not store, by cause; see
/// [`Statistics`](crate::Statistics).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotKept {
    /// Discarded: the archive has no room for a further series of any member
    /// ([`Config::series_max`](crate::Config::series_max)).
    pub series: u64,
    /// Discarded: the member has used its share of all series.
    pub member_series: u64,
    /// Discarded: the record is older than retention keeps.
    pub old: u64,
    /// Discarded: the record is not its writer's own.
    pub foreign: u64,
    /// Refused: there are too many origins.
    pub origins: u64,
    /// Refused: there are too many gaps in the sequences.
    pub gaps: u64,
    /// Refused: the number is too far above the origin's highest number.
    pub numbers: u64,
}

impl NotKept {
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

/// Condition on which a batch is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// All records are stored, or the batch is refused.
    Whole,
    /// Each record is stored, discarded or refused by itself; see
    /// [`Local::absorb`](crate::Local::absorb).
    Forwarded,
}

impl Index {
    /// Returns the counter of the reason to discard a forwarded record that is seen for the first
    /// time; `None` if the record is stored.
    ///
    /// One member gets at most its share of series, and all members together leave a share for the
    /// station itself.
    fn why_discarded<'n>(
        &self,
        record: &Record,
        cutoff_unix_ns: i64,
        not_kept: &'n mut NotKept,
    ) -> Option<&'n mut u64> {
        if !record.is_own() {
            return Some(&mut not_kept.foreign);
        }
        if record.time_unix_ns < cutoff_unix_ns {
            return Some(&mut not_kept.old);
        }
        if self.series.contains_key(&record.series) {
            return None;
        }
        let (share, of_source) = (self.series_max / SHARE, self.series_of.get(&record.series.source));
        if share <= of_source.copied().unwrap_or(0) {
            return Some(&mut not_kept.member_series);
        }
        (self.series_max - share <= self.series.len()).then_some(&mut not_kept.series)
    }

    /// Returns the counter of the reason to refuse a forwarded record; `None` if it may count as
    /// seen.
    fn why_refused<'n>(
        &mut self,
        record: &Record,
        run: (u64, u64),
        not_kept: &'n mut NotKept,
    ) -> Option<&'n mut u64> {
        if !self.may_reach(&record.origin, run.1) {
            return Some(&mut not_kept.numbers);
        }
        if !self.has_room_for_origin(&record.origin) {
            return Some(&mut not_kept.origins);
        }
        let has_room = self.has_room_for_gap(&record.origin, run) && self.has_spare_gap(&record.origin, run);
        (!has_room).then_some(&mut not_kept.gaps)
    }

    /// Returns whether the run makes no further gap, or the gaps reserved for the station itself
    /// are still free. One origin has at most a tenth of all gaps anyway.
    fn has_spare_gap(&self, origin: &HostId, (first, last): (u64, u64)) -> bool {
        self.gaps() < GAPS_ALL_MAX - GAPS_ALL_MAX / SHARE || self.touches(origin, first, last)
    }

    /// Returns whether the origin may use this number. If not, logs it at most once a minute.
    fn may_reach(&mut self, origin: &HostId, seq: u64) -> bool {
        let highest = self.highest(origin);
        let may = Record::may_reach(seq, highest);
        if !may && self.complaints.is_due(origin.as_str(), Instant::now()) {
            tracing::warn!(%origin, seq, highest, "a record under a number that its station cannot have reached is not kept");
        }
        may
    }

    /// Stores, discards or refuses each record of the batch by itself.
    pub(super) fn absorb<'a>(
        &mut self,
        transaction: &Transaction<'_>,
        batch: &'a [Record],
        cutoff_unix_ns: i64,
        rows: &mut Vec<Row<'a>>,
        touched: &mut Touched<'a>,
    ) -> rusqlite::Result<Taken> {
        let (mut absorbed, mut not_kept) = Taken::default();
        for record in batch {
            let passed_over = record.passes_over();
            let run = passed_over.unwrap_or((record.seq, record.seq));
            if let Some(why) = self.why_refused(record, run, &mut not_kept) {
                *why += 1;
                absorbed.refused += 1;
            } else if !self.hold(transaction, record, run, touched)? {
                absorbed.repeated += 1;
            } else if passed_over.is_some() {
                // A marker has no measurement, so its cause is not counted.
                absorbed.discarded += 1;
            } else if let Some(why) = self.why_discarded(record, cutoff_unix_ns, &mut not_kept) {
                *why += 1;
                absorbed.discarded += 1;
            } else {
                self.place(transaction, record, rows)?;
                absorbed.stored += 1;
            }
        }
        Ok((absorbed, not_kept))
    }
}

impl Record {
    /// Makes a marker that is never stored: it reports to an archive that the numbers `first` to
    /// `last` of this station will get no record. [`Local::absorb`](crate::Local::absorb) counts
    /// them as seen. Use it only for numbers without a record.
    ///
    /// The marker has a source other than its origin, so an engine without support for markers
    /// stores no measurement, at most the number. Its detail has the first number of the run.
    #[must_use]
    pub fn passing_over(origin: &HostId, first: u64, last: u64) -> Self {
        let nobody = Name::new(NOBODY).expect("it is a name");
        // A station may itself have the name that markers use as their source. Then its markers use
        // a different source.
        let source = if *origin == nobody { Name::new(NOBODY_ELSE).expect("it is a name") } else { nobody };
        Self {
            origin: origin.clone(),
            seq: last,
            series: Series { source, target: origin.clone(), quantity: Quantity::LOSS },
            time_unix_ns: 0,
            outcome: Outcome::Failed { failure: Failure::Refused, after_s: 0.0 },
            detail: format!("{DETAIL_BEFORE}{first}{DETAIL_AFTER}"),
        }
    }

    /// Returns the first and last number that this marker skips; `None` for an ordinary record.
    #[must_use]
    pub fn passes_over(&self) -> Option<(u64, u64)> {
        let first = self.detail.strip_prefix(DETAIL_BEFORE)?.strip_suffix(DETAIL_AFTER)?;
        let first = first.parse().ok().filter(|first| (1..=self.seq).contains(first))?;
        (!self.is_own()).then_some((first, self.seq))
    }
}

/// Divisor of all series: one member gets at most an eighth. That is enough for thousands of
/// targets, and one faulty member leaves room for the others. A further eighth is reserved for the
/// station itself.
pub(super) const SHARE: usize = 8;

/// Source of a marker, which no station measured.
const NOBODY: &str = "nobody";

/// Source of a marker of a station that has that name itself.
const NOBODY_ELSE: &str = "nobody-else";

/// JSON of the detail around the first number.
const DETAIL_BEFORE: &str = "{\"passes_over_from\":";
const DETAIL_AFTER: &str = "}";
