//! What the cells gave, as Markdown and as JSON.

use std::fmt::Write;

use barograph_probe::reduce::median;

use super::study::Study;

/// The account of all cells together.
struct Totals {
    /// Of each test that might end early: its bytes over those of a 10 s test of its cell.
    shares: Vec<f64>,
    /// How far its rate was from the median of the 10 s tests of its cell, as a share of that.
    errors: Vec<f64>,
    early: usize,
    bytes: f64,
    long_bytes: f64,
}

pub(crate) fn json(studies: &[Study]) -> anyhow::Result<String> {
    Ok(serde_json::to_string(studies)? + "\n")
}

pub(crate) fn markdown(studies: &[Study], loads: &[String; 2]) -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let [before, after] = loads;
    let mut text = format!(
        "# Streams that end early\n\n{processors} processors, load {before} before and {after} after. Rates are \
         medians in Mbit/s; bytes are those of the tests that might end early, as a share of a 10 s test's; errors \
         are against the median rate after start-up of the cell's 10 s tests. The emulator's share of a core is its \
         largest in a quarter of a second; over 70 % a test is void.\n\n\
         | cell | whole | iperf3 | ours ÷ iperf3 | after start-up | spread | ended early | bytes | median error | \
         largest | emulator |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    for study in studies {
        row(&mut text, study);
    }
    let totals = Totals::of(studies);
    let _ = writeln!(text, "\n{}", totals.sentence());
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
    let (Some(whole), Some(theirs), Some(settled)) =
        (middle(study, |long| long.whole_bit_s), median(&study.iperf3_bit_s), settled(study))
    else {
        let _ = writeln!(text, "| {name} | void | | | | | | | | | {cpu} |");
        return;
    };
    let (shares, errors) = (shares(study), errors(study));
    let early = study.early.iter().filter(|short| short.is_early).count();
    let spread = study.long.iter().map(|long| (long.settled_bit_s / settled - 1.0).abs()).fold(0.0, f64::max);
    let _ = writeln!(
        text,
        "| {name} | {:.1} | {:.1} | {:.3} | {:.1} | ±{:.0} % | {early} of {} | {} | {} | {} | {cpu} |",
        whole / 1e6,
        theirs / 1e6,
        whole / theirs,
        settled / 1e6,
        spread * 100.0,
        study.early.len(),
        percent(median(&shares)),
        percent(median(&errors)),
        percent(errors.iter().copied().reduce(f64::max)),
    );
}

fn middle(study: &Study, of: fn(&super::study::Long) -> f64) -> Option<f64> {
    median(&study.long.iter().map(of).collect::<Vec<_>>())
}

fn settled(study: &Study) -> Option<f64> {
    middle(study, |long| long.settled_bit_s)
}

fn shares(study: &Study) -> Vec<f64> {
    let long = middle(study, |long| long.bytes as f64).unwrap_or(f64::NAN);
    study.early.iter().map(|short| short.bytes as f64 / long).collect()
}

fn errors(study: &Study) -> Vec<f64> {
    let reference = settled(study).unwrap_or(f64::NAN);
    study.early.iter().map(|short| (short.rate_bit_s / reference - 1.0).abs()).collect()
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

impl Totals {
    fn of(studies: &[Study]) -> Self {
        let long = |study: &Study| middle(study, |long| long.bytes as f64).unwrap_or(0.0);
        Self {
            shares: studies.iter().flat_map(shares).collect(),
            errors: studies.iter().flat_map(errors).collect(),
            early: studies.iter().flat_map(|study| &study.early).filter(|short| short.is_early).count(),
            bytes: studies.iter().flat_map(|study| &study.early).map(|short| short.bytes as f64).sum(),
            long_bytes: studies.iter().map(|study| study.early.len() as f64 * long(study)).sum(),
        }
    }

    fn sentence(&self) -> String {
        let Self { shares, errors, early, bytes, long_bytes } = self;
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        format!(
            "All together: {early} of {} tests ended early; they used {} of a 10 s test's bytes in the median, {} on \
             average, {} of all bytes; median error {}, 90th percentile {}.",
            shares.len(),
            percent(median(shares)),
            percent((!shares.is_empty()).then_some(mean)),
            percent((0.0 < *long_bytes).then_some(bytes / long_bytes)),
            percent(median(errors)),
            percent(quantile(errors, 0.9)),
        )
    }
}

/// The smallest value that a share `q` of them does not exceed.
fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

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
}
