//! Transfers without interruptions and errors.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;

use barograph_transfer::files::{DestinationConfig, WalkConfig};
use barograph_transfer::io::RefuseReason;
use barograph_transfer::io::{ReceiveConfig, ReceiverEndpoint, SendConfig, SessionError};
use tempfile::tempdir;

use super::common::*;

#[test]
fn a_received_tree_equals_the_sent_tree() {
    let (from, into) = (tempdir().unwrap(), tempdir().unwrap());
    let root = from.path().join("tree");
    tree(&root);
    let destination = DestinationConfig { links: true, ..DestinationConfig::default() };
    let served = Served::new(ReceiveConfig { destination, ..config(into.path()) }, true);
    let walk = WalkConfig { links: true, ..WalkConfig::default() };
    let summary = sent(SendConfig { walk, ..to_send(&root, served.to()) }).unwrap();
    let taken = served.ended().unwrap();
    served.join();
    assert!(listing(&into.path().join("tree")) == listing(&root));
    assert_eq!(listing(into.path()).len(), listing(from.path()).len(), "and nothing else is left");
    let sparse = fs::metadata(into.path().join("tree/sparse")).unwrap();
    assert!(sparse.blocks() * 512 < 1 << 20, "holes stay holes");
    assert_eq!((summary.files, summary.bytes), (taken.files, taken.bytes));
    assert_eq!((summary.files, summary.held_bytes), (46, 0));
    assert_eq!(summary.progress.stats.acked_bytes, summary.bytes);
}

#[test]
fn existing_files_are_compared_and_not_sent_again() {
    let (from, into) = (tempdir().unwrap(), tempdir().unwrap());
    let root = from.path().join("tree");
    tree(&root);
    let again = || {
        let destination = DestinationConfig { links: true, ..DestinationConfig::default() };
        let served = Served::new(ReceiveConfig { destination, ..config(into.path()) }, false);
        let walk = WalkConfig { links: true, ..WalkConfig::default() };
        sent(SendConfig { walk, ..to_send(&root, served.to()) })
    };
    assert_eq!(again().unwrap().held_bytes, 0);
    let summary = again().unwrap();
    assert_eq!((summary.held_bytes, summary.progress.stats.acked_bytes), (summary.bytes, 0));
    assert_eq!(listing(into.path()).len(), listing(from.path()).len(), "and nothing else is left");
    // A file of the same length; a file that has data where it had a hole before; a file that is a
    // byte shorter.
    let changed = [("deep/er/large", Some(100)), ("sparse", Some(1 << 20)), ("deep/9", None)];
    for (name, at) in changed {
        let path = into.path().join("tree").join(name);
        let before = fs::read(&path).unwrap();
        let mut after = before.clone();
        match at {
            Some(at) => after[at] ^= 1,
            None => drop(after.pop()),
        }
        fs::write(&path, &after).unwrap();
        let refused = again().unwrap_err();
        assert!(
            matches!(&refused, SessionError::Refused { reason: RefuseReason::Exists, .. }),
            "{refused:?}"
        );
        assert!(fs::read(&path).unwrap() == after, "it stays as it is");
        fs::write(&path, &before).unwrap();
    }
    assert_eq!(again().unwrap().progress.stats.acked_bytes, 0);
}

#[test]
fn one_receiver_serves_senders_over_ipv4_and_ipv6() {
    let Ok(_) = TcpListener::bind("[::1]:0") else {
        barograph_sim::report_skipped("both families: this host has no IPv6");
        return;
    };
    let (from, into) = (tempdir().unwrap(), tempdir().unwrap());
    let at = SocketAddr::from(([0_u16; 8], 0));
    let served = Served::new(ReceiveConfig { at, ..config(into.path()) }, false);
    for (name, host) in [("four", "127.0.0.1"), ("six", "::1")] {
        let path = from.path().join(name);
        fs::write(&path, noise(name.len() as u64, 300_000)).unwrap();
        let summary =
            sent(to_send(&path, ReceiverEndpoint::Address(served.host.receiver_address(host)))).unwrap();
        assert_eq!(summary.peer.ip().to_string(), host);
        assert_eq!(served.ended().unwrap().peer.ip().to_canonical().to_string(), host);
    }
    assert!(listing(from.path()) == listing(into.path()));
}
