//! What systems do differently with files.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[cfg(not(target_os = "linux"))]
use rustix::fs::FileType;
use rustix::fs::{AtFlags, Mode, OFlags, Stat, chmodat, fstat, statat};
#[cfg(target_os = "linux")]
use rustix::fs::{CWD, openat};
use rustix::io::Errno;

/// How a directory is opened to go through it. Linux does not ask that it be readable.
pub(super) const PASSED: OFlags = {
    #[cfg(target_os = "linux")]
    let how = OFlags::PATH;
    #[cfg(not(target_os = "linux"))]
    let how = OFlags::RDONLY;
    how.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC)
};

/// What a system says that was to open a directory, and found a link or no directory: `O_NOFOLLOW` of POSIX.1-2017, and FreeBSD's EMLINK.
pub(super) fn is_no_directory(error: Errno) -> bool {
    matches!(error, Errno::LOOP | Errno::NOTDIR | Errno::MLINK)
}

/// What a file system says that has no locks.
pub(super) fn has_no_locks(error: Errno) -> bool {
    // The last two are one on Linux, and two elsewhere.
    [Errno::NOLCK, Errno::NOSYS, Errno::NOTSUP, Errno::OPNOTSUPP].contains(&error)
}

/// Makes a file's data durable, and what finds them.
pub(super) fn sync_data(file: impl AsFd) -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    return rustix::fs::fdatasync(file);
    #[cfg(not(target_os = "linux"))]
    sync(file)
}

/// Makes a file or directory durable.
pub(super) fn sync(file: impl AsFd) -> Result<(), Errno> {
    // fsync(2) of macOS leaves the data in the disk's own memory; not every file system has the other, and what else it says is an error.
    #[cfg(target_vendor = "apple")]
    match rustix::fs::fcntl_fullfsync(&file) {
        Err(Errno::NOTSUP | Errno::INVAL | Errno::NOTTY) => {}
        synced => return synced,
    }
    rustix::fs::fsync(file)
}

/// Files that are synced one by one; more are synced with all else on their file system, where it can be (syncfs(2) of Linux).
pub(super) const SYNCED_ALONE_MAX: usize = if cfg!(target_os = "linux") { 32 } else { usize::MAX };

/// Makes all of a file system durable.
pub(super) fn sync_all(on: impl AsFd) -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    return rustix::fs::syncfs(on);
    // Nobody asks for it: see `SYNCED_ALONE_MAX`.
    #[cfg(not(target_os = "linux"))]
    {
        let _ = on;
        Err(Errno::NOSYS)
    }
}

/// Has Linux begin to write what is dirty, and forget what is not (mm/fadvise.c); where it does not, it is written when it is synced.
pub(super) fn begin_writing(file: BorrowedFd<'_>, offset: u64, length: Option<NonZeroU64>) {
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fadvise(file, offset, length, rustix::fs::Advice::DontNeed);
    #[cfg(not(target_os = "linux"))]
    let _ = (file, offset, length);
}

/// Says that a file is read from its start to its end: Linux reads twice as much ahead then (mm/fadvise.c). It is but advice.
pub(super) fn read_from_start_to_end(file: impl AsFd) {
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Sequential);
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// Takes room for a part of a file that is as long as it will be. `NOTSUP` where the file system or the system cannot: macOS takes room
/// behind a file's end alone.
pub(super) fn allocate(file: impl AsFd, offset: u64, length: u64) -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    return rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), offset, length);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, offset, length);
        Err(Errno::NOTSUP)
    }
}

/// Gives a file another name, which nothing has; `INVAL`, `NOSYS` or `NOTSUP` where that cannot be said in one call.
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

/// Whether a directory that was opened has its name no more, or another has it.
pub(super) fn is_gone(directory: &OwnedFd, above: impl AsFd, name: &str) -> Result<bool, Errno> {
    let own = fstat(directory)?;
    match statat(above, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => Ok((device(&there), inode(&there)) != (device(&own), inode(&own))),
        Err(Errno::NOENT) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Checks that a directory is one; and if `is_own`, its owner may do all with it from then on.
#[cfg(target_os = "linux")]
pub(super) fn let_in(above: BorrowedFd<'_>, name: &[u8], is_own: bool) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    let there = openat(above, name, PASSED, Mode::empty())?;
    let mode = fstat(&there)?.st_mode & 0o7777;
    if is_own && mode & 0o700 != 0o700 {
        // By its descriptor, as no link can come between; fchmod(2) refuses one that could not be opened to be read.
        let by_descriptor = format!("/proc/self/fd/{}", there.as_raw_fd());
        chmodat(CWD, by_descriptor, Mode::from_raw_mode(mode | 0o700), AtFlags::empty())?;
    }
    Ok(())
}

/// As on Linux; a link that came between would get the permissions itself, and not what it leads to.
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

/// When a file's status changed: as [`modified`].
#[cfg_attr(target_os = "linux", expect(clippy::unnecessary_cast, reason = "other systems have other signs"))]
pub(super) fn changed(stat: &Stat) -> (i64, u64) {
    (stat.st_ctime as i64, stat.st_ctime_nsec as u64)
}
