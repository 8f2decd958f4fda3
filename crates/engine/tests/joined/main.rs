//! A station's archive in front of a mesh that fails: nothing acknowledged is lost, nothing is double.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

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

use crate::mesh::{Mesh, open, really};

/// The record of `north` with this number; everything in it follows from the number.
fn record(seq: u64) -> Record {
    barograph_testkit::record("north", &format!("target{}", seq % 7), seq)
}

fn records(seqs: std::ops::RangeInclusive<u64>) -> Vec<Record> {
    seqs.map(record).collect()
}

/// A forwarder that asks soon, and the same in every run.
fn quick() -> JoinedConfig {
    JoinedConfig {
        confirm_every: Duration::from_millis(50),
        seed: Some(7),
        ..JoinedConfig::new(name("north"))
    }
}

/// A station whose forwarder runs in the test's own time.
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

    async fn append(&self, batch: &[Record]) -> Result<(), barograph_engine::Error> {
        let (joined, batch) = (Arc::clone(&self.joined), batch.to_vec());
        really(async move { joined.append(&batch).await }).await
    }

    /// Waits in the test's time until nothing waits for the mesh.
    async fn drained(&self) {
        self.until(|joined| joined.statistics().spooled == 0).await;
    }

    async fn until(&self, done: impl Fn(&Joined) -> bool) {
        let began = std::time::Instant::now();
        while !done(&self.joined) {
            assert!(began.elapsed() < LIMIT, "still {:?}", self.joined.statistics());
            tokio::time::sleep(Duration::from_millis(200)).await;
            // A moment of real time, in which a paused clock stands still.
            tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(1))).await.unwrap();
        }
    }

    /// Ends without a word, as a process that is killed does.
    async fn stop(self) {
        self.forwarding.abort();
        let _ = self.forwarding.await;
        assert_eq!(Arc::strong_count(&self.joined), 1);
    }
}

/// A station in a mesh, both with nothing stored; the directories are theirs.
async fn fresh() -> ([TempDir; 2], Arc<Mesh>, Station) {
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mesh = mesh::new(directories[1].path());
    let station = Station::start(quick(), directories[0].path(), &mesh).await;
    (directories, mesh, station)
}

/// Appends while no mesh is joined.
async fn append_alone(directory: &Path, batch: Vec<Record>) {
    let local = open(directory);
    really(async move { local.append(&batch).await }).await.unwrap();
}

/// Everything of `north` in an archive, by its number; each is there once and as it was measured.
async fn stored(archive: &Local) -> Vec<u64> {
    let all: Vec<(Cursor, Record)> = archive.export(&Selector::default()).map(Result::unwrap).collect().await;
    let mut seqs: Vec<u64> = all.iter().map(|(_, record)| record.seq).collect();
    seqs.sort_unstable();
    let count = seqs.len();
    seqs.dedup();
    assert_eq!(seqs.len(), count, "a record is there twice");
    seqs
}

/// The order in which each series arrived is the order of its numbers.
async fn assert_in_order(archive: &Local) {
    let all: Vec<(Cursor, Record)> = archive.export(&Selector::default()).map(Result::unwrap).collect().await;
    let mut last = std::collections::HashMap::new();
    for (_, found) in all {
        let before = last.insert(found.series.clone(), found.seq).unwrap_or(0);
        assert!(before < found.seq, "{} came after {before}", found.seq);
    }
}
