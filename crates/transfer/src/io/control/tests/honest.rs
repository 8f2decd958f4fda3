//! Both ends as they should be.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::super::*;
use crate::io::identity::Identity;

pub(super) static GO: AtomicBool = AtomicBool::new(false);

pub(super) fn listener() -> Listener {
    let config = ListenerConfig {
        identity: Identity::fresh().unwrap(),
        token: Some(Token::random().unwrap()),
        trust: None,
        software: "receiver 1".into(),
        manifest_bytes_max: 1 << 27,
    };
    Listener::bind("127.0.0.1:0".parse().unwrap(), config).unwrap()
}

pub(super) fn pair() -> (Connected, Guest) {
    let listener = listener();
    let line = listener.line("127.0.0.1").unwrap();
    std::thread::scope(|scope| {
        let sender =
            scope.spawn(|| Connector::to_line(&line, "sender 1").connect(&line.host, line.port, &GO));
        let guest = listener.accept(Duration::from_secs(10)).unwrap().unwrap();
        (sender.join().unwrap().unwrap(), guest)
    })
}

#[test]
fn a_transfer_is_agreed_on_and_ends() {
    let (sender, guest) = pair();
    assert_eq!((&sender.software[..], &guest.software[..]), ("receiver 1", "sender 1"));
    assert!(guest.has_token && sender.manifest_bytes_max == 1 << 27);
    let (mut sender, mut receiver) = (sender.channel, guest.channel);
    let (ours, theirs) = (sender.secrets(7).unwrap(), receiver.secrets(7).unwrap());
    assert_eq!((ours.data, ours.feedback), (theirs.data, theirs.feedback));
    assert_ne!(ours.data, ours.feedback);
    assert_ne!(ours.data, sender.secrets(8).unwrap().data);
    let manifest = vec![5; 3 << 20];
    let offer =
        Message::Offer { id: [1; 16], manifest, suites: vec![Suite::Aes128Gcm], datagram_bytes_max: 1452 };
    sender.send(&offer).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.flush(&GO).unwrap());
        assert_eq!(receiver.wait(&GO).unwrap(), offer);
    });
    let accept = Message::Accept {
        transfer: 7,
        port: 9,
        suite: Suite::Aes128Gcm,
        datagram_bytes_max: 9000,
        held: vec![0..5, 7..9],
    };
    receiver.send(&accept).unwrap();
    assert_eq!(sender.wait(&GO).unwrap(), accept);
    receiver.send(&Message::Durable(1)).unwrap();
    assert_eq!(sender.wait(&GO).unwrap(), Message::Durable(1));
    sender.send(&Message::Digests(vec![[3; 32]])).unwrap();
    assert_eq!(receiver.wait(&GO).unwrap(), Message::Digests(vec![[3; 32]]));
    receiver.send(&Message::Done).unwrap();
    assert_eq!(sender.wait(&GO).unwrap(), Message::Done);
    let closing = std::thread::spawn(|| receiver.close());
    assert!(matches!(sender.receive(Duration::from_secs(5)), Err(ControlError::Closed)));
    sender.close();
    closing.join().unwrap();
}
