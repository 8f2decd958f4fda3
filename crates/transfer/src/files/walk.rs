//! What is below the paths that a user gave.

use std::fs::{self, File, Metadata};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, SeekFrom, accessat, seek};
use rustix::io::Errno;

use super::manifest::EXTENTS_MAX;
use super::path::check_path;
use super::{Entry, FileError, Kind, ManifestError, Modified, RESERVED_PREFIX};

/// How to walk.
#[derive(Clone, Copy, Debug, Default)]
pub struct WalkConfig {
    /// Symbolic links are sent as links; else they are left out with a notice. Links that are named themselves are followed.
    pub links: bool,
    /// What is done with devices, FIFOs and sockets.
    pub special: Special,
}

/// What is done with what is neither file, directory nor link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Special {
    /// It is left out, and told.
    #[default]
    Skip,
    /// It is an error.
    Refuse,
}

/// What was left out of what was to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// Neither file, directory nor link; and what it is.
    Special(PathBuf, &'static str),
    /// A symbolic link, and links were not asked for.
    Link(PathBuf),
    /// An unfinished transfer.
    Unfinished(PathBuf),
}

/// Something to send, and where it is.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) entry: Entry,
    pub(super) at: PathBuf,
    pub(super) state: State,
}

/// What tells that a file is the same and unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    device: u64,
    inode: u64,
    pub(super) size: u64,
    modified: (i64, i64),
}

impl State {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// Finds all that is to be sent. What was named is called by its last component at the receiver.
pub(super) fn walk(paths: &[PathBuf], config: WalkConfig) -> Result<(Vec<Found>, Vec<Notice>), FileError> {
    let (mut found, mut notices, mut extents) = (vec![], vec![], 0);
    let mut open = vec![];
    for path in paths.iter().rev() {
        let full = fs::canonicalize(path).map_err(|error| FileError::io(path, "found", error))?;
        let name = path.file_name().or(full.file_name()).ok_or_else(|| FileError::Nameless(path.clone()))?;
        open.push((full.clone(), name.as_bytes().to_vec()));
    }
    while let Some((at, name)) = open.pop() {
        let metadata = fs::symlink_metadata(&at).map_err(|error| FileError::io(&at, "found", error))?;
        let kind = metadata.file_type();
        let is_own =
            at.file_name().is_some_and(|name| name.as_bytes().starts_with(RESERVED_PREFIX.as_bytes()));
        if is_own {
            notices.push(Notice::Unfinished(at));
            continue;
        }
        // Before the walk goes on: a path that is too long shows first at its end.
        check_path(&name)?;
        let kind = if kind.is_dir() {
            for below in fs::read_dir(&at).map_err(|error| FileError::io(&at, "listed", error))? {
                let below = below.map_err(|error| FileError::io(&at, "listed", error))?;
                open.push((below.path(), [&name, &b"/"[..], below.file_name().as_bytes()].concat()));
            }
            Kind::Directory
        } else if kind.is_file() {
            // Better told now than after hours.
            accessat(CWD, &at, Access::READ_OK, AtFlags::empty())
                .map_err(|error| FileError::io(&at, "read", error))?;
            let found = extents_of(&at, &metadata, EXTENTS_MAX - extents)?;
            extents += found.as_ref().map_or(0, Vec::len);
            Kind::File { size: metadata.len(), extents: found }
        } else if kind.is_symlink() {
            if !config.links {
                notices.push(Notice::Link(at));
                continue;
            }
            let target = fs::read_link(&at).map_err(|error| FileError::io(&at, "read", error))?;
            Kind::Link { target: target.as_os_str().as_bytes().to_vec() }
        } else {
            let what = special(&metadata);
            if config.special == Special::Refuse {
                return Err(FileError::Special(at, what));
            }
            notices.push(Notice::Special(at, what));
            continue;
        };
        let mode = if matches!(kind, Kind::Link { .. }) { 0 } else { (metadata.mode() & 0o777) as u16 };
        let modified = Modified { seconds: metadata.mtime(), nanos: metadata.mtime_nsec() as u32 };
        found.push(Found {
            entry: Entry { path: name, kind, mode, modified },
            at,
            state: State::of(&metadata),
        });
        if super::manifest::ENTRIES_MAX < found.len() {
            let most = super::manifest::ENTRIES_MAX as u64;
            return Err(ManifestError::TooMany(found.len() as u64, "entries", most).into());
        }
    }
    Ok((found, notices))
}

fn special(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_block_device() || kind.is_char_device() {
        "a device"
    } else {
        "no file"
    }
}

/// Where a file's data are, if it has holes; a file of more than `most` extents is taken for one without.
fn extents_of(path: &Path, metadata: &Metadata, most: usize) -> Result<Option<Vec<Range<u64>>>, FileError> {
    let size = metadata.len();
    // st_blocks counts 512 bytes, whatever the file system's blocks are (stat(3type)). Most files end here, unopened.
    if size <= metadata.blocks().saturating_mul(512) {
        return Ok(None);
    }
    let io = |error: std::io::Error| FileError::io(path, "read", error);
    let file = open_unfollowed(path).map_err(io)?;
    let (mut extents, mut at) = (vec![], 0);
    while at < size {
        let start = match seek(&file, SeekFrom::Data(at)) {
            Ok(start) => start.min(size),
            // Nothing but a hole up to the end.
            Err(Errno::NXIO) => size,
            // The file system does not know its holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(None),
            Err(error) => return Err(io(error.into())),
        };
        if size <= start {
            break;
        }
        at = seek(&file, SeekFrom::Hole(start)).map_err(|error| io(error.into()))?.min(size);
        if at <= start || most <= extents.len() {
            return Ok(None);
        }
        extents.push(start..at);
    }
    let is_whole = extents.first().is_some_and(|data| *data == (0..size));
    Ok(if is_whole { None } else { Some(extents) })
}

/// Opens a file to be read; no link, and without waiting for a FIFO's other end.
pub(super) fn open_unfollowed(path: &Path) -> std::io::Result<File> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(File::from(open(path, flags, Mode::empty())?))
}
