//! Writes to the archive: a group of batches becomes one transaction.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use barograph_forecast::{Name, Outcome, Quantity, SeriesId};
use rusqlite::{Connection, Transaction, params};

use super::clock::RetentionClock;
use super::files::Files;
use super::forwarded::{AppendMode, DropCounts, ForwardedCounts};
use super::read::{name, quantity};
use super::repair;
use super::seq_set::SeqSet;
use super::spool::{Spool, SpoolConfig};
use super::sweep::Retention;
use crate::log_limiter::LogLimiter;
use crate::{EngineError, HostId, Record};

/// The connection that writes the archive, and the index in memory that every append needs.
pub(super) struct Store {
    pub(super) files: Arc<Files>,
    pub(super) connection: Connection,
    pub(super) retention: Retention,
    series_max: usize,
    clock: RetentionClock,
    /// Records that are forwarded to a mesh; `None` if no records are forwarded.
    pub(super) spool: Option<SpoolConfig>,
    /// Index of the archive; `None` after a failed transaction, until the index is read again.
    index: Option<Index>,
}

/// State of the archive in memory, without the records.
pub(super) struct Index {
    origins: HashMap<HostId, Origin>,
    pub(super) series: HashMap<SeriesId, i64>,
    /// Number of series of each source.
    pub(super) series_of: HashMap<HostId, usize>,
    /// Position of the newest record.
    pub(super) cursor: u64,
    /// Highest position of a record that retention removed.
    pub(super) removed: u64,
    pub(super) records: u64,
    /// Latest time label of the records so far; `None` if there is none. After retention removed
    /// records, the value may be too high until the index is read again.
    newest_unix_ns: Option<i64>,
    /// Number of runs of all origins together.
    runs: usize,
    /// Largest number of series; see [`LocalConfig::series_max`](super::LocalConfig::series_max).
    pub(super) series_max: usize,
    /// Records that wait for a mesh; `None` if no records are forwarded.
    pub(super) spool: Option<Spool>,
    pub(super) log_limiter: LogLimiter,
}

struct Origin {
    id: i64,
    seen: SeqSet,
    /// Whether a record of the origin was ever forwarded to this archive. A different station then
    /// assigns the origin's sequence numbers.
    is_forwarded: bool,
}

impl Origin {
    fn new(id: i64) -> Self {
        Self { id, seen: SeqSet::default(), is_forwarded: false }
    }
}

/// For each origin, the lowest and the highest sequence number that one transaction added.
pub(super) type ChangedRanges<'a> = HashMap<&'a HostId, (u64, u64)>;

/// Result of a batch, with the reasons for records that were not stored.
pub(super) type BatchResult = (ForwardedCounts, DropCounts);

/// A record that is to be inserted into the table.
pub(super) struct Row<'a> {
    series: i64,
    pub(super) cursor: u64,
    origin: i64,
    pub(super) record: &'a Record,
}

impl Store {
    pub(super) fn open(
        files: Arc<Files>,
        retention: Retention,
        series_max: usize,
        forwarders: &[HostId],
    ) -> Result<Self, EngineError> {
        let mut connection = files.open()?;
        repair::sequences(&mut connection).map_err(|error| files.error(&error))?;
        let index = Index::load_first(&mut connection, series_max, forwarders)
            .map_err(|error| files.error_at_opening(&error))?;
        let clock = RetentionClock::new(wall_unix_ns(), index.newest_unix_ns, Instant::now());
        Ok(Self { files, connection, retention, series_max, clock, spool: None, index: Some(index) })
    }

    /// Time before which records are too old.
    pub(super) fn cutoff_unix_ns(&mut self) -> i64 {
        let newest_unix_ns = self.index.as_ref().and_then(|index| index.newest_unix_ns);
        let present = self.clock.now_unix_ns(wall_unix_ns(), newest_unix_ns, Instant::now());
        self.retention.cutoff_unix_ns(present)
    }

    /// Stores the batches in one durable transaction. Returns a result for each batch: accepted, or
    /// the reason for the refusal.
    ///
    /// # Errors
    /// If the transaction failed. Then nothing was stored, except with [`EngineError::Unknown`].
    pub(super) fn append(
        &mut self,
        batches: &[(&[Record], AppendMode)],
    ) -> Result<Vec<Result<BatchResult, EngineError>>, EngineError> {
        let (retention, wall_unix_ns, now) = (self.retention, wall_unix_ns(), Instant::now());
        let clock = self.clock.clone();
        self.transact(|transaction, index| {
            let mut rows = Vec::with_capacity(batches.iter().map(|(batch, _)| batch.len()).sum());
            let mut changed = ChangedRanges::new();
            let mut results = Vec::with_capacity(batches.len());
            for &(batch, mode) in batches {
                let newest_unix_ns = index.newest_with(batch);
                let present = clock.clone().now_unix_ns(wall_unix_ns, newest_unix_ns, now);
                let cutoff_unix_ns = retention.cutoff_unix_ns(present);
                let result = match mode {
                    AppendMode::Forwarded => Ok(index.append_forwarded(
                        transaction,
                        batch,
                        cutoff_unix_ns,
                        &mut rows,
                        &mut changed,
                    )?),
                    AppendMode::AllOrNothing | AppendMode::Numbered => {
                        match index.refusal(batch, mode, cutoff_unix_ns) {
                            None => Ok((
                                index.admit(transaction, batch, &mut rows, &mut changed)?,
                                DropCounts::default(),
                            )),
                            Some(refusal) => Err(refusal),
                        }
                    }
                };
                if result.is_ok() {
                    index.newest_unix_ns = newest_unix_ns;
                }
                results.push(result);
            }
            index.insert(transaction, rows)?;
            index.save_seen(transaction, &changed)?;
            Ok(results)
        })
    }

    /// Runs `work` in one durable transaction. If the transaction succeeds, the index has its
    /// changes; after an error, the index is read again.
    pub(super) fn transact<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>, &mut Index) -> rusqlite::Result<T>,
    ) -> Result<T, EngineError> {
        let mut index = match self.index.take() {
            Some(index) => index,
            None => {
                let spool = self.spool.clone();
                Index::load(&self.connection, spool, self.series_max)
                    .map_err(|error| self.files.error(&error))?
            }
        };
        let transaction = self.connection.transaction().map_err(|error| self.files.error(&error))?;
        let done = work(&transaction, &mut index).map_err(|error| self.files.error(&error))?;
        transaction.commit().map_err(|error| match self.files.error(&error) {
            // If the fsync of a commit failed, the commit may be in the log or not, so the result
            // is unknown.
            EngineError::Unavailable(why) if !is_full(&error) => EngineError::Unknown(why),
            error => error,
        })?;
        self.files.committed();
        self.index = Some(index);
        Ok(done)
    }

    /// Returns the index as of the last transaction; `None` if that transaction failed.
    pub(super) fn index(&self) -> Option<&Index> {
        self.index.as_ref()
    }

    /// Bytes in use in the archive file.
    pub(super) fn bytes(&self) -> rusqlite::Result<u64> {
        let pragma = |name| self.connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let pages = pragma("page_count")? - pragma("freelist_count")?;
        Ok((pages * pragma("page_size")?).cast_unsigned())
    }
}

impl Index {
    /// Reads the index of an archive that is being opened. If the archive has no table `forwarded`,
    /// creates the table and marks `forwarders`. All changes are one transaction, so a damaged
    /// archive stays unchanged.
    fn load_first(
        connection: &mut Connection,
        series_max: usize,
        forwarders: &[HostId],
    ) -> rusqlite::Result<Self> {
        let transaction = connection.transaction()?;
        if !transaction.table_exists(None::<&str>, "forwarded")? {
            create_forwarded(&transaction, forwarders)?;
        }
        let index = Self::load(&transaction, None, series_max)?;
        transaction.commit()?;
        Ok(index)
    }

    fn load(
        connection: &Connection,
        spool: Option<SpoolConfig>,
        series_max: usize,
    ) -> rusqlite::Result<Self> {
        let mut origins = HashMap::new();
        let mut statement = connection.prepare_cached(
            "SELECT id, name, first, last FROM origin LEFT JOIN held ON held.origin = origin.id
             ORDER BY id, first",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let id = row.get(0)?;
            let origin = origins.entry(name(row, 1)?).or_insert_with(|| Origin::new(id));
            if let (Some(first), Some(last)) = (row.get::<_, Option<i64>>(2)?, row.get::<_, Option<i64>>(3)?)
            {
                origin.seen.push_run(first.cast_unsigned(), last.cast_unsigned());
            }
        }
        let forwarded = forwarded_origins(connection)?;
        for origin in origins.values_mut() {
            origin.is_forwarded = forwarded.contains(&origin.id);
        }
        let runs = origins.values().map(|origin: &Origin| origin.seen.run_count()).sum();
        // This query is fast, because it reads only the newest record of each series.
        let newest_unix_ns = connection.query_row(
            "SELECT max((SELECT max(time_unix_ns) FROM record WHERE series = id)) FROM series",
            [],
            |row| row.get(0),
        )?;
        let mut statement = connection.prepare_cached("SELECT id, source, target, quantity FROM series")?;
        let series = statement
            .query_map([], |row| {
                let series =
                    SeriesId { source: name(row, 1)?, target: name(row, 2)?, quantity: quantity(row, 3)? };
                Ok((series, row.get(0)?))
            })?
            .collect::<rusqlite::Result<HashMap<SeriesId, i64>>>()?;
        let (cursor, removed, records) =
            connection.query_row("SELECT cursor, removed, records FROM archive", [], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
            })?;
        Ok(Self {
            origins,
            series_of: count_by_source(&series),
            series,
            cursor: cursor.cast_unsigned(),
            removed: removed.cast_unsigned(),
            records: records.cast_unsigned(),
            newest_unix_ns,
            runs,
            series_max,
            spool: Self::load_spool(connection, spool)?,
            log_limiter: LogLimiter::default(),
        })
    }

    /// Writes the counters of the archive. Each transaction that changes a counter calls this
    /// function.
    pub(super) fn save_counters(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        transaction
            .prepare_cached("UPDATE archive SET cursor = ?1, removed = ?2, records = ?3")?
            .execute([self.cursor, self.removed, self.records].map(u64::cast_signed))
            .map(drop)
    }

    /// Returns the reason to refuse the batch, if there is one.
    fn refusal(&self, batch: &[Record], mode: AppendMode, cutoff_unix_ns: i64) -> Option<EngineError> {
        self.is_excluded(batch)
            .or_else(|| if mode == AppendMode::Numbered { self.forwarded(batch) } else { None })
            .or_else(|| self.is_out_of_reach(batch))
            .or_else(|| self.too_old(batch, cutoff_unix_ns))
            .or_else(|| self.too_large(batch))
            .or_else(|| self.is_spool_full(batch))
    }

    /// Returns an error if a station forwards records of the batch's origin: this station numbers
    /// the records of the origin, so the archive may already have other records with the numbers
    /// of the batch.
    fn forwarded(&self, batch: &[Record]) -> Option<EngineError> {
        let is_forwarded =
            |record: &&Record| self.origins.get(&record.origin).is_some_and(|origin| origin.is_forwarded);
        let record = batch.iter().find(is_forwarded)?;
        Some(EngineError::Denied(format!("{} numbers its records itself", record.origin)))
    }

    /// Returns an error if the batch would grow the index beyond its bounds. A batch that begins
    /// within the bounds may exceed a bound by its length.
    fn too_large(&self, batch: &[Record]) -> Option<EngineError> {
        let full = |what: String| Some(EngineError::Invalid(format!("the archive is at its limit: {what}")));
        if self.origins.len() >= ORIGINS_MAX
            && let Some(record) = batch.iter().find(|record| !self.origins.contains_key(&record.origin))
        {
            return full(format!("{ORIGINS_MAX} origins (new: {})", record.origin));
        }
        if self.series.len() >= self.series_max
            && let Some(record) = batch.iter().find(|record| !self.series.contains_key(&record.series))
        {
            return full(format!("{} series (new: {})", self.series_max, record.series));
        }
        let gaps = self.runs.saturating_sub(self.origins.len());
        let mut after: HashMap<&HostId, SeqSet> = HashMap::new();
        for record in batch {
            let seen = self.origins.get(&record.origin).map(|origin| &origin.seen);
            let full_alone = seen.is_some_and(|seen| seen.run_count() > GAPS_MAX);
            if full_alone || gaps >= GAPS_ALL_MAX {
                let after = after.entry(&record.origin).or_insert_with(|| seen.cloned().unwrap_or_default());
                after.insert(record.seq);
            }
        }
        let (origin, _) = after.iter().find(|&(origin, after)| {
            let runs = self.origins.get(*origin).map_or(1, |origin| origin.seen.run_count());
            runs < after.run_count()
        })?;
        full(format!("{GAPS_MAX} gaps in the sequence of {origin} or {GAPS_ALL_MAX} in all"))
    }

    /// Returns an error if a number of the batch is too far above the origin's highest number,
    /// because such numbers would soon use up the sequence.
    fn is_out_of_reach(&self, batch: &[Record]) -> Option<EngineError> {
        let highest = |record: &Record| self.highest(&record.origin);
        let record = batch.iter().find(|record| !Record::is_seq_plausible(record.seq, highest(record)))?;
        let highest = highest(record);
        Some(EngineError::Invalid(format!(
            "record {} of {}: the number is too far above its highest, {highest}; \
             read the next sequence number again",
            record.seq, record.origin
        )))
    }

    /// Returns the latest label after the batch is stored. Only measurements that the origin itself
    /// made count. Other records were measured elsewhere, and their labels must not make the stored
    /// records too old.
    fn newest_with(&self, batch: &[Record]) -> Option<i64> {
        let stored = batch.iter().filter(|record| record.is_own() && !self.is_seen(record));
        stored.map(|record| record.time_unix_ns).max().max(self.newest_unix_ns)
    }

    /// Returns an error if the next run of retention would remove a new record of the batch. A
    /// record that was stored before causes no error at any age, because appending it again has no
    /// effect.
    fn too_old(&self, batch: &[Record], cutoff_unix_ns: i64) -> Option<EngineError> {
        let old =
            batch.iter().find(|record| record.time_unix_ns < cutoff_unix_ns && !self.is_seen(record))?;
        Some(EngineError::Invalid(format!(
            "record {} of {}: the time {} ns is older than the retention limit, {cutoff_unix_ns} ns",
            old.seq, old.origin, old.time_unix_ns
        )))
    }

    /// Counts the numbers of the batch as seen, and gives each new record a position. Returns how
    /// many records were new, and how many were repeated.
    fn admit<'a>(
        &mut self,
        transaction: &Transaction<'_>,
        batch: &'a [Record],
        rows: &mut Vec<Row<'a>>,
        changed: &mut ChangedRanges<'a>,
    ) -> rusqlite::Result<ForwardedCounts> {
        let mut admitted = ForwardedCounts::default();
        for record in batch {
            if self.mark_seen(transaction, record, (record.seq, record.seq), changed)? {
                self.add_row(transaction, record, rows)?;
                admitted.stored += 1;
            } else {
                admitted.repeated += 1;
            }
        }
        Ok(admitted)
    }

    /// Counts a run of the origin's sequence as seen; `false` if it was seen before.
    pub(super) fn mark_seen<'a>(
        &mut self,
        transaction: &Transaction<'_>,
        record: &'a Record,
        (first, last): (u64, u64),
        changed: &mut ChangedRanges<'a>,
    ) -> rusqlite::Result<bool> {
        let origin = self.origin(transaction, &record.origin)?;
        let runs_before = origin.seen.run_count();
        let is_new =
            if first == last { origin.seen.insert(first) } else { origin.seen.insert_run(first, last) };
        if !is_new {
            return Ok(false);
        }
        let runs = origin.seen.run_count();
        self.runs = self.runs - runs_before + runs;
        let (lowest, highest) = changed.entry(&record.origin).or_insert((first, last));
        *lowest = first.min(*lowest);
        *highest = last.max(*highest);
        Ok(true)
    }

    /// Marks as seen the numbers that the marker `over` skips, or the number of `over` if `over` is
    /// not a marker.
    pub(super) fn mark_skipped(
        &mut self,
        transaction: &Transaction<'_>,
        over: &Record,
    ) -> rusqlite::Result<()> {
        let mut changed = ChangedRanges::new();
        let run = over.skipped_range().unwrap_or((over.seq, over.seq));
        self.mark_seen(transaction, over, run, &mut changed)?;
        self.save_seen(transaction, &changed)
    }

    fn origin(&mut self, transaction: &Transaction<'_>, name: &HostId) -> rusqlite::Result<&mut Origin> {
        if !self.origins.contains_key(name) {
            let id = add_origin(transaction, name)?;
            self.origins.insert(name.clone(), Origin::new(id));
        }
        Ok(self.origins.get_mut(name).expect("it is there now"))
    }

    /// Marks an origin as one that forwards records to this archive.
    pub(super) fn mark_forwarded(
        &mut self,
        transaction: &Transaction<'_>,
        name: &HostId,
    ) -> rusqlite::Result<()> {
        let origin = self.origin(transaction, name)?;
        if !origin.is_forwarded {
            transaction.execute("INSERT INTO forwarded VALUES (?1)", [origin.id])?;
            origin.is_forwarded = true;
        }
        Ok(())
    }

    /// Returns the key of an origin, and adds the origin if it is new.
    pub(super) fn origin_id(
        &mut self,
        transaction: &Transaction<'_>,
        name: &HostId,
    ) -> rusqlite::Result<i64> {
        self.origin(transaction, name).map(|origin| origin.id)
    }

    /// Highest sequence number of an origin; 0 if the origin has no number.
    pub(super) fn highest(&self, origin: &HostId) -> u64 {
        self.origins.get(origin).map_or(0, |origin| origin.seen.highest())
    }

    /// Returns whether the record was stored or counted as seen earlier.
    pub(super) fn is_seen(&self, record: &Record) -> bool {
        self.origins.get(&record.origin).is_some_and(|origin| origin.seen.contains(record.seq))
    }

    /// Gives a new record its position in the order of storing.
    pub(super) fn add_row<'a>(
        &mut self,
        transaction: &Transaction<'_>,
        record: &'a Record,
        rows: &mut Vec<Row<'a>>,
    ) -> rusqlite::Result<()> {
        let series = match self.series.get(&record.series) {
            Some(&id) => id,
            None => {
                let id = add_series(transaction, &record.series)?;
                self.series.insert(record.series.clone(), id);
                *self.series_of.entry(record.series.source.clone()).or_insert(0) += 1;
                id
            }
        };
        let origin = self.origins.get(&record.origin).expect("it was marked as seen first").id;
        if let Some(spool) = self.spool.as_mut().filter(|spool| spool.takes(record)) {
            spool.count += 1;
        }
        self.cursor += 1;
        rows.push(Row { series, cursor: self.cursor, origin, record });
        Ok(())
    }

    pub(super) fn has_room_for_origin(&self, origin: &HostId) -> bool {
        self.origins.len() < ORIGINS_MAX || self.origins.contains_key(origin)
    }

    /// Returns true if a run of the origin's sequence makes no further gap, or if the index has
    /// room for a further gap.
    pub(super) fn has_room_for_gap(&self, origin: &HostId, (first, last): (u64, u64)) -> bool {
        let Some(origin) = self.origins.get(origin) else { return true };
        let gaps = self.runs.saturating_sub(self.origins.len());
        (origin.seen.run_count() <= GAPS_MAX && gaps < GAPS_ALL_MAX) || origin.seen.touches(first, last)
    }

    /// Number of gaps in the sequences of all origins.
    pub(super) fn gaps(&self) -> usize {
        self.runs.saturating_sub(self.origins.len())
    }

    /// Returns whether a run of the origin's sequence makes no further gap.
    pub(super) fn touches(&self, origin: &HostId, first: u64, last: u64) -> bool {
        self.origins.get(origin).is_none_or(|origin| origin.seen.touches(first, last))
    }

    /// Number of bytes that the names of each origin's series take in the file. Each name is stored
    /// twice: in the table and in the index of the table.
    pub(super) fn names_bytes(&self) -> HashMap<i64, i64> {
        let mut bytes = HashMap::new();
        for SeriesId { source, target, quantity } in self.series.keys() {
            if let Some(origin) = self.origins.get(source) {
                let names = source.as_str().len() + target.as_str().len() + quantity.as_str().len();
                *bytes.entry(origin.id).or_insert(0) += 2 * (names + SERIES_BYTES) as i64;
            }
        }
        bytes
    }

    pub(super) fn forget_series(&mut self, gone: &HashSet<i64>) {
        self.series.retain(|_, id| !gone.contains(id));
        self.series_of = count_by_source(&self.series);
    }

    fn insert(&mut self, transaction: &Transaction<'_>, mut rows: Vec<Row<'_>>) -> rusqlite::Result<()> {
        // Insert in the order of the table, so that each page of the file is written once.
        rows.sort_unstable_by_key(|row| (row.series, row.record.time_unix_ns, row.cursor));
        let mut statement =
            transaction.prepare_cached("INSERT INTO record VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)")?;
        for Row { series, cursor, origin, record } in &rows {
            let (value, failure, after_s) = match record.outcome {
                Outcome::Value(value) => (Some(value), None, None),
                Outcome::Failed { failure, after_s } => (None, Some(failure.as_str()), Some(after_s)),
            };
            statement.execute(params![
                series,
                record.time_unix_ns,
                cursor.cast_signed(),
                origin,
                record.seq.cast_signed(),
                value,
                failure,
                after_s,
                record.detail,
            ])?;
        }
        self.records += rows.len() as u64;
        self.add_spooled(transaction, &rows)?;
        self.save_counters(transaction)
    }

    /// Writes only the runs that changed, because there may be thousands.
    fn save_seen(&self, transaction: &Transaction<'_>, changed: &ChangedRanges<'_>) -> rusqlite::Result<()> {
        let mut clear =
            transaction.prepare_cached("DELETE FROM held WHERE origin = ?1 AND first BETWEEN ?2 AND ?3")?;
        let mut add = transaction.prepare_cached("INSERT INTO held VALUES (?1, ?2, ?3)")?;
        for (&name, &(lowest, highest)) in changed {
            let Some(Origin { id, seen, .. }) = self.origins.get(name) else { continue };
            let runs: Vec<_> = seen.runs_between(lowest, highest).collect();
            let from = runs.first().map_or(lowest, |&(first, _)| first);
            // Also clear a run that begins directly above `highest`: that run is now part of the
            // last run that this function wrote.
            clear.execute([*id, from.cast_signed(), highest.cast_signed() + 1])?;
            for (first, last) in runs {
                add.execute([*id, first.cast_signed(), last.cast_signed()])?;
            }
        }
        Ok(())
    }
}

fn count_by_source(series: &HashMap<SeriesId, i64>) -> HashMap<HostId, usize> {
    let mut counts = HashMap::new();
    for series in series.keys() {
        *counts.entry(series.source.clone()).or_insert(0) += 1;
    }
    counts
}

/// Creates the table of the origins that forwarded records to this archive, and marks each origin
/// of the archive that is in `forwarders` and that is the source of a series. A station is the
/// source of all series that it forwards.
fn create_forwarded(transaction: &Transaction<'_>, forwarders: &[HostId]) -> rusqlite::Result<()> {
    transaction.execute_batch(FORWARDED_TABLE)?;
    // A name may be in the list twice.
    let mut mark = transaction.prepare(
        "INSERT OR IGNORE INTO forwarded
             SELECT id FROM origin WHERE name = ?1 AND EXISTS (SELECT 1 FROM series WHERE source = ?1)",
    )?;
    for host in forwarders {
        mark.execute([host.as_str()])?;
    }
    Ok(())
}

/// Keys of the origins that forwarded records to this archive.
fn forwarded_origins(connection: &Connection) -> rusqlite::Result<HashSet<i64>> {
    let mut statement = connection.prepare("SELECT origin FROM forwarded")?;
    let keys = statement.query_map([], |row| row.get(0))?;
    keys.collect()
}

fn add_origin(transaction: &Transaction<'_>, name: &Name) -> rusqlite::Result<i64> {
    transaction.prepare_cached("INSERT INTO origin (name) VALUES (?1)")?.insert([name.as_str()])
}

fn add_series(transaction: &Transaction<'_>, series: &SeriesId) -> rusqlite::Result<i64> {
    let SeriesId { source, target, quantity } = series;
    transaction.prepare_cached("INSERT INTO series (source, target, quantity) VALUES (?1, ?2, ?3)")?.insert([
        source.as_str(),
        target.as_str(),
        Quantity::as_str(quantity),
    ])
}

fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
}

/// Wall-clock time for labels; 0 if the clock is before 1970.
pub(super) fn wall_unix_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Table of the origins that forwarded records. The table is not part of `schema.sql`, because
/// archives of earlier versions do not have it.
const FORWARDED_TABLE: &str = "CREATE TABLE forwarded (origin INTEGER PRIMARY KEY) STRICT";

/// Largest number of origins: ten times the number of stations in the largest mesh that the engine
/// is designed for.
const ORIGINS_MAX: usize = 100_000;

/// Number of bytes that a series takes, without its names, in the table of series or in the index
/// of that table.
const SERIES_BYTES: usize = 16;

/// Largest number of gaps in the sequence of one origin. The set of sequence numbers then takes
/// half a megabyte. Batches that arrive out of order, and numbers without a record, leave only a
/// few gaps. Only an origin with wrong numbers reaches this limit.
const GAPS_MAX: usize = 10_000;

/// Largest number of gaps in the sequences of all origins together; they take 5 MB. Without this
/// limit, every origin could have [`GAPS_MAX`] gaps.
pub(super) const GAPS_ALL_MAX: usize = 100_000;
