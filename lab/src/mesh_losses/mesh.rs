//! A mesh with parts that can be killed, frozen and cut off.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, remove_file};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
#[cfg(target_os = "linux")]
use barograph_sim::FailingDisk;
use serde_json::{Value, json};

use super::child::{Clock, STATION, TOKEN, listen};
use super::{Engine, Part};
use crate::http::{get, get_any, post};
use crate::nats::Cluster;
use crate::process::{Port, Process};

/// One station, the servers or the station that it joins, and the archive.
pub(super) struct Mesh {
    /// NATS servers; `None` if the engine is a joined station.
    pub(super) servers: Option<Cluster>,
    /// The archive beside NATS, or the joined station.
    archive: Option<Process>,
    station: Option<Process>,
    /// Relays between the station and the mesh.
    relays: Vec<Relay>,
    engine: Engine,
    /// Number of the station's values that the archive forecast from after the mesh had confirmed
    /// all.
    pub(super) learnt: u64,
    port: Port,
    token: String,
    reported: Arc<Mutex<ReportedState>>,
    disks: Vec<(Component, Disk)>,
    // Dropped last, after all processes that write there.
    directory: tempfile::TempDir,
}

/// A part of the mesh that may have its own disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Component {
    Station,
    /// The archive beside NATS, or the joined station.
    Archive,
    Server(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    Small(Component),
    Failing(&'static [Component]),
}

impl Mesh {
    /// Starts the whole mesh; `None` if it needs its own disk and mounting is not permitted.
    pub(super) fn start(
        engine: Engine,
        program: Option<&Path>,
        needs: Needs,
    ) -> anyhow::Result<Option<Self>> {
        let directory = tempfile::tempdir()?;
        let at = |component| match component {
            Component::Station => directory.path().join(Part::Station.as_str()),
            Component::Archive => directory.path().join(archive_part(engine).as_str()),
            Component::Server(index) => directory.path().join(format!("jetstream{index}")),
        };
        let mut disks = Vec::new();
        match needs {
            Needs::Nothing => {}
            Needs::Small(component) => {
                let Some(disk) = Disk::small(&at(component))? else { return Ok(None) };
                disks.push((component, disk));
            }
            Needs::Failing(components) => {
                for component in components {
                    let Some(disk) = Disk::failing(&at(*component))? else { return Ok(None) };
                    disks.push((*component, disk));
                }
            }
        }
        // As in a mesh that the guide sets up, the station writes through the archive.
        if engine != Engine::Remote {
            make_accounts(directory.path())?;
        }
        let count = if engine == Engine::Cluster { 3 } else { 1 };
        let servers = match engine {
            Engine::Remote => None,
            _ => Some(Cluster::start(program.context("there is no nats-server")?, directory.path(), count)?),
        };
        let mut mesh = Self {
            servers,
            archive: None,
            station: None,
            relays: Vec::new(),
            engine,
            learnt: 0,
            port: Port::new()?,
            token: String::new(),
            reported: Arc::default(),
            disks,
            directory,
        };
        let ends = mesh.servers.as_ref().map_or_else(|| vec![listen(mesh.port.number)], Cluster::addresses);
        mesh.relays = ends.into_iter().map(Relay::start).collect::<anyhow::Result<_>>()?;
        mesh.start_archive()?;
        if engine == Engine::Remote {
            let invitation = post(listen(mesh.port.number), "/v1/invitations", &json!({ "name": STATION }))?;
            mesh.token = invitation["token"].as_str().context("an invitation has a token")?.to_string();
        }
        mesh.start_station()?;
        watch(archive_part(engine).as_str(), listen(mesh.port.number), &mesh.reported);
        Ok(Some(mesh))
    }

    /// Starts the archive, or the joined station, and waits until it listens.
    pub(super) fn start_archive(&mut self) -> anyhow::Result<()> {
        let servers = self.servers.as_ref().map_or_else(Vec::new, Cluster::addresses);
        let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
        let address = listen(self.port.number);
        let mut command = self.child(archive_part(self.engine), &servers.join(","))?;
        self.archive = Some(self.spawn(command.args(["--listen", &address.to_string()]))?);
        let began = Instant::now();
        while get(address, "/v1/station").is_err() {
            ensure!(
                began.elapsed() < DRAIN_MAX,
                "the {} does not listen",
                archive_part(self.engine).as_str()
            );
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    pub(super) fn kill_archive(&mut self) {
        self.archive = None;
    }

    pub(super) fn signal_archive(&self, name: &str) -> anyhow::Result<()> {
        self.archive.as_ref().map_or(Ok(()), |archive| archive.signal(name))
    }

    pub(super) fn start_station(&mut self) -> anyhow::Result<()> {
        let relays: Vec<String> = self.relays.iter().map(|relay| relay.address.to_string()).collect();
        let at = match self.engine {
            Engine::Remote => format!("http://{}/", relays.join(",")),
            _ => relays.join(","),
        };
        let mut command = self.child(Part::Station, &at)?;
        command.env(TOKEN, &self.token);
        self.station = Some(self.spawn(&mut command)?);
        Ok(())
    }

    fn spawn(&self, command: &mut Command) -> anyhow::Result<Process> {
        let mut process = Process::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let out = BufReader::new(process.take_stdout().context("the output is a pipe")?);
        let reported = Arc::clone(&self.reported);
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                reported.lock().unwrap_or_else(PoisonError::into_inner).record_line(&line);
            }
        });
        Ok(process)
    }

    pub(super) fn kill_station(&mut self) {
        self.station = None;
    }

    /// Sets the clock of the station's time labels until its next start.
    pub(super) fn set_clock(&mut self, clock: Clock) -> anyhow::Result<()> {
        self.station.as_mut().context("the station runs")?.write_line(&clock.to_string())
    }

    pub(super) fn signal_station(&self, name: &str) -> anyhow::Result<()> {
        self.station.as_ref().map_or(Ok(()), |station| station.signal(name))
    }

    /// Disk of a part that has its own.
    pub(super) fn disk(&self, component: Component) -> anyhow::Result<&Disk> {
        let found = self.disks.iter().find(|(of, _)| *of == component);
        found.map(|(_, disk)| disk).with_context(|| format!("{component:?} has a disk of its own"))
    }

    pub(super) fn kill(&mut self, component: Component) -> anyhow::Result<()> {
        match component {
            Component::Station => self.kill_station(),
            Component::Archive => self.kill_archive(),
            Component::Server(index) => self.servers.as_mut().context("the mesh has servers")?.kill(index),
        }
        Ok(())
    }

    pub(super) fn revive(&mut self, component: Component) -> anyhow::Result<()> {
        match component {
            Component::Station => self.start_station(),
            Component::Archive => self.start_archive(),
            Component::Server(index) => self.servers.as_mut().context("the mesh has servers")?.revive(index),
        }
    }

    /// Address of the mesh, and the station's token if the engine is a joined station.
    pub(super) fn reached_at(&self) -> (String, Option<&str>) {
        match &self.servers {
            Some(servers) => (servers.addresses()[0].to_string(), None),
            None => (format!("http://{}/", listen(self.port.number)), Some(&self.token)),
        }
    }

    /// Starts counting the effects of a fault.
    pub(super) fn begins(&self) {
        self.reported().begin();
    }

    /// Waits until the mesh has confirmed all earlier acknowledged records, another append was
    /// acknowledged, and forecasts include more values than ever before. Returns the time that this
    /// took.
    pub(super) fn recover(&self) -> anyhow::Result<Duration> {
        let (ended, acknowledged, highest, learnt) = {
            let reported = self.reported();
            (Instant::now(), reported.acknowledged.len(), reported.highest, reported.learnt_most)
        };
        self.wait("recovered", |reported| {
            acknowledged < reported.acknowledged.len()
                && highest <= reported.confirmed
                && learnt < reported.learnt_most
        })?;
        Ok(ended.elapsed())
    }

    pub(super) fn cut(&self, is_cut: bool) {
        self.relays.iter().for_each(|relay| relay.cut(is_cut));
    }

    pub(super) fn reported(&self) -> MutexGuard<'_, ReportedState> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the mesh works: `acknowledged` records are acknowledged, the mesh has confirmed
    /// some and forecasts from them, station and archive see each other, and no part reports
    /// trouble. An unregistered station cannot be lost, and a sign of trouble from before the fault
    /// does not belong to it.
    pub(super) fn wait_for(&self, acknowledged: usize) -> anyhow::Result<()> {
        let archive = archive_part(self.engine).as_str();
        let seen = [format!("{archive} by {STATION}"), format!("{STATION} by {archive}")];
        self.wait("its first records confirmed, its peers, and no trouble", |reported| {
            acknowledged <= reported.acknowledged.len()
                && reported.confirmed > 0
                && reported.learnt_most > 0
                && seen.iter().all(|seen| reported.up.contains(seen))
                && reported.trouble().is_none()
        })
    }

    /// Ends the station's appends and waits until the mesh has confirmed all of them.
    pub(super) fn drain(&mut self) -> anyhow::Result<()> {
        let station = self.station.as_mut().context("the station runs")?;
        drop(station.take_stdin());
        self.wait("everything confirmed by the mesh", |reported| reported.drained)?;
        self.learnt = self.forecast_from()?;
        self.station = None;
        self.archive = None;
        Ok(())
    }

    /// Number of the station's values that the archive forecasts from. The archive on NATS learns a
    /// value after it has stored it, so this waits for the last values.
    fn forecast_from(&self) -> anyhow::Result<u64> {
        let (began, all) = (Instant::now(), self.reported().acknowledged.len() as u64);
        let mut before = 0;
        loop {
            let learnt = learnt_at(listen(self.port.number))?;
            if (all <= learnt && learnt == before) || began.elapsed() > LEARN_MAX {
                return Ok(learnt);
            }
            before = learnt;
            thread::sleep(2 * POLL_INTERVAL);
        }
    }

    fn wait(&self, what: &str, is_so: impl Fn(&ReportedState) -> bool) -> anyhow::Result<()> {
        let began = Instant::now();
        while !is_so(&self.reported()) {
            if began.elapsed() > DRAIN_MAX {
                let reported = self.reported();
                let (refused, trouble) = (&reported.refused, reported.trouble());
                anyhow::bail!(
                    "the station did not have {what} within {DRAIN_MAX:?}; last refusal: {refused:?}; trouble now: \
                     {trouble:?}"
                );
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    pub(super) fn archive_directory(&self) -> PathBuf {
        self.directory.path().join(archive_part(self.engine).as_str())
    }

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

fn archive_part(engine: Engine) -> Part {
    if engine == Engine::Remote { Part::Host } else { Part::Archive }
}

/// Longest wait for the mesh's confirmation: a NATS client reconnects within seconds, and a
/// forwarder retries after half a minute.
const DRAIN_MAX: Duration = Duration::from_secs(180);
/// Longest wait for forecasts from all values that the mesh has confirmed.
const LEARN_MAX: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct ReportedState {
    pub(super) acknowledged: BTreeSet<u64>,
    last: Option<Instant>,
    pub(super) longest_gap: Duration,
    pub(super) most_waiting: u64,
    pub(super) refused: Option<String>,
    pub(super) drained: bool,
    /// Registered peers that a part has reported, such as `north by archive`.
    pub(super) up: BTreeSet<String>,
    /// Number of reports of a lost peer.
    pub(super) lost: u64,
    /// The highest sequence number acknowledged; `confirmed` is the watermark of the mesh.
    pub(super) highest: u64,
    pub(super) confirmed: u64,
    pub(super) began: Option<Instant>,
    /// The first sign of trouble after `began`, with its delay.
    pub(super) noticed: Option<(Duration, String)>,
    troubles: BTreeMap<&'static str, Vec<String>>,
    /// Largest number of the station's values that forecasts used. A restarted archive begins with
    /// none.
    pub(super) learnt_most: u64,
    /// The longest time (s) that the directory was read-only.
    pub(super) longest_read_only_s: u64,
}

impl ReportedState {
    pub(super) fn record_line(&mut self, line: &str) {
        // A line that a kill cut off lacks the mark at its end.
        let Some(line) = line.strip_suffix(" .") else { return };
        self.drained |= line.starts_with("drained");
        if let Some(seconds) = line.strip_prefix("read-only ").and_then(|seconds| seconds.parse().ok()) {
            self.longest_read_only_s = self.longest_read_only_s.max(seconds);
        }
        if let Some(why) = line.strip_prefix("refused ") {
            self.refused = Some(why.to_string());
            self.notice(why);
        }
        if let Some(sign) = line.strip_prefix("sign ") {
            self.reports(STATION, vec![sign.to_string()]);
        }
        if line == "well" {
            self.reports(STATION, Vec::new());
        }
        if let Some(up) = line.strip_prefix("up ") {
            self.up.insert(up.to_string());
        }
        // After the drain the station's own end is not a loss.
        if line.starts_with("lost ") && !self.drained {
            self.lost += 1;
            let after = self.began.map_or(0.0, |began| began.elapsed().as_secs_f64());
            eprintln!("        {after:.1} s after the fault began: {line}");
            self.notice(line);
        }
        if let Some(number) = line.strip_prefix("confirmed ").and_then(|number| number.parse().ok()) {
            self.confirmed = number;
        }
        let Some(rest) = line.strip_prefix("acknowledged ") else { return };
        let mut numbers = rest.split(' ').map_while(|word| word.parse::<u64>().ok());
        if let (Some(first), Some(count), Some(waiting)) = (numbers.next(), numbers.next(), numbers.next()) {
            self.acknowledged.extend(first..first + count);
            self.highest = self.highest.max(first + count - 1);
            self.most_waiting = self.most_waiting.max(waiting);
            let now = Instant::now();
            if let Some(last) = self.last.replace(now) {
                self.longest_gap = self.longest_gap.max(now - last);
            }
        }
    }

    /// Starts counting the effects of a fault. A new cluster accepts no registrations for some
    /// seconds, which must not count.
    pub(super) fn begin(&mut self) {
        self.began = Some(Instant::now());
        (self.longest_gap, self.most_waiting) = (Duration::ZERO, 0);
        (self.lost, self.longest_read_only_s) = (0, 0);
    }

    pub(super) fn reports(&mut self, part: &'static str, signs: Vec<String>) {
        signs.iter().for_each(|sign| self.notice(sign));
        self.troubles.insert(part, signs);
    }

    pub(super) fn trouble(&self) -> Option<&str> {
        self.troubles.values().flatten().next().map(String::as_str)
    }

    /// Records a sign of trouble; the first after the fault began counts.
    pub(super) fn notice(&mut self, sign: &str) {
        // After the drain the station's own end is not a fault.
        if let Some(began) = self.began.filter(|_| !self.drained) {
            self.noticed.get_or_insert_with(|| (began.elapsed(), sign.to_string()));
        }
    }
}

/// Polls health, peers, directory and forecasts of the station `host` until the mesh is dropped.
pub(super) fn watch(host: &'static str, address: SocketAddr, reported: &Arc<Mutex<ReportedState>>) {
    let reported = Arc::downgrade(reported);
    thread::spawn(move || {
        let mut lost = BTreeSet::new();
        while let Some(reported) = reported.upgrade() {
            let mut signs = health(address);
            let peers = get(address, "/v1/peers").ok();
            let read_only_s =
                get(address, "/v1/mesh").ok().and_then(|mesh| mesh["directory"]["read_only_s"].as_f64());
            let learnt = learnt_at(address).ok();
            let mut reported = reported.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(peers) = &peers {
                let lost_now: BTreeSet<String> = in_state(peers, "lost").collect();
                for peer in lost_now.difference(&lost) {
                    reported.record_line(&format!("lost {peer} by {host} ."));
                }
                for peer in in_state(peers, "up") {
                    reported.record_line(&format!("up {peer} by {host} ."));
                }
                signs.extend(lost_now.iter().map(|peer| format!("lost {peer} by {host}")));
                lost = lost_now;
            }
            if let Some(seconds) = read_only_s {
                reported.record_line(&format!("read-only {} .", seconds as u64));
                signs.push(format!("read-only for {seconds:.0} s"));
            }
            reported.learnt_most = reported.learnt_most.max(learnt.unwrap_or(0));
            reported.reports(host, signs);
            drop(reported);
            thread::sleep(WATCH_LOOKS_EVERY);
        }
    });
}

/// Sentences that `/healthz` reports; empty also if the station does not respond.
fn health(address: SocketAddr) -> Vec<String> {
    // A degraded station responds with an error status.
    let Ok(health) = get_any(address, "/healthz") else { return Vec::new() };
    let sentences = ["reasons", "warnings"].map(|list| health[list].as_array().cloned().unwrap_or_default());
    sentences.iter().flatten().filter_map(Value::as_str).map(ToString::to_string).collect()
}

fn in_state<'a>(peers: &'a Value, state: &'a str) -> impl Iterator<Item = String> + 'a {
    let all = peers["peers"].as_array().into_iter().flatten();
    all.filter(move |peer| peer["state"] == state).filter_map(|peer| Some(peer["host"].as_str()?.to_string()))
}

/// Number of the station's values that the station at this address forecasts from.
pub(super) fn learnt_at(address: SocketAddr) -> anyhow::Result<u64> {
    let answer = get(address, &format!("/v1/forecast?source={STATION}"))?;
    let forecasts = answer["forecasts"].as_array().context("a list of forecasts")?;
    Ok(forecasts.iter().filter_map(|forecast| forecast["count"].as_u64()).sum())
}

const WATCH_LOOKS_EVERY: Duration = Duration::from_millis(100);

/// Forwards bytes to one server, and none while it is cut: like a network that drops every packet
/// and then recovers, when TCP retransmits what was missing.
pub(super) struct Relay {
    pub(super) address: SocketAddr,
    is_cut: Arc<AtomicBool>,
}

impl Relay {
    /// Starts a relay; its threads end with the experiment's process.
    pub(super) fn start(server: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let is_cut = Arc::new(AtomicBool::new(false));
        let cut = Arc::clone(&is_cut);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let cut = Arc::clone(&cut);
                thread::spawn(move || connect(client, server, &cut));
            }
        });
        Ok(Self { address, is_cut })
    }

    pub(super) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }
}

fn connect(client: TcpStream, server: SocketAddr, cut: &Arc<AtomicBool>) {
    wait_while(cut);
    // A dead server refuses the connection; the client's then ends with this function.
    let Ok(server) = TcpStream::connect(server) else { return };
    let (Ok(back_from), Ok(back_to)) = (server.try_clone(), client.try_clone()) else { return };
    let back = Arc::clone(cut);
    thread::spawn(move || forward(back_from, back_to, &back));
    forward(client, server, cut);
}

fn forward(mut from: TcpStream, mut to: TcpStream, cut: &AtomicBool) {
    let mut bytes = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        wait_while(cut);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    wait_while(cut);
    // Closing one end closes the other, as the kernel would do. An end may be closed already.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn wait_while(cut: &AtomicBool) {
    while cut.load(Ordering::Relaxed) {
        thread::sleep(RELAY_LOOKS_EVERY);
    }
}

const RELAY_LOOKS_EVERY: Duration = Duration::from_millis(20);

pub(super) enum Disk {
    Small(SmallDisk),
    #[cfg(target_os = "linux")]
    Failing(FailingDisk),
}

impl Disk {
    /// Mounts a disk that can fail at `path`; `None` if that is not permitted.
    pub(super) fn failing(path: &Path) -> anyhow::Result<Option<Self>> {
        std::fs::create_dir_all(path)?;
        #[cfg(target_os = "linux")]
        return Ok(FailingDisk::mount(path).map(Self::Failing));
        #[cfg(not(target_os = "linux"))]
        Ok(None)
    }

    /// Mounts a small disk at `path`; `None` if that is not permitted.
    pub(super) fn small(path: &Path) -> anyhow::Result<Option<Self>> {
        Ok(SmallDisk::mount(path)?.map(Self::Small))
    }

    /// The small disk, the only kind that can be filled.
    pub(super) fn as_small(&self) -> anyhow::Result<&SmallDisk> {
        match self {
            Self::Small(disk) => Ok(disk),
            #[cfg(target_os = "linux")]
            Self::Failing(_) => bail!("this disk cannot be filled"),
        }
    }

    /// Cuts the power, so that every access fails and unsynced data is lost, or restores it.
    pub(super) fn power(&self, is_on: bool) -> anyhow::Result<()> {
        match self {
            Self::Small(_) => bail!("this disk cannot fail"),
            #[cfg(target_os = "linux")]
            Self::Failing(disk) => Ok(if is_on { disk.restore() } else { disk.fail() }?),
        }
    }
}

pub(super) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts a small disk at `path`, which needs root; `None` if that is not permitted.
    fn mount(path: &Path) -> anyhow::Result<Option<Self>> {
        std::fs::create_dir_all(path)?;
        let size = format!("size={DISK_BYTES},mode=700");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "barograph"]).arg(path).output();
        let mounted = mount.is_ok_and(|output| output.status.success());
        Ok(mounted.then(|| Self(path.to_path_buf())))
    }

    pub(super) fn fill(&self) -> anyhow::Result<()> {
        let mut file = File::create(self.ballast())?;
        for size in [1 << 20, 1 << 12] {
            let block = vec![1; size];
            let error = loop {
                if let Err(error) = file.write_all(&block) {
                    break error;
                }
            };
            ensure!(error.kind() == std::io::ErrorKind::StorageFull, "the disk cannot be filled: {error}");
        }
        Ok(())
    }

    pub(super) fn empty(&self) -> anyhow::Result<()> {
        remove_file(self.ballast()).context("the disk was filled before")
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, because after a failed row processes may still use the disk.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Room for some ten thousand records, their journal, and the servers' files.
const DISK_BYTES: u64 = 64 << 20;
