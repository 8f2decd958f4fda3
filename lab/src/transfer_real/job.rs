//! A file, or a folder of them, that is copied from disk to disk until it is durable.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;

use crate::tool::{Ended, make_file};

/// What is copied, and where to.
pub(crate) struct Job {
    source: PathBuf,
    to: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) files: u64,
}

/// What came of a copy.
pub(crate) struct Copied {
    pub(crate) seconds: f64,
    /// What it took then to make it durable.
    pub(crate) synced_s: f64,
    pub(crate) bytes: u64,
}

impl Job {
    /// A file of so many bytes below `from`, to be copied to folders below `to`.
    pub(crate) fn file(from: &Path, to: &Path, bytes: u64) -> anyhow::Result<Self> {
        let source = from.join(NAME);
        make_file(&source, bytes)?;
        Self::new(source, to, bytes, 1)
    }

    /// So many files of 4 to 16 KiB in folders of 100.
    pub(crate) fn tree(from: &Path, to: &Path, files: u64) -> anyhow::Result<Self> {
        let source = from.join(NAME);
        let mut bytes = 0;
        for number in 0..files {
            let folder = source.join(format!("{:04}", number / 100));
            fs::create_dir_all(&folder)?;
            // All lengths are there, in an order without one (Knuth's multiplicative hash).
            let length = 4096 + (number * 2_654_435_761) % 12_289;
            make_file(&folder.join(format!("{:02}", number % 100)), length)?;
            bytes += length;
        }
        Self::new(source, to, bytes, files)
    }

    fn new(source: PathBuf, to: &Path, bytes: u64, files: u64) -> anyhow::Result<Self> {
        // The anonymous user of GridFTP's server reads and writes there.
        let to = to.to_owned();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o777))?;
        let job = Self { source, to, bytes, files };
        job.sync(&job.source)?;
        Ok(job)
    }

    pub(crate) fn source(&self) -> &Path {
        &self.source
    }

    /// What copies go below.
    pub(crate) fn to(&self) -> &Path {
        &self.to
    }

    /// A folder for one copy.
    pub(crate) fn place(&self) -> anyhow::Result<TempDir> {
        let place = tempfile::tempdir_in(&self.to)?;
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777))?;
        Ok(place)
    }

    /// Copies, and makes it durable.
    ///
    /// # Errors
    /// It does not end in time, or what it made is not what it should be.
    pub(crate) fn copied(
        &self,
        copy: &impl Fn(&Path, &Path, u64) -> anyhow::Result<Ended>,
    ) -> anyhow::Result<Copied> {
        let place = self.place()?;
        let began = Instant::now();
        let Ended::Done(_) = copy(&self.source, place.path(), SECONDS_MAX)? else {
            bail!("it did not end within {SECONDS_MAX} s");
        };
        let seconds = began.elapsed().as_secs_f64();
        self.sync(&place.path().join(NAME))?;
        let synced_s = began.elapsed().as_secs_f64() - seconds;
        self.check(place.path())?;
        Ok(Copied { seconds, synced_s, bytes: self.bytes })
    }

    /// Whether all is there.
    pub(crate) fn check(&self, place: &Path) -> anyhow::Result<()> {
        let (mut bytes, mut files) = (0, 0);
        let mut left = vec![place.join(NAME)];
        while let Some(path) = left.pop() {
            let found = fs::symlink_metadata(&path).context("no copy was made")?;
            if found.is_dir() {
                for entry in fs::read_dir(&path)? {
                    left.push(entry?.path());
                }
            } else {
                (bytes, files) = (bytes + found.len(), files + 1);
            }
        }
        ensure!(
            (bytes, files) == (self.bytes, self.files),
            "the copy has {files} files, {bytes} bytes; expected {}, {}",
            self.files,
            self.bytes
        );
        Ok(())
    }

    /// A file by itself; of many, all of their file system.
    fn sync(&self, path: &Path) -> anyhow::Result<()> {
        if path.is_file() {
            return Ok(fs::File::open(path)?.sync_all()?);
        }
        let synced = Command::new("sync").arg("-f").arg(path).status()?;
        ensure!(synced.success(), "`sync -f` failed");
        Ok(())
    }
}

/// Of what is copied.
pub(crate) const NAME: &str = "source";
/// Of one copy.
pub(crate) const SECONDS_MAX: u64 = 120;
