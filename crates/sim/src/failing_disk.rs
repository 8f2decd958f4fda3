//! A disk that can fail: it loses power and then returns an I/O error on every access.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::libc;

/// An ext4 file system on a loop device; dropping the value unmounts it.
///
/// [`FailingDisk::fail`] stops the file system as a power failure does: data not yet written to the
/// device are lost. Until [`FailingDisk::restore`], every write, sync and read of a file fails with
/// EIO. Synced data are available afterwards. The write cache of a drive is not emulated: a sync
/// that reached the device counts as durable.
#[derive(Debug)]
pub struct FailingDisk {
    mounted: PathBuf,
    device: String,
}

impl FailingDisk {
    /// Mounts the file system at the directory `path`; `None` if mounting is not permitted (without
    /// root), or the machine has no ext4 or no loop devices.
    #[must_use]
    pub fn mount(path: &Path) -> Option<Self> {
        let image = path.with_extension("image");
        File::create(&image).and_then(|file| file.set_len(BYTES)).ok()?;
        let device = printed(Command::new("losetup").args(["--find", "--show"]).arg(&image));
        // The device keeps the file open, so a killed test leaves only the device behind.
        let _ = fs::remove_file(&image);
        let disk = Self { mounted: path.to_path_buf(), device: device?.trim().to_string() };
        printed(Command::new("mkfs.ext4").args(["-q", "-E", "lazy_itable_init=0"]).arg(&disk.device))?;
        // Use a shared mount. A process with its own mount namespace, such as one of
        // `ip netns exec`, has a copy of each mount, and a stopped file system stays stopped until
        // every copy is unmounted.
        run(Command::new("mount").arg("--bind").args([path, path])).ok()?;
        run(Command::new("mount").arg("--make-shared").arg(path)).ok()?;
        disk.attach().ok()?;
        Some(disk)
    }

    /// Simulates a power failure: unsynced data are lost, and accesses fail until
    /// [`FailingDisk::restore`].
    ///
    /// # Errors
    /// If the kernel refuses, as for a file system other than ext4.
    pub fn fail(&self) -> io::Result<()> {
        shut_down(&File::open(&self.mounted)?)
    }

    /// Mounts the disk again, with the synced data. No file on the disk may be open.
    ///
    /// # Errors
    /// If a process still has a file open there, or the file system cannot be mounted.
    pub fn restore(&self) -> io::Result<()> {
        run(Command::new("umount").arg(&self.mounted))?;
        self.attach()
    }

    fn attach(&self) -> io::Result<()> {
        run(Command::new("mount").arg(&self.device).arg(&self.mounted))
    }
}

impl Drop for FailingDisk {
    fn drop(&mut self) {
        // A lazy unmount succeeds even if a failed test still has files open there; the device is
        // freed when they are closed.
        for _ in ["the file system", "the shared mount"] {
            let _ = Command::new("umount").arg("-l").arg(&self.mounted).output();
        }
        let _ = Command::new("losetup").args(["-d", &self.device]).output();
    }
}

fn printed(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[expect(unsafe_code, reason = "no safe wrapper of EXT4_IOC_SHUTDOWN exists among the dependencies")]
fn shut_down(directory: &File) -> io::Result<()> {
    mod raw {
        nix::ioctl_read!(ext4_shutdown, b'X', 125, u32);
    }
    let mut flags: libc::c_uint = WITHOUT_FLUSHING_THE_LOG;
    // SAFETY: the descriptor is open for the whole call, and the kernel only reads the 32 bits of
    // `flags`.
    unsafe { raw::ext4_shutdown(directory.as_raw_fd(), &raw mut flags) }?;
    Ok(())
}

/// `EXT4_GOING_FLAGS_NOLOGFLUSH`: the journal also keeps only the data that were committed to the
/// journal.
const WITHOUT_FLUSHING_THE_LOG: u32 = 2;

/// Size of the disk in bytes: enough for ten thousand records, their journal, and the files of a
/// NATS server.
const BYTES: u64 = 64 << 20;
