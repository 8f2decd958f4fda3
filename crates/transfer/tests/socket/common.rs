//! Addresses and datagrams for tests with sockets.
#![allow(unreachable_pub, reason = "two tests use it")]

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use barograph_transfer::testkit::io::socket::{SocketConfig, Train};

pub const CONFIG: SocketConfig = SocketConfig { buffer_bytes: 1 << 20, trains: true, ecn: true };
pub const PLAIN: SocketConfig = SocketConfig { trains: false, ..CONFIG };

/// The loopback addresses that this host has.
pub fn loopbacks() -> Vec<SocketAddr> {
    let mut all = vec![(Ipv4Addr::LOCALHOST, 0).into()];
    match UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(_) => all.push((Ipv6Addr::LOCALHOST, 0).into()),
        Err(error) => barograph_sim::report_skipped(&format!("IPv6, for there is no ::1 ({error})")),
    }
    all
}

pub fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

pub fn one(bytes: &[u8]) -> [Train<'_>; 1] {
    [Train { bytes, segment: bytes.len() }]
}
