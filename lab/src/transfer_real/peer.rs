//! What Barograph is compared with: each peer's programs, version, and rate over a network.

mod gridftp;
pub(crate) mod iperf;
mod quinn;
mod ssh;
mod udt;
mod uftp;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use barograph_sim::Network;
use tempfile::TempDir;

use super::job::{Copied, Job};
use super::tool::{Ended, find, make_file, package_version};

/// A program, and how it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// iperf3 with this congestion control.
    Tcp(&'static str),
    /// iperf3, as fast as it can.
    Udp,
    /// Debian's example `appclient`.
    UdtMemory,
    /// Debian's example `sendfile`.
    UdtFile,
    /// At the rate it is told, or with TFMCC (RFC 4654).
    Uftp {
        has_control: bool,
    },
    /// So many TCP connections at once.
    GridFtp {
        streams: u32,
    },
    /// `lab/quinn` with this congestion control.
    Quinn(&'static str),
    Scp,
    RsyncSsh,
    RsyncDaemon,
}

/// What peers run on.
pub(crate) struct Bench<'a> {
    pub(crate) network: &'a Network,
    pub(crate) tools: &'a Tools,
    /// Of a run, roughly.
    pub(crate) seconds: u64,
    /// The bottleneck, where there is one (bit/s).
    pub(crate) rate_bps: Option<u64>,
    /// What is copied, and where to; else files in memory that the run makes.
    pub(crate) job: Option<&'a Job>,
}

/// What is made once and used by many runs.
pub(crate) struct Tools {
    /// In memory where there is such a place: files that peers copy, and what is built.
    folder: TempDir,
    udt: OnceLock<Result<PathBuf, String>>,
    quinn: OnceLock<Result<PathBuf, String>>,
}

impl Tools {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
        // The anonymous user of GridFTP's server writes there.
        fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
        Ok(Self { folder, udt: OnceLock::new(), quinn: OnceLock::new() })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Peer {
    /// Those of the table of an uncontended path.
    pub(crate) const ALL: [Self; 14] = [
        Self::Tcp("cubic"),
        Self::Tcp("bbr"),
        Self::Udp,
        Self::Quinn("cubic"),
        Self::Quinn("bbr"),
        Self::UdtMemory,
        Self::UdtFile,
        Self::Uftp { has_control: false },
        Self::Uftp { has_control: true },
        Self::GridFtp { streams: 1 },
        Self::GridFtp { streams: 8 },
        Self::Scp,
        Self::RsyncSsh,
        Self::RsyncDaemon,
    ];

    pub(crate) fn name(self) -> String {
        match self {
            Self::Tcp(congestion) => format!("iperf3 TCP, {congestion}"),
            Self::Udp => "iperf3 UDP".to_owned(),
            Self::UdtMemory => "UDT, memory".to_owned(),
            Self::UdtFile => "UDT, file".to_owned(),
            Self::Uftp { has_control: false } => "UFTP, rate told".to_owned(),
            Self::Uftp { has_control: true } => "UFTP, TFMCC".to_owned(),
            Self::GridFtp { streams } => format!("GridFTP, {streams} × TCP"),
            Self::Quinn(congestion) => format!("quinn, {congestion}"),
            Self::Scp => "scp".to_owned(),
            Self::RsyncSsh => "rsync over ssh".to_owned(),
            Self::RsyncDaemon => "rsync daemon".to_owned(),
        }
    }

    /// Whether what it sends is sealed.
    pub(crate) fn is_sealed(self) -> bool {
        matches!(self, Self::Quinn(_) | Self::Scp | Self::RsyncSsh)
    }

    /// Whether it sends over TCP with the system's default congestion control.
    pub(crate) fn uses_default_congestion_control(self) -> bool {
        matches!(self, Self::GridFtp { .. } | Self::Scp | Self::RsyncSsh | Self::RsyncDaemon)
    }

    /// Its version.
    ///
    /// # Errors
    /// What is missing here.
    pub(crate) fn version(self, tools: &Tools) -> Result<String, String> {
        if let Self::Quinn(_) = self {
            quinn::built(tools)?;
            return Ok(quinn::version());
        }
        let (programs, packages): (&[&str], &[&str]) = match self {
            Self::Tcp(_) | Self::Udp => (&["iperf3"], &["iperf3"]),
            Self::UdtMemory | Self::UdtFile => (&["g++"], &["libudt-dev"]),
            Self::Uftp { .. } => (&["uftp", "uftpd"], &["uftp"]),
            Self::GridFtp { .. } => (
                &["globus-gridftp-server", "globus-url-copy"],
                &["globus-gridftp-server-progs", "globus-gass-copy-progs"],
            ),
            Self::Scp | Self::Quinn(_) => (&["sshd", "scp", "ssh-keygen"], &["openssh-server"]),
            Self::RsyncSsh => (&["sshd", "rsync", "ssh-keygen"], &["rsync", "openssh-server"]),
            Self::RsyncDaemon => (&["rsync"], &["rsync"]),
        };
        if let Some(missing) = programs.iter().find(|program| find(program).is_none()) {
            return Err(format!("there is no {missing} (Debian: {})", packages.join(", ")));
        }
        if matches!(self, Self::UdtMemory | Self::UdtFile) {
            udt::built(tools)?;
        }
        let version = |package: &&str| package_version(package).unwrap_or_else(|| "?".to_owned());
        Ok(packages.iter().map(version).collect::<Vec<String>>().join(", "))
    }

    /// Its rate in bit/s of the user's bytes.
    ///
    /// # Errors
    /// Why it did not run.
    pub(crate) fn measure(self, bench: &Bench<'_>) -> anyhow::Result<f64> {
        match self {
            Self::Tcp(congestion) => iperf::tcp(bench, congestion),
            Self::Udp => iperf::udp(bench),
            Self::UdtMemory => udt::memory(bench),
            Self::UdtFile => udt::file(bench),
            Self::Uftp { has_control } => uftp::measure(bench, has_control),
            Self::GridFtp { streams } => gridftp::measure(bench, streams),
            Self::Quinn(congestion) => quinn::measure(bench, congestion),
            Self::Scp => ssh::scp(bench),
            Self::RsyncSsh => ssh::rsync(bench),
            Self::RsyncDaemon => ssh::rsync_daemon(bench),
        }
    }
}

impl Bench<'_> {
    /// The rate of a program that copies a file from one folder to another, less what it takes for a file of one byte.
    ///
    /// Of a [`Job`]: set-up and what makes it durable counted. Else, on a path of a known rate, the file is four fifths of what that carries in the run's time; else it grows until the copy takes half of that.
    ///
    /// # Errors
    /// It fails, or what it made has another length.
    fn copied(&self, copy: impl Fn(&Path, &Path, u64) -> anyhow::Result<Ended>) -> anyhow::Result<f64> {
        if let Some(job) = self.job {
            let Copied { seconds, synced_s, bytes } = job.copied(&copy)?;
            return Ok(8.0 * bytes as f64 / (seconds + synced_s));
        }
        let set_up_s = self.copied_in(&copy, 1, self.limit_s())?.seconds;
        // Who fills the path ends in time; whoever does not is stopped then, so that no path takes longer than others.
        let mut bytes = self.rate_bps.map_or(FILE_BYTES_MIN, |rate| rate / 10 * self.seconds);
        let limit_s = self.rate_bps.map_or(self.limit_s(), |_| self.seconds + set_up_s.ceil() as u64);
        loop {
            let Copied { seconds, bytes: arrived, .. } = self.copied_in(&copy, bytes, limit_s)?;
            let seconds = (seconds - set_up_s).max(1e-3);
            if self.rate_bps.is_some()
                || FILE_BYTES_MAX <= bytes
                || self.seconds as f64 / 2.0 <= seconds
                || arrived < bytes
            {
                return Ok(8.0 * arrived as f64 / seconds);
            }
            // A little more than it takes, for the next may be quicker.
            let wanted = bytes as f64 * 0.75 * self.seconds as f64 / seconds;
            bytes = (wanted as u64).max(2 * bytes).min(FILE_BYTES_MAX);
        }
    }

    /// One copy of a file of so many bytes, or of the job, stopped after so many seconds.
    fn copied_in(
        &self,
        copy: &impl Fn(&Path, &Path, u64) -> anyhow::Result<Ended>,
        bytes: u64,
        limit_s: u64,
    ) -> anyhow::Result<Copied> {
        if let Some(job) = self.job {
            return job.copied(copy);
        }
        let folder = tempfile::tempdir_in(self.tools.path())?;
        let (from, to) = (folder.path().join("source"), folder.path().join("there"));
        fs::create_dir(&to)?;
        for path in [folder.path(), &to] {
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
        }
        make_file(&from, bytes)?;
        let began = Instant::now();
        let ended = copy(&from, &to, limit_s)?;
        let seconds = began.elapsed().as_secs_f64();
        let arrived = match ended {
            Ended::Done(_) => {
                let length = fs::metadata(to.join("source")).context("no copy was made")?.len();
                ensure!(length == bytes, "the copy has {length} bytes, expected {bytes}");
                bytes
            }
            // What is there so far, whatever it is called: those that write in any order leave holes.
            Ended::TimeUp => written(&to)?.min(bytes),
        };
        Ok(Copied { seconds, synced_s: 0.0, bytes: arrived })
    }

    /// What all copies are below.
    fn root(&self) -> &Path {
        self.job.map_or(self.tools.path(), Job::to)
    }

    /// When a run that should have ended is stopped.
    fn limit_s(&self) -> u64 {
        2 * self.seconds + GRACE_S
    }
}

/// Bytes on the disk of all files of a folder.
fn written(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        bytes += 512 * entry?.metadata()?.blocks();
    }
    Ok(bytes)
}

/// Where nothing is known of the path: 0.1 s at 5 Gbit/s.
const FILE_BYTES_MIN: u64 = 64 << 20;
/// Twice that, source and copy, is in memory.
const FILE_BYTES_MAX: u64 = 2 << 30;

/// Set-up over 100 ms, and a machine with other things to do.
const GRACE_S: u64 = 6;
