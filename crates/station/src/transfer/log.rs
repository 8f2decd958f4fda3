//! The newest transfers and what became of them. Pure.

use std::collections::VecDeque;

use serde::Serialize;

/// What a transfer does, or what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// For its sender, or for the receiver's answer.
    Waiting,
    /// Data is on its way.
    Running,
    /// All came; it is verified and files get their names.
    Verifying,
    /// All files are there.
    Done,
    /// It ended too early; what came is kept, and the same transfer goes on there.
    Failed,
    /// Somebody asked for its end.
    Cancelled,
    Expired,
}

impl State {
    pub(crate) fn is_ended(self) -> bool {
        !matches!(self, Self::Waiting | Self::Running | Self::Verifying)
    }
}

/// One transfer, at this end.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) id: String,
    /// `sender` or `receiver`.
    pub(crate) role: &'static str,
    pub(crate) state: State,
    /// When it was asked for, seconds since 1970-01-01 UTC.
    pub(crate) time_s: f64,
    /// The other end: a station of the mesh by its name, else an address.
    pub(crate) peer: Option<String>,
    pub(crate) files: Option<u64>,
    pub(crate) bytes: Option<u64>,
    /// Bytes that were there from before.
    pub(crate) held_bytes: Option<u64>,
    /// Bytes that are there now.
    pub(crate) there_bytes: u64,
    /// From the first datagram to the last acknowledgement.
    pub(crate) duration_s: Option<f64>,
    /// Bytes of files that came in this session, in that time.
    pub(crate) goodput_bit_s: Option<f64>,
    /// Packets lost, by whose fault; a sender's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lost: Option<Lost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
}

/// Packets lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Lost {
    pub(crate) sent_packets: u64,
    pub(crate) host: u64,
    pub(crate) network: u64,
    pub(crate) unknown: u64,
}

impl Row {
    pub(crate) fn new(id: String, role: &'static str, time_s: f64, peer: Option<String>) -> Self {
        Self {
            id,
            role,
            state: State::Waiting,
            time_s,
            peer,
            files: None,
            bytes: None,
            held_bytes: None,
            there_bytes: 0,
            duration_s: None,
            goodput_bit_s: None,
            lost: None,
            why: None,
        }
    }
}

/// The newest of them.
#[derive(Debug, Default)]
pub(crate) struct Log {
    rows: VecDeque<Row>,
}

impl Log {
    /// Adds one, and forgets the oldest that has ended where there are too many.
    pub(crate) fn add(&mut self, row: Row) {
        if ROWS_MAX <= self.rows.len()
            && let Some(index) = self.rows.iter().position(|row| row.state.is_ended())
        {
            self.rows.remove(index);
        }
        self.rows.push_back(row);
    }

    /// Changes one that has not ended.
    pub(crate) fn change(&mut self, id: &str, change: impl FnOnce(&mut Row)) {
        let row = self.rows.iter_mut().rev().find(|row| row.id == id);
        if let Some(row) = row.filter(|row| !row.state.is_ended()) {
            change(row);
        }
    }

    /// Changes one that ended well, also if it was to be ended when all was there but the names: that comes too late.
    pub(crate) fn finish(&mut self, id: &str, change: impl FnOnce(&mut Row)) {
        if let Some(row) = self.rows.iter_mut().rev().find(|row| row.id == id) {
            change(row);
        }
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Row> {
        self.rows.iter().rev().find(|row| row.id == id)
    }

    /// How many have not ended.
    pub(crate) fn open(&self) -> usize {
        self.rows.iter().filter(|row| !row.state.is_ended()).count()
    }

    /// The newest first.
    pub(crate) fn newest(&self) -> Vec<Row> {
        self.rows.iter().rev().cloned().collect()
    }
}

/// As many as of tests between stations: two a screen.
const ROWS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_has_ended_stays_so_and_goes_first() {
        let mut log = Log::default();
        for index in 0..ROWS_MAX {
            log.add(Row::new(index.to_string(), "sender", 0.0, None));
        }
        log.change("3", |row| row.state = State::Cancelled);
        log.change("3", |row| row.state = State::Done);
        assert_eq!(log.get("3").unwrap().state, State::Cancelled);
        log.finish("3", |row| row.state = State::Done);
        assert_eq!(log.get("3").unwrap().state, State::Done, "the files are there");
        log.add(Row::new("new".into(), "sender", 0.0, None));
        assert!(log.get("3").is_none() && log.get("0").is_some());
        assert_eq!((log.open(), log.newest()[0].id.as_str()), (ROWS_MAX, "new"));
    }
}
