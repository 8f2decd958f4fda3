//! Repairs sequences that are used up. Earlier versions accepted a record with a number near
//! [`Record::SEQ_MAX`]. After such a record, no numbers were left for further records.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use crate::Record;

/// A record that got another number.
pub(super) struct Renumbered {
    before: i64,
    pub(super) after: i64,
    cursor: i64,
    /// Whether the origin itself measured the record.
    is_own: bool,
}

/// Removes the numbers of runs that end above [`Record::SEQ_EXHAUSTED_ABOVE`], and keeps the
/// numbers up to the highest valid one that has a record. Records above
/// [`Record::SEQ_EXHAUSTED_ABOVE`] stay in the archive. If the station has joined a mesh, its own
/// records above [`Record::SEQ_EXHAUSTED_ABOVE`] get the next valid numbers. The station forwards
/// these records with the new numbers, unless the mesh has already confirmed them.
pub(super) fn sequences(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    let mut exhausted = transaction.prepare(
        "SELECT held.origin, name, first, last FROM held JOIN origin ON origin.id = held.origin WHERE ?1 < last",
    )?;
    let runs = exhausted
        .query_map([EXHAUSTED_ABOVE], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?
        .collect::<rusqlite::Result<Vec<(i64, String, i64, i64)>>>()?;
    drop(exhausted);
    let mut origins = BTreeMap::new();
    for (origin, name, first, last) in runs {
        let kept: Option<i64> = transaction.query_row(
            "SELECT max(seq) FROM record WHERE origin = ?1 AND seq BETWEEN ?2 AND ?3",
            params![origin, first, EXHAUSTED_ABOVE],
            |row| row.get(0),
        )?;
        transaction.execute("DELETE FROM held WHERE origin = ?1 AND first = ?2", [origin, first])?;
        if let Some(kept) = kept {
            transaction.execute("INSERT INTO held VALUES (?1, ?2, ?3)", [origin, first, kept])?;
        }
        tracing::warn!(
            origin = name,
            last,
            "removed implausible sequence numbers of a station; its sequence continues below them"
        );
        origins.insert(origin, name);
    }
    for (origin, name) in origins {
        repair_spool(&transaction, origin, &name)?;
    }
    transaction.commit()
}

/// Renumbers the records of an origin that have numbers above both [`Record::SEQ_EXHAUSTED_ABOVE`]
/// and `highest`: these records get the numbers after `highest`, in the order of their old numbers.
/// Scans the whole archive.
pub(super) fn renumber(
    transaction: &Transaction<'_>,
    (origin, name): (i64, &str),
    highest: i64,
) -> rusqlite::Result<Vec<Renumbered>> {
    let mut above = transaction.prepare(
        "SELECT seq, cursor, source = ?2 FROM record JOIN series ON series.id = record.series
         WHERE origin = ?1 AND ?3 < seq ORDER BY seq",
    )?;
    let rows = above
        .query_map(params![origin, name, EXHAUSTED_ABOVE.max(highest)], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?
        .collect::<rusqlite::Result<Vec<(i64, i64, bool)>>>()?;
    let mut set = transaction.prepare("UPDATE record SET seq = ?2 WHERE cursor = ?1")?;
    let renumbered = rows.into_iter().zip(highest + 1..).map(|((before, cursor, is_own), after)| {
        set.execute([cursor, after])?;
        Ok(Renumbered { before, after, cursor, is_own })
    });
    renumbered.collect()
}

/// If the station forwards this origin, limits the spool to the valid numbers, and renumbers
/// records with higher numbers: these get the next valid numbers.
fn repair_spool(transaction: &Transaction<'_>, origin: i64, name: &str) -> rusqlite::Result<()> {
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name IN ('spooling', 'spool', 'spool_again')";
    if transaction.query_row(tables, [], |row| row.get::<_, i64>(0))? < 3 {
        return Ok(());
    }
    let spooling: Option<(i64, i64)> = transaction
        .query_row("SELECT origin, passed FROM spooling", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((_, passed)) = spooling.filter(|(of, _)| *of == origin) else { return Ok(()) };
    let highest: i64 = transaction.query_row(
        "SELECT coalesce(max(last), 0) FROM held WHERE origin = ?1",
        [origin],
        |row| row.get(0),
    )?;
    transaction.execute("DELETE FROM spool WHERE ?1 < seq", [highest])?;
    transaction.execute("UPDATE spooling SET passed = min(passed, ?1)", [highest])?;
    transaction.execute("UPDATE spool_again SET until = min(until, ?1)", [highest])?;
    let renumbered = renumber(transaction, (origin, name), highest)?;
    let Some(last) = renumbered.last().map(|row| row.after) else { return Ok(()) };
    let longer = "UPDATE held SET last = ?2 WHERE origin = ?1 AND last = ?3";
    if transaction.execute(longer, [origin, last, highest])? == 0 {
        transaction.execute("INSERT INTO held VALUES (?1, ?2, ?3)", [origin, highest + 1, last])?;
    }
    let mut note = transaction.prepare("INSERT INTO spool VALUES (?1, ?2)")?;
    for row in renumbered.iter().filter(|row| row.is_own && passed < row.before) {
        note.execute([row.after, row.cursor])?;
    }
    tracing::warn!(
        count = renumbered.len(),
        last,
        "renumbered the records that had implausible sequence numbers"
    );
    Ok(())
}

const EXHAUSTED_ABOVE: i64 = Record::SEQ_EXHAUSTED_ABOVE.cast_signed();
