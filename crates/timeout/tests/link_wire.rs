//! Wire format: the examples of the specification, properties, and the corpus.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;

use barograph_timeout::link::SenderId;
use barograph_timeout::link::fuzzing::fuzz_wire;
use barograph_timeout::link::wire::{
    AckStatus, Acknowledgement, Assembler, CHUNK_BYTES, Header, Hello, Welcome, WireError,
};
use proptest::prelude::*;

/// Examples of `docs/spec/link.md`.
#[test]
fn frames_equal_the_examples_of_the_specification() {
    let bytes = |hex: &str| -> Vec<u8> {
        hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
    };
    let hello = Hello { sender: SenderId(*b"0123456789abcdef") };
    let expected = "42 47 4c 4b 01 00 00 00 30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66";
    assert_eq!(hello.encode()[..], bytes(expected));
    let welcome = Welcome::Ready { message_bytes_max: 67_108_864 };
    assert_eq!(welcome.encode()[..], bytes("42 47 4c 4b 01 00 00 00 04 00 00 00 00 00 00 00"));
    let header = Header { id: 9, length: 65_536 };
    assert_eq!(header.encode()[..], bytes("c1 00 00 00 00 01 00 00 00 00 00 00 00 00 00 09"));
    let acknowledgement = Acknowledgement { id: 9, status: AckStatus::Duplicate };
    assert_eq!(acknowledgement.encode()[..], bytes("c2 01 00 00 00 00 00 00 00 00 00 00 00 00 00 09"));
    let acknowledgement = Acknowledgement { id: 9, status: AckStatus::Waited };
    assert_eq!(acknowledgement.encode()[..], bytes("c2 03 00 00 00 00 00 00 00 00 00 00 00 00 00 09"));
}

/// Each frame has one invalid field, and the error names this field.
#[test]
fn undefined_frames_are_rejected() {
    fn changed<const N: usize>(mut frame: [u8; N], at: usize, to: u8) -> [u8; N] {
        frame[at] = to;
        frame
    }
    let hello = Hello { sender: SenderId([0; 16]) }.encode();
    assert!(matches!(Hello::decode(&changed(hello, 3, 0)), Err(WireError::Magic(_))));
    assert_eq!(Hello::decode(&changed(hello, 4, 2)), Err(WireError::Version(2)));
    assert_eq!(Hello::decode(&changed(hello, 7, 1)), Err(WireError::Reserved));
    let full = Welcome::Full.encode();
    assert_eq!(Welcome::decode(&changed(full, 5, 4)), Err(WireError::Undefined(4)));
    for reserved in [6, 8, 15] {
        assert_eq!(Welcome::decode(&changed(full, reserved, 1)), Err(WireError::Reserved));
    }
    let header = Header { id: 1, length: 100 }.encode();
    assert_eq!(Header::decode(&changed(header, 0, 0xC2), 100), Err(WireError::Undefined(0xC2)));
    assert_eq!(Header::decode(&changed(header, 2, 1), 100), Err(WireError::Reserved));
    assert_eq!(Header::decode(&changed(header, 15, 0), 100), Err(WireError::NoId));
    assert_eq!(Header::decode(&header, 99), Err(WireError::TooLong { length: 100, max: 99 }));
    let acknowledgement = Acknowledgement { id: 1, status: AckStatus::Handled }.encode();
    assert!(Acknowledgement::decode(&changed(acknowledgement, 1, 4)).is_err());
    assert!(Acknowledgement::decode(&changed(acknowledgement, 5, 1)).is_err());
}

#[test]
fn random_sender_ids_differ() {
    let mut seen: Vec<_> = (0..1000).map(|_| SenderId::random()).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 1000);
}

/// The corpus has inputs that a fuzzer found, and one example of each frame.
#[test]
fn the_link_corpus_replays_without_panics() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/link");
    let mut replayed = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        fuzz_wire(&fs::read(entry.unwrap().path()).unwrap());
        replayed += 1;
    }
    assert!(replayed >= 8, "only {replayed} files in the corpus");
}

fn stream(messages: &[Vec<u8>]) -> Vec<u8> {
    let frame = |(id, message): (u64, &Vec<u8>)| {
        let length = u32::try_from(message.len()).unwrap();
        [&Header { id, length }.encode()[..], message].concat()
    };
    (1..).zip(messages).flat_map(frame).collect()
}

proptest! {
    #[test]
    fn frames_decode_to_what_was_encoded(
        sender: [u8; 16], number: u32, id in 1..=u64::MAX,
        status in prop::sample::select(vec![
            AckStatus::Handled, AckStatus::Duplicate, AckStatus::Stale, AckStatus::Waited,
        ]),
    ) {
        let hello = Hello { sender: SenderId(sender) };
        prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        let ready = Welcome::Ready { message_bytes_max: number };
        for welcome in [ready, Welcome::OtherVersion, Welcome::Full, Welcome::Stopping] {
            prop_assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
        }
        let header = Header { id, length: number };
        prop_assert_eq!(Header::decode(&header.encode(), number), Ok(header));
        let acknowledgement = Acknowledgement { id, status };
        prop_assert_eq!(Acknowledgement::decode(&acknowledgement.encode()), Ok(acknowledgement));
    }

    /// Messages are assembled from pieces of any size, and the memory in use is little more than
    /// the bytes that have arrived.
    #[test]
    fn messages_are_assembled_from_pieces_of_any_size(
        sizes in prop::collection::vec(0..3 * CHUNK_BYTES, 0..6),
        pieces in prop::collection::vec(1..2 * CHUNK_BYTES, 1..20),
    ) {
        let messages: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![size as u8; size]).collect();
        let whole = stream(&messages);
        let (mut rest, mut out) = (&whole[..], Vec::new());
        let mut assembler = Assembler::new(1 << 20);
        for piece in pieces.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let mut input = &rest[..*piece.min(&rest.len())];
            rest = &rest[input.len()..];
            while !input.is_empty() {
                out.extend(assembler.push(&mut input).unwrap().map(|(_, message)| message));
            }
        }
        prop_assert_eq!(out, messages);
        prop_assert!(!assembler.is_partial());
    }

    #[test]
    fn random_bytes_cause_no_panic_in_a_decoder(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz_wire(&bytes);
    }

    /// Random bytes rarely pass the first check of a decoder. These streams are valid except for
    /// one changed byte, so most of them pass this check.
    #[test]
    fn streams_with_one_changed_byte_cause_no_panic_in_a_decoder(
        piece: u8, sizes in prop::collection::vec(0..100_usize, 1..4), at: prop::sample::Index, to: u8,
    ) {
        let messages: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![1; size]).collect();
        let mut bytes = [&[piece][..], &stream(&messages)].concat();
        fuzz_wire(&bytes);
        let at = at.index(bytes.len());
        bytes[at] = to;
        fuzz_wire(&bytes);
        fuzz_wire(&bytes[1..]);
    }
}
