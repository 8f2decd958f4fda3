//! File operations that differ between systems.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[cfg(not(target_os = "linux"))]
use rustix::fs::FileType;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, Stat, chmodat, flock, fstat, statat};
#[cfg(target_os = "linux")]
use rustix::fs::{CWD, openat};
use rustix::io::Errno;

/// Flags to open a directory on a path. On Linux these flags require no read permission.
pub(super) const PASSED: OFlags = {
    #[cfg(target_os = "linux")]
    let how = OFlags::PATH;
    #[cfg(not(target_os = "linux"))]
    let how = OFlags::RDONLY;
    how.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC)
};

/// Whether a directory could not be opened because there is a link or a file at its path: errors of
/// `O_NOFOLLOW` by POSIX.1-2017, and EMLINK of FreeBSD.
pub(super) fn is_no_directory(error: Errno) -> bool {
    matches!(error, Errno::LOOP | Errno::NOTDIR | Errno::MLINK)
}

/// Whether the error means that a file system has no locks.
pub(super) fn has_no_locks(error: Errno) -> bool {
    // NOTSUP and OPNOTSUPP are equal on Linux, and differ on other systems.
    [Errno::NOLCK, Errno::NOSYS, Errno::NOTSUP, Errno::OPNOTSUPP].contains(&error)
}

/// A descriptor that unlocks its file when it is dropped.
///
/// A child process has copies of all descriptors until it starts its program, and keeps the lock
/// with them. Closing the descriptor would not release the lock before then, so the next session
/// would be refused. Unlocking releases the lock of all copies (flock(2)).
#[derive(Debug)]
pub(super) struct UnlockOnDrop(pub(super) OwnedFd);

impl AsFd for UnlockOnDrop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for UnlockOnDrop {
    fn drop(&mut self) {
        // On a file system without locks this fails, and nothing has to be released.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Makes durable a file's data, and the metadata that is needed to read the data.
pub(super) fn sync_data(file: impl AsFd) -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    return rustix::fs::fdatasync(file);
    #[cfg(not(target_os = "linux"))]
    sync(file)
}

/// Makes a file or directory durable.
pub(super) fn sync(file: impl AsFd) -> Result<(), Errno> {
    // fsync(2) of macOS leaves the data in the disk's cache. Not every file system supports the
    // full sync. Any other error of the full sync is returned.
    #[cfg(target_vendor = "apple")]
    match rustix::fs::fcntl_fullfsync(&file) {
        Err(Errno::NOTSUP | Errno::INVAL | Errno::NOTTY) => {}
        synced => return synced,
    }
    rustix::fs::fsync(file)
}

/// Maximum number of files that are synced one by one. If there are more files, their whole file
/// system is synced at once, on systems that can do this (syncfs(2) of Linux).
pub(super) const SYNCED_ALONE_MAX: usize = if cfg!(target_os = "linux") { 32 } else { usize::MAX };

/// Makes a whole file system durable.
pub(super) fn sync_all(on: impl AsFd) -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    return rustix::fs::syncfs(on);
    // Never called on these systems: see `SYNCED_ALONE_MAX`.
    #[cfg(not(target_os = "linux"))]
    {
        let _ = on;
        Err(Errno::NOSYS)
    }
}

/// Makes Linux start to write dirty pages, and drop clean ones (mm/fadvise.c). Does nothing on
/// other systems: they write a file's pages when the file is synced.
pub(super) fn begin_writing(file: BorrowedFd<'_>, offset: u64, length: Option<NonZeroU64>) {
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fadvise(file, offset, length, rustix::fs::Advice::DontNeed);
    #[cfg(not(target_os = "linux"))]
    let _ = (file, offset, length);
}

/// Advises the system that a file is read from its start to its end: Linux then doubles its
/// read-ahead (mm/fadvise.c).
pub(super) fn read_from_start_to_end(file: impl AsFd) {
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Sequential);
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// Allocates space for a part of a file that has its final length already. Errors: `NOTSUP` if the
/// file system or the operating system cannot do this; macOS can allocate only beyond a file's end.
pub(super) fn allocate(file: impl AsFd, offset: u64, length: u64) -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    return rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), offset, length);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, offset, length);
        Err(Errno::NOTSUP)
    }
}

/// Renames a file to a name that must not exist. Returns `INVAL`, `NOSYS` or `NOTSUP` if the system
/// or the file system has no such call.
pub(super) fn rename_unless_there(
    from: (BorrowedFd<'_>, &str),
    to: (BorrowedFd<'_>, &[u8]),
) -> Result<(), Errno> {
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    return rustix::fs::renameat_with(from.0, from.1, to.0, to.1, rustix::fs::RenameFlags::NOREPLACE);
    #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
    {
        let _ = (from, to);
        Err(Errno::NOSYS)
    }
}

/// Whether the name of an opened directory was removed, or belongs to a different directory.
pub(super) fn is_gone(directory: impl AsFd, above: impl AsFd, name: &str) -> Result<bool, Errno> {
    let own = fstat(directory)?;
    match statat(above, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => Ok((device(&there), inode(&there)) != (device(&own), inode(&own))),
        Err(Errno::NOENT) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Checks that `name` in `above` is a directory. If `is_own` is set, gives the owner all
/// permissions on it.
#[cfg(target_os = "linux")]
pub(super) fn let_in(above: BorrowedFd<'_>, name: &[u8], is_own: bool) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    let there = openat(above, name, PASSED, Mode::empty())?;
    let mode = fstat(&there)?.st_mode & 0o7777;
    if is_own && mode & 0o700 != 0o700 {
        // Change the mode through the descriptor, so that a link cannot replace the directory
        // first. Use the descriptor's path in /proc, because fchmod(2) refuses descriptors that
        // were opened with O_PATH.
        let by_descriptor = format!("/proc/self/fd/{}", there.as_raw_fd());
        chmodat(CWD, by_descriptor, Mode::from_raw_mode(mode | 0o700), AtFlags::empty())?;
    }
    Ok(())
}

/// Does the same as the function for Linux, by name. If a link replaces the directory between the
/// calls, the link's permissions are changed, not those of its target.
#[cfg(not(target_os = "linux"))]
pub(super) fn let_in(above: BorrowedFd<'_>, name: &[u8], is_own: bool) -> Result<(), Errno> {
    let there = statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(there.st_mode) != FileType::Directory {
        return Err(Errno::NOTDIR);
    }
    let mode = there.st_mode & 0o7777;
    if is_own && mode & 0o700 != 0o700 {
        chmodat(above, name, Mode::from_raw_mode(mode | 0o700), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

/// The device that a file is on.
#[cfg_attr(target_os = "linux", expect(clippy::unnecessary_cast, reason = "it is shorter on macOS"))]
pub(super) fn device(stat: &Stat) -> u64 {
    stat.st_dev as u64
}

/// A file's number on its device.
#[cfg_attr(target_os = "linux", expect(clippy::unnecessary_cast, reason = "it is shorter on some systems"))]
pub(super) fn inode(stat: &Stat) -> u64 {
    stat.st_ino as u64
}

/// When a file was modified: seconds and nanoseconds of Unix time.
#[cfg_attr(target_os = "linux", expect(clippy::unnecessary_cast, reason = "other systems have other signs"))]
pub(super) fn modified(stat: &Stat) -> (i64, u64) {
    (stat.st_mtime as i64, stat.st_mtime_nsec as u64)
}

/// When a file's status changed, in the units of [`modified`].
#[cfg_attr(target_os = "linux", expect(clippy::unnecessary_cast, reason = "other systems have other signs"))]
pub(super) fn changed(stat: &Stat) -> (i64, u64) {
    (stat.st_ctime as i64, stat.st_ctime_nsec as u64)
}
