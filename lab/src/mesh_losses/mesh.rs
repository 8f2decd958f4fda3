//! A mesh whose parts can be killed.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::args::{Engine, Part};
use super::child::{STATION, TOKEN, listen};
use super::clock::Clock;
use super::disk::Disk;
use super::relay::Relay;
use super::said::Said;
use super::watch::{learnt_at, watch};
use crate::http::{get, post};
use crate::nats::Cluster;
use crate::process::{Port, Process};

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
    /// Values of the station that the keeper forecast from when all was confirmed.
    pub(super) learnt: u64,
    /// Of the keeper's server.
    port: Port,
    token: String,
    said: Arc<Mutex<Said>>,
    disks: Vec<(Place, Disk)>,
    // Dropped last, when no process writes there any more.
    directory: tempfile::TempDir,
}

/// A part of the mesh that may have a disk of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Station,
    /// The archive, or the joined station.
    Keeper,
    /// A NATS server, by its index.
    Server(usize),
}

/// What a row needs beside processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// A disk that can be filled.
    Small(Place),
    /// Disks that can fail.
    Failing(&'static [Place]),
    /// NATS servers that know each station by its credentials.
    Credentials,
}

impl Mesh {
    /// Starts all of it; `None` = it needs a disk of its own, and may not have one.
    pub(super) fn start(
        engine: Engine,
        program: Option<&Path>,
        needs: Needs,
    ) -> anyhow::Result<Option<Self>> {
        let directory = tempfile::tempdir()?;
        let at = |place| match place {
            Place::Station => directory.path().join(Part::Station.as_str()),
            Place::Keeper => directory.path().join(keeper(engine).as_str()),
            Place::Server(index) => directory.path().join(format!("jetstream{index}")),
        };
        let mut disks = Vec::new();
        match needs {
            Needs::Nothing => {}
            Needs::Credentials => make_accounts(directory.path())?,
            Needs::Small(place) => {
                let Some(disk) = Disk::small(&at(place))? else { return Ok(None) };
                disks.push((place, disk));
            }
            Needs::Failing(places) => {
                for place in places {
                    let Some(disk) = Disk::failing(&at(*place))? else { return Ok(None) };
                    disks.push((*place, disk));
                }
            }
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
            learnt: 0,
            port: Port::new()?,
            token: String::new(),
            said: Arc::default(),
            disks,
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
        watch(keeper(engine).as_str(), listen(mesh.port.number), &mesh.said);
        Ok(Some(mesh))
    }

    /// Starts the archive, or the joined station, and waits until it listens.
    pub(super) fn start_keeper(&mut self) -> anyhow::Result<()> {
        let servers = self.servers.as_ref().map_or_else(Vec::new, Cluster::addresses);
        let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
        let address = listen(self.port.number);
        let mut command = self.child(keeper(self.engine), &servers.join(","))?;
        self.keeper = Some(self.spawn(command.args(["--listen", &address.to_string()]))?);
        let began = Instant::now();
        while get(address, "/v1/station").is_err() {
            ensure!(began.elapsed() < DRAIN_MAX, "the {} does not listen", keeper(self.engine).as_str());
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

    /// Sets the clock by which the station labels its records, until it is started again.
    pub(super) fn set_clock(&mut self, clock: Clock) -> anyhow::Result<()> {
        self.station.as_mut().context("the station runs")?.write_line(&clock.to_string())
    }

    pub(super) fn signal_station(&self, name: &str) -> anyhow::Result<()> {
        self.station.as_ref().map_or(Ok(()), |station| station.signal(name))
    }

    /// The disk of a part that was given one.
    pub(super) fn disk(&self, place: Place) -> anyhow::Result<&Disk> {
        let found = self.disks.iter().find(|(of, _)| *of == place);
        found.map(|(_, disk)| disk).with_context(|| format!("{place:?} has a disk of its own"))
    }

    /// Kills a part of the mesh.
    pub(super) fn kill(&mut self, place: Place) -> anyhow::Result<()> {
        match place {
            Place::Station => self.kill_station(),
            Place::Keeper => self.kill_keeper(),
            Place::Server(index) => self.servers.as_mut().context("the mesh has servers")?.kill(index),
        }
        Ok(())
    }

    /// Starts a part of the mesh again.
    pub(super) fn revive(&mut self, place: Place) -> anyhow::Result<()> {
        match place {
            Place::Station => self.start_station(),
            Place::Keeper => self.start_keeper(),
            Place::Server(index) => self.servers.as_mut().context("the mesh has servers")?.revive(index),
        }
    }

    /// Where the mesh is reached, and the station's token with a joined station.
    pub(super) fn reached_at(&self) -> (String, Option<&str>) {
        match &self.servers {
            Some(servers) => (servers.addresses()[0].to_string(), None),
            None => (format!("http://{}/", listen(self.port.number)), Some(&self.token)),
        }
    }

    /// Counts from now on what a fault does.
    pub(super) fn begins(&self) {
        self.said().begin();
    }

    /// Waits until what was acknowledged before now is confirmed by the mesh, another append was acknowledged, and
    /// forecasts have learnt more than they ever had; returns how long that took.
    pub(super) fn recover(&self) -> anyhow::Result<Duration> {
        let (ended, acknowledged, highest, learnt) = {
            let said = self.said();
            (Instant::now(), said.acknowledged.len(), said.highest, said.learnt_most)
        };
        self.wait("recovered", |said| {
            acknowledged < said.acknowledged.len() && highest <= said.confirmed && learnt < said.learnt_most
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

    /// Waits until the mesh works: the station has had so many records acknowledged, the mesh has confirmed some and
    /// forecasts from them, the station and the keeper see each other, and no part reports trouble. A station that is
    /// not registered yet cannot be lost, and a sign from before a fault is none of it.
    pub(super) fn wait_for(&self, acknowledged: usize) -> anyhow::Result<()> {
        let keeper = keeper(self.engine).as_str();
        let seen = [format!("{keeper} by {STATION}"), format!("{STATION} by {keeper}")];
        self.wait("its first records confirmed, its peers, and no trouble", |said| {
            acknowledged <= said.acknowledged.len()
                && 0 < said.confirmed
                && 0 < said.learnt_most
                && seen.iter().all(|seen| said.up.contains(seen))
                && said.trouble().is_none()
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

    /// How many of the station's values the keeper forecasts from. The archive on NATS learns a value after it has stored
    /// it, so that the last ones are waited for.
    fn forecast_from(&self) -> anyhow::Result<u64> {
        let (began, all) = (Instant::now(), self.said().acknowledged.len() as u64);
        let mut before = 0;
        loop {
            let learnt = learnt_at(listen(self.port.number))?;
            if (all <= learnt && learnt == before) || LEARN_MAX < began.elapsed() {
                return Ok(learnt);
            }
            before = learnt;
            thread::sleep(2 * LOOK_EVERY);
        }
    }

    fn wait(&self, what: &str, is_so: impl Fn(&Said) -> bool) -> anyhow::Result<()> {
        let began = Instant::now();
        while !is_so(&self.said()) {
            if DRAIN_MAX < began.elapsed() {
                let said = self.said();
                let (refused, trouble) = (&said.refused, said.trouble());
                anyhow::bail!(
                    "the station did not have {what} within {DRAIN_MAX:?}; refused last: {refused:?}; trouble now: \
                     {trouble:?}"
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

/// Makes the servers' accounts and the credentials of the station and the archive in `directory`.
fn make_accounts(directory: &Path) -> anyhow::Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/nats/accounts");
    for arguments in [&["setup"][..], &["archive", Part::Archive.as_str()], &["station", STATION]] {
        let made = Command::new(&script).args(arguments).current_dir(directory).output()?;
        let why = String::from_utf8_lossy(&made.stderr).into_owned();
        ensure!(made.status.success(), "{} {arguments:?}: {why}", script.display());
    }
    Ok(())
}

/// Which process keeps what the mesh holds.
fn keeper(engine: Engine) -> Part {
    if engine == Engine::Remote { Part::Host } else { Part::Archive }
}

/// The longest wait for the mesh's confirmation: a NATS client reconnects within seconds, and a
/// forwarder repeats after half a minute.
const DRAIN_MAX: Duration = Duration::from_secs(180);
/// The longest wait for forecasts from all that the mesh has confirmed.
const LEARN_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);
