//! Datagrams over the loopback interface, with the calls that all systems have.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may fail, and bounds waits")]

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use barograph_transfer::testkit::io::socket::{Inbox, Socket, SocketConfig, Train, is_too_large};

#[path = "../socket/common.rs"]
mod common;

use common::*;

fn bound(at: SocketAddr, config: SocketConfig) -> (Socket, SocketAddr) {
    let socket = Socket::bind_portable(at, config).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Receives until `count` datagrams have arrived, or 5 s have passed. Returns each datagram with
/// its congestion mark and its source address.
fn arrived(socket: &mut Socket, count: usize) -> Vec<(Vec<u8>, Option<bool>, SocketAddr)> {
    let mut inbox = Inbox::new(8);
    let mut all = vec![];
    let end = Instant::now() + Duration::from_secs(5);
    while all.len() < count && Instant::now() < end {
        match socket.receive(&mut inbox) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                socket.wait(false, Duration::from_millis(50)).unwrap();
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        for train in inbox.received() {
            assert_eq!(train.drops, None, "nobody counted");
            let datagrams = train.bytes.chunks(train.segment);
            all.extend(datagrams.map(|bytes| (bytes.to_vec(), train.is_marked, train.from)));
        }
    }
    all
}

#[test]
fn trains_arrive_whole_and_in_order() {
    for (at, config) in loopbacks().into_iter().flat_map(|at| [(at, CONFIG), (at, PLAIN)]) {
        let ((mut to, address), (mut from, own)) = (bound(at, config), bound(at, config));
        from.connect(address).unwrap();
        assert!(!to.capabilities().has_drops && (config.trains || from.capabilities().train_max == 1));
        let sent = bytes(150_300);
        let trains =
            [Train { bytes: &sent, segment: 1000 }, Train { bytes: b"hello", segment: 0 }, one(b"!")[0]];
        assert_eq!(from.send(&trains, None).unwrap(), 3);
        let came = arrived(&mut to, 153);
        let expected: Vec<_> = sent.chunks(1000).chain([&b"hello"[..], b"!"]).collect();
        assert_eq!(came.iter().map(|(bytes, ..)| &bytes[..]).collect::<Vec<_>>(), expected, "{at}");
        for (bytes, marked, from) in came {
            assert_eq!((marked, from), (Some(false), own), "{at}: {} bytes", bytes.len());
        }
    }
}

#[test]
fn an_unspecified_address_receives_and_sends_ipv4_and_ipv6() {
    if loopbacks().len() < 2 {
        return;
    }
    let (mut to, address) = bound((Ipv6Addr::UNSPECIFIED, 0).into(), CONFIG);
    let (mut v4, v4_address) = bound((Ipv4Addr::LOCALHOST, 0).into(), CONFIG);
    v4.connect((Ipv4Addr::LOCALHOST, address.port()).into()).unwrap();
    v4.send(&one(b"hello"), None).unwrap();
    assert_eq!(arrived(&mut to, 1)[0].2, v4_address);
    to.send(&one(b"hello yourself"), Some(v4_address)).unwrap();
    assert_eq!(arrived(&mut v4, 1)[0].0, b"hello yourself");
}

#[test]
fn a_connected_socket_receives_only_from_its_peer() {
    for at in loopbacks() {
        let (mut one_end, one_at) = bound(at, CONFIG);
        let (mut other, other_at) = bound(at, CONFIG);
        assert_eq!(one_end.send(&one(b"?"), None).unwrap_err().kind(), ErrorKind::NotConnected);
        one_end.connect(other_at).unwrap();
        let (mut stranger, _) = bound(at, CONFIG);
        for _ in 0..20 {
            stranger.send(&one(b"stranger"), Some(one_at)).unwrap();
        }
        other.send(&one(b"peer"), Some(one_at)).unwrap();
        assert_eq!(arrived(&mut one_end, 1).iter().map(|came| &came.0[..]).collect::<Vec<_>>(), [b"peer"]);
        assert_eq!(one_end.counters().cut, 0);
    }
}

#[test]
fn a_port_without_listener_is_no_error() {
    for at in loopbacks() {
        let ((mut from, _), (to, address)) = (bound(at, CONFIG), bound(at, CONFIG));
        from.connect(address).unwrap();
        drop(to);
        for _ in 0..5 {
            assert_eq!(from.send(&one(b"anybody?"), None).unwrap(), 1);
        }
        let came = from.receive(&mut Inbox::new(4));
        assert!(came.is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
    }
}

#[test]
fn datagrams_have_the_length_of_ethernet_and_longer_datagrams_fail() {
    for (at, ethernet) in loopbacks().into_iter().zip([1472, 1452]) {
        let ((mut to, address), (mut from, _)) = (bound(at, CONFIG), bound(at, CONFIG));
        assert_eq!(to.datagram_bytes_max().unwrap_err().kind(), ErrorKind::NotConnected);
        from.connect(address).unwrap();
        let max = from.datagram_bytes_max().unwrap();
        assert!(max == 1200 || max == ethernet, "{max}");
        from.send(&one(&vec![7; max]), None).unwrap();
        assert_eq!(arrived(&mut to, 1)[0].0.len(), max);
        // A datagram that is longer than any IP packet.
        let error = from.send(&one(&[0; 65_530]), None).unwrap_err();
        assert!(is_too_large(&error), "{error}");
    }
}
