//! Impossible labels and numbers of a station, through a server into the archive.

use std::sync::Arc;

use barograph_engine::{Engine, Nats, Range, Record, original_label_unix_ns};

use crate::nats::server::{self, NatsServer};
use crate::nats::values::{eventually, name, record};

/// A label in the year 2100, and a sequence number with only five numbers above it: the archive
/// replaces the label by the time of arrival, and does not store the record with that number.
#[tokio::test]
async fn implausible_labels_and_numbers_do_not_affect_later_records() {
    const YEAR_2100_NS: i64 = 4_102_444_800_000_000_000;
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
    let [nats, north] =
        ["archive", "north"].map(|host| Nats::new(server::config(&server.url, host)).unwrap());
    let nats = Arc::new(nats);
    let (_archiver, local) = server::archive(&nats, directory.path());
    let mut batch: Vec<Record> = (1..=5).map(|seq| record("north", "south", seq)).collect();
    batch[2].time_unix_ns = YEAR_2100_NS;
    let far = Record::SEQ_MAX - 5;
    batch.insert(3, Record { seq: far, ..record("north", "south", 9) });
    batch.push(Record::skip_marker(&name("north"), 6, far));
    north.append(&batch).await.unwrap();
    eventually("the watermark", async || north.watermark(&name("north")).await.ok().filter(|seq| *seq == 5))
        .await;
    assert_eq!(north.next_seq(&name("north")).await, Ok(6));
    let series = batch[0].series.clone();
    let found = local.history(&series, &Range::newest(10)).await.unwrap().items;
    assert_eq!(found.iter().map(|record| record.seq).collect::<Vec<_>>(), [3, 5, 4, 2, 1]);
    assert_eq!(original_label_unix_ns(&found[0].detail), Some(YEAR_2100_NS));
    assert!(found[0].time_unix_ns < YEAR_2100_NS);
    let latest = Record { time_unix_ns: YEAR_2100_NS, ..record("north", "south", 6) };
    north.append(&[latest]).await.unwrap();
    let ahead = eventually("the clock", async || local.clocks_ahead().pop()).await;
    assert_eq!(ahead.0, name("north"));
}
