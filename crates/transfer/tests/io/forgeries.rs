//! Datagrams of senders that do not belong to the flow.

use std::net::UdpSocket;

use barograph_transfer::testkit::io::flow::FlowMonitor;
use barograph_transfer::testkit::io::seal::{Sealer, Suite};
use barograph_transfer::testkit::wire::{DataHead, Header, PacketKind};

use super::world::{Checked, SECRETS, TRANSFER, World, receive};

/// A data packet with wrong bytes.
fn forged(secret: &[u8; 32], transfer: u32, kind: PacketKind, number: u64) -> Vec<u8> {
    forged_at(0, secret, transfer, kind, number)
}

/// A data packet with wrong bytes at `offset` of the object.
fn forged_at(offset: u64, secret: &[u8; 32], transfer: u32, kind: PacketKind, number: u64) -> Vec<u8> {
    let mut sealer = Sealer::new(Suite::fastest(), secret);
    let mut datagram = Header { kind, transfer, number }.encode().to_vec();
    DataHead { sent_us: 0, offset, note: None }.encode(&mut datagram);
    datagram.extend([0xEE; 500 + 16]);
    assert!(sealer.seal(number, &mut datagram));
    datagram
}

#[test]
fn forged_packets_are_refused_and_counted() {
    let sink = Checked::default();
    let mut to = None;
    let (outflow, inflow) = World::new(2_000_000, &sink).ends(|address| *to.insert(address));
    let to = to.unwrap();
    let ours = UdpSocket::bind("127.0.0.1:0").unwrap();
    let foreign = UdpSocket::bind("127.0.0.2:0").unwrap();
    // All these datagrams wait in the socket before the flow begins.
    let whole = forged(&SECRETS[0], TRANSFER, PacketKind::Data, 3);
    foreign.send_to(&whole, to).unwrap();
    let bad = [
        forged(&[9; 32], TRANSFER, PacketKind::Data, 0),
        forged(&SECRETS[1], TRANSFER, PacketKind::Data, 1),
        forged(&SECRETS[0], TRANSFER + 1, PacketKind::Data, 2),
        forged(&SECRETS[0], TRANSFER, PacketKind::Feedback, 2),
        forged(&SECRETS[0], TRANSFER, PacketKind::Data, 1 << 40),
        // A sender with wrong lengths: bytes beyond the object's end, and bytes on both sides of
        // the object's end.
        forged_at(1 << 40, &SECRETS[0], TRANSFER, PacketKind::Data, 0),
        forged_at(2_000_000 - 499, &SECRETS[0], TRANSFER, PacketKind::Data, 0),
        whole[..40].to_vec(),
        // The longest datagram of IPv4.
        vec![0x11; 65_507],
        b"GET / HTTP/1.1".to_vec(),
        Vec::new(),
    ];
    bad.iter().for_each(|datagram| assert_eq!(ours.send_to(datagram, to).unwrap(), datagram.len()));
    let (came, watch) = receive(inflow);
    outflow.run(&FlowMonitor::default()).unwrap_or_else(|error| panic!("{error}"));
    came.join().unwrap().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(sink.got.lock().unwrap().bytes, 2_000_000);
    // The system possibly does not report an empty datagram.
    let refused = watch.progress.lock().unwrap().refused_datagrams;
    assert!((bad.len() as u64..=bad.len() as u64 + 1).contains(&refused), "{refused} refused");
}

/// A copy of a packet that seems to come from a port to which nothing can be sent. Only a process
/// that may open raw sockets can send such a copy.
#[test]
fn a_packet_from_port_zero_does_not_redirect_feedback() {
    let Ok(raw) = socket2::Socket::new(socket2::Domain::IPV4, 3.into(), Some(socket2::Protocol::UDP)) else {
        barograph_sim::report_skipped("raw sockets are not allowed");
        return;
    };
    let sink = Checked::default();
    let mut to = None;
    let (outflow, inflow) = World::new(2_000_000, &sink).ends(|address| *to.insert(address));
    let to = to.unwrap();
    let mut sealer = Sealer::new(Suite::fastest(), &SECRETS[0]);
    let mut datagram =
        Header { kind: PacketKind::Data, transfer: TRANSFER, number: 1 << 20 }.encode().to_vec();
    DataHead { sent_us: 0, offset: 0, note: None }.encode(&mut datagram);
    datagram.extend([0; 16]);
    assert!(sealer.seal(1 << 20, &mut datagram));
    // UDP's header: from port 0, without a checksum (RFC 768).
    let length = 8 + datagram.len() as u16;
    let header = [0, to.port(), length, 0].map(u16::to_be_bytes).concat();
    raw.send_to(&[header, datagram].concat(), &to.into()).unwrap();
    let (came, watch) = receive(inflow);
    outflow.run(&FlowMonitor::default()).unwrap_or_else(|error| panic!("{error}"));
    came.join().unwrap().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(watch.progress.lock().unwrap().refused_datagrams, 1);
}

#[test]
fn forged_feedback_is_refused_and_counted() {
    let sink = Checked::default();
    // The socket is connected, so forged datagrams come from its only peer, but without the secret.
    let liar = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (outflow, _inflow) =
        World { silence_max: std::time::Duration::from_millis(300), ..World::new(2_000_000, &sink) }
            .ends(|_| liar.local_addr().unwrap());
    let to = outflow.socket.local_addr().unwrap();
    for secret in [[9; 32], SECRETS[0]] {
        liar.send_to(&forged(&secret, TRANSFER, PacketKind::Feedback, 0), to).unwrap();
    }
    let watch = FlowMonitor::default();
    assert!(outflow.run(&watch).is_err(), "nobody answered");
    let seen = *watch.progress.lock().unwrap();
    assert_eq!((seen.refused_datagrams, seen.stats.acked_bytes), (2, 0));
}
