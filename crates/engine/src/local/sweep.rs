//! Retention: removes what is too old, then what was stored first while there is too much.
//!
//! One step removes at most [`STEP`] records, so that an append waits for milliseconds at most.

use std::collections::HashSet;
use std::time::Duration;

use rusqlite::{Transaction, params};

use super::store::{Index, Store};
use crate::Error;

/// What is kept.
#[derive(Clone, Copy)]
pub(super) struct Retention {
    pub(super) keep: Duration,
    pub(super) keep_bytes: u64,
}

impl Retention {
    /// The earliest time kept when it is `present_unix_ns`.
    pub(super) fn cutoff_unix_ns(self, present_unix_ns: i64) -> i64 {
        present_unix_ns.saturating_sub(i64::try_from(self.keep.as_nanos()).unwrap_or(i64::MAX))
    }
}

/// One pass over the archive, taken in steps.
pub(super) struct Sweep {
    /// Records before this time are too old.
    cutoff_unix_ns: i64,
    /// Series up to this one are done; `None` = all are, and the size comes next.
    visited: Option<i64>,
    /// Records removed so far.
    pub(super) removed: u64,
}

impl Sweep {
    pub(super) fn new(store: &mut Store) -> Self {
        Self { cutoff_unix_ns: store.cutoff_unix_ns(), visited: Some(0), removed: 0 }
    }

    /// Takes one step; `true` when the pass is over.
    pub(super) fn step(&mut self, store: &mut Store) -> Result<bool, Error> {
        if let Some(visited) = self.visited {
            let cutoff_unix_ns = self.cutoff_unix_ns;
            let (visited, removed) = store
                .transact(|transaction, index| remove_old(transaction, index, visited, cutoff_unix_ns))?;
            self.visited = visited;
            self.removed += removed;
            return Ok(false);
        }
        if store.bytes().map_err(|error| store.files.error(&error))? <= store.retention.keep_bytes {
            return Ok(true);
        }
        let removed = store.transact(remove_first)?;
        self.removed += removed;
        Ok(removed == 0)
    }
}

/// Removes records before the cutoff from the series after `visited`, and series left empty;
/// returns where to go on and how many were removed.
fn remove_old(
    transaction: &Transaction<'_>,
    index: &mut Index,
    visited: i64,
    cutoff_unix_ns: i64,
) -> rusqlite::Result<(Option<i64>, u64)> {
    let mut all = transaction.prepare_cached("SELECT id FROM series WHERE ?1 < id ORDER BY id LIMIT ?2")?;
    let ids = all.query_map([visited, STEP], |row| row.get(0))?.collect::<rusqlite::Result<Vec<i64>>>()?;
    let mut old = transaction.prepare_cached(
        "SELECT series, time_unix_ns, cursor FROM record
         WHERE series = ?1 AND time_unix_ns < ?2 AND NOT (origin = ?4 AND ?5 < seq)
         ORDER BY time_unix_ns LIMIT ?3",
    )?;
    let mut empty = transaction.prepare_cached(
        "DELETE FROM series WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM record WHERE series = ?1)",
    )?;
    let (origin, passed) = waiting(index);
    let last = ids.last().copied();
    let mut done = visited;
    let mut removed = 0;
    let mut gone = HashSet::new();
    for id in ids {
        let keys = old
            .query_map([id, cutoff_unix_ns, STEP - removed, origin, passed], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?
            .collect::<rusqlite::Result<Vec<Key>>>()?;
        removed += keys.len() as i64;
        remove(transaction, index, &keys)?;
        if removed == STEP {
            break;
        }
        if empty.execute([id])? == 1 {
            gone.insert(id);
        }
        done = id;
    }
    if !gone.is_empty() {
        index.forget_series(&gone);
    }
    let go_on = if removed == STEP { Some(done) } else { last };
    Ok((go_on, removed.cast_unsigned()))
}

/// Removes the records stored first; returns how many.
fn remove_first(transaction: &Transaction<'_>, index: &mut Index) -> rusqlite::Result<u64> {
    let mut first = transaction.prepare_cached(
        "SELECT series, time_unix_ns, cursor FROM record WHERE NOT (origin = ?2 AND ?3 < seq)
         ORDER BY cursor LIMIT ?1",
    )?;
    let (origin, passed) = waiting(index);
    let keys = first
        .query_map([STEP, origin, passed], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<rusqlite::Result<Vec<Key>>>()?;
    remove(transaction, index, &keys)?;
    Ok(keys.len() as u64)
}

/// Which origin's records are kept whatever their age, and above which number: those that the mesh
/// does not hold yet. No origin has the key −1.
fn waiting(index: &Index) -> (i64, i64) {
    index.spool.as_ref().map_or((-1, 0), |spool| (spool.origin, spool.passed.cast_signed()))
}

/// (series, time, cursor).
type Key = (i64, i64, i64);

fn remove(transaction: &Transaction<'_>, index: &mut Index, keys: &[Key]) -> rusqlite::Result<()> {
    let Some(highest) = keys.iter().map(|&(_, _, cursor)| cursor.cast_unsigned()).max() else {
        return Ok(());
    };
    let mut delete = transaction
        .prepare_cached("DELETE FROM record WHERE series = ?1 AND time_unix_ns = ?2 AND cursor = ?3")?;
    for (series, time_unix_ns, cursor) in keys {
        delete.execute(params![series, time_unix_ns, cursor])?;
    }
    index.removed = index.removed.max(highest);
    index.records -= keys.len() as u64;
    index.save_counters(transaction)
}

/// Records removed, or series visited, in one transaction: about 10 ms.
const STEP: i64 = 1000;
