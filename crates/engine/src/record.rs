//! Records of the archive, and the selections with which they are read.

use barograph_forecast::{Battery, Name, Outcome, Quantity, SeriesId};

use crate::{EngineError, HostId};

/// A measurement as it is stored, with its origin, sequence number and time label.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Station that made the record.
    pub origin: HostId,
    /// Position among the records of the origin, from 1. (origin, seq) identifies the record.
    pub seq: u64,
    /// Source, target and quantity of the measurement.
    pub series: SeriesId,
    /// Time label by the wall clock, in nanoseconds since 1970-01-01 UTC.
    pub time_unix_ns: i64,
    /// The measured value, or the reason of the failure and the time until the failure.
    pub outcome: Outcome,
    /// Further facts (TCP_INFO, raw goodput) as a JSON text of at most [`Record::DETAIL_BYTES_MAX`]
    /// bytes; empty if there are no further facts.
    pub detail: String,
}

impl Record {
    /// Longest detail, in bytes. Several TCP_INFO fit, and a full queue of records still takes a
    /// bounded amount of memory.
    pub const DETAIL_BYTES_MAX: usize = 4096;

    /// Highest sequence number. JSON numbers are exact up to 2⁵³ (RFC 8259 §6). At a million
    /// records a second, a station reaches this number after 285 years.
    pub const SEQ_MAX: u64 = 1 << 53;

    /// An origin may jump to any sequence number up to this number: half of [`Self::SEQ_MAX`], or
    /// 142 years at a million records a second. Above this number, a new sequence number may exceed
    /// the origin's highest number by at most [`Self::SEQ_STEP_MAX`], so that no single record uses
    /// up the sequence.
    pub const SEQ_JUMP_MAX: u64 = Self::SEQ_MAX / 2;

    /// Largest step above the origin's highest sequence number, beyond [`Self::SEQ_JUMP_MAX`]. The
    /// last record of the largest batch is still within this step.
    pub const SEQ_STEP_MAX: u64 = Self::BATCH_MAX as u64;

    /// Number above which a sequence counts as used up by mistake or malice: from
    /// [`Self::SEQ_JUMP_MAX`], in steps of [`Self::SEQ_STEP_MAX`], more than 2·10¹¹ records are
    /// needed to reach this number.
    #[cfg(feature = "local")]
    pub(crate) const SEQ_EXHAUSTED_ABOVE: u64 = Self::SEQ_JUMP_MAX + Self::SEQ_JUMP_MAX / 2;

    /// Latest time label, 2200-01-01 UTC. A later label comes from a wrong unit or a broken clock.
    pub const TIME_MAX_UNIX_NS: i64 = 7_258_118_400_000_000_000;

    /// Approximate number of bytes that the record takes of [`Range::BYTES_MAX`].
    #[cfg(feature = "local")]
    pub(crate) fn page_bytes(&self) -> usize {
        /// Number of bytes of a record as JSON, without the detail and the names of the series.
        const OTHERS: usize = 256;
        let SeriesId { source, target, quantity } = &self.series;
        let names = source.as_str().len() + target.as_str().len() + quantity.as_str().len();
        OTHERS + names + self.detail.len()
    }

    /// Largest number of records in one append. One transaction with this number of records takes
    /// well under a second.
    pub const BATCH_MAX: usize = 10_000;

    /// Returns whether the origin measured the record itself. In a mesh, no station can write
    /// measurements of a different station.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.origin == self.series.source
    }

    /// Returns whether an origin may use `seq` next, if its highest number is `highest`. See
    /// [`Self::SEQ_JUMP_MAX`].
    #[must_use]
    pub fn is_seq_plausible(seq: u64, highest: u64) -> bool {
        seq <= Self::reach(highest)
    }

    /// Highest number that an origin may use next, if its highest number is `highest`.
    pub(crate) fn reach(highest: u64) -> u64 {
        Self::SEQ_JUMP_MAX.max(highest.saturating_add(Self::SEQ_STEP_MAX))
    }

    /// Checks that the record is within the limits of an archive.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] with the value that is out of range:
    /// - a sequence number outside 1 to [`Self::SEQ_MAX`]
    /// - a time label outside 1970 to 2200
    /// - a value that is not finite, or beyond [`Battery::VALUE_MAX`]: it could be stored, but no
    ///   forecast could be made from it
    /// - a duration that is negative or not finite
    /// - a detail that is too long or has control characters
    pub fn check(&self) -> Result<(), EngineError> {
        let invalid = |what: String| {
            Err(EngineError::Invalid(format!("record {} of {}: {what}", self.seq, self.origin)))
        };
        if !(1..=Self::SEQ_MAX).contains(&self.seq) {
            return invalid(format!("the sequence number is not in 1 to {}", Self::SEQ_MAX));
        }
        if !(0..=Self::TIME_MAX_UNIX_NS).contains(&self.time_unix_ns) {
            return invalid(format!("the time {} ns is not between 1970 and 2200", self.time_unix_ns));
        }
        match self.outcome {
            Outcome::Value(value) if !value.is_finite() => {
                return invalid(format!("the value {value} is not finite"));
            }
            Outcome::Value(value) if value.abs() > Battery::VALUE_MAX => {
                return invalid(format!(
                    "the value {value:e} is out of range: its magnitude may be at most {:e}",
                    Battery::VALUE_MAX
                ));
            }
            Outcome::Failed { after_s, .. } if !(after_s.is_finite() && after_s >= 0.0) => {
                return invalid(format!("the time until the failure, {after_s} s, is not a duration"));
            }
            _ => {}
        }
        if self.detail.len() > Self::DETAIL_BYTES_MAX {
            return invalid(format!(
                "the detail has {} bytes (at most {})",
                self.detail.len(),
                Self::DETAIL_BYTES_MAX
            ));
        }
        // JSON text has no control characters except white space (RFC 8259 §2, §7).
        match self.detail.chars().find(|c| c.is_control() && !matches!(c, '\t' | '\n' | '\r')) {
            Some(character) => invalid(format!("the detail has the control character {character:?}")),
            None => Ok(()),
        }
    }
}

/// Selects series by source, target and quantity. `None` matches all.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Selector {
    /// Source of the series; `None` matches all.
    pub source: Option<Name>,
    /// Target of the series; `None` matches all.
    pub target: Option<Name>,
    /// Quantity of the series; `None` matches all.
    pub quantity: Option<Quantity>,
}

impl Selector {
    /// Returns whether `series` is selected.
    #[must_use]
    pub fn matches(&self, series: &SeriesId) -> bool {
        self.source.as_ref().is_none_or(|source| *source == series.source)
            && self.target.as_ref().is_none_or(|target| *target == series.target)
            && self.quantity.as_ref().is_none_or(|quantity| *quantity == series.quantity)
    }
}

/// Position in an engine's own order of records, or of series for
/// [`Engine::latest`](crate::Engine::latest). The position has no meaning outside that engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(pub u64);

/// Start of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// Start with the next record that is stored. A subscriber that falls far behind gets
    /// [`EngineError::Lagged`], and continues with the newest records.
    Now,
    /// Start with the oldest record that is stored. Every record follows.
    Oldest,
    /// Start after this position. Every record that is still stored follows.
    After(Cursor),
}

/// Selects a part of the history of a series: a range of time, the length of a page, and a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Earliest time, inclusive, Unix nanoseconds.
    pub from_unix_ns: i64,
    /// Latest time, exclusive, Unix nanoseconds.
    pub until_unix_ns: i64,
    /// Largest number of records in a page, 1 to [`Range::LIMIT_MAX`]. A page may end earlier
    /// ([`Range::BYTES_MAX`]).
    pub limit: usize,
    /// Continue after this position, which is [`Page::next`] of the page before.
    pub after: Option<Cursor>,
}

impl Range {
    /// Largest number of records in a page. Ordinary records of this number take a few megabytes at
    /// most.
    pub const LIMIT_MAX: usize = 10_000;

    /// Largest size of a page, in bytes. A page that reaches this size ends with a cursor at which
    /// the next page begins. [`Range::LIMIT_MAX`] records without long details fit in a page.
    pub const BYTES_MAX: usize = 4 << 20;

    /// Selects the newest `limit` records of all times.
    #[must_use]
    pub fn newest(limit: usize) -> Self {
        Self { from_unix_ns: i64::MIN, until_unix_ns: i64::MAX, limit, after: None }
    }
}

/// One page of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The records of this page.
    pub items: Vec<T>,
    /// Cursor at which the next page begins; `None` after the last page.
    pub next: Option<Cursor>,
}
