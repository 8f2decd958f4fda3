//! Sequences that an earlier version let be used up: one record under a number near the end was enough.

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use crate::Record;

/// Takes back the numbers of runs that end above [`Record::SEQ_BURNT_ABOVE`], down to the highest under which there
/// is a record. Records above stay in the archive, and are not forwarded.
pub(super) fn sequences(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    let mut burnt = transaction.prepare(
        "SELECT held.origin, name, first, last FROM held JOIN origin ON origin.id = held.origin WHERE ?1 < last",
    )?;
    let runs = burnt
        .query_map([BURNT], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?
        .collect::<rusqlite::Result<Vec<(i64, String, i64, i64)>>>()?;
    drop(burnt);
    for (origin, name, first, last) in runs {
        let kept: Option<i64> = transaction.query_row(
            "SELECT max(seq) FROM record WHERE origin = ?1 AND seq BETWEEN ?2 AND ?3",
            params![origin, first, BURNT],
            |row| row.get(0),
        )?;
        transaction.execute("DELETE FROM held WHERE origin = ?1 AND first = ?2", [origin, first])?;
        if let Some(kept) = kept {
            transaction.execute("INSERT INTO held VALUES (?1, ?2, ?3)", [origin, first, kept])?;
        }
        shorten_spool(&transaction, origin)?;
        tracing::warn!(
            origin = name,
            last,
            "numbers that no station reaches were used; its sequence goes on below"
        );
    }
    transaction.commit()
}

/// Lets what waits for a mesh end with the numbers that are left, if it is of this origin.
fn shorten_spool(transaction: &Transaction<'_>, origin: i64) -> rusqlite::Result<()> {
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name IN ('spooling', 'spool', 'spool_again')";
    if transaction.query_row(tables, [], |row| row.get::<_, i64>(0))? < 3 {
        return Ok(());
    }
    let of: Option<i64> =
        transaction.query_row("SELECT origin FROM spooling", [], |row| row.get(0)).optional()?;
    if of != Some(origin) {
        return Ok(());
    }
    let highest: i64 = transaction.query_row(
        "SELECT coalesce(max(last), 0) FROM held WHERE origin = ?1",
        [origin],
        |row| row.get(0),
    )?;
    transaction.execute("DELETE FROM spool WHERE ?1 < seq", [highest])?;
    transaction.execute("UPDATE spooling SET passed = min(passed, ?1)", [highest])?;
    transaction.execute("UPDATE spool_again SET until = min(until, ?1)", [highest]).map(drop)
}

const BURNT: i64 = Record::SEQ_BURNT_ABOVE.cast_signed();
