//! Datagrams over the loopback interface, and what the kernel reports about them.
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]
#![allow(clippy::disallowed_methods, reason = "a test reads the clock")]

mod common;
mod told;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

use barograph_transfer::testkit::io::socket::{Inbox, Received, Socket, SocketConfig, Train, is_too_large};
use common::*;

fn bound(at: SocketAddr, config: SocketConfig) -> (Socket, SocketAddr) {
    let socket = Socket::bind(at, config).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Returns two sockets; the first socket is connected to the second socket.
fn pair(at: SocketAddr, config: SocketConfig) -> (Socket, Socket) {
    let (to, address) = bound(at, config);
    let (mut from, _) = bound(at, config);
    from.connect(address).unwrap();
    (from, to)
}

/// One received train, with what the kernel reported about this train.
#[derive(Debug)]
struct Came {
    bytes: Vec<u8>,
    segment: usize,
    from: SocketAddr,
    at: Option<SystemTime>,
    is_marked: Option<bool>,
    drops: Option<u32>,
}

impl From<Received<'_>> for Came {
    fn from(train: Received<'_>) -> Self {
        let Received { bytes, segment, from, at, is_marked, drops } = train;
        Self { bytes: bytes.to_vec(), segment, from, at, is_marked, drops }
    }
}

/// Receives until `length` bytes have arrived, or 5 s have passed.
fn arrived(socket: &mut Socket, length: usize) -> Vec<Came> {
    let mut inbox = Inbox::new(8);
    let mut trains = Vec::new();
    let end = Instant::now() + Duration::from_secs(5);
    while trains.iter().map(|train: &Came| train.bytes.len()).sum::<usize>() < length && Instant::now() < end
    {
        match socket.receive(&mut inbox) {
            Ok(_) => trains.extend(inbox.received().map(Came::from)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                socket.wait(false, Duration::from_millis(50)).unwrap()
            }
            Err(error) => panic!("{error}"),
        }
    }
    trains
}

fn datagrams(came: &[Came]) -> Vec<&[u8]> {
    came.iter().flat_map(|train| train.bytes.chunks(train.segment)).collect()
}

/// Receives the trains that have already arrived, without waiting.
fn drained(socket: &mut Socket) -> Vec<Came> {
    let mut all = Vec::new();
    loop {
        socket.wait(false, Duration::ZERO).unwrap();
        let mut inbox = Inbox::new(1);
        match socket.receive(&mut inbox) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return all,
            other => assert_eq!(other.unwrap(), 1),
        }
        all.extend(inbox.received().map(Came::from));
    }
}

#[test]
fn trains_arrive_whole_and_in_order() {
    for at in loopbacks() {
        let (mut from, mut to) = pair(at, CONFIG);
        let sent = bytes(40 * 1200 + 300);
        let other = bytes(3 * 900);
        let trains = [Train { bytes: &sent, segment: 1200 }, Train { bytes: &other, segment: 900 }];
        assert_eq!(from.send(&trains, None).unwrap(), 2);
        let came = arrived(&mut to, sent.len() + other.len());
        let expected: Vec<_> = sent.chunks(1200).chain(other.chunks(900)).collect();
        assert_eq!(datagrams(&came), expected, "{at}");
        assert!(came.iter().all(|train| train.from == from.local_addr().unwrap()));
        if to.capabilities().receives_trains && from.capabilities().train_max > 1 {
            assert!(came.len() < expected.len(), "{at}: they come as trains");
        } else {
            barograph_sim::report_skipped("trains, for the kernel has none");
        }
    }
}

#[test]
fn long_trains_are_cut_for_the_kernel() {
    for at in loopbacks() {
        let (mut from, mut to) = pair(at, CONFIG);
        let sent = bytes(150_000);
        assert_eq!(from.send(&[Train { bytes: &sent, segment: 1000 }], None).unwrap(), 1);
        assert_eq!(datagrams(&arrived(&mut to, sent.len())), sent.chunks(1000).collect::<Vec<_>>());
        // Trains with more than 64 datagrams, which occur if datagrams are short.
        assert_eq!(from.send(&[Train { bytes: &sent[..20_000], segment: 100 }], None).unwrap(), 1);
        assert_eq!(datagrams(&arrived(&mut to, 20_000)), sent[..20_000].chunks(100).collect::<Vec<_>>());
    }
}

#[test]
fn trains_can_be_sent_to_an_explicit_address() {
    for at in loopbacks() {
        let ((mut to, address), (mut from, _)) = (bound(at, CONFIG), bound(at, CONFIG));
        let sent = bytes(30_000);
        assert_eq!(from.send(&[Train { bytes: &sent, segment: 1100 }], Some(address)).unwrap(), 1);
        assert_eq!(datagrams(&arrived(&mut to, sent.len())), sent.chunks(1100).collect::<Vec<_>>());
    }
}

#[test]
fn empty_trains_and_invalid_segment_lengths_are_handled() {
    let (mut from, mut to) = pair(loopbacks()[0], CONFIG);
    assert_eq!(from.send(&[], None).unwrap(), 0);
    let trains = [
        Train { bytes: &[], segment: 0 },
        Train { bytes: &[1, 2, 3], segment: 0 },
        Train { bytes: &[4], segment: 70_000 },
    ];
    assert_eq!(from.send(&trains, None).unwrap(), 3);
    assert_eq!(datagrams(&arrived(&mut to, 4)), [&[1, 2, 3][..], &[4]]);
    let raw = UdpSocket::bind(loopbacks()[0]).unwrap();
    raw.send_to(&[], to.local_addr().unwrap()).unwrap();
    raw.send_to(&[5], to.local_addr().unwrap()).unwrap();
    assert_eq!(datagrams(&arrived(&mut to, 1)), [[5]]);
}

#[test]
fn without_trains_datagrams_come_one_by_one() {
    for at in loopbacks() {
        let (mut from, mut to) = pair(at, PLAIN);
        assert_eq!((from.capabilities().train_max, to.capabilities().receives_trains), (1, false));
        let sent = bytes(30_500);
        assert_eq!(from.send(&[Train { bytes: &sent, segment: 1000 }], None).unwrap(), 1);
        let came = arrived(&mut to, sent.len());
        assert_eq!(
            came.iter().map(|train| &train.bytes[..]).collect::<Vec<_>>(),
            sent.chunks(1000).collect::<Vec<_>>()
        );
    }
}

#[test]
fn an_unspecified_address_serves_ipv4_and_ipv6() {
    if loopbacks().len() < 2 {
        return;
    }
    let (mut to, address) = bound((Ipv6Addr::UNSPECIFIED, 0).into(), CONFIG);
    let (mut v4, v4_address) = bound((Ipv4Addr::LOCALHOST, 0).into(), CONFIG);
    v4.connect((Ipv4Addr::LOCALHOST, address.port()).into()).unwrap();
    v4.send(&one(b"hello"), None).unwrap();
    let came = arrived(&mut to, 5);
    assert_eq!((came[0].from, came[0].is_marked, came[0].drops), (v4_address, Some(false), Some(0)));
    // The reply goes to the address that the socket reported.
    to.send(&one(b"hello yourself"), Some(v4_address)).unwrap();
    assert_eq!(arrived(&mut v4, 14)[0].from.port(), address.port());
    to.connect(v4_address).unwrap();
    assert_eq!(to.datagram_bytes_max().unwrap(), v4.datagram_bytes_max().unwrap());
}

#[test]
fn a_connected_socket_receives_only_from_its_peer() {
    for at in loopbacks() {
        let (mut one_end, one_at) = bound(at, CONFIG);
        let (mut other, other_at) = bound(at, CONFIG);
        one_end.connect(other_at).unwrap();
        let (mut stranger, _) = bound(at, CONFIG);
        stranger.send(&one(b"stranger"), Some(one_at)).unwrap();
        other.send(&one(b"peer"), Some(one_at)).unwrap();
        let came = arrived(&mut one_end, 4);
        assert_eq!(datagrams(&came), [b"peer"], "{at}");
    }
}

#[test]
fn a_datagram_too_long_for_the_path_is_an_error() {
    for at in loopbacks() {
        let (mut from, mut to) = pair(at, CONFIG);
        let max = from.datagram_bytes_max().unwrap();
        let sent = bytes(3 * (max + 1));
        let capabilities = from.capabilities();
        let error = from.send(&one(&sent[..=max]), None).unwrap_err();
        assert!(is_too_large(&error), "{error}");
        let error = from.send(&[Train { bytes: &sent, segment: max + 1 }], None).unwrap_err();
        assert!(is_too_large(&error), "{error}");
        assert_eq!(from.capabilities(), capabilities, "trains of shorter datagrams still go");
        from.send(&one(&sent[..max]), None).unwrap();
        assert_eq!(arrived(&mut to, max)[0].bytes, sent[..max], "{at}");
        assert_eq!(to.datagram_bytes_max().unwrap_err().kind(), ErrorKind::NotConnected);
    }
}

#[test]
fn a_port_without_listener_is_no_error() {
    for at in loopbacks() {
        let (mut from, to) = pair(at, CONFIG);
        drop(to);
        for _ in 0..5 {
            assert_eq!(from.send(&one(b"anybody?"), None).unwrap(), 1);
        }
        let mut inbox = Inbox::new(4);
        match from.receive(&mut inbox) {
            Ok(trains) => assert_eq!(trains, 0),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        let counts = from.counters();
        assert!(counts.passing > 0 && counts.lost == 0, "{counts:?}");
        assert_eq!(counts.last_passing, Some(nix::errno::Errno::ECONNREFUSED as i32));
    }
}

#[test]
fn waiting_is_finer_than_a_millisecond() {
    let (mut from, to) = pair(loopbacks()[0], CONFIG);
    let waited = |how: &dyn Fn()| {
        let start = Instant::now();
        how();
        start.elapsed()
    };
    let wait = Duration::from_micros(300);
    let shortest = (0..200).map(|_| waited(&|| to.wait(false, wait).unwrap())).min().unwrap();
    assert!((wait..Duration::from_micros(900)).contains(&shortest), "{shortest:?}");
    from.send(&one(b"here"), None).unwrap();
    let long = Duration::from_secs(20);
    assert!(waited(&|| to.wait(false, long).unwrap()) < long / 2, "what came ends it");
    assert!(waited(&|| from.wait(true, Duration::MAX).unwrap()) < long / 2, "room ends it");
}

#[test]
fn capabilities_report_the_real_buffer_size() {
    let (small, _) = bound(loopbacks()[0], SocketConfig { buffer_bytes: 10_000, ..CONFIG });
    let (large, _) = bound(loopbacks()[0], SocketConfig { buffer_bytes: 100_000, ..CONFIG });
    assert_eq!([small, large].map(|socket| socket.capabilities().receive_buffer_bytes), [20_000, 200_000]);
    // The buffer is larger than any system gives, but binding succeeds.
    let (huge, _) = bound(loopbacks()[0], SocketConfig { buffer_bytes: usize::MAX, ..CONFIG });
    assert!(huge.capabilities().receive_buffer_bytes >= 200_000);
}

#[test]
fn nothing_is_allocated_in_the_steady_state() {
    for (at, config) in loopbacks().into_iter().flat_map(|at| [(at, CONFIG), (at, PLAIN)]) {
        let (mut from, mut to) = pair(at, config);
        let sent = bytes(20 * 1200);
        let trains = [Train { bytes: &sent, segment: 1200 }; 2];
        let mut inbox = Inbox::new(64);
        let mut round = || {
            assert_eq!(from.send(&trains, None).unwrap(), 2);
            to.wait(false, Duration::from_secs(5)).unwrap();
            to.receive(&mut inbox).unwrap();
            assert!(inbox.received().map(|train| train.bytes.len()).sum::<usize>() > 0);
        };
        round();
        let info = allocation_counter::measure(|| (0..50).for_each(|_| round()));
        assert_eq!(info.count_total, 0, "{at} {config:?}");
    }
}
