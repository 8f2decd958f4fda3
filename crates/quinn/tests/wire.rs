//! Wire format: the examples of the specification, what is refused, properties, and the corpus.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;

use barograph_quinn::fuzzing::fuzz_datagram;
use barograph_quinn::wire::{Datagram, RISES_MAX, Report, ReportedRise, WireError};
use proptest::prelude::*;

fn bytes(hex: &str) -> Vec<u8> {
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

fn two_rises() -> Report {
    let rises = vec![
        ReportedRise { from_us: 80_500, to_us: 500, bytes: 120_000 },
        ReportedRise { from_us: 180_500, to_us: 100_500, bytes: 65_536 },
    ];
    Report { number: 9, rises }
}

/// Examples of `docs/spec/quinn.md`.
#[test]
fn datagrams_equal_the_examples_of_the_specification() {
    assert_eq!(Datagram::Offer.encode(), bytes("42 47 51 4c 01 01 00 00"));
    let none = Datagram::Report(Report::default());
    assert_eq!(none.encode(), bytes("42 47 51 4c 01 02 00 00  00 00 00 00"));
    let expected = bytes(
        "42 47 51 4c 01 02 00 00  00 00 00 09
         00 01 3a 74 00 00 01 f4 00 01 d4 c0
         00 02 c1 14 00 01 88 94 00 01 00 00",
    );
    assert_eq!(Datagram::Report(two_rises()).encode(), expected);
    assert_eq!(Datagram::decode(&expected), Ok(Datagram::Report(two_rises())));
}

#[test]
fn datagrams_that_break_a_rule_are_refused() {
    let report = Datagram::Report(two_rises()).encode();
    let changed = |at: usize, to: u8| {
        let mut datagram = report.clone();
        datagram[at] = to;
        Datagram::decode(&datagram)
    };
    assert_eq!(changed(0, b'X'), Err(WireError::Foreign));
    assert_eq!(Datagram::decode(b"BGQL"), Err(WireError::Foreign));
    assert_eq!(changed(4, 2), Err(WireError::Version(2)));
    assert_eq!(changed(5, 3), Err(WireError::Kind(3)));
    assert_eq!(changed(5, 1), Err(WireError::Length(36)));
    assert_eq!(changed(7, 1), Err(WireError::Reserved));
    assert_eq!(changed(11, 1), Err(WireError::Rises { number: 1, rises: 2 }));
    assert_eq!(changed(11, 0), Err(WireError::Rises { number: 0, rises: 2 }));
    assert!(matches!(changed(16, 1), Err(WireError::Rise { .. })), "it ends before it begins");
    assert!(matches!(changed(12, 4), Err(WireError::Rise { .. })), "it is 67 s old");
    assert_eq!(Datagram::decode(&report[..35]), Err(WireError::Length(35)));
    assert_eq!(Datagram::decode(&report[..11]), Err(WireError::Length(11)));
    let long = [report.clone(), vec![0; 12 * (RISES_MAX - 1)]].concat();
    assert_eq!(Datagram::decode(&long), Err(WireError::Length(long.len())));
}

/// The corpus has one example of each datagram, and some that are refused.
#[test]
fn the_datagram_corpus_replays_without_panics() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/datagram");
    let mut replayed = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        fuzz_datagram(&fs::read(entry.unwrap().path()).unwrap());
        replayed += 1;
    }
    assert!(replayed >= 6, "only {replayed} files in the corpus");
}

proptest! {
    #[test]
    fn reports_decode_to_what_was_encoded(
        more in 0..1000_u32,
        rises in prop::collection::vec((0..=60_000_000_u32, 0..=60_000_000_u32, 1..=u32::MAX), 1..=RISES_MAX),
    ) {
        let rises: Vec<_> = rises
            .into_iter()
            .map(|(one, other, bytes)| ReportedRise { from_us: one.max(other), to_us: one.min(other), bytes })
            .collect();
        let report = Datagram::Report(Report { number: rises.len() as u32 + more, rises });
        prop_assert_eq!(Datagram::decode(&report.encode()), Ok(report));
    }

    #[test]
    fn random_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        fuzz_datagram(&bytes);
    }

    /// Random bytes rarely pass the first check. These are valid but for one byte.
    #[test]
    fn a_report_with_one_changed_byte_causes_no_panic(at in 0..36_usize, to: u8) {
        let mut datagram = Datagram::Report(two_rises()).encode();
        datagram[at] = to;
        fuzz_datagram(&datagram);
    }
}
