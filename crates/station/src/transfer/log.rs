//! Log of the newest transfers and their states. Pure.

use std::collections::VecDeque;

use barograph_api::{Transfer, TransferState};

/// Row of a transfer that begins.
pub(super) fn begun(id: String, role: &'static str, time_s: f64, peer: Option<String>) -> Transfer {
    let state = TransferState::Waiting;
    Transfer { id, role: role.into(), state, time_s, peer, ..Transfer::default() }
}

/// Rows of the newest transfers.
#[derive(Debug, Default)]
pub(crate) struct Log {
    rows: VecDeque<Transfer>,
}

impl Log {
    /// Adds a row. If the log is full, first drops the oldest row of a transfer that has ended.
    pub(crate) fn add(&mut self, row: Transfer) {
        if self.rows.len() >= ROWS_MAX
            && let Some(index) = self.rows.iter().position(|row| row.state.is_ended())
        {
            self.rows.remove(index);
        }
        self.rows.push_back(row);
    }

    /// Changes a row that has not ended.
    pub(crate) fn change(&mut self, id: &str, change: impl FnOnce(&mut Transfer)) {
        let row = self.rows.iter_mut().rev().find(|row| row.id == id);
        if let Some(row) = row.filter(|row| !row.state.is_ended()) {
            change(row);
        }
    }

    /// Changes the row of a transfer that is complete, even if it was cancelled. Such a
    /// cancellation came too late: all data was received, and only the files' final names were
    /// missing.
    pub(crate) fn finish(&mut self, id: &str, change: impl FnOnce(&mut Transfer)) {
        if let Some(row) = self.rows.iter_mut().rev().find(|row| row.id == id) {
            change(row);
        }
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Transfer> {
        self.rows.iter().rev().find(|row| row.id == id)
    }

    /// Number of transfers that have not ended.
    pub(crate) fn open(&self) -> usize {
        self.rows.iter().filter(|row| !row.state.is_ended()).count()
    }

    /// All rows, newest first.
    pub(crate) fn newest(&self) -> Vec<Transfer> {
        self.rows.iter().rev().cloned().collect()
    }
}

/// Maximum number of rows, as many as in the log of bulk tests.
const ROWS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ended_transfers_keep_their_state_and_are_dropped_first() {
        let mut log = Log::default();
        for index in 0..ROWS_MAX {
            log.add(begun(index.to_string(), "sender", 0.0, None));
        }
        log.change("3", |row| row.state = TransferState::Cancelled);
        log.change("3", |row| row.state = TransferState::Done);
        assert_eq!(log.get("3").unwrap().state, TransferState::Cancelled);
        log.finish("3", |row| row.state = TransferState::Done);
        assert_eq!(log.get("3").unwrap().state, TransferState::Done, "the files are there");
        log.add(begun("new".into(), "sender", 0.0, None));
        assert!(log.get("3").is_none() && log.get("0").is_some());
        assert_eq!((log.open(), log.newest()[0].id.as_str()), (ROWS_MAX, "new"));
    }
}
