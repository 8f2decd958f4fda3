//! Retention: removes records that are too old. Then, while the archive is too large, retention
//! removes records of the origins that take the most space, starting with the records that were
//! stored first. An even share is the archive's limit divided by the number of origins. If the
//! estimated shares are right, an origin that uses less than seven eighths of an even share loses
//! no records because of other origins.
//!
//! One step removes at most [`STEP`] records, or estimates the shares, so that an append waits for
//! some tens of milliseconds at most.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use rusqlite::{Transaction, params};

use super::store::{Index, Store};
use crate::EngineError;

#[derive(Clone, Copy)]
pub(super) struct Retention {
    pub(super) keep: Duration,
    pub(super) keep_bytes: u64,
}

impl Retention {
    /// Earliest time label of the records that retention keeps at the time `present_unix_ns`.
    pub(super) fn cutoff_unix_ns(self, present_unix_ns: i64) -> i64 {
        present_unix_ns.saturating_sub(i64::try_from(self.keep.as_nanos()).unwrap_or(i64::MAX))
    }
}

/// One run of retention, in steps.
pub(super) struct Sweep {
    /// Time before which records are too old.
    cutoff_unix_ns: i64,
    /// The last series that was checked for age; `None` if all series were checked, so that the
    /// size is checked next.
    visited: Option<i64>,
    /// The origins that use too much space, and the number of steps before the shares are estimated
    /// again.
    oversized: Option<(OversizedOrigins, u32)>,
    pub(super) removed: u64,
}

impl Sweep {
    pub(super) fn new(store: &mut Store) -> Self {
        Self { cutoff_unix_ns: store.cutoff_unix_ns(), visited: Some(0), oversized: None, removed: 0 }
    }

    /// Does one step; `true` if the run is complete.
    pub(super) fn step(&mut self, store: &mut Store) -> Result<bool, EngineError> {
        if let Some(visited) = self.visited {
            let cutoff_unix_ns = self.cutoff_unix_ns;
            let (visited, removed) = store
                .transact(|transaction, index| remove_old(transaction, index, visited, cutoff_unix_ns))?;
            self.visited = visited;
            self.removed += removed;
            return Ok(false);
        }
        let bytes = store.bytes().map_err(|error| store.files.error(&error))?;
        let keep_bytes = store.retention.keep_bytes;
        if bytes <= keep_bytes {
            return Ok(true);
        }
        let Some((mut oversized, steps)) = self.oversized.take() else {
            // The estimate does not match the size of the file exactly, so remove only half of the
            // excess before the next estimate.
            let part = f64::max(PART_MIN, (1.0 - keep_bytes as f64 / bytes as f64) / 2.0);
            let oversized =
                store.transact(|transaction, index| OversizedOrigins::estimate(transaction, index, part))?;
            self.oversized = Some((oversized, SAMPLE_STEPS));
            return Ok(false);
        };
        let is_last = |oversized: &OversizedOrigins| steps == 1 || oversized.is_done();
        let (removed, is_over) = store.transact(|transaction, index| {
            let removed = oversized.remove(transaction, index)?;
            if oversized.has_removed || !is_last(&oversized) {
                return Ok((removed, false));
            }
            let removed = remove_first(transaction, index)?;
            Ok((removed, removed == 0))
        })?;
        self.oversized = (!is_last(&oversized)).then_some((oversized, steps - 1));
        self.removed += removed;
        Ok(is_over)
    }
}

/// The origins that take the largest shares of the archive's bytes. Retention reduces each of these
/// origins to the same number of bytes, so that together they release a given fraction of all
/// bytes.
///
/// The bytes of the records of each origin are estimated from records at positions spread over the
/// whole archive. Counting all records would take seconds, during which no append is stored. The
/// bytes of the names of the origins' series are added.
struct OversizedOrigins {
    /// Number of records to remove, by the key of the origin.
    origins: HashMap<i64, i64>,
    /// Position from which the records of these origins are searched.
    from: i64,
    /// Whether the search found no further records.
    is_end: bool,
    /// Whether a record was removed since the estimate.
    has_removed: bool,
}

/// Estimated number of records of an origin in the archive, and the estimated bytes of these
/// records.
#[derive(Clone, Copy, Debug)]
struct OriginEstimate {
    records: f64,
    bytes: f64,
    /// Position from which the origin's records are searched: four sampling ranges before the first
    /// sampled record of the origin.
    from: i64,
}

impl OversizedOrigins {
    fn estimate(transaction: &Transaction<'_>, index: &Index, part: f64) -> rusqlite::Result<Self> {
        let first: Option<i64> =
            transaction.query_row("SELECT min(cursor) FROM record", [], |row| row.get(0))?;
        let first = first.unwrap_or(0);
        let width = ((index.cursor.cast_signed() - first) / SAMPLES).max(0) + 1;
        let mut one = transaction.prepare_cached(
            "SELECT cursor, origin, octet_length(detail) FROM record
             WHERE ?1 <= cursor AND cursor < ?2 AND NOT (origin = ?3 AND ?4 < seq) ORDER BY cursor LIMIT 1",
        )?;
        let mut before = transaction.prepare_cached(
            "SELECT coalesce(max(cursor), ?1 - 1) FROM record WHERE ?1 <= cursor AND cursor < ?2
             AND NOT (origin = ?3 AND ?4 < seq)",
        )?;
        let (own, passed) = waiting(index);
        let mut random = fastrand::Rng::with_seed(index.cursor);
        let mut estimates: HashMap<i64, OriginEstimate> = HashMap::new();
        for sample in 0..SAMPLES {
            let begin = first + sample * width;
            // Positions are random within each range, because origins may store records in a
            // regular pattern.
            let mut rows = one.query([begin + random.i64(0..width), begin + width, own, passed])?;
            let Some(row) = rows.next()? else { continue };
            let (cursor, origin, bytes): (i64, _, _) = (row.get(0)?, row.get(1)?, bytes_in_file(row.get(2)?));
            // Every random position between the previous record and this record selects this
            // record. If records just before this record were removed, there are many such
            // positions, so this record gets a smaller weight.
            let positions =
                cursor - before.query_row([begin, cursor, own, passed], |row| row.get::<_, i64>(0))?;
            let estimate = estimates.entry(origin).or_insert(OriginEstimate {
                records: 0.0,
                bytes: 0.0,
                from: begin - 4 * width,
            });
            let count = width as f64 / positions as f64;
            estimate.records += count;
            estimate.bytes += count * bytes as f64;
        }
        // An origin without a sampled record has few records, so only a later estimate may include
        // it.
        let names = index.names_bytes();
        for (origin, estimate) in &mut estimates {
            estimate.bytes += *names.get(origin).unwrap_or(&0) as f64;
        }
        let level =
            cut_level(estimates.values().map(|estimate| estimate.bytes as i64).collect(), part) as f64;
        estimates.retain(|_, estimate| level < estimate.bytes);
        let from = estimates.values().map(|estimate| estimate.from).min().unwrap_or(0);
        // Remove at least one record, so that each estimate makes progress.
        let count = |estimate: OriginEstimate| {
            ((estimate.records * (estimate.bytes - level) / estimate.bytes) as i64).max(1)
        };
        let origins = estimates.into_iter().map(|(origin, estimate)| (origin, count(estimate))).collect();
        Ok(Self { origins, from, is_end: false, has_removed: false })
    }

    /// Returns whether the shares must be estimated again.
    fn is_done(&self) -> bool {
        self.is_end || self.origins.values().all(|left| *left == 0)
    }

    /// Removes the oldest records of these origins among the next [`SCAN`] records, for each origin
    /// at most the number of records that are to be removed.
    fn remove(&mut self, transaction: &Transaction<'_>, index: &mut Index) -> rusqlite::Result<u64> {
        let mut next = transaction.prepare_cached(
            "SELECT series, time_unix_ns, cursor, origin FROM record
             WHERE ?4 <= cursor AND NOT (origin = ?2 AND ?3 < seq) ORDER BY cursor LIMIT ?1",
        )?;
        let (origin, passed) = waiting(index);
        let mut rows = next.query([SCAN, origin, passed, self.from])?;
        let mut keys: Vec<Key> = Vec::new();
        self.is_end = true;
        while let Some(row) = rows.next()?
            && (keys.len() as i64) < STEP
        {
            let cursor = row.get(2)?;
            (self.from, self.is_end) = (cursor + 1, false);
            if let Some(left) = self.origins.get_mut(&row.get(3)?).filter(|left| **left > 0) {
                *left -= 1;
                keys.push((row.get(0)?, row.get(1)?, cursor));
            }
        }
        drop(rows);
        remove_all(transaction, index, &keys)?;
        self.has_removed |= !keys.is_empty();
        Ok(keys.len() as u64)
    }
}

/// Returns the size to which larger shares must be cut, so that the sum of all shares decreases by
/// the fraction `part`. Shares below that size do not change.
fn cut_level(mut shares: Vec<i64>, part: f64) -> i64 {
    shares.sort_unstable_by_key(|share| std::cmp::Reverse(*share));
    let mut above = -(shares.iter().sum::<i64>() as f64 * part) as i64;
    for (at, share) in shares.iter().enumerate() {
        above += share;
        let level = above / (at as i64 + 1);
        if shares.get(at + 1).is_none_or(|next| *next <= level) {
            return level;
        }
    }
    0
}

/// Bytes of a record in the file. A record with a long detail is partly in the table and partly in
/// separate pages (SQLite's file format, section 1.6, for pages of 4096 bytes in an index).
fn bytes_in_file(detail_bytes: i64) -> i64 {
    const PAGE: i64 = 4096;
    const IN_TABLE_MAX: i64 = 1002;
    const IN_TABLE_MIN: i64 = 489;
    const OF_PAGE: i64 = PAGE - 4;
    let bytes = RECORD_BYTES + detail_bytes;
    if bytes <= IN_TABLE_MAX {
        return bytes;
    }
    let rest = IN_TABLE_MIN + (bytes - IN_TABLE_MIN) % OF_PAGE;
    let in_table = if rest <= IN_TABLE_MAX { rest } else { IN_TABLE_MIN };
    in_table + (bytes - in_table + OF_PAGE - 1) / OF_PAGE * PAGE
}

/// Removes records older than the cutoff from the series after `visited`, and series that are then
/// empty. Returns the last series that was checked (`None` if all series were checked), and the
/// number of removed records.
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
    let (origin, passed) = waiting(index);
    let last = ids.last().copied();
    let mut done = visited;
    let mut removed = 0;
    let mut checked = Vec::new();
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
        checked.push(id);
        done = id;
    }
    remove_empty(transaction, index, checked)?;
    let next = if removed == STEP { Some(done) } else { last };
    Ok((next, removed.cast_unsigned()))
}

/// Removes the records stored first. Returns their number.
fn remove_first(transaction: &Transaction<'_>, index: &mut Index) -> rusqlite::Result<u64> {
    let mut first = transaction.prepare_cached(
        "SELECT series, time_unix_ns, cursor FROM record WHERE NOT (origin = ?2 AND ?3 < seq)
         ORDER BY cursor LIMIT ?1",
    )?;
    let (origin, passed) = waiting(index);
    let keys = first
        .query_map([STEP, origin, passed], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<rusqlite::Result<Vec<Key>>>()?;
    remove_all(transaction, index, &keys)?;
    Ok(keys.len() as u64)
}

/// Key of the forwarding origin, and the mesh's watermark. Records of this origin above the
/// watermark are kept at any age, because the mesh does not have them yet. No origin has the key
/// −1.
fn waiting(index: &Index) -> (i64, i64) {
    index.spool.as_ref().map_or((-1, 0), |spool| (spool.origin, spool.passed.cast_signed()))
}

/// Key of a record in the table: series, time label and cursor.
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

/// Removes records, and removes the series that then have no record: the names of a series may take
/// more space than its records did.
fn remove_all(transaction: &Transaction<'_>, index: &mut Index, keys: &[Key]) -> rusqlite::Result<()> {
    remove(transaction, index, keys)?;
    let series: HashSet<i64> = keys.iter().map(|&(series, ..)| series).collect();
    remove_empty(transaction, index, series)
}

/// Removes the given series that have no record.
fn remove_empty(
    transaction: &Transaction<'_>,
    index: &mut Index,
    series: impl IntoIterator<Item = i64>,
) -> rusqlite::Result<()> {
    let mut delete = transaction.prepare_cached(
        "DELETE FROM series WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM record WHERE series = ?1)",
    )?;
    let mut gone = HashSet::new();
    for id in series {
        if delete.execute([id])? == 1 {
            gone.insert(id);
        }
    }
    if !gone.is_empty() {
        index.forget_series(&gone);
    }
    Ok(())
}

/// Largest number of records removed, or of series checked, in one transaction. Such a transaction
/// takes about 10 ms.
const STEP: i64 = 1000;

/// Largest number of records read for one removal of up to [`STEP`] records. If few records of the
/// read belong to the origins to reduce, the read takes some tens of milliseconds.
const SCAN: i64 = 20_000;

/// Number of records sampled to estimate the shares: forty for each origin, if there are a hundred
/// origins. A record with a long detail takes as many bytes as seventy records without details, so
/// an origin with a few long records must be sampled too.
const SAMPLES: i64 = 4000;

/// Smallest fraction of all bytes to remove after one estimate, because an archive that exceeds its
/// limit by little would otherwise need many estimates.
pub(super) const PART_MIN: f64 = 1.0 / 8.0;

/// Largest number of removal steps before the shares are estimated again.
const SAMPLE_STEPS: u32 = 16;

/// Bytes of a record without detail in the file.
const RECORD_BYTES: i64 = 66;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_level_removes_an_eighth_from_the_largest_shares() {
        for (shares, expected) in [
            (vec![], 0),
            (vec![800], 700),
            (vec![100; 8], 87),
            // A small share does not change the size to which larger shares are cut.
            (vec![1, 350, 350, 350], 306),
            (vec![1400, 100, 100], 1200),
            (vec![500, 400, 100], 387),
        ] {
            assert_eq!(cut_level(shares.clone(), PART_MIN), expected, "{shares:?}");
        }
    }

    #[test]
    fn bytes_in_file_counts_the_overflow_pages_of_a_long_detail() {
        assert_eq!([0, 900, 936].map(bytes_in_file), [66, 966, 1002]);
        assert_eq!(bytes_in_file(937), 489 + 4096);
        assert_eq!(bytes_in_file(4096), 489 + 4096);
    }
}
