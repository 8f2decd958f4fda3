//! File of the cost of bulk tests in the last hour, so that a restart does not restore the budget.

use std::path::Path;
use std::time::Duration;

use barograph_mesh::{BudgetConfig, Cost, PastTest, Role, TestAdmission};
use serde::{Deserialize, Serialize};

use super::log::ROLES;
use super::now_s;
use crate::state::StateFiles;

pub(super) struct BudgetFile {
    files: StateFiles,
}

/// A test that counts until a wall-clock time: only the wall clock continues while the station is
/// stopped.
#[derive(Serialize, Deserialize)]
struct Line {
    until_s: f64,
    role: String,
    peer: Box<str>,
    seconds: f64,
    bytes: u64,
}

impl BudgetFile {
    /// Charges the admission with the tests of earlier runs, or with the whole budget if the file
    /// cannot be read.
    pub(super) fn open(files: &StateFiles, budget: &BudgetConfig, gate: &mut TestAdmission) -> Self {
        let file = Self { files: files.clone() };
        let path = files.directory().join(FILE);
        let past = read(&path, now_s()).unwrap_or_else(|error| {
            let path = path.display();
            tracing::warn!("cannot read {path}: {error}; no bulk tests for an hour");
            vec![PastTest { left: HOUR, role: Role::Target, peer: "".into(), cost: budget.per_hour() }]
        });
        if !past.is_empty() {
            gate.import_tests(Duration::ZERO, past);
            // Write the times again, relative to the current clock. A time that is too far in the
            // future then counts for one hour from now, and not for one hour from each start.
            file.write(&gate.export_tests(Duration::ZERO));
        }
        file
    }

    pub(super) fn write(&self, past: &[PastTest]) {
        let text = serde_json::to_vec(&lines(past, now_s())).expect("texts and finite numbers are JSON");
        self.files.write(FILE, text, "after a restart bulk tests may exceed the budget of the hour");
    }
}

fn lines(past: &[PastTest], now_s: f64) -> Vec<Line> {
    let line = |past: &PastTest| Line {
        until_s: now_s + past.left.as_secs_f64(),
        role: ROLES[usize::from(past.role == Role::Target)].into(),
        peer: past.peer.clone(),
        seconds: past.cost.duration.as_secs_f64(),
        bytes: past.cost.bytes,
    };
    past.iter().map(line).collect()
}

fn read(path: &Path, now_s: f64) -> Result<Vec<PastTest>, String> {
    let text = match std::fs::metadata(path) {
        Ok(metadata) if metadata.len() > BYTES_MAX => Err(std::io::Error::other("it is too long")),
        Ok(_) => std::fs::read(path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => Err(error),
    };
    let text = text.map_err(|error| error.to_string())?;
    let lines: Vec<Line> = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    // If the clock was set back, tests count for longer, but for an hour at most.
    lines.into_iter().filter(|line| now_s < line.until_s).map(|line| past(line, now_s)).collect()
}

fn past(line: Line, now_s: f64) -> Result<PastTest, String> {
    let duration = Duration::try_from_secs_f64(line.seconds).map_err(|error| error.to_string())?;
    let left = Duration::try_from_secs_f64((line.until_s - now_s).min(HOUR.as_secs_f64()));
    let role = match ROLES.iter().position(|role| *role == line.role) {
        Some(0) => Role::Source,
        Some(_) => Role::Target,
        None => return Err("a test with an unknown role".into()),
    };
    let cost = Cost { duration, bytes: line.bytes };
    Ok(PastTest { left: left.map_err(|error| error.to_string())?, role, peer: line.peer, cost })
}

const FILE: &str = "budget.json";
/// Length of the time window of the budget (docs/spec/plan.md §1).
const HOUR: Duration = Duration::from_hours(1);
/// Maximum number of bytes of a file that is read: 1440 tests with the longest names. The log of a
/// budget has no more tests.
const BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use barograph_mesh::TestAdmissionConfig;

    use super::*;

    const NOW_S: f64 = 1_767_225_600.0;

    fn spent() -> Vec<PastTest> {
        let cost = Cost { duration: Duration::from_secs(5), bytes: 9 };
        let left = Duration::from_secs(1800);
        let one = PastTest { left, role: Role::Source, peer: "b".into(), cost };
        vec![one.clone(), PastTest { left: HOUR, role: Role::Target, ..one }]
    }

    #[test]
    fn spent_budget_expires_between_runs_but_not_by_a_clock_set_back() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join(FILE);
        assert_eq!(read(&path, NOW_S), Ok(vec![]));
        std::fs::write(&path, serde_json::to_vec(&lines(&spent(), NOW_S)).unwrap()).unwrap();
        let left = |now_s| -> Vec<u64> {
            read(&path, now_s).unwrap().iter().map(|past| past.left.as_secs()).collect()
        };
        assert_eq!(read(&path, NOW_S), Ok(spent()));
        assert_eq!(left(NOW_S + 600.0), [1200, 3000]);
        assert_eq!(left(NOW_S + 1800.0), [1800]);
        assert_eq!(left(NOW_S - 60.0), [1860, 3600]);
        assert_eq!(left(0.0), [3600, 3600]);
        assert!(left(NOW_S + 3600.0).is_empty());
    }

    #[test]
    fn a_damaged_budget_file_counts_as_spent_for_one_hour() {
        let state = tempfile::tempdir().unwrap();
        let budget = BudgetConfig::default();
        let long = "x".repeat(BYTES_MAX as usize + 1);
        let line = r#"{"until_s": 1e18, "role": "source", "peer": "b", "seconds": 1, "bytes": 1}"#;
        let damaged = [
            "",
            "[",
            "{}",
            "[1]",
            &format!("[{}]", line.replace("source", "x")),
            &format!("[{}]", line.replace("1,", "-1,")),
            &format!("[{}]", line.replace("1}", "-1}")),
            &long,
        ];
        for damaged in damaged {
            std::fs::write(state.path().join(FILE), damaged).unwrap();
            for _ in 0..2 {
                let mut gate =
                    TestAdmission::new(TestAdmissionConfig { budget, ..TestAdmissionConfig::default() })
                        .unwrap();
                BudgetFile::open(&StateFiles::new(state.path()), &budget, &mut gate);
                assert_eq!(gate.spent(Duration::ZERO).target, budget.per_hour(), "{damaged:.80}");
                let little = Cost { duration: Duration::from_millis(1), bytes: 0 };
                assert!(gate.start(Duration::ZERO, "b", little).is_err());
                assert!(gate.start(HOUR, "b", little).is_ok());
            }
        }
    }
}
