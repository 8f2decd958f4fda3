//! The archive on disk: crashes, damage, full disks, retention, the queue, copies.

mod copies;
mod crash;
mod damage;
mod disk;
mod exhausted_sequence;
mod forwarded;
mod model;
#[cfg(target_os = "linux")]
mod power;
mod queue;
mod retention;

use std::path::Path;
use std::time::Duration;

use barograph_engine::{Cursor, EngineError, Local, LocalConfig, Record, Selector};
use barograph_forecast::SeriesId;
use barograph_testkit::name;
use futures_util::StreamExt as _;

/// Configuration of an archive that commits at once and removes nothing by age.
fn config(directory: &Path) -> LocalConfig {
    LocalConfig { commit_interval: Duration::ZERO, keep: Duration::MAX, ..LocalConfig::new(directory) }
}

fn open(directory: &Path) -> Local {
    Local::open(config(directory)).unwrap()
}

fn series(target: &str) -> SeriesId {
    barograph_testkit::series("north", target)
}

/// Record of `north` with the number `seq`. All its values are derived from `seq`.
fn record(seq: u64) -> Record {
    Record {
        time_unix_ns: seq.cast_signed() * 1_000_000_000,
        detail: "{}".repeat((seq % 5) as usize),
        ..barograph_testkit::record("north", &format!("target{}", seq % 7), seq)
    }
}

fn records(seqs: std::ops::RangeInclusive<u64>) -> Vec<Record> {
    seqs.map(record).collect()
}

/// All stored records, in the order of storing.
async fn stored(engine: &Local) -> Vec<(Cursor, Record)> {
    engine.export(&Selector::default()).map(Result::unwrap).collect().await
}

async fn stored_seqs(engine: &Local) -> Vec<u64> {
    let mut seqs: Vec<u64> = stored(engine).await.into_iter().map(|(_, record)| record.seq).collect();
    seqs.sort_unstable();
    seqs
}

/// Error of an archive that could not be opened.
fn refusal(directory: &Path) -> EngineError {
    match Local::open(config(directory)) {
        Ok(_) => panic!("the archive in {} was opened", directory.display()),
        Err(error) => error,
    }
}
