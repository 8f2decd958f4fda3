//! Peers that break the protocol, or vanish.

use std::fs;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use barograph_transfer::files::FileError;
use barograph_transfer::io::{SessionError, TransferEvent};
use barograph_transfer::testkit::files::{EntryKind, Manifest, ManifestEntry, Modified};
use barograph_transfer::testkit::io::control::{Channel, ControlError, Message, RefuseReason};
use barograph_transfer::testkit::io::flow::FlowError;
use tempfile::tempdir;

use super::common::*;

#[test]
fn a_wrong_digest_leaves_no_file_and_the_transfer_can_be_retried() {
    let into = tempdir().unwrap();
    let served = Served::new(config(into.path()), false);
    let (stop, manifest) = (AtomicBool::new(false), manifest(0));
    let mut digest = *blake3::hash(b"").as_bytes();
    for is_right in [false, true] {
        digest[0] ^= 1;
        let digest = if is_right { *blake3::hash(b"").as_bytes() } else { digest };
        let mut channel = connect(&served);
        channel.send(&offer(manifest.clone())).unwrap();
        assert!(matches!(channel.wait(&stop), Ok(Message::Accept { .. })));
        channel.send(&Message::Digests(vec![digest])).unwrap();
        match channel.wait(&stop) {
            Ok(Message::Done) => {
                assert!(is_right);
                channel.close();
            }
            Err(ControlError::Refused { reason: RefuseReason::Digest, .. }) => assert!(!is_right),
            other => panic!("{other:?}"),
        }
        let ended = served.ended();
        assert_eq!(ended.is_ok(), is_right, "{ended:?}");
        assert_eq!(into.path().join("file").exists(), is_right);
    }
}

#[test]
fn a_sender_with_a_too_small_datagram_limit_is_refused() {
    let into = tempdir().unwrap();
    let served = Served::new(config(into.path()), false);
    // The header, the longest feedback with one run, and the seal have 118 bytes together.
    for (bytes, is_taken) in [(1, false), (117, false), (118, true)] {
        let mut channel = connect(&served);
        let Message::Offer { id, manifest, suites, .. } = offer(manifest(1000)) else { panic!() };
        channel.send(&Message::Offer { id, manifest, suites, datagram_bytes_max: bytes }).unwrap();
        match channel.wait(&AtomicBool::new(false)) {
            Ok(Message::Accept { .. }) => assert!(is_taken),
            Err(ControlError::Refused { reason: RefuseReason::Protocol, .. }) => assert!(!is_taken),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_sender_that_disconnects_before_done_receives_done_on_reconnection() {
    let into = tempdir().unwrap();
    let served = Served::new(config(into.path()), false);
    let (stop, manifest) = (AtomicBool::new(false), manifest(0));
    let file = into.path().join("file");
    let digests = Message::Digests(vec![*blake3::hash(b"").as_bytes()]);
    let entries = || fs::read_dir(into.path()).unwrap().count();
    let begin = || {
        let mut channel = connect(&served);
        channel.send(&offer(manifest.clone())).unwrap();
        assert!(matches!(channel.wait(&stop), Ok(Message::Accept { .. })));
        channel.send(&digests).unwrap();
        channel
    };
    // The sender stops without a message as soon as the file exists, before or after `Done` was
    // sent.
    let dying = begin();
    let mut looks = 0..TEST_TIMEOUT.as_millis();
    while !file.exists() && looks.next().is_some() {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    drop(dying);
    let _ = served.ended();
    assert_eq!((file.exists(), entries()), (true, 2), "the file, and what is known of it");

    for is_there in [true, false] {
        if !is_there {
            fs::remove_file(&file).unwrap();
        }
        let mut channel = begin();
        assert!(matches!(channel.wait(&stop), Ok(Message::Done)));
        channel.close();
        served.ended().unwrap();
        assert_eq!((file.exists(), entries()), (true, 1), "the file alone");
    }
}

#[test]
fn more_digests_than_files_are_refused() {
    let into = tempdir().unwrap();
    let served = Served::new(config(into.path()), false);
    let stop = AtomicBool::new(false);
    let mut channel = connect(&served);
    channel.send(&offer(manifest(0))).unwrap();
    assert!(matches!(channel.wait(&stop), Ok(Message::Accept { .. })));
    channel.send(&Message::Digests(vec![*blake3::hash(b"").as_bytes(); 2])).unwrap();
    let told = channel.wait(&stop);
    assert!(matches!(&told, Err(ControlError::Refused { .. })), "{told:?}");
    let ended = served.ended();
    assert!(matches!(ended, Err(SessionError::File(FileError::Digests(2, 1)))), "{ended:?}");
    assert!(!into.path().join("file").exists());
}

#[test]
fn digests_before_the_bytes_are_refused() {
    let into = tempdir().unwrap();
    let served = Served::new(config(into.path()), false);
    let mut channel = connect(&served);
    channel.send(&offer(manifest(5000))).unwrap();
    let stop = AtomicBool::new(false);
    assert!(matches!(channel.wait(&stop), Ok(Message::Accept { .. })));
    channel.send(&Message::Digests(vec![[0; 32]])).unwrap();
    let told = channel.wait(&stop);
    assert!(matches!(&told, Err(ControlError::Refused { reason: RefuseReason::Protocol, .. })), "{told:?}");
    assert!(matches!(served.ended(), Err(SessionError::Protocol(_))));
}

#[test]
fn an_invalid_manifest_is_refused() {
    let into = tempdir().unwrap();
    let served = Served::new(config(into.path()), false);
    let mut cut = manifest(5000);
    cut.pop();
    let mut channel = connect(&served);
    channel.send(&offer(cut)).unwrap();
    let told = channel.wait(&AtomicBool::new(false));
    assert!(matches!(&told, Err(ControlError::Refused { reason: RefuseReason::Protocol, .. })), "{told:?}");
    assert!(matches!(served.ended(), Err(SessionError::File(FileError::Manifest(_)))));
}

#[test]
fn the_session_ends_if_the_sender_disconnects_or_falls_silent() {
    let into = tempdir().unwrap();
    let served = Served::new(config(into.path()), false);
    let mut gone = connect(&served);
    gone.send(&offer(manifest(5000))).unwrap();
    assert!(matches!(gone.wait(&AtomicBool::new(false)), Ok(Message::Accept { .. })));
    drop(gone);
    assert!(matches!(served.ended(), Err(SessionError::ConnectionLost(_))));

    // The sender neither reads nor pings. The host ends the session after about 26 s, and then its
    // session slot is free again.
    let mut silent = connect(&served);
    silent.send(&offer(manifest(6000))).unwrap();
    assert!(matches!(silent.wait(&AtomicBool::new(false)), Ok(Message::Accept { .. })));
    let ended = served.ended();
    assert!(matches!(&ended, Err(SessionError::ConnectionLost(ControlError::Timeout { .. }))), "{ended:?}");
}

/// Size in bytes of a sparse file. A receiver that reads all bytes of this file needs hours, even
/// if the whole file is a hole.
const SPARSE_BYTES: u64 = 4 << 40;

/// Returns a receiver that compares its file with a file of these extents, and the sender's
/// connection. The receiver's file is one hole.
fn comparing(
    extents: Option<Vec<std::ops::Range<u64>>>,
) -> (tempfile::TempDir, ManuallyDrop<Served>, Channel) {
    let into = tempdir().unwrap();
    fs::File::create(into.path().join("file")).unwrap().set_len(SPARSE_BYTES).unwrap();
    let (verifying, verifies) = mpsc::channel();
    // Do not join the host's thread if the test fails: the thread may read for hours.
    let served = ManuallyDrop::new(Served::watched(config(into.path()), false, move |event| {
        if matches!(event, TransferEvent::Verifying) {
            verifying.send(()).unwrap();
        }
    }));
    let entry = ManifestEntry {
        path: b"file".to_vec(),
        kind: EntryKind::File { size: SPARSE_BYTES, extents },
        mode: 0o644,
        modified: Modified::default(),
    };
    let mut channel = connect(&served);
    channel.send(&offer(Manifest::new(vec![entry]).unwrap().encode())).unwrap();
    let told = channel.wait(&AtomicBool::new(false));
    assert!(matches!(told, Ok(Message::Accept { .. })), "{told:?}");
    channel.send(&Message::Digests(vec![*blake3::hash(b"").as_bytes()])).unwrap();
    channel.flush(&AtomicBool::new(false)).unwrap();
    verifies.recv_timeout(TEST_TIMEOUT).unwrap();
    (into, served, channel)
}

#[test]
fn holes_of_an_existing_file_are_not_read() {
    let (_into, served, mut channel) = comparing(Some(vec![]));
    let (told, tells) = mpsc::channel();
    std::thread::spawn(move || {
        told.send(channel.wait(&AtomicBool::new(false))).unwrap();
        channel.close();
    });
    let told = tells.recv_timeout(TEST_TIMEOUT).expect("the hole is read");
    assert!(matches!(told, Ok(Message::Done)), "{told:?}");
    assert!(served.ended().is_ok());
    drop(ManuallyDrop::into_inner(served));
}

#[test]
fn comparing_an_existing_file_ends_when_the_sender_disconnects() {
    let (_into, served, channel) = comparing(None);
    drop(channel);
    let ended = served.ended();
    assert!(matches!(ended, Err(SessionError::ConnectionLost(_))), "{ended:?}");
    drop(ManuallyDrop::into_inner(served));
}

#[test]
fn a_receiver_that_compares_files_can_be_stopped() {
    let (_into, served, channel) = comparing(None);
    served.stop.store(true, Ordering::Relaxed);
    let ended = served.ended();
    assert!(matches!(ended, Err(SessionError::Flow(FlowError::Stopped))), "{ended:?}");
    drop(channel);
    ManuallyDrop::into_inner(served).join();
}
