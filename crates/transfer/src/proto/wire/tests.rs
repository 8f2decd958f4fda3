#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn encoded(feedback: &Feedback) -> Vec<u8> {
    let mut bytes = vec![];
    assert_eq!(feedback.encode(&mut bytes, usize::MAX), Some(feedback.runs.len()));
    bytes
}

#[test]
fn data_packets_match_the_specification() {
    let header = Header { kind: PacketKind::Data, transfer: 0x0102_0304, number: 5 };
    let mut bytes = header.encode().to_vec();
    let plain = DataHead { sent_us: 1_000_000, offset: 0x1_0000, note: None };
    plain.encode(&mut bytes);
    bytes.extend(b"abc");
    let told = [
        &[0x11, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 5][..],
        &[0x00, 0x0f, 0x42, 0x40, 0, 0, 0, 0, 0, 1, 0, 0],
        b"abc",
    ]
    .concat();
    assert_eq!(bytes, told);
    let (again, body) = Header::decode(&bytes).unwrap();
    assert_eq!((again, DataHead::decode(body)), (header, Ok((plain, &b"abc"[..]))));

    let noted = DataHead { note: Some(SenderReport { floor: 4, rtt_us: 20_000 }), ..plain };
    let mut body = vec![];
    noted.encode(&mut body);
    let told = [
        &[0x00, 0x0f, 0x42, 0x40, 0x80, 0, 0, 0, 0, 1, 0, 0][..],
        &[0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0x4e, 0x20],
    ]
    .concat();
    assert_eq!((&body, body.len()), (&told, noted.encoded_len()));
    assert_eq!(DataHead::decode(&body), Ok((noted, &[][..])));
    assert_eq!(DataHead::decode(&body[..23]), Err(WireError::Truncated("the note")));
}

#[test]
fn feedback_matches_the_specification() {
    let lost = GapReport { host_drops: Some(false), is_marked: Some(true), delay_us: Some(1800) };
    let feedback = Feedback {
        start: 4,
        runs: vec![
            AckRange { received: 100, missing: 2, evidence: lost },
            AckRange { received: 3, missing: 0, evidence: GapReport::default() },
        ],
        echo: Some(TimestampEcho { number: 108, sent_us: 1_000_000, held_us: 50 }),
        totals: Totals { packets: 103, bytes: 147_084, marked: 1, drain_bytes_s: 0 },
    };
    let bytes = encoded(&feedback);
    let told = [
        &[0x01, 0x04][..],
        &[0x40, 0x6c, 0x00, 0x0f, 0x42, 0x40, 0x32],
        &[0x40, 0x67, 0x80, 0x02, 0x3e, 0x8c, 0x01, 0x00],
        &[0x40, 0x64, 0x02, 0b1_1101, 0x47, 0x08],
        &[0x03, 0x00],
    ]
    .concat();
    assert_eq!(bytes, told);
    assert_eq!(Feedback::decode(&bytes), Ok(feedback.clone()));
    assert_eq!(feedback.end(), 109);
}

#[test]
fn runs_that_do_not_fit_go_into_the_next_datagram() {
    let run = AckRange { received: 10, missing: 1, evidence: GapReport::default() };
    let feedback = Feedback { start: 50, runs: vec![run; 5], ..Feedback::default() };
    // Flags, start and four totals take six bytes; each run takes three bytes.
    let mut bytes = vec![];
    assert_eq!((feedback.encode(&mut bytes, 5), bytes.len()), (None, 0));
    assert_eq!((feedback.encode(&mut bytes, 6 + 8), bytes.len()), (Some(2), 6 + 6));
    let rest = feedback.after(2);
    assert_eq!((rest.start, rest.runs.len(), rest.end()), (72, 3, feedback.end()));
    assert_eq!(Feedback::decode(&encoded(&rest)), Ok(rest));
    assert_eq!(feedback.after(9).runs, []);
}

#[test]
fn invalid_datagrams_are_refused_with_a_specific_error() {
    let good = Header { kind: PacketKind::Feedback, transfer: 7, number: NUMBER_MAX }.encode();
    assert!(Header::decode(&good).is_ok());
    let changed = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        Header::decode(&bytes).map(|(header, _)| header)
    };
    assert_eq!(changed(0, 0x22), Err(WireError::Version(2)));
    assert_eq!(
        WireError::Version(2).to_string(),
        "the datagram has version 2 of the transfer protocol, not 1: update the older end"
    );
    assert_eq!(Header::decode(&[0x30]), Err(WireError::Version(3)), "however short it is");
    assert_eq!(changed(0, 0x13), Err(WireError::Kind(3)));
    assert_eq!(changed(2, 1), Err(WireError::Reserved("the header")));
    assert!(matches!(changed(8, 0x40), Err(WireError::TooLarge(..))));
    assert_eq!(Header::decode(&good[..15]), Err(WireError::Truncated("the header")));
    assert_eq!(Header::decode(&[]), Err(WireError::Truncated("the header")));

    let end = [&[0; 4][..], &NUMBER_MAX.to_be_bytes()].concat();
    assert!(DataHead::decode(&end).is_ok(), "no byte beyond the greatest place");
    let beyond = WireError::TooLarge("the end of the packet's bytes", NUMBER_MAX + 1);
    assert_eq!(DataHead::decode(&[&end[..], &[0]].concat()), Err(beyond));
    assert_eq!(DataHead::decode(&[0xff; 12]), Err(WireError::Reserved("the offset")));
}

#[test]
fn malformed_feedback_is_refused() {
    let head = [0, 9, 0, 0, 0, 0];
    let decode = |runs: &[u8]| Feedback::decode(&[&head[..], runs].concat()).map(|_| ());
    assert_eq!(decode(&[]), Ok(()));
    assert_eq!(decode(&[0, 5, 0, 1, 0]), Ok(()), "only the first has none received");
    assert_eq!(decode(&[0, 0]), Err(WireError::EmptyRun(0)));
    assert_eq!(decode(&[1, 0, 1, 0]), Err(WireError::EmptyRun(0)), "only the last has none missing");
    assert_eq!(decode(&[1, 1, 0, 0, 1, 0]), Err(WireError::EmptyRun(1)));
    assert_eq!(decode(&[1]), Err(WireError::Truncated("a count of missing packets")));
    assert_eq!(decode(&[1, 1]), Err(WireError::Truncated("the evidence of a gap")));
    assert_eq!(decode(&[1, 1, 0b10]), Err(WireError::Reserved("the evidence of a gap")));
    assert_eq!(decode(&[1, 1, 0b10_0000]), Err(WireError::Reserved("the evidence of a gap")));
    assert_eq!(decode(&[1, 1, 0b1_0000]), Err(WireError::Truncated("the delay before a gap")));
    assert_eq!(decode(&[0x40, 1, 0]), Err(WireError::NotShortest("a count of received packets")));
    let long = [0xc0, 0, 0, 1, 0, 0, 0, 0, 0];
    assert_eq!(decode(&long), Err(WireError::TooLarge("a count of received packets", 1 << 32)));
    assert_eq!(Feedback::decode(&[2, 9, 0, 0, 0, 0]), Err(WireError::Reserved("the flags")));
    let last = [&[0][..], &u64::MAX.to_be_bytes(), &[0; 4], &[1, 0]].concat();
    assert!(Feedback::decode(&last).is_ok(), "the greatest number can be acknowledged");
    let beyond = [&last[..13], &[2, 0]].concat();
    assert_eq!(Feedback::decode(&beyond), Err(WireError::TooLarge("the end of the runs", NUMBER_MAX + 2)));
}

fn number() -> impl Strategy<Value = u64> {
    // Integers of all encoded lengths.
    (0_u32..62, 0..=NUMBER_MAX).prop_map(|(shift, number)| number >> shift)
}

fn evidence() -> impl Strategy<Value = GapReport> {
    (any::<Option<bool>>(), any::<Option<bool>>(), any::<Option<u32>>())
        .prop_map(|(host_drops, is_marked, delay_us)| GapReport { host_drops, is_marked, delay_us })
}

fn feedback() -> impl Strategy<Value = Feedback> {
    let counts = || prop_oneof![1_u32..200, 1..=u32::MAX];
    let runs = proptest::collection::vec((counts(), counts(), evidence()), 0..40);
    let echo = proptest::option::of((number(), any::<u32>(), any::<u32>()));
    let totals = (number(), number(), number(), number());
    ((0..NUMBER_MAX / 2), runs, 0_u8..4, echo, totals).prop_map(|(start, runs, ends, echo, totals)| {
        let run = |(received, missing, evidence)| AckRange { received, missing, evidence };
        let mut runs: Vec<AckRange> = runs.into_iter().map(run).collect();
        if ends & 1 != 0
            && let Some(first) = runs.first_mut()
        {
            first.received = 0;
        }
        if ends & 2 != 0
            && let Some(last) = runs.last_mut()
        {
            *last = AckRange { received: last.received.max(1), ..AckRange::default() };
        }
        let echo = echo.map(|(number, sent_us, held_us)| TimestampEcho { number, sent_us, held_us });
        let (packets, bytes, marked, drain_bytes_s) = totals;
        Feedback { start, runs, echo, totals: Totals { packets, bytes, marked, drain_bytes_s } }
    })
}

proptest! {
    #[test]
    fn an_encoded_data_packet_decodes_to_the_same_packet(
        transfer in any::<u32>(), number in number(), sent_us in any::<u32>(),
        offset in 0..NUMBER_MAX - 100, note in proptest::option::of((number(), any::<u32>())),
        payload in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let header = Header { kind: PacketKind::Data, transfer, number };
        let note = note.map(|(floor, rtt_us)| SenderReport { floor, rtt_us });
        let head = DataHead { sent_us, offset, note };
        let mut bytes = header.encode().to_vec();
        head.encode(&mut bytes);
        prop_assert_eq!(bytes.len(), HEADER_BYTES + head.encoded_len());
        bytes.extend(&payload);
        let (again, body) = Header::decode(&bytes).unwrap();
        prop_assert_eq!((again, DataHead::decode(body)), (header, Ok((head, &payload[..]))));
    }

    #[test]
    fn encoded_feedback_decodes_to_the_same_feedback(feedback in feedback(), bytes_max in Feedback::BYTES_MIN..400) {
        let bytes = encoded(&feedback);
        prop_assert_eq!(Feedback::decode(&bytes), Ok(feedback.clone()));
        // A feedback that is split into several datagrams has the same content.
        let (mut rest, mut runs, mut at) = (feedback.clone(), vec![], feedback.start);
        while !rest.runs.is_empty() {
            let mut piece = vec![];
            let fitted = rest.encode(&mut piece, bytes_max).unwrap();
            prop_assert!(fitted > 0 && piece.len() <= bytes_max);
            let piece = Feedback::decode(&piece).unwrap();
            prop_assert_eq!((piece.start, piece.echo, piece.totals), (at, feedback.echo, feedback.totals));
            at = piece.end();
            runs.extend(piece.runs);
            rest = rest.after(fitted);
        }
        prop_assert_eq!((runs, at), (feedback.runs.clone(), feedback.end()));
    }

    #[test]
    fn any_bytes_are_refused_or_have_one_decoding(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), kind in 0_u8..4) {
        // Most of the datagrams have this version; otherwise few would be decoded further.
        if let (Some(first), true) = (bytes.first_mut(), kind != 0) {
            *first = VERSION << 4 | kind;
        }
        crate::testkit::fuzz::fuzz_datagram(&bytes);
    }
}
