//! Processes of a mesh, and what the station said.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

/// A process that is killed when it is dropped.
pub(super) struct Process(Child);

impl Process {
    fn spawn(command: &mut Command) -> anyhow::Result<Self> {
        command.spawn().map(Self).with_context(|| format!("{:?} cannot be run", command.get_program()))
    }

    /// Sends a signal by its name, `STOP` or `CONT`.
    pub(super) fn signal(&self, name: &str) -> anyhow::Result<()> {
        let sent = Command::new("kill").args(["-s", name, &self.0.id().to_string()]).status()?;
        ensure!(sent.success(), "no signal {name} to process {}", self.0.id());
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL; one that has ended already is only waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the station has said so far.
#[derive(Default)]
pub(super) struct Said {
    pub(super) acknowledged: BTreeSet<u64>,
    last: Option<Instant>,
    pub(super) longest_gap: Duration,
    drained: bool,
}

/// A mesh of one station, one server and one archive.
pub(super) struct Mesh {
    program: PathBuf,
    port: u16,
    pub(super) jump: bool,
    pub(super) server: Option<Process>,
    pub(super) archive: Option<Process>,
    pub(super) station: Option<Process>,
    pub(super) said: Arc<Mutex<Said>>,
    // Dropped last, when no process writes there any more.
    directory: tempfile::TempDir,
}

impl Mesh {
    pub(super) fn new(program: &Path) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        // The server is killed and started again under the same address.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let text = format!(
            "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: {:?}, sync_interval: always }}\n",
            directory.path().join("jetstream")
        );
        std::fs::write(directory.path().join("server.conf"), text)?;
        let said = Arc::default();
        let program = program.to_path_buf();
        Ok(Self { program, port, jump: false, server: None, archive: None, station: None, said, directory })
    }

    pub(super) fn start_server(&mut self) -> anyhow::Result<()> {
        let log = std::fs::File::create(self.directory.path().join("server.log"))?;
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(self.directory.path().join("server.conf"));
        self.server = Some(Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log))?);
        Ok(())
    }

    pub(super) fn start_archive(&mut self) -> anyhow::Result<()> {
        let mut command = self.child("archive")?;
        self.archive = Some(Process::spawn(command.stdin(Stdio::piped()).stdout(Stdio::null()))?);
        Ok(())
    }

    pub(super) fn start_station(&mut self) -> anyhow::Result<()> {
        let mut command = self.child("station")?;
        if self.jump {
            command.arg("--jump");
        }
        let mut process = Process::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let out = BufReader::new(process.0.stdout.take().context("the station's output is a pipe")?);
        let said = Arc::clone(&self.said);
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                said.lock().unwrap_or_else(PoisonError::into_inner).hear(&line);
            }
        });
        self.station = Some(process);
        Ok(())
    }

    /// Lets the station append no more, and waits until the mesh has confirmed all.
    pub(super) fn drain(&mut self) -> anyhow::Result<()> {
        let station = self.station.as_mut().context("the station runs")?;
        drop(station.0.stdin.take());
        let began = Instant::now();
        while !self.said.lock().unwrap_or_else(PoisonError::into_inner).drained {
            ensure!(began.elapsed() < DRAIN_MAX, "the station did not drain within {DRAIN_MAX:?}");
            thread::sleep(Duration::from_millis(50));
        }
        self.station = None;
        self.archive = None;
        Ok(())
    }

    /// The archive's state directory.
    pub(super) fn archive_directory(&self) -> PathBuf {
        self.directory.path().join("archive")
    }

    fn child(&self, part: &str) -> anyhow::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["mesh-losses", "--child", part, "--directory"]).arg(self.directory.path().join(part));
        command.args(["--url", &format!("nats://127.0.0.1:{}", self.port)]);
        Ok(command)
    }
}

impl Said {
    fn hear(&mut self, line: &str) {
        // A line that a kill cut short lacks its mark.
        let Some(line) = line.strip_suffix(" .") else { return };
        self.drained |= line.starts_with("drained");
        let Some(rest) = line.strip_prefix("acknowledged ") else { return };
        let mut numbers = rest.split(' ').map_while(|word| word.parse::<u64>().ok());
        if let (Some(first), Some(count)) = (numbers.next(), numbers.next()) {
            self.acknowledged.extend(first..first + count);
            let now = Instant::now();
            if let Some(last) = self.last.replace(now) {
                self.longest_gap = self.longest_gap.max(now - last);
            }
        }
    }
}

/// The longest wait for the mesh's confirmation: a NATS client reconnects within seconds, and a
/// forwarder repeats after half a minute.
const DRAIN_MAX: Duration = Duration::from_secs(120);
