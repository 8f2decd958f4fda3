//! Losses that were charged to the network, and then taken back.

use std::time::Duration;

use proptest::prelude::*;

use super::path::{PACKET_BYTES, rtt};
use crate::proto::controller::model::ModelController;
use crate::proto::controller::paper::Mode;
use crate::proto::controller::{
    Controller, ControllerConfig, Delivery, DetectedLossRun, Equation, FeedbackSample, Paper, Scalable,
};

/// Time between two feedbacks, a quarter of a round trip, and packets that each acknowledges.
const STEP: Duration = Duration::from_micros(2500);
const ACKED: u64 = 100;

/// A run of losses.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Step at which it is charged.
    charged: u64,
    packets: u32,
    /// Step at which it is taken back, if it is the host's.
    taken_back: Option<u64>,
}

/// Feeds a controller on a path that delivers a constant rate. `sees_charges`: whether the host's
/// losses are charged at first, or are the host's from the beginning.
struct Feed<'a> {
    controller: &'a mut dyn Controller,
    sees_charges: bool,
    accounted: u64,
    /// Charged runs with their numbers, in order of their positions.
    charged: Vec<(usize, DetectedLossRun)>,
}

impl Feed<'_> {
    fn step(&mut self, step: u64, runs: &[Run]) {
        let now = Duration::from_secs(1) + STEP * step as u32;
        let (mut taken_back, mut losses, mut host_lost_packets) = (Vec::new(), Vec::new(), 0);
        for (number, run) in runs.iter().enumerate().filter(|(_, run)| run.taken_back == Some(step)) {
            host_lost_packets += u64::from(run.packets);
            let Some(position) = self.charged.iter().position(|(charged, _)| *charged == number) else {
                continue;
            };
            let (_, back) = self.charged.remove(position);
            self.charged[position..].iter_mut().for_each(|(_, later)| later.at -= u64::from(back.packets));
            self.accounted -= u64::from(back.packets);
            taken_back.push(back);
        }
        self.accounted += ACKED;
        for (number, run) in runs.iter().enumerate().filter(|(_, run)| run.charged == step) {
            if run.taken_back.is_some() && !self.sees_charges {
                continue;
            }
            let loss = DetectedLossRun {
                at: self.accounted,
                packets: run.packets,
                bytes: u64::from(run.packets) * u64::from(PACKET_BYTES),
                sent: now - 4 * STEP,
                in_flight_bytes: 4 * ACKED * u64::from(PACKET_BYTES),
            };
            self.accounted += u64::from(run.packets);
            self.charged.push((number, loss));
            losses.push(loss);
        }
        let delivered = step * ACKED * u64::from(PACKET_BYTES);
        let seen = FeedbackSample {
            rtt: rtt(4 * STEP),
            round_trip: Some(4 * STEP),
            round: step / 4,
            acked_packets: ACKED,
            acked_bytes: ACKED * u64::from(PACKET_BYTES),
            in_flight_bytes: 4 * ACKED * u64::from(PACKET_BYTES),
            delivery: Some(Delivery {
                bytes_s: (ACKED * u64::from(PACKET_BYTES)) as f64 / STEP.as_secs_f64(),
                prior_delivered_bytes: delivered.saturating_sub(4 * ACKED * u64::from(PACKET_BYTES)),
                delivered_bytes: delivered,
                in_flight_bytes: 4 * ACKED * u64::from(PACKET_BYTES),
                is_app_limited: false,
            }),
            losses: &losses,
            taken_back: &taken_back,
            host_lost_packets,
            accounted_packets: self.accounted,
            packet_bytes: PACKET_BYTES,
            ..FeedbackSample::default()
        };
        self.controller.on_feedback(now, &seen);
    }
}

/// Result of `limit` for two controllers of a kind after `steps`: one that was charged with the
/// host's losses until they were taken back, and one that never saw them.
fn limits(
    make: impl Fn() -> Box<dyn Controller>,
    limit: fn(&dyn Controller) -> f64,
    runs: &[Run],
    steps: u64,
) -> [f64; 2] {
    [true, false].map(|sees_charges| {
        let mut controller = make();
        let mut feed = Feed { controller: &mut *controller, sees_charges, accounted: 0, charged: Vec::new() };
        (0..steps).for_each(|step| feed.step(step, runs));
        limit(&*controller)
    })
}

fn rate(controller: &dyn Controller) -> f64 {
    controller.rate_bytes_s()
}

fn window(controller: &dyn Controller) -> f64 {
    controller.window_bytes() as f64
}

/// Makes a controller of one kind.
type Make = fn() -> Box<dyn Controller>;

/// Runs at least two round trips apart, so that each is a loss event. The first is the network's
/// and ends slow start; so is the last, after all others were taken back.
fn runs() -> impl Strategy<Value = Vec<Run>> {
    let run = (1..60_u32, proptest::option::weighted(0.7, 1..60_u64));
    proptest::collection::vec(run, 1..6).prop_map(|runs| {
        let networks = |charged| Run { charged, packets: 1, taken_back: None };
        let between = (1..).zip(runs).map(|(n, (packets, after))| {
            let charged = FIRST + 12 * n;
            Run { charged, packets, taken_back: after.map(|after| charged + after) }
        });
        let (first, last) = (std::iter::once(networks(FIRST)), std::iter::once(networks(LAST)));
        first.chain(between).chain(last).collect()
    })
}

/// Steps of the first and the last loss, and number of steps.
const FIRST: u64 = 60;
const LAST: u64 = 390;
const STEPS: u64 = 400;

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_controller_forgets_losses_that_were_taken_back(runs in runs()) {
        let kinds: [(&str, Make); 5] = [
            ("paper", || Box::new(Paper::new(Mode::Window, ControllerConfig::default()))),
            ("paper-rate", || Box::new(Paper::new(Mode::Rate, ControllerConfig::default()))),
            ("highspeed", || Box::new(Equation::highspeed())),
            ("tfrc", || Box::new(Equation::tfrc())),
            ("scalable", || Box::new(Scalable::default())),
        ];
        for (kind, make) in kinds {
            let [taken_back, never] = limits(make, rate, &runs, STEPS);
            // The transmission windows of `paper` end at other times, when more or fewer packets
            // divide the losses.
            let tolerance = if kind == "paper" { 0.05 } else { 1e-6 };
            let ratio = taken_back / never;
            prop_assert!((ratio - 1.0).abs() < tolerance, "{}: {}", kind, ratio);
        }
    }
}

#[test]
fn slow_start_goes_on_after_its_first_loss_was_taken_back() {
    let runs = [Run { charged: 60, packets: 30, taken_back: Some(90) }];
    let kinds: [Make; 3] = [
        || Box::new(Paper::new(Mode::Window, ControllerConfig::default())),
        || Box::new(Equation::highspeed()),
        || Box::new(Equation::tfrc()),
    ];
    for make in kinds {
        let [charged, never] = limits(make, rate, &runs, 85);
        assert!(charged < 0.8 * never, "{charged} of {never}");
        let [taken_back, never] = limits(make, rate, &runs, 130);
        assert!((taken_back / never - 1.0).abs() < 1e-6, "{taken_back} of {never}");
    }
}

#[test]
fn the_model_restores_its_window_once_losses_are_taken_back() {
    let model = || -> Box<dyn Controller> { Box::new(ModelController::new(PACKET_BYTES, 3)) };
    let heavy = |charged| Run { charged, packets: 60, taken_back: Some(170) };
    let runs: Vec<Run> = (120..160).map(heavy).collect();
    let [charged, never] = limits(model, window, &runs, 165);
    assert!(charged < 0.9 * never, "{charged} of {never}");
    let [taken_back, never] = limits(model, window, &runs, 190);
    assert!((taken_back / never - 1.0).abs() < 0.05, "{taken_back} of {never}");
}
