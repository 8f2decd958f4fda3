//! A disk that is slower than the processors: a file as a disk of its own, whose writes the kernel delays.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

/// A mounted disk; gone when it is dropped.
pub(super) struct Disk {
    mounted: PathBuf,
    /// `losetup`'s name of it.
    device: Option<String>,
    /// Its numbers, once its writes are limited.
    limited: Option<String>,
}

impl Disk {
    /// Of so many bytes, in a file below `folder`; it writes `bytes_s` at most.
    ///
    /// By the control groups' version 1: there the root group's limit holds for all who write to the device, the kernel's write-back too.
    ///
    /// # Errors
    /// What is missing here.
    pub(super) fn new(folder: &Path, bytes: u64, bytes_s: u64) -> anyhow::Result<Self> {
        ensure!(
            Path::new(LIMITS).is_file(),
            "there is no {LIMITS} (blkio of control groups, version 1), by which a disk is slowed down"
        );
        let (image, mounted) = (folder.join("disk"), folder.join("mounted"));
        // Taken beforehand, so that none is looked for while it is written to.
        done(Command::new("fallocate").args(["-l", &bytes.to_string()]).arg(&image))?;
        fs::create_dir(&mounted)?;
        let mut disk = Self { mounted, device: None, limited: None };
        let device = done(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(&image))?;
        let device = disk.device.insert(device.trim().to_owned()).clone();
        let made = ["-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"];
        done(Command::new("mkfs.ext4").args(made).arg(&device))?;
        done(Command::new("mount").arg(&device).arg(&disk.mounted))?;
        let number = fs::metadata(&device)?.rdev();
        // As it is for a loop device: a small major number, and a minor one of 8 bits.
        let numbers = format!("{}:{}", number >> 8 & 0xfff, number & 0xff);
        fs::write(LIMITS, format!("{numbers} {bytes_s}"))
            .with_context(|| format!("cannot write {LIMITS}"))?;
        disk.limited = Some(numbers);
        Ok(disk)
    }

    pub(super) fn path(&self) -> &Path {
        &self.mounted
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // First, so that what is left is written quickly. What cannot be undone stays, and is seen in `losetup`.
        let _ = self.limited.as_ref().map(|numbers| fs::write(LIMITS, format!("{numbers} 0")));
        if let Some(device) = &self.device {
            let _ = done(Command::new("umount").arg(&self.mounted));
            let _ = done(Command::new("losetup").args(["-d", device]));
        }
    }
}

/// What it printed.
fn done(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{program} cannot be run"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed: {}", said.lines().last().unwrap_or_default());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

const LIMITS: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";
