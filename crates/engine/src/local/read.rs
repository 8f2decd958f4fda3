//! Reads of the archive: pages of history, the newest record of each series, records after a
//! cursor.

use std::sync::Arc;

use barograph_forecast::{Failure, Name, Outcome, Quantity, SeriesId};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use tokio::sync::Mutex;

use super::files::Files;
use super::store::wall_unix_ns;
use crate::{Cursor, EngineError, HostId, Page, Range, Record, Selector};

/// The connection that reads the archive; a different connection writes. Reads use this connection
/// one after the other, and never wait for a commit.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) files: Arc<Files>,
    connection: Arc<Mutex<Connection>>,
    /// Lock that lets only one subscription at a time scan much of the archive for few records.
    pub(super) scan: Arc<Mutex<()>>,
}

/// A range of records in the order of storing.
pub(super) struct RecordRange {
    /// The selected records, in order.
    pub(super) records: Vec<(Cursor, Record)>,
    /// Highest position that retention had removed at the time of the read.
    pub(super) removed: u64,
}

impl Reader {
    pub(super) fn open(files: Arc<Files>) -> Result<Self, EngineError> {
        let connection = Arc::new(Mutex::new(files.open_reader()?));
        Ok(Self { files, connection, scan: Arc::default() })
    }

    /// Reads a page of history. The page has at most about `bytes_max` bytes.
    pub(super) async fn history(
        &self,
        series: &SeriesId,
        range: &Range,
        bytes_max: usize,
    ) -> Result<Page<Record>, EngineError> {
        check_limit(range.limit)?;
        let (series, range) = (series.clone(), *range);
        self.read(move |connection| history(connection, &series, &range, bytes_max)).await?.map_err(
            |NoLongerStored(cursor)| {
                EngineError::TooOld(format!(
                    "the record at {} is no longer stored; start again with the first page",
                    cursor.0
                ))
            },
        )
    }

    pub(super) async fn latest(
        &self,
        selector: &Selector,
        after: Option<Cursor>,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Page<Record>, EngineError> {
        check_limit(limit)?;
        let selector = selector.clone();
        self.read(move |connection| latest(connection, &selector, after, limit, bytes_max)).await
    }

    /// Reads the selected records with positions in (`after`, `until`]. Keeps `lock` until
    /// the records are read, even if no caller waits any more, and returns the lock.
    pub(super) async fn read_record_range<T: Send + 'static>(
        &self,
        selector: &Selector,
        after: u64,
        until: u64,
        lock: T,
    ) -> Result<(RecordRange, T), EngineError> {
        let selector = selector.clone();
        self.read(move |connection| Ok((read_record_range(connection, &selector, after, until)?, lock))).await
    }

    /// Returns the watermark and the highest sequence number of `origin`; both are 0 if nothing was
    /// stored.
    pub(super) async fn sequences(&self, origin: &HostId) -> Result<(u64, u64), EngineError> {
        let origin = origin.clone();
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT coalesce(max(last) FILTER (WHERE first = 1), 0), coalesce(max(last), 0)
                 FROM held JOIN origin ON held.origin = origin.id WHERE name = ?1",
            )?;
            statement.query_row([origin.as_str()], |row| {
                Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(1)?.cast_unsigned()))
            })
        })
        .await
    }

    /// Returns whether `origin` ever forwarded a record to this archive.
    pub(super) async fn has_forwarded(&self, origin: &HostId) -> Result<bool, EngineError> {
        let origin = origin.clone();
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT EXISTS (
                     SELECT 1 FROM forwarded JOIN origin ON origin.id = forwarded.origin WHERE name = ?1
                 )",
            )?;
            statement.query_row([origin.as_str()], |row| row.get(0))
        })
        .await
    }

    pub(super) async fn series_presence(
        &self,
        all: Vec<SeriesId>,
    ) -> Result<Vec<SeriesPresence>, EngineError> {
        self.read(move |connection| all.iter().map(|series| series_presence(connection, series)).collect())
            .await
    }

    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, EngineError> {
        let connection = Arc::clone(&self.connection).lock_owned().await;
        tokio::task::spawn_blocking(move || work(&connection))
            .await
            .map_err(|error| EngineError::Unavailable(format!("the read was interrupted: {error}")))?
            .map_err(|error| self.files.error(&error))
    }
}

/// The record at this position is no longer stored, or belongs to another series.
struct NoLongerStored(Cursor);

/// State of a series in the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeriesPresence {
    /// The archive has the series.
    pub(crate) is_known: bool,
    /// The newest record was written by a station other than the series' source.
    pub(crate) is_handed_in: bool,
}

fn series_presence(connection: &Connection, series: &SeriesId) -> rusqlite::Result<SeriesPresence> {
    let Some(id) = series_id(connection, series)? else {
        return Ok(SeriesPresence { is_known: false, is_handed_in: false });
    };
    let origin: Option<String> = connection
        .prepare_cached(
            "SELECT name FROM record CROSS JOIN origin ON origin.id = record.origin
             WHERE series = ?1 ORDER BY time_unix_ns DESC, cursor DESC LIMIT 1",
        )?
        .query_row([id], |row| row.get(0))
        .optional()?;
    let is_handed_in = origin.is_some_and(|origin| origin != series.source.as_str());
    Ok(SeriesPresence { is_known: true, is_handed_in })
}

fn history(
    connection: &Connection,
    series: &SeriesId,
    range: &Range,
    bytes_max: usize,
) -> rusqlite::Result<Result<Page<Record>, NoLongerStored>> {
    let Some(id) = series_id(connection, series)? else {
        return Ok(Ok(Page { items: Vec::new(), next: None }));
    };
    // The page has records below this (time, cursor). With cursor −1, records at this time are
    // excluded, because every cursor is at least 0.
    let mut below = (range.until_unix_ns, -1);
    if let Some(after) = range.after {
        let time = connection
            .prepare_cached("SELECT time_unix_ns FROM record WHERE cursor = ?1 AND series = ?2")?
            .query_row([after.0.cast_signed(), id], |row| row.get(0))
            .optional()?;
        let Some(time) = time else { return Ok(Err(NoLongerStored(after))) };
        below = below.min((time, after.0.cast_signed()));
    }
    let mut statement = connection.prepare_cached(
        "SELECT cursor, name, seq, time_unix_ns, value, failure, after_s, detail
         FROM record CROSS JOIN origin ON origin.id = record.origin
         WHERE series = ?1 AND ?2 <= time_unix_ns AND (time_unix_ns, cursor) < (?3, ?4)
         ORDER BY time_unix_ns DESC, cursor DESC LIMIT ?5",
    )?;
    // Read one record more than requested, to detect whether there is a next page.
    let mut rows =
        statement.query(params![id, range.from_unix_ns, below.0, below.1, range.limit as i64 + 1])?;
    let (mut items, mut bytes) = (Vec::new(), 0);
    let mut last = None;
    while let Some(row) = rows.next()? {
        let found = record(row, series.clone())?;
        bytes += found.page_bytes();
        if items.len() == range.limit || (!items.is_empty() && bytes > bytes_max) {
            return Ok(Ok(Page { items, next: last }));
        }
        last = Some(cursor(row)?);
        items.push(found);
    }
    Ok(Ok(Page { items, next: None }))
}

fn latest(
    connection: &Connection,
    selector: &Selector,
    after: Option<Cursor>,
    limit: usize,
    bytes_max: usize,
) -> rusqlite::Result<Page<Record>> {
    let mut all = connection.prepare_cached(
        "SELECT id, source, target, quantity FROM series
         WHERE ?1 < id AND (?2 IS NULL OR ?2 = source) AND (?3 IS NULL OR ?3 = target)
               AND (?4 IS NULL OR ?4 = quantity)
         ORDER BY id",
    )?;
    let mut newest = connection.prepare_cached(
        "SELECT cursor, name, seq, time_unix_ns, value, failure, after_s, detail
         FROM record CROSS JOIN origin ON origin.id = record.origin
         WHERE series = ?1 AND time_unix_ns <= ?2 ORDER BY time_unix_ns DESC, cursor DESC LIMIT 1",
    )?;
    // A label after `until` was written before a clock was set back. A record with such a label is
    // returned only if all records of its series have such labels.
    let until = wall_unix_ns().saturating_add(i64::try_from(Record::LABEL_AHEAD_MAX.as_nanos()).unwrap_or(0));
    let (source, target, quantity) = words(selector);
    let after = after.map_or(0, |cursor| cursor.0.cast_signed());
    let mut rows = all.query(params![after, source, target, quantity])?;
    let (mut items, mut bytes) = (Vec::new(), 0);
    let mut last = None;
    while let Some(row) = rows.next()? {
        let (id, series) = (row.get::<_, i64>(0)?, series(row, 1)?);
        let mut newest =
            |until: i64| newest.query_row([id, until], |row| record(row, series.clone())).optional();
        let Some(found) = newest(until)?.map_or_else(|| newest(i64::MAX), |found| Ok(Some(found)))? else {
            continue;
        };
        bytes += found.page_bytes();
        if items.len() == limit || (!items.is_empty() && bytes > bytes_max) {
            return Ok(Page { items, next: last });
        }
        last = Some(Cursor(id.cast_unsigned()));
        items.push(found);
    }
    Ok(Page { items, next: None })
}

fn read_record_range(
    connection: &Connection,
    selector: &Selector,
    after: u64,
    until: u64,
) -> rusqlite::Result<RecordRange> {
    // Both statements run in one transaction, so that they read the same state of the archive.
    let transaction = connection.unchecked_transaction()?;
    let removed = transaction.query_row("SELECT removed FROM archive", [], |row| row.get::<_, i64>(0))?;
    let mut statement = transaction.prepare_cached(
        "SELECT cursor, name, seq, time_unix_ns, value, failure, after_s, detail, source, target, quantity
         FROM record CROSS JOIN series ON series.id = record.series
              CROSS JOIN origin ON origin.id = record.origin
         WHERE ?1 < cursor AND cursor <= ?2 AND (?3 IS NULL OR ?3 = source)
               AND (?4 IS NULL OR ?4 = target) AND (?5 IS NULL OR ?5 = quantity)
         ORDER BY cursor",
    )?;
    let (source, target, quantity) = words(selector);
    let records = statement
        .query_map(params![after.cast_signed(), until.cast_signed(), source, target, quantity], |row| {
            Ok((cursor(row)?, record(row, series(row, 8)?)?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok(RecordRange { records, removed: removed.cast_unsigned() })
}

fn series_id(connection: &Connection, series: &SeriesId) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT id FROM series WHERE source = ?1 AND target = ?2 AND quantity = ?3")?
        .query_row([series.source.as_str(), series.target.as_str(), series.quantity.as_str()], |row| {
            row.get(0)
        })
        .optional()
}

fn words(selector: &Selector) -> (Option<&str>, Option<&str>, Option<&str>) {
    let Selector { source, target, quantity } = selector;
    (
        source.as_ref().map(Name::as_str),
        target.as_ref().map(Name::as_str),
        quantity.as_ref().map(Quantity::as_str),
    )
}

fn cursor(row: &Row<'_>) -> rusqlite::Result<Cursor> {
    row.get::<_, i64>(0).map(|cursor| Cursor(cursor.cast_unsigned()))
}

/// Builds a record from columns 1 to 7 of the row.
pub(super) fn record(row: &Row<'_>, series: SeriesId) -> rusqlite::Result<Record> {
    let outcome = match row.get(4)? {
        Some(value) => Outcome::Value(value),
        None => {
            let word: String = row.get(5)?;
            let failure =
                Failure::from_word(&word).ok_or_else(|| malformed(5, format!("unknown failure {word:?}")))?;
            Outcome::Failed { failure, after_s: row.get(6)? }
        }
    };
    Ok(Record {
        origin: name(row, 1)?,
        seq: row.get::<_, i64>(2)?.cast_unsigned(),
        series,
        time_unix_ns: row.get(3)?,
        outcome,
        detail: row.get(7)?,
    })
}

/// Builds a series from three columns of the row: `first` and the two after it.
pub(super) fn series(row: &Row<'_>, first: usize) -> rusqlite::Result<SeriesId> {
    Ok(SeriesId {
        source: name(row, first)?,
        target: name(row, first + 1)?,
        quantity: quantity(row, first + 2)?,
    })
}

pub(super) fn name(row: &Row<'_>, column: usize) -> rusqlite::Result<Name> {
    Name::new(row.get_ref(column)?.as_str()?).map_err(|error| malformed(column, error.to_string()))
}

pub(super) fn quantity(row: &Row<'_>, column: usize) -> rusqlite::Result<Quantity> {
    Quantity::new(row.get_ref(column)?.as_str()?).map_err(|error| malformed(column, error.to_string()))
}

fn malformed(column: usize, what: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, what.into())
}

fn check_limit(limit: usize) -> Result<(), EngineError> {
    if (1..=Range::LIMIT_MAX).contains(&limit) {
        return Ok(());
    }
    Err(EngineError::Invalid(format!("a page has 1 to {} records, not {limit}", Range::LIMIT_MAX)))
}
