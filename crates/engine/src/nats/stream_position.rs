//! Position up to which an archive has read the stream, and which records of the archive's own
//! station the stream has.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::connection::json;
use crate::{EngineError, Record};

/// Position of the archive in the stream, as it is stored in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StreamPosition {
    /// When the stream was created, as the server reports it. A stream that is created again has a
    /// different creation time, and its numbers start from 1.
    pub(super) stream: String,
    pub(super) seq: u64,
    /// Sequence number (at most `seq`) and storage time (RFC 3339, as the server writes it) of the
    /// newest message that arrived; `None` if unknown.
    ///
    /// The number and the time together identify the message. The number alone is not enough: a
    /// server that lost unsynced messages reuses their numbers.
    #[serde(default)]
    pub(super) newest: Option<(u64, String)>,
    /// Earlier messages that arrived, oldest first, with sequence number and storage time.
    #[serde(default, rename = "marks")]
    older_checkpoints: VecDeque<(u64, String)>,
    /// Sequence numbers of the archive's own station that were read from the stream, as runs: first
    /// number → last number.
    ///
    /// The station stores its measurements in the same archive before it sends them. So a
    /// measurement in the archive need not be in the stream.
    #[serde(default)]
    own: BTreeMap<u64, u64>,
}

impl StreamPosition {
    pub(super) fn read(file: &Path) -> Result<Self, EngineError> {
        match std::fs::read(file) {
            // If the file cannot be parsed, the stream is read from the beginning.
            Ok(text) => {
                let mut position: Self = serde_json::from_slice(&text).unwrap_or_default();
                // Remove numbers above the accepted range, which an earlier version accepted.
                // Records above the watermark are then sent again.
                position.own.retain(|_, last| *last <= Record::SEQ_EXHAUSTED_ABOVE);
                Ok(position)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(EngineError::Unavailable(format!("{}: {error}", file.display()))),
        }
    }

    pub(super) fn write(&self, file: &Path) {
        let new = file.with_extension("place.new");
        let written = std::fs::write(&new, json(self)).and_then(|()| std::fs::rename(&new, file));
        if let Err(error) = written {
            tracing::warn!(
                %error, file = %file.display(),
                "cannot write the archive's position; after a restart it reads some messages again"
            );
        }
    }

    /// Moves to the beginning of a different stream. The numbers that were read from the previous
    /// stream remain, because the archive still has their records.
    pub(super) fn begin(&mut self, stream: String) {
        self.stream = stream;
        self.go_back(None);
    }

    /// Moves to `seq`. `newest` is the newest message that arrived since the last move.
    pub(super) fn move_to(&mut self, seq: u64, newest: Option<(u64, String)>) {
        self.seq = seq;
        let Some(newest) = newest else { return };
        let newest_checkpoint = self.older_checkpoints.back().map_or(0, |(seq, _)| *seq);
        if newest_checkpoint + CHECKPOINT_EVERY <= newest.0 {
            self.older_checkpoints.push_back(newest.clone());
            if self.older_checkpoints.len() > CHECKPOINTS_MAX {
                self.older_checkpoints.pop_front();
            }
        }
        self.newest = Some(newest);
    }

    /// Messages to compare with the stream, newest first, with sequence number and storage time.
    pub(super) fn checkpoints(&self) -> Vec<(u64, String)> {
        let newest = self.newest.clone().filter(|newest| self.older_checkpoints.back() != Some(newest));
        newest.into_iter().chain(self.older_checkpoints.iter().rev().cloned()).collect()
    }

    /// Moves back to one of [`StreamPosition::checkpoints`]; `None` for the beginning of the
    /// stream.
    pub(super) fn go_back(&mut self, to: Option<(u64, String)>) {
        let seq = to.as_ref().map_or(0, |(seq, _)| *seq);
        self.older_checkpoints.retain(|(checkpoint, _)| *checkpoint <= seq);
        (self.seq, self.newest) = (seq, to);
    }

    /// Records that a record of the archive's own station was in the stream.
    pub(super) fn record_own(&mut self, record: &Record) {
        let (mut first, mut last) = record.skipped_range().unwrap_or((record.seq, record.seq));
        let highest = self.own.last_key_value().map_or(0, |(_, &last)| last);
        if !Record::is_seq_plausible(last, highest) {
            return;
        }
        let near = |own: &BTreeMap<u64, u64>, first: u64, last: u64| {
            let before = own.range(..=last.saturating_add(1)).next_back().map(|(&from, &to)| (from, to));
            before.filter(|&(_, to)| first <= to.saturating_add(1))
        };
        while let Some((from, to)) = near(&self.own, first, last) {
            self.own.remove(&from);
            (first, last) = (first.min(from), last.max(to));
        }
        // If there are too many runs, the number is not recorded. The record with this number is
        // sent again, because the watermark stays below this number.
        if self.own.len() < RUNS_MAX || first == 1 {
            self.own.insert(first, last);
        }
    }

    /// Watermark of the archive's own station in the stream.
    pub(super) fn watermark(&self) -> u64 {
        self.own.get(&1).copied().unwrap_or(0)
    }
}

/// Number of messages between two checkpoints, and largest number of checkpoints; together they
/// cover the last 256,000 messages. A server loses at most the messages of two minutes (the default
/// `sync_interval` of nats-server). In a measurement an archive stored about 1200 records a second,
/// which is 144,000 in two minutes.
const CHECKPOINT_EVERY: u64 = 1000;
const CHECKPOINTS_MAX: usize = 256;

/// Largest number of runs of sequence numbers that are stored. Repeated batches arrive out of order
/// and leave gaps; this number allows for a few full windows of unconfirmed records.
const RUNS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use barograph_forecast::{Name, Outcome, Quantity, SeriesId};
    use proptest::prelude::*;

    use super::*;

    fn own(seq: u64) -> Record {
        let [north, south] = ["north", "south"].map(|name| Name::new(name).unwrap());
        let series = SeriesId { source: north.clone(), target: south, quantity: Quantity::RTT };
        Record {
            origin: north,
            seq,
            series,
            time_unix_ns: 0,
            outcome: Outcome::Value(1.0),
            detail: String::new(),
        }
    }

    proptest! {
        #[test]
        fn the_watermark_is_below_the_first_unread_number(seqs in prop::collection::vec(1_u64..40, 0..80)) {
            let mut position = StreamPosition::default();
            for &seq in &seqs {
                position.record_own(&own(seq));
            }
            let expected = (1..).take_while(|seq| seqs.contains(seq)).count() as u64;
            prop_assert_eq!(position.watermark(), expected);
            let kept: StreamPosition = serde_json::from_slice(&json(&position)).unwrap();
            prop_assert_eq!(kept, position);
        }
    }

    #[test]
    fn a_stream_position_goes_back_to_its_checkpoints() {
        let mut position = StreamPosition::default();
        let at = |seq: u64| (seq, format!("time of {seq}"));
        for seq in (1..=300_101).step_by(100) {
            position.move_to(seq, Some(at(seq)));
        }
        let been: Vec<u64> = position.checkpoints().into_iter().map(|(seq, _)| seq).collect();
        assert_eq!((been.len(), been[0], been[1], been[2]), (257, 300_101, 300_001, 299_001));
        // Messages that cannot be read are skipped, and the newest message that was read remains.
        position.move_to(300_150, None);
        assert_eq!((position.seq, &position.checkpoints()[0]), (300_150, &at(300_101)));
        position.go_back(Some(at(299_001)));
        assert_eq!((position.seq, position.newest.clone()), (299_001, Some(at(299_001))));
        assert_eq!(position.checkpoints().len(), 255, "later checkpoints are gone");
        position.go_back(None);
        assert_eq!((position.seq, position.checkpoints()), (0, Vec::new()));
    }

    #[test]
    fn skipped_numbers_do_not_stop_the_watermark() {
        let mut position = StreamPosition::default();
        position.record_own(&own(5));
        assert_eq!(position.watermark(), 0);
        position.record_own(&Record::skip_marker(&own(1).origin, 1, 4));
        assert_eq!(position.watermark(), 5);
        position.begin("another".into());
        assert_eq!((position.seq, position.watermark()), (0, 5));
    }
}
