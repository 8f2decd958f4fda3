//! What the cells gave, as Markdown and as JSON.

use std::fmt::Write;

use barograph_probe::calibration::Calibration;
use barograph_probe::reduce::median;

use super::study::{Long, Replayed, Study};

pub(crate) fn json(studies: &[Study]) -> anyhow::Result<String> {
    Ok(serde_json::to_string(studies)? + "\n")
}

pub(crate) fn markdown(studies: &[Study], loads: &[String; 2]) -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let [before, after] = loads;
    let mut text = format!(
        "# Streams that end early\n\n{processors} processors, load {before} before and {after} after. Rates are \
         medians in Mbit/s. *÷ iperf3* is the ratio of the medians of 5 s, with two standard errors of it. *Spread* is \
         the standard deviation of the rate after start-up from test to test. *Replayed*: each test of full length as \
         if it might have ended early; its bytes as a share of a 10 s test's, and its estimate against what the same \
         test gave. *Made*: tests that might end early; their bytes, and their rate against the median of the full \
         tests. The emulator's share of a core is its largest in a quarter of a second; over 70 % a test is void.\n\n\
         | cell | whole | iperf3 | ÷ iperf3 | after start-up | spread | replayed: early | bytes | median error | \
         largest | made: early | bytes | median error | emulator |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    for study in studies {
        row(&mut text, study);
    }
    let _ = writeln!(text, "\n{}", verdict(studies));
    for study in studies {
        if let Some(void) = &study.void {
            let _ = writeln!(text, "\n- {}: {void}", study.cell.name());
        }
    }
    text
}

fn row(text: &mut String, study: &Study) {
    let name = study.cell.name();
    let cpu = study.cpu_peak.map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", share * 100.0));
    let Some(full) = full(study) else {
        let _ = writeln!(text, "| {name} | void | | | | | | | | | | | | {cpu} |");
        return;
    };
    let ours = median(&wholes(study)).unwrap_or(f64::NAN);
    let theirs = median(&study.iperf3_bit_s);
    let ratio = against_iperf3(study);
    let logs: Vec<f64> = study.long.iter().map(|long| long.full_bit_s.ln()).collect();
    let (errors, made_errors) = (errors(study), made_errors(study));
    let _ = writeln!(
        text,
        "| {name} | {:.1} | {} | {} | {:.1} | {} | {} of {} | {} | {} | {} | {} of {} | {} | {} | {cpu} |",
        ours / 1e6,
        theirs.map_or_else(|| "–".to_owned(), |rate| format!("{:.1}", rate / 1e6)),
        ratio.map_or_else(|| "–".to_owned(), |(ratio, error)| format!("{ratio:.3} ± {error:.3}")),
        full / 1e6,
        percent(deviation(&logs)),
        study.replayed.iter().filter(|replayed| replayed.deviation.is_some()).count(),
        study.replayed.len(),
        percent(mean(&shares(study))),
        percent(median(&errors)),
        percent(errors.iter().copied().reduce(f64::max)),
        study.early.iter().filter(|short| short.is_early).count(),
        study.early.len(),
        percent(mean(&made_shares(study))),
        percent(median(&made_errors)),
    );
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
    let of = |text: &mut String, what: &str, errors: &[f64]| {
        let (middle, high) = (median(errors), quantile(errors, 0.9));
        let _ = writeln!(
            text,
            "- {what}, {} tests: median error {}, goal 5 %: {}; 90th percentile {}, goal 20 %: {}.",
            errors.len(),
            percent(middle),
            met(middle, MEDIAN_GOAL),
            percent(high),
            met(high, HIGH_GOAL),
        );
    };
    let errors = pooled(errors);
    of(&mut text, "Estimates against the same test's full length", &errors);
    let ended: Vec<&Replayed> = studies.iter().flat_map(|study| &study.replayed).collect();
    let ended: Vec<(f64, f64)> = ended.iter().flat_map(|test| Some((test.ratio, test.deviation?))).collect();
    let early: Vec<f64> = ended.iter().map(|(ratio, _)| (ratio - 1.0).abs()).collect();
    of(&mut text, "Of these, those that would have ended early", &early);
    of(
        &mut text,
        "Tests made, against the median of full tests (most of which calibrated them, and whose spread is in it)",
        &pooled(made_errors),
    );
    let within = ended.iter().filter(|(ratio, deviation)| ratio.ln().abs() <= NORMAL_90 * deviation).count();
    let _ = writeln!(
        text,
        "- Errors within what was predicted to hold 90 % of them: {within} of {} ({}).",
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
    let _ = write!(
        text,
        "- Against iperf3, goal 3 %: {near} of {} cells met it, {unclear} differ by more and no more than their scatter \
         explains, {} miss it; median ratio {}.",
        ratios.len(),
        ratios.len() - near - unclear,
        middle.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.3}")),
    );
    text
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

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The standard deviation of a sample.
fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| 1 < values.len())?;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

fn met(value: Option<f64>, most: f64) -> &'static str {
    match value {
        Some(value) if value <= most => "met",
        Some(_) => "missed",
        None => "not measured",
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// The smallest value that a share `q` of them does not exceed.
fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// One test in so many is an audit, as the planner draws them.
const AUDITS: f64 = 1.0 / 20.0;
const BYTES_GOAL: f64 = 0.10;
const MEDIAN_GOAL: f64 = 0.05;
const HIGH_GOAL: f64 = 0.20;
const IPERF3_GOAL: f64 = 0.03;
/// Standard deviations to either side that hold 90 % of a normal distribution.
const NORMAL_90: f64 = 1.645;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values() {
        let values: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        assert_eq!(quantile(&values, 0.9), Some(9.0));
        assert_eq!(quantile(&[3.0], 0.9), Some(3.0));
        assert_eq!(quantile(&[], 0.9), None);
    }

    #[test]
    fn deviations_are_of_samples() {
        assert_eq!(deviation(&[1.0, 3.0]), Some(2f64.sqrt()));
        assert_eq!((deviation(&[1.0]), deviation(&[])), (None, None));
    }
}
