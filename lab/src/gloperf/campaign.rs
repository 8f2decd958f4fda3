//! Tests of 1, 2, 5, 7 and 10 s in turn over an emulated path with background traffic: the paper's
//! experiment.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use barograph_probe::io::{ProbeContext, ResponderLimits, stream};
use barograph_probe::{StreamPlan, StreamResult, Target};
use barograph_sim::{Link, LinkSpec, Network, Queue, RelayOptions, RelayReport, SeededRng};
use barograph_study::tradeoff::{Grid, MeasuredSeries, TradeoffScores};
use indicatif::ProgressBar;

use super::figures::BASE_S;
use super::long::PERIODS_S;
use crate::emulation::{Responder, Traffic, forget_connections};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Compression of time. A second of the paper's tests takes 1/`scale` s; the path's delay is
    /// divided and its rate multiplied by `scale`, so that a window, a queue and a test keep their
    /// packets.
    pub(crate) scale: f64,
    /// Tests of each length.
    pub(crate) cycles: usize,
    pub(crate) seed: u64,
}

impl Plan {
    /// Duration of a cycle of five tests: their lengths, and a pause after each for the handshake
    /// and the last packets.
    pub(crate) fn cycle(&self) -> Duration {
        let pauses = PAUSE * u32::try_from(LENGTHS_S.len()).unwrap_or(u32::MAX);
        Duration::from_secs_f64(LENGTHS_S.iter().sum::<f64>() / self.scale) + pauses
    }

    fn rate_bps(&self) -> u64 {
        (RATE_BPS * self.scale) as u64
    }

    fn link(&self, seed: u64) -> Link {
        let rtt = Duration::from_secs_f64(RTT_S / self.scale);
        let spec = LinkSpec {
            rate_bps: Some(self.rate_bps()),
            delay: rtt / 2,
            queue: Queue::Bdp(1.0),
            seed,
            ..LinkSpec::default()
        };
        // A packet counts as late after a fifth of the round trip, as the emulator's default has it
        // for its shortest paths.
        Link::symmetric_with(spec, RelayOptions { late: rtt / 5, ..RelayOptions::default() })
    }
}

pub(crate) struct Test {
    pub(crate) length: usize,
    pub(crate) cycle: usize,
    /// Result; `None` if the emulator was too slow or the test failed.
    pub(crate) streamed: Option<StreamResult>,
}

pub(crate) struct Campaign {
    pub(crate) name: &'static str,
    pub(crate) slug: &'static str,
    pub(crate) plan: Plan,
    pub(crate) tests: Vec<Test>,
    pub(crate) invalid: usize,
    /// Number of failed tests, and the last reason.
    pub(crate) failed: (usize, String),
    /// Largest share of a core that the emulator used within a quarter of a second.
    pub(crate) peak: f64,
    /// Delay of the end against the plan (s).
    pub(crate) late_s: f64,
}

impl Campaign {
    /// Runs the campaign; a failed test has no result.
    pub(crate) fn run(traffic: BackgroundTraffic, plan: Plan, bar: &ProgressBar) -> anyhow::Result<Self> {
        let (name, slug) = match traffic {
            BackgroundTraffic::Stationary => ("stationary", "stationary"),
            BackgroundTraffic::Shifting => ("non-stationary", "shifting"),
        };
        let network = Network::new(plan.link(plan.seed))?;
        forget_connections(&network)?;
        let responder = Responder::start(&network.b, ResponderLimits::default())?;
        let target = responder.target()?;
        let step = plan.cycle() / STEPS as u32;
        // Twice as many steps as planned: on a busy machine cycles are late, and the background
        // traffic must not end before them.
        let shares = traffic.shares(plan.seed, 2 * plan.cycles * STEPS);
        let _background = Traffic::start([&network.a, &network.b], move |now| {
            let index = (now.as_secs_f64() / step.as_secs_f64()) as usize;
            let share = shares.get(index).or(shares.last()).copied().unwrap_or(0.0);
            share * plan.rate_bps() as f64
        })?;
        let mut campaign = Self {
            name,
            slug,
            plan,
            tests: Vec::new(),
            invalid: 0,
            failed: (0, String::new()),
            peak: 0.0,
            late_s: 0.0,
        };
        let began = Instant::now();
        for cycle in 0..plan.cycles {
            // Every cycle begins on schedule, so that it meets the background traffic of its time.
            let due = began + plan.cycle() * cycle as u32;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            for length in 0..LENGTHS_S.len() {
                campaign.test(&network, &target, length, cycle);
                thread::sleep(PAUSE / 2);
                bar.inc(1);
            }
        }
        let planned = plan.cycle() * plan.cycles as u32;
        campaign.late_s = began.elapsed().saturating_sub(planned).as_secs_f64();
        campaign.peak = network.report().map_or(0.0, |report| report.cpu_peak);
        Ok(campaign)
    }

    fn test(&mut self, network: &Network, target: &Target, length: usize, cycle: usize) {
        let plan = StreamPlan {
            seconds: LENGTHS_S[length] / self.plan.scale,
            congestion: Some(CONGESTION.to_owned()),
            ..StreamPlan::full()
        };
        let context = ProbeContext { deadline: DEADLINE, ..ProbeContext::default() };
        let before = network.report();
        let streamed = network.a.run(|| stream(target, &plan, &context));
        let is_invalid =
            before.zip(network.report()).is_none_or(|(before, after)| is_invalid(&before, &after));
        let streamed = match streamed.map_err(anyhow::Error::from).and_then(|streamed| Ok(streamed?)) {
            Ok(_) if is_invalid => {
                self.invalid += 1;
                None
            }
            Ok(streamed) => Some(streamed),
            Err(error) => {
                self.failed = (self.failed.0 + 1, error.to_string());
                None
            }
        };
        self.tests.push(Test { length, cycle, streamed });
    }

    /// Goodput of the whole test with its slow start, in bit/s of the paper's time.
    pub(crate) fn goodput_bps(&self, test: &Test) -> Option<f64> {
        Some(test.streamed.as_ref()?.whole_bit_s / self.plan.scale)
    }

    pub(crate) fn of_length(&self, length: usize) -> impl Iterator<Item = (&Test, &StreamResult)> {
        let tests = self.tests.iter().filter(move |test| test.length == length);
        tests.filter_map(|test| Some((test, test.streamed.as_ref()?)))
    }

    /// The tests in the paper's time, in the format that `barograph tradeoff` reads.
    pub(crate) fn csv(&self) -> String {
        let mut text = String::from("time_s,goodput,test_s\n");
        for test in &self.tests {
            if let Some(goodput_bps) = self.goodput_bps(test) {
                let time_s = BASE_S * (test.cycle as f64 + test.length as f64 / LENGTHS_S.len() as f64);
                let _ = writeln!(text, "{time_s},{goodput_bps:.0},{}", LENGTHS_S[test.length]);
            }
        }
        text
    }

    /// Errors by period and length, in the paper's time: five minutes between tests of one length.
    pub(crate) fn study(&self) -> TradeoffScores {
        let measured = |(length, length_s): (usize, &f64)| {
            let mut slots = vec![None; self.plan.cycles];
            for test in self.tests.iter().filter(|test| test.length == length) {
                slots[test.cycle] = self.goodput_bps(test);
            }
            let grid = Grid { base_s: BASE_S, slots, duplicates: 0 };
            MeasuredSeries {
                name: self.name.to_owned(),
                length_s: Some(*length_s),
                bit_per_s: Some(1.0),
                grid,
            }
        };
        let series = LENGTHS_S.iter().enumerate().map(measured).collect();
        TradeoffScores::of(series, &PERIODS_S[..6], self.plan.seed, &|| {})
    }
}

/// Whether the emulator, not the path, delayed or dropped packets in between.
fn is_invalid(before: &RelayReport, after: &RelayReport) -> bool {
    let vanished = |report: &RelayReport| {
        let of = |counts: &barograph_sim::DirectionCounts| {
            counts.overflow + counts.read_errors + counts.write_errors
        };
        report.device_drops + of(&report.forward) + of(&report.back)
    };
    let departed = |report: &RelayReport| report.forward.forwarded + report.back.forwarded;
    let late = |report: &RelayReport| report.forward.late + report.back.late;
    let (sent, late) = (departed(after) - departed(before), late(after) - late(before));
    !after.running || vanished(before) < vanished(after) || sent < 100 * late
}

/// "A cycle of five test times are used: 1, 2, 5, 7, and 10 seconds" (§4).
pub(crate) const LENGTHS_S: [f64; 5] = [1.0, 2.0, 5.0, 7.0, 10.0];

/// Round-trip time between the coasts of a continent, as between the paper's hosts. Tests of 1999
/// had this rate; at five times the rate the emulator is still mostly idle.
const RTT_S: f64 = 0.06;
const RATE_BPS: f64 = 6e6;

/// Named, because the kernel's default varies: loss-based, as TCP was in 1999, and what most hosts
/// use today.
pub(crate) const CONGESTION: &str = "cubic";

/// A handshake and some round trips for the last packets, also on a busy machine.
const PAUSE: Duration = Duration::from_millis(200);

/// Time that a test may take in addition to its length.
const DEADLINE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackgroundTraffic {
    /// Background traffic around one mean (the paper's Los Nettos, figures 1 to 4).
    Stationary,
    /// Background traffic around a mean that jumps about every two hours (the paper's vBNS, figures
    /// 5 to 9).
    Shifting,
}

impl BackgroundTraffic {
    /// The background traffic's share of the bottleneck, 0 to 1, in each step. A cycle of tests has
    /// [`STEPS`] steps.
    pub(crate) fn shares(self, seed: u64, steps: usize) -> Vec<f64> {
        let (mut noise, mut shifts) = (SeededRng::new(seed, 11), SeededRng::new(seed, 12));
        let mut level = LEVEL;
        let mut until = match self {
            Self::Stationary => f64::INFINITY,
            Self::Shifting => 0.0,
        };
        let mut state = 0.0;
        let step = |step: usize| {
            if until <= step as f64 {
                level = LEVEL_MIN + (LEVEL_MAX - LEVEL_MIN) * shifts.uniform();
                until = step as f64 + shifts.exponential(SHIFT_EVERY);
            }
            state = MEMORY * state + (1.0 - MEMORY * MEMORY).sqrt() * noise.normal();
            (level + NOISE * state).clamp(0.0, SHARE_MAX)
        };
        (0..steps).map(step).collect()
    }
}

/// The share changes every half minute of the paper's time, so that a test of ten seconds meets one
/// or two values.
pub(crate) const STEPS: usize = 10;

/// On the stationary link background traffic takes a third of the rate, with a standard deviation
/// of a tenth. The correlation after half a minute is 0.5; after five minutes, at the next test of
/// that length, it is nearly 0.
const LEVEL: f64 = 0.35;
const NOISE: f64 = 0.1;
const MEMORY: f64 = 0.5;

/// On the other link the mean jumps anywhere between nearly idle and crowded, every two hours on
/// average.
const LEVEL_MIN: f64 = 0.05;
const LEVEL_MAX: f64 = 0.8;
const SHIFT_EVERY: f64 = 24.0 * STEPS as f64;

/// Leaves some of the rate, or a test would not end in time.
const SHARE_MAX: f64 = 0.9;

#[cfg(test)]
mod tests {
    use crate::stats::{mean, range};

    use super::*;

    #[test]
    fn only_shifting_traffic_has_a_changing_mean() {
        let hours = |traffic: BackgroundTraffic| {
            let shares = traffic.shares(1, 96 * STEPS);
            assert!(shares.iter().all(|share| (0.0..=SHARE_MAX).contains(share)));
            assert_eq!(shares, traffic.shares(1, 96 * STEPS));
            let (low, high) = range(shares.chunks(12 * STEPS).map(mean));
            high - low
        };
        assert!(hours(BackgroundTraffic::Stationary) < 0.1);
        assert!(hours(BackgroundTraffic::Shifting) > 0.2);
    }
}
