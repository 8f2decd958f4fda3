//! The faults, one a row.

use std::collections::HashMap;
use std::path::Path;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;

use barograph_engine::{Config, Local, Selector};
use futures_util::StreamExt as _;

use super::parts::Mesh;

/// What happens to a mesh at work.
type Fault = fn(&mut Mesh) -> anyhow::Result<()>;

/// Every scenario, in the order of the table.
pub(super) const ALL: [(&str, Fault); 7] = [
    ("none", |_| pause(3000)),
    ("kill -9 of the station, 20 times", |mesh| {
        for round in 0..20 {
            pause(200 + 37 * round)?;
            mesh.station = None;
            mesh.start_station()?;
        }
        pause(1000)
    }),
    ("station frozen for 5 s", |mesh| {
        pause(1000)?;
        signal(mesh, "STOP")?;
        pause(5000)?;
        signal(mesh, "CONT")?;
        pause(1000)
    }),
    ("clock of the station jumps by an hour either way", |_| pause(3000)),
    ("kill -9 of the NATS server, 3 times", |mesh| {
        for _ in 0..3 {
            pause(1500)?;
            mesh.server = None;
            pause(700)?;
            mesh.start_server()?;
        }
        pause(1500)
    }),
    ("kill -9 of the archive, 5 times", |mesh| {
        for _ in 0..5 {
            pause(1000)?;
            mesh.archive = None;
            pause(300)?;
            mesh.start_archive()?;
        }
        pause(1000)
    }),
    ("NATS server away for 30 s", |mesh| {
        pause(1000)?;
        mesh.server = None;
        pause(30_000)?;
        mesh.start_server()
    }),
];

/// Lets a mesh work through a fault, and counts; the row of the table.
pub(super) fn run(name: &str, fault: Fault, server: &Path) -> anyhow::Result<String> {
    let mut mesh = Mesh::new(server)?;
    mesh.jump = name.contains("jumps");
    mesh.start_server()?;
    mesh.start_archive()?;
    mesh.start_station()?;
    pause(1000)?;
    fault(&mut mesh)?;
    mesh.drain()?;
    let found = archived(&mesh)?;
    let said = mesh.said.lock().unwrap_or_else(PoisonError::into_inner);
    let lost = said.acknowledged.iter().filter(|seq| !found.contains_key(seq)).count();
    let double: u64 = found.values().map(|count| count - 1).sum();
    Ok(format!(
        "| {name} | {} | {} | {lost} | {double} | {:.2} |",
        said.acknowledged.len(),
        found.values().sum::<u64>(),
        said.longest_gap.as_secs_f64()
    ))
}

/// How often each number is in the archive.
fn archived(mesh: &Mesh) -> anyhow::Result<HashMap<u64, u64>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let local = Local::open(Config::new(mesh.archive_directory()))?;
        let mut found = HashMap::new();
        let mut all = local.export(&Selector::default());
        while let Some(item) = all.next().await {
            *found.entry(item?.1.seq).or_insert(0) += 1;
        }
        Ok(found)
    })
}

fn signal(mesh: &Mesh, name: &str) -> anyhow::Result<()> {
    mesh.station.as_ref().map_or(Ok(()), |station| station.signal(name))
}

#[expect(clippy::unnecessary_wraps, reason = "a step of a scenario like the others")]
fn pause(milliseconds: u64) -> anyhow::Result<()> {
    thread::sleep(Duration::from_millis(milliseconds));
    Ok(())
}
