//! Flows over loopback, through relays that damage what they carry, and with ends that fail.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may fail by panicking, and bounds waits by the clock"
)]

mod failures;
mod forgeries;
mod world;

use std::net::{IpAddr, Ipv6Addr};

use barograph_transfer::SenderStats;
use barograph_transfer::controller::ControllerKind;
use barograph_transfer::testkit::io::flow::{FlowMonitor, FlowProgress};
use barograph_transfer::testkit::io::seal::Suite;
use world::{Checked, DatagramRelay, Harm, Known, World, receive};

/// Sends an object, and checks that every byte arrived exactly once and is durable.
fn arrives(world: World, sink: &Checked, harm: Option<Harm>) -> (SenderStats, [FlowProgress; 2], u64) {
    let (bytes, held) = (world.bytes, world.held.clone());
    let held_bytes: u64 = held.iter().map(|range| range.end - range.start).sum();
    let mut relay = None;
    let (outflow, inflow) = world.ends(|to| match harm {
        Some(harm) => relay.insert(DatagramRelay::new(to, harm, 5)).address,
        None => to,
    });
    let (came, theirs) = receive(inflow);
    let watch = FlowMonitor::default();
    let (stats, _) = outflow.run(&watch).unwrap_or_else(|error| panic!("{error}"));
    came.join().unwrap().unwrap_or_else(|error| panic!("{error}"));
    let got = sink.got.lock().unwrap();
    assert_eq!((got.bytes, got.durable), (bytes - held_bytes, bytes - held_bytes), "each byte once");
    let missing = held.gaps(&(0..bytes)).filter(|range| got.ranges.gaps(range).next().is_some()).count();
    assert_eq!(missing, 0);
    assert_eq!(stats.acked_bytes, bytes - held_bytes);
    let seen = [*watch.progress.lock().unwrap(), *theirs.progress.lock().unwrap()];
    assert_eq!((seen[0].held_bytes, seen[1].held_bytes), (bytes, bytes));
    (stats, seen, relay.map_or(0, DatagramRelay::end))
}

#[test]
fn an_object_arrives_with_every_cipher_suite() {
    for suite in [Suite::Clear, Suite::Aes128Gcm, Suite::ChaCha20Poly1305] {
        for is_immediate in [false, true] {
            let sink = Checked { is_immediate, ..Checked::default() };
            let origin = Box::new(Known { is_immediate });
            let (_, seen, _) = arrives(World { suite, origin, ..World::new(3_000_001, &sink) }, &sink, None);
            assert!(seen[0].cpu > std::time::Duration::ZERO && seen[0].rtt.is_some());
            assert_eq!(seen[1].durable_bytes, if is_immediate { 3_000_001 } else { seen[1].durable_bytes });
        }
    }
}

#[test]
fn an_object_arrives_by_ipv6() {
    let sink = Checked::default();
    let world = World { address: IpAddr::V6(Ipv6Addr::LOCALHOST), ..World::new(1_000_000, &sink) };
    if std::net::UdpSocket::bind((world.address, 0)).is_err() {
        barograph_sim::report_skipped("this host has no IPv6");
        return;
    }
    arrives(world, &sink, None);
}

#[test]
fn an_empty_object_completes_without_packets() {
    let sink = Checked::default();
    let (stats, ..) = arrives(World::new(0, &sink), &sink, None);
    assert_eq!(stats.sent_packets, 0);
}

#[test]
fn the_last_bytes_of_the_longest_object_arrive() {
    let sink = Checked::default();
    let bytes = (1 << 62) - 1;
    // The receiver also lacks some ranges before the last bytes.
    let held = [0..bytes - 3_000_000, bytes - 2_000_000..bytes - 1_500_000, bytes - 700..bytes - 1];
    let world = World { held: held.into_iter().collect(), ..World::new(bytes, &sink) };
    arrives(world, &sink, None);
}

#[test]
fn an_object_arrives_despite_lost_late_and_duplicate_packets() {
    for kind in [ControllerKind::DEFAULT, ControllerKind::Fixed] {
        let sink = Checked::default();
        let harm = Harm { lost: 0.03, held_back: 0.05, doubled: 0.03, ..Harm::default() };
        let (stats, _, doubled) = arrives(World { kind, ..World::new(4_000_000, &sink) }, &sink, Some(harm));
        assert!(stats.lost_packets > 0 && doubled > 0, "{stats:?}");
    }
}

#[test]
fn changed_datagrams_are_refused_and_counted() {
    let sink = Checked::default();
    let harm = Harm { flipped: 0.02, cut: 0.02, doubled: 0.02, ..Harm::default() };
    let (_, [out, back], harmed) = arrives(World::new(3_000_000, &sink), &sink, Some(harm));
    let refused = out.refused_datagrams + back.refused_datagrams;
    // Not every damaged datagram is refused: some arrived after the end of the flow. Some copies
    // were copies of changed datagrams.
    assert!(refused > 50 && refused <= harmed, "{refused} of {harmed}");
}

#[test]
fn a_path_that_drops_long_datagrams_gets_shorter_datagrams() {
    let sink = Checked::default();
    let harm = Harm { longest: 1250, ..Harm::default() };
    let (stats, ..) = arrives(World::new(300_000, &sink), &sink, Some(harm));
    assert!(stats.lost_packets > 0 && stats.sent_packets >= 300_000 / 1156, "{stats:?}");
}
