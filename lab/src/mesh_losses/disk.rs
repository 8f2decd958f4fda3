//! Disks that can be filled, and disks that fail.

use std::fs::{File, remove_file};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

#[cfg(target_os = "linux")]
use barograph_sim::FailingDisk;

/// A disk of one part of the mesh.
pub(super) enum Disk {
    Small(SmallDisk),
    #[cfg(target_os = "linux")]
    Failing(FailingDisk),
}

impl Disk {
    /// Mounts a disk that can fail at `path`; `None` = it may not.
    pub(super) fn failing(path: &Path) -> anyhow::Result<Option<Self>> {
        std::fs::create_dir_all(path)?;
        #[cfg(target_os = "linux")]
        return Ok(FailingDisk::mount(path).map(Self::Failing));
        #[cfg(not(target_os = "linux"))]
        Ok(None)
    }

    /// Mounts a small disk at `path`; `None` = it may not.
    pub(super) fn small(path: &Path) -> anyhow::Result<Option<Self>> {
        Ok(SmallDisk::mount(path)?.map(Self::Small))
    }

    /// Takes all its space.
    pub(super) fn fill(&self) -> anyhow::Result<()> {
        match self {
            Self::Small(disk) => disk.fill(),
            #[cfg(target_os = "linux")]
            Self::Failing(_) => bail!("this disk is not to be filled"),
        }
    }

    /// Gives the space back.
    pub(super) fn empty(&self) -> anyhow::Result<()> {
        match self {
            Self::Small(disk) => disk.empty(),
            #[cfg(target_os = "linux")]
            Self::Failing(_) => bail!("this disk was not filled"),
        }
    }

    /// Cuts its power: every access fails, and what was not synced is lost.
    pub(super) fn fail(&self) -> anyhow::Result<()> {
        match self {
            Self::Small(_) => bail!("this disk cannot fail"),
            #[cfg(target_os = "linux")]
            Self::Failing(disk) => Ok(disk.fail()?),
        }
    }

    /// Mounts again what was synced.
    pub(super) fn restore(&self) -> anyhow::Result<()> {
        match self {
            Self::Small(_) => bail!("this disk cannot fail"),
            #[cfg(target_os = "linux")]
            Self::Failing(disk) => Ok(disk.restore()?),
        }
    }
}

/// A disk in memory, mounted for as long as it lives.
pub(super) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one at `path`, which needs root; `None` = it may not.
    fn mount(path: &Path) -> anyhow::Result<Option<Self>> {
        std::fs::create_dir_all(path)?;
        let size = format!("size={BYTES},mode=700");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "barograph"]).arg(path).output();
        let mounted = mount.is_ok_and(|output| output.status.success());
        Ok(mounted.then(|| Self(path.to_path_buf())))
    }

    /// Takes all its space.
    fn fill(&self) -> anyhow::Result<()> {
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

    /// Gives the space back.
    fn empty(&self) -> anyhow::Result<()> {
        remove_file(self.ballast()).context("the disk was filled before")
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, for the case that a failed row still has processes that use it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Some ten thousand records, their journal, and the servers' files fit.
const BYTES: u64 = 64 << 20;
