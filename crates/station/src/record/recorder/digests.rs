//! Digests of the newest records, to detect two records with the same identity and different
//! contents.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use barograph_engine::Record;
use barograph_forecast::{Name, Outcome};

use super::inbox::SubmittedRecord;
use crate::forecast::series::Measurement;

/// Digests of the newest [`DIGESTS_MAX`] records that were handed in with an identity.
///
/// The archive stores one record for each identity, and gives no error for a second record with a
/// different content. These digests detect the second record, so that the station does not report
/// to its caller that this record is stored.
#[derive(Default)]
pub(super) struct RecentDigests {
    hasher: RandomState,
    /// Hash of the content, by hash of the identity.
    digests: HashMap<u64, u64>,
    /// Keys of `digests`, oldest first.
    order: VecDeque<u64>,
}

impl RecentDigests {
    /// The identity of the first of `records` that was submitted before with a different content.
    pub(super) fn conflict(&self, records: &[SubmittedRecord]) -> Option<(Name, u64)> {
        let differs = |submitted: &&SubmittedRecord| {
            let key = submitted.identity.as_ref().map(|(origin, seq)| self.key(origin, *seq));
            key.and_then(|key| self.digests.get(&key)).is_some_and(|known| *known != self.digest(submitted))
        };
        records.iter().find(differs).and_then(|submitted| submitted.identity.clone())
    }

    pub(super) fn remember(&mut self, records: &[SubmittedRecord]) {
        for submitted in records {
            let Some((origin, seq)) = &submitted.identity else { continue };
            let key = self.key(origin, *seq);
            if self.digests.insert(key, self.digest(submitted)).is_none() {
                self.order.push_back(key);
            }
            while self.order.len() > DIGESTS_MAX {
                if let Some(oldest) = self.order.pop_front() {
                    self.digests.remove(&oldest);
                }
            }
        }
    }

    /// Removes records that were not stored.
    pub(super) fn forget(&mut self, records: &[Record]) {
        for record in records {
            let key = self.key(&record.origin, record.seq);
            if self.digests.remove(&key).is_some() {
                self.order.retain(|known| *known != key);
            }
        }
    }

    /// Whether a record with this identity was submitted recently.
    pub(super) fn has(&self, origin: &Name, seq: u64) -> bool {
        self.digests.contains_key(&self.key(origin, seq))
    }

    fn key(&self, origin: &Name, seq: u64) -> u64 {
        self.hasher.hash_one((origin.as_str(), seq))
    }

    fn digest(&self, submitted: &SubmittedRecord) -> u64 {
        let Measurement { series, time_unix_ns, outcome, .. } = &submitted.measurement;
        let value = match outcome {
            Outcome::Value(value) => value.to_bits(),
            Outcome::Failed { .. } => 0,
        };
        let names = (series.source.as_str(), series.target.as_str(), series.quantity.as_str());
        self.hasher.hash_one((names, submitted.time_given.then_some(*time_unix_ns), value))
    }
}

/// Maximum number of stored digests. So many digests take about 3 MB.
const DIGESTS_MAX: usize = 65_536;
