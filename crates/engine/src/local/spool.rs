//! The records that are still to be forwarded to a mesh, and the mesh's watermark.
//!
//! The records are stored like all others. Each row of table `spool` marks one waiting record. An
//! index of all records by sequence number would enlarge the archive by 40 % even for stations in
//! no mesh; the rows take a few bytes for each waiting record.

mod notes;
mod reads;

use std::sync::mpsc;

use rusqlite::{Connection, OptionalExtension as _, Transaction};
use tokio::sync::oneshot;

use self::notes::{TABLES, fill, restart, save_resend};
use super::repair;
use super::store::{Index, Row, Store};
use super::writer::Command;
use super::{Local, closed};
use crate::{EngineError, HostId, Record};

/// Station that forwards its records, and the size of its spool.
#[derive(Clone)]
pub(super) struct SpoolConfig {
    pub(super) host: HostId,
    pub(super) records_max: u64,
    /// Two bounds (first, last): the station excludes the numbers above `first` and up to `last`,
    /// because another writer uses them. No record with such a number is stored.
    pub(super) excluded: (u64, u64),
    /// Sequence number up to which rows were added again: for a mesh that lost confirmed records,
    /// or for records that were stored while the station was in no mesh. These rows do not count
    /// towards the size of the spool.
    pub(super) resend_until: u64,
}

/// State of the spool in the storage thread.
#[derive(Clone)]
pub(super) struct Spool {
    pub(super) config: SpoolConfig,
    /// Key of the host in the table of origins.
    pub(super) origin: i64,
    /// Watermark of the mesh that was recorded last.
    pub(super) passed: u64,
    /// Number of records that wait.
    pub(super) count: u64,
    /// Number of waiting records that were added again; see `resend_until`.
    pub(super) resend: u64,
}

/// A request of the forwarder to the storage thread.
pub(super) enum Request {
    /// Start the spool: from now on, mark the records that are to be forwarded.
    Begin(SpoolConfig, mpsc::Sender<Result<(u64, u64), EngineError>>),
    /// The mesh's watermark has risen to this number: remove the rows up to it.
    Pass(u64, oneshot::Sender<Result<(), EngineError>>),
    /// A different writer has used the numbers up to this number in the mesh. Do not use these
    /// numbers in this archive.
    Exclude(u64, oneshot::Sender<Result<ExcludedNumbers, EngineError>>),
    /// The mesh's watermark fell to this number. Forward the records above this number again.
    Rewind(u64, oneshot::Sender<Result<(), EngineError>>),
}

/// Result of excluding numbers that another station has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExcludedNumbers {
    /// Highest number that this archive had used before the exclusion.
    pub(crate) highest: u64,
    /// Number of waiting records with sequence numbers that the mesh already holds. The mesh may
    /// never get these records.
    pub(crate) lost: u64,
}

impl Local {
    /// Counts the host's numbers up to `taken` as used: the mesh has records of a different writer
    /// with the numbers above the host's highest number. Waiting records up to `taken` may never
    /// reach the mesh, and are removed from the spool.
    pub(crate) async fn exclude_numbers(&self, taken: u64) -> Result<ExcludedNumbers, EngineError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Spool(Request::Exclude(taken, reply)))?;
        committed(answer).await
    }

    /// Starts to record which records of `host` are to be forwarded. Retention does not remove
    /// these records.
    ///
    /// Blocks while the disk is read; the first call takes seconds if there are many records.
    /// Returns the mesh's watermark that was recorded last, and the highest sequence number.
    pub(crate) fn begin_spool(&self, host: &HostId, records_max: u64) -> Result<(u64, u64), EngineError> {
        let (reply, answer) = mpsc::channel();
        let config = SpoolConfig { host: host.clone(), records_max, excluded: (0, 0), resend_until: 0 };
        self.send(Command::Spool(Request::Begin(config, reply)))?;
        answer.recv().map_err(|_| closed())?
    }

    /// Removes rows up to `watermark`, which the mesh reported.
    pub(crate) async fn pass_spool(&self, watermark: u64) -> Result<(), EngineError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Spool(Request::Pass(watermark, reply)))?;
        committed(answer).await
    }

    /// Adds rows again for the stored records with numbers above `watermark`: only the newest such
    /// records, up to the size of the spool. Records that wait already do not count towards that
    /// size.
    pub(crate) async fn rewind_spool(&self, watermark: u64) -> Result<(), EngineError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Spool(Request::Rewind(watermark, reply)))?;
        committed(answer).await
    }

    /// Reads waiting records above `after`, in order of their numbers: as many as fit, and at least
    /// one.
    pub(crate) async fn spooled(
        &self,
        after: u64,
        records: usize,
        bytes: usize,
    ) -> Result<Vec<Record>, EngineError> {
        self.reader.spooled(after, records, bytes).await
    }

    /// Runs of numbers of `origin` that were stored or counted as seen and end above `after`, as
    /// (first, last); at most a thousand.
    pub(crate) async fn seen_runs(
        &self,
        origin: &HostId,
        after: u64,
    ) -> Result<Vec<(u64, u64)>, EngineError> {
        self.reader.seen_runs(origin, after).await
    }

    /// Returns the watermark and the highest sequence number of `origin`; both are 0 if nothing was
    /// stored.
    pub(crate) async fn sequences(&self, origin: &HostId) -> Result<(u64, u64), EngineError> {
        self.reader.sequences(origin).await
    }

    /// Returns a receiver of the position of the newest record. The position changes when records
    /// are stored.
    pub(crate) fn head(&self) -> tokio::sync::watch::Receiver<u64> {
        self.head.clone()
    }
}

/// Waits for the result of a commit. The wait uses a thread for blocking work.
async fn committed<T: Send + 'static>(
    answer: oneshot::Receiver<Result<T, EngineError>>,
) -> Result<T, EngineError> {
    tokio::task::spawn_blocking(move || answer.blocking_recv())
        .await
        .map_err(|error| EngineError::Unavailable(format!("the wait was interrupted: {error}")))?
        .map_err(|_| closed())?
}

impl Request {
    /// Returns whether earlier appends must be stored before this request.
    pub(super) fn follows_appends(&self) -> bool {
        matches!(self, Self::Exclude(..))
    }

    /// Executes the request. Returns a function that sends the reply; call that function after the
    /// statistics are updated.
    pub(super) fn run(self, store: &mut Store) -> impl FnOnce() + use<> {
        // The caller may have stopped waiting.
        let answer: Box<dyn FnOnce()> = match self {
            Self::Begin(config, reply) => {
                let begins = store.begin(config);
                Box::new(move || drop(reply.send(begins)))
            }
            Self::Pass(watermark, reply) => {
                let passed = store.transact(|transaction, index| pass(transaction, index, watermark));
                Box::new(move || drop(reply.send(passed)))
            }
            Self::Exclude(taken, reply) => {
                let excluded_numbers =
                    store.transact(|transaction, index| exclude_numbers(transaction, index, taken));
                store.keep_spool_config();
                Box::new(move || drop(reply.send(excluded_numbers)))
            }
            Self::Rewind(watermark, reply) => {
                let rewound = store.transact(|transaction, index| {
                    let Some(mut spool) = index.spool.take() else { return Ok(()) };
                    // Records above the old watermark have rows already.
                    let until = spool.passed;
                    spool.config.resend_until = spool.config.resend_until.max(until);
                    save_resend(transaction, &spool)?;
                    let room = spool.config.records_max.saturating_sub(spool.resend);
                    spool.resend += fill(transaction, &mut spool, 0, (watermark, until), room)?;
                    restart(transaction, index, spool)
                });
                store.keep_spool_config();
                Box::new(move || drop(reply.send(rewound)))
            }
        };
        answer
    }
}

impl Store {
    /// Copies the configuration of the spool, for the time when the index is read again after a
    /// failure.
    fn keep_spool_config(&mut self) {
        if let Some(spool) = self.index().and_then(|index| index.spool.as_ref()) {
            self.spool = Some(spool.config.clone());
        }
    }

    fn begin(&mut self, config: SpoolConfig) -> Result<(u64, u64), EngineError> {
        self.spool = Some(config.clone());
        let begun = self.transact(|transaction, index| {
            transaction.execute_batch(TABLES)?;
            let origin = index.origin_id(transaction, &config.host)?;
            let highest = index.highest(&config.host);
            let known: Option<(i64, i64, i64)> = transaction
                .query_row("SELECT origin, passed, cursor FROM spooling", [], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                })
                .optional()?;
            match known {
                Some((of, passed, cursor)) if of == origin => {
                    let passed = passed.cast_unsigned();
                    let until: Option<i64> = transaction
                        .query_row("SELECT until FROM spool_again", [], |row| row.get(0))
                        .optional()?;
                    let resend_until = until.unwrap_or(0).cast_unsigned();
                    let config = SpoolConfig { resend_until, ..config };
                    let mut spool = Spool { config, origin, passed, count: 0, resend: 0 };
                    spool.count_notes(transaction)?;
                    // Add rows for all records that were stored meanwhile by an older version, or
                    // while no mesh was configured: no later start adds them.
                    let above = (passed, Record::SEQ_EXHAUSTED_ABOVE);
                    if fill(transaction, &mut spool, cursor, above, u64::MAX)? > 0 {
                        spool.config.resend_until = highest;
                        save_resend(transaction, &spool)?;
                        spool.count_notes(transaction)?;
                    }
                    index.spool = Some(spool);
                    index.save_spool(transaction)?;
                    Ok((passed, highest))
                }
                _ => {
                    transaction
                        .execute_batch("DELETE FROM spool; DELETE FROM spooling; DELETE FROM spool_again")?;
                    let highest = index.renumber(transaction, &config.host)?;
                    // Use half of the spool for existing records; the other half is for new
                    // records.
                    let room = config.records_max.div_ceil(2);
                    let mut spool = Spool { config, origin, passed: 0, count: 0, resend: 0 };
                    fill(transaction, &mut spool, 0, (0, Record::SEQ_EXHAUSTED_ABOVE), room)?;
                    restart(transaction, index, spool)?;
                    // The watermark is 0: this mesh has confirmed no record yet.
                    Ok((0, highest))
                }
            }
        });
        self.keep_spool_config();
        begun
    }
}

impl Index {
    /// Reads the state of the spool; `None` if nothing is to be forwarded.
    pub(super) fn load_spool(
        connection: &Connection,
        config: Option<SpoolConfig>,
    ) -> rusqlite::Result<Option<Spool>> {
        let Some(config) = config else { return Ok(None) };
        let tables = "SELECT count(*) FROM sqlite_schema WHERE name = 'spooling'";
        if connection.query_row(tables, [], |row| row.get::<_, i64>(0))? == 0 {
            return Ok(None);
        }
        let known: Option<(i64, i64)> = connection
            .query_row("SELECT origin, passed FROM spooling", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((origin, passed)) = known else { return Ok(None) };
        let mut spool = Spool { config, origin, passed: passed.cast_unsigned(), count: 0, resend: 0 };
        spool.count_notes(connection)?;
        Ok(Some(spool))
    }

    /// Renumbers records if `repair` removed their numbers while the station was in no mesh.
    /// Returns the highest number afterwards.
    fn renumber(&mut self, transaction: &Transaction<'_>, host: &HostId) -> rusqlite::Result<u64> {
        let (origin, highest) = (self.origin_id(transaction, host)?, self.highest(host));
        let renumbered = repair::renumber(transaction, (origin, host.as_str()), highest.cast_signed())?;
        let Some(last) = renumbered.last().map(|row| row.after.cast_unsigned()) else { return Ok(highest) };
        self.mark_skipped(transaction, &Record::skip_marker(host, highest + 1, last))?;
        Ok(last)
    }

    /// Adds rows for the records to be forwarded, in the same transaction that stores these
    /// records.
    pub(super) fn add_spooled(
        &self,
        transaction: &Transaction<'_>,
        rows: &[Row<'_>],
    ) -> rusqlite::Result<()> {
        let Some(spool) = &self.spool else { return Ok(()) };
        let mut add = transaction.prepare_cached("INSERT INTO spool VALUES (?1, ?2)")?;
        for row in rows.iter().filter(|row| spool.takes(row.record)) {
            add.execute([row.record.seq, row.cursor].map(u64::cast_signed))?;
        }
        drop(add);
        self.save_spool(transaction)
    }

    fn save_spool(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        let Some(spool) = &self.spool else { return Ok(()) };
        transaction
            .prepare_cached("UPDATE spooling SET passed = ?1, cursor = ?2")?
            .execute([spool.passed, self.cursor].map(u64::cast_signed))
            .map(drop)
    }

    /// Returns an error if the batch has a number that a different writer uses: the mesh would drop
    /// the record as a repetition.
    pub(super) fn is_excluded(&self, batch: &[Record]) -> Option<EngineError> {
        let SpoolConfig { host, excluded: (above, until), .. } = &self.spool.as_ref()?.config;
        let is_one = |record: &&Record| record.origin == *host && *above < record.seq && record.seq <= *until;
        let record = batch.iter().find(is_one)?;
        Some(EngineError::Invalid(format!(
            "record {} of {host}: the mesh has other records up to number {until}; \
             read the next sequence number again",
            record.seq
        )))
    }

    /// Returns an error if the spool has no room for the new records of the batch.
    pub(super) fn is_spool_full(&self, batch: &[Record]) -> Option<EngineError> {
        let spool = self.spool.as_ref()?;
        let new = |record: &&Record| spool.takes(record) && !self.is_seen(record);
        let waiting = spool.count - spool.resend;
        let room = spool.config.records_max.saturating_sub(waiting);
        if batch.iter().filter(new).count() as u64 <= room {
            return None;
        }
        Some(EngineError::Unavailable(format!(
            "{} records wait for the mesh (at most {}); nothing was stored. Storing resumes automatically when the \
             mesh accepts records",
            waiting, spool.config.records_max
        )))
    }
}

impl Spool {
    /// Counts the rows of `spool`.
    fn count_notes(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let counts = "SELECT count(*), count(*) FILTER (WHERE seq <= ?1) FROM spool";
        let (count, again): (i64, i64) =
            connection.query_row(counts, [self.config.resend_until.cast_signed()], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        (self.count, self.resend) = (count.cast_unsigned(), again.cast_unsigned());
        Ok(())
    }

    /// Returns whether the record is to be forwarded.
    pub(super) fn takes(&self, record: &Record) -> bool {
        record.origin == self.config.host && record.is_own() && self.passed < record.seq
    }
}

fn pass(transaction: &Transaction<'_>, index: &mut Index, watermark: u64) -> rusqlite::Result<()> {
    let Some(spool) = index.spool.as_mut() else { return Ok(()) };
    if spool.passed < watermark {
        let mut remove = transaction.prepare_cached("DELETE FROM spool WHERE seq <= ?1")?;
        let again = remove.execute([watermark.min(spool.config.resend_until).cast_signed()])? as u64;
        let first = remove.execute([watermark.cast_signed()])? as u64;
        spool.count -= again + first;
        spool.resend -= again;
        spool.passed = watermark;
    }
    index.save_spool(transaction)
}

fn exclude_numbers(
    transaction: &Transaction<'_>,
    index: &mut Index,
    taken: u64,
) -> rusqlite::Result<ExcludedNumbers> {
    let Some(Spool { config, count, .. }) = index.spool.clone() else {
        return Ok(ExcludedNumbers::default());
    };
    let highest = index.highest(&config.host);
    if taken <= highest {
        return Ok(ExcludedNumbers { highest, lost: 0 });
    }
    index.mark_skipped(transaction, &Record::skip_marker(&config.host, highest + 1, taken))?;
    pass(transaction, index, taken)?;
    let Some(spool) = index.spool.as_mut() else { return Ok(ExcludedNumbers::default()) };
    // Merge ranges that follow each other.
    let (above, until) = spool.config.excluded;
    spool.config.excluded = (if until == highest { above } else { highest }, taken);
    Ok(ExcludedNumbers { highest, lost: count - spool.count })
}
