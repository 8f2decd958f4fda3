//! What the archive holds, and the ways to ask for it.

use barograph_forecast::{Battery, Name, Outcome, Quantity, Series};

use crate::{Error, HostId};

/// One measurement as stored: who says so, in which order, of what, when, and what came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The station that wrote it.
    pub origin: HostId,
    /// Its place in that station's own sequence, from 1; (origin, seq) is the record's identity.
    pub seq: u64,
    /// What was measured.
    pub series: Series,
    /// Wall-clock label, nanoseconds since 1970-01-01 UTC.
    pub time_unix_ns: i64,
    /// The value or the typed failure.
    pub outcome: Outcome,
    /// Further facts beside the value (TCP_INFO, raw goodput) as a JSON text of at most
    /// [`Record::DETAIL_BYTES_MAX`]; empty = none.
    pub detail: String,
}

impl Record {
    /// The longest detail, in bytes: room for TCP_INFO several times over, and small enough that
    /// a full queue of records stays a bounded piece of memory.
    pub const DETAIL_BYTES_MAX: usize = 4096;

    /// The highest sequence: integers up to 2⁵³ survive JSON numbers (RFC 8259 §6), and a station
    /// that makes a million records a second needs 285 years to get there.
    pub const SEQ_MAX: u64 = 1 << 53;

    /// The highest sequence that an archive takes of an origin that has used none near it, half of
    /// [`Self::SEQ_MAX`]: a million records a second for 142 years. Above it a sequence grows by at most
    /// [`Self::SEQ_STEP_MAX`] at a time, so that no single record uses it up.
    pub const SEQ_JUMP_MAX: u64 = Self::SEQ_MAX / 2;

    /// How far above the highest number of its origin a record may be beyond [`Self::SEQ_JUMP_MAX`]: as far as the
    /// last record of the largest batch.
    pub const SEQ_STEP_MAX: u64 = Self::BATCH_MAX as u64;

    /// Above this a sequence is used up by mistake or malice: in steps of [`Self::SEQ_STEP_MAX`] above
    /// [`Self::SEQ_JUMP_MAX`] it takes more than 2·10¹¹ records to get here.
    #[cfg(feature = "local")]
    pub(crate) const SEQ_BURNT_ABOVE: u64 = Self::SEQ_JUMP_MAX + Self::SEQ_JUMP_MAX / 2;

    /// The latest time label, 2200-01-01 UTC: later ones are a wrong unit or a broken clock.
    pub const TIME_MAX_UNIX_NS: i64 = 7_258_118_400_000_000_000;

    /// About what it takes of [`Range::BYTES_MAX`].
    #[cfg(feature = "local")]
    pub(crate) fn page_bytes(&self) -> usize {
        /// As JSON, beside its detail and the names of its series.
        const OTHERS: usize = 256;
        let Series { source, target, quantity } = &self.series;
        let names = source.as_str().len() + target.as_str().len() + quantity.as_str().len();
        OTHERS + names + self.detail.len()
    }

    /// The most records in one append: one transaction of them takes well under a second.
    pub const BATCH_MAX: usize = 10_000;

    /// Whether the record is of a measurement that its writer made itself: in a mesh no station can
    /// write what another one has measured.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.origin == self.series.source
    }

    /// Whether `seq` may come from an origin whose highest number so far is `highest`; see
    /// [`Self::SEQ_JUMP_MAX`].
    #[must_use]
    pub fn may_reach(seq: u64, highest: u64) -> bool {
        seq <= Self::reach(highest)
    }

    /// The highest number that may come from an origin whose highest number so far is `highest`.
    pub(crate) fn reach(highest: u64) -> u64 {
        Self::SEQ_JUMP_MAX.max(highest.saturating_add(Self::SEQ_STEP_MAX))
    }

    /// Whether the record keeps the limits of an archive.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the value that does not: a sequence outside 1 to
    /// [`Self::SEQ_MAX`], a time outside 1970 to 2200, a value that is not finite or beyond
    /// [`Battery::VALUE_MAX`] (it could be stored, but never be forecast from), a duration that is
    /// negative or not finite, a detail that is too long or holds control characters.
    pub fn check(&self) -> Result<(), Error> {
        let invalid =
            |what: String| Err(Error::Invalid(format!("record {} of {}: {what}", self.seq, self.origin)));
        if !(1..=Self::SEQ_MAX).contains(&self.seq) {
            return invalid(format!("the sequence is not in 1 to {}", Self::SEQ_MAX));
        }
        if !(0..=Self::TIME_MAX_UNIX_NS).contains(&self.time_unix_ns) {
            return invalid(format!("the time {} ns is not between 1970 and 2200", self.time_unix_ns));
        }
        match self.outcome {
            Outcome::Value(value) if !value.is_finite() => {
                return invalid(format!("the value {value} is not finite"));
            }
            Outcome::Value(value) if Battery::VALUE_MAX < value.abs() => {
                return invalid(format!(
                    "the value {value:e} is out of range (at most {:e} either way)",
                    Battery::VALUE_MAX
                ));
            }
            Outcome::Failed { after_s, .. } if !(after_s.is_finite() && 0.0 <= after_s) => {
                return invalid(format!("the failure's time {after_s} s is not a duration"));
            }
            _ => {}
        }
        if Self::DETAIL_BYTES_MAX < self.detail.len() {
            return invalid(format!(
                "the detail has {} bytes (at most {})",
                self.detail.len(),
                Self::DETAIL_BYTES_MAX
            ));
        }
        // JSON text has no control characters but white space (RFC 8259 §2, §7).
        match self.detail.chars().find(|c| c.is_control() && !matches!(c, '\t' | '\n' | '\r')) {
            Some(character) => invalid(format!("the detail has the control character {character:?}")),
            None => Ok(()),
        }
    }
}

/// Which series, by any of source, target and quantity; `None` matches all.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Selector {
    /// The source to match.
    pub source: Option<Name>,
    /// The target to match.
    pub target: Option<Name>,
    /// The quantity to match.
    pub quantity: Option<Quantity>,
}

impl Selector {
    /// Whether `series` is one of those selected.
    #[must_use]
    pub fn matches(&self, series: &Series) -> bool {
        self.source.as_ref().is_none_or(|source| *source == series.source)
            && self.target.as_ref().is_none_or(|target| *target == series.target)
            && self.quantity.as_ref().is_none_or(|quantity| *quantity == series.quantity)
    }
}

/// A place in an engine's own order of records (or of series, for `latest`); opaque outside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(pub u64);

/// Where a subscription begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// With the next record to be stored. A subscriber that falls far behind skips to the present
    /// and is told so.
    Now,
    /// With the oldest record kept; every record follows.
    Oldest,
    /// After this place; every record still kept follows.
    After(Cursor),
}

/// Which part of a series' history, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Earliest time, inclusive, Unix nanoseconds.
    pub from_unix_ns: i64,
    /// Latest time, exclusive, Unix nanoseconds.
    pub until_unix_ns: i64,
    /// At most so many records a page, 1 to [`Range::LIMIT_MAX`]; a page may end earlier
    /// ([`Range::BYTES_MAX`]).
    pub limit: usize,
    /// Continue after this place, taken from [`Page::next`].
    pub after: Option<Cursor>,
}

impl Range {
    /// The most records a page may hold: a few megabytes at most of ordinary records.
    pub const LIMIT_MAX: usize = 10_000;

    /// A page ends, with a place to continue at, where its records would take more bytes: room for
    /// [`Range::LIMIT_MAX`] without long details.
    pub const BYTES_MAX: usize = 4 << 20;

    /// The newest `limit` records of all times.
    #[must_use]
    pub fn newest(limit: usize) -> Self {
        Self { from_unix_ns: i64::MIN, until_unix_ns: i64::MAX, limit, after: None }
    }
}

/// A page of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// What was found.
    pub items: Vec<T>,
    /// Where the next page begins; `None` = there is no more.
    pub next: Option<Cursor>,
}
