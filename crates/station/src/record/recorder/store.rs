//! One append to the archive: its batch, its sequence numbers and its result.

use std::collections::VecDeque;
use std::time::Duration;

use barograph_engine::{Engine, EngineError, Local, Record};
use barograph_forecast::Name;
use tokio::sync::oneshot;

use super::inbox::FeedError;

/// Records that are appended or dropped as a whole.
pub(super) struct SpoolEntry {
    /// Own records have sequence number 0 until their append begins.
    pub(super) records: Vec<Record>,
    /// `None` for the station's own measurements. These are learnt already, and no caller waits for
    /// the result of the append.
    pub(super) answer: Option<oneshot::Sender<Result<usize, FeedError>>>,
    /// Whether a member of the mesh forwarded the records. The archive then accepts or refuses each
    /// record separately.
    pub(super) is_forwarded: bool,
    /// Whether the archive refused the original sequence numbers of the records, and the station
    /// has cleared these numbers to request new ones.
    pub(super) is_renumbered: bool,
    /// Whether the archive had none of these records before. If true, the records are learnt even
    /// if their sequence numbers are not the highest of their origin.
    pub(super) is_new: bool,
}

impl SpoolEntry {
    pub(super) fn new(
        records: Vec<Record>,
        answer: Option<oneshot::Sender<Result<usize, FeedError>>>,
    ) -> Self {
        Self { records, answer, is_forwarded: false, is_renumbered: false, is_new: false }
    }
}

/// An append and its result.
pub(super) struct AppendBatch {
    pub(super) entries: Vec<SpoolEntry>,
    pub(super) next_seq: Option<u64>,
    /// See `must_reread_seq` of the recorder.
    pub(super) must_reread_seq: bool,
    /// Indices, in ascending order, of the entries that were refused although the append
    /// succeeded; each with the reason.
    pub(super) refused: Vec<(usize, FeedError)>,
    /// Other origins for which the highest stored sequence number is read before the append.
    pub(super) origins: Vec<(Name, Option<u64>)>,
    pub(super) result: Result<(), EngineError>,
}

/// Takes the oldest entries of one kind (forwarded or not): the kind of the first entry. Entries of
/// the other kind stay in the spool in their order. Entries of the two kinds often alternate. If
/// each change of kind began a new append, each change would have to wait for a commit.
pub(super) fn take_batch(spool: &mut VecDeque<SpoolEntry>, append_singly: bool) -> Vec<SpoolEntry> {
    let (mut entries, mut others) = (Vec::<SpoolEntry>::new(), Vec::new());
    let mut count = 0;
    while let Some(entry) = spool.pop_front() {
        if entries.first().is_some_and(|first| first.is_forwarded != entry.is_forwarded) {
            others.push(entry);
            continue;
        }
        count += entry.records.len();
        if !entries.is_empty() && (append_singly || count > BATCH_RECORDS) {
            spool.push_front(entry);
            break;
        }
        entries.push(entry);
    }
    for entry in others.into_iter().rev() {
        spool.push_front(entry);
    }
    entries
}

/// Whether the entries of an append are forwarded. All entries of an append are of the same kind.
pub(super) fn entries_are_forwarded(entries: &[SpoolEntry]) -> bool {
    entries.first().is_some_and(|entry| entry.is_forwarded)
}

/// Appends members' records to the archive. The archive accepts or refuses each record separately.
pub(super) async fn append_forwarded(
    engine: &dyn Engine,
    archive: &Local,
    append: &mut AppendBatch,
) -> Result<(), EngineError> {
    read_highest_seq(engine, append).await?;
    // Append all entries at once, so that one commit stores them; each entry has its own result.
    let absorbed = append.entries.iter().map(|entry| archive.append_forwarded(&entry.records));
    let absorbed = within_limit(futures_util::future::try_join_all(absorbed)).await?;
    for (entry, absorbed) in append.entries.iter_mut().zip(&absorbed) {
        entry.is_new = absorbed.stored == entry.records.len() as u64;
    }
    let refused = absorbed.iter().enumerate().filter(|(_, absorbed)| absorbed.refused > 0);
    // The archive refuses a record if it accepts no further origin or gap, or if the sequence
    // number is too far above the stored sequence numbers.
    let why = "it accepts no further origin or gap, or the sequence number is too high";
    append.refused = refused.map(|(at, _)| (at, FeedError::Unavailable(why.into()))).collect();
    Ok(())
}

async fn read_highest_seq(engine: &dyn Engine, append: &mut AppendBatch) -> Result<(), EngineError> {
    for (origin, highest) in &mut append.origins {
        *highest = Some(match within_limit(engine.next_seq(origin)).await {
            Ok(next) => next.saturating_sub(1),
            // The origin has already used the highest possible sequence number. Other origins are
            // not affected.
            Err(EngineError::Invalid(_)) => Record::SEQ_MAX,
            Err(error) => return Err(error),
        });
    }
    Ok(())
}

/// Assigns the missing sequence numbers, and appends. `archive` is this station's archive if it
/// also stores records that other stations number: it refuses records that an application numbers
/// under the name of such a station.
pub(super) async fn store(
    engine: &dyn Engine,
    archive: Option<&Local>,
    host: &Name,
    append: &mut AppendBatch,
) -> Result<(), EngineError> {
    read_highest_seq(engine, append).await?;
    for record in append.entries.iter_mut().flat_map(|entry| &mut entry.records) {
        if record.seq == 0 && record.origin == *host {
            let next = match append.next_seq {
                Some(next) if !append.must_reread_seq => next,
                // Never assign a number twice that was assigned but not appended yet.
                known => within_limit(engine.next_seq(host)).await?.max(known.unwrap_or(1)),
            };
            append.must_reread_seq = false;
            record.seq = next;
            append.next_seq = Some(next + 1);
        }
    }
    let Some(archive) = archive else {
        let batch: Vec<Record> = append.entries.iter().flat_map(|entry| entry.records.clone()).collect();
        return within_limit(engine.append(&batch)).await;
    };
    // The records of an entry have the same origin.
    let is_numbered =
        |entry: &&SpoolEntry| entry.records.first().is_some_and(|record| record.origin != *host);
    let others = append.entries.iter().filter(|entry| !is_numbered(entry));
    let batch: Vec<Record> = others.flat_map(|entry| entry.records.clone()).collect();
    let numbered = append.entries.iter().enumerate().filter(|(_, entry)| is_numbered(entry));
    let numbered = numbered.map(|(at, entry)| async move {
        match archive.append_numbered(&entry.records).await {
            Err(EngineError::Denied(_)) => Ok(Some(at)),
            other => other.map(|()| None),
        }
    });
    // One commit stores all of them.
    let appended = async {
        let numbered = futures_util::future::try_join_all(numbered);
        futures_util::future::try_join(engine.append(&batch), numbered).await
    };
    let ((), refused) = within_limit(appended).await?;
    append.refused = refused.into_iter().flatten().map(|at| (at, FeedError::ForwardedOrigin)).collect();
    Ok(())
}

async fn within_limit<T>(future: impl Future<Output = Result<T, EngineError>>) -> Result<T, EngineError> {
    match tokio::time::timeout(APPEND_TIMEOUT, future).await {
        Ok(result) => result,
        Err(_) => Err(EngineError::Unknown(format!("no response within {} s", APPEND_TIMEOUT.as_secs()))),
    }
}

/// Maximum number of records in one append, so that a commit takes much less than a second.
const BATCH_RECORDS: usize = 2000;
/// Time limit for the archive's response. If the archive does not respond in this time, the append
/// has failed. This time is longer than the archive's own time limit.
const APPEND_TIMEOUT: Duration = Duration::from_secs(40);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use barograph_forecast::{Outcome, Quantity, SeriesId};

    use super::*;

    /// An entry with `records` records. Tests identify the entry by its first sequence number.
    fn entry(seq: u64, records: usize, is_forwarded: bool) -> SpoolEntry {
        let host = Name::new("a").unwrap();
        let series = SeriesId { source: host.clone(), target: host.clone(), quantity: Quantity::RTT };
        let outcome = Outcome::Value(1.0);
        let record = Record { origin: host, seq, series, time_unix_ns: 0, outcome, detail: String::new() };
        SpoolEntry { is_forwarded, ..SpoolEntry::new(vec![record; records], None) }
    }

    fn numbers<'a>(entries: impl IntoIterator<Item = &'a SpoolEntry>) -> Vec<u64> {
        entries.into_iter().map(|entry| entry.records[0].seq).collect()
    }

    #[test]
    fn mixed_records_take_one_append_for_each_kind_in_order() {
        let mut spool: VecDeque<SpoolEntry> = (0..100).map(|seq| entry(seq, 1, seq % 2 == 1)).collect();
        let own = take_batch(&mut spool, false);
        assert_eq!(numbers(&own), (0..100).step_by(2).collect::<Vec<_>>());
        let forwarded = take_batch(&mut spool, false);
        assert_eq!(numbers(&forwarded), (1..100).step_by(2).collect::<Vec<_>>());
        assert!(spool.is_empty() && take_batch(&mut spool, false).is_empty());
    }

    #[test]
    fn an_append_is_bounded_and_keeps_the_order_of_each_kind() {
        let sizes = [(1500, false), (1, true), (600, false), (1, true), (1, false)];
        let all = || (0..).zip(sizes).map(|(seq, (records, is_forwarded))| entry(seq, records, is_forwarded));
        let mut spool: VecDeque<SpoolEntry> = all().collect();
        assert_eq!(numbers(&take_batch(&mut spool, false)), [0]);
        assert_eq!(numbers(&spool), [1, 2, 3, 4]);
        assert_eq!(numbers(&take_batch(&mut spool, false)), [1, 3]);
        assert_eq!(numbers(&take_batch(&mut spool, false)), [2, 4]);
        // Take entries one by one. An entry larger than a batch is taken alone.
        let mut spool: VecDeque<SpoolEntry> = all().collect();
        assert_eq!(numbers(&take_batch(&mut spool, true)), [0]);
        assert_eq!(numbers(&take_batch(&mut VecDeque::from([entry(7, 3000, false)]), false)), [7]);
    }
}
