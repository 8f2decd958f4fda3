//! Two ends that follow the protocol.

use std::time::Duration;

use super::super::*;
use super::{GO, accept, offer, pair};

#[test]
fn sender_and_receiver_agree_on_a_transfer_and_close_the_connection() {
    let (sender, guest) = pair();
    assert_eq!((&sender.software[..], &guest.software[..]), ("receiver 1", "sender 1"));
    assert!(guest.has_token && sender.manifest_bytes_max == 1 << 27);
    let (mut sender, mut receiver) = (sender.channel, guest.channel);
    let (ours, theirs) = (sender.secrets(7).unwrap(), receiver.secrets(7).unwrap());
    assert_eq!((ours.data, ours.feedback), (theirs.data, theirs.feedback));
    assert_ne!(ours.data, ours.feedback);
    assert_ne!(ours.data, sender.secrets(8).unwrap().data);
    let offer = offer(vec![5; 3 << 20]);
    sender.send(&offer).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.flush(&GO).unwrap());
        assert_eq!(receiver.wait(&GO).unwrap(), offer);
    });
    let accept = accept();
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
