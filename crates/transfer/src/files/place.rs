//! Files get their names.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_OMIT, fchmod, fsync, futimens, linkat,
    mkdirat, openat, renameat, renameat_with, statat, symlinkat, syncfs, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::destination::{SYNCED_ALONE_MAX, partial_name};
use super::{Destination, Entry, FileError, Kind, Modified};

impl Destination {
    /// Verifies all files by the sender's `digests`, in the order of [`Manifest::files`](super::Manifest::files); gives them their
    /// permissions and times; makes them durable; and only then their names. Links come last.
    ///
    /// Files that were there already are replaced if that was asked, else not, even if they came in the meantime.
    /// Directories that were there keep their permissions and times. If it fails or is killed, it goes on when it is opened and
    /// finished again.
    ///
    /// # Errors
    /// [`FileError::Incomplete`]; [`FileError::Digest`], and that file comes anew; what the system refuses.
    pub fn finish(mut self, digests: &[[u8; 32]]) -> Result<(), FileError> {
        if self.missing() != 0 {
            return Err(FileError::Incomplete { missing: self.missing() });
        }
        self.sync()?;
        self.verify(digests)?;
        if self.placing.is_none() {
            self.prepare()?;
        }
        self.place()?;
        self.remove_partial()
    }

    fn verify(&mut self, digests: &[[u8; 32]]) -> Result<(), FileError> {
        let files: Vec<usize> = self.manifest.files().map(|(entry, _)| entry).collect();
        if files.len() != digests.len() {
            return Err(FileError::Digests(digests.len(), files.len()));
        }
        let mut wrong = None;
        for (entry, expected) in files.into_iter().zip(digests) {
            // Files that have their names already were verified before the first got it.
            if self.placing.is_some() && !self.is_partial(entry)? {
                continue;
            }
            if self.digest(entry)? != *expected {
                self.forget(entry)?;
                wrong = wrong.or(Some(entry));
            }
        }
        match wrong.and_then(|entry| self.manifest.entries().get(entry)) {
            Some(entry) => Err(FileError::Digest(self.jail.shown(&entry.path))),
            None => Ok(()),
        }
    }

    /// All that can be done before the first file has its name.
    pub(super) fn prepare(&mut self) -> Result<(), FileError> {
        let mut made = vec![];
        let manifest = Arc::clone(&self.manifest);
        let entries = manifest.entries();
        for (index, entry) in entries.iter().enumerate() {
            let path = self.jail.shown(&entry.path);
            match &entry.kind {
                Kind::File { .. } => {
                    let file = self.file(index)?;
                    futimens(file, &times(entry.modified))
                        .and_then(|()| fchmod(file, Mode::from_raw_mode(entry.mode.into())))
                        .map_err(|error| FileError::io(path, "given its time and permissions", error))?;
                }
                Kind::Directory => {
                    if self.jail.kind(&entry.path)?.is_none() {
                        made.push(index as u64);
                    }
                }
                Kind::Link { target } => {
                    let name = partial_name(index);
                    match unlinkat(&self.partial, &name, AtFlags::empty()) {
                        Ok(()) | Err(Errno::NOENT) => {}
                        Err(error) => return Err(FileError::io(path, "made", error)),
                    }
                    let nofollow = AtFlags::SYMLINK_NOFOLLOW;
                    symlinkat(&target[..], &self.partial, &name)
                        .and_then(|()| utimensat(&self.partial, &name, &times(entry.modified), nofollow))
                        .map_err(|error| FileError::io(path, "made", error))?;
                }
            }
        }
        // Times and permissions are not data: fdatasync(2) would leave them.
        syncfs(&self.partial).map_err(|error| FileError::io(&self.path, "made durable", error))?;
        self.begin_placing(made)
    }

    fn place(&mut self) -> Result<(), FileError> {
        self.open.clear();
        let manifest = Arc::clone(&self.manifest);
        let entries = manifest.entries();
        let mut changed: BTreeSet<&[u8]> = BTreeSet::new();
        for entry in entries.iter().filter(|entry| entry.kind == Kind::Directory) {
            self.make_directory(entry)?;
        }
        let is_link = |entry: &Entry| matches!(entry.kind, Kind::Link { .. });
        let files = entries.iter().enumerate().filter(|(_, entry)| matches!(entry.kind, Kind::File { .. }));
        let links = entries.iter().enumerate().filter(|(_, entry)| is_link(entry));
        for (index, entry) in files.chain(links) {
            if self.is_partial(index)? {
                self.rename(index, entry)?;
            }
            // Also of those that got their names before a crash.
            let mut above = &entry.path[..];
            while let Some(slash) = above.iter().rposition(|byte| *byte == b'/') {
                above = &above[..slash];
                if !changed.insert(above) {
                    break;
                }
            }
        }
        let made: BTreeSet<u64> = self.placing.iter().flatten().copied().collect();
        // From the deepest up: a directory that nobody may write to would not take what is below it.
        for (index, entry) in entries.iter().enumerate().rev() {
            if made.contains(&(index as u64)) && entry.kind == Kind::Directory {
                let path = self.jail.shown(&entry.path);
                let Some(directory) = self.jail.directory(&entry.path)? else { continue };
                futimens(&directory, &times(entry.modified))
                    .and_then(|()| fchmod(&directory, Mode::from_raw_mode(entry.mode.into())))
                    .and_then(|()| if entries.len() <= SYNCED_ALONE_MAX { fsync(&directory) } else { Ok(()) })
                    .map_err(|error| FileError::io(path, "given its time and permissions", error))?;
            }
        }
        if entries.len() <= SYNCED_ALONE_MAX {
            for path in changed {
                if let Some(directory) = self.jail.directory(path)? {
                    fsync(directory)
                        .map_err(|error| FileError::io(self.jail.shown(path), "made durable", error))?;
                }
            }
            return fsync(self.jail.root()).map_err(|error| FileError::io(&self.path, "made durable", error));
        }
        syncfs(&self.partial).map_err(|error| FileError::io(&self.path, "made durable", error))
    }

    /// Makes a directory that can be written to; what it is to be like comes when all is in it.
    fn make_directory(&mut self, entry: &Entry) -> Result<(), FileError> {
        let path = self.jail.shown(&entry.path);
        let Some((parent, name)) = self.jail.parent(&entry.path, true)? else { return Ok(()) };
        match mkdirat(parent, name, Mode::from_raw_mode(0o700)) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => {
                // A link is no directory of its own.
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                openat(parent, name, flags, Mode::empty()).map(drop).map_err(|_| FileError::Exists(path))
            }
            Err(error) => Err(FileError::io(path, "made", error)),
        }
    }

    fn rename(&mut self, index: usize, entry: &Entry) -> Result<(), FileError> {
        let path = self.jail.shown(&entry.path);
        let partial = self.partial.as_fd();
        let Some((parent, name)) = self.jail.parent(&entry.path, true)? else { return Ok(()) };
        let from = partial_name(index);
        let renamed = if self.config.replace {
            renameat(partial, &from, parent, name)
        } else {
            match renameat_with(partial, &from, parent, name, RenameFlags::NOREPLACE) {
                // Not every file system can; a second name is refused by all that have such where there is one already.
                Err(Errno::INVAL | Errno::NOSYS) => linkat(partial, &from, parent, name, AtFlags::empty())
                    .and_then(|()| unlinkat(partial, &from, AtFlags::empty())),
                other => other,
            }
        };
        match renamed {
            Ok(()) => Ok(()),
            Err(Errno::EXIST | Errno::ISDIR | Errno::NOTEMPTY) => Err(FileError::Exists(path)),
            Err(error) => Err(FileError::io(path, "given its name", error)),
        }
    }

    fn is_partial(&self, entry: usize) -> Result<bool, FileError> {
        match statat(&self.partial, partial_name(entry), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(FileError::io(&self.path, "read", error)),
        }
    }
}

/// When it was read last is not known here, and left.
fn times(modified: Modified) -> Timestamps {
    let last_modification = Timespec { tv_sec: modified.seconds, tv_nsec: modified.nanos.into() };
    Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification }
}
