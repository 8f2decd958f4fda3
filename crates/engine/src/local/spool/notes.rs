//! Writes the rows of table `spool`.

use rusqlite::{Transaction, params};

use super::super::store::Index;
use super::Spool;

/// Adds rows for the host's own records with positions above `cursor` and numbers above `above` and
/// up to `until`. If there are more than `room` such records, adds only the newest `room`. Returns
/// how many were added.
pub(super) fn fill(
    transaction: &Transaction<'_>,
    spool: &mut Spool,
    cursor: i64,
    (above, until): (u64, u64),
    room: u64,
) -> rusqlite::Result<u64> {
    let mut newest = transaction.prepare_cached(
        "SELECT record.seq, record.cursor FROM record CROSS JOIN series ON series.id = record.series
         WHERE ?1 < record.cursor AND origin = ?2 AND ?3 < seq AND seq <= ?4 AND source = ?5
         ORDER BY record.cursor DESC",
    )?;
    let mut add = transaction.prepare_cached("INSERT OR IGNORE INTO spool VALUES (?1, ?2)")?;
    let (above, until) = (above.cast_signed(), until.cast_signed());
    let mut rows = newest.query(params![cursor, spool.origin, above, until, spool.config.host.as_str()])?;
    let mut added = 0;
    while added < room
        && let Some(row) = rows.next()?
    {
        added += add.execute([row.get::<_, i64>(0)?, row.get(1)?])? as u64;
    }
    spool.count += added;
    Ok(added)
}

pub(super) fn save_resend(transaction: &Transaction<'_>, spool: &Spool) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM spool_again", [])?;
    let until = spool.config.resend_until.cast_signed();
    transaction.execute("INSERT INTO spool_again VALUES (?1)", [until]).map(drop)
}

/// Sets the recorded watermark to the number below the first row of the spool, or to the highest
/// number if there is no row, and stores `spool` in the index.
pub(super) fn restart(
    transaction: &Transaction<'_>,
    index: &mut Index,
    mut spool: Spool,
) -> rusqlite::Result<()> {
    let first: Option<i64> = transaction.query_row("SELECT min(seq) FROM spool", [], |row| row.get(0))?;
    spool.passed = match first {
        Some(first) => first.cast_unsigned() - 1,
        None => index.highest(&spool.config.host),
    };
    transaction.execute("DELETE FROM spooling", [])?;
    let row = [spool.origin, spool.passed.cast_signed(), index.cursor.cast_signed()];
    transaction.execute("INSERT INTO spooling VALUES (?1, ?2, ?3)", row)?;
    index.spool = Some(spool);
    Ok(())
}

/// Statements that create the tables of the spool. These statements run only when a station joins a
/// mesh, so that the archive's format stays the same for all versions. A version without this
/// feature can read and write the archive; when a version with this feature starts next, it adds
/// rows for the records that were stored meanwhile.
pub(super) const TABLES: &str = "
-- One row: whose records are forwarded, up to where the mesh misses nothing, and the place up to
-- which `spool` is complete.
CREATE TABLE IF NOT EXISTS spooling (
    origin INTEGER NOT NULL,
    passed INTEGER NOT NULL,
    cursor INTEGER NOT NULL
) STRICT;
-- The records that wait.
CREATE TABLE IF NOT EXISTS spool (
    seq    INTEGER PRIMARY KEY,
    cursor INTEGER NOT NULL
) STRICT;
-- At most one row: waiting records up to this number take no room from what is measured.
CREATE TABLE IF NOT EXISTS spool_again (until INTEGER NOT NULL) STRICT;
";
