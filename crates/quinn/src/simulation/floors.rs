//! What is promised, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};

use super::{Outcome, Plan, Receiver, World, run};
use crate::HostLossConfig;

const MS: Duration = Duration::from_millis(1);

type Factory = Arc<dyn ControllerFactory + Send + Sync>;

fn stock(name: &str) -> Factory {
    match name {
        "newreno" => Arc::new(NewRenoConfig::default()),
        "bbr" => Arc::new(BbrConfig::default()),
        _ => Arc::new(CubicConfig::default()),
    }
}

fn plan(name: &str, receiver: Receiver) -> Plan {
    let factory = stock(name);
    let is_wrapped = receiver != Receiver::Stock;
    let factory: Factory = if is_wrapped { Arc::new(HostLossConfig::new(factory)) } else { factory };
    Plan { factory, receiver }
}

fn world(rtt_ms: u32, runs: [u32; 2]) -> World {
    World {
        mbit_s: 200.0,
        round_trip: rtt_ms * MS,
        queue: 1.0,
        runs: runs.map(|ms| ms * MS),
        read_time: Duration::from_micros(8),
    }
}

fn one(world: World, name: &str, receiver: Receiver, seconds: u32) -> Outcome {
    run(world, &[plan(name, receiver)], seconds * 1000 * MS)[0]
}

/// All rows, to choose constants: `cargo test -p barograph-quinn -- --ignored --nocapture table`.
#[test]
#[ignore = "minutes"]
fn table() {
    for name in std::env::var("NAMES").unwrap_or("cubic".into()).split(' ') {
        for rtt_ms in [20, 65] {
            for runs in [[30, 100], [10, 100], [3, 40], [1, 1]] {
                let world = world(rtt_ms, runs);
                let [stock, ours] =
                    [Receiver::Stock, Receiver::Reports].map(|receiver| one(world, name, receiver, 10));
                let ratio = ours.mbit_s / stock.mbit_s;
                println!("{name} {rtt_ms} ms {runs:?}: {ratio:.2} {stock:?} {ours:?}");
            }
        }
    }
    for rtt_ms in [20, 65] {
        let shared = World { mbit_s: 40.0, ..world(rtt_ms, [1, 1]) };
        for receiver in [Receiver::Stock, Receiver::Reports, Receiver::Lies] {
            let plans = [plan("cubic", receiver), plan("cubic", Receiver::Stock)];
            println!("{rtt_ms} ms shared {receiver:?}: {:?}", run(shared, &plans, 20_000 * MS));
        }
    }
}
