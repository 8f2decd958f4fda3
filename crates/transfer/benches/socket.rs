//! Throughput of sockets over loopback.
//!
//! `cargo bench -p barograph-transfer --features io,testkit --bench socket`
//!
//! One thread sends datagrams of 1472 bytes as fast as it can, and a different thread receives
//! them. Each row takes 1.5 seconds: datagrams one by one or in trains, clear or sealed. The
//! benchmark prints what arrived, and the share of the sent datagrams that the receiver's socket
//! dropped. Loopback never splits a train, so these are the limits of system calls, copies and
//! seals, not of a network card.

#![allow(clippy::unwrap_used)]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use barograph_transfer::testkit::io::seal::{Opener, Sealer, Suite};
use barograph_transfer::testkit::io::socket::{Inbox, Socket, SocketConfig, Train};
use barograph_transfer::testkit::wire::{Header, PacketKind};

/// UDP payload of an Ethernet packet.
const SEGMENT: usize = 1472;
/// Number of datagrams in a train: as many as fit into the largest IP packet.
const TRAIN: usize = 44;
const TIME: Duration = Duration::from_millis(1500);
/// Number of rounds. Each round measures every row once, so that other work on the machine affects
/// all rows.
const ROUNDS: usize = 3;

fn main() {
    println!(
        "{:<28} {:>8} {:>9} {:>10} {:>10}",
        "1472 B over the loopback", "Gbit/s", "kpkt/s", "dropped, %", "opened, %"
    );
    for _ in 0..ROUNDS {
        row("one by one, clear", false, Suite::Clear);
        row("trains, clear", true, Suite::Clear);
        row("one by one, sealed", false, Suite::fastest());
        row("trains, sealed", true, Suite::fastest());
    }
}

fn row(name: &str, trains: bool, suite: Suite) {
    let config = SocketConfig { buffer_bytes: 8 << 20, trains, ecn: true };
    let mut to = Socket::bind((Ipv4Addr::LOCALHOST, 0).into(), config).unwrap();
    let mut from = Socket::bind((Ipv4Addr::LOCALHOST, 0).into(), config).unwrap();
    from.connect(to.local_addr().unwrap()).unwrap();
    to.connect(from.local_addr().unwrap()).unwrap();
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let (datagrams, opened, took) = thread::scope(|scope| {
        scope.spawn(|| send(&mut from, suite, &stop, &sent));
        let start = Instant::now();
        let (datagrams, opened) = receive(&mut to, suite, start);
        stop.store(true, Ordering::Relaxed);
        (datagrams, opened, start.elapsed())
    });
    let rate = datagrams as f64 / took.as_secs_f64();
    let sent = sent.load(Ordering::Relaxed).max(1) as f64;
    println!(
        "{name:<28} {:>8.2} {:>9.0} {:>10.1} {:>10.1}",
        rate * SEGMENT as f64 * 8.0 / 1e9,
        rate / 1e3,
        100.0 * (1.0 - datagrams as f64 / sent).max(0.0),
        100.0 * opened as f64 / datagrams.max(1) as f64,
    );
}

fn send(from: &mut Socket, suite: Suite, stop: &AtomicBool, sent: &AtomicU64) {
    let mut sealer = Sealer::new(suite, &[1; 32]);
    let mut number = 0;
    let mut bytes = vec![0; SEGMENT * TRAIN];
    while !stop.load(Ordering::Relaxed) {
        for datagram in bytes.chunks_mut(SEGMENT) {
            let header = Header { kind: PacketKind::Data, transfer: 7, number }.encode();
            datagram[..header.len()].copy_from_slice(&header);
            assert!(sealer.seal(number, datagram));
            number += 1;
        }
        match from.send(&[Train { bytes: &bytes, segment: SEGMENT }], None) {
            Ok(_) => sent.store(number, Ordering::Relaxed),
            Err(_) => from.wait(true, Duration::from_millis(10)).unwrap(),
        }
    }
}

fn receive(to: &mut Socket, suite: Suite, start: Instant) -> (u64, u64) {
    let mut opener = Opener::new(suite, &[1; 32]);
    let mut inbox = Inbox::new(64);
    let (mut datagrams, mut opened) = (0, 0);
    while start.elapsed() < TIME {
        if to.receive(&mut inbox).is_err() {
            to.wait(false, Duration::from_millis(10)).unwrap();
            continue;
        }
        for train in inbox.received() {
            for datagram in train.bytes.chunks_mut(train.segment) {
                datagrams += 1;
                opened += u64::from(opener.open(datagram).is_some());
            }
        }
    }
    (datagrams, opened)
}
