//! A small disk that is soon full, for tests and the lab.

use std::path::Path;
use std::process::Command;

/// A file system of 4 MiB in memory; dropping the value unmounts it.
#[derive(Debug)]
pub struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    /// Mounts the file system at the directory `path`; `None` if mounting is not permitted, for
    /// example without root.
    #[must_use]
    pub fn mount(path: &'a Path) -> Option<Self> {
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "barograph"]).arg(path).output();
        mount.is_ok_and(|output| output.status.success()).then(|| Self(path))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        // A lazy unmount succeeds even if a failed test still has files open there.
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}
