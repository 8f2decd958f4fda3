//! Tests `lab signatures` on this kernel, over a network and over a host that loses packets;
//! reports a skip without root.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used)]

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Command;

use barograph_sim::report_skipped;

#[test]
fn the_kernel_drop_counter_gives_the_label_of_each_run() {
    let folder = tempfile::tempdir().unwrap();
    let said = make(folder.path());
    if let Some(line) = said.lines().find(|line| line.contains("SKIPPED: ")) {
        report_skipped(line.trim_start_matches("SKIPPED: "));
        return;
    }
    let runs = text(&folder.path().join("runs.txt.gz"));
    let runs: Vec<Vec<&str>> =
        runs.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect()).collect();
    let kinds: Vec<&str> = runs.iter().map(|run| run[2]).collect();
    assert_eq!(kinds, ["random", "preempt"], "{said}");
    for run in &runs {
        let gaps: Vec<[u64; 3]> = run[7].split_whitespace().map(numbers).collect();
        assert!(!gaps.is_empty(), "{} lost nothing", run[2]);
        for [_, lost, drops] in &gaps {
            let expected = if run[1] == "net" { 0 } else { *lost };
            assert_eq!(*drops, expected, "{}", run[2]);
        }
    }
    // Random losses are single and all are the network's; those of the host come in runs.
    let rows = |label: &str| text(&folder.path().join(format!("w10000_{label}.txt.gz")));
    let bursts = |rows: &str| -> f64 {
        let runs = rows
            .lines()
            .filter(|line| !line.starts_with('#'))
            .flat_map(|line| line.rsplit('\t').next().unwrap_or_default().split(',').skip(1).step_by(2));
        let lengths: Vec<f64> = runs.map(|run| run.parse().unwrap()).collect();
        lengths.iter().sum::<f64>() / lengths.len() as f64
    };
    let (net, cpu) = (bursts(&rows("net")), bursts(&rows("cpu")));
    assert!(net < 1.5 && cpu > 3.0, "{net} and {cpu} packets in a row");
    assert_eq!(rows("hyb").lines().count(), 1, "there is no hybrid");

    // The same command finds the set complete, and a set without its tables writes them again.
    let before = text(&folder.path().join("runs.txt.gz"));
    std::fs::remove_file(folder.path().join("runs.txt.gz")).unwrap();
    let said = make(folder.path());
    assert!(said.contains("the set has 2 runs"), "{said}");
    assert_eq!(text(&folder.path().join("runs.txt.gz")), before);
}

/// Makes a run of each of two kinds, and returns what the program reported.
fn make(folder: &Path) -> String {
    let mut lab = Command::new("timeout");
    lab.args(["60", env!("CARGO_BIN_EXE_lab"), "signatures", "--kinds", "random,preempt", "--runs", "1"]);
    let done = lab.args(["--seconds", "2", "--seed", "3", "--out"]).arg(folder).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
    said
}

fn numbers(gap: &str) -> [u64; 3] {
    let numbers: Vec<u64> = gap.split(':').map(|number| number.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

fn text(path: &Path) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text
}
