//! The steps of `--preset nws` equal, row by row, those of the independent model of NWS 2.x.
//!
//! The golden files are not part of this repository. They are looked for in `../shared` beside the
//! workspace, or in the folder that BAROGRAPH_SHARED names.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use barograph_forecast::{Battery, Config, Preset, Rule};

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
///
/// Another method than golden's is accepted where the errors of the two tie to within rounding; from
/// there on, golden's mean error differs by what golden's other forecasts cost or saved.
fn compare(trace: &Path, rule: &str, golden: &str) -> (usize, usize) {
    let output = Command::new(env!("CARGO_BIN_EXE_barograph"))
        .args(["forecast", "--preset", "nws", "--select", rule, "--steps"])
        .arg(trace)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.lines().next(), golden.lines().next(), "the header of {}", trace.display());

    let mut bank = Bank::new();
    let mut elsewhere = [0.0, 0.0];
    let (mut rows, mut ties) = (0, 0);
    for (ours, theirs) in printed.lines().zip(golden.lines()).skip(1) {
        let (ours, theirs): (Vec<&str>, Vec<&str>) = (ours.split(',').collect(), theirs.split(',').collect());
        let wrong = format!("{}, ours {ours:?}, golden {theirs:?}", trace.display());
        assert_eq!((ours.len(), theirs.len()), (9, 9), "{wrong}");
        let number = |row: &[&str], column: usize| row[column].parse::<f64>().unwrap();
        for column in 0..3 {
            assert!(near(number(&ours, column), number(&theirs, column)), "column {column} of {wrong}");
        }
        if rows == 0 {
            bank.start(number(&ours, 3));
        }
        let value = number(&ours, 2);
        for (loss, forecast, error, method) in [(0, 3, 4, 5), (1, 6, 7, 8)] {
            let (our_forecast, their_forecast) = (number(&ours, forecast), number(&theirs, forecast));
            let mean = number(&ours, error) + elsewhere[loss] / (rows as f64).max(1.0);
            assert!(near(mean, number(&theirs, error)), "column {error} of {wrong}");
            if ours[method] == theirs[method] {
                assert!(near(our_forecast, their_forecast), "column {forecast} of {wrong}");
                continue;
            }
            let (us, them) = (bank.index(ours[method]), bank.index(theirs[method]));
            assert!(bank.ties(us, them, rule), "column {method} without a tie of {wrong}");
            assert!(near(bank.forecast(them), their_forecast), "column {forecast} of {wrong}");
            elsewhere[loss] += cost(loss, bank.forecast(them) - value) - cost(loss, our_forecast - value);
            ties += 1;
        }
        bank.update(value);
        rows += 1;
    }
    assert_eq!(rows, golden.lines().count() - 1, "as many rows as {} has golden", trace.display());
    (rows, ties)
}

/// Every method of the preset with the costs of its forecasts so far, in order to see ties.
struct Bank {
    battery: Battery,
    /// For each loss and value, the sums of each method's costs up to there.
    sums: [Vec<Vec<f64>>; 2],
}

impl Bank {
    fn new() -> Self {
        let config = Config { preset: Preset::Nws, rule: Rule::Flat, levels: Vec::new() };
        Self { battery: Battery::new(&config), sums: [vec![vec![0.0; 18]], vec![vec![0.0; 18]]] }
    }

    /// Takes in the first value of a series, of which there was no forecast.
    fn start(&mut self, value: f64) {
        self.battery.update(value).unwrap();
    }

    fn index(&self, method: &str) -> usize {
        self.battery.method_forecasts().iter().position(|(name, _)| name.0 == method).unwrap()
    }

    fn forecast(&self, method: usize) -> f64 {
        self.battery.method_forecasts()[method].1
    }

    fn update(&mut self, value: f64) {
        let forecasts = self.battery.method_forecasts();
        for (loss, sums) in self.sums.iter_mut().enumerate() {
            let last = sums.last().unwrap();
            let next = last.iter().zip(&forecasts).map(|(sum, (_, f))| sum + cost(loss, f - value)).collect();
            sums.push(next);
        }
        self.battery.update(value).unwrap();
    }

    /// Whether two methods cost the same over one of the spans that a selector looks back on, to
    /// within the rounding of the sums.
    fn ties(&self, a: usize, b: usize, rule: &str) -> bool {
        let spans: &[usize] = if rule == "flat" { &[0] } else { &[0, 1, 5, 10, 20, 30, 50, 100] };
        let scored = self.sums[0].len() - 1;
        self.sums.iter().any(|sums| {
            spans.iter().any(|span| {
                let past = if *span == 0 { 0 } else { scored.saturating_sub(*span) };
                let of = |method: usize| sums[scored][method] - sums[past][method];
                (of(a) - of(b)).abs() <= ROUNDING * sums[scored][a].max(sums[scored][b])
            })
        })
    }
}

/// What a forecast that is wrong by `error` costs: its square, or its size.
fn cost(loss: usize, error: f64) -> f64 {
    if loss == 0 { error * error } else { error.abs() }
}

/// Equal to the digits that the golden files print.
fn near(ours: f64, golden: f64) -> bool {
    (ours - golden).abs() <= TOLERANCE * golden.abs()
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

/// Sums of some thousand doubles agree to about this much, relative to the sum.
const ROUNDING: f64 = 1e-12;
