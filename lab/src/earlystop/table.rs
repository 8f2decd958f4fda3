//! What the cells gave, as Markdown and as JSON.

use barograph_probe::calibration::Calibration;

use super::study::{Long, Study};
use crate::stats::{Rank, deviation, mean_of_some as mean, median, quantile, sorted};
use crate::table::{Table, cells, number, shown};

pub(crate) fn markdown(studies: &[Study], loads: &[String; 2]) -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let [before, after] = loads;
    let mut table = Table::new([
        "cell",
        "whole",
        "iperf3",
        "÷ iperf3",
        "after start-up",
        "spread",
        "replayed: early",
        "bytes",
        "median error",
        "largest",
        "made: early",
        "bytes",
        "median error",
        "emulator",
    ]);
    studies.iter().for_each(|study| table.push(row(study)));
    let mut text = format!(
        "# Streams that end early\n\n{processors} processors, load {before} before and {after} after. Rates are \
         medians in Mbit/s. *÷ iperf3* is the ratio of the medians of 5 s, with two standard errors of it. *Spread* is \
         the standard deviation of the rate after start-up from test to test. *Replayed*: each test of full length as \
         if it might have ended early; its bytes as a share of a 10 s test's, and its estimate against what the same \
         test gave. *Made*: tests that might end early; their bytes, and their rate against the median of the full \
         tests. The emulator's share of a core is its largest in a quarter of a second; over 70 % a test is void.\n\n\
         {table}\n{}\n",
        verdict(studies)
    );
    for study in studies {
        text +=
            &study.void.as_ref().map_or(String::new(), |void| format!("\n- {}: {void}\n", study.cell.name()));
    }
    text
}

fn row(study: &Study) -> Vec<String> {
    let name = study.cell.name();
    let cpu = shown(study.cpu_peak, |share| format!("{:.0} %", share * 100.0));
    let Some(full) = full(study) else {
        return [name, "void".to_owned()]
            .into_iter()
            .chain([const { String::new() }; 11])
            .chain([cpu])
            .collect();
    };
    let mbit_s = |rate: Option<f64>| number(rate.map(|rate| rate / 1e6), 1);
    let logs: Vec<f64> = study.long.iter().map(|long| long.full_bit_s.ln()).collect();
    let (errors, made_errors) = (errors(study), made_errors(study));
    let replayed = study.replayed.iter().filter(|replayed| replayed.deviation.is_some()).count();
    let early = study.early.iter().filter(|short| short.is_early).count();
    cells![
        name,
        mbit_s(median(&wholes(study))),
        mbit_s(median(&study.iperf3_bit_s)),
        shown(against_iperf3(study), |(ratio, error)| format!("{ratio:.3} ± {error:.3}")),
        mbit_s(Some(full)),
        percent(deviation(&logs)),
        format!("{replayed} of {}", study.replayed.len()),
        percent(mean(&shares(study))),
        percent(median(&errors)),
        percent(errors.iter().copied().reduce(f64::max)),
        format!("{early} of {}", study.early.len()),
        percent(mean(&made_shares(study))),
        percent(median(&made_errors)),
        cpu,
    ]
}

/// The goals, and what became of them.
fn verdict(studies: &[Study]) -> String {
    let of_cells =
        |of: fn(&Study) -> Vec<f64>| studies.iter().flat_map(|study| mean(&of(study))).collect::<Vec<_>>();
    let pooled = |of: fn(&Study) -> Vec<f64>| studies.iter().flat_map(of).collect::<Vec<_>>();
    let (made, replayed) = (of_cells(made_shares), of_cells(shares));
    let full = studies.iter().flat_map(|study| Some(mean(&full_bytes(study))? / long_bytes(study)?));
    let full: Vec<f64> = full.collect();
    let with_audits =
        mean(&made).zip(mean(&full)).map(|(early, full)| early * (1.0 - AUDITS) + full * AUDITS);
    let mut text = format!(
        "- Bytes of a test that may end early, mean of {} cells: {} of a 10 s test's, goal 10 %: {}. Replayed: {}. With one \
         test in twenty at full length: {}. Before, {} full tests calibrate a path, {} each.\n",
        made.len(),
        percent(mean(&made)),
        met(mean(&made), BYTES_GOAL),
        percent(mean(&replayed)),
        percent(with_audits),
        Calibration::TESTS_MIN,
        percent(mean(&full)),
    );
    let of = |what: &str, errors: &[f64]| {
        let (middle, high) = (median(errors), quantile(&sorted(errors.iter().copied()), 0.9, Rank::Least));
        format!(
            "- {what}, {} tests: median error {}, goal 5 %: {}; 90th percentile {}, goal 20 %: {}.\n",
            errors.len(),
            percent(middle),
            met(middle, MEDIAN_GOAL),
            percent(high),
            met(high, HIGH_GOAL),
        )
    };
    let errors = pooled(errors);
    text += &of("Estimates against the same test's full length", &errors);
    let replayed = studies.iter().flat_map(|study| &study.replayed);
    let ended: Vec<(f64, f64)> = replayed.flat_map(|test| Some((test.ratio, test.deviation?))).collect();
    let early: Vec<f64> = ended.iter().map(|(ratio, _)| (ratio - 1.0).abs()).collect();
    text += &of("Of these, those that would have ended early", &early);
    text += &of(
        "Tests made, against the median of full tests (most of which calibrated them, and whose spread is in it)",
        &pooled(made_errors),
    );
    let within = ended.iter().filter(|(ratio, deviation)| ratio.ln().abs() <= NORMAL_90 * deviation).count();
    text += &format!(
        "- Errors within what was predicted to hold 90 % of them: {within} of {} ({}).\n",
        ended.len(),
        percent((!ended.is_empty()).then(|| within as f64 / ended.len() as f64)),
    );
    let ratios: Vec<(f64, f64)> = studies.iter().flat_map(against_iperf3).collect();
    let near = ratios.iter().filter(|(ratio, _)| (ratio - 1.0).abs() <= IPERF3_GOAL).count();
    let within = |&&(ratio, error): &&(f64, f64)| {
        IPERF3_GOAL < (ratio - 1.0).abs() && (ratio - 1.0).abs() <= error + IPERF3_GOAL
    };
    let unclear = ratios.iter().filter(within).count();
    let middle = median(&ratios.iter().map(|(ratio, _)| *ratio).collect::<Vec<_>>());
    text + &format!(
        "- Against iperf3, goal 3 %: {near} of {} cells met it, {unclear} differ by more and no more than their scatter \
         explains, {} miss it; median ratio {}.",
        ratios.len(),
        ratios.len() - near - unclear,
        number(middle, 3),
    )
}

/// Ours over iperf3's, medians, and two standard errors of that.
fn against_iperf3(study: &Study) -> Option<(f64, f64)> {
    let (ours, theirs) = (wholes(study), &study.iperf3_bit_s);
    let ratio = median(&ours)? / median(theirs)?;
    let logs = |rates: &[f64]| rates.iter().map(|rate| rate.ln()).collect::<Vec<_>>();
    let square = |rates: &[f64]| Some(deviation(&logs(rates))?.powi(2) / rates.len() as f64);
    Some((ratio, 2.0 * ratio * (square(&ours)? + square(theirs)?).sqrt()))
}

/// The whole rates of the tests that iperf3 took turns with; of all, if it took none.
fn wholes(study: &Study) -> Vec<f64> {
    let skipped = usize::from(!study.iperf3_bit_s.is_empty());
    study.long.iter().skip(skipped).map(|long| long.whole_bit_s).collect()
}

fn full(study: &Study) -> Option<f64> {
    median(&study.long.iter().map(|long| long.full_bit_s).collect::<Vec<_>>())
}

/// The bytes of the test of 10 s, which is the first.
fn long_bytes(study: &Study) -> Option<f64> {
    study.long.first().map(|long| long.bytes as f64)
}

fn full_bytes(study: &Study) -> Vec<f64> {
    study.long.iter().map(|long: &Long| long.full_bytes as f64).collect()
}

fn shares(study: &Study) -> Vec<f64> {
    let long = long_bytes(study).unwrap_or(f64::NAN);
    study.replayed.iter().map(|replayed| replayed.bytes as f64 / long).collect()
}

fn errors(study: &Study) -> Vec<f64> {
    study.replayed.iter().map(|replayed| (replayed.ratio - 1.0).abs()).collect()
}

fn made_shares(study: &Study) -> Vec<f64> {
    let long = long_bytes(study).unwrap_or(f64::NAN);
    study.early.iter().map(|short| short.bytes as f64 / long).collect()
}

fn made_errors(study: &Study) -> Vec<f64> {
    let reference = full(study).unwrap_or(f64::NAN);
    study.early.iter().map(|short| (short.rate_bit_s / reference - 1.0).abs()).collect()
}

fn met(value: Option<f64>, most: f64) -> &'static str {
    match value {
        Some(value) if value <= most => "met",
        Some(_) => "missed",
        None => "not measured",
    }
}

fn percent(share: Option<f64>) -> String {
    shown(share, |share| format!("{:.1} %", share * 100.0))
}

/// One test in so many is an audit, as the planner draws them.
const AUDITS: f64 = 1.0 / 20.0;
const BYTES_GOAL: f64 = 0.10;
const MEDIAN_GOAL: f64 = 0.05;
const HIGH_GOAL: f64 = 0.20;
const IPERF3_GOAL: f64 = 0.03;
/// Standard deviations to either side that hold 90 % of a normal distribution.
const NORMAL_90: f64 = 1.645;
