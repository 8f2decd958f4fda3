//! Opens paths below a directory, and never outside of it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, fstat, mkdirat, openat, statat};
use rustix::io::Errno;

use super::FileError;
use super::path::{check_path, shown};
use super::system::{self, PASSED, is_no_directory};

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens paths component by component, each below the descriptor of the previous one, and never
/// follows a link. This method works on every kernel and with every system call filter, even if
/// links appear during the walk.
#[derive(Debug)]
pub(super) struct Jail {
    root: OwnedFd,
    device: u64,
    /// Inode of a directory that no path may enter.
    forbidden_inode: Option<u64>,
    path: PathBuf,
    /// The directory that was opened last. Entries are in order, so the next entry is usually in
    /// the same directory.
    last: Option<(Vec<u8>, OwnedFd)>,
}

impl Jail {
    /// Opens the directory at `path`. Links in `path` are followed, because the user chose it; if
    /// `forbid_links_in_path` is set, a link in the path is an error.
    pub(super) fn open(path: &Path, forbid_links_in_path: bool) -> Result<Self, FileError> {
        let io = |error| FileError::io(path, "opened", error);
        let root = if forbid_links_in_path {
            openat(open_unlinked(path)?, ".", DIRECTORY, Mode::empty()).map_err(io)?
        } else {
            openat(CWD, path, DIRECTORY, Mode::empty()).map_err(io)?
        };
        let stat = fstat(&root).map_err(|error| FileError::io(path, "opened", error))?;
        Ok(Self { root, device: system::device(&stat), forbidden_inode: None, path: path.into(), last: None })
    }

    /// Forbids all paths into this directory, whatever name a path uses for it: some file systems
    /// ignore case or invisible characters in names.
    pub(super) fn close(&mut self, directory: &Stat) {
        self.forbidden_inode = Some(system::inode(directory));
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// A path below the root, for messages.
    pub(super) fn shown(&self, path: &[u8]) -> PathBuf {
        self.path.join(shown(path))
    }

    /// Returns the directory that contains `path`, and the last component of `path`. If the
    /// directory does not exist, creates it if `made` is set, and otherwise returns `None`.
    pub(super) fn parent<'a>(
        &mut self,
        path: &'a [u8],
        made: bool,
    ) -> Result<Option<(BorrowedFd<'_>, &'a [u8])>, FileError> {
        check_path(path)?;
        let Some(slash) = path.iter().rposition(|byte| *byte == b'/') else {
            return Ok(Some((self.root.as_fd(), path)));
        };
        let (above, name) = (&path[..slash], &path[slash + 1..]);
        if self.last.as_ref().is_none_or(|(last, _)| last != above) {
            let Some(opened) = self.walk(above, made)? else { return Ok(None) };
            self.last = Some((above.to_vec(), opened));
        }
        Ok(self.last.as_ref().map(|(_, fd)| (fd.as_fd(), name)))
    }

    /// Opens the directory at `path`, so that the caller can sync or change it; `None` if the
    /// directory does not exist.
    pub(super) fn directory(&mut self, path: &[u8]) -> Result<Option<OwnedFd>, FileError> {
        let Some((parent, name)) = self.parent(path, false)? else { return Ok(None) };
        match openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) if is_no_directory(error) => Err(FileError::LinkInPath(self.shown(path))),
            Err(error) => Err(FileError::io(self.shown(path), "opened", error)),
        }
    }

    /// File type at `path`, without following a link; `None` if nothing is there.
    pub(super) fn kind(&mut self, path: &[u8]) -> Result<Option<rustix::fs::FileType>, FileError> {
        let Some((parent, name)) = self.parent(path, false)? else { return Ok(None) };
        match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(rustix::fs::FileType::from_raw_mode(stat.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(FileError::io(self.shown(path), "read", error)),
        }
    }

    fn walk(&self, path: &[u8], made: bool) -> Result<Option<OwnedFd>, FileError> {
        let mut at: Option<OwnedFd> = None;
        for name in path.split(|byte| *byte == b'/') {
            let below = at.as_ref().map_or(self.root.as_fd(), AsFd::as_fd);
            let opened = openat(below, name, PASSED, Mode::empty());
            let opened = match opened {
                Err(Errno::NOENT) if made => {
                    // Request all permissions, of which the user's umask removes some.
                    match mkdirat(below, name, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(FileError::io(self.shown(path), "created", error)),
                    }
                    openat(below, name, PASSED, Mode::empty())
                }
                other => other,
            };
            at = match opened {
                Ok(fd) => {
                    let stat =
                        fstat(&fd).map_err(|error| FileError::io(self.shown(path), "opened", error))?;
                    if system::device(&stat) != self.device {
                        return Err(FileError::Mounted(self.shown(path)));
                    }
                    if self.forbidden_inode == Some(system::inode(&stat)) {
                        return Err(FileError::LinkInPath(self.shown(path)));
                    }
                    Some(fd)
                }
                Err(Errno::NOENT) => return Ok(None),
                Err(error) if is_no_directory(error) => return Err(FileError::LinkInPath(self.shown(path))),
                Err(error) => return Err(FileError::io(self.shown(path), "opened", error)),
            };
        }
        Ok(at)
    }
}

/// Opens the directory at an absolute path without following links: a link that appeared since the
/// path was resolved is an error.
pub(super) fn open_unlinked(path: &Path) -> Result<OwnedFd, FileError> {
    let refused = |error| match error {
        Errno::LOOP | Errno::NOTDIR | Errno::MLINK => FileError::LinkInPath(path.into()),
        error => FileError::io(path, "opened", error),
    };
    let mut at = openat(CWD, "/", PASSED, Mode::empty()).map_err(refused)?;
    for component in path.components() {
        at = match component {
            Component::RootDir => continue,
            Component::Normal(name) => {
                openat(&at, name, PASSED | OFlags::NOFOLLOW, Mode::empty()).map_err(refused)?
            }
            _ => return Err(FileError::LinkInPath(path.into())),
        };
    }
    Ok(at)
}
