//! Reads the records of the spool, oldest first.

use rusqlite::params;

use super::super::RECORD_BYTES;
use super::super::read::{self, Reader};
use crate::{EngineError, HostId, Record};

impl Reader {
    pub(super) async fn seen_runs(
        &self,
        origin: &HostId,
        after: u64,
    ) -> Result<Vec<(u64, u64)>, EngineError> {
        let origin = origin.clone();
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT first, last FROM held JOIN origin ON held.origin = origin.id
                 WHERE name = ?1 AND ?2 < last ORDER BY first LIMIT 1000",
            )?;
            statement
                .query_map(params![origin.as_str(), after.cast_signed()], |row| {
                    Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(1)?.cast_unsigned()))
                })?
                .collect()
        })
        .await
    }

    pub(super) async fn spooled(
        &self,
        after: u64,
        records: usize,
        bytes: usize,
    ) -> Result<Vec<Record>, EngineError> {
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT record.cursor, name, record.seq, time_unix_ns, value, failure, after_s, detail,
                        source, target, quantity
                 FROM spool CROSS JOIN record ON record.cursor = spool.cursor
                      CROSS JOIN series ON series.id = record.series
                      CROSS JOIN origin ON origin.id = record.origin
                 WHERE ?1 < spool.seq ORDER BY spool.seq LIMIT ?2",
            )?;
            let mut rows = statement.query(params![after.cast_signed(), records as i64])?;
            let (mut found, mut room) = (Vec::new(), bytes);
            while let Some(row) = rows.next()? {
                let record = read::record(row, read::series(row, 8)?)?;
                let size = RECORD_BYTES + record.detail.len();
                if room < size && !found.is_empty() {
                    break;
                }
                room = room.saturating_sub(size);
                found.push(record);
            }
            Ok(found)
        })
        .await
    }
}
