//! Errors of operations on files. Each message names the file.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use thiserror::Error;

use super::path::PathError;
use super::{ManifestError, RESERVED_PREFIX};

/// Why an operation on files failed. Paths are those of the local host, or relative to the
/// destination.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum FileError {
    #[error("{path:?} cannot be {what}: {source}")]
    Io {
        path: PathBuf,
        /// The operation that was tried, as a past participle such as "opened".
        what: &'static str,
        source: io::Error,
    },
    /// The disk or the user's quota is full. Nothing that was written before is lost; the transfer
    /// resumes once there is space.
    #[error("no space left for {path:?}: {source}; free some space and start the transfer again: it resumes")]
    Full { path: PathBuf, source: io::Error },
    /// The file system has less space than the files will take.
    #[error(
        "{path:?} has space for {free} bytes, but the transfer needs {needed}: free some space, or receive elsewhere"
    )]
    NoRoom { path: PathBuf, needed: u64, free: u64 },
    /// A path to send is not a file, directory or link.
    #[error("{0:?} is {1}, which cannot be sent")]
    Special(PathBuf, &'static str),
    /// A path to send does not end with a name: `/`, for example.
    #[error("{0:?} has no name: send a directory below it")]
    Nameless(PathBuf),
    #[error(transparent)]
    Path(#[from] PathError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A file is shorter than when the transfer began.
    #[error(
        "{path:?} shrank while it was sent, from {size} to {end} bytes: send it again when it no longer changes"
    )]
    Shrank {
        path: PathBuf,
        /// Present length of the file, in bytes.
        end: u64,
        /// Length when the transfer began, in bytes.
        size: u64,
    },
    /// A file was replaced or changed after the transfer began.
    #[error("{0:?} changed while it was sent: send it again when it no longer changes")]
    Changed(PathBuf),
    /// A range ends beyond the object.
    #[error("the range ends at {end}, but the object has only {bytes} bytes")]
    OutOfRange {
        /// End of the range in the object.
        end: u64,
        /// Length of the object, in bytes.
        bytes: u64,
    },
    #[error(
        "too many {what}: {asked} offered, {allowed} allowed; send less, or raise the limit at the receiver"
    )]
    Quota {
        what: &'static str,
        /// Number that the sender offers.
        asked: u64,
        allowed: u64,
    },
    /// The manifest has a symbolic link, and links are not accepted.
    #[error("{0:?} is a symbolic link, and this receiver does not accept links")]
    Link(PathBuf),
    /// A file exists already, and the configuration does not allow its replacement.
    #[error("{0:?} exists already: remove it, or allow the receiver to replace files")]
    Exists(PathBuf),
    /// A component of a path is a link, or not a directory.
    #[error("part of the path {0:?} is a symbolic link or not a directory: links are not followed")]
    LinkInPath(PathBuf),
    /// A directory of a path is on another file system, so no file can be renamed into it.
    #[error("{0:?} is on another file system: receive there instead")]
    Mounted(PathBuf),
    /// Two names are equal to the destination's file system.
    #[error(
        "{0:?} has the same name as another file of the transfer, because this file system ignores case or accents: rename one of them"
    )]
    NamesCollide(PathBuf),
    /// The directory of an unfinished transfer belongs to another user, can be written by others,
    /// or contains other files.
    #[error(
        "{0:?} belongs to another user, is writable by others, or is not an unfinished transfer: remove it, or receive elsewhere"
    )]
    NotOwnDirectory(PathBuf),
    /// The same transfer is running.
    #[error("{0:?} is in use: the same transfer is running")]
    Busy(PathBuf),
    /// The journal of an unfinished transfer with the same identifier is of different files.
    #[error("{0:?} belongs to other files or another version: remove {RESERVED_PREFIX}… to start again")]
    Journal(PathBuf),
    /// Not all of the object was received.
    #[error("{missing} bytes are still missing")]
    Incomplete { missing: u64 },
    /// A file's hash differs from the sender's. The file is discarded, and is received again when
    /// the transfer is restarted.
    #[error("{0:?} differs from what was sent (BLAKE3); start the transfer again: the file is sent again")]
    Digest(PathBuf),
    /// An earlier sync failed, so the destination accepts no more data.
    #[error(
        "data in {0:?} could not be written to the disk; check the disk and start the transfer again: it resumes"
    )]
    SyncFailed(PathBuf),
    /// The caller requested a stop before all bytes were read.
    #[error("stopped before all files were read")]
    Stopped,
    /// The number of digests differs from the number of files.
    #[error("the sender sent {0} digests for {1} files")]
    Digests(usize, usize),
}

impl FileError {
    /// Returns [`FileError::Stopped`] once `stop` is set.
    pub(super) fn check_stop(stop: &AtomicBool) -> Result<(), Self> {
        if stop.load(Ordering::Relaxed) { Err(Self::Stopped) } else { Ok(()) }
    }

    /// Error of an operation `what` on `path`; [`FileError::Full`] if there is no space.
    pub(super) fn io(path: impl Into<PathBuf>, what: &'static str, source: impl Into<io::Error>) -> Self {
        let (path, source) = (path.into(), source.into());
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::Full { path, source }
            }
            _ => Self::Io { path, what, source },
        }
    }
}
