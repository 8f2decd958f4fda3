//! Performance of the archive: acknowledged records per second, reads, and the cost of idling.
//!
//! `cargo bench -p barograph-engine --features local --bench append [-- DIRECTORY]` measures the
//! disk of the directory (default: the system's directory for temporary files).

use std::sync::Arc;
use std::time::{Duration, Instant};

use barograph_engine::{Engine, Local, LocalConfig, Range, Record, Selector};
use barograph_forecast::{Name, Outcome, Quantity, SeriesId};

const SERIES: u64 = 10_000;
const BATCH: u64 = 1000;
const RECORDS: u64 = 400_000;

fn main() {
    let parent = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let directory =
        parent.map_or_else(tempfile::tempdir, tempfile::tempdir_in).expect("a directory to measure in");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        for (label, interval, in_flight) in [
            ("one batch in flight", Duration::ZERO, 1),
            ("eight batches in flight", Duration::ZERO, 8),
            ("eight batches in flight, default interval", Duration::from_secs(1), 8),
        ] {
            let engine = open(&directory.path().join(label), interval);
            append(&engine, label, in_flight).await;
            reads(&engine).await;
        }
        trickle(&open(&directory.path().join("trickle"), Duration::ZERO)).await;
        idle().await;
    });
}

fn open(directory: &std::path::Path, commit_interval: Duration) -> Arc<Local> {
    let keep = Duration::MAX;
    Arc::new(
        Local::open(LocalConfig { commit_interval, keep, ..LocalConfig::new(directory) })
            .expect("an archive"),
    )
}

async fn append(engine: &Arc<Local>, label: &str, in_flight: u64) {
    let began = Instant::now();
    let tasks: Vec<_> = (0..in_flight)
        .map(|task| {
            let engine = Arc::clone(engine);
            tokio::spawn(async move {
                let mut waits = Vec::new();
                for batch in (0..RECORDS / BATCH).filter(|batch| batch % in_flight == task) {
                    let records: Vec<Record> = (1..=BATCH).map(|i| record(batch * BATCH + i)).collect();
                    let sent = Instant::now();
                    engine.append(&records).await.expect("acknowledged");
                    waits.push(sent.elapsed());
                }
                waits
            })
        })
        .collect();
    let mut waits = Vec::new();
    for task in tasks {
        waits.extend(task.await.expect("the writer finished"));
    }
    let seconds = began.elapsed().as_secs_f64();
    waits.sort();
    println!("append, {label}: {:.0} acknowledged/s", RECORDS as f64 / seconds);
    println!(
        "  batch of {BATCH}: p50 {:.1?}, p99 {:.1?}",
        waits[waits.len() / 2],
        waits[waits.len() * 99 / 100]
    );
    let statistics = engine.statistics();
    println!(
        "  {} commits, {:.1} bytes a record",
        statistics.commits,
        statistics.bytes as f64 / statistics.records as f64
    );
}

async fn reads(engine: &Local) {
    let hot = record(1).series;
    let hot_records: Vec<Record> =
        (1..=2000).map(|i| Record { series: hot.clone(), ..record(RECORDS + i) }).collect();
    engine.append(&hot_records).await.expect("acknowledged");
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..20 {
        let began = Instant::now();
        let page = engine.history(&hot, &Range::newest(1000)).await.expect("history");
        times[0].push(began.elapsed());
        assert_eq!(page.items.len(), 1000);
        let began = Instant::now();
        let page = engine.latest(&Selector::default(), None, Range::LIMIT_MAX).await.expect("the newest");
        times[1].push(began.elapsed());
        assert_eq!(page.items.len() as u64, SERIES);
    }
    let labels = ["last 1000 of one series".to_string(), format!("latest of {SERIES} series")];
    for (label, times) in labels.iter().zip(&mut times) {
        times.sort();
        println!("  {label}: p50 {:.2?}, max {:.2?}", times[times.len() / 2], times[times.len() - 1]);
    }
}

async fn trickle(engine: &Local) {
    let mut waits = Vec::new();
    for seq in 1..=1000 {
        let sent = Instant::now();
        engine.append(&[record(seq)]).await.expect("acknowledged");
        waits.push(sent.elapsed());
    }
    waits.sort();
    println!("one record at a time: p50 {:.0?}, p99 {:.0?}", waits[500], waits[990]);
}

/// Measures how many context switches and how much processor time the process uses while an archive
/// is in use and idle.
async fn idle() {
    let directory = tempfile::tempdir().expect("a directory to measure in");
    let engine = open(directory.path(), Duration::from_secs(1));
    engine.append(&[record(1)]).await.expect("acknowledged");
    // A thread for reads would exit only after ten idle seconds and disturb the measurement, so
    // this function reads nothing.
    let before = usage();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = usage();
    match (before, after) {
        (Some(before), Some(after)) => println!(
            "idle: {:.1} wake-ups and {:.3} ms of processor a second",
            (after.0 - before.0) as f64 / 5.0,
            (after.1 - before.1) as f64 / 5.0 / 1e6
        ),
        _ => println!("idle: SKIPPED: /proc/self/task is not there"),
    }
}

/// Returns, for all threads together, the number of voluntary context switches and the processor
/// time in nanoseconds.
fn usage() -> Option<(u64, u64)> {
    let mut sum = (0, 0);
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let task = task.ok()?.path();
        let status = std::fs::read_to_string(task.join("status")).ok()?;
        let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        sum.0 += switches.trim().parse::<u64>().ok()?;
        let schedule = std::fs::read_to_string(task.join("schedstat")).ok()?;
        sum.1 += schedule.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(sum)
}

fn record(seq: u64) -> Record {
    let name = |text: String| Name::new(&text).expect("a name");
    Record {
        origin: name("bench".into()),
        seq,
        series: SeriesId {
            source: name("bench".into()),
            target: name(format!("host{}.example.net:443", seq % SERIES)),
            quantity: Quantity::RTT,
        },
        time_unix_ns: 1_767_225_600_000_000_000 + (seq / SERIES).cast_signed() * 10_000_000_000,
        outcome: Outcome::Value((seq as f64).sin().abs() / 100.0),
        detail: String::new(),
    }
}
