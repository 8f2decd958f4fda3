//! What is measured in a cell: long tests in turns with iperf3's, which calibrate, and then tests that may end early.

use std::fmt::Write;

use barograph_forecast::{Battery, Config};
use barograph_probe::stop::{Calibration, Guard};
use barograph_probe::stream::{Early, Ended, Sample, StreamPlan, Streamed, after_startup};

use super::Args;
use super::bench::Bench;
use super::grid::Cell;

/// What a cell gave.
#[derive(serde::Serialize)]
pub(crate) struct Study {
    pub(crate) cell: Cell,
    pub(crate) long: Vec<Long>,
    /// iperf3's 10 s, in bit/s.
    pub(crate) iperf3_bit_s: Vec<f64>,
    pub(crate) early: Vec<Short>,
    /// The largest share of a core that the emulator used.
    pub(crate) cpu_peak: Option<f64>,
    /// Why there is nothing, or less than there should be.
    pub(crate) void: Option<String>,
}

/// One of our tests of 10 s.
#[derive(serde::Serialize)]
pub(crate) struct Long {
    pub(crate) bytes: u64,
    pub(crate) whole_bit_s: f64,
    /// After start-up, to 10 s.
    pub(crate) settled_bit_s: f64,
    /// After start-up, to 5 s: what a test of full length would have given.
    pub(crate) full_bit_s: f64,
    /// What the rule proposed, and when, and how many bytes were acknowledged by then.
    pub(crate) proposed: Option<(f64, f64, u64)>,
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
    let mut calibration = Calibration::default();
    let mut battery = Battery::new(&Config::default());
    // What is void is repeated, at most once each: a calibration by fewer tests would be another experiment.
    for turn in 0..2 * args.tests {
        if args.tests <= study.long.len() as u32 {
            break;
        }
        let bench = Bench::new(study.cell, args.seed * 1000 + u64::from(turn))?;
        let plan = StreamPlan { seconds: f64::from(LONG_S), bytes_max: BYTES_MAX, ..StreamPlan::full() };
        let long = || bench.stream(plan.clone());
        // Each goes first as often as the other.
        let theirs = || (!args.without_iperf3).then(|| bench.iperf3(LONG_S)).transpose();
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
        let long = Long::of(&streamed);
        calibration.learn(long.proposed.map(|(_, rate, _)| rate), long.full_bit_s);
        battery.update(long.full_bit_s)?;
        write_samples(study.cell, turn, &streamed, args)?;
        study.long.push(long);
        study.iperf3_bit_s.extend(theirs);
    }
    if (study.long.len() as u32) < args.tests {
        return Ok(());
    }
    for test in 0..args.early {
        let bench = Bench::new(study.cell, args.seed * 1000 + 500 + u64::from(test))?;
        let guard = battery
            .interval(LEVEL)
            .map(|interval| Guard { lower_bit_s: interval.lower, upper_bit_s: interval.upper });
        let early: Option<Early> = calibration.early(guard, false);
        let streamed = bench.stream(StreamPlan { early, bytes_max: BYTES_MAX, ..StreamPlan::full() })?;
        if study.is_void(&bench) {
            continue;
        }
        let is_early = matches!(streamed.ended, Ended::Early(_));
        if !is_early {
            calibration.learn(streamed.proposed.map(|reason| reason.settled_bit_s), streamed.rate_bit_s());
        }
        battery.update(streamed.rate_bit_s())?;
        study.early.push(Short {
            bytes: streamed.bytes,
            rate_bit_s: streamed.rate_bit_s(),
            duration_s: streamed.duration_s,
            is_early,
            was_allowed: early.is_some(),
        });
    }
    Ok(())
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
        let until = |seconds: f64| -> &[Sample] {
            &samples[..samples.partition_point(|sample| sample.time_s <= seconds)]
        };
        let rate = |samples| after_startup(samples).map_or(streamed.whole_bit_s, |(_, rate)| rate);
        let acked = |time_s: f64| until(time_s).last().map_or(0, |sample| sample.acked_bytes);
        Self {
            bytes: streamed.bytes,
            whole_bit_s: streamed.whole_bit_s,
            settled_bit_s: rate(samples),
            full_bit_s: rate(until(StreamPlan::SECONDS)),
            proposed: streamed
                .proposed
                .map(|reason| (reason.time_s, reason.settled_bit_s, acked(reason.time_s))),
        }
    }
}

fn write_samples(cell: Cell, turn: u32, streamed: &Streamed, args: &Args) -> anyhow::Result<()> {
    let Some(directory) = &args.out else { return Ok(()) };
    let mut text = String::from("time_s,acked_bytes,rtt_s,min_rtt_s,retrans,app_limited\n");
    for sample in streamed.samples.as_slice() {
        let Sample { time_s, acked_bytes, retrans, app_limited, .. } = sample;
        let (rtt_s, min_rtt_s) = (sample.rtt_s.unwrap_or_default(), sample.min_rtt_s.unwrap_or_default());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{time_s},{acked_bytes},{rtt_s},{min_rtt_s},{retrans},{app_limited}");
    }
    let name: String =
        cell.name().chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    Ok(std::fs::write(directory.join(format!("{name}.{turn}.csv")), text)?)
}

/// As long as iperf3's usual test.
const LONG_S: u32 = 10;
/// Ten seconds at 1.7 Gbit/s, so that time ends every long test.
pub(crate) const BYTES_MAX: u64 = 2 << 30;
/// The interval that the station shows and alerts on.
const LEVEL: f64 = 0.9;
