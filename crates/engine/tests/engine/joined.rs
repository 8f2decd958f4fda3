//! A station's archive in front of a mesh that fails: no acknowledged record is lost or stored
//! twice.

mod answers;
mod conformance;
mod faults;
mod mesh;
mod random;
mod spool;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use barograph_engine::{Cursor, Engine as _, Joined, JoinedConfig, Local, Record, Selector};
use barograph_testkit::{LIMIT, name, series};
use futures_util::StreamExt as _;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::joined::mesh::{Mesh, open, really};

/// Record of `north` with the number `seq`. All its values are derived from `seq`.
fn record(seq: u64) -> Record {
    barograph_testkit::record("north", &format!("target{}", seq % 7), seq)
}

fn records(seqs: std::ops::RangeInclusive<u64>) -> Vec<Record> {
    seqs.map(record).collect()
}

/// Configuration of a forwarder with short intervals, and the same jitter in every run.
fn quick() -> JoinedConfig {
    JoinedConfig {
        confirm_every: Duration::from_millis(50),
        seed: Some(7),
        ..JoinedConfig::new(name("north"))
    }
}

/// A station with a forwarder that runs in the test's own time.
struct Station {
    joined: Arc<Joined>,
    forwarding: JoinHandle<()>,
}

impl Station {
    async fn start(config: JoinedConfig, directory: &Path, mesh: &Arc<Mesh>) -> Self {
        Self::over(config, open(directory), mesh).await
    }

    async fn over(config: JoinedConfig, local: Local, mesh: &Arc<Mesh>) -> Self {
        let mesh = Arc::clone(mesh);
        let (joined, forwarding) = Joined::prepare(config, Arc::new(local), mesh).unwrap();
        Self { joined: Arc::new(joined), forwarding: tokio::spawn(forwarding) }
    }

    async fn append(&self, batch: &[Record]) -> Result<(), barograph_engine::EngineError> {
        let (joined, batch) = (Arc::clone(&self.joined), batch.to_vec());
        really(async move { joined.append(&batch).await }).await
    }

    /// Waits in the test's time until the spool is empty.
    async fn drained(&self) {
        self.until(|joined| joined.statistics().spooled == 0).await;
    }

    async fn until(&self, done: impl Fn(&Joined) -> bool) {
        let began = std::time::Instant::now();
        while !done(&self.joined) {
            assert!(began.elapsed() < LIMIT, "still {:?}", self.joined.statistics());
            tokio::time::sleep(Duration::from_millis(200)).await;
            // Waits briefly in real time; a paused clock does not advance meanwhile.
            tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(1))).await.unwrap();
        }
    }

    /// Ends the station without a message, like a killed process.
    async fn stop(self) {
        self.forwarding.abort();
        let _ = self.forwarding.await;
        assert_eq!(Arc::strong_count(&self.joined), 1);
    }
}

/// A station and its mesh without records, with their directories.
async fn fresh() -> ([TempDir; 2], Arc<Mesh>, Station) {
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mesh = mesh::new(directories[1].path());
    let station = Station::start(quick(), directories[0].path(), &mesh).await;
    (directories, mesh, station)
}

/// Appends records while the station is in no mesh.
async fn append_alone(directory: &Path, batch: Vec<Record>) {
    let local = open(directory);
    really(async move { local.append(&batch).await }).await.unwrap();
}

/// Numbers of all records of `north` in an archive. Checks that each record is stored once.
async fn stored(archive: &Local) -> Vec<u64> {
    let all: Vec<(Cursor, Record)> = archive.export(&Selector::default()).map(Result::unwrap).collect().await;
    let mut seqs: Vec<u64> = all.iter().map(|(_, record)| record.seq).collect();
    seqs.sort_unstable();
    let count = seqs.len();
    seqs.dedup();
    assert_eq!(seqs.len(), count, "a record is there twice");
    seqs
}

/// Checks that the records of each series were stored in the order of their numbers.
async fn assert_in_order(archive: &Local) {
    let all: Vec<(Cursor, Record)> = archive.export(&Selector::default()).map(Result::unwrap).collect().await;
    let mut last = std::collections::HashMap::new();
    for (_, found) in all {
        let before = last.insert(found.series.clone(), found.seq).unwrap_or(0);
        assert!(before < found.seq, "{} came after {before}", found.seq);
    }
}
