//! A mesh whose parts can be killed.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
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
use super::reflection;
use super::relay::Relay;
use super::said::Said;
use crate::mesh_parts::{Cluster, Port, Process, get, get_any, post};

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
    clock: Clock,
    /// Values that the joined station had learnt when all was confirmed.
    pub(super) learnt: Option<u64>,
    /// Of the joined station.
    port: Port,
    token: String,
    said: Arc<Mutex<Said>>,
    pub(super) disk: Option<Disk>,
    // Dropped last, when no process writes there any more.
    directory: tempfile::TempDir,
}

/// A part of the mesh that has a disk of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Station,
    /// The archive, or the joined station.
    Keeper,
    Server,
}

/// What a row needs beside processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// A disk that can be filled.
    Small(Place),
    /// A disk that can fail.
    Failing(Place),
    /// NATS servers that know each station by its credentials.
    Credentials,
}

/// How the clock by which the station labels its records is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    Right,
    /// An hour either way, again and again.
    Jumps,
    /// So many seconds ahead for so many seconds, once.
    Ahead(i64, u64),
}

impl Mesh {
    /// Starts all of it; `None` = it needs a disk of its own, and may not have one.
    pub(super) fn start(
        engine: Engine,
        program: Option<&Path>,
        clock: Clock,
        needs: Needs,
    ) -> anyhow::Result<Option<Self>> {
        let directory = tempfile::tempdir()?;
        let at = |place| {
            directory.path().join(match place {
                Place::Station => Part::Station.as_str(),
                Place::Keeper => keeper(engine).as_str(),
                Place::Server => "jetstream0",
            })
        };
        let disk = match needs {
            Needs::Nothing => None,
            Needs::Credentials => {
                reflection::make_accounts(directory.path())?;
                None
            }
            Needs::Small(place) => Disk::small(&at(place))?,
            Needs::Failing(place) => Disk::failing(&at(place))?,
        };
        if matches!(needs, Needs::Small(_) | Needs::Failing(_)) && disk.is_none() {
            return Ok(None);
        }
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
            clock,
            learnt: None,
            port: Port::new()?,
            token: String::new(),
            said: Arc::default(),
            disk,
            directory,
        };
        let ends = mesh.servers.as_ref().map_or_else(|| vec![listen(mesh.port.number)], Cluster::addresses);
        mesh.ways = ends.into_iter().map(Relay::start).collect::<anyhow::Result<_>>()?;
        mesh.start_keeper()?;
        if engine == Engine::Remote {
            let invitation = post(listen(mesh.port.number), "/v1/invitations", &json!({ "name": STATION }))?;
            mesh.token = invitation["token"].as_str().context("an invitation has a token")?.to_string();
        }
        mesh.start_station()?;
        if engine == Engine::Remote {
            watch_host(listen(mesh.port.number), &mesh.said);
        }
        Ok(Some(mesh))
    }

    /// The archive, or the joined station, of which it is waited for that it listens.
    pub(super) fn start_keeper(&mut self) -> anyhow::Result<()> {
        let at = match &self.servers {
            Some(servers) => {
                servers.addresses().iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
            }
            None => listen(self.port.number).to_string(),
        };
        let mut command = self.child(keeper(self.engine), &at)?;
        self.keeper = Some(self.spawn(&mut command)?);
        let began = Instant::now();
        while self.engine == Engine::Remote && get(listen(self.port.number), "/v1/station").is_err() {
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
        match self.clock {
            Clock::Right => {}
            Clock::Jumps => {
                command.arg("--jump");
            }
            Clock::Ahead(seconds, for_seconds) => {
                command.args(["--ahead-s", &seconds.to_string(), "--ahead-for-s", &for_seconds.to_string()]);
            }
        }
        command.env(TOKEN, &self.token);
        self.station = Some(self.spawn(&mut command)?);
        Ok(())
    }

    /// Starts a part of the mesh, and listens to what it writes.
    fn spawn(&self, command: &mut Command) -> anyhow::Result<Process> {
        let mut process = Process::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let out = BufReader::new(process.take_stdout().context("the output is a pipe")?);
        let said = Arc::clone(&self.said);
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                said.lock().unwrap_or_else(PoisonError::into_inner).hear(&line);
            }
        });
        Ok(process)
    }

    pub(super) fn kill_station(&mut self) {
        self.station = None;
    }

    pub(super) fn signal_station(&self, name: &str) -> anyhow::Result<()> {
        self.station.as_ref().map_or(Ok(()), |station| station.signal(name))
    }

    /// Kills the part of the mesh that has a disk of its own.
    pub(super) fn kill(&mut self, place: Place) -> anyhow::Result<()> {
        match place {
            Place::Station => self.kill_station(),
            Place::Keeper => self.kill_keeper(),
            Place::Server => self.servers.as_mut().context("the mesh has servers")?.kill(0),
        }
        Ok(())
    }

    pub(super) fn revive(&mut self, place: Place) -> anyhow::Result<()> {
        match place {
            Place::Station => self.start_station(),
            Place::Keeper => self.start_keeper(),
            Place::Server => self.servers.as_mut().context("the mesh has servers")?.revive(0),
        }
    }

    /// Where the mesh is reached, and the station's token with a joined station.
    pub(super) fn reached_at(&self) -> (String, Option<&str>) {
        match &self.servers {
            Some(servers) => (servers.addresses()[0].to_string(), None),
            None => (format!("http://{}/", listen(self.port.number)), Some(&self.token)),
        }
    }

    /// From now on there is a fault.
    pub(super) fn begins(&self) {
        self.said().began = Some(Instant::now());
    }

    /// Waits until what was acknowledged before now is confirmed by the mesh, another append was acknowledged, and
    /// forecasts learn; how long that took.
    pub(super) fn recover(&self) -> anyhow::Result<Duration> {
        let (ended, acknowledged, highest) = {
            let mut said = self.said();
            said.learns = false;
            (Instant::now(), said.acknowledged.len(), said.highest)
        };
        let learns = self.engine != Engine::Remote;
        self.wait("recovered", |said| {
            acknowledged < said.acknowledged.len() && highest <= said.confirmed && (learns || said.learns)
        })?;
        Ok(ended.elapsed())
    }

    /// Cuts all of the station's ways to the mesh, or heals them.
    pub(super) fn cut(&self, is_cut: bool) {
        self.ways.iter().for_each(|way| way.cut(is_cut));
    }

    pub(super) fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the mesh works: the station has had so many records acknowledged and the mesh has confirmed some,
    /// and the station and the archive see each other. A station that is not registered yet cannot be lost.
    pub(super) fn wait_for(&self, acknowledged: usize) -> anyhow::Result<()> {
        let seen: &[&str] = match self.engine {
            Engine::Remote => &["north by north"],
            Engine::Nats | Engine::Cluster => &["north by archive", "archive by north"],
        };
        self.wait("its first records confirmed and its peers", |said| {
            acknowledged <= said.acknowledged.len()
                && 0 < said.confirmed
                && seen.iter().all(|seen| said.up.contains(*seen))
        })
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
        learnt_at(listen(self.port.number)).map(Some)
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

    /// Where the credentials of a station are, if the servers ask for them.
    pub(super) fn credentials(&self, host: &str) -> PathBuf {
        self.directory.path().join(host).with_extension("creds")
    }

    fn child(&self, part: Part, at: &str) -> anyhow::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        let replicas = self.servers.as_ref().map_or(1, Cluster::len);
        command.args(["mesh-losses", "--child", part.as_str(), "--at", at]);
        command.args(["--replicas", &replicas.to_string(), "--directory"]);
        command.arg(self.directory.path().join(part.as_str()));
        let credentials = self.credentials(if part == Part::Station { STATION } else { part.as_str() });
        if credentials.is_file() {
            command.arg("--credentials").arg(credentials);
        }
        Ok(command)
    }
}

/// Looks at `/healthz`, the peers and the forecasts of a station for as long as the mesh lives.
fn watch_host(address: SocketAddr, said: &Arc<Mutex<Said>>) {
    let said = Arc::downgrade(said);
    thread::spawn(move || {
        let mut learnt = u64::MAX;
        while let Some(said) = said.upgrade() {
            let signs = host_signs(address);
            let now = learnt_at(address).ok();
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            signs.iter().for_each(|sign| said.notice(sign));
            said.learns |= now.is_some_and(|now| learnt < now);
            learnt = now.unwrap_or(u64::MAX);
            drop(said);
            thread::sleep(2 * LOOK_EVERY);
        }
    });
}

/// What a station reports of itself and of its peers; empty also when it does not answer.
fn host_signs(address: SocketAddr) -> Vec<String> {
    let mut signs = Vec::new();
    // Degraded, it answers with an error's status.
    if let Ok(health) = get_any(address, "/healthz") {
        for list in ["reasons", "warnings"] {
            let sentences = health[list].as_array().into_iter().flatten();
            signs.extend(sentences.filter_map(|sentence| sentence.as_str()).map(ToString::to_string));
        }
    }
    if let Ok(peers) = get(address, "/v1/peers") {
        let lost = peers["peers"].as_array().into_iter().flatten().filter(|peer| peer["state"] == "lost");
        signs.extend(lost.map(|peer| format!("lost {}", peer["host"])));
    }
    signs
}

/// From how many of the station's values the station at this address forecasts.
fn learnt_at(address: SocketAddr) -> anyhow::Result<u64> {
    let answer = get(address, &format!("/v1/forecast?source={STATION}"))?;
    let forecasts = answer["forecasts"].as_array().context("a list of forecasts")?;
    Ok(forecasts.iter().filter_map(|forecast| forecast["count"].as_u64()).sum())
}

/// Which process keeps what the mesh holds.
fn keeper(engine: Engine) -> Part {
    if engine == Engine::Remote { Part::Host } else { Part::Archive }
}

/// The longest wait for the mesh's confirmation: a NATS client reconnects within seconds, and a
/// forwarder repeats after half a minute.
const DRAIN_MAX: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(50);
