//! Encoding and decoding of messages.

use proptest::prelude::*;

use super::super::codec::{HEAD_BYTES, decode, encode, head};
use super::super::*;
use crate::proto::wire::NUMBER_MAX;
use crate::testkit::fuzz::fuzz_control;

fn read(frame: &[u8]) -> Result<Message, FrameError> {
    let (kind, length) = head(frame, MANIFEST_BYTES_MAX)?.unwrap();
    assert_eq!(HEAD_BYTES + length, frame.len());
    decode(kind, &frame[HEAD_BYTES..])
}

fn any_suites() -> impl Strategy<Value = Vec<Suite>> {
    let all = vec![Suite::Clear, Suite::Aes128Gcm, Suite::ChaCha20Poly1305];
    proptest::sample::subsequence(all, 1..=3).prop_shuffle()
}

fn any_ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
    prop::collection::vec((1_u64..1 << 40, 1_u64..1 << 40), 0..20).prop_map(|parts| {
        let mut end = 0;
        let step = |(gap, length)| {
            let start = end + gap;
            end = start + length;
            start..end
        };
        parts.into_iter().map(step).collect()
    })
}

fn any_message() -> impl Strategy<Value = Message> {
    let token = prop::option::of(any::<[u8; 16]>().prop_map(AuthToken));
    let datagram_bytes_max = 1_u32..65_536;
    let reason = (1_u8..=10).prop_map(|code| match decode(MessageKind::Refuse, &[code]) {
        Ok(Message::Refuse { reason, .. }) => reason,
        other => panic!("{other:?}"),
    });
    prop_oneof![
        (token, "[a-zäß /0-9.]{0,20}").prop_map(|(token, software)| Message::Hello { token, software }),
        ("[a-z /0-9.]{0,64}", 0..=NUMBER_MAX)
            .prop_map(|(software, manifest_bytes_max)| Message::Welcome { software, manifest_bytes_max }),
        (
            any::<[u8; 16]>(),
            prop::collection::vec(any::<u8>(), 0..300),
            any_suites(),
            datagram_bytes_max.clone()
        )
            .prop_map(|(id, manifest, suites, datagram_bytes_max)| Message::Offer {
                id,
                manifest,
                suites,
                datagram_bytes_max
            }),
        (any::<u32>(), 1..=u16::MAX, any_suites(), datagram_bytes_max, any_ranges()).prop_map(
            |(transfer, port, suites, datagram_bytes_max, held)| Message::Accept {
                transfer,
                port,
                suite: suites[0],
                datagram_bytes_max,
                held
            }
        ),
        (0..=NUMBER_MAX).prop_map(Message::Durable),
        Just(Message::Ping),
        prop::collection::vec(any::<[u8; 32]>(), 0..5).prop_map(Message::Digests),
        Just(Message::Done),
        (reason, "[^\\p{C}\\p{Zl}\\p{Zp}]{0,100}")
            .prop_map(|(reason, text)| Message::Refuse { reason, text }),
    ]
}

proptest! {
    #[test]
    fn an_encoded_message_decodes_to_the_same_message(message in any_message()) {
        let frame = encode(&message).unwrap();
        prop_assert_eq!(read(&frame).unwrap(), message);
        fuzz_control(&frame);
    }

    #[test]
    fn a_truncated_or_extended_message_does_not_decode_to_the_same_message(message in any_message(), cut in any::<prop::sample::Index>()) {
        let frame = encode(&message).unwrap();
        let (kind, body) = (message.kind(), &frame[HEAD_BYTES..]);
        // A manifest, a text, digests and ranges extend to the end of a message. So the start of a
        // message may be a valid message, but a different one.
        if !body.is_empty() {
            prop_assert_ne!(decode(kind, &body[..cut.index(body.len())]).ok(), Some(message.clone()));
        }
        prop_assert_ne!(decode(kind, &[body, &[0]].concat()).ok(), Some(message));
    }

    #[test]
    fn any_bytes_are_refused_or_have_one_decoding(kind in 0_u8..12, body in prop::collection::vec(any::<u8>(), 0..120)) {
        fuzz_control(&[&(body.len() as u32).to_be_bytes(), &[kind][..], &body].concat());
        fuzz_control(&body);
    }
}

/// The examples of `docs/spec/transfer.md` §10.
#[test]
fn message_bytes_match_the_specification() {
    let hex = |text: &str| -> Vec<u8> {
        text.split_whitespace().map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    };
    let hello = Message::Hello { token: Some(AuthToken(*b"0123456789abcdef")), software: "b 1".into() };
    let accept = Message::Accept {
        transfer: 0x0102_0304,
        port: 4433,
        suite: Suite::Aes128Gcm,
        datagram_bytes_max: 1452,
        held: vec![0..65_536, 65_537..65_540],
    };
    for (message, bytes) in [
        (hello, "00 00 00 16 01 01 01 30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66 03 62 20 31"),
        (accept, "00 00 00 10 04 01 02 03 04 11 51 01 45 ac 00 80 01 00 00 01 03"),
        (Message::Durable(1 << 20), "00 00 00 04 05 80 10 00 00"),
        (Message::Ping, "00 00 00 00 06"),
        (
            Message::Refuse { reason: RefuseReason::Full, text: "no room".into() },
            "00 00 00 08 09 05 6e 6f 20 72 6f 6f 6d",
        ),
    ] {
        assert_eq!(encode(&message).unwrap(), hex(bytes), "{message:?}");
        assert_eq!(read(&hex(bytes)).unwrap(), message);
    }
}

#[test]
fn messages_before_authentication_are_short() {
    for code in 1..=9 {
        let bytes_max = match head(&[0xff, 0xff, 0xff, 0xff, code], u64::MAX) {
            Err(FrameError::TooLong { bytes_max, .. }) => bytes_max,
            other => panic!("{other:?}"),
        };
        let kind = head(&[0, 0, 0, 0, code], 0).unwrap().unwrap().0;
        // Only these kinds may come before a sender is accepted.
        if matches!(kind, MessageKind::Hello | MessageKind::Welcome | MessageKind::Refuse) {
            assert!(bytes_max <= 520, "{kind}: {bytes_max}");
        }
        assert!(bytes_max <= (1 << 27) + 24, "{kind}: {bytes_max}");
    }
    // A host with a lower limit refuses shorter manifests.
    assert!(matches!(head(&[0, 1, 0, 0, 3], 65_511), Err(FrameError::TooLong { .. })));
    assert!(matches!(head(&[0, 1, 0, 0, 3], 65_512), Ok(Some((MessageKind::Offer, 65_536)))));
}

#[test]
fn invalid_messages_are_refused_with_a_specific_error() {
    let told = |kind, body: &[u8]| decode(kind, body).unwrap_err().to_string();
    assert_eq!(
        told(MessageKind::Hello, &[2, 0, 0]),
        "the other end uses version 2 of the control connection, this end 1: use the same version at both ends"
    );
    // In a message of a different version, all bytes after the version are ignored.
    assert_eq!(
        told(MessageKind::Welcome, &[0x45, 0x39, 9, 9, 9]),
        "the other end uses version 1337 of the control connection, this end 1: use the same version at both ends"
    );
    assert_eq!(told(MessageKind::Hello, &[1, 2, 0]), "the flags cannot be 2");
    assert_eq!(told(MessageKind::Hello, &[1, 1, 0]), "the message ends within the token");
    assert_eq!(told(MessageKind::Hello, &[1, 0, 1, 27]), "the program's name is not plain text");
    assert_eq!(told(MessageKind::Hello, &[1, 0, 1, 0xff]), "the program's name is not plain text");
    assert_eq!(told(MessageKind::Hello, &[1, 0, 0, 0]), "the message has 1 bytes too many");
    assert_eq!(told(MessageKind::Refuse, &[11]), "the reason cannot be 11");
    assert_eq!(
        told(MessageKind::Refuse, &[[1].as_slice(), "\u{202e}".as_bytes()].concat()),
        "the reason's text is not plain text"
    );
    assert_eq!(told(MessageKind::Digests, &[0; 33]), "the message ends within a digest");
    let offer = |rest: &[u8]| [&[0; 16], rest].concat();
    assert_eq!(told(MessageKind::Offer, &offer(&[9, 0])), "the number of cipher suites cannot be 0");
    assert_eq!(told(MessageKind::Offer, &offer(&[9, 2, 1, 1])), "a repeated cipher suite cannot be 1");
    assert_eq!(told(MessageKind::Offer, &offer(&[9, 1, 3])), "the cipher suite cannot be 3");
    assert_eq!(told(MessageKind::Offer, &offer(&[0])), "the largest datagram cannot be 0");
    let accept = |rest: &[u8]| [&[0, 0, 0, 1, 0, 9, 1, 9], rest].concat();
    assert_eq!(told(MessageKind::Accept, &accept(&[0, 1, 0, 1])), "the start of a range cannot be 1");
    assert_eq!(told(MessageKind::Accept, &accept(&[5, 0])), "the start of a range cannot be 5");
    assert_eq!(head(&[0, 0, 0, 0, 10], 9).unwrap_err().to_string(), "the message has the unknown kind 10");
    assert_eq!(
        head(&[0, 0, 0, 1, 6], 9).unwrap_err().to_string(),
        "a Ping message of 1 bytes, but at most 0 are read"
    );
}

#[test]
fn messages_that_no_reader_accepts_are_not_encoded() {
    let accept =
        |port, held| Message::Accept { transfer: 1, port, suite: Suite::Clear, datagram_bytes_max: 9, held };
    assert!(encode(&accept(1, vec![0..1, 2..3])).is_ok());
    assert!(encode(&accept(0, vec![])).is_err());
    assert!(encode(&accept(1, vec![0..1, 1..3])).is_err());
    assert!(encode(&accept(1, vec![2..3, 0..1])).is_err());
    assert!(encode(&accept(1, std::iter::once(2..2).collect())).is_err());
    assert!(encode(&accept(1, (0..(1 << 17)).map(|n| 2 * n..2 * n + 1).collect())).is_ok());
    assert!(encode(&accept(1, (0..=(1 << 17)).map(|n| 2 * n..2 * n + 1).collect())).is_err());
    let offer =
        |suites, bytes| Message::Offer { id: [0; 16], manifest: vec![], suites, datagram_bytes_max: bytes };
    assert!(encode(&offer(vec![Suite::Clear], 65_535)).is_ok());
    assert!(encode(&offer(vec![], 9)).is_err());
    assert!(encode(&offer(vec![Suite::Clear, Suite::Clear], 9)).is_err());
    assert!(encode(&offer(vec![Suite::Clear], 65_536)).is_err());
    // Texts are cut, and characters that control a terminal are replaced.
    let text = format!("\u{1b}[2J{}ä", "x".repeat(508));
    let frame = encode(&Message::Refuse { reason: RefuseReason::Failed, text }).unwrap();
    let Message::Refuse { text, .. } = read(&frame).unwrap() else { panic!() };
    assert_eq!(text, format!(" [2J{}", "x".repeat(508)));
}

#[test]
fn debug_output_does_not_show_a_token() {
    let hello = Message::Hello { token: Some(AuthToken(*b"sixteen letters!")), software: String::new() };
    assert!(!format!("{hello:?}").contains("115"));
    assert_ne!(AuthToken::random().unwrap(), AuthToken::random().unwrap());
}

/// Writes the corpus of `fuzz_control`. Run this test by hand when messages change.
#[test]
#[ignore = "writes the corpus"]
fn corpus() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/control");
    std::fs::create_dir_all(&folder).unwrap();
    let all = [
        ("hello", Message::Hello { token: None, software: "barograph 0.1.0".into() }),
        ("hello-token", Message::Hello { token: Some(AuthToken([7; 16])), software: "ä".into() }),
        ("welcome", Message::Welcome { software: "barograph 0.1.0".into(), manifest_bytes_max: 1 << 27 }),
        (
            "offer",
            Message::Offer {
                id: [3; 16],
                manifest: b"BGM\x01\x00".to_vec(),
                suites: vec![Suite::ChaCha20Poly1305, Suite::Aes128Gcm],
                datagram_bytes_max: 1452,
            },
        ),
        (
            "accept",
            Message::Accept {
                transfer: 9,
                port: 4433,
                suite: Suite::Clear,
                datagram_bytes_max: 65_507,
                held: vec![0..1, 2..70_000, 1 << 40..1 << 41],
            },
        ),
        ("durable", Message::Durable(1 << 50)),
        ("ping", Message::Ping),
        ("digests", Message::Digests(vec![[1; 32], [2; 32]])),
        ("done", Message::Done),
        ("refuse", Message::Refuse { reason: RefuseReason::Quota, text: "3 files too many".into() }),
    ];
    for (name, message) in all {
        std::fs::write(folder.join(name), encode(&message).unwrap()).unwrap();
    }
    for (name, bytes) in [
        ("version-2", &[0, 0, 0, 3, 1, 2, 0, 0][..]),
        ("long", &[0xff, 0xff, 0xff, 0xff, 3, 0]),
        ("not-shortest", &[0, 0, 0, 2, 5, 0x40, 0x25]),
        ("touching", &[0, 0, 0, 12, 4, 0, 0, 0, 1, 0, 9, 1, 9, 0, 1, 0, 1]),
        ("cut", &[0, 0, 0, 20, 1, 1, 1, 0]),
    ] {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}
