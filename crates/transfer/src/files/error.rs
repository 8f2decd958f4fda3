//! What goes wrong with files, in sentences that name them.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use thiserror::Error;

use super::path::PathError;
use super::{ManifestError, RESERVED_PREFIX};

/// What went wrong. Paths are those of the local host, or relative to the destination.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum FileError {
    #[error("{path:?} cannot be {what}: {source}")]
    Io {
        path: PathBuf,
        /// What was tried, as a participle.
        what: &'static str,
        source: io::Error,
    },
    /// The disk, or the user's quota of it, is full. Nothing that was written before is lost; the transfer goes on once there is room.
    #[error(
        "there is no room for {path:?}: {source}; make some and start the transfer again, it goes on where it was"
    )]
    Full { path: PathBuf, source: io::Error },
    /// There is less room on the file system than the files will take.
    #[error("{path:?} has room for {free} bytes, and {needed} are to come")]
    NoRoom { path: PathBuf, needed: u64, free: u64 },
    /// What is to be sent is neither file nor directory nor link.
    #[error("{0:?} is {1}, which cannot be sent")]
    Special(PathBuf, &'static str),
    /// A path to send has no name of its own.
    #[error("{0:?} has no name that could be given to the receiver")]
    Nameless(PathBuf),
    #[error(transparent)]
    Path(#[from] PathError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A file is shorter than when the transfer began.
    #[error("{path:?} shrank while it was sent: it ends at {end}, not at {size}")]
    Shrank {
        path: PathBuf,
        /// Where it ends now, or before.
        end: u64,
        /// Where it ended (bytes).
        size: u64,
    },
    /// A file is another, or has changed, since the transfer began.
    #[error("{0:?} changed while it was sent")]
    Changed(PathBuf),
    /// A place that the object does not have.
    #[error("bytes to {end} of an object of {bytes}")]
    Beyond {
        /// The first byte after the range.
        end: u64,
        /// Bytes of the object.
        bytes: u64,
    },
    #[error("{what}: {asked} asked, {allowed} allowed")]
    Quota {
        what: &'static str,
        /// How many were to be sent.
        asked: u64,
        allowed: u64,
    },
    /// There are links among what is sent, and they are not taken.
    #[error("{0:?} is a symbolic link, and links are not taken here")]
    Link(PathBuf),
    /// Something is there already, and not to be replaced.
    #[error("{0:?} exists already and is not replaced")]
    Exists(PathBuf),
    /// A component on the way is a link, or no directory.
    #[error("{0:?} is below something that is no directory of its own: links are not followed")]
    Jailed(PathBuf),
    /// A directory on the way is on another file system, where no file can get its name by a rename.
    #[error("{0:?} is on another file system: receive there instead")]
    Mounted(PathBuf),
    /// Two names that the destination's file system holds for one.
    #[error(
        "{0:?} has the name of another file that is sent, but for capitals or accents, and they are alike here"
    )]
    Alike(PathBuf),
    /// The directory of an unfinished transfer belongs to somebody else, can be written by them, or has something else in it.
    #[error(
        "{0:?} belongs to another user, others may write to it, or it is no unfinished transfer; remove it, or receive elsewhere"
    )]
    Foreign(PathBuf),
    /// The same transfer is under way.
    #[error("{0:?} is in use: the same transfer is under way")]
    Busy(PathBuf),
    /// An unfinished transfer of the same name is of other files.
    #[error("{0:?} is of other files, or of another version; remove {RESERVED_PREFIX}… to begin anew")]
    Journal(PathBuf),
    /// Not all of the object is there.
    #[error("{missing} bytes are still missing")]
    Incomplete { missing: u64 },
    /// A file is not what was sent. It is forgotten and comes anew when the transfer is started again.
    #[error("{0:?} is not what was sent (BLAKE3); start the transfer again, it comes anew")]
    Digest(PathBuf),
    /// Something could not be made durable before.
    #[error(
        "what {0:?} holds could not be made durable before; start the transfer again, it goes on where it was"
    )]
    Failed(PathBuf),
    /// The caller asked for an end before all was read.
    #[error("it was stopped before all was read")]
    Stopped,
    /// There are not as many digests as files.
    #[error("{0} digests of {1} files")]
    Digests(usize, usize),
}

impl FileError {
    /// [`FileError::Stopped`] once `stop` is set.
    pub(super) fn check_stop(stop: &AtomicBool) -> Result<(), Self> {
        if stop.load(Ordering::Relaxed) { Err(Self::Stopped) } else { Ok(()) }
    }

    /// Of something that was tried with `path`.
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
