//! The kernel's queue and the relay's queues, over real sockets. Without root, each test prints
//! that the test is skipped.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used)]

use barograph_sim::{Discipline, Hop, Link, LinkSpec, Network, RelayOptions, Switch, network_or_skip};
use std::{
    net::UdpSocket,
    time::{Duration, Instant},
};

const LIMIT: Duration = Duration::from_secs(10);

/// Time to wait for a further packet. If no packet arrives in this time, none will arrive, because
/// the delays in these tests are far shorter.
const SILENCE: Duration = Duration::from_millis(300);

fn pair(network: &Network) -> (UdpSocket, UdpSocket) {
    let a = network.a.run(|| UdpSocket::bind((network.a.v4(), 0))).unwrap().unwrap();
    let b = network.b.run(|| UdpSocket::bind((network.b.v4(), 0))).unwrap().unwrap();
    b.set_read_timeout(Some(SILENCE)).unwrap();
    a.connect(b.local_addr().unwrap()).unwrap();
    (a, b)
}

/// Sends until the first packet arrives, so that both hosts have resolved each other's addresses.
fn warm_up(a: &UdpSocket, b: &UdpSocket) {
    let started = Instant::now();
    loop {
        a.send(&[0]).unwrap();
        if b.recv(&mut [0; 2000]).is_ok() {
            break;
        }
        assert!(started.elapsed() < LIMIT, "nothing comes through");
    }
    while b.recv(&mut [0; 2000]).is_ok() {}
}

/// Sends `count` packets of 1000 bytes in bursts of 100 and returns how many arrive.
fn carried(a: &UdpSocket, b: &UdpSocket, count: usize) -> usize {
    let mut received = 0;
    for _ in 0..count / 100 {
        for _ in 0..100 {
            a.send(&[0; 1000]).unwrap();
        }
        while b.recv(&mut [0; 2000]).is_ok() {
            received += 1;
        }
    }
    received
}

#[test]
fn a_switch_drops_its_share_of_packets_and_what_exceeds_its_queue() {
    let lossy = Switch { rate_bps: None, queue_packets: 1000, loss: 0.2 };
    let network = network_or_skip!(Link::Switch(lossy));
    let (a, b) = pair(&network);
    warm_up(&a, &b);
    let before = network.dropped().unwrap();
    let received = carried(&a, &b, 1000);
    let (told, lost) = (network.dropped().unwrap() - before, 1000 - received as u64);
    // The hosts also send packets to discover neighbours and routers.
    assert!((lost..lost + 30).contains(&told), "the switch tells of {told}, {lost} are lost");
    // The tolerance is four standard deviations.
    assert!((750..=850).contains(&received), "{received} of 1000 with a loss of 0.2");

    let slow = Switch { rate_bps: Some(8_000_000), queue_packets: 20, loss: 0.0 };
    let network = Network::new(Link::Switch(slow)).unwrap();
    let (a, b) = pair(&network);
    warm_up(&a, &b);
    let received = carried(&a, &b, 100);
    // A packet takes a millisecond; on a busy machine, sending the burst may take several
    // milliseconds.
    assert!((20..90).contains(&received), "{received} of 100 into a queue of 20");
    let refused = Network::new(Link::Switch(Switch { loss: 1.5, ..slow })).unwrap_err();
    assert!(refused.to_string().contains("switch.loss"), "{refused}");
}

#[test]
fn a_port_can_be_closed_and_opened() {
    let network = network_or_skip!(Link::Switch(Switch { rate_bps: None, queue_packets: 10, loss: 0.0 }));
    let (a, b) = pair(&network);
    warm_up(&a, &b);
    let port = network.port().unwrap();
    port.set_open(false).unwrap();
    a.send(&[0]).unwrap();
    assert!(b.recv(&mut [0; 2000]).is_err());
    port.set_open(true).unwrap();
    warm_up(&a, &b);
    drop(network);
    assert!(port.set_open(true).is_err());
}

#[test]
fn the_relay_sends_packets_through_queues() {
    let hop = Hop { rate_bps: 8_000_000, queue_packets: 20, discipline: Discipline::TailDrop };
    let options = RelayOptions { queues: vec![hop.clone(), hop], ..RelayOptions::default() };
    let network = network_or_skip!(Link::symmetric_with(LinkSpec::default(), options));
    let (a, b) = pair(&network);
    warm_up(&a, &b);
    let before = network.report().unwrap().forward;
    let received = carried(&a, &b, 100);
    assert!((20..90).contains(&received), "{received} of 100 into a queue of 20");
    let after = network.report().unwrap().forward;
    let dropped = (after.queue_full - before.queue_full) as usize;
    assert_eq!(received + dropped, 100, "{}", network.report().unwrap());
}
