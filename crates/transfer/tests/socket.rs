//! Datagrams over the loopback, and what the kernel tells of them.
#![cfg(feature = "io")]

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use barograph_transfer::io::socket::{Inbox, Socket, SocketConfig, Train};

const CONFIG: SocketConfig = SocketConfig { buffer_bytes: 1 << 20, trains: true, ecn: true };

fn v4() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn pair(at: SocketAddr, config: SocketConfig) -> (Socket, Socket) {
    let to = Socket::bind(at, config).unwrap();
    let mut from = Socket::bind(at, config).unwrap();
    from.connect(to.local_addr().unwrap()).unwrap();
    (from, to)
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// Waits for so many bytes, for at most 5 s.
fn arrived(socket: &mut Socket, length: usize) -> Vec<(Vec<u8>, usize)> {
    let mut inbox = Inbox::new(8);
    let (mut trains, mut sum) = (Vec::new(), 0);
    let end = Instant::now() + Duration::from_secs(5);
    while sum < length && Instant::now() < end {
        match socket.receive(&mut inbox) {
            Ok(_) => {
                for train in inbox.received() {
                    sum += train.bytes.len();
                    trains.push((train.bytes.to_vec(), train.segment));
                }
            }
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                socket.wait(false, Duration::from_millis(50)).unwrap();
            }
        }
    }
    trains
}

#[test]
fn a_train_arrives_whole() {
    let (mut from, mut to) = pair(v4(), CONFIG);
    let sent = bytes(40 * 1472 + 300);
    assert_eq!(from.send(&[Train { bytes: &sent, segment: 1472 }], None).unwrap(), 1);
    let came = arrived(&mut to, sent.len());
    assert!(came.iter().all(|(_, segment)| *segment == 1472 || came.len() > 1), "{:?}", came.len());
    assert_eq!(came.concat_bytes(), sent);
}

trait Concat {
    fn concat_bytes(&self) -> Vec<u8>;
}

impl Concat for Vec<(Vec<u8>, usize)> {
    fn concat_bytes(&self) -> Vec<u8> {
        self.iter().flat_map(|(bytes, _)| bytes.clone()).collect()
    }
}
