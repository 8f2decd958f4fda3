//! The newest tests and what came of them, for `GET /v1/tests` and `/metrics`. Pure.

use std::collections::VecDeque;

use serde::Serialize;

/// What became of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Running,
    /// It gave a rate; as target, bytes came.
    Done,
    /// It gave none.
    Failed,
    /// It did not begin: one end had no leave to give.
    Refused,
}

/// One test, at this end.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    #[serde(skip)]
    pub(super) id: u64,
    /// When it began, seconds since 1970-01-01 UTC; of refusals when the latest was.
    pub(crate) time_s: f64,
    /// `source` = this station sent.
    pub(crate) role: &'static str,
    pub(crate) peer: String,
    pub(crate) state: State,
    /// Somebody asked this station for it (`POST /v1/tests`).
    pub(crate) on_demand: bool,
    /// How long it was meant to be at most.
    pub(crate) test_s: f64,
    /// What it took in the end.
    pub(crate) duration_s: Option<f64>,
    pub(crate) bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) goodput_bit_s: Option<f64>,
    /// Why the stream ended: `full`, `bytes`, `early`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<&'static str>,
    /// What makes it, where that is not our own stream: `iperf3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) with: Option<&'static str>,
    /// Why it failed or was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_s: Option<f64>,
    /// How many refusals in a row it stands for.
    pub(crate) times: u64,
}

impl Row {
    pub(crate) fn new(time_s: f64, role: &'static str, peer: &str, test_s: f64, on_demand: bool) -> Self {
        Self {
            id: 0,
            time_s,
            role,
            peer: peer.into(),
            state: State::Running,
            on_demand,
            test_s,
            duration_s: None,
            bytes: None,
            goodput_bit_s: None,
            ended: None,
            with: None,
            why: None,
            retry_after_s: None,
            times: 1,
        }
    }

    pub(crate) fn refused(self, why: String, retry_after_s: Option<f64>) -> Self {
        Self { state: State::Refused, why: Some(why), retry_after_s, ..self }
    }
}

/// The newest of them, and counts of all.
#[derive(Debug, Default)]
pub(crate) struct Log {
    rows: VecDeque<Row>,
    ids: u64,
    /// By role (source, target) and state (done, failed, refused).
    pub(crate) counts: [[u64; 3]; 2],
}

impl Log {
    /// Adds one; refusals of one peer in a row are one.
    pub(crate) fn add(&mut self, row: Row) -> u64 {
        self.count(row.role, row.state);
        if let Some(last) = self.rows.back_mut()
            && row.state == State::Refused
            && (last.state, last.role, last.peer.as_str()) == (State::Refused, row.role, row.peer.as_str())
        {
            *last = Row { times: last.times + 1, id: last.id, ..row };
            return last.id;
        }
        if self.rows.len() == ROWS_MAX {
            self.rows.pop_front();
        }
        self.ids += 1;
        self.rows.push_back(Row { id: self.ids, ..row });
        self.ids
    }

    /// Says what became of one that was added as running.
    pub(crate) fn end(&mut self, id: u64, row: Row) {
        self.count(row.role, row.state);
        if let Some(slot) = self.rows.iter_mut().rev().find(|row| row.id == id) {
            *slot = Row { id, ..row };
        }
    }

    /// The newest first.
    pub(crate) fn newest(&self) -> Vec<Row> {
        self.rows.iter().rev().cloned().collect()
    }

    fn count(&mut self, role: &str, state: State) {
        let state = match state {
            State::Running => return,
            State::Done => 0,
            State::Failed => 1,
            State::Refused => 2,
        };
        self.counts[usize::from(role != ROLES[0])][state] += 1;
    }
}

/// The ends of a test, as shown.
pub(crate) const ROLES: [&str; 2] = ["source", "target"];
/// States that are counted, as shown.
pub(crate) const STATES: [&str; 3] = ["done", "failed", "refused"];
/// Half a day of a busy station.
const ROWS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_in_a_row_are_one_and_old_rows_go() {
        let mut log = Log::default();
        let row = |peer: &str| Row::new(1.0, ROLES[1], peer, 5.0, false);
        for _ in 0..1000 {
            log.add(row("b").refused("busy".into(), Some(1.0)));
        }
        let running = log.add(row("b"));
        log.end(running, Row { state: State::Done, ..row("b") });
        let rows = log.newest();
        assert_eq!((rows.len(), rows[0].state, rows[1].times), (2, State::Done, 1000));
        assert_eq!(log.counts, [[0, 0, 0], [1, 0, 1000]]);
        for peer in 0..200 {
            log.add(row(&peer.to_string()));
        }
        assert_eq!(log.newest().len(), ROWS_MAX);
        log.end(running, row("b"));
        assert!(log.newest().iter().all(|row| row.peer != "b"), "what is forgotten stays so");
    }
}
