//! Files get their names.

use std::collections::{BTreeSet, HashSet};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::fs::{
    AtFlags, FileType, Mode, Stat, Timespec, Timestamps, UTIME_OMIT, fchmod, futimens, linkat, mkdirat,
    readlinkat, renameat, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::destination::partial_name;
use super::system::{self, SYNCED_ALONE_MAX};
use super::{Destination, Entry, FileError, Kind, Modified};

impl Destination {
    /// Verifies all files by the sender's `digests`, in the order of [`Manifest::files`](super::Manifest::files); gives them their
    /// permissions and times; makes them durable; and only then their names. Links come last.
    ///
    /// Files that were there already are replaced if that was asked, else not, even if they came in the meantime.
    /// Directories that were there keep their permissions and times. If it fails or is killed, it goes on when it is opened and
    /// finished again.
    /// Errors: [`FileError::Incomplete`]; [`FileError::Digest`], and that file comes anew; what the system refuses.
    pub fn finish(self, digests: &[[u8; 32]]) -> Result<(), FileError> {
        self.give_names(digests, &AtomicBool::new(false))?.forget()
    }

    /// As [`finish`](Self::finish), but that it is done stays in the journal until it is [forgotten](Placed::forget): who does not know
    /// that all is there may ask again until then, and is told so.
    /// Errors: those of [`finish`](Self::finish); [`FileError::Stopped`] if `stop` is set while files are
    /// read to verify them. What is verified gets its name all the same.
    pub fn give_names(mut self, digests: &[[u8; 32]], stop: &AtomicBool) -> Result<Placed, FileError> {
        if self.missing() != 0 {
            return Err(FileError::Incomplete { missing: self.missing() });
        }
        self.sync()?;
        let files = self.manifest.files().count();
        if files != digests.len() {
            return Err(FileError::Digests(digests.len(), files));
        }
        // Else all was verified before the first file got its name.
        if self.placing.is_none() {
            self.verify(digests, stop)?;
            self.prepare()?;
        }
        self.place()?;
        Ok(Placed(self))
    }

    /// Whether each entry is there, under its own name or that of its partial file: what was given its name in a session before may have
    /// been taken away since, or changed. Those that are not.
    pub(super) fn lost(&mut self, made: &[u64]) -> Result<Vec<usize>, FileError> {
        let manifest = Arc::clone(&self.manifest);
        let mut lost = vec![];
        for (index, entry) in manifest.entries().iter().enumerate() {
            if entry.kind == Kind::Directory {
                // One of this transfer's that nobody may enter hides what is in it.
                if made.contains(&(index as u64)) && self.jail.kind(&entry.path)?.is_some() {
                    self.make_directory(entry, true)?;
                }
                continue;
            }
            let nofollow = AtFlags::SYMLINK_NOFOLLOW;
            match statat(&self.partial, partial_name(index), nofollow) {
                Ok(_) => continue,
                Err(Errno::NOENT) => {}
                Err(error) => return Err(FileError::io(&self.path, "read", error)),
            }
            let path = self.jail.shown(&entry.path);
            let there = match self.jail.parent(&entry.path, false)? {
                Some((parent, name)) => match statat(parent, name, nofollow) {
                    Ok(stat) => match &entry.kind {
                        Kind::Link { target } => readlinkat(parent, name, Vec::new())
                            .is_ok_and(|there| there.as_bytes() == &target[..]),
                        _ => is_same(&stat, entry),
                    },
                    Err(Errno::NOENT | Errno::NOTDIR) => false,
                    Err(error) => return Err(FileError::io(path, "found", error)),
                },
                None => false,
            };
            if !there {
                lost.push(index);
            }
        }
        Ok(lost)
    }

    fn verify(&mut self, digests: &[[u8; 32]], stop: &AtomicBool) -> Result<(), FileError> {
        let files: Vec<usize> = self.manifest.files().map(|(entry, _)| entry).collect();
        let mut wrong = None;
        for (entry, expected) in files.into_iter().zip(digests) {
            if self.digest_unless(entry, stop)? != *expected {
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
        // Times and permissions are not data: fdatasync(2) would leave them.
        let is_few = entries.len() <= SYNCED_ALONE_MAX;
        for (index, entry) in entries.iter().enumerate() {
            let path = self.jail.shown(&entry.path);
            match &entry.kind {
                Kind::File { .. } => {
                    let file = self.file(index)?;
                    futimens(file, &times(entry.modified))
                        .and_then(|()| fchmod(file, Mode::from_raw_mode(entry.mode.into())))
                        .and_then(|()| if is_few { system::sync(file) } else { Ok(()) })
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
        let synced = if is_few { system::sync(&self.partial) } else { system::sync_all(&self.partial) };
        synced.map_err(|error| FileError::io(&self.path, "made durable", error))?;
        self.begin_placing(made)
    }

    pub(super) fn place(&mut self) -> Result<(), FileError> {
        self.open.clear();
        let manifest = Arc::clone(&self.manifest);
        let entries = manifest.entries();
        let mut changed: BTreeSet<&[u8]> = BTreeSet::new();
        let made: BTreeSet<u64> = self.placing.iter().flatten().copied().collect();
        for (index, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.kind == Kind::Directory) {
            self.make_directory(entry, made.contains(&(index as u64)))?;
        }
        let is_link = |entry: &Entry| matches!(entry.kind, Kind::Link { .. });
        let files = entries.iter().enumerate().filter(|(_, entry)| matches!(entry.kind, Kind::File { .. }));
        let links = entries.iter().enumerate().filter(|(_, entry)| is_link(entry));
        let mut placed = HashSet::new();
        for (index, entry) in files.chain(links) {
            self.rename(index, entry, &mut placed)?;
            // Also of those that got their names before a crash.
            let mut above = &entry.path[..];
            while let Some(slash) = above.iter().rposition(|byte| *byte == b'/') {
                above = &above[..slash];
                if !changed.insert(above) {
                    break;
                }
            }
        }
        let is_few = entries.len() <= SYNCED_ALONE_MAX;
        if is_few {
            // Before some of them can no longer be read.
            for path in changed {
                self.sync_directory(path)?;
            }
        }
        // From the deepest up: a directory that nobody may write to would not take what is below it.
        for (index, entry) in entries.iter().enumerate().rev() {
            if made.contains(&(index as u64)) && entry.kind == Kind::Directory {
                self.change_directory(entry, is_few)?;
            }
        }
        if is_few {
            return system::sync(self.jail.root())
                .map_err(|error| FileError::io(&self.path, "made durable", error));
        }
        system::sync_all(&self.partial).map_err(|error| FileError::io(&self.path, "made durable", error))
    }

    fn sync_directory(&mut self, path: &[u8]) -> Result<(), FileError> {
        match self.jail.directory(path) {
            Ok(Some(directory)) => system::sync(directory)
                .map_err(|error| FileError::io(self.jail.shown(path), "made durable", error)),
            Ok(None) => Ok(()),
            // One that was there, and may be written to but not read: its own file system will see to it.
            Err(FileError::Io { source, .. }) if source.kind() == ErrorKind::PermissionDenied => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Gives a directory its time and permissions.
    fn change_directory(&mut self, entry: &Entry, is_synced: bool) -> Result<(), FileError> {
        let mode = Mode::from_raw_mode(entry.mode.into());
        let Some(directory) = self.jail.directory(&entry.path)? else { return Ok(()) };
        futimens(&directory, &times(entry.modified))
            .and_then(|()| fchmod(&directory, mode))
            .and_then(|()| if is_synced { system::sync(&directory) } else { Ok(()) })
            .map_err(|error| {
                FileError::io(self.jail.shown(&entry.path), "given its time and permissions", error)
            })
    }

    /// Makes a directory that can be written to; what it is to be like comes when all is in it. One that `is_own` was made by this transfer,
    /// perhaps before a crash.
    fn make_directory(&mut self, entry: &Entry, is_own: bool) -> Result<(), FileError> {
        let path = self.jail.shown(&entry.path);
        let Some((parent, name)) = self.jail.parent(&entry.path, true)? else { return Ok(()) };
        match mkdirat(parent, name, Mode::from_raw_mode(0o700)) {
            Ok(()) => return Ok(()),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(FileError::io(path, "made", error)),
        }
        // A link is no directory of its own.
        match system::let_in(parent, name, is_own) {
            Ok(()) => Ok(()),
            Err(error) if system::is_no_directory(error) => Err(FileError::Exists(path)),
            Err(error) => Err(FileError::io(&path, "opened", error)),
        }
    }

    /// Gives an entry its name, if it has not got it; `placed` are the inodes of those that have.
    fn rename(&mut self, index: usize, entry: &Entry, placed: &mut HashSet<u64>) -> Result<(), FileError> {
        let path = self.jail.shown(&entry.path);
        let (partial, from) = (self.partial.as_fd(), partial_name(index));
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        let Some((parent, name)) = self.jail.parent(&entry.path, true)? else { return Ok(()) };
        let inode = match statat(partial, &from, nofollow) {
            Ok(stat) => system::inode(&stat),
            Err(Errno::NOENT) => {
                placed.extend(statat(parent, name, nofollow).map(|stat| system::inode(&stat)));
                return Ok(());
            }
            Err(error) => return Err(FileError::io(path, "read", error)),
        };
        let renamed = match system::rename_unless_there((partial, &from), (parent, name)) {
            // Not every file system can; a second name is refused by all that have such where there is one already.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                linkat(partial, &from, parent, name, AtFlags::empty())
                    .and_then(|()| unlinkat(partial, &from, AtFlags::empty()))
            }
            other => other,
        };
        let renamed = match renamed {
            Err(Errno::EXIST) => match statat(parent, name, nofollow).map(|stat| system::inode(&stat)) {
                // A crash came between its second name and the end of its first.
                Ok(there) if there == inode => unlinkat(partial, &from, AtFlags::empty()),
                // Another of this transfer's, which is one with it to a file system that knows no capitals.
                Ok(there) if placed.contains(&there) => return Err(FileError::Alike(path)),
                _ if self.config.replace => renameat(partial, &from, parent, name),
                _ => Err(Errno::EXIST),
            },
            other => other,
        };
        match renamed {
            Ok(()) => {
                placed.insert(inode);
                Ok(())
            }
            Err(Errno::EXIST | Errno::ISDIR | Errno::NOTEMPTY) => Err(FileError::Exists(path)),
            Err(error) => Err(FileError::io(path, "given its name", error)),
        }
    }
}

/// All files have their names, and the journal says so.
#[derive(Debug)]
pub struct Placed(Destination);

impl Placed {
    /// Removes the journal: all who are to know that it is done know it.
    /// Errors: what the system refuses; the files are there all the same.
    pub fn forget(self) -> Result<(), FileError> {
        self.0.remove_partial()
    }
}

/// Whether it is the file that got this name, by its size and time.
fn is_same(stat: &Stat, entry: &Entry) -> bool {
    let Kind::File { size, .. } = &entry.kind else { return false };
    let (seconds, nanos) = system::modified(stat);
    let Modified { seconds: own, nanos: fine } = entry.modified;
    // FAT keeps two seconds, and some other file systems one.
    let is_then = (seconds, nanos) == (own, fine.into()) || nanos == 0 && seconds.abs_diff(own) < 2;
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_size as u64 == *size && is_then
}

/// When it was read last is not known here, and left.
fn times(modified: Modified) -> Timestamps {
    let last_modification = Timespec { tv_sec: modified.seconds, tv_nsec: modified.nanos.into() };
    Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification }
}
