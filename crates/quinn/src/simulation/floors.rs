//! What is promised, in virtual time.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::congestion::{BbrConfig, Controller, ControllerFactory, CubicConfig, NewRenoConfig};

use super::{Outcome, Plan, Receiver, World, run};
use crate::HostLossConfig;

const MS: Duration = Duration::from_millis(1);

type Factory = Arc<dyn ControllerFactory + Send + Sync>;

fn cubic(receiver: Receiver) -> Plan {
    plan(Arc::new(CubicConfig::default()), receiver)
}

fn plan(stock: Factory, receiver: Receiver) -> Plan {
    match receiver {
        Receiver::Stock => Plan { factory: stock, receiver },
        Receiver::Reports | Receiver::Lies => {
            Plan { factory: Arc::new(HostLossConfig::new(stock)), receiver }
        }
    }
}

/// A path, and a host that runs for the first of each second number of milliseconds.
fn world(mbit_s: f64, rtt_ms: u32, runs: [u32; 2]) -> World {
    World {
        mbit_s,
        round_trip: rtt_ms * MS,
        queue: 1.0,
        runs: runs.map(|ms| ms * MS),
        read_time: Duration::from_micros(8),
    }
}

fn one(world: World, plan: Plan, seconds: u32) -> Outcome {
    run(world, &[plan], seconds * 1000 * MS)[0]
}

/// What a sender delivers that ignores all losses: a window that fills the path and a pause.
fn ignoring(world: World) -> Plan {
    let bytes = world.mbit_s * 125e3 * (world.round_trip + 100 * MS).as_secs_f64();
    Plan { factory: Arc::new(FixedWindow(bytes as u64)), receiver: Receiver::Stock }
}

#[test]
fn a_pausing_receiver_gets_three_times_what_it_gets_of_stock() {
    let world = world(200.0, 65, [30, 100]);
    let [stock, ours] = [Receiver::Stock, Receiver::Reports].map(|receiver| one(world, cubic(receiver), 10));
    println!("{stock:?} {ours:?}");
    assert!(ours.mbit_s >= 3.0 * stock.mbit_s, "{ours:?} beside {stock:?}");
}

#[test]
fn a_pausing_receiver_gets_nearly_what_ignoring_all_losses_delivers_with_fewer_losses() {
    let world = world(200.0, 20, [30, 100]);
    let [ours, most] = [cubic(Receiver::Reports), ignoring(world)].map(|plan| one(world, plan, 10));
    println!("{ours:?} {most:?}");
    assert!(ours.mbit_s >= 0.9 * most.mbit_s, "{ours:?} beside {most:?}");
    assert!(ours.lost < 0.8 * most.lost, "{ours:?} beside {most:?}");
}

#[test]
fn where_no_host_drops_a_shared_bottleneck_sees_no_difference() {
    let shared = world(40.0, 20, [1, 1]);
    let [stock, ours] = [Receiver::Stock, Receiver::Reports]
        .map(|receiver| run(shared, &[cubic(receiver), cubic(Receiver::Stock)], 6000 * MS));
    for (stock, ours) in stock.iter().zip(&ours) {
        assert!((ours.mbit_s / stock.mbit_s - 1.0).abs() < 0.05, "{ours:?} beside {stock:?}");
    }
    assert!(ours[0].counts.is_some_and(|counts| counts.is_reported && counts.host_bytes == 0));
}

#[test]
fn newreno_gains_at_a_pausing_receiver_and_bbr_loses_little() {
    let world = world(200.0, 65, [30, 100]);
    let newreno: Factory = Arc::new(NewRenoConfig::default());
    let bbr: Factory = Arc::new(BbrConfig::default());
    // BBR hardly reacts to losses. Its phases begin at random, so its bound is loose.
    for (factory, least) in [(newreno, 1.5), (bbr, 0.7)] {
        let [stock, ours] = [Receiver::Stock, Receiver::Reports]
            .map(|receiver| one(world, plan(Arc::clone(&factory), receiver), 8));
        println!("{stock:?} {ours:?}");
        assert!(ours.mbit_s >= least * stock.mbit_s, "{ours:?} beside {stock:?}");
    }
}

/// Without a loss that counts as the host's, a controller does what it does alone.
#[test]
fn a_receiver_that_lies_without_pauses_is_not_believed() {
    for (rtt_ms, queue) in [(20, 0.2), (20, 1.0), (65, 0.2), (65, 1.0)] {
        let shared = World { queue, ..world(40.0, rtt_ms, [1, 1]) };
        let found = run(shared, &[cubic(Receiver::Lies), cubic(Receiver::Stock)], 5000 * MS);
        println!("{found:?}");
        let counts = found[0].counts.unwrap_or_default();
        assert!(counts.refused_bytes > 0 && counts.host_bytes == 0, "{found:?}");
    }
}

/// The table of `lab/results/quinn.md`.
#[test]
#[ignore = "it prints the table of lab/results/quinn.md, in minutes"]
fn table() {
    println!(
        "| path, host | stock | ours | ours ÷ stock | ignores losses | ours ÷ that | lost: stock, ours, ignores (%) |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|");
    for (mbit_s, rtt_ms, runs) in [
        (200.0, 20, [30, 100]),
        (200.0, 20, [3, 40]),
        (200.0, 65, [30, 100]),
        (200.0, 65, [10, 100]),
        (200.0, 65, [3, 40]),
        (1000.0, 20, [30, 100]),
        (1000.0, 65, [30, 100]),
    ] {
        let world = world(mbit_s, rtt_ms, runs);
        let plans = [cubic(Receiver::Stock), cubic(Receiver::Reports), ignoring(world)];
        let [stock, ours, most] = plans.map(|plan| one(world, plan, 10));
        println!(
            "| {mbit_s} Mbit/s, {rtt_ms} ms, {} of {} ms | {:.1} | {:.1} | {:.2} | {:.1} | {:.2} | {:.1}, {:.1}, {:.1} |",
            runs[0],
            runs[1],
            stock.mbit_s,
            ours.mbit_s,
            ours.mbit_s / stock.mbit_s,
            most.mbit_s,
            ours.mbit_s / most.mbit_s,
            100.0 * stock.lost,
            100.0 * ours.lost,
            100.0 * most.lost
        );
    }
    println!(
        "| round trip, queue | ours ÷ stock | stock with reports ÷ stock | ours with lies ÷ that | believed (%) |"
    );
    println!("|---|--:|--:|--:|--:|");
    for (rtt_ms, queue) in [(20, 0.2), (20, 1.0), (20, 3.0), (65, 0.2), (65, 1.0), (65, 3.0)] {
        let stock_to_liar = Plan { receiver: Receiver::Lies, ..cubic(Receiver::Stock) };
        let plans = [cubic(Receiver::Stock), cubic(Receiver::Reports), cubic(Receiver::Lies), stock_to_liar];
        let [stock, ours, lies, reports] = plans.map(|plan| shares(rtt_ms, queue, &plan));
        println!(
            "| {rtt_ms} ms, {queue} | {:.2} | {:.2} | {:.2} | {:.1} |",
            ours.0 / stock.0,
            reports.0 / stock.0,
            lies.0 / reports.0,
            100.0 * lies.1
        );
    }
}

/// Mean share of the path of a flow beside one of stock, and the share of its lost bytes that count
/// as the host's. Which of two flows gets more is partly chance, so the rates of the runs differ.
fn shares(rtt_ms: u32, queue: f64, plan: &Plan) -> (f64, f64) {
    let rates = [37.0, 38.0, 39.0, 40.0, 41.0, 42.0, 43.0, 44.0];
    let (mut share, mut host, mut all) = (0.0, 0, 0);
    for mbit_s in rates {
        let shared = World { queue, ..world(mbit_s, rtt_ms, [1, 1]) };
        let found = run(shared, &[plan.clone(), cubic(Receiver::Stock)], 20_000 * MS);
        share += found[0].mbit_s / (found[0].mbit_s + found[1].mbit_s) / rates.len() as f64;
        let counts = found[0].counts.unwrap_or_default();
        host += counts.host_bytes;
        all += counts.host_bytes + counts.network_bytes;
    }
    (share, host as f64 / all.max(1) as f64)
}

/// A window in bytes that nothing changes.
#[derive(Clone)]
struct FixedWindow(u64);

impl ControllerFactory for FixedWindow {
    fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn Controller> {
        self.clone_box()
    }
}

impl Controller for FixedWindow {
    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: u64) {}

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        self.0
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.0
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
