//! Rebuilds the batteries from the archive, so that forecasts survive a restart.

use std::collections::{HashMap, HashSet};

use barograph_engine::{Cursor, Engine, EngineError, Range, Record, Selector, original_label_unix_ns};
use barograph_forecast::{Name, Outcome, SeriesId};

use crate::forecast::series::MEMBER_SHARE;
use crate::forecast::series::{Measurement, ObserveResult, SeriesTable};

/// Replays the newest records of every series in the order of their measurement. Returns the number
/// of replayed records. `members` are the names of the stations that append records to this
/// station. `None` = the names are unknown, as with NATS; then every source except this host counts
/// as a member.
///
/// # Errors
/// The error of the archive. The series table then contains the records that were replayed before
/// the error.
pub(crate) async fn replay(
    engine: &dyn Engine,
    series_table: &mut SeriesTable,
    host: &Name,
    members: Option<&HashSet<Name>>,
    now_unix_ns: i64,
) -> Result<usize, EngineError> {
    let (all, left_out) = all_series(engine, series_table, host, members).await?;
    series_table.count_left_out(left_out);
    let each = (RECORDS_MAX / usize::max(1, all.len())).clamp(RECORDS_MIN, RECORDS_OF_SERIES);
    let mut count = 0;
    for series in all {
        if series.source != *host && members.is_none_or(|members| members.contains(&series.source)) {
            series_table.mark_evictable(&series.source);
        }
        let points = newest_points(engine, &series, each, now_unix_ns).await?;
        for ReplayedRecord { time_unix_ns, outcome, detail, .. } in
            in_learning_order(points, host, now_unix_ns)
        {
            let measurement = Measurement { series: series.clone(), time_unix_ns, outcome, detail };
            count += usize::from(matches!(series_table.observe(&measurement), ObserveResult::New(_)));
        }
    }
    series_table.restart_scores();
    Ok(count)
}

/// The parts of a record that forecasting needs.
#[derive(Clone, Debug, PartialEq)]
struct ReplayedRecord {
    origin: Name,
    seq: u64,
    time_unix_ns: i64,
    outcome: Outcome,
    /// Detail of the record if its time label was replaced; otherwise empty.
    detail: String,
}

impl From<Record> for ReplayedRecord {
    fn from(record: Record) -> Self {
        let Record { origin, seq, time_unix_ns, outcome, detail, .. } = record;
        let detail = if original_label_unix_ns(&detail).is_some() { detail } else { String::new() };
        Self { origin, seq, time_unix_ns, outcome, detail }
    }
}

/// Sorts the records of a series into the order in which they were learnt.
///
/// Records of an origin other than `host` keep the order of their sequence numbers, even if the
/// clock of the origin was wrong. Records that `host` numbered are ordered by their labels. But a
/// label in the future is replaced by the label of the previous record, because the clock has been
/// set back since that record.
fn in_learning_order(mut points: Vec<ReplayedRecord>, host: &Name, now_unix_ns: i64) -> Vec<ReplayedRecord> {
    points.sort_by(|a, b| (&a.origin, a.seq).cmp(&(&b.origin, b.seq)));
    let mut times = Vec::with_capacity(points.len());
    for of_origin in points.chunk_by(|a, b| a.origin == b.origin) {
        let first = times.len();
        times.extend(of_origin.iter().map(|point| point.time_unix_ns));
        if of_origin[0].origin != *host {
            // Lower each label to the smallest label of all later records.
            let mut least = i64::MAX;
            for time in times[first..].iter_mut().rev() {
                least = least.min(*time);
                *time = least;
            }
        } else {
            let mut before = i64::MIN;
            for time in &mut times[first..] {
                before = if *time <= now_unix_ns { *time } else { before };
                *time = before;
            }
        }
    }
    let mut timed: Vec<(i64, ReplayedRecord)> = times.into_iter().zip(points).collect();
    timed.sort_by_key(|(time, _)| *time);
    timed.into_iter().map(|(_, point)| point).collect()
}

/// Selects the series that fit into the series table: first the station's own series and the series
/// that are reserved for members. As with new records, a member gets no more series than its share.
/// Also returns the number of series for which the table has no room, without the series beyond a
/// member's share.
async fn all_series(
    engine: &dyn Engine,
    series_table: &SeriesTable,
    host: &Name,
    members: Option<&HashSet<Name>>,
) -> Result<(Vec<SeriesId>, usize), EngineError> {
    let (room, share) = (series_table.room(), series_table.series_max() / MEMBER_SHARE);
    let (mut first, mut applications, mut beyond, mut left_out) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let mut taken: HashMap<Name, usize> = HashMap::new();
    let mut after: Option<Cursor> = None;
    loop {
        let page = engine.latest(&Selector::default(), after, PAGE).await?;
        let shown =
            page.items.into_iter().filter(|record| !series_table.hides(&record.series, record.time_unix_ns));
        for series in shown.map(|record| record.series) {
            let taken = taken.entry(series.source.clone()).or_default();
            let is_member = || members.is_none_or(|members| members.contains(&series.source));
            let found = if series.source == *host || *taken < series_table.reserved_for(&series.source) {
                &mut first
            } else if !is_member() {
                &mut applications
            } else if *taken < share {
                &mut beyond
            } else {
                continue;
            };
            *taken += 1;
            if room <= found.len() {
                left_out += 1;
                continue;
            }
            found.push(series);
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    first.append(&mut applications);
    left_out += (first.len() + beyond.len()).saturating_sub(room);
    first.truncate(room);
    beyond.truncate(
        (room - first.len()).saturating_sub(series_table.unused_reserve(|source| taken.get(source).copied())),
    );
    first.append(&mut beyond);
    Ok((first, left_out))
}

/// Returns the newest `count` records. At most half of these records have labels in the future. So
/// if a clock was ahead for a long time, the records of that time do not displace the records
/// before and after.
async fn newest_points(
    engine: &dyn Engine,
    series: &SeriesId,
    count: usize,
    now_unix_ns: i64,
) -> Result<Vec<ReplayedRecord>, EngineError> {
    let from_now = now_unix_ns.saturating_add(1);
    let ahead = Range { from_unix_ns: from_now, ..Range::newest(1) };
    let mut points = newest_of(engine, series, ahead, count / 2).await?;
    let count = count - points.len();
    points.extend(
        newest_of(engine, series, Range { until_unix_ns: from_now, ..Range::newest(1) }, count).await?,
    );
    Ok(points)
}

/// Reads the newest records, keeps only the parts that forecasting needs, and frees each page after
/// reading.
async fn newest_of(
    engine: &dyn Engine,
    series: &SeriesId,
    mut range: Range,
    count: usize,
) -> Result<Vec<ReplayedRecord>, EngineError> {
    let mut points = Vec::new();
    while points.len() < count {
        range.limit = usize::min(PAGE, count - points.len());
        let page = engine.history(series, &range).await?;
        points.extend(page.items.into_iter().map(ReplayedRecord::from));
        range.after = page.next;
        if range.after.is_none() {
            break;
        }
    }
    Ok(points)
}

/// Maximum number of records to replay for one series: more than a day of values every 10 s.
const RECORDS_OF_SERIES: usize = 10_000;
/// Maximum number of records to replay for all series together, so that the start takes seconds,
/// not minutes.
const RECORDS_MAX: usize = 1_000_000;
/// Minimum number of records to replay for each series: as many as the page shows.
const RECORDS_MIN: usize = 512;
/// Number of records to read at once.
const PAGE: usize = 1000;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn point(origin: &str, seq: u64, time_unix_ns: i64) -> ReplayedRecord {
        let outcome = Outcome::Value(seq as f64);
        ReplayedRecord { origin: name(origin), seq, time_unix_ns, outcome, detail: String::new() }
    }

    fn order(points: &[(&str, u64, i64)], now_unix_ns: i64) -> Vec<(String, u64)> {
        let points = points.iter().map(|&(origin, seq, time)| point(origin, seq, time)).collect();
        let ordered = in_learning_order(points, &name("here"), now_unix_ns);
        ordered.into_iter().map(|point| (point.origin.to_string(), point.seq)).collect()
    }

    proptest! {
        #[test]
        fn records_of_another_origin_keep_their_sequence_order(times in proptest::collection::vec(0_i64..100, 0..40)) {
            let points: Vec<_> = (1..).zip(&times).map(|(seq, time)| ("b", seq, *time)).collect();
            let seqs: Vec<u64> = order(&points, 50).into_iter().map(|(_, seq)| seq).collect();
            prop_assert_eq!(seqs, (1..=times.len() as u64).collect::<Vec<_>>());
        }
    }

    #[test]
    fn own_records_with_future_labels_keep_their_sequence_order() {
        let jumped = [("here", 1, 10), ("here", 2, 20), ("here", 3, 900), ("here", 4, 901), ("here", 5, 30)];
        let seqs: Vec<u64> = order(&jumped, 40).into_iter().map(|(_, seq)| seq).collect();
        assert_eq!(seqs, [1, 2, 3, 4, 5]);
        // A record that was submitted late is sorted by its label.
        let late = [("here", 1, 10), ("here", 2, 30), ("here", 3, 20), ("x", 1, 25)];
        let expected = [("here", 1), ("here", 3), ("x", 1), ("here", 2)];
        assert_eq!(order(&late, 40), expected.map(|(origin, seq)| (origin.to_string(), seq)));
    }

    #[tokio::test]
    async fn a_member_gets_its_share_and_the_station_s_own_series_come_first() {
        let state = tempfile::tempdir().unwrap();
        let engine = barograph_engine::Local::open(barograph_engine::LocalConfig::new(state.path())).unwrap();
        let record = |source: &str, target: usize| Record {
            origin: name(source),
            seq: target as u64,
            series: SeriesId {
                source: name(source),
                target: name(&format!("t{target}")),
                quantity: barograph_forecast::Quantity::RTT,
            },
            time_unix_ns: crate::time::now_unix_ns(),
            outcome: Outcome::Value(1.0),
            detail: String::new(),
        };
        let members: Vec<Record> = (1..=20).map(|target| record("b", target)).collect();
        engine.append(&members).await.unwrap();
        let others: Vec<Record> =
            (1..=3).flat_map(|target| ["app", "here"].map(|of| record(of, target))).collect();
        engine.append(&others).await.unwrap();
        let members = HashSet::from([name("b")]);
        for (members, expected) in [(Some(&members), [3, 2, 3]), (None, [3, 2, 2])] {
            let mut series_table = SeriesTable::new(8);
            let now_unix_ns = crate::time::now_unix_ns();
            replay(&engine, &mut series_table, &name("here"), members, now_unix_ns).await.unwrap();
            assert_eq!(["here", "b", "app"].map(|source| series_table.count_of(&name(source))), expected);
        }
        // Three of eight series are reserved for a member without series.
        let mut series_table = SeriesTable::new(8);
        series_table.reserve([(name("c"), 3), (name("b"), 1)].into());
        replay(&engine, &mut series_table, &name("here"), None, crate::time::now_unix_ns()).await.unwrap();
        assert_eq!(["here", "b", "app"].map(|source| series_table.count_of(&name(source))), [3, 2, 0]);
        // A station that joins later gets reserved room: a series of a member that has measured
        // nothing since the replay is dropped.
        let mut series_table = SeriesTable::new(8);
        replay(&engine, &mut series_table, &name("here"), Some(&members), crate::time::now_unix_ns())
            .await
            .unwrap();
        series_table.reserve([(name("c"), 2), (name("b"), 1)].into());
        for target in 1..=2 {
            let Record { series, time_unix_ns, outcome, detail, .. } = record("c", target);
            series_table.observe(&Measurement { series, time_unix_ns, outcome, detail });
        }
        assert_eq!(["here", "b", "app", "c"].map(|of| series_table.count_of(&name(of))), [3, 1, 3, 1]);
    }
}
