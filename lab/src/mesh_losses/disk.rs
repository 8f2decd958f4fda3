//! A small disk that can be filled.

use std::fs::{File, remove_file};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

/// A disk in memory, mounted for as long as it lives.
pub(super) struct Disk(PathBuf);

impl Disk {
    /// Mounts one at `path`, which needs root; `None` = it may not.
    pub(super) fn mount(path: &Path) -> anyhow::Result<Option<Self>> {
        std::fs::create_dir_all(path)?;
        let size = format!("size={BYTES},mode=700");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "barograph"]).arg(path).output();
        let mounted = mount.is_ok_and(|output| output.status.success());
        Ok(mounted.then(|| Self(path.to_path_buf())))
    }

    /// Takes all its space.
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

    /// Gives the space back.
    pub(super) fn empty(&self) -> anyhow::Result<()> {
        remove_file(self.ballast()).context("the disk was filled before")
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily, for the case that a failed row still has processes that use it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Some ten thousand records, their journal, and the servers' files fit.
const BYTES: u64 = 64 << 20;
