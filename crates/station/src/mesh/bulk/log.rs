//! Log of the newest tests and their results, for `GET /v1/tests` and `/metrics`. Pure.

use std::collections::VecDeque;

use barograph_api::{BulkTest, BulkTestState};

/// Row of a test that starts.
pub(crate) fn begun(time_s: f64, role: &'static str, peer: &str, test_s: f64, on_demand: bool) -> BulkTest {
    let (role, peer) = (role.into(), peer.into());
    BulkTest {
        time_s,
        role,
        peer,
        state: BulkTestState::Running,
        on_demand,
        test_s,
        times: 1,
        ..BulkTest::default()
    }
}

/// Row of a test that is refused.
pub(crate) fn refused(test: BulkTest, why: String, retry_after_s: Option<f64>) -> BulkTest {
    BulkTest { state: BulkTestState::Refused, why: Some(why), retry_after_s, ..test }
}

/// The newest rows, and counts of all tests.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Rows with their ids, oldest first.
    rows: VecDeque<(u64, BulkTest)>,
    ids: u64,
    /// Number of tests, by role (source, target) and state (done, failed, refused).
    pub(crate) counts: [[u64; 3]; 2],
}

impl Log {
    /// Adds a row and returns its id. Consecutive refusals of one peer share one row.
    pub(crate) fn add(&mut self, row: BulkTest) -> u64 {
        self.count(&row.role, row.state);
        if let Some((id, last)) = self.rows.back_mut()
            && (row.state, last.state) == (BulkTestState::Refused, BulkTestState::Refused)
            && (&last.role, &last.peer) == (&row.role, &row.peer)
        {
            *last = BulkTest { times: last.times + 1, ..row };
            return *id;
        }
        if self.rows.len() == ROWS_MAX {
            self.rows.pop_front();
        }
        self.ids += 1;
        self.rows.push_back((self.ids, row));
        self.ids
    }

    /// Replaces the row of a running test by the row of its result, and counts the result.
    pub(crate) fn end(&mut self, id: u64, row: BulkTest) {
        self.count(&row.role, row.state);
        if let Some((_, slot)) = self.rows.iter_mut().rev().find(|(known, _)| *known == id) {
            *slot = row;
        }
    }

    /// The rows, newest first.
    pub(crate) fn newest(&self) -> Vec<BulkTest> {
        self.rows.iter().rev().map(|(_, row)| row.clone()).collect()
    }

    fn count(&mut self, role: &str, state: BulkTestState) {
        let state = match state {
            BulkTestState::Running | BulkTestState::Unknown => return,
            BulkTestState::Done => 0,
            BulkTestState::Failed => 1,
            BulkTestState::Refused => 2,
        };
        self.counts[usize::from(role != ROLES[0])][state] += 1;
    }
}

/// Names of the roles of a station in a test, for `GET /v1/tests` and `/metrics`.
pub(crate) const ROLES: [&str; 2] = ["source", "target"];
/// Names of the states of tests that are counted, for `/metrics`.
pub(crate) const STATES: [&str; 3] = ["done", "failed", "refused"];
/// Maximum number of rows: as many tests as a busy station runs in half a day.
const ROWS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_refusals_share_one_row_and_the_oldest_rows_are_dropped() {
        let mut log = Log::default();
        let row = |peer: &str| begun(1.0, ROLES[1], peer, 5.0, false);
        for _ in 0..1000 {
            log.add(refused(row("b"), "busy".into(), Some(1.0)));
        }
        let running = log.add(row("b"));
        log.end(running, BulkTest { state: BulkTestState::Done, ..row("b") });
        let rows = log.newest();
        assert_eq!((rows.len(), rows[0].state, rows[1].times), (2, BulkTestState::Done, 1000));
        assert_eq!(log.counts, [[0, 0, 0], [1, 0, 1000]]);
        for peer in 0..200 {
            log.add(row(&peer.to_string()));
        }
        assert_eq!(log.newest().len(), ROWS_MAX);
        log.end(running, row("b"));
        assert!(log.newest().iter().all(|row| row.peer != "b"), "what is forgotten stays so");
    }
}
