//! Entry points of the fuzzers, as plain functions, so that `cargo test` can replay their corpora.

#[cfg(feature = "files")]
mod files;
mod sender;

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use rangemap::RangeSet;

use crate::proto::wire::{
    DATA_HEAD_BYTES, DataHead, Feedback, HEADER_BYTES, Header, PacketKind, SenderReport,
};
use crate::proto::{Arrival, NewBytes, Receiver, ReceiverConfig, Refusal, TooLong};

#[cfg(feature = "files")]
pub use self::files::{fuzz_journal, fuzz_manifest};
pub use self::sender::fuzz_sender;

/// Decodes `data` as a frame of the control connection; an accepted frame must encode to the same
/// bytes.
#[cfg(feature = "io")]
pub fn fuzz_control(data: &[u8]) {
    crate::io::control::fuzz(data);
}

/// Parses `data` as a receiver address. An accepted address must be written as the same text.
#[cfg(feature = "io")]
pub fn fuzz_receiver_address(data: &[u8]) {
    crate::io::identity::fuzz(data);
}

/// Decodes `data` as a datagram, and as the body of every kind of datagram. Each accepted value
/// must encode to the same bytes.
pub fn fuzz_datagram(data: &[u8]) {
    if let Ok((header, body)) = Header::decode(data) {
        assert_eq!([&header.encode()[..], body].concat(), data, "{header:?}");
        match header.kind {
            PacketKind::Data => assert_data(body),
            PacketKind::Feedback => assert_feedback(body),
        }
    }
    assert_data(data);
    assert_feedback(data);
}

fn assert_data(body: &[u8]) {
    if let Ok((head, payload)) = DataHead::decode(body) {
        let mut again = vec![];
        head.encode(&mut again);
        assert_eq!(again.len(), head.encoded_len());
        again.extend(payload);
        assert_eq!(again, body, "{head:?}");
    }
}

fn assert_feedback(body: &[u8]) {
    if let Ok(feedback) = Feedback::decode(body) {
        assert!(feedback.runs.len() <= body.len() / 2, "memory in proportion");
        let mut again = vec![];
        assert_eq!(feedback.encode(&mut again, body.len()), Some(feedback.runs.len()));
        assert_eq!(again, body, "{feedback:?}");
    }
}

/// Runs a receiver through the steps that `data` encodes. Each step is a byte and its arguments.
pub fn fuzz_receiver(data: &[u8]) {
    let mut bytes = data.iter().copied();
    let mut next = || bytes.next();
    let (Some(object), Some(held)) = (next(), next()) else { return };
    let held = (u64::from(held) << 3, u64::from(held) << 4);
    let Ok(mut checked) = Checked::new(u64::from(object) << 4, held) else { return };
    while let Some(step) = next() {
        let arg = u64::from(next().unwrap_or(0));
        checked.step(match step % 12 {
            0..4 => Step::InOrder { skipped: 0, bytes: arg },
            4 => Step::InOrder { skipped: arg, bytes: 16 },
            5 => Step::Late { back: arg, offset: u64::from(next().unwrap_or(0)) << 4, bytes: 16 },
            6 => Step::Anywhere { number: (arg | 1) << (step / 12), offset: arg << 3, bytes: 40 },
            7 => Step::Jump { shift: arg as u32 % 33 },
            8 => Step::SenderReport { floor_back: arg, rtt_us: 1 << (step / 12) },
            9 => Step::Wait { us: (arg + 1) << (step / 12) },
            10 => Step::Drop { count: arg as u32 },
            _ => Step::Report,
        });
    }
    checked.finish();
}

/// One step of a test of a receiver.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// The next packet after `skipped` skipped numbers, with the bytes that follow the bytes of the
    /// last packet.
    InOrder {
        skipped: u64,
        /// Number of bytes that the packet carries.
        bytes: u64,
    },
    /// A packet `back` numbers below the next packet. This packet is late, or a copy.
    Late {
        back: u64,
        /// Offset of the packet's bytes in the object.
        offset: u64,
        /// Number of bytes that the packet carries.
        bytes: u64,
    },
    /// A packet with any number and any bytes.
    Anywhere {
        number: u64,
        /// Offset of the packet's bytes in the object.
        offset: u64,
        /// Number of bytes that the packet carries.
        bytes: u64,
    },
    /// A packet 2^`shift` numbers above the next number.
    Jump {
        /// Exponent, at most 32.
        shift: u32,
    },
    /// The next packet carries a note. The floor in the note is `floor_back` below the next number.
    /// If `floor_back` is at least 128, the floor is above the next number.
    SenderReport {
        floor_back: u64,
        /// Round-trip time in the note (µs).
        rtt_us: u32,
    },
    Wait {
        /// Time to wait (µs).
        us: u64,
    },
    /// The socket drops `count` packets.
    Drop { count: u32 },
    /// The receiver sends feedback if feedback is due.
    Report,
}

/// A receiver, with an independent record of the packets that it received.
#[derive(Debug)]
pub struct Checked {
    receiver: Receiver,
    object_bytes: u64,
    now: Duration,
    drops: u32,
    note: Option<SenderReport>,
    /// Offset of the next packet's bytes.
    offset: u64,
    /// Packet numbers that arrived, from the floor on.
    came: BTreeSet<u64>,
    floor: u64,
    next: u64,
    newest: Option<u64>,
    packets: u64,
    /// Bytes that arrived minus bytes of feedback that was sent.
    credit: u64,
    /// For each byte of the object, whether the receiver holds this byte.
    held: Vec<bool>,
}

impl Checked {
    /// Creates the receiver and the independent record. The receiver and the record start with the
    /// bytes `held.0..held.1` of the object, as far as the object contains these bytes. Errors: the
    /// object is too long for a receiver.
    pub fn new(object_bytes: u64, held: (u64, u64)) -> Result<Self, TooLong> {
        let mut set = RangeSet::new();
        let mut bits = vec![false; object_bytes as usize];
        if held.0 < held.1 {
            set.insert(held.0..held.1);
            bits.iter_mut().take(held.1 as usize).skip(held.0 as usize).for_each(|bit| *bit = true);
        }
        let config = ReceiverConfig { feedback_bytes_max: FEEDBACK_BYTES_MAX };
        Ok(Self {
            receiver: Receiver::new(config, object_bytes, set)?,
            object_bytes,
            now: Duration::ZERO,
            drops: u32::MAX - 50,
            note: None,
            offset: 0,
            came: BTreeSet::new(),
            floor: 0,
            next: 0,
            newest: None,
            packets: 0,
            credit: 0,
            held: bits,
        })
    }

    /// Runs one step and checks its result.
    pub fn step(&mut self, step: Step) {
        match step {
            Step::InOrder { skipped, bytes } => {
                let end = (self.offset + bytes).min(self.object_bytes);
                self.deliver(self.next + skipped, self.offset..end);
                self.offset = if end == self.object_bytes { 0 } else { end };
            }
            Step::Late { back, offset, bytes } => {
                self.deliver(self.next.saturating_sub(back), offset..offset + bytes);
            }
            Step::Anywhere { number, offset, bytes } => self.deliver(number, offset..offset + bytes),
            Step::Jump { shift } => self.deliver(self.next.saturating_add(1 << shift), 0..1),
            Step::SenderReport { floor_back, rtt_us } => {
                let below = self.next.saturating_sub(floor_back);
                let floor = if floor_back < 128 { below } else { self.next + floor_back };
                self.note = Some(SenderReport { floor, rtt_us });
            }
            Step::Wait { us } => self.now += Duration::from_micros(us),
            Step::Drop { count } => self.drops = self.drops.wrapping_add(count),
            Step::Report => self.report(),
        }
    }

    /// Checks that all packets were reported at the end, and that reports stop.
    pub fn finish(&mut self) {
        self.now += Duration::from_secs(2);
        self.report();
        for _ in 0..REPORTS_MAX {
            let Some(due) = self.receiver.poll_timeout() else { break };
            assert!(due < self.now + Duration::from_secs(100), "soon");
            self.now = self.now.max(due);
            self.report();
        }
        assert_eq!(self.receiver.poll_timeout(), None, "it falls silent");
        let bits = |range: &Range<u64>| range.clone().all(|at| self.held[at as usize]);
        let there: u64 = self.receiver.held().iter().map(|range| range.end - range.start).sum();
        assert_eq!(there, self.held.iter().filter(|bit| **bit).count() as u64);
        assert!(self.receiver.held().iter().all(bits));
        assert_eq!(self.receiver.is_complete(), there == self.object_bytes);
    }

    fn deliver(&mut self, number: u64, range: Range<u64>) {
        let note = self.note.take();
        let arrival = Arrival {
            number,
            sent_us: (self.now.as_micros() as u32).wrapping_sub(7) ^ (self.drops & 0x30),
            range: range.clone(),
            note,
            at: self.now,
            is_marked: [None, Some(false), Some(true)][self.drops as usize % 3],
            drops: (!self.drops.is_multiple_of(5)).then_some(self.drops),
        };
        let is_new = self.floor <= number && !self.came.contains(&number);
        let is_near = number < self.next.saturating_add(AHEAD_MAX);
        match self.receiver.handle_data(&arrival) {
            Ok(fresh) => {
                assert!(range.end <= self.object_bytes && is_new && is_near, "{arrival:?}");
                self.count(&range);
                self.record_number(number, note);
                self.write(&range, fresh);
            }
            Err(Refusal::Beyond { end, .. }) => assert!(self.object_bytes < end, "{arrival:?}"),
            Err(Refusal::Repeated(told)) => {
                self.count(&range);
                assert!(told == number && !is_new, "{arrival:?}");
            }
            Err(Refusal::TooFar(told)) => assert!(told == number && is_new && !is_near, "{arrival:?}"),
            Err(Refusal::Scattered(_)) => panic!("so many ranges there cannot be here"),
        }
        for (kept, kept_max) in self.receiver.kept() {
            assert!(kept <= kept_max);
        }
    }

    fn count(&mut self, range: &Range<u64>) {
        self.packets += 1;
        self.credit += range.end - range.start + (HEADER_BYTES + DATA_HEAD_BYTES) as u64;
    }

    fn record_number(&mut self, number: u64, note: Option<SenderReport>) {
        self.came.insert(number);
        self.newest = Some(number);
        if let Some(note) = note {
            self.floor = self.floor.max(note.floor.min(number));
        }
        self.next = self.next.max(number + 1);
        self.floor = self.floor.max(self.next.saturating_sub(SPAN_MAX));
        while self.came.first().is_some_and(|first| *first < self.floor) {
            self.came.pop_first();
        }
    }

    /// Checks that the receiver did not hold the parts that it reports as new, and that it held the
    /// rest of the range.
    fn write(&mut self, range: &Range<u64>, fresh: NewBytes) {
        let parts = match fresh {
            NewBytes::All => vec![range.clone()],
            NewBytes::Parts(parts) => parts,
            NewBytes::Nothing => vec![],
        };
        for part in parts {
            assert!(range.start <= part.start && part.start <= part.end && part.end <= range.end);
            for at in part {
                let byte = &mut self.held[at as usize];
                assert!(!*byte, "byte {at} is fresh once");
                *byte = true;
            }
        }
        assert!(range.clone().all(|at| self.held[at as usize]), "{range:?}");
    }

    /// Checks that feedback reports all packets that arrived, or only the first of these packets if
    /// the credit for feedback bytes is used up.
    fn report(&mut self) {
        let is_due = self.receiver.poll_timeout().is_some_and(|due| due <= self.now);
        let (mut told, mut at, mut datagrams) = (vec![], self.floor, 0);
        while let Some(feedback) = self.receiver.poll_feedback(self.now) {
            let mut bytes = vec![];
            assert_eq!(feedback.encode(&mut bytes, FEEDBACK_BYTES_MAX), Some(feedback.runs.len()), "it fits");
            assert_eq!(Feedback::decode(&bytes).as_ref(), Ok(&feedback));
            assert_eq!(feedback.start, at);
            for run in &feedback.runs {
                told.push(at..at + u64::from(run.received));
                at += run.packets();
            }
            assert_eq!(at, feedback.end());
            assert_eq!(feedback.totals.packets, self.packets);
            assert_eq!(feedback.echo.map(|echo| echo.number), self.newest);
            datagrams += 1;
            self.credit = self.credit.saturating_sub((HEADER_BYTES + bytes.len()) as u64);
        }
        assert_eq!(is_due, datagrams > 0);
        if is_due {
            let has_credit = (HEADER_BYTES + FEEDBACK_BYTES_MAX) as u64 <= self.credit;
            assert!(at == self.next || at < self.next && !has_credit, "the newest is told");
            told.retain(|run| !run.is_empty());
            let runs = self.runs().into_iter().filter(|run| run.start < at);
            assert_eq!(told, runs.collect::<Vec<_>>());
        }
    }

    fn runs(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = vec![];
        for number in &self.came {
            match runs.last_mut() {
                Some(run) if run.end == *number => run.end += 1,
                _ => runs.push(*number..number + 1),
            }
        }
        runs
    }
}

/// Maximum size of a feedback in bytes. The size is small, so that a round takes several datagrams.
const FEEDBACK_BYTES_MAX: usize = 120;

/// Number of rounds, more than a receiver sends after the last packet.
const REPORTS_MAX: usize = 20;

/// Limits with the same values as in `receiver/numbers.rs`. The limits are repeated here, so that
/// this test detects a change.
const AHEAD_MAX: u64 = 1 << 30;
const SPAN_MAX: u64 = 1 << 31;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn replay(folder: &str, fuzz: impl Fn(&[u8])) {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(folder);
        let mut replayed = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            fuzz(&std::fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed >= 8, "the corpus is there, not {replayed} files");
    }

    #[test]
    fn every_corpus_passes_its_fuzz_checks() {
        replay("datagram", fuzz_datagram);
        replay("receiver", fuzz_receiver);
        replay("sender", fuzz_sender);
        #[cfg(feature = "files")]
        {
            replay("manifest", fuzz_manifest);
            replay("journal", fuzz_journal);
        }
        #[cfg(feature = "io")]
        {
            replay("control", fuzz_control);
            replay("line", fuzz_receiver_address);
        }
    }
}
