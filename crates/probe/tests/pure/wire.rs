//! The wire format: encoding and decoding, the stored corpus, and the syntax of targets.

use std::fs;
use std::path::Path;

use barograph_probe::fuzzing::fuzz_wire;
use barograph_probe::wire::{
    BulkSummary, COUNT_MAX, DATAGRAM_BYTES, DONE_BYTES, Datagram, DatagramKind, DeclineReason, REPLY_BYTES,
    REQUEST_BYTES, Reply, Request, STREAM_MS_MAX,
};
use barograph_probe::{Direction, SenderLimit, Target, TcpInfo};
use proptest::prelude::*;

/// The examples of `docs/spec/probe.md`.
#[test]
fn frames_equal_the_examples_of_the_specification() {
    let bytes = |hex: &str| -> Vec<u8> {
        hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
    };
    let request = Request::Goodput { direction: Direction::Up, bytes: 65_536 };
    assert_eq!(request.encode()[..], bytes("b1 03 00 00 00 00 00 00 00 00 00 00 00 01 00 00"));
    let stream = Request::Stream { ms: 5000, bytes_max: 1 << 30 };
    assert_eq!(stream.encode()[..], bytes("b1 06 00 00 00 00 13 88 00 00 00 00 40 00 00 00"));
    let reply = Reply::Declined(DeclineReason::TooLarge { limit: 1000 });
    assert_eq!(reply.encode()[..], bytes("b2 02 00 00 00 00 00 00 00 00 00 00 00 00 03 e8"));
    let datagram = Datagram { kind: DatagramKind::Question, nonce: 0x0123_4567_89ab_cdef, sequence: 9 };
    let expected = "42 47 50 01 01 00 00 00 01 23 45 67 89 ab cd ef 00 00 00 09 00 00 00 00";
    assert_eq!(datagram.encode()[..], bytes(expected));
    let info = TcpInfo {
        min_rtt_s: Some(0.020),
        total_retrans: 3,
        congestion: Some("cubic".to_string()),
        limited_by: Some(SenderLimit::Network),
        delivery_rate_bit_s: Some(1e8),
    };
    let expected = "b3 01 03 00 00 00 00 00 00 00 00 00 00 01 00 00 00 00 4e 20 00 00 00 03 \
                    00 00 00 00 05 f5 e1 00 63 75 62 69 63 00 00 00 00 00 00 00 00 00 00 00";
    assert_eq!(BulkSummary { bytes: 65_536, tcp_info: Some(info) }.encode()[..], bytes(expected));
}

/// Invalid frames; each differs from a valid frame in the named field.
#[test]
fn undefined_frames_are_rejected() {
    let changed = |frame: &[u8], at: usize, to: u8| {
        let mut frame = frame.to_vec();
        frame[at] = to;
        frame
    };
    let request = Request::Rtt { n: 5 }.encode();
    for (name, bad) in [
        ("mark", changed(&request, 0, 0)),
        ("kind", changed(&Request::Stream { ms: 1, bytes_max: 1 }.encode(), 1, 99)),
        ("reserved", changed(&request, 3, 1)),
        ("too many", changed(&request, 4, 1)),
        ("none", changed(&request, 7, 0)),
        ("bytes beside a count", changed(&request, 15, 1)),
        (
            "a count beside bytes",
            changed(&Request::Goodput { direction: Direction::Up, bytes: 1 }.encode(), 7, 1),
        ),
        ("no bytes", changed(&Request::Goodput { direction: Direction::Up, bytes: 1 }.encode(), 15, 0)),
        ("a stream of no time", changed(&Request::Stream { ms: 1, bytes_max: 1 }.encode(), 7, 0)),
        ("a stream of three hours", changed(&Request::Stream { ms: 1, bytes_max: 1 }.encode(), 5, 0xa5)),
        ("a stream of no bytes", changed(&Request::Stream { ms: 1, bytes_max: 1 }.encode(), 15, 0)),
        ("short", request[..15].to_vec()),
    ] {
        assert!(Request::decode(&bad).is_err(), "{name}");
    }
    let done = BulkSummary { bytes: 1, tcp_info: None }.encode();
    for (name, at, to) in [("flags", 1, 2), ("limit without info", 2, 1), ("info without flag", 20, 1)] {
        assert!(BulkSummary::decode(&changed(&done, at, to)).is_err(), "{name}");
    }
    let busy = Reply::Declined(DeclineReason::Busy).encode();
    assert!(Reply::decode(&changed(&busy, 1, 99)).is_err());
    let full = Reply::Declined(DeclineReason::Full).encode();
    assert!(Reply::decode(&changed(&full, 15, 1)).is_err(), "only busy and spent say when to ask again");
}

/// Replays the stored corpus: inputs that a fuzzer found, and one frame of each kind.
#[test]
fn the_wire_corpus_replays_without_panics() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/wire");
    let mut replayed = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        fuzz_wire(&fs::read(entry.unwrap().path()).unwrap());
        replayed += 1;
    }
    assert!(replayed >= 10, "only {replayed} files in the corpus");
}

#[test]
fn target_urls_and_addresses_are_parsed_and_normalized() {
    for (text, shown) in [
        ("example.org:80", "example.org:80"),
        ("EXAMPLE.org:8700", "example.org:8700"),
        ("[::1]:8700", "[::1]:8700"),
        ("[fe80::1%eth0]:22", "[fe80::1%eth0]:22"),
        ("http://example.org", "http://example.org/"),
        ("HTTP://example.org:80?q", "http://example.org/?q"),
        ("https://[2001:db8::1]/a#b", "https://[2001:db8::1]/a"),
        ("https://example.org:8443/a/b?c=d", "https://example.org:8443/a/b?c=d"),
    ] {
        assert_eq!(Target::parse(text).unwrap().to_string(), shown, "{text}");
    }
    for (text, expected) in [
        ("", "host"),
        ("example.org", "host:port, or http://host"),
        ("::1:80", "brackets"),
        ("[::1]", "host:port"),
        ("[::1]80", "`:port`"),
        ("[example.org]:80", "IPv6"),
        ("[::1:80", "`]`"),
        (":80", "host name"),
        ("example.org:0", "1 to 65535"),
        ("example.org:65536", "1 to 65535"),
        ("example.org:+80", "1 to 65535"),
        ("http://example.org:", "1 to 65535"),
        ("ftp://example.org", "http://"),
        ("example.org:80/path", "http://"),
        ("http://user@example.org/", "without user name"),
        ("http://exa mple.org/", "white space"),
        ("http://example.org/\r\nX: y", "white space"),
        ("http://exämple.org/", "letters, digits"),
        ("http://example.org/ä", "ASCII"),
    ] {
        let error = Target::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
    assert!(Target::parse(&format!("http://{}/", "a".repeat(300))).unwrap_err().to_string().len() < 200);
}

fn requests() -> impl Strategy<Value = Request> {
    prop_oneof![
        (1..=COUNT_MAX).prop_map(|n| Request::Rtt { n }),
        (1..=COUNT_MAX).prop_map(|n| Request::RttNagle { n }),
        (1..=COUNT_MAX).prop_map(|n| Request::Datagrams { n }),
        (1..=u64::MAX).prop_map(|bytes| Request::Goodput { direction: Direction::Up, bytes }),
        (1..=u64::MAX).prop_map(|bytes| Request::Goodput { direction: Direction::Down, bytes }),
        (1..=STREAM_MS_MAX, 1..=u64::MAX).prop_map(|(ms, bytes_max)| Request::Stream { ms, bytes_max }),
        (1..=STREAM_MS_MAX, 1..=u64::MAX).prop_map(|(ms, bytes_max)| Request::Iperf3 { ms, bytes_max }),
    ]
}

fn replies() -> impl Strategy<Value = Reply> {
    prop_oneof![
        any::<u64>().prop_map(|nonce| Reply::Ready { nonce }),
        any::<u64>().prop_map(|limit| Reply::Declined(DeclineReason::TooLarge { limit })),
        (1..=u64::MAX).prop_map(|retry_ms| Reply::Declined(DeclineReason::BusyFor { retry_ms })),
        (1..=u64::MAX).prop_map(|retry_ms| Reply::Declined(DeclineReason::SpentFor { retry_ms })),
        prop::sample::select(vec![
            DeclineReason::Busy,
            DeclineReason::Spent,
            DeclineReason::NotServed,
            DeclineReason::Full,
            DeclineReason::Malformed,
            DeclineReason::Stopping,
        ])
        .prop_map(Reply::Declined),
    ]
}

fn infos() -> impl Strategy<Value = TcpInfo> {
    let limits =
        [SenderLimit::ReceiveWindow, SenderLimit::SendBuffer, SenderLimit::Network, SenderLimit::Application];
    (
        prop::option::of(0..u32::MAX - 1),
        any::<u32>(),
        prop::option::of(prop::collection::vec(prop::char::range('a', 'z'), 1..=16)),
        prop::option::of(prop::sample::select(limits.to_vec())),
        prop::option::of(1..1u64 << 53),
    )
        .prop_map(|(min_rtt_us, total_retrans, name, limited_by, rate)| TcpInfo {
            min_rtt_s: min_rtt_us.map(|us| f64::from(us) / 1e6),
            total_retrans,
            congestion: name.map(|letters| letters.into_iter().collect()),
            limited_by,
            delivery_rate_bit_s: rate.map(|rate| rate as f64),
        })
}

proptest! {
    #[test]
    fn frames_decode_to_what_was_encoded(
        request in requests(),
        reply in replies(),
        done in (any::<u64>(), prop::option::of(infos())),
        datagram in (any::<bool>(), any::<u64>(), 0..COUNT_MAX),
    ) {
        prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
        prop_assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
        let done = BulkSummary { bytes: done.0, tcp_info: done.1 };
        prop_assert_eq!(BulkSummary::decode(&done.encode()), Ok(done));
        let kind = if datagram.0 { DatagramKind::Question } else { DatagramKind::Answer };
        let datagram = Datagram { kind, nonce: datagram.1, sequence: datagram.2 };
        prop_assert_eq!(Datagram::decode(&datagram.encode()), Ok(datagram));
    }

    #[test]
    fn random_bytes_cause_no_panic_in_a_decoder(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        fuzz_wire(&bytes);
    }

    /// Random bytes rarely pass the check of mark and length, so change one byte of valid frames.
    #[test]
    fn frames_with_one_changed_byte_cause_no_panic_in_a_decoder(
        request in requests(), reply in replies(), info in infos(), at in 0..DONE_BYTES, to in any::<u8>(),
    ) {
        let done = BulkSummary { bytes: 1, tcp_info: Some(info) }.encode();
        let datagram = Datagram { kind: DatagramKind::Answer, nonce: 1, sequence: 1 }.encode();
        for mut frame in [request.encode().to_vec(), reply.encode().to_vec(), done.to_vec(), datagram.to_vec()] {
            let at = at % frame.len();
            frame[at] = to;
            fuzz_wire(&frame);
        }
    }

    #[test]
    fn a_target_parses_from_its_own_text(text in "(http://|https://|)[a-z:\\[\\]0-9.%@/?# é]{0,40}") {
        fuzz_wire(text.as_bytes());
    }
}

/// The corpus has frames of these sizes; a change of a size needs a new version of the protocol.
#[test]
fn frames_have_the_sizes_of_the_protocol() {
    assert_eq!((REQUEST_BYTES, REPLY_BYTES, DONE_BYTES, DATAGRAM_BYTES), (16, 16, 48, 24));
}
