//! The suite that every implementation passes: the promises of [`Engine`] as checks.
//!
//! An implementation provides a [`Fixture`] and expands
//! [`conformance_tests!`](crate::conformance_tests) in a test file. The macro makes each check a
//! test. A check panics if a promise is broken. No check waits longer than [`LIMIT`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use barograph_forecast::{Battery, Failure, Name, Outcome, Quantity, SeriesId};
use futures_util::StreamExt as _;

use crate::{
    BoxStream, Capabilities, Cursor, Engine, EngineError, Entry, Event, Group, HostId, Lease, Page, Range,
    Record, Selector, StartAt, original_label_unix_ns,
};

/// Makes and restarts the engine under test.
#[async_trait::async_trait]
pub trait Fixture: Send + Sync {
    /// Makes an engine with no records and no registrations.
    async fn fresh(&self) -> Arc<dyn Engine>;

    /// Stops the archive of the engine and starts that archive again with the same data.
    async fn restart(&self, engine: Arc<dyn Engine>) -> Arc<dyn Engine>;

    /// Removes a station as an administrator of the mesh would.
    async fn remove(&self, engine: &dyn Engine, host: &HostId) {
        engine.remove(host).await.expect("the station is removed");
    }

    /// Permits a removed station to register again, if the engine requires a permission.
    async fn admit(&self, _engine: &dyn Engine, _host: &HostId) {}

    /// Makes the holder of a lease die without a message: kills its process, or cuts its
    /// connection.
    ///
    /// The default ends a task without releasing anything. If the whole engine runs in one process,
    /// no other default is possible, because the directory dies together with the holder. The
    /// fixture of an engine with several processes must override this method: otherwise
    /// [`a_dead_lease_holder_is_down_within_the_ttl_and_a_second`] does not test the TTL.
    async fn kill_holder(&self, lease: Box<dyn Lease>) {
        let holder = tokio::spawn(async move {
            let _lease = lease;
            std::future::pending::<()>().await;
        });
        holder.abort();
        assert!(holder.await.is_err_and(|end| end.is_cancelled()), "it ended by itself");
    }
}

/// Turns each check into a `#[tokio::test]`. The argument is an expression that makes a
/// [`Fixture`].
///
/// With `if`, each test passes without a check if the condition is false. With `one_writer:`, the
/// check that writes as several stations is omitted.
#[macro_export]
macro_rules! conformance_tests {
    ($fixture:expr $(, if $there:expr)?) => {
        $crate::conformance_tests!($fixture $(, if $there)?; a_subscription_keeps_the_order_of_each_series);
        $crate::conformance_tests!(one_writer: $fixture $(, if $there)?);
    };
    (one_writer: $fixture:expr $(, if $there:expr)?) => {
        $crate::conformance_tests!($fixture $(, if $there)?;
            watch_gives_a_snapshot_then_synced_then_changes,
            a_dead_lease_holder_is_down_within_the_ttl_and_a_second,
            an_older_lease_does_not_end_a_newer_registration,
            a_removed_station_is_reported_until_it_registers_again,
            a_record_is_read_exactly_as_appended,
            a_label_far_in_the_future_is_preserved,
            a_record_appended_twice_is_stored_once,
            a_batch_with_an_invalid_record_stores_nothing,
            the_watermark_stops_at_the_first_gap,
            history_pages_join_without_gap_or_overlap,
            history_returns_only_records_in_its_range,
            latest_returns_the_newest_record_of_every_selected_series,
            a_page_of_latest_is_limited_in_bytes,
            a_page_limit_outside_its_bounds_is_refused,
            a_subscription_resumes_after_a_cursor,
            a_slow_subscriber_receives_the_number_of_missed_records,
            acknowledged_records_survive_a_restart,
        );
    };
    ($fixture:expr, if $there:expr; $($check:ident),+ $(,)?) => {
        $(
            #[tokio::test]
            async fn $check() {
                if $there {
                    $crate::conformance::$check(&$fixture).await;
                }
            }
        )+
    };
    ($fixture:expr; $($check:ident),+ $(,)?) => {
        $crate::conformance_tests!($fixture, if true; $($check),+);
    };
}

/// Longest wait of a check, far above what any engine needs.
pub const LIMIT: Duration = Duration::from_secs(30);

/// [`Engine::watch`] reports `Up` for each registered station of the requested group, then
/// `Synced`, then every change in that group.
pub async fn watch_gives_a_snapshot_then_synced_then_changes(fixture: &dyn Fixture) {
    let engine = fixture.fresh().await;
    let [north, south, other] = ["north", "south", "other"].map(|host| entry(host, &["local"]));
    let elsewhere = entry("elsewhere", &["global"]);
    let _elsewhere = register(&*engine, &elsewhere).await;
    let _north = register(&*engine, &north).await;
    let _south = register(&*engine, &south).await;

    let mut events = engine.watch(&name("local"));
    let mut snapshot = [next(&mut events).await, next(&mut events).await];
    snapshot.sort_by_key(|event| format!("{event:?}"));
    assert_eq!(snapshot, [Event::Up(north), Event::Up(south.clone())]);
    assert_eq!(next(&mut events).await, Event::Synced);

    let lease = register(&*engine, &other).await;
    assert_eq!(next(&mut events).await, Event::Up(other.clone()));
    drop(lease);
    assert_eq!(next(&mut events).await, Event::Down(other.host));

    let changed = Entry { version: "2".into(), ..south.clone() };
    let _changed = register(&*engine, &changed).await;
    assert_eq!(next(&mut events).await, Event::Up(changed));
    let gone_over = Entry { groups: vec![name("global")], ..south };
    let _gone_over = register(&*engine, &gone_over).await;
    assert_eq!(next(&mut events).await, Event::Down(gone_over.host), "it left the group");
}

/// [`Engine::register`]: the entry disappears within the TTL plus one second after
/// [`Fixture::kill_holder`] made its holder die. If the fixture has the default `kill_holder`, this
/// check does not test the TTL.
pub async fn a_dead_lease_holder_is_down_within_the_ttl_and_a_second(fixture: &dyn Fixture) {
    let engine = fixture.fresh().await;
    let north = entry("north", &["local"]);
    let mut events = engine.watch(&name("local"));
    assert_eq!(next(&mut events).await, Event::Synced);
    let lease = register(&*engine, &north).await;
    assert_eq!(next(&mut events).await, Event::Up(north.clone()));

    let longest = lease.ttl() + Duration::from_secs(1);
    fixture.kill_holder(lease).await;
    let event = tokio::time::timeout(longest, events.next()).await.expect("down within the TTL and a second");
    assert_eq!(event, Some(Ok(Event::Down(north.host))));
}

/// [`Engine::register`] of the same host replaces its entry and its lease.
pub async fn an_older_lease_does_not_end_a_newer_registration(fixture: &dyn Fixture) {
    let engine = fixture.fresh().await;
    let north = entry("north", &["local"]);
    let older = register(&*engine, &north).await;
    let newer = register(&*engine, &north).await;
    let mut events = engine.watch(&name("local"));
    assert_eq!(next(&mut events).await, Event::Up(north.clone()));
    assert_eq!(next(&mut events).await, Event::Synced);

    drop(older);
    // The test registers `south` as a marker. Its entry is the next event, so there was no event
    // before it.
    let south = entry("south", &["local"]);
    let _south = register(&*engine, &south).await;
    assert_eq!(next(&mut events).await, Event::Up(south));
    drop(newer);
    assert_eq!(next(&mut events).await, Event::Down(north.host));
}

/// [`Engine::remove`] is reported to every group, also for a station that was down, and to watches
/// that begin later. If a station leaves by itself, the event is [`Event::Down`].
pub async fn a_removed_station_is_reported_until_it_registers_again(fixture: &dyn Fixture) {
    let engine = fixture.fresh().await;
    let north = entry("north", &["local"]);
    let mut local = engine.watch(&name("local"));
    let mut global = engine.watch(&name("global"));
    assert_eq!(next(&mut local).await, Event::Synced);
    assert_eq!(next(&mut global).await, Event::Synced);
    let lease = register(&*engine, &north).await;
    assert_eq!(next(&mut local).await, Event::Up(north.clone()));
    fixture.remove(&*engine, &north.host).await;
    assert_eq!(next(&mut local).await, Event::Removed(north.host.clone()));
    assert_eq!(next(&mut global).await, Event::Removed(north.host.clone()));
    // Dropping the lease of a removed station has no effect.
    drop(lease);
    let mut late = engine.watch(&name("local"));
    assert_eq!(next(&mut late).await, Event::Synced);
    assert_eq!(next(&mut late).await, Event::Removed(north.host.clone()));

    fixture.admit(&*engine, &north.host).await;
    let lease = register(&*engine, &north).await;
    assert_eq!(next(&mut local).await, Event::Up(north.clone()));
    let mut late = engine.watch(&name("local"));
    assert_eq!(next(&mut late).await, Event::Up(north.clone()));
    assert_eq!(next(&mut late).await, Event::Synced);
    drop(lease);
    for events in [&mut local, &mut late] {
        assert_eq!(next(events).await, Event::Down(north.host.clone()));
    }
    // After its removal, `north` registered again and then left. So `north` is down, and does not
    // count as removed.
    let mut latest = engine.watch(&name("local"));
    assert_eq!(next(&mut latest).await, Event::Synced);
    let south = entry("south", &["local"]);
    let _south = register(&*engine, &south).await;
    for events in [&mut local, &mut late, &mut latest] {
        assert_eq!(next(events).await, Event::Up(south.clone()));
    }
    fixture.remove(&*engine, &north.host).await;
    for events in [&mut local, &mut late, &mut latest] {
        assert_eq!(next(events).await, Event::Removed(north.host.clone()), "it was down already");
    }
}

/// Values, failures, details and extremes are stored exactly.
pub async fn a_record_is_read_exactly_as_appended(fixture: &dyn Fixture) {
    let engine = fixture.fresh().await;
    // Values of the quantity `level` may be negative.
    let own = SeriesId { quantity: Quantity::new("level").expect("a quantity"), ..series("south") };
    let record = |seq| Record { series: own.clone(), ..record(seq) };
    let mut outcomes = vec![
        0.0,
        -1.5,
        0.1,
        f64::MIN_POSITIVE,
        Battery::VALUE_MAX,
        -Battery::VALUE_MAX,
        9_007_199_254_740_993.0,
    ]
    .into_iter();
    let mut records: Vec<Record> = (1..)
        .zip(&mut outcomes)
        .map(|(seq, value)| Record { outcome: Outcome::Value(value), ..record(seq) })
        .collect();
    for (seq, failure) in (100..).zip(Failure::ALL) {
        records.push(Record { outcome: Outcome::Failed { failure, after_s: 0.25 }, ..record(seq) });
    }
    records.push(Record { time_unix_ns: 0, ..record(200) });
    records
        .push(Record {
            detail: "{\"min_rtt_s\": 1e-4, \"of\": \"Zürich \\u0000 🌩\"}".into(), ..record(201)
        });
    let longest = format!("{{\"x\":\"{}\"}}", "x".repeat(Record::DETAIL_BYTES_MAX - 8));
    records.push(Record { detail: longest, ..record(202) });
    append(&*engine, &records).await;

    let mut found =
        engine.history(&own, &Range::newest(Range::LIMIT_MAX)).await.expect("a page of history").items;
    found.sort_by_key(|record| record.seq);
    records.sort_by_key(|record| record.seq);
    assert_eq!(found, records);
}

/// [`Engine::append`] stores a label far in the future unchanged, or replaces the label by the time
/// of arrival and keeps the original label in the detail.
pub async fn a_label_far_in_the_future_is_preserved(fixture: &dyn Fixture) {
    let engine = fixture.fresh().await;
    let label = Record::TIME_MAX_UNIX_NS;
    append(&*engine, &[Record { time_unix_ns: label, ..record(1) }]).await;
    let [found] = &history(&*engine, &Range::newest(10)).await.items[..] else { panic!("one record") };
    let said = original_label_unix_ns(&found.detail).unwrap_or(found.time_unix_ns);
    assert_eq!((found.seq, found.outcome, said), (1, record(1).outcome, label));
}

/// [`Engine::append`] is idempotent within a batch and between batches. The first record counts.
pub async fn a_record_appended_twice_is_stored_once(fixture: &dyn Fixture) {
    let engine = fixture.fresh().await;
    append(&*engine, &[]).await;
    append(&*engine, &[record(1), record(2), record(2)]).await;
    append(&*engine, &[record(1), record(2)]).await;
    let other_value = Record { outcome: Outcome::Value(7.0), ..record(2) };
    append(&*engine, &[other_value, record(3)]).await;
    // (origin, seq) identifies a record: two origins may use the same number for different records.
    let other = SeriesId { source: name("south"), ..series("south") };
    let other = Record { origin: name("south"), series: other, ..record(3) };
    append(&*engine, std::slice::from_ref(&other)).await;

    let found = history(&*engine, &Range::newest(100)).await.items;
    assert_eq!(seqs(&found), [3, 2, 1]);
    assert_eq!(found[1], record(2));
    let found = engine.history(&other.series, &Range::newest(100)).await;
    assert_eq!(found.expect("a page of history").items, [other]);
}

/// [`Engine::append`] stores nothing of a batch that it refuses.
pub async fn a_batch_with_an_invalid_record_stores_nothing(fixture: &dyn Fixture) {
    let engine = fixture.fresh().await;
    let failed = |after_s| Outcome::Failed { failure: Failure::TimedOut, after_s };
    let invalid = [
        Record { outcome: Outcome::Value(f64::NAN), ..record(2) },
        Record { outcome: Outcome::Value(f64::INFINITY), ..record(2) },
        Record { outcome: Outcome::Value(1.000_001 * Battery::VALUE_MAX), ..record(2) },
        Record { outcome: Outcome::Value(-f64::MAX), ..record(2) },
        Record { outcome: failed(f64::NAN), ..record(2) },
        Record { outcome: failed(-1.0), ..record(2) },
        Record { seq: 0, ..record(2) },
        Record { seq: Record::SEQ_MAX + 1, ..record(2) },
        Record { time_unix_ns: -1, ..record(2) },
        Record { time_unix_ns: Record::TIME_MAX_UNIX_NS + 1, ..record(2) },
        Record { detail: "x".repeat(Record::DETAIL_BYTES_MAX + 1), ..record(2) },
        Record { detail: "\0".into(), ..record(2) },
    ];
    for invalid in invalid {
        let refused = engine.append(&[record(1), invalid.clone()]).await;
        assert!(matches!(refused, Err(EngineError::Invalid(_))), "{invalid:?} gave {refused:?}");
    }
    let too_many: Vec<Record> = (1..=Record::BATCH_MAX as u64 + 1).map(record).collect();
    assert!(matches!(engine.append(&too_many).await, Err(EngineError::Invalid(_))));
    assert_eq!(history(&*engine, &Range::newest(100)).await.items, []);
    assert_eq!(engine.next_seq(&name("north")).await, Ok(1));
}

/// [`Engine::watermark`] and [`Engine::next_seq`] are correct with gaps, and with records out of
/// order.
pub async fn the_watermark_stops_at_the_first_gap(fixture: &dyn Fixture) {
    let engine = fixture.fresh().await;
    let steps: [(&[u64], u64, u64); 7] = [
        (&[], 0, 1),
        (&[2], 0, 3),
        (&[1], 2, 3),
        (&[6, 5], 2, 7),
        (&[4, 9], 2, 10),
        (&[3], 6, 10),
        (&[8, 7, 3], 9, 10),
    ];
    for (seqs, watermark, next_seq) in steps {
        append(&*engine, &seqs.iter().map(|&seq| record(seq)).collect::<Vec<_>>()).await;
        assert_eq!(engine.watermark(&name("north")).await, Ok(watermark), "after {seqs:?}");
        assert_eq!(engine.next_seq(&name("north")).await, Ok(next_seq), "after {seqs:?}");
    }
    assert_eq!(engine.watermark(&name("south")).await, Ok(0), "of an origin that wrote nothing");

    append(&*engine, &[Record { seq: Record::SEQ_JUMP_MAX, ..record(10) }]).await;
    assert_eq!(engine.next_seq(&name("north")).await, Ok(Record::SEQ_JUMP_MAX + 1));
    append(&*engine, &[Record { seq: Record::SEQ_JUMP_MAX + 2, ..record(10) }]).await;
    assert_eq!(engine.next_seq(&name("north")).await, Ok(Record::SEQ_JUMP_MAX + 3));
    append(&*engine, &[record(10)]).await;
    assert_eq!(engine.watermark(&name("north")).await, Ok(10));
}

/// [`Engine::history`] returns the newest record first. The order is stable for records with equal
/// times, and while newer records arrive.
pub async fn history_pages_join_without_gap_or_overlap(fixture: &dyn Fixture) {
    const LIMIT: usize = 4;
    for count in [0, 1, LIMIT, LIMIT + 1, 3 * LIMIT] {
        let engine = fixture.fresh().await;
        // Each time label belongs to two records, and the oldest record arrives last.
        let mut records: Vec<Record> = (1..=count as u64)
            .map(|seq| Record { time_unix_ns: START_UNIX_NS + (seq / 2).cast_signed(), ..record(seq) })
            .collect();
        records.reverse();
        for record in &records {
            append(&*engine, std::slice::from_ref(record)).await;
        }
        let whole = history(&*engine, &Range::newest(100)).await;
        assert_eq!((whole.items.len(), whole.next), (count, None));
        assert!(whole.items.is_sorted_by(|a, b| b.time_unix_ns <= a.time_unix_ns), "newest first");

        let mut joined = Vec::new();
        let mut range = Range::newest(LIMIT);
        for page_number in 1.. {
            let page = history(&*engine, &range).await;
            joined.extend(page.items);
            // A newer record belongs before the first page, so the later pages do not change.
            append(&*engine, &[Record { time_unix_ns: i64::MAX / 2, ..record(1000 + page_number) }]).await;
            range.after = page.next;
            if range.after.is_none() {
                assert_eq!(page_number as usize, count.div_ceil(LIMIT).max(1), "pages of {count}");
                break;
            }
        }
        assert_eq!(joined, whole.items);
    }
}

/// [`Engine::history`] includes records at the start of the range, excludes records at its end, and
/// returns records of the requested series only.
pub async fn history_returns_only_records_in_its_range(fixture: &dyn Fixture) {
    let engine = fixture.fresh().await;
    append(&*engine, &(1..=9).map(record).collect::<Vec<_>>()).await;
    append(&*engine, &[Record { series: series("elsewhere"), ..record(10) }]).await;
    let cases = [(3, 6, vec![5, 4, 3]), (3, 3, vec![]), (6, 3, vec![]), (9, 100, vec![9]), (-5, 2, vec![1])];
    for (from, until, expected) in cases {
        let time = |seq: i64| START_UNIX_NS + seq * SECOND_NS;
        let range = Range { from_unix_ns: time(from), until_unix_ns: time(until), ..Range::newest(100) };
        assert_eq!(seqs(&history(&*engine, &range).await.items), expected, "from {from} until {until}");
    }
    let unknown = engine.history(&series("unknown"), &Range::newest(1)).await;
    assert_eq!(unknown, Ok(Page { items: vec![], next: None }));
}

/// [`Engine::latest`] selects the newest record by time, not by arrival. The function applies the
/// selector, and returns the result in pages.
pub async fn latest_returns_the_newest_record_of_every_selected_series(fixture: &dyn Fixture) {
    const SERIES: u64 = 5;
    let engine = fixture.fresh().await;
    let of = |target: u64, seq: u64| Record { series: series(&format!("target{target}")), ..record(seq) };
    for target in 0..SERIES {
        let base = 10 * target;
        append(&*engine, &[of(target, base + 1), of(target, base + 3), of(target, base + 2)]).await;
    }
    for limit in [1, 2, 4, 5, 6] {
        let mut newest = BTreeMap::new();
        let mut after = None;
        loop {
            let page = engine.latest(&Selector::default(), after, limit).await.expect("a page of the newest");
            assert!(page.items.len() <= limit);
            for record in page.items {
                assert_eq!(
                    newest.insert(record.series.target.to_string(), record.seq),
                    None,
                    "a series came twice"
                );
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let expected = (0..SERIES).map(|target| (format!("target{target}"), 10 * target + 3)).collect();
        assert_eq!(newest, expected, "in pages of {limit}");
    }
    let all = series("target2");
    let selectors = [
        (Selector { target: Some(all.target), ..Selector::default() }, 1),
        (Selector { source: Some(all.source), quantity: Some(all.quantity), ..Selector::default() }, SERIES),
        (Selector { source: Some(name("nobody")), ..Selector::default() }, 0),
        (Selector { quantity: Some(Quantity::LOSS), ..Selector::default() }, 0),
    ];
    for (selector, count) in selectors {
        let page = engine.latest(&selector, None, 100).await.expect("the newest of the selected");
        assert_eq!((page.items.len() as u64, page.next), (count, None), "{selector:?}");
    }
}

/// [`Engine::latest`]: a page has at most [`Range::BYTES_MAX`] bytes, and the next page continues
/// after it.
pub async fn a_page_of_latest_is_limited_in_bytes(fixture: &dyn Fixture) {
    const SERIES: u64 = 1_100;
    let engine = fixture.fresh().await;
    let detail = format!("{{\"x\":\"{}\"}}", "x".repeat(Record::DETAIL_BYTES_MAX - 8));
    let of =
        |seq: u64| Record { series: series(&format!("target{seq}")), detail: detail.clone(), ..record(seq) };
    for first in (1..=SERIES).step_by(100) {
        let batch: Vec<Record> = (first..(first + 100).min(SERIES + 1)).map(of).collect();
        append(&*engine, &batch).await;
    }
    let (mut seqs, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = engine.latest(&Selector::default(), after, Range::LIMIT_MAX).await.expect("a page");
        let bytes: usize = page.items.iter().map(|record| record.detail.len()).sum();
        assert!(bytes <= Range::BYTES_MAX, "{bytes} bytes of details in one page");
        seqs.extend(page.items.iter().map(|record| record.seq));
        (after, pages) = (page.next, pages + 1);
        if after.is_none() {
            break;
        }
    }
    seqs.sort_unstable();
    assert_eq!(seqs, Vec::from_iter(1..=SERIES));
    assert!((2..=3).contains(&pages), "{pages} pages");
}

/// [`Range::limit`] outside its bounds is refused.
pub async fn a_page_limit_outside_its_bounds_is_refused(fixture: &dyn Fixture) {
    let engine = fixture.fresh().await;
    for limit in [0, Range::LIMIT_MAX + 1] {
        let refused = engine.history(&series("south"), &Range::newest(limit)).await;
        assert!(matches!(refused, Err(EngineError::Invalid(_))), "history of {limit} gave {refused:?}");
        let refused = engine.latest(&Selector::default(), None, limit).await;
        assert!(matches!(refused, Err(EngineError::Invalid(_))), "latest of {limit} gave {refused:?}");
    }
}

/// [`Engine::subscribe`] returns the selected records; the records of each series are in the order
/// of their appends.
pub async fn a_subscription_keeps_the_order_of_each_series(fixture: &dyn Fixture) {
    const EACH: u64 = 50;
    let engine = fixture.fresh().await;
    append(&*engine, &[record(1)]).await;
    let selector = Selector { quantity: Some(Quantity::RTT), ..Selector::default() };
    let mut records = engine.subscribe(&selector, StartAt::Now);
    let writers = ["east", "west"].map(|origin| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            for seq in 1..=EACH {
                // A station writes only its own measurements.
                let own = SeriesId { source: name(origin), ..series(origin) };
                let rtt = Record { origin: name(origin), series: own.clone(), ..record(seq) };
                let loss = SeriesId { quantity: Quantity::LOSS, ..own };
                let outcome = Outcome::Value(0.125);
                let unwanted = Record { seq: EACH + seq, series: loss, outcome, ..rtt.clone() };
                append(&*engine, &[rtt, unwanted]).await;
            }
        })
    });
    let mut seen: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut last = Cursor(0);
    for _ in 0..2 * EACH {
        let (cursor, record) = next(&mut records).await;
        assert!(last < cursor, "{cursor:?} came after {last:?}");
        last = cursor;
        seen.entry(record.series.target.to_string()).or_default().push(record.seq);
    }
    for writer in writers {
        writer.await.expect("the writer finished");
    }
    let expected: Vec<u64> = (1..=EACH).collect();
    assert_eq!(seen, BTreeMap::from(["east", "west"].map(|target| (target.to_string(), expected.clone()))));
}

/// [`Engine::subscribe`] resumes after a cursor.
pub async fn a_subscription_resumes_after_a_cursor(fixture: &dyn Fixture) {
    let engine = fixture.fresh().await;
    append(&*engine, &(1..=6).map(record).collect::<Vec<_>>()).await;
    let mut all = engine.subscribe(&Selector::default(), StartAt::Oldest);
    let mut after = Cursor(0);
    for seq in 1..=3 {
        let (cursor, record) = next(&mut all).await;
        assert_eq!(record.seq, seq);
        after = cursor;
    }
    drop(all);
    append(&*engine, &[record(7)]).await;
    let mut rest = engine.subscribe(&Selector::default(), StartAt::After(after));
    for seq in 4..=7 {
        assert_eq!(next(&mut rest).await.1.seq, seq);
    }
    append(&*engine, &[record(8)]).await;
    assert_eq!(next(&mut rest).await.1.seq, 8, "and goes on live");
}

/// [`Engine::subscribe`] reports the number of records that a slow subscriber missed, and includes
/// every missed record in that number.
pub async fn a_slow_subscriber_receives_the_number_of_missed_records(fixture: &dyn Fixture) {
    const BATCHES: u64 = 24;
    const EACH: u64 = 1000;
    let engine = fixture.fresh().await;
    let mut records = engine.subscribe(&Selector::default(), StartAt::Now);
    for batch in 0..BATCHES {
        append(&*engine, &(1..=EACH).map(|seq| record(batch * EACH + seq)).collect::<Vec<_>>()).await;
    }
    let mut expected = 1;
    while expected <= BATCHES * EACH {
        match tokio::time::timeout(self::LIMIT, records.next()).await.expect("a record or a note in time") {
            Some(Ok((_, record))) => {
                assert_eq!(record.seq, expected, "a gap without a note");
                expected += 1;
            }
            Some(Err(EngineError::Lagged { missed })) => expected += missed,
            other => panic!("neither a record nor a note: {other:?}"),
        }
    }
    let end = BATCHES * EACH + 1;
    append(&*engine, &[record(end)]).await;
    assert_eq!(next(&mut records).await.1.seq, end, "the stream goes on");
}

/// [`Engine::append`]: acknowledged records, and the identities of records, survive a restart.
pub async fn acknowledged_records_survive_a_restart(fixture: &dyn Fixture) {
    let mut engine = fixture.fresh().await;
    let mut records = Vec::new();
    let mut after = Cursor(0);
    for round in 0..3 {
        let batch = [record(10 * round + 1), record(10 * round + 2)];
        append(&*engine, &batch).await;
        records.extend(batch);
        engine = fixture.restart(engine).await;
        append(&*engine, &records).await;

        let mut found = history(&*engine, &Range::newest(100)).await.items;
        found.reverse();
        assert_eq!(found, records);
        assert_eq!(engine.watermark(&name("north")).await, Ok(2));
        assert_eq!(engine.next_seq(&name("north")).await, Ok(10 * round + 3));
        let mut fresh = engine.subscribe(&Selector::default(), StartAt::After(after));
        for seq in [10 * round + 1, 10 * round + 2] {
            let (cursor, record) = next(&mut fresh).await;
            assert_eq!(record.seq, seq, "cursors outlive a restart");
            after = cursor;
        }
    }
}

async fn register(engine: &dyn Engine, entry: &Entry) -> Box<dyn Lease> {
    engine.register(entry, TTL).await.expect("registered")
}

async fn append(engine: &dyn Engine, batch: &[Record]) {
    tokio::time::timeout(LIMIT, engine.append(batch)).await.expect("acknowledged in time").expect("appended");
}

async fn history(engine: &dyn Engine, range: &Range) -> Page<Record> {
    engine.history(&series("south"), range).await.expect("a page of history")
}

async fn next<T>(stream: &mut BoxStream<T>) -> T {
    let item = tokio::time::timeout(LIMIT, stream.next()).await.expect("an item in time");
    item.expect("the stream goes on").expect("an item")
}

fn seqs(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.seq).collect()
}

fn name(text: &str) -> Group {
    Name::new(text).expect("a name")
}

fn series(target: &str) -> SeriesId {
    SeriesId { source: name("north"), target: name(target), quantity: Quantity::RTT }
}

/// Record of `north` with this sequence number. Its time and value grow with the number.
fn record(seq: u64) -> Record {
    Record {
        origin: name("north"),
        seq,
        series: series("south"),
        time_unix_ns: START_UNIX_NS.saturating_add(seq.cast_signed().saturating_mul(SECOND_NS)),
        outcome: Outcome::Value(seq as f64 / 8.0),
        detail: String::new(),
    }
}

fn entry(host: &str, groups: &[&str]) -> Entry {
    Entry {
        host: name(host),
        addresses: vec![std::net::SocketAddr::from(([127, 0, 0, 1], 9))],
        version: "1".into(),
        groups: groups.iter().map(|group| name(group)).collect(),
        capabilities: Capabilities { responder: true, ..Capabilities::default() },
        key: Some([7; 32]),
    }
}

/// Shortest TTL that a clustered engine offers.
const TTL: Duration = Duration::from_secs(1);

/// Time of record 0, 2026-01-01 UTC.
const START_UNIX_NS: i64 = 1_767_225_600_000_000_000;

const SECOND_NS: i64 = 1_000_000_000;
