//! Transfers that nothing disturbs.

use std::fs;
use std::os::unix::fs::MetadataExt;

use barograph_transfer::files::{DestinationConfig, WalkConfig};
use barograph_transfer::io::{HostConfig, SendConfig};
use tempfile::tempdir;

use crate::common::*;

#[test]
fn a_tree_arrives_as_it_was() {
    let (from, into) = (tempdir().unwrap(), tempdir().unwrap());
    let root = from.path().join("tree");
    tree(&root);
    let destination = DestinationConfig { links: true, ..DestinationConfig::default() };
    let served = Served::new(HostConfig { destination, ..config(into.path()) }, true);
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
    assert_eq!(summary.seen.stats.acked_bytes, summary.bytes);
}
