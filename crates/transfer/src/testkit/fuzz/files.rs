//! Fuzzers for input from a peer and from the disk.

use crate::files::{JournalState, Manifest, TransferId};

/// Decodes `data` as a manifest. An accepted manifest must encode to the same bytes, and its pieces
/// must cover its object.
pub fn fuzz_manifest(data: &[u8]) {
    let Ok(manifest) = Manifest::decode(data) else { return };
    assert_eq!(manifest.encode(), data, "one way to write it");
    assert!(manifest.entries().len() <= data.len() / 12, "memory in proportion");
    let mut end = 0;
    for piece in manifest.pieces(0..manifest.bytes()) {
        assert!(piece.object.start == end && end < piece.object.end, "{piece:?}");
        end = piece.object.end;
    }
    assert_eq!(end, manifest.bytes());
}

/// Reads `data` as the records of a journal. Held ranges must lie within the object, and the valid
/// part must give the same result when it is read again.
pub fn fuzz_journal(data: &[u8]) {
    let (id, digest) = (TransferId([1; 16]), [2; 32]);
    let bytes = [&JournalState::head(id, &digest)[..], data].concat();
    let Some((kept, length, _)) = JournalState::read(&bytes, id, &digest, 1 << 20) else {
        panic!("the head is good")
    };
    assert!(length <= bytes.len());
    assert!(kept.held.iter().all(|range| range.end <= 1 << 20));
    let again = JournalState::read(bytes.get(..length).unwrap_or(&[]), id, &digest, 1 << 20);
    assert_eq!(again.map(|(kept, length, _)| (kept, length)), Some((kept, length)));
}
