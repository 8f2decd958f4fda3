//! The steps of `--preset nws` equal, row by row, the steps of the independent model of NWS 2.x.
//!
//! The golden files are not part of this repository. The golden files are in `../shared` beside the
//! workspace, or in the folder that BAROGRAPH_SHARED names.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use barograph_forecast::{Battery, BatteryConfig, Preset, Rule};

#[test]
fn two_level() {
    compare_all("two-level", "nws2", 4);
}

#[test]
fn two_selectors() {
    compare_all("two-selectors", "flat", 6);
}

/// Compares every trace that has a golden file. A selected method may differ from the golden file's
/// method only if the errors tie; at most `ties_max` methods may differ.
fn compare_all(rule: &str, suffix: &str, ties_max: usize) {
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
    assert!(files > 0, "no trace has a golden file");
    say(&format!(
        "{rule}: {rows} rows of {files} traces are equal; {ties} methods differ where errors tie (at most {ties_max})"
    ));
    assert!(ties <= ties_max, "{ties} methods differ by a tie, and {ties_max} are known");
}

/// Compares the rows of one trace; returns the number of rows, and of methods that differ by a tie.
///
/// The method in our output may differ from the method in the golden file only if the errors are
/// equal to within rounding: then a selector could select either method. From that row on, the two
/// mean errors may differ by the cost of the forecasts that differ. In every row, a selector must
/// be able to select our method.
fn compare(trace: &Path, rule: &str, golden: &str) -> (usize, usize) {
    let output = Command::new(env!("CARGO_BIN_EXE_barograph"))
        .args(["forecast", "--preset", "nws", "--select", rule, "--steps"])
        .arg(trace)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.lines().next(), golden.lines().next(), "the header of {}", trace.display());

    let mut bank = Bank::new(rule);
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
            let admissible = bank.admissible(loss);
            let (us, them) = (bank.index(ours[method]), bank.index(theirs[method]));
            assert!(admissible.contains(&us), "column {method}, ours, of {wrong}");
            assert!(admissible.contains(&them), "column {method}, golden's, without a tie of {wrong}");
            if us == them {
                assert!(near(our_forecast, their_forecast), "column {forecast} of {wrong}");
                continue;
            }
            assert!(near(bank.forecast(them), their_forecast), "column {forecast} of {wrong}");
            elsewhere[loss] += cost(loss, bank.forecast(them) - value) - cost(loss, our_forecast - value);
            ties += 1;
            let name = trace.file_stem().unwrap().display();
            say(&format!(
                "{rule}: {name}, value {}: {} ties with golden's {}",
                ours[0], ours[method], theirs[method]
            ));
        }
        bank.update(value);
        rows += 1;
    }
    assert_eq!(rows, golden.lines().count() - 1, "as many rows as {} has golden", trace.display());
    (rows, ties)
}

/// An independent, slow implementation of the rule: every method of the preset with the costs of
/// its forecasts so far, and the selectors over the methods. This implementation also finds the
/// values at which rounding may decide which method is selected.
struct Bank {
    battery: Battery,
    /// For each objective (squared or absolute error), after each value: the sum of the costs of
    /// each method so far.
    sums: [Vec<Vec<f64>>; 2],
    selectors: Vec<Selector>,
}

/// A selector: finds the methods with the least cost by one objective over one span of forecasts.
struct Selector {
    loss: usize,
    /// Number of latest forecasts that count; 0 = all.
    span: usize,
    /// The methods that the selector may select for the next value: the methods with the least
    /// cost, to within rounding.
    names: Vec<usize>,
    /// For each objective, the minimum and the maximum cost so far of the methods that the selector
    /// may have selected.
    cost: [(f64, f64); 2],
}

impl Bank {
    fn new(rule: &str) -> Self {
        let config = BatteryConfig { preset: Preset::Nws, rule: Rule::TwoSelectors, levels: Vec::new() };
        let spans: &[usize] = if rule == "two-selectors" { &[0] } else { &[0, 1, 5, 10, 20, 30, 50, 100] };
        let of = |loss| {
            let one =
                move |span: &usize| Selector { loss, span: *span, names: vec![0], cost: [(0.0, 0.0); 2] };
            spans.iter().map(one)
        };
        Self {
            battery: Battery::new(&config),
            sums: [vec![vec![0.0; 18]], vec![vec![0.0; 18]]],
            selectors: of(0).chain(of(1)).collect(),
        }
    }

    /// Adds the first value of a series, for which there was no forecast.
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
        let errors: Vec<f64> = self.battery.method_forecasts().iter().map(|(_, f)| f - value).collect();
        for selector in &mut self.selectors {
            for (loss, (least, most)) in selector.cost.iter_mut().enumerate() {
                let costs = || selector.names.iter().map(|method| cost(loss, errors[*method]));
                *least += costs().fold(f64::INFINITY, f64::min);
                *most += costs().fold(0.0, f64::max);
            }
        }
        for (loss, sums) in self.sums.iter_mut().enumerate() {
            let last = sums.last().unwrap();
            sums.push(last.iter().zip(&errors).map(|(sum, error)| sum + cost(loss, *error)).collect());
        }
        for selector in &mut self.selectors {
            selector.look_back(&self.sums[selector.loss]);
        }
        self.battery.update(value).unwrap();
    }

    /// The methods that may forecast the next value for this objective: the methods of all
    /// selectors except those selectors that certainly have a higher cost than another selector.
    fn admissible(&self, loss: usize) -> BTreeSet<usize> {
        let bound = self.selectors.iter().map(|selector| selector.cost[loss].1).fold(f64::INFINITY, f64::min);
        let in_force =
            self.selectors.iter().filter(|selector| selector.cost[loss].0 <= bound * (1.0 + ROUNDING));
        in_force.flat_map(|selector| selector.names.iter().copied()).collect()
    }
}

impl Selector {
    /// Sets `names` to the methods with the least cost over the span, to within the rounding of the
    /// sums.
    fn look_back(&mut self, sums: &[Vec<f64>]) {
        let scored = sums.len() - 1;
        // A span does not include the first forecast of the series, unless this is the only
        // forecast.
        let past = match (scored, self.span) {
            (1, _) | (_, 0) => 0,
            (_, span) => scored.saturating_sub(span).max(1),
        };
        let of = |method: usize| sums[scored][method] - sums[past][method];
        let methods = 0..sums[scored].len();
        let least = methods.clone().min_by(|a, b| of(*a).total_cmp(&of(*b))).unwrap();
        let rounding = |method: usize| ROUNDING * sums[scored][method].max(sums[scored][least]);
        self.names = methods.filter(|method| of(*method) - of(least) <= rounding(*method)).collect();
    }
}

/// Cost of a forecast with this `error`: its square, or its absolute value.
fn cost(loss: usize, error: f64) -> f64 {
    if loss == 0 { error * error } else { error.abs() }
}

/// Whether two numbers are equal in the digits of the golden files.
fn near(ours: f64, golden: f64) -> bool {
    (ours - golden).abs() <= TOLERANCE * golden.abs()
}

/// The folder of the traces and golden files, if it exists.
fn shared() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("BAROGRAPH_SHARED").map_or_else(beside, PathBuf::from);
    if shared.join("golden").is_dir() && shared.join("traces").is_dir() {
        return Some(shared);
    }
    barograph_sim::report_skipped(&format!("no golden files in {}; nothing was compared", shared.display()));
    None
}

/// Prints a line on standard error; the test harness hides `println!` of a test that passes.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Relative tolerance of comparisons: the golden files have nine significant digits.
const TOLERANCE: f64 = 1e-8;

/// Relative difference up to which two sums count as equal: about the rounding error of a sum of
/// some thousand doubles.
const ROUNDING: f64 = 1e-12;
