//! Tests that a torn journal still records what is durable.

#![allow(clippy::single_range_in_vec_init)]

use std::os::fd::AsFd;

use proptest::prelude::*;
use rangemap::RangeSet;
use tempfile::tempdir;

use crate::files::kept::ITEMS_MAX;

use super::*;

const DIGEST: [u8; 32] = [9; 32];
const OBJECT_BYTES: u64 = 1 << 30;

fn any_record() -> impl Strategy<Value = Record> {
    let range = (0..OBJECT_BYTES - 1000, 1u64..1000).prop_map(|(start, bytes)| start..start + bytes);
    let node = (0u64..9, 0u8..9, 0u64..99, any::<[u8; 32]>()).prop_map(|(entry, level, index, value)| Node {
        entry,
        level,
        index,
        value,
    });
    prop_oneof![
        4 => prop::collection::vec(range, 1..9).prop_map(Record::Held),
        2 => prop::collection::vec(node, 1..4).prop_map(Record::Nodes),
        1 => prop::collection::vec(0u64..1 << 20, 0..4).prop_map(Record::Placing),
    ]
}

fn add(kept: &mut Kept, record: &Record) {
    match record {
        Record::Held(ranges) => kept.held.extend(ranges.iter().cloned()),
        Record::Nodes(nodes) => kept.nodes.extend(nodes.iter().cloned()),
        Record::Placing(made) => kept.placing = Some(made.clone()),
    }
}

proptest! {
    #[test]
    fn whole_records_count_and_no_others(
        records in prop::collection::vec(any_record(), 0..12),
        cut in any::<prop::sample::Index>(),
        flip in prop::option::of((any::<prop::sample::Index>(), 1u8..)),
        behind in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = Kept::head(ID, &DIGEST);
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
        let mut expected = Kept::default();
        records[..whole].iter().for_each(|record| add(&mut expected, record));
        let (kept, length, _) = Kept::read(&bytes, ID, &DIGEST, OBJECT_BYTES).unwrap();
        prop_assert_eq!((&kept, length), (&expected, ends[whole]));
        // The rewritten journal has the same contents.
        let mut anew = Kept::head(ID, &DIGEST);
        let mut last = *anew.last_chunk().unwrap();
        for record in kept.records() {
            last = record.put(&mut anew, &last);
        }
        let again = Kept::read(&anew, ID, &DIGEST, OBJECT_BYTES).unwrap();
        prop_assert_eq!((again.0, again.1, again.2), (kept, anew.len(), last));
    }

    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        crate::testkit::fuzz::fuzz_journal(&bytes);
    }
}

#[test]
fn what_is_beyond_the_object_or_of_another_is_not_held() {
    let mut bytes = Kept::head(ID, &DIGEST);
    let last = *bytes.last_chunk().unwrap();
    Record::Held(vec![0..10, 5..OBJECT_BYTES + 1]).put(&mut bytes, &last);
    assert_eq!(Kept::read(&bytes, ID, &DIGEST, OBJECT_BYTES).unwrap().0, Kept::default());
    assert_eq!(Kept::read(&bytes, TransferId([8; 16]), &DIGEST, OBJECT_BYTES), None);
    assert_eq!(Kept::read(&bytes, ID, &[8; 32], OBJECT_BYTES), None);
    assert_eq!(Kept::read(&[], ID, &DIGEST, OBJECT_BYTES), None);
}

#[test]
fn it_goes_on_behind_a_torn_record_and_is_kept_short() {
    let root = tempdir().unwrap();
    let directory = fs::File::open(root.path()).unwrap();
    let open = || Journal::open(directory.as_fd(), root.path(), ID, &DIGEST, OBJECT_BYTES).unwrap();
    let path = root.path().join("journal");
    let held = |kept: &Kept| kept.held.iter().cloned().collect::<Vec<_>>();
    let (mut journal, kept) = open();
    assert_eq!(kept, Kept::default());
    journal.append(&[Record::Held(vec![0..10])]).unwrap();
    journal.append(&[Record::Held(vec![20..30])]).unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len() as u64, journal.bytes());
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let (mut journal, kept) = open();
    assert_eq!(held(&kept), [0..10]);
    // The new record is shorter than the torn one: no remaining bytes of the torn record may be
    // read.
    journal.append(&[Record::Held(vec![])]).unwrap();
    journal.append(&[Record::Held(vec![40..50])]).unwrap();
    assert_eq!(held(&open().1), [0..10, 40..50]);

    let ranges: Vec<_> = (0..1000).map(|index| index * 100..index * 100 + 50).collect();
    while !journal.is_long() {
        journal.append(&[Record::Held(ranges.clone())]).unwrap();
    }
    let kept = open().1;
    journal.replace(&kept).unwrap();
    assert!(journal.bytes() < 20_000 && !journal.is_long());
    journal.append(&[Record::Held(vec![1 << 29..(1 << 29) + 1])]).unwrap();
    let mut expected: RangeSet<u64> = kept.held;
    expected.insert(1 << 29..(1 << 29) + 1);
    assert_eq!(open().1.held, expected);
}

#[test]
fn a_hundred_thousand_ranges_are_kept_in_few_bytes() {
    let root = tempdir().unwrap();
    let directory = fs::File::open(root.path()).unwrap();
    let open = || Journal::open(directory.as_fd(), root.path(), ID, &DIGEST, OBJECT_BYTES).unwrap();
    // Ranges as a lossy path leaves them: every other packet.
    let ranges: Vec<_> = (0..100_000_u64).map(|index| index * 3000..index * 3000 + 1452).collect();
    let (mut journal, _) = open();
    for some in ranges.chunks(10_000) {
        let records: Vec<_> = some.chunks(ITEMS_MAX).map(|some| Record::Held(some.to_vec())).collect();
        journal.append(&records).unwrap();
    }
    // Each range has two varints, of 4 and of 2 bytes.
    assert!(journal.bytes() < 700_000, "{}", journal.bytes());
    let (mut journal, kept) = open();
    assert!(kept.held.iter().eq(&ranges));
    journal.replace(&kept).unwrap();
    assert!(journal.bytes() < 700_000 && open().1 == kept);
}

/// Writes the corpus of `fuzz_journal`, with valid checks. Run it by hand when records change.
#[test]
#[ignore = "writes the corpus"]
fn corpus() {
    let range = |start: u64| start..start + 100;
    let node = Node { entry: 3, level: 1, index: 2, value: [5; 32] };
    let lists: [(&str, Vec<Record>); 8] = [
        ("nothing", vec![]),
        ("held", vec![Record::Held(vec![range(0), range(500)]), Record::Held(vec![range(100)])]),
        ("nodes", vec![Record::Held(vec![range(0)]), Record::Nodes(vec![node.clone(), node])]),
        ("placing", vec![Record::Held(vec![range(0)]), Record::Placing(vec![0, 70, 70_000])]),
        ("end", vec![Record::Held(vec![(1 << 20) - 100..1 << 20])]),
        ("beyond", vec![Record::Held(vec![(1 << 20) - 99..(1 << 20) + 1])]),
        ("empty-lists", vec![Record::Held(vec![]), Record::Nodes(vec![]), Record::Placing(vec![])]),
        ("torn", vec![Record::Held(vec![range(7)]), Record::Held(vec![range(9000)])]),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/journal");
    for (name, records) in lists {
        let head = Kept::head(TransferId([1; 16]), &[2; 32]);
        let (mut bytes, mut last) = (vec![], *head.last_chunk().unwrap());
        for record in records {
            last = record.put(&mut bytes, &last);
        }
        bytes.truncate(bytes.len() - usize::from(name == "torn"));
        fs::write(folder.join(name), bytes).unwrap();
    }
}
