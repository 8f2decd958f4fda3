//! Measures one cell: tests of full length, most in turns with iperf3, and then tests that may end
//! early.

use barograph_probe::calibration::{Calibration, CheckpointRates};
use barograph_probe::stop::{Decision, EarlyStopRule};
use barograph_probe::stream::{Sample, StreamEnd, StreamPlan, StreamResult, after_startup};

use super::Args;
use super::testbed::{BYTES_MAX, Cell, CellTestbed};
use crate::calibrated::Calibrated;
use crate::stats::{Rank, deviation, mean_of_some as mean, median, quantile, sorted};
use crate::table::{Table, cells, number, shown};

#[derive(serde::Serialize)]
pub(crate) struct CellStudy {
    pub(crate) cell: Cell,
    /// The first test takes 10 s, the others 5 s.
    pub(crate) long: Vec<Long>,
    pub(crate) iperf3_bit_s: Vec<f64>,
    /// Each long test, replayed as if it might have ended early.
    pub(crate) replayed: Vec<Replayed>,
    pub(crate) early: Vec<Short>,
    /// Largest share of a core that the emulator used.
    pub(crate) cpu_peak: Option<f64>,
    /// Why results are missing, if they are.
    #[serde(rename = "void")]
    pub(crate) invalid_reason: Option<String>,
}

#[derive(serde::Serialize)]
pub(crate) struct Long {
    pub(crate) bytes: u64,
    /// Bytes acknowledged in the first 5 s.
    pub(crate) full_bytes: u64,
    pub(crate) whole_bit_s: f64,
    /// Rate after start-up until 5 s.
    pub(crate) full_bit_s: f64,
    #[serde(skip)]
    partials: CheckpointRates,
    #[serde(skip)]
    samples: Vec<Sample>,
}

/// Result of the stop rule on a long test, calibrated by four others.
#[derive(serde::Serialize)]
pub(crate) struct Replayed {
    /// Bytes acknowledged when the test would have ended.
    pub(crate) bytes: u64,
    /// The estimate divided by the rate of the test's 5 s; 1 if the test would have run to its end.
    pub(crate) ratio: f64,
    /// Expected relative deviation of the estimate; `None` if the test would not have ended early.
    pub(crate) deviation: Option<f64>,
}

#[derive(serde::Serialize)]
pub(crate) struct Short {
    pub(crate) bytes: u64,
    pub(crate) rate_bit_s: f64,
    pub(crate) duration_s: f64,
    pub(crate) is_early: bool,
    pub(crate) was_allowed: bool,
}

/// Measures a cell; an error is stored in the result.
pub(crate) fn cell(cell: Cell, args: &Args) -> CellStudy {
    let mut study = CellStudy {
        cell,
        long: Vec::new(),
        iperf3_bit_s: Vec::new(),
        replayed: Vec::new(),
        early: Vec::new(),
        cpu_peak: None,
        invalid_reason: None,
    };
    if let Err(error) = measure(&mut study, args) {
        study.invalid_reason = Some(format!("{error:#}"));
    }
    study
}

fn measure(study: &mut CellStudy, args: &Args) -> anyhow::Result<()> {
    // A void test is repeated, with at most two attempts per test on average: a calibration by
    // fewer tests would be another experiment.
    for turn in 0..2 * args.tests {
        if args.tests <= study.long.len() as u32 {
            break;
        }
        let testbed = CellTestbed::new(study.cell, args.seed * 1000 + u64::from(turn))?;
        let is_first = study.long.is_empty();
        let seconds = if is_first { LONG_S } else { FULL_S };
        let plan = StreamPlan { seconds: f64::from(seconds), bytes_max: BYTES_MAX, ..StreamPlan::full() };
        let long = || testbed.stream(plan.clone());
        let theirs = || (!is_first).then(|| testbed.iperf3(seconds)).transpose();
        // The stream and iperf3 go first equally often.
        let (streamed, theirs) = if turn % 2 == 0 {
            let streamed = long()?;
            (streamed, theirs()?)
        } else {
            let theirs = theirs()?;
            (long()?, theirs)
        };
        if study.is_invalid(&testbed) {
            continue;
        }
        write_samples(study.cell, turn, &streamed, args)?;
        study.long.push(Long::of(&streamed));
        study.iperf3_bit_s.extend(theirs);
    }
    if (study.long.len() as u32) < args.tests {
        return Ok(());
    }
    study.replayed = replay(&study.long);
    let mut path = Calibrated::new();
    for long in &study.long[..CALIBRATING.min(study.long.len())] {
        path.learn_full(&long.partials, long.full_bit_s)?;
    }
    for test in 0..args.early {
        let testbed = CellTestbed::new(study.cell, args.seed * 1000 + 500 + u64::from(test))?;
        let early = path.early();
        let streamed = testbed.stream(StreamPlan { early, bytes_max: BYTES_MAX, ..StreamPlan::full() })?;
        if study.is_invalid(&testbed) {
            continue;
        }
        path.learn(&streamed, early.is_some())?;
        study.early.push(Short {
            bytes: streamed.bytes,
            rate_bit_s: streamed.rate_bit_s(),
            duration_s: streamed.duration_s,
            is_early: matches!(streamed.ended, StreamEnd::Early(_)),
            was_allowed: early.is_some(),
        });
    }
    Ok(())
}

/// Replays each long test after calibration by the four before it, in cyclic order.
fn replay(long: &[Long]) -> Vec<Replayed> {
    if long.len() <= CALIBRATING {
        return Vec::new();
    }
    let next = |index: usize| -> Replayed {
        let mut path = Calibrated::new();
        for before in (1..=CALIBRATING).rev() {
            let before = &long[(index + long.len() - before) % long.len()];
            // A measured rate is a valid value, so the error cannot occur.
            let _ = path.learn_full(&before.partials, before.full_bit_s);
        }
        let test = &long[index];
        let reason = path.early().and_then(|early| {
            let mut rule = EarlyStopRule::new(Some(early));
            test.first_seconds().iter().find_map(|sample| match rule.push(sample) {
                Decision::Stop(reason) => Some(reason),
                Decision::Continue => None,
            })
        });
        Replayed {
            bytes: reason.map_or(test.full_bytes, |reason| test.sent(reason.time_s)),
            ratio: reason.map_or(1.0, |reason| reason.rate_bit_s / test.full_bit_s),
            deviation: reason.map(|reason| reason.deviation),
        }
    };
    (0..long.len()).map(next).collect()
}

impl CellStudy {
    fn is_invalid(&mut self, testbed: &CellTestbed) -> bool {
        self.cpu_peak = self.cpu_peak.into_iter().chain(testbed.cpu_peak()).reduce(f64::max);
        let invalid_reason = testbed.invalid_reason();
        let is_invalid = invalid_reason.is_some();
        self.invalid_reason = invalid_reason.or(self.invalid_reason.take());
        is_invalid
    }
}

impl Long {
    fn of(streamed: &StreamResult) -> Self {
        let samples = streamed.samples.as_slice();
        let mut long = Self {
            bytes: streamed.bytes,
            full_bytes: 0,
            whole_bit_s: streamed.whole_bit_s,
            full_bit_s: streamed.whole_bit_s,
            partials: streamed.partials,
            samples: samples.to_vec(),
        };
        let first = long.first_seconds();
        let (full_bytes, settled) = (first.last().map_or(0, |last| last.acked_bytes), after_startup(first));
        long.full_bytes = full_bytes;
        long.full_bit_s = settled.map_or(long.whole_bit_s, |(_, rate)| rate);
        long
    }

    /// Samples of the first 5 s, the length of a full test.
    fn first_seconds(&self) -> &[Sample] {
        let end = self.samples.partition_point(|sample| sample.time_s <= StreamPlan::SECONDS);
        &self.samples[..end]
    }

    /// Bytes sent until `time_s`: those acknowledged one round trip later.
    fn sent(&self, time_s: f64) -> u64 {
        let at = |time_s: f64| self.samples.partition_point(|sample| sample.time_s < time_s);
        let rtt_s = self.samples.get(at(time_s)).and_then(|sample| sample.rtt_s).unwrap_or(0.0);
        let later = self.samples.get(at(time_s + rtt_s)).or(self.samples.last());
        later.map_or(0, |sample| sample.acked_bytes)
    }
}

fn write_samples(cell: Cell, turn: u32, streamed: &StreamResult, args: &Args) -> anyhow::Result<()> {
    let Some(directory) = &args.out else { return Ok(()) };
    let mut text = String::from("time_s,acked_bytes,rtt_s,min_rtt_s,retrans,app_limited\n");
    for sample in streamed.samples.as_slice() {
        let Sample { time_s, acked_bytes, retrans, app_limited, .. } = sample;
        let (rtt_s, min_rtt_s) = (sample.rtt_s.unwrap_or_default(), sample.min_rtt_s.unwrap_or_default());
        text += &format!("{time_s},{acked_bytes},{rtt_s},{min_rtt_s},{retrans},{app_limited}\n");
    }
    let name: String =
        cell.name().chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    Ok(std::fs::write(directory.join(format!("{name}.{turn}.csv")), text)?)
}

/// Seconds, as iperf3's usual test.
const LONG_S: u32 = 10;
/// Seconds of a full test ([`StreamPlan::SECONDS`]).
const FULL_S: u32 = 5;
/// Tests that calibrate a path before the first may end early.
const CALIBRATING: usize = Calibration::TESTS_MIN as usize;

pub(crate) fn markdown(studies: &[CellStudy], loads: &[String; 2]) -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let [before, after] = loads;
    let mut table = Table::titled(
        "cell | whole | iperf3 | ÷ iperf3 | after start-up | spread | replayed: early | bytes | \
         median error | largest | made: early | bytes | median error | emulator",
    );
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
        text += &study
            .invalid_reason
            .as_ref()
            .map_or(String::new(), |invalid_reason| format!("\n- {}: {invalid_reason}\n", study.cell.name()));
    }
    text
}

fn row(study: &CellStudy) -> Vec<String> {
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
        percent_of(deviation(&logs)),
        format!("{replayed} of {}", study.replayed.len()),
        percent_of(mean(&shares(study))),
        percent_of(median(&errors)),
        percent_of(errors.iter().copied().reduce(f64::max)),
        format!("{early} of {}", study.early.len()),
        percent_of(mean(&made_shares(study))),
        percent_of(median(&made_errors)),
        cpu,
    ]
}

fn verdict(studies: &[CellStudy]) -> String {
    let of_cells = |of: fn(&CellStudy) -> Vec<f64>| {
        studies.iter().flat_map(|study| mean(&of(study))).collect::<Vec<_>>()
    };
    let pooled = |of: fn(&CellStudy) -> Vec<f64>| studies.iter().flat_map(of).collect::<Vec<_>>();
    let (made, replayed) = (of_cells(made_shares), of_cells(shares));
    let full = studies.iter().flat_map(|study| Some(mean(&full_bytes(study))? / long_bytes(study)?));
    let full: Vec<f64> = full.collect();
    let with_audits =
        mean(&made).zip(mean(&full)).map(|(early, full)| early * (1.0 - AUDITS) + full * AUDITS);
    let mut text = format!(
        "- Bytes of a test that may end early, mean of {} cells: {} of a 10 s test's, goal 10 %: {}. Replayed: {}. With one \
         test in twenty at full length: {}. {} full tests calibrate a path first, {} each.\n",
        made.len(),
        percent_of(mean(&made)),
        met(mean(&made), BYTES_GOAL),
        percent_of(mean(&replayed)),
        percent_of(with_audits),
        Calibration::TESTS_MIN,
        percent_of(mean(&full)),
    );
    let of = |what: &str, errors: &[f64]| {
        let (middle, high) = (median(errors), quantile(&sorted(errors.iter().copied()), 0.9, Rank::Least));
        format!(
            "- {what}, {} tests: median error {}, goal 5 %: {}; 90th percentile {}, goal 20 %: {}.\n",
            errors.len(),
            percent_of(middle),
            met(middle, MEDIAN_GOAL),
            percent_of(high),
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
        "- Errors within the interval predicted to hold 90 % of them: {within} of {} ({}).\n",
        ended.len(),
        percent_of((!ended.is_empty()).then(|| within as f64 / ended.len() as f64)),
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

/// Ratio of our median rate to iperf3's, and two standard errors of it.
fn against_iperf3(study: &CellStudy) -> Option<(f64, f64)> {
    let (ours, theirs) = (wholes(study), &study.iperf3_bit_s);
    let ratio = median(&ours)? / median(theirs)?;
    let logs = |rates: &[f64]| rates.iter().map(|rate| rate.ln()).collect::<Vec<_>>();
    let square = |rates: &[f64]| Some(deviation(&logs(rates))?.powi(2) / rates.len() as f64);
    Some((ratio, 2.0 * ratio * (square(&ours)? + square(theirs)?).sqrt()))
}

/// Whole rates of the tests that alternated with iperf3; of all tests if there was no iperf3.
fn wholes(study: &CellStudy) -> Vec<f64> {
    let skipped = usize::from(!study.iperf3_bit_s.is_empty());
    study.long.iter().skip(skipped).map(|long| long.whole_bit_s).collect()
}

fn full(study: &CellStudy) -> Option<f64> {
    median(&study.long.iter().map(|long| long.full_bit_s).collect::<Vec<_>>())
}

fn long_bytes(study: &CellStudy) -> Option<f64> {
    study.long.first().map(|long| long.bytes as f64)
}

fn full_bytes(study: &CellStudy) -> Vec<f64> {
    study.long.iter().map(|long: &Long| long.full_bytes as f64).collect()
}

fn shares(study: &CellStudy) -> Vec<f64> {
    let long = long_bytes(study).unwrap_or(f64::NAN);
    study.replayed.iter().map(|replayed| replayed.bytes as f64 / long).collect()
}

fn errors(study: &CellStudy) -> Vec<f64> {
    study.replayed.iter().map(|replayed| (replayed.ratio - 1.0).abs()).collect()
}

fn made_shares(study: &CellStudy) -> Vec<f64> {
    let long = long_bytes(study).unwrap_or(f64::NAN);
    study.early.iter().map(|short| short.bytes as f64 / long).collect()
}

fn made_errors(study: &CellStudy) -> Vec<f64> {
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

fn percent_of(share: Option<f64>) -> String {
    shown(share, |share| format!("{:.1} %", share * 100.0))
}

/// The planner lets one test in 20 run at full length, as an audit.
const AUDITS: f64 = 1.0 / 20.0;
const BYTES_GOAL: f64 = 0.10;
const MEDIAN_GOAL: f64 = 0.05;
const HIGH_GOAL: f64 = 0.20;
const IPERF3_GOAL: f64 = 0.03;
/// Standard deviations to either side that hold 90 % of a normal distribution.
const NORMAL_90: f64 = 1.645;
