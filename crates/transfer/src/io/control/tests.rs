//! Two ends over the loopback interface.
#![allow(clippy::unwrap_used)]

mod bytes;
mod honest;
mod hostile;
mod slow;
mod trust;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::channel::Times;
use super::*;
use crate::io::identity::{Identity, Trust};

/// A stop flag that is never set.
static GO: AtomicBool = AtomicBool::new(false);

/// Longest wait for an expected event. The wait is long because the machine may be busy.
const SOON: Duration = Duration::from_secs(20);

fn config(trust: Option<Trust>) -> ListenerConfig {
    ListenerConfig {
        identity: Identity::fresh().unwrap(),
        token: AuthToken::random().unwrap(),
        trust,
        software: "receiver 1".into(),
        manifest_bytes_max: 1 << 27,
    }
}

fn listener() -> Listener {
    Listener::bind("127.0.0.1:0".parse().unwrap(), config(None)).unwrap()
}

/// Connects while the listener accepts, until the connector or the listener has a result.
fn connect(
    listener: &Listener,
    connector: &Connector,
) -> (Result<Connected, ControlError>, Option<AcceptedSender>) {
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| connector.connect("127.0.0.1", listener.local_addr().port(), &GO));
        let mut guest = None;
        while !sender.is_finished() && guest.is_none() {
            guest = listener.accept(Duration::from_millis(50)).unwrap();
        }
        (sender.join().unwrap(), guest)
    })
}

fn pair_of(listener: &Listener) -> (Connected, AcceptedSender) {
    let line = listener.receiver_address("127.0.0.1");
    let (sender, guest) = connect(listener, &Connector::to_address(&line, "sender 1"));
    let guest = guest.or_else(|| listener.accept(SOON).unwrap());
    (sender.unwrap(), guest.unwrap())
}

fn pair() -> (Connected, AcceptedSender) {
    pair_of(&listener())
}

/// Both ends, with short time limits.
fn hasty_pair(times: Times) -> (Channel, Channel) {
    let (sender, guest) = pair();
    let (mut sender, mut receiver) = (sender.channel, guest.channel);
    sender.set_times(times);
    receiver.set_times(times);
    (sender, receiver)
}

fn offer(manifest: Vec<u8>) -> Message {
    Message::Offer { id: [1; 16], manifest, suites: vec![Suite::Aes128Gcm], datagram_bytes_max: 1452 }
}

fn accept() -> Message {
    Message::Accept {
        transfer: 7,
        port: 9,
        suite: Suite::Aes128Gcm,
        datagram_bytes_max: 9000,
        held: vec![0..5, 7..9],
    }
}
