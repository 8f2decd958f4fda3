//! Finds all files below the paths that a user gave.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{
    Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, SeekFrom, Stat, accessat, openat, readlinkat, seek,
    statat,
};
use rustix::io::Errno;

use super::jail::open_unlinked;
use super::manifest::EXTENTS_MAX;
use super::path::{PathError, check_path, check_target, is_reserved};
use super::system::{self, PASSED};
use super::{EntryKind, FileError, ManifestEntry, ManifestError, Modified};

/// Options of the walk over the paths to send.
#[derive(Clone, Copy, Debug, Default)]
pub struct WalkConfig {
    /// Whether symbolic links are sent as links; otherwise they are left out with a notice. Links
    /// that the user named are followed.
    pub links: bool,
    /// How devices, FIFOs and sockets are handled.
    pub special: SpecialFilePolicy,
    /// Whether the paths were resolved before. Resolved paths are absolute and without links, so a
    /// link that is found in a path now is an error.
    pub forbid_links_in_path: bool,
}

/// Handling of an entry that is not a file, a directory or a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpecialFilePolicy {
    /// The entry is left out, and the caller gets a notice.
    #[default]
    Skip,
    /// The entry ends the walk with an error.
    Refuse,
}

/// An entry that was left out, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkippedPath {
    /// An entry that is not a file, a directory or a link; the text is its type.
    Special(PathBuf, &'static str),
    /// A symbolic link, while links are not sent.
    Link(PathBuf),
    /// A symbolic link that no receiver accepts, with its target.
    LinkLeadsOut(PathBuf, PathBuf),
    /// The directory of an unfinished transfer.
    Unfinished(PathBuf),
}

/// An entry to send, with its path and state.
#[derive(Debug)]
pub(super) struct FoundEntry {
    pub(super) entry: ManifestEntry,
    pub(super) at: PathBuf,
    pub(super) state: FileState,
}

/// Identity and state of a file, to detect changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileState {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) size: u64,
    pub(super) modified: (i64, u64),
    /// Time of the last change of the status. No program can set this time back (POSIX.1-2017
    /// §4.9). New names, links and permissions of the file change this time, too.
    pub(super) changed: (i64, u64),
}

impl FileState {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            device: system::device(stat),
            inode: system::inode(stat),
            size: stat.st_size as u64,
            modified: system::modified(stat),
            changed: system::changed(stat),
        }
    }
}

/// A path that is still to be visited.
struct PendingPath {
    /// Descriptor of the directory that contains the path. A link that appears later cannot
    /// redirect the descriptor.
    above: Rc<OwnedFd>,
    /// Name of the entry in that directory.
    leaf: PathBuf,
    at: PathBuf,
    path: Vec<u8>,
}

impl PendingPath {
    fn above(&self) -> BorrowedFd<'_> {
        self.above.as_fd()
    }

    /// Whether the user named this path, so that leaving it out would be an error.
    fn is_named(&self) -> bool {
        !self.path.contains(&b'/')
    }
}

/// Finds all entries to send. At the receiver, each of `paths` has the name of its last component.
///
/// During the walk, all directories above the current path are open: at most `path::DEPTH_MAX`.
pub(super) fn walk(
    paths: &[PathBuf],
    config: WalkConfig,
) -> Result<(Vec<FoundEntry>, Vec<SkippedPath>), FileError> {
    let (mut found, mut notices, mut extents) = (vec![], vec![], 0);
    let mut open = vec![];
    for path in paths.iter().rev() {
        let full = if config.forbid_links_in_path { Ok(path.clone()) } else { fs::canonicalize(path) };
        let full = full.map_err(|error| FileError::io(path, "read", error))?;
        let name = path.file_name().or(full.file_name()).ok_or_else(|| FileError::Nameless(path.clone()))?;
        let root = Path::new("/");
        let parent = full.parent().unwrap_or(root);
        let above = if config.forbid_links_in_path {
            open_unlinked(parent)?
        } else {
            openat(CWD, parent, PASSED, Mode::empty())
                .map_err(|error| FileError::io(parent, "opened", error))?
        };
        open.push(PendingPath {
            above: Rc::new(above),
            leaf: full.file_name().map_or_else(|| root.into(), PathBuf::from),
            path: name.as_bytes().to_vec(),
            at: full,
        });
    }
    while let Some(one) = open.pop() {
        let at = &one.at;
        let stat = statat(one.above(), &one.leaf, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| FileError::io(at, "read", error))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if at.file_name().is_some_and(|name| is_reserved(name.as_bytes())) {
            if one.is_named() {
                return Err(FileError::Special(one.at, "an unfinished transfer"));
            }
            notices.push(SkippedPath::Unfinished(one.at));
            continue;
        }
        // Check the path before the walk descends, so that a path that is too long is refused at
        // once, not after the walk.
        check_path(&one.path)?;
        let kind = match kind {
            FileType::Directory => {
                list(&one, &mut open).map_err(|error| FileError::io(at, "listed", error))?;
                EntryKind::Directory
            }
            FileType::RegularFile => {
                // Report an unreadable file now, not hours later when it is sent.
                accessat(one.above(), &one.leaf, Access::READ_OK, AtFlags::empty())
                    .map_err(|error| FileError::io(at, "read", error))?;
                let found = extents_of(&one, &stat, EXTENTS_MAX - extents)?;
                extents += found.as_ref().map_or(0, Vec::len);
                EntryKind::File { size: stat.st_size as u64, extents: found }
            }
            FileType::Symlink if one.is_named() => return Err(FileError::LinkInPath(one.at)),
            FileType::Symlink => {
                if !config.links {
                    notices.push(SkippedPath::Link(one.at));
                    continue;
                }
                let target = readlinkat(one.above(), &one.leaf, vec![])
                    .map_err(|error| FileError::io(at, "read", error))?
                    .into_bytes();
                if let Err(PathError::Outside(target)) = check_target(&one.path, &target) {
                    notices.push(SkippedPath::LinkLeadsOut(one.at, target));
                    continue;
                }
                EntryKind::Link { target }
            }
            other => {
                let what = special(other);
                if config.special == SpecialFilePolicy::Refuse || one.is_named() {
                    return Err(FileError::Special(one.at, what));
                }
                notices.push(SkippedPath::Special(one.at, what));
                continue;
            }
        };
        let mode = if matches!(kind, EntryKind::Link { .. }) { 0 } else { (stat.st_mode & 0o777) as u16 };
        let state = FileState::of(&stat);
        let modified = Modified { seconds: state.modified.0, nanos: state.modified.1 as u32 };
        found.push(FoundEntry {
            entry: ManifestEntry { path: one.path, kind, mode, modified },
            at: one.at,
            state,
        });
        if found.len() > super::manifest::ENTRIES_MAX {
            let most = super::manifest::ENTRIES_MAX as u64;
            return Err(ManifestError::TooMany(found.len() as u64, "entries", most).into());
        }
    }
    Ok((found, notices))
}

/// Adds the entries of a directory to `open`, the list of paths to visit.
fn list(directory: &PendingPath, open: &mut Vec<PendingPath>) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let above = Rc::new(openat(directory.above(), &directory.leaf, flags, Mode::empty())?);
    for below in Dir::read_from(&above)? {
        let below = below?;
        let name = below.file_name().to_bytes();
        if name != b"." && name != b".." {
            let leaf = PathBuf::from(OsStr::from_bytes(name));
            open.push(PendingPath {
                above: Rc::clone(&above),
                at: directory.at.join(&leaf),
                path: [&directory.path, &b"/"[..], name].concat(),
                leaf,
            });
        }
    }
    Ok(())
}

fn special(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::BlockDevice | FileType::CharacterDevice => "a device",
        _ => "neither a file, a directory nor a link",
    }
}

/// Ranges of a file's data, if it has holes. A file with more than `most` extents counts as a file
/// without holes.
fn extents_of(one: &PendingPath, stat: &Stat, most: usize) -> Result<Option<Vec<Range<u64>>>, FileError> {
    let size = stat.st_size as u64;
    // The unit of st_blocks is 512 bytes for every file system (stat(3type)). A file without holes
    // need not be opened.
    if size <= (stat.st_blocks as u64).saturating_mul(512) {
        return Ok(None);
    }
    let io = |error: Errno| FileError::io(&one.at, "read", error);
    let file = open_unfollowed(one.above(), &one.leaf).map_err(io)?;
    let (mut extents, mut at) = (vec![], 0);
    while at < size {
        let start = match seek(&file, SeekFrom::Data(at)) {
            Ok(start) => start.min(size),
            // The rest of the file is a hole.
            Err(Errno::NXIO) => size,
            // The file system does not report holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(None),
            Err(error) => return Err(io(error)),
        };
        if size <= start {
            break;
        }
        at = seek(&file, SeekFrom::Hole(start)).map_err(io)?.min(size);
        if at <= start || most <= extents.len() {
            return Ok(None);
        }
        extents.push(start..at);
    }
    let is_whole = extents.first().is_some_and(|data| *data == (0..size));
    Ok(if is_whole { None } else { Some(extents) })
}

/// Opens a file to read, without following a link or waiting for the other end of a FIFO.
pub(super) fn open_unfollowed(above: BorrowedFd<'_>, path: &Path) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    openat(above, path, flags, Mode::empty()).map(File::from)
}
