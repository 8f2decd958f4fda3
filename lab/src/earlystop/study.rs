//! What is measured in a cell: tests of full length, most in turns with iperf3's, and then tests that may end early.

use barograph_probe::calibration::{Calibration, Partials};
use barograph_probe::stop::{Decision, Rule};
use barograph_probe::stream::{Ended, Sample, StreamPlan, Streamed, after_startup};

use super::args::Args;
use super::bench::{BYTES_MAX, Bench};
use super::grid::Cell;
use crate::calibrated::Calibrated;

/// What a cell gave.
#[derive(serde::Serialize)]
pub(crate) struct Study {
    pub(crate) cell: Cell,
    /// The first is of 10 s, the others of 5.
    pub(crate) long: Vec<Long>,
    /// iperf3's 5 s, in bit/s.
    pub(crate) iperf3_bit_s: Vec<f64>,
    /// Each of the long tests, as if it had had leave to end early.
    pub(crate) replayed: Vec<Replayed>,
    pub(crate) early: Vec<Short>,
    /// The largest share of a core that the emulator used.
    pub(crate) cpu_peak: Option<f64>,
    /// Why there is nothing, or less than there should be.
    pub(crate) void: Option<String>,
}

/// One of our tests of full length.
#[derive(serde::Serialize)]
pub(crate) struct Long {
    /// All bytes.
    pub(crate) bytes: u64,
    /// Bytes acknowledged in the first 5 s.
    pub(crate) full_bytes: u64,
    pub(crate) whole_bit_s: f64,
    /// After start-up, to 5 s.
    pub(crate) full_bit_s: f64,
    #[serde(skip)]
    partials: Partials,
    #[serde(skip)]
    samples: Vec<Sample>,
}

/// What the rule would have done with a long test, calibrated by four others.
#[derive(serde::Serialize)]
pub(crate) struct Replayed {
    /// Acknowledged when it would have ended.
    pub(crate) bytes: u64,
    /// The estimate over what the test gave in its 5 s; 1 where it would have had its full length.
    pub(crate) ratio: f64,
    /// How far the estimate was expected to be off, where there is one.
    pub(crate) deviation: Option<f64>,
}

/// One of our tests that might end early.
#[derive(serde::Serialize)]
pub(crate) struct Short {
    pub(crate) bytes: u64,
    pub(crate) rate_bit_s: f64,
    pub(crate) duration_s: f64,
    pub(crate) is_early: bool,
    /// Whether it was allowed to end early at all.
    pub(crate) was_allowed: bool,
}

/// Measures a cell; whatever goes wrong is told in its place.
pub(crate) fn cell(cell: Cell, args: &Args) -> Study {
    let mut study = Study {
        cell,
        long: Vec::new(),
        iperf3_bit_s: Vec::new(),
        replayed: Vec::new(),
        early: Vec::new(),
        cpu_peak: None,
        void: None,
    };
    if let Err(error) = measure(&mut study, args) {
        study.void = Some(format!("{error:#}"));
    }
    study
}

fn measure(study: &mut Study, args: &Args) -> anyhow::Result<()> {
    // What is void is repeated, at most once each: a calibration by fewer tests would be another experiment.
    for turn in 0..2 * args.tests {
        if args.tests <= study.long.len() as u32 {
            break;
        }
        let bench = Bench::new(study.cell, args.seed * 1000 + u64::from(turn))?;
        let is_first = study.long.is_empty();
        let seconds = if is_first || args.without_iperf3 { LONG_S } else { FULL_S };
        let plan = StreamPlan { seconds: f64::from(seconds), bytes_max: BYTES_MAX, ..StreamPlan::full() };
        let long = || bench.stream(plan.clone());
        let theirs = || (!is_first && !args.without_iperf3).then(|| bench.iperf3(seconds)).transpose();
        // Each goes first as often as the other.
        let (streamed, theirs) = if turn % 2 == 0 {
            let streamed = long()?;
            (streamed, theirs()?)
        } else {
            let theirs = theirs()?;
            (long()?, theirs)
        };
        if study.is_void(&bench) {
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
        let bench = Bench::new(study.cell, args.seed * 1000 + 500 + u64::from(test))?;
        let early = path.early();
        let streamed = bench.stream(StreamPlan { early, bytes_max: BYTES_MAX, ..StreamPlan::full() })?;
        if study.is_void(&bench) {
            continue;
        }
        path.learn(&streamed, early.is_some())?;
        study.early.push(Short {
            bytes: streamed.bytes,
            rate_bit_s: streamed.rate_bit_s(),
            duration_s: streamed.duration_s,
            is_early: matches!(streamed.ended, Ended::Early(_)),
            was_allowed: early.is_some(),
        });
    }
    Ok(())
}

/// Each long test after the four before it; before the first comes the last.
fn replay(long: &[Long]) -> Vec<Replayed> {
    if long.len() <= CALIBRATING {
        return Vec::new();
    }
    let next = |index: usize| -> Replayed {
        let mut path = Calibrated::new();
        for before in (1..=CALIBRATING).rev() {
            let before = &long[(index + long.len() - before) % long.len()];
            // A rate of a test that was made is one.
            let _ = path.learn_full(&before.partials, before.full_bit_s);
        }
        let test = &long[index];
        let reason = path.early().and_then(|early| {
            let mut rule = Rule::new(Some(early));
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

impl Study {
    fn is_void(&mut self, bench: &Bench) -> bool {
        self.cpu_peak = self.cpu_peak.into_iter().chain(bench.cpu_peak()).reduce(f64::max);
        let void = bench.void();
        let is_void = void.is_some();
        self.void = void.or(self.void.take());
        is_void
    }
}

impl Long {
    fn of(streamed: &Streamed) -> Self {
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

    /// What a test of full length would have seen.
    fn first_seconds(&self) -> &[Sample] {
        let end = self.samples.partition_point(|sample| sample.time_s <= StreamPlan::SECONDS);
        &self.samples[..end]
    }

    /// What was sent at a time: what is acknowledged a round trip later.
    fn sent(&self, time_s: f64) -> u64 {
        let at = |time_s: f64| self.samples.partition_point(|sample| sample.time_s < time_s);
        let rtt_s = self.samples.get(at(time_s)).and_then(|sample| sample.rtt_s).unwrap_or(0.0);
        let later = self.samples.get(at(time_s + rtt_s)).or(self.samples.last());
        later.map_or(0, |sample| sample.acked_bytes)
    }
}

fn write_samples(cell: Cell, turn: u32, streamed: &Streamed, args: &Args) -> anyhow::Result<()> {
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

/// As long as iperf3's usual test.
const LONG_S: u32 = 10;
/// As long as a full test ([`StreamPlan::SECONDS`]).
const FULL_S: u32 = 5;
/// Tests that calibrate a path before the first may end early.
const CALIBRATING: usize = Calibration::TESTS_MIN as usize;
