//! What the kernel reports about datagrams: drops, marks, and times.

use std::os::fd::AsRawFd;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

use super::*;

/// A drop is reported with the next datagram that is not dropped.
#[test]
fn drops_are_counted() {
    for at in loopbacks() {
        let small = SocketConfig { buffer_bytes: 16_384, ..PLAIN };
        let (mut from, mut to) = pair(at, small);
        if !to.capabilities().has_drops {
            barograph_sim::report_skipped("drops, for the kernel does not count them");
            return;
        }
        let sent = bytes(300 * 1000);
        assert_eq!(from.send(&[Train { bytes: &sent, segment: 1000 }], None).unwrap(), 1);
        let came = drained(&mut to);
        assert!(came.len() < 300, "{at}: the buffer overflowed");
        assert_eq!(came[0].drops, Some(0));
        from.send(&one(b"after"), None).unwrap();
        assert_eq!(arrived(&mut to, 5)[0].drops, Some(300 - came.len() as u32), "{at}");
    }
}

/// A train that the socket drops counts as one drop. Only the packet numbers show how many
/// datagrams were lost.
#[test]
fn a_dropped_train_counts_once() {
    let small = SocketConfig { buffer_bytes: 200_000, ..CONFIG };
    let (mut from, mut to) = pair(loopbacks()[0], small);
    if !to.capabilities().has_drops
        || !to.capabilities().receives_trains
        || from.capabilities().train_max == 1
    {
        barograph_sim::report_skipped("trains that are dropped, for the kernel has none");
        return;
    }
    let sent = bytes(40 * 1200);
    for _ in 0..30 {
        assert_eq!(from.send(&[Train { bytes: &sent, segment: 1200 }], None).unwrap(), 1);
    }
    let came = drained(&mut to);
    assert!((1..30).contains(&came.len()), "{}", came.len());
    from.send(&one(b"after"), None).unwrap();
    assert_eq!(arrived(&mut to, 5)[0].drops, Some(30 - came.len() as u32));
}

#[test]
fn ecn_marks_are_reported() {
    for at in loopbacks() {
        let (mut from, mut to) = pair(at, CONFIG);
        let raw = UdpSocket::bind(at).unwrap();
        if at.is_ipv4() {
            rustix::net::sockopt::set_ip_tos(&raw, 3).unwrap();
        } else {
            rustix::net::sockopt::set_ipv6_tclass(&raw, 3).unwrap();
        }
        from.send(&one(b"unmarked"), None).unwrap();
        raw.send_to(b"marked", to.local_addr().unwrap()).unwrap();
        let came = arrived(&mut to, 14);
        assert_eq!(
            came.iter().map(|train| train.is_marked).collect::<Vec<_>>(),
            [Some(false), Some(true)],
            "{at}"
        );
    }
}

#[test]
fn ecn_marks_of_ipv4_are_reported_by_a_dual_stack_socket() {
    if loopbacks().len() < 2 {
        return;
    }
    let (mut to, address) = bound((Ipv6Addr::UNSPECIFIED, 0).into(), CONFIG);
    let raw = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    rustix::net::sockopt::set_ip_tos(&raw, 3).unwrap();
    raw.send_to(b"marked", (Ipv4Addr::LOCALHOST, address.port())).unwrap();
    assert_eq!(arrived(&mut to, 6)[0].is_marked, Some(true));
}

/// Tests that packets carry ECT(0) with IPv4, with IPv6, and from IPv6 to IPv4. If ECN is off, they
/// must carry no mark.
#[test]
fn packets_carry_ect_0_only_if_ecn_is_enabled() {
    let v4: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let mut ways: Vec<_> = loopbacks().into_iter().map(|at| (at, at)).collect();
    if ways.len() == 2 {
        ways.push(((Ipv6Addr::UNSPECIFIED, 0).into(), v4));
    }
    for ((at, to), ecn) in ways.into_iter().flat_map(|way| [(way, true), (way, false)]) {
        let raw = UdpSocket::bind(to).unwrap();
        raw.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        if to.is_ipv4() {
            rustix::net::sockopt::set_ip_recvtos(&raw, true).unwrap();
        } else {
            rustix::net::sockopt::set_ipv6_recvtclass(&raw, true).unwrap();
        }
        let (mut from, _) = bound(at, SocketConfig { ecn, ..CONFIG });
        from.connect(raw.local_addr().unwrap()).unwrap();
        from.send(&[Train { bytes: b"two", segment: 2 }], None).unwrap();
        let mut control = vec![0; 128];
        let mut bytes = [0; 10];
        let mut into = [std::io::IoSliceMut::new(&mut bytes)];
        let message =
            recvmsg::<()>(raw.as_raw_fd(), &mut into, Some(&mut control), MsgFlags::empty()).unwrap();
        let seen = message.cmsgs().unwrap().find_map(|said| match said {
            ControlMessageOwned::Ipv4Tos(tos) => Some(i32::from(tos)),
            ControlMessageOwned::Ipv6TClass(class) => Some(class),
            _ => None,
        });
        assert_eq!(seen, Some(if ecn { 2 } else { 0 }), "{at} to {to}");
    }
}

#[test]
fn arrival_times_are_current() {
    for at in loopbacks() {
        let (mut from, mut to) = pair(at, CONFIG);
        let before = SystemTime::now();
        from.send(&one(b"now"), None).unwrap();
        let came = arrived(&mut to, 3)[0].at.unwrap();
        // The kernel's clock for timestamps and the clock that this test reads may differ by a
        // tick.
        let slack = Duration::from_millis(10);
        assert!(before - slack <= came && came <= SystemTime::now() + slack, "{before:?} {came:?}");
    }
}
