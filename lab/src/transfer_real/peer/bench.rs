//! What peers run on: a network, programs that are built once, and files in memory.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use barograph_sim::{Host, Network};
use tempfile::TempDir;

use super::super::job::{Copied, Job};
use crate::process::Process;
use crate::tool::{Ended, make_file, wait_for_port};

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
    pub(crate) udt: OnceLock<Result<PathBuf, String>>,
    pub(crate) quinn: OnceLock<Result<PathBuf, String>>,
}

impl Tools {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
        // The anonymous user of GridFTP's server writes there.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
        Ok(Self { folder, udt: OnceLock::new(), quinn: OnceLock::new() })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Bench<'_> {
    /// The rate of a program that copies a file from one folder to another, less what it takes for a file of one byte.
    ///
    /// Of a [`Job`]: set-up and what makes it durable counted. Else, on a path of a known rate, the file is four fifths of what that carries in the run's time; else it grows until the copy takes half of that.
    ///
    /// # Errors
    /// It fails, or what it made has another length.
    pub(super) fn copied(
        &self,
        copy: impl Fn(&Path, &Path, u64) -> anyhow::Result<Ended>,
    ) -> anyhow::Result<f64> {
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
    pub(super) fn copied_in(
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
            fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
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

    /// A server in a host, which has this port (of `tcp` or `udp`) when it returns.
    pub(super) fn serve(
        &self,
        host: &Host,
        program: &Path,
        words: &[&str],
        port: (&str, u16),
    ) -> anyhow::Result<Process> {
        let mut command = host.command(&program.to_string_lossy());
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Process::spawn(&mut command)?;
        wait_for_port(host, port.0, port.1)?;
        Ok(server)
    }

    /// What all copies are below.
    pub(super) fn root(&self) -> &Path {
        self.job.map_or(self.tools.path(), Job::to)
    }

    /// When a run that should have ended is stopped.
    pub(super) fn limit_s(&self) -> u64 {
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
pub(super) const GRACE_S: u64 = 6;
