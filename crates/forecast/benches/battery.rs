//! Cost of one value: time with warm and with cold caches, callgrind instructions, bytes of state.
//!
//! `cargo bench -p barograph-forecast` prints one row for each preset and rule. Times are
//! wall-clock times of one thread per value, with both forecasts read. Each time is the best of
//! many short runs, because other work on the machine can only increase a time. Building the series
//! is not included.
//!
//! Instruction counts do not depend on other work, but predict times badly, because memory stalls
//! and branch mispredictions dominate. The counts need `valgrind`. Without `valgrind`, their column
//! contains `no valgrind`. The processor of `valgrind` has AVX2, but no fast deposit of bits: the
//! rules that select need about a tenth more instructions there.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::process::Command;
use std::time::Instant;

use barograph_forecast::{Battery, BatteryConfig, Objective, Preset, Rule};

/// Rows of the output: the combinations of preset and rule with a promised cost, and `nws` with two
/// selectors, for comparison.
const CASES: [(&str, Preset, Rule); 6] = [
    ("nws two-level", Preset::Nws, Rule::TwoLevel),
    ("nws two-selectors", Preset::Nws, Rule::TwoSelectors),
    ("classic two-level", Preset::Classic, Rule::TwoLevel),
    ("full blend", Preset::Full, Rule::Blend),
    ("full two-level", Preset::Full, Rule::TwoLevel),
    ("lean blend", Preset::Lean, Rule::Blend),
];
/// Number of values in a warm run. The number is so large that start-up hardly changes the mean
/// time, and so small that some runs are not interrupted.
const VALUES: usize = 20_000;
const WARM_RUNS: usize = 50;
const COLD_RUNS: usize = 5;
/// Number of series in the cold column. The series are updated one after another, and the state of
/// all series is far larger than any cache.
const SERIES: usize = 10_000;
/// Number of values of each series before the timed rounds: enough that every window is full.
const FILLED: usize = 130;
const ROUNDS: usize = 4;
/// Number of values in each of the two runs under callgrind. The reported number is the difference
/// of the two instruction counts, divided by the difference of these numbers of values.
const COUNTED: [usize; 2] = [2_000, 12_000];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, flag, case, values] = &arguments[..]
        && flag == "--only"
    {
        let case: usize = case.parse().expect("the number of a case");
        let mut battery = battery(case);
        feed(&mut battery, &series(values.parse().expect("a number of values")));
        return;
    }
    println!(
        "{:<18} {:>8} {:>8} {:>13} {:>12}",
        "preset, rule", "warm ns", "cold ns", "instructions", "state bytes"
    );
    for (case, (name, ..)) in CASES.iter().enumerate() {
        let instructions = instructions(case).map_or_else(|| "no valgrind".to_owned(), |n| n.to_string());
        let bytes = battery(case).size_bytes();
        println!(
            "{name:<18} {:>8.0} {:>8.0} {instructions:>13} {bytes:>12}",
            best(WARM_RUNS, || warm_ns(case)),
            best(COLD_RUNS, || cold_ns(case))
        );
    }
}

fn battery(case: usize) -> Battery {
    let (_, preset, rule) = CASES[case];
    Battery::new(&BatteryConfig { preset, rule, levels: vec![0.9] })
}

/// Updates the battery with each value and then reads both forecasts, as a station does.
fn feed(battery: &mut Battery, values: &[f64]) {
    for value in values {
        battery.update(*value).expect("the series is finite");
        std::hint::black_box((battery.forecast(Objective::Squared), battery.forecast(Objective::Absolute)));
    }
}

fn warm_ns(case: usize) -> f64 {
    let values = series(VALUES);
    let mut battery = battery(case);
    let start = Instant::now();
    feed(&mut battery, &values);
    start.elapsed().as_nanos() as f64 / VALUES as f64
}

/// Time for each value, in nanoseconds, if the series are updated one after another, so that the
/// state of the next series is no longer in the cache.
fn cold_ns(case: usize) -> f64 {
    let values = series(FILLED + ROUNDS);
    let mut filled = battery(case);
    feed(&mut filled, &values[..FILLED]);
    let mut batteries = vec![filled; SERIES];
    let start = Instant::now();
    for round in 0..ROUNDS {
        for battery in &mut batteries {
            feed(battery, &values[FILLED + round..=FILLED + round]);
        }
    }
    start.elapsed().as_nanos() as f64 / (SERIES * ROUNDS) as f64
}

fn best(runs: usize, run: impl Fn() -> f64) -> f64 {
    (0..runs).map(|_| run()).fold(f64::INFINITY, f64::min)
}

/// Instructions per value, from the difference of two runs of different length.
fn instructions(case: usize) -> Option<u64> {
    let [short, long] = COUNTED.map(|values| callgrind(case, values));
    Some((long? - short?) / (COUNTED[1] - COUNTED[0]) as u64)
}

fn callgrind(case: usize, values: usize) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .args(["--only", &case.to_string(), &values.to_string()])
        .output()
        .ok()?;
    let report = String::from_utf8_lossy(&output.stderr);
    let (_, count) = report.split_once("Collected :")?;
    count.split_whitespace().next()?.parse().ok()
}

/// A series like a round-trip time in ms: a level that shifts, noise, and a heavy tail. The random
/// numbers come from a fixed linear congruential generator (Knuth's MMIX), so every run has the
/// same series.
fn series(length: usize) -> Vec<f64> {
    let mut state = 42u64;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 11) as f64 + 1.0) / (1u64 << 53) as f64
    };
    let mut level = 20.0;
    (0..length)
        .map(|_| {
            if uniform() < 0.005 {
                level = 10.0 + 40.0 * uniform();
            }
            let tail = if uniform() < 0.02 { 5.0 / uniform() } else { 0.0 };
            level + (uniform() + uniform() + uniform() - 1.5) + tail
        })
        .collect()
}
