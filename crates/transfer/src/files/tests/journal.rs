//! Tests that a torn journal still records what is durable.

#![allow(clippy::single_range_in_vec_init)]

use std::os::fd::AsFd;

use proptest::prelude::*;
use rangemap::RangeSet;
use tempfile::tempdir;

use crate::files::journal_state::ITEMS_MAX;

use super::*;

const DIGEST: [u8; 32] = [9; 32];
const OBJECT_BYTES: u64 = 1 << 30;

fn any_record() -> impl Strategy<Value = JournalRecord> {
    let range = (0..OBJECT_BYTES - 1000, 1u64..1000).prop_map(|(start, bytes)| start..start + bytes);
    let node = (0u64..9, 0u8..9, 0u64..99, any::<[u8; 32]>())
        .prop_map(|(entry, level, index, value)| HashNode { entry, level, index, value });
    prop_oneof![
        4 => prop::collection::vec(range, 1..9).prop_map(JournalRecord::Held),
        2 => prop::collection::vec(node, 1..4).prop_map(JournalRecord::Nodes),
        1 => prop::collection::vec(0u64..1 << 20, 0..4).prop_map(JournalRecord::Renaming),
    ]
}

fn add(kept: &mut JournalState, record: &JournalRecord) {
    match record {
        JournalRecord::Held(ranges) => kept.held.extend(ranges.iter().cloned()),
        JournalRecord::Nodes(nodes) => kept.nodes.extend(nodes.iter().cloned()),
        JournalRecord::Renaming(made) => kept.renaming = Some(made.clone()),
    }
}

proptest! {
    #[test]
    fn only_complete_journal_records_are_read(
        records in prop::collection::vec(any_record(), 0..12),
        cut in any::<prop::sample::Index>(),
        flip in prop::option::of((any::<prop::sample::Index>(), 1u8..)),
        behind in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = JournalState::head(ID, &DIGEST);
        let head = bytes.len();
        let mut last = *bytes.last_chunk().unwrap();
        let mut ends = vec![head];
        for record in &records {
            last = record.put(&mut bytes, &last);
            ends.push(bytes.len());
        }
        // The journal is torn at any byte, a bit after the head is flipped, or other bytes follow.
        let original = bytes.clone();
        bytes.truncate(head + cut.index(bytes.len() - head + 1));
        if let Some((at, bits)) = flip && head < bytes.len() {
            let at = head + at.index(bytes.len() - head);
            bytes[at] ^= bits;
        }
        bytes.extend(behind);
        // The bytes that follow may be those that were torn off.
        let torn = original.iter().zip(&bytes).take_while(|(original, byte)| original == byte).count();
        let whole = ends.iter().filter(|end| **end <= torn).count() - 1;
        let mut expected = JournalState::default();
        records[..whole].iter().for_each(|record| add(&mut expected, record));
        let (kept, length, _) = JournalState::read(&bytes, ID, &DIGEST, OBJECT_BYTES).unwrap();
        prop_assert_eq!((&kept, length), (&expected, ends[whole]));
        // A rewrite of the journal keeps the contents.
        let mut anew = JournalState::head(ID, &DIGEST);
        let mut last = *anew.last_chunk().unwrap();
        for record in kept.records() {
            last = record.put(&mut anew, &last);
        }
        let again = JournalState::read(&anew, ID, &DIGEST, OBJECT_BYTES).unwrap();
        prop_assert_eq!((again.0, again.1, again.2), (kept, anew.len(), last));
    }

    #[test]
    fn reading_any_bytes_as_a_journal_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        crate::testkit::fuzz::fuzz_journal(&bytes);
    }
}

#[test]
fn journal_ranges_beyond_the_object_or_of_another_transfer_are_ignored() {
    let mut bytes = JournalState::head(ID, &DIGEST);
    let last = *bytes.last_chunk().unwrap();
    JournalRecord::Held(vec![0..10, 5..OBJECT_BYTES + 1]).put(&mut bytes, &last);
    assert_eq!(JournalState::read(&bytes, ID, &DIGEST, OBJECT_BYTES).unwrap().0, JournalState::default());
    assert_eq!(JournalState::read(&bytes, TransferId([8; 16]), &DIGEST, OBJECT_BYTES), None);
    assert_eq!(JournalState::read(&bytes, ID, &[8; 32], OBJECT_BYTES), None);
    assert_eq!(JournalState::read(&[], ID, &DIGEST, OBJECT_BYTES), None);
}

#[test]
fn the_journal_continues_after_a_torn_record_and_stays_short() {
    let root = tempdir().unwrap();
    let directory = fs::File::open(root.path()).unwrap();
    let open = || Journal::open(directory.as_fd(), root.path(), ID, &DIGEST, OBJECT_BYTES).unwrap();
    let path = root.path().join("journal");
    let held = |kept: &JournalState| kept.held.iter().cloned().collect::<Vec<_>>();
    let (mut journal, kept) = open();
    assert_eq!(kept, JournalState::default());
    journal.append(&[JournalRecord::Held(vec![0..10])]).unwrap();
    journal.append(&[JournalRecord::Held(vec![20..30])]).unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len() as u64, journal.bytes());
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let (mut journal, kept) = open();
    assert_eq!(held(&kept), [0..10]);
    // The new record is shorter than the torn one: no remaining bytes of the torn record may be
    // read.
    journal.append(&[JournalRecord::Held(vec![])]).unwrap();
    journal.append(&[JournalRecord::Held(vec![40..50])]).unwrap();
    assert_eq!(held(&open().1), [0..10, 40..50]);

    let ranges: Vec<_> = (0..1000).map(|index| index * 100..index * 100 + 50).collect();
    while !journal.is_long() {
        journal.append(&[JournalRecord::Held(ranges.clone())]).unwrap();
    }
    let kept = open().1;
    journal.replace(&kept).unwrap();
    assert!(journal.bytes() < 20_000 && !journal.is_long());
    journal.append(&[JournalRecord::Held(vec![1 << 29..(1 << 29) + 1])]).unwrap();
    let mut expected: RangeSet<u64> = kept.held;
    expected.insert(1 << 29..(1 << 29) + 1);
    assert_eq!(open().1.held, expected);
}

#[test]
fn a_hundred_thousand_ranges_are_kept_in_few_bytes() {
    let root = tempdir().unwrap();
    let directory = fs::File::open(root.path()).unwrap();
    let open = || Journal::open(directory.as_fd(), root.path(), ID, &DIGEST, OBJECT_BYTES).unwrap();
    // Ranges that a lossy path may produce: one packet received, the next packet missing.
    let ranges: Vec<_> = (0..100_000_u64).map(|index| index * 3000..index * 3000 + 1452).collect();
    let (mut journal, _) = open();
    for some in ranges.chunks(10_000) {
        let records: Vec<_> = some.chunks(ITEMS_MAX).map(|some| JournalRecord::Held(some.to_vec())).collect();
        journal.append(&records).unwrap();
    }
    // Each range has two varints, of 4 and of 2 bytes.
    assert!(journal.bytes() < 700_000, "{}", journal.bytes());
    let (mut journal, kept) = open();
    assert!(kept.held.iter().eq(&ranges));
    journal.replace(&kept).unwrap();
    assert!(journal.bytes() < 700_000 && open().1 == kept);
}

/// Writes the corpus of `fuzz_journal`, with valid checksums. Run this test by hand when records
/// change.
#[test]
#[ignore = "writes the corpus"]
fn corpus() {
    let range = |start: u64| start..start + 100;
    let node = HashNode { entry: 3, level: 1, index: 2, value: [5; 32] };
    let lists: [(&str, Vec<JournalRecord>); 8] = [
        ("nothing", vec![]),
        (
            "held",
            vec![JournalRecord::Held(vec![range(0), range(500)]), JournalRecord::Held(vec![range(100)])],
        ),
        ("nodes", vec![JournalRecord::Held(vec![range(0)]), JournalRecord::Nodes(vec![node.clone(), node])]),
        ("placing", vec![JournalRecord::Held(vec![range(0)]), JournalRecord::Renaming(vec![0, 70, 70_000])]),
        ("end", vec![JournalRecord::Held(vec![(1 << 20) - 100..1 << 20])]),
        ("beyond", vec![JournalRecord::Held(vec![(1 << 20) - 99..(1 << 20) + 1])]),
        (
            "empty-lists",
            vec![JournalRecord::Held(vec![]), JournalRecord::Nodes(vec![]), JournalRecord::Renaming(vec![])],
        ),
        ("torn", vec![JournalRecord::Held(vec![range(7)]), JournalRecord::Held(vec![range(9000)])]),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/journal");
    for (name, records) in lists {
        let head = JournalState::head(TransferId([1; 16]), &[2; 32]);
        let (mut bytes, mut last) = (vec![], *head.last_chunk().unwrap());
        for record in records {
            last = record.put(&mut bytes, &last);
        }
        bytes.truncate(bytes.len() - usize::from(name == "torn"));
        fs::write(folder.join(name), bytes).unwrap();
    }
}
