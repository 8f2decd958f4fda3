//! What a host refuses, and what it accepts.

use std::fs;
use std::net::UdpSocket;
use std::sync::atomic::AtomicBool;

use barograph_transfer::files::{DestinationConfig, SkippedPath};
use barograph_transfer::io::identity::{AuthToken, Identity, Trust};
use barograph_transfer::io::{
    ReceiveConfig, ReceiveServer, ReceiverEndpoint, SendConfig, SessionError, TransferEvent, send,
};
use barograph_transfer::testkit::io::control::{Connector, ControlError, Message, RefuseReason};
use tempfile::tempdir;

use super::common::*;

fn reason(error: SessionError) -> (RefuseReason, String) {
    match error {
        SessionError::Refused { reason, text } => (reason, text),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sender_with_a_wrong_receiver_address_sends_nothing() {
    let (from, into) = (tempdir().unwrap(), tempdir().unwrap());
    let path = from.path().join("file");
    fs::write(&path, "secret").unwrap();
    let served = Served::new(config(into.path()), false);
    let ReceiverEndpoint::Address(mut line) = served.to() else { panic!("it has an address") };
    line.token = AuthToken([1; 16]);
    assert_eq!(
        reason(sent(to_send(&path, ReceiverEndpoint::Address(line.clone()))).unwrap_err()).0,
        RefuseReason::NotAllowed
    );
    line.fingerprint.0[0] ^= 1;
    let other = sent(to_send(&path, ReceiverEndpoint::Address(line))).unwrap_err();
    assert!(matches!(&other, SessionError::Control(_)), "{other:?}");
    assert_eq!(fs::read_dir(into.path()).unwrap().count(), 0);
}

#[test]
fn existing_files_and_exceeded_quotas_are_refused_with_a_reason() {
    let ([_from, into], path) = file_to_send(&noise(1, 5000));
    fs::write(into.path().join("file"), "mine").unwrap();
    let served = Served::new(config(into.path()), false);
    let (why, text) = reason(sent(to_send(&path, served.to())).unwrap_err());
    assert_eq!(why, RefuseReason::Exists);
    assert!(text.contains("file\" exists already"), "{text}");
    assert!(matches!(served.ended(), Err(SessionError::File(_))));
    assert_eq!(fs::read(into.path().join("file")).unwrap(), b"mine");

    let destination = DestinationConfig { bytes_max: 4999, ..DestinationConfig::default() };
    let served = Served::new(ReceiveConfig { destination, ..config(into.path()) }, false);
    let (why, text) = reason(sent(to_send(&path, served.to())).unwrap_err());
    assert_eq!(
        (why, text.as_str()),
        (
            RefuseReason::Quota,
            "too many bytes: 5000 offered, 4999 allowed; send less, or raise the limit at the receiver"
        )
    );
    assert_eq!(fs::read_dir(into.path()).unwrap().count(), 1);
}

#[test]
fn a_receiver_with_a_low_entry_limit_reads_no_long_manifest() {
    let into = tempdir().unwrap();
    for (entries_max, is_short) in [(1, true), (1 << 20, false)] {
        let destination = DestinationConfig { entries_max, ..DestinationConfig::default() };
        let served = Served::new(ReceiveConfig { destination, ..config(into.path()) }, false);
        let ReceiverEndpoint::Address(line) = served.to() else { panic!("it has an address") };
        let connector = Connector::to_address(&line, "test");
        let never = AtomicBool::new(false);
        let mut connected = connector.connect(&line.host, line.port, &never).unwrap();
        let told = connected.manifest_bytes_max;
        assert_eq!(told < 17 << 20, is_short, "{told} bytes");
        // The host must refuse this offer only because of its length.
        connected.channel.send(&offer(vec![0; 17 << 20])).unwrap();
        let ended = connected.channel.wait(&never);
        assert!(
            matches!(ended, Err(ControlError::Refused { reason: RefuseReason::Protocol, .. })),
            "{ended:?}"
        );
        let ended = served.ended();
        let is_frame = matches!(&ended, Err(SessionError::Control(ControlError::Frame(_))));
        assert_eq!(is_frame, is_short, "{ended:?}");
    }
}

#[test]
fn fifos_are_skipped_with_a_notice() {
    let (from, into) = (tempdir().unwrap(), tempdir().unwrap());
    let root = from.path().join("tree");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("file"), "here").unwrap();
    let made = std::process::Command::new("mkfifo").arg(root.join("fifo")).status().unwrap();
    assert!(made.success());
    let served = Served::new(config(into.path()), true);
    let mut notices = vec![];
    send(to_send(&root, served.to()), &false.into(), &mut |event| {
        if let TransferEvent::Notice(notice) = event {
            notices.push(notice);
        }
    })
    .unwrap();
    assert!(
        matches!(&notices[..], [SkippedPath::Special(path, "a FIFO")] if path.ends_with("fifo")),
        "{notices:?}"
    );
    assert_eq!(fs::read_dir(into.path().join("tree")).unwrap().count(), 1);
}

#[test]
fn a_file_arrives_whether_or_not_the_receiver_allows_unencrypted_datagrams() {
    for clear in [true, false] {
        let ([_from, into], path) = file_to_send(&noise(2, 1 << 20));
        let served = Served::new(ReceiveConfig { allow_unencrypted: clear, ..config(into.path()) }, true);
        sent(SendConfig { allow_unencrypted: true, ..to_send(&path, served.to()) }).unwrap();
        assert!(fs::read(into.path().join("file")).unwrap() == fs::read(&path).unwrap());
    }
}

#[test]
fn a_sender_with_a_certificate_needs_no_receiver_address() {
    let ([_from, into], path) = file_to_send(&noise(3, 100_000));
    let (ours, theirs) = (Identity::fresh().unwrap(), Identity::fresh().unwrap());
    let pin = Trust::Pinned(vec![theirs.fingerprint()]);
    let trust = Some(Trust::Pinned(vec![ours.fingerprint()]));
    let served = Served::new(ReceiveConfig { identity: Some(theirs), trust, ..config(into.path()) }, false);
    let to = || ReceiverEndpoint::Trusted {
        host: "127.0.0.1".into(),
        port: served.host.local_addr().port(),
        trust: pin.clone(),
    };
    let stranger = Some(Identity::fresh().unwrap());
    for identity in [None, stranger] {
        let error = sent(SendConfig { identity, ..to_send(&path, to()) }).unwrap_err();
        assert!(matches!(&error, SessionError::Refused { .. } | SessionError::Control(_)), "{error:?}");
    }
    sent(SendConfig { identity: Some(ours), ..to_send(&path, to()) }).unwrap();
    assert!(fs::read(into.path().join("file")).unwrap() == fs::read(&path).unwrap());
}

#[test]
fn the_same_identity_and_token_make_the_same_receiver_address() {
    let into = tempdir().unwrap();
    let identity = Identity::fresh().unwrap();
    let token = Some(AuthToken([3; 16]));
    let line = || {
        let config = ReceiveConfig { identity: Some(identity.clone()), token, ..config(into.path()) };
        let line = ReceiveServer::bind(config).unwrap().receiver_address("host");
        (line.fingerprint, line.token)
    };
    assert_eq!(line(), line());
}

#[test]
fn datagrams_arrive_at_the_configured_udp_ports() {
    let (from, into) = (tempdir().unwrap(), tempdir().unwrap());
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let served = Served::new(ReceiveConfig { udp_ports: Some(port..=port), ..config(into.path()) }, false);
    let stop = AtomicBool::new(false);
    let ask = |bytes| {
        let mut channel = connect(&served);
        channel.send(&offer(manifest(bytes))).unwrap();
        let told = channel.wait(&stop);
        (channel, told)
    };
    let (first, told) = ask(1000);
    assert!(matches!(told, Ok(Message::Accept { port: found, .. }) if found == port), "{told:?}");
    let (_, told) = ask(2000);
    assert!(
        matches!(&told, Err(ControlError::Refused { text, .. }) if text.contains("a UDP port")),
        "one transfer a port: {told:?}"
    );
    assert!(served.ended().is_err());
    drop(first);
    assert!(served.ended().is_err());
    let path = from.path().join("file");
    fs::write(&path, noise(4, 100_000)).unwrap();
    sent(to_send(&path, served.to())).unwrap();
}
