//! Tests `lab transfer-real` on this kernel: the limit and a flow of ours; reports a skip without
//! root.

#![cfg(target_os = "linux")]

use std::process::Command;

use barograph_sim::report_skipped;
use serde_json::Value;

#[test]
fn transfers_and_their_limits_move_bytes() {
    let mut lab = Command::new("timeout");
    lab.args(["120", env!("CARGO_BIN_EXE_lab"), "transfer-real", "--parts", "uncontended", "--seconds", "1"]);
    let done = lab.args(["--only", "Barograph, sealed, classifier on", "--json"]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    if let Some(line) = said.lines().find(|line| line.contains("SKIPPED: ")) {
        report_skipped(line.trim_start_matches("SKIPPED: "));
        return;
    }
    let text = String::from_utf8(done.stdout).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let row = |what: &str| {
        let found = rows.iter().map(|row| &row["row"]).find(|row| row["what"] == what);
        found.unwrap_or_else(|| panic!("no {what}: {text}"))
    };
    for limit in ["limit, sealed", "limit, clear"] {
        assert!(row(limit)["unpaced_bit_s"].as_f64().unwrap() > 1e6, "{text}");
    }
    for ours in ["Barograph, sealed, classifier on", "Barograph, sealed, classifier on, digest"] {
        assert!(row(ours)["bit_s"].as_f64().unwrap() > 1e6, "{text}");
        assert!(row(ours)["sent_packets"].as_u64().unwrap() > 0, "{text}");
    }
    assert!(rows.iter().all(|row| row["row"]["what"] != "scp"), "nobody asked for it: {text}");
}
