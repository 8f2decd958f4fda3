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
            let Some(place) = self.charged.iter().position(|(charged, _)| *charged == number) else {
                continue;
            };
            let (_, back) = self.charged.remove(place);
            self.charged[place..].iter_mut().for_each(|(_, later)| later.at -= u64::from(back.packets));
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

/// Rates of two controllers of a kind after `steps`: one that was charged with the host's losses
/// until they were taken back, and one that never saw them.
fn rates(make: impl Fn() -> Box<dyn Controller>, runs: &[Run], steps: u64) -> [f64; 2] {
    [true, false].map(|sees_charges| {
        let mut controller = make();
        let mut feed = Feed { controller: &mut *controller, sees_charges, accounted: 0, charged: Vec::new() };
        (0..steps).for_each(|step| feed.step(step, runs));
        controller.rate_bytes_s()
    })
}

/// Runs at least two round trips apart, so that each is a loss event. The first is the network's
/// and ends slow start.
fn runs() -> impl Strategy<Value = Vec<Run>> {
    let run = (1..60_u32, proptest::option::weighted(0.7, 1..60_u64));
    proptest::collection::vec(run, 1..7).prop_map(|runs| {
        let first = Run { charged: 60, packets: 1, taken_back: None };
        let rest = (1..).zip(runs).map(|(n, (packets, after))| {
            let charged = 60 + 12 * n;
            Run { charged, packets, taken_back: after.map(|after| charged + after) }
        });
        std::iter::once(first).chain(rest).collect()
    })
}

/// Steps until all runs are taken back, and the transmission windows after it have ended.
const STEPS: u64 = 400;

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_controller_forgets_losses_that_were_taken_back(runs in runs()) {
        let config = ControllerConfig::default();
        let kinds: [(&str, fn(ControllerConfig) -> Box<dyn Controller>); 5] = [
            ("paper", |config| Box::new(Paper::new(Mode::Window, config))),
            ("paper-rate", |config| Box::new(Paper::new(Mode::Rate, config))),
            ("highspeed", |_| Box::new(Equation::highspeed())),
            ("tfrc", |_| Box::new(Equation::tfrc())),
            ("scalable", |_| Box::new(Scalable::default())),
        ];
        for (kind, make) in kinds {
            let [taken_back, never] = rates(|| make(config), &runs, STEPS);
            // `paper-rate` sets its rate only when losses are charged or taken back, and the
            // long-term loss rate fell since.
            let tolerance = if kind == "paper-rate" { 0.5 } else { 1e-6 };
            prop_assert!((taken_back / never - 1.0).abs() < tolerance, "{kind}: {taken_back} of {never}");
        }
    }
}

#[test]
fn slow_start_goes_on_after_its_first_loss_was_taken_back() {
    let runs = [Run { charged: 60, packets: 30, taken_back: Some(90) }];
    let kinds: [fn() -> Box<dyn Controller>; 3] = [
        || Box::new(Paper::new(Mode::Window, ControllerConfig::default())),
        || Box::new(Equation::highspeed()),
        || Box::new(Equation::tfrc()),
    ];
    for make in kinds {
        let [charged, never] = rates(make, &runs, 85);
        assert!(charged < 0.8 * never, "{charged} of {never}");
        let [taken_back, never] = rates(make, &runs, 130);
        assert!((taken_back / never - 1.0).abs() < 1e-6, "{taken_back} of {never}");
    }
}

#[test]
fn the_model_restores_what_losses_lowered_once_they_are_taken_back() {
    let model = || -> Box<dyn Controller> { Box::new(ModelController::new(PACKET_BYTES, 3)) };
    let heavy = |charged| Run { charged, packets: 60, taken_back: Some(170) };
    let runs: Vec<Run> = (120..160).map(heavy).collect();
    let [charged, never] = rates(model, &runs, 165);
    assert!(charged < 0.98 * never, "{charged} of {never}");
    let [taken_back, never] = rates(model, &runs, 175);
    assert!((taken_back / never - 1.0).abs() < 0.3, "{taken_back} of {never}");
}
