//! `lab availability`: scores the probability that the next probe answers, on series with failures.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use barograph_forecast::Availability;
use barograph_sim::SeededRng;
use barograph_study::input::{Sample, SeriesReader};
use serde::Serialize;

use crate::jobs;
use crate::output::Output;
use crate::series::{files, name};
use crate::stats::{geometric_mean, median};
use crate::table::{Table, bold, cells};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder with the series (*.csv), with failures as rows, or as gaps of rtt_*.csv and
    /// resp_*.csv at a regular period.
    #[arg(value_name = "DIR")]
    traces: PathBuf,
    /// Seed of the generated series.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the numbers as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    let mut series = Vec::new();
    for file in files(&args.traces, "csv", |_| true)? {
        series.extend(outcomes(&file)?.map(|outcomes| (name(&file), outcomes)));
    }
    let real = series.len();
    series.extend(
        GENERATED.map(|(name, chances)| (format!("generated: {name}"), generated(chances, args.seed))),
    );
    let rows = jobs::all(&series, |(name, _)| name.clone(), |(name, outcomes)| Row::of(name, outcomes));
    let output = Output::new(page, args.json);
    output.print(&markdown(&rows, real))?;
    output.json(&rows)
}

/// Which probes answered, in order; `None` if none failed, or if it is not known.
fn outcomes(file: &Path) -> anyhow::Result<Option<Vec<bool>>> {
    let shown = file.display();
    let opened = File::open(file).with_context(|| format!("cannot open {shown}"))?;
    let mut reader = SeriesReader::new(BufReader::new(opened));
    let (mut samples, mut outcomes) = (Vec::new(), Vec::new());
    while let Some(sample) = reader.next() {
        samples.push(sample.with_context(|| format!("cannot read {shown}"))?);
        outcomes.extend((0..reader.take_failures()).map(|_| false));
        outcomes.push(true);
    }
    outcomes.extend((0..reader.take_failures()).map(|_| false));
    if outcomes.contains(&false) {
        return Ok(Some(outcomes));
    }
    let is_of_probes = ["rtt_", "resp_"].iter().any(|start| name(file).starts_with(start));
    Ok(if is_of_probes { from_gaps(&samples) } else { None })
}

/// Takes gaps for failures; `None` if there are none, or if the series has no regular period.
fn from_gaps(samples: &[Sample]) -> Option<Vec<bool>> {
    let steps_s: Vec<f64> = samples.windows(2).map(|pair| pair[1].time_s - pair[0].time_s).collect();
    let period_s = median(&steps_s)?;
    let regular = steps_s.iter().filter(|step_s| (**step_s - period_s).abs() < 0.1 * period_s).count();
    if (regular as f64) < REGULAR_SHARE * steps_s.len() as f64 {
        return None;
    }
    let mut outcomes = vec![true];
    for step_s in steps_s {
        let missing = ((step_s / period_s).round() - 1.0).clamp(0.0, MISSING_MAX) as usize;
        outcomes.extend(std::iter::repeat_n(false, missing));
        outcomes.push(true);
    }
    outcomes.contains(&false).then_some(outcomes)
}

/// Least share of the steps of a regular series that are within a tenth of the period.
const REGULAR_SHARE: f64 = 0.9;

/// Largest number of probes in a gap; a longer gap is rather that of the measuring host.
const MISSING_MAX: f64 = 1000.0;

/// Chances of a failure after an answer, and after a failure.
type Chances = [f64; 2];

const GENERATED: [(&str, Chances); 4] = [
    ("independent, 1 %", [0.01, 0.01]),
    ("independent, 20 %", [0.2, 0.2]),
    ("outages of 20 probes, 2 %", [0.001, 0.95]),
    ("bursts of 3 probes, 10 %", [0.037, 0.667]),
];

/// Outcomes of 10,000 probes of a chain of two states (Gilbert 1960).
fn generated([after_answer, after_failure]: Chances, seed: u64) -> Vec<bool> {
    let mut rng = SeededRng::new(seed, (1e6 * after_answer) as u64);
    let mut is_answer = true;
    let next = |_| {
        let chance = if is_answer { after_answer } else { after_failure };
        is_answer = rng.index_below(1_000_000) as f64 >= 1e6 * chance;
        is_answer
    };
    (0..10_000).map(next).collect()
}

/// Brier scores on one series.
#[derive(Debug, Serialize)]
struct Row {
    series: String,
    probes: usize,
    failures: usize,
    climatology: f64,
    /// Score of Barograph's probability for the next probe.
    next: f64,
    /// The same for the probe [`AHEAD`] probes ahead, and that of the climatology.
    ahead: [f64; 2],
    /// Score of the last outcome as a probability.
    last_outcome: f64,
    /// Score of the share of answers of the last [`RECENT`] probes.
    recent_share: f64,
}

impl Row {
    /// Scores every probability but the first.
    fn of(name: &str, outcomes: &[bool]) -> Self {
        let number = |is_answer: bool| f64::from(u8::from(is_answer));
        let squared = |probability: f64, is_answer: bool| (probability - number(is_answer)).powi(2);
        let mut availability = Availability::new();
        let (mut last_outcome, mut recent_share, mut ahead) = (0.0, 0.0, [0.0; 2]);
        let mut answers = 0.0;
        for (index, is_answer) in outcomes.iter().enumerate() {
            availability.learn(*is_answer);
            answers += number(*is_answer);
            let count = (index + 1) as f64;
            if let Some(next) = outcomes.get(index + 1) {
                let recent = &outcomes[(index + 1).saturating_sub(RECENT)..=index];
                let share =
                    recent.iter().filter(|is_answer| **is_answer).count() as f64 / recent.len() as f64;
                last_outcome += squared(number(*is_answer), *next);
                recent_share += squared(share, *next);
            }
            if let (Some(later), Some(issued)) =
                (outcomes.get(index + AHEAD), availability.probability_ahead(AHEAD as f64))
            {
                // As the climatology of `BrierScore`.
                let climatology = (answers + 0.99) / (count + 1.0);
                for (sum, probability) in ahead.iter_mut().zip([issued, climatology]) {
                    *sum += squared(probability, *later);
                }
            }
        }
        let score = availability.brier();
        let scored = outcomes.len().saturating_sub(1) as f64;
        Self {
            series: name.to_owned(),
            probes: outcomes.len(),
            failures: outcomes.iter().filter(|is_answer| !**is_answer).count(),
            climatology: score.map_or(f64::NAN, |score| score.climatology),
            next: score.map_or(f64::NAN, |score| score.issued),
            ahead: ahead.map(|sum| sum / outcomes.len().saturating_sub(AHEAD) as f64),
            last_outcome: last_outcome / scored,
            recent_share: recent_share / scored,
        }
    }

    /// Barograph's score for the next probe and further ahead, and the scores of the simple
    /// forecasters, each divided by that of the climatology.
    fn relative(&self) -> [f64; 4] {
        let by = |score: f64| score / self.climatology;
        [by(self.next), self.ahead[0] / self.ahead[1], by(self.last_outcome), by(self.recent_share)]
    }
}

/// Probes ahead of the second forecast.
const AHEAD: usize = 10;

/// Probes of the recent share.
const RECENT: usize = 50;

fn markdown(rows: &[Row], real: usize) -> String {
    let mut table = Table::titled(&format!(
        "series | probes | failures | Brier score of the climatology | Barograph, next probe | {AHEAD} probes ahead | \
         last outcome | share of the last {RECENT}"
    ));
    for row in rows {
        let ratios = row.relative().map(|ratio| format!("{ratio:.3}"));
        let head = cells![row.series, row.probes, row.failures, format!("{:.5}", row.climatology)];
        table.push(head.into_iter().chain(ratios));
    }
    for (title, rows) in [("geometric mean, real series", &rows[..real]), ("generated series", &rows[real..])]
    {
        let mean =
            |at: usize| bold(&format!("{:.3}", geometric_mean(rows.iter().map(|row| row.relative()[at]))));
        if !rows.is_empty() {
            let empty = [String::new(), String::new(), String::new()];
            table.push([bold(title)].into_iter().chain(empty).chain((0..4).map(mean)));
        }
    }
    format!(
        "# Probability that a probe answers\n\nBrier scores ÷ that of the climatology, the share of answers so far: \
         under 1 is better. Failures of a real series are its rows with an error, or its gaps if it has a regular \
         period. A generated series is a chain of two states; with independent failures, no forecast is better than \
         the climatology.\n\n{table}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_of_a_regular_series_are_failures() {
        let timed = |times: &[f64]| -> Vec<Sample> {
            times.iter().map(|time_s| Sample { time_s: *time_s, value: 1.0 }).collect()
        };
        let mut times: Vec<f64> = (0..30).map(f64::from).collect();
        assert_eq!(from_gaps(&timed(&times)), None, "no failure");
        times.push(32.02);
        let outcomes = from_gaps(&timed(&times)).unwrap();
        assert_eq!((outcomes.len(), outcomes.iter().position(|is_answer| !is_answer)), (33, Some(30)));
        let irregular: Vec<f64> = (0..30).map(|i| f64::from(i * i)).collect();
        assert_eq!(from_gaps(&timed(&irregular)), None);
    }

    #[test]
    fn outages_are_foreseen_and_independent_failures_are_not() {
        let row = |index: usize| Row::of("", &generated(GENERATED[index].1, 1));
        let outages = row(2).relative();
        assert!(outages[0] < 0.3 && outages[1] < 0.9, "{outages:?}");
        let independent = row(0).relative();
        assert!((0.99..1.01).contains(&independent[0]), "{independent:?}");
        assert!(independent[2] > 1.5, "the last outcome says nothing: {independent:?}");
    }
}
