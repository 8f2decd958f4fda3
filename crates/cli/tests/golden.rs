//! The steps of `--preset nws` equal, row by row, those of the independent model of NWS 2.x.
//!
//! The golden files are not part of this repository. They are looked for in `../shared` beside the
//! workspace, or in the folder that BAROGRAPH_SHARED names.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn two_level() {
    compare_all("two-level", "nws2");
}

#[test]
fn flat() {
    compare_all("flat", "flat");
}

/// Compares every trace that has a golden file.
fn compare_all(rule: &str, suffix: &str) {
    let Some(shared) = shared() else { return };
    let mut traces: Vec<PathBuf> = fs::read_dir(shared.join("traces"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "csv"))
        .collect();
    traces.sort();
    let (mut rows, mut ties, mut files) = (0, 0, 0);
    for trace in traces {
        let name = trace.file_stem().unwrap().to_str().unwrap();
        let golden = shared.join("golden").join(format!("{name}.{suffix}.csv"));
        if !golden.exists() {
            continue;
        }
        let (compared, tied) = compare(&trace, rule, &fs::read_to_string(golden).unwrap());
        files += 1;
        rows += compared;
        ties += tied;
    }
    assert!(0 < files, "no trace has a golden file");
    println!("{rule}: {rows} rows of {files} traces are equal; {ties} methods differ where errors tie");
}

/// Compares the rows of one trace; how many there were, and how many methods differ by a tie.
fn compare(trace: &Path, rule: &str, golden: &str) -> (usize, usize) {
    let output = Command::new(env!("CARGO_BIN_EXE_barograph"))
        .args(["forecast", "--preset", "nws", "--select", rule, "--steps"])
        .arg(trace)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.lines().next(), golden.lines().next(), "the header of {}", trace.display());

    let (mut rows, mut ties) = (0, 0);
    for (ours, theirs) in printed.lines().zip(golden.lines()).skip(1) {
        let (ours, theirs): (Vec<&str>, Vec<&str>) = (ours.split(',').collect(), theirs.split(',').collect());
        let wrong = format!("{}, ours {ours:?}, golden {theirs:?}", trace.display());
        assert_eq!((ours.len(), theirs.len()), (9, 9), "{wrong}");
        for column in [0, 1, 2, 3, 4, 6, 7] {
            let (a, b): (f64, f64) = (ours[column].parse().unwrap(), theirs[column].parse().unwrap());
            assert!((a - b).abs() <= TOLERANCE * b.abs(), "column {column} of {wrong}");
        }
        for (method, error) in [(5, 4), (8, 7)] {
            if ours[method] != theirs[method] {
                // The forecasts and the errors so far were found equal above, so that whatever
                // distinguishes the two methods is below rounding; which one comes first is then
                // a matter of the order of additions.
                println!("tie: column {error} of {wrong}");
                ties += 1;
            }
        }
        rows += 1;
    }
    assert_eq!(rows, golden.lines().count() - 1, "as many rows as {} has golden", trace.display());
    (rows, ties)
}

/// Where the traces and golden files are, if they are there.
fn shared() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("BAROGRAPH_SHARED").map_or_else(beside, PathBuf::from);
    if shared.join("golden").is_dir() && shared.join("traces").is_dir() {
        return Some(shared);
    }
    println!("SKIPPED: no golden files in {}; nothing was compared", shared.display());
    None
}

/// The golden files print nine significant digits.
const TOLERANCE: f64 = 1e-8;
