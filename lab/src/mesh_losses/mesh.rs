//! A mesh whose parts can be killed.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::Engine;
use super::child::{Part, STATION, TOKEN, listen};
use super::disk::Disk;
use super::relay::Relay;
use super::said::Said;
use crate::mesh_parts::{Cluster, Process, free_port, get, post};

/// One station, what it joins, and the archive.
pub(super) struct Mesh {
    /// Empty with a joined station.
    pub(super) servers: Option<Cluster>,
    /// The archive, or the joined station.
    keeper: Option<Process>,
    station: Option<Process>,
    /// The station's ways to the mesh.
    ways: Vec<Relay>,
    engine: Engine,
    jump: bool,
    /// Values that the joined station had learnt when all was confirmed.
    pub(super) learnt: Option<u64>,
    /// Of the joined station.
    port: u16,
    token: String,
    said: Arc<Mutex<Said>>,
    pub(super) disk: Option<Disk>,
    // Dropped last, when no process writes there any more.
    directory: tempfile::TempDir,
}

/// Whose disk is small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Small {
    Station,
    Keeper,
    Server,
}

impl Mesh {
    /// Starts all of it; `None` = it needs a small disk, and may not have one.
    pub(super) fn start(
        engine: Engine,
        program: Option<&Path>,
        jump: bool,
        small: Option<Small>,
    ) -> anyhow::Result<Option<Self>> {
        let directory = tempfile::tempdir()?;
        let disk = match small {
            Some(small) => {
                let name = match small {
                    Small::Station => Part::Station.as_str(),
                    Small::Keeper => keeper(engine).as_str(),
                    Small::Server => "jetstream0",
                };
                let disk = Disk::mount(&directory.path().join(name))?;
                if disk.is_none() {
                    return Ok(None);
                }
                disk
            }
            None => None,
        };
        let count = if engine == Engine::Cluster { 3 } else { 1 };
        let servers = match engine {
            Engine::Remote => None,
            _ => Some(Cluster::start(program.context("there is no nats-server")?, directory.path(), count)?),
        };
        let mut mesh = Self {
            servers,
            keeper: None,
            station: None,
            ways: Vec::new(),
            engine,
            jump,
            learnt: None,
            port: free_port()?,
            token: String::new(),
            said: Arc::default(),
            disk,
            directory,
        };
        let ends = mesh.servers.as_ref().map_or_else(|| vec![listen(mesh.port)], Cluster::addresses);
        mesh.ways = ends.into_iter().map(Relay::start).collect::<anyhow::Result<_>>()?;
        mesh.start_keeper()?;
        if engine == Engine::Remote {
            let invitation = post(listen(mesh.port), "/v1/invitations", &json!({ "name": STATION }))?;
            mesh.token = invitation["token"].as_str().context("an invitation has a token")?.to_string();
        }
        mesh.start_station()?;
        Ok(Some(mesh))
    }

    /// The archive, or the joined station, of which it is waited for that it listens.
    pub(super) fn start_keeper(&mut self) -> anyhow::Result<()> {
        let at = match &self.servers {
            Some(servers) => {
                servers.addresses().iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
            }
            None => listen(self.port).to_string(),
        };
        let mut command = self.child(keeper(self.engine), &at)?;
        self.keeper = Some(Process::spawn(command.stdin(Stdio::piped()).stdout(Stdio::null()))?);
        let began = Instant::now();
        while self.engine == Engine::Remote && get(listen(self.port), "/v1/station").is_err() {
            ensure!(began.elapsed() < DRAIN_MAX, "the joined station does not listen");
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    pub(super) fn kill_keeper(&mut self) {
        self.keeper = None;
    }

    pub(super) fn signal_keeper(&self, name: &str) -> anyhow::Result<()> {
        self.keeper.as_ref().map_or(Ok(()), |keeper| keeper.signal(name))
    }

    pub(super) fn start_station(&mut self) -> anyhow::Result<()> {
        let ways: Vec<String> = self.ways.iter().map(|way| way.address.to_string()).collect();
        let at = match self.engine {
            Engine::Remote => format!("http://{}/", ways.join(",")),
            _ => ways.join(","),
        };
        let mut command = self.child(Part::Station, &at)?;
        if self.jump {
            command.arg("--jump");
        }
        command.env(TOKEN, &self.token);
        let mut process = Process::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let out = BufReader::new(process.take_stdout().context("the station's output is a pipe")?);
        let said = Arc::clone(&self.said);
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                said.lock().unwrap_or_else(PoisonError::into_inner).hear(&line);
            }
        });
        self.station = Some(process);
        Ok(())
    }

    pub(super) fn kill_station(&mut self) {
        self.station = None;
    }

    pub(super) fn signal_station(&self, name: &str) -> anyhow::Result<()> {
        self.station.as_ref().map_or(Ok(()), |station| station.signal(name))
    }

    /// Cuts all of the station's ways to the mesh, or heals them.
    pub(super) fn cut(&self, is_cut: bool) {
        self.ways.iter().for_each(|way| way.cut(is_cut));
    }

    pub(super) fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the station has had so many records acknowledged.
    pub(super) fn wait_for(&self, acknowledged: usize) -> anyhow::Result<()> {
        self.wait("its first records acknowledged", |said| acknowledged <= said.acknowledged.len())
    }

    /// Lets the station append no more, and waits until the mesh has confirmed all.
    pub(super) fn drain(&mut self) -> anyhow::Result<()> {
        let station = self.station.as_mut().context("the station runs")?;
        drop(station.take_stdin());
        self.wait("everything confirmed by the mesh", |said| said.drained)?;
        self.learnt = self.forecast_from()?;
        self.station = None;
        self.keeper = None;
        Ok(())
    }

    /// How many of the station's values the joined station forecasts from; `None` = there is no joined station.
    fn forecast_from(&self) -> anyhow::Result<Option<u64>> {
        if self.engine != Engine::Remote {
            return Ok(None);
        }
        let answer = get(listen(self.port), &format!("/v1/forecast?source={STATION}"))?;
        let forecasts = answer["forecasts"].as_array().context("a list of forecasts")?;
        Ok(Some(forecasts.iter().filter_map(|forecast| forecast["count"].as_u64()).sum()))
    }

    fn wait(&self, what: &str, is_so: impl Fn(&Said) -> bool) -> anyhow::Result<()> {
        let began = Instant::now();
        while !is_so(&self.said()) {
            if DRAIN_MAX < began.elapsed() {
                let refused = self.said().refused.clone();
                anyhow::bail!(
                    "the station did not have {what} within {DRAIN_MAX:?}; refused last: {refused:?}"
                );
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// The state directory of the archive, or of the joined station.
    pub(super) fn archive_directory(&self) -> PathBuf {
        self.directory.path().join(keeper(self.engine).as_str())
    }

    fn child(&self, part: Part, at: &str) -> anyhow::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        let replicas = self.servers.as_ref().map_or(1, Cluster::len);
        command.args(["mesh-losses", "--child", part.as_str(), "--at", at]);
        command.args(["--replicas", &replicas.to_string(), "--directory"]);
        command.arg(self.directory.path().join(part.as_str()));
        Ok(command)
    }
}

/// Which process keeps what the mesh holds.
fn keeper(engine: Engine) -> Part {
    if engine == Engine::Remote { Part::Host } else { Part::Archive }
}

/// The longest wait for the mesh's confirmation: a NATS client reconnects within seconds, and a
/// forwarder repeats after half a minute.
const DRAIN_MAX: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(50);
