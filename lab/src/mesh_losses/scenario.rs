//! The faults, one a row.

use std::collections::HashMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use barograph_engine::{Config, Local, Selector};
use futures_util::StreamExt as _;

use super::Engine::{self, Cluster, Nats, Remote};
use super::child::STATION;
use super::mesh::{Mesh, Small};

/// What happens to a mesh at work.
type Fault = fn(&mut Mesh) -> anyhow::Result<()>;

/// A row of the table.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    of: &'static [Engine],
    small: Option<Small>,
    fault: Fault,
}

/// The scenarios of a mesh, in the order of the table.
pub(super) fn of(engine: Engine) -> impl Iterator<Item = &'static Scenario> {
    ALL.iter().filter(move |scenario| scenario.of.contains(&engine))
}

const fn row(name: &'static str, of: &'static [Engine], fault: Fault) -> Scenario {
    Scenario { name, of, small: None, fault }
}

static ALL: [Scenario; 21] = [
    row("none", &[Remote, Nats, Cluster], |_| pause(3000)),
    row("kill -9 of the station, 20 times", &[Remote, Nats, Cluster], |mesh| {
        for round in 0..20 {
            pause(200 + 37 * round)?;
            mesh.kill_station();
            mesh.start_station()?;
        }
        pause(1000)
    }),
    row("station frozen for 5 s", &[Remote, Nats], |mesh| {
        mesh.signal_station("STOP")?;
        pause(5000)?;
        mesh.signal_station("CONT")?;
        pause(1000)
    }),
    row("clock of the station jumps by an hour either way", &[Remote, Nats], |_| pause(3000)),
    row("kill -9 of the joined station, 5 times", &[Remote], kill_keeper),
    row("joined station frozen for 20 s", &[Remote], freeze_keeper),
    row("joined station away for 30 s", &[Remote], |mesh| {
        mesh.kill_keeper();
        pause(30_000)?;
        mesh.start_keeper()
    }),
    row("kill -9 of the archive, 5 times", &[Nats, Cluster], kill_keeper),
    row("archive frozen for 20 s", &[Nats], freeze_keeper),
    row("kill -9 of the server, 3 times", &[Nats], |mesh| {
        for _ in 0..3 {
            kill_servers(mesh, &[0], 700)?;
            pause(1500)?;
        }
        Ok(())
    }),
    row("server away for 30 s", &[Nats], |mesh| kill_servers(mesh, &[0], 30_000)),
    row("kill -9 of the server that leads, 3 times", &[Cluster], |mesh| {
        for _ in 0..3 {
            let leader = servers(mesh)?.leader()?;
            kill_servers(mesh, &[leader], 5000)?;
            pause(3000)?;
        }
        Ok(())
    }),
    row("kill -9 of two servers of three, twice", &[Cluster], |mesh| {
        for _ in 0..2 {
            let leader = servers(mesh)?.leader()?;
            kill_servers(mesh, &[leader, (leader + 1) % 3], 10_000)?;
            pause(5000)?;
        }
        Ok(())
    }),
    row("two servers of three away for 60 s", &[Cluster], |mesh| {
        // The third answers reads, and stores nothing.
        kill_servers(mesh, &[0, 1], 60_000)?;
        pause(15_000)
    }),
    row("kill -9 of all three servers", &[Cluster], |mesh| {
        kill_servers(mesh, &[0, 1, 2], 3000)?;
        pause(3000)
    }),
    row("the server that leads frozen for 60 s", &[Cluster], |mesh| {
        let leader = servers(mesh)?.leader()?;
        servers(mesh)?.signal(leader, "STOP")?;
        pause(60_000)?;
        servers(mesh)?.signal(leader, "CONT")?;
        pause(3000)
    }),
    row("station cut off for 60 s", &[Remote, Nats, Cluster], |mesh| {
        mesh.cut(true);
        pause(60_000)?;
        mesh.cut(false);
        pause(1000)
    }),
    Scenario {
        small: Some(Small::Station),
        ..row("disk of the station full for 10 s", &[Remote, Nats], fill)
    },
    Scenario {
        small: Some(Small::Keeper),
        ..row("disk of the joined station full for 10 s", &[Remote], fill)
    },
    Scenario { small: Some(Small::Keeper), ..row("disk of the archive full for 10 s", &[Nats], fill) },
    Scenario {
        small: Some(Small::Server),
        ..row("disk of a server full for 10 s, then kill -9 of it", &[Nats, Cluster], |mesh| {
            fill(mesh)?;
            // A server that could not store gives up its streams until it is started again.
            kill_servers(mesh, &[0], 700)
        })
    },
];

impl Scenario {
    /// Lets a mesh work through the fault, and counts; the row of the table.
    pub(super) fn run(&self, engine: Engine, server: Option<&Path>) -> anyhow::Result<String> {
        let jump = self.name.contains("jumps");
        let Some(mut mesh) = Mesh::start(engine, server, jump, self.small)? else {
            return Ok(format!("SKIPPED: {}: a small disk needs root", self.name));
        };
        // So that every row has a mesh that works before its fault.
        mesh.wait_for(400)?;
        (self.fault)(&mut mesh)?;
        mesh.drain()?;
        let found = archived(&mesh)?;
        let said = mesh.said();
        let lost = said.acknowledged.iter().filter(|seq| !found.contains_key(seq)).count();
        let double: u64 = found.values().map(|count| count - 1).sum();
        if let Some(refused) = &said.refused {
            eprintln!("{}: an append was refused: {refused}", self.name);
        }
        // A clock that is wrong loses nothing; what it may stop is forecasts.
        let learnt = mesh.learnt.filter(|_| jump).map(|learnt| format!(" ({learnt} forecast from)"));
        Ok(format!(
            "| {} | {}{} | {} | {} | {lost} | {double} | {:.2} | {} | {} | {} |",
            engine.shown(),
            self.name,
            learnt.unwrap_or_default(),
            said.acknowledged.len(),
            found.values().sum::<u64>(),
            said.longest_gap.as_secs_f64(),
            said.most_waiting,
            said.lost,
            said.longest_read_only_s
        ))
    }
}

fn kill_keeper(mesh: &mut Mesh) -> anyhow::Result<()> {
    for _ in 0..5 {
        pause(1000)?;
        mesh.kill_keeper();
        pause(300)?;
        mesh.start_keeper()?;
    }
    pause(1000)
}

fn freeze_keeper(mesh: &mut Mesh) -> anyhow::Result<()> {
    mesh.signal_keeper("STOP")?;
    pause(20_000)?;
    mesh.signal_keeper("CONT")?;
    pause(1000)
}

/// Kills servers at once, and starts them again.
fn kill_servers(mesh: &mut Mesh, which: &[usize], away_ms: u64) -> anyhow::Result<()> {
    let servers = servers(mesh)?;
    which.iter().for_each(|index| servers.kill(*index));
    pause(away_ms)?;
    which.iter().try_for_each(|index| servers.revive(*index))
}

fn servers(mesh: &mut Mesh) -> anyhow::Result<&mut crate::mesh_parts::Cluster> {
    mesh.servers.as_mut().context("the mesh has NATS servers")
}

fn fill(mesh: &mut Mesh) -> anyhow::Result<()> {
    let disk = || mesh.disk.as_ref().context("the mesh has a small disk");
    disk()?.fill()?;
    pause(10_000)?;
    disk()?.empty()?;
    pause(1000)
}

/// How often each of the station's numbers is in the archive.
fn archived(mesh: &Mesh) -> anyhow::Result<HashMap<u64, u64>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let local = Local::open(Config::new(mesh.archive_directory()))?;
        let mut found = HashMap::new();
        let mut all = local.export(&Selector::default());
        while let Some(item) = all.next().await {
            let (_, record) = item?;
            // A joined station has its own records there too.
            if record.origin.as_str() == STATION {
                *found.entry(record.seq).or_insert(0) += 1;
            }
        }
        Ok(found)
    })
}

#[expect(clippy::unnecessary_wraps, reason = "a step of a scenario like the others")]
fn pause(milliseconds: u64) -> anyhow::Result<()> {
    thread::sleep(Duration::from_millis(milliseconds));
    Ok(())
}
