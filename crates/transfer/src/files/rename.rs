//! Gives received files their names.

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
use super::{Destination, EntryKind, FileError, ManifestEntry, Modified};

impl Destination {
    /// Verifies all files by the sender's `digests`, which are in the order of
    /// [`Manifest::files`](super::Manifest::files). Then sets the permissions and times of the
    /// files, makes the files durable, and only then gives them their names. Links get their names
    /// after all files.
    ///
    /// Existing files are replaced only if the configuration allows it. A file that appeared during
    /// the transfer counts as an existing file, too. Existing directories keep their permissions
    /// and times. If the call fails or the process is killed, the work continues when the
    /// destination is opened again and `finish` is called again. Errors: [`FileError::Incomplete`];
    /// [`FileError::Digest`] if a file differs (the file is then received again); an error of the
    /// system.
    pub fn finish(self, digests: &[[u8; 32]]) -> Result<(), FileError> {
        self.rename_files(digests, &AtomicBool::new(false))?.remove_journal()
    }

    /// Like [`finish`](Self::finish), but keeps the journal, which records that the transfer is
    /// done. Until the journal is [removed](RenamedFiles::remove_journal), a sender that did not
    /// receive the result can connect again to receive it. Errors: those of
    /// [`finish`](Self::finish); [`FileError::Stopped`] if `stop` is set while files are read to
    /// verify them. After the verification `stop` has no effect.
    pub fn rename_files(
        mut self,
        digests: &[[u8; 32]],
        stop: &AtomicBool,
    ) -> Result<RenamedFiles, FileError> {
        if self.missing() != 0 {
            return Err(FileError::Incomplete { missing: self.missing() });
        }
        self.sync()?;
        let files = self.manifest.files().count();
        if files != digests.len() {
            return Err(FileError::Digests(digests.len(), files));
        }
        // If some files have their names already, all files were verified in an earlier session.
        if self.renaming.is_none() {
            self.verify(digests, stop)?;
            self.prepare()?;
        }
        self.rename_all()?;
        Ok(RenamedFiles(self))
    }

    /// Indices of entries without a file under the final name and without a partial file: a file
    /// that got its name in an earlier session may have been removed or changed since.
    pub(super) fn missing_entries(&mut self, made: &[u64]) -> Result<Vec<usize>, FileError> {
        let manifest = Arc::clone(&self.manifest);
        let mut lost = vec![];
        for (index, entry) in manifest.entries().iter().enumerate() {
            if entry.kind == EntryKind::Directory {
                // Give the owner access to a directory of this transfer: otherwise its contents
                // cannot be found.
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
                        EntryKind::Link { target } => readlinkat(parent, name, Vec::new())
                            .is_ok_and(|there| there.as_bytes() == &target[..]),
                        _ => is_same(&stat, entry),
                    },
                    Err(Errno::NOENT | Errno::NOTDIR) => false,
                    Err(error) => return Err(FileError::io(path, "read", error)),
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
                self.discard_file(entry)?;
                wrong = wrong.or(Some(entry));
            }
        }
        match wrong.and_then(|entry| self.manifest.entries().get(entry)) {
            Some(entry) => Err(FileError::Digest(self.jail.shown(&entry.path))),
            None => Ok(()),
        }
    }

    /// Prepares all files and directories before the first file gets its name.
    pub(super) fn prepare(&mut self) -> Result<(), FileError> {
        let mut made = vec![];
        let manifest = Arc::clone(&self.manifest);
        let entries = manifest.entries();
        // fdatasync(2) does not cover times and permissions, because they are not data.
        let is_few = entries.len() <= SYNCED_ALONE_MAX;
        for (index, entry) in entries.iter().enumerate() {
            let path = self.jail.shown(&entry.path);
            match &entry.kind {
                EntryKind::File { .. } => {
                    let file = self.file(index)?;
                    futimens(file, &times(entry.modified))
                        .and_then(|()| fchmod(file, Mode::from_raw_mode(entry.mode.into())))
                        .and_then(|()| if is_few { system::sync(file) } else { Ok(()) })
                        .map_err(|error| FileError::io(path, "given its time and permissions", error))?;
                }
                EntryKind::Directory => {
                    if self.jail.kind(&entry.path)?.is_none() {
                        made.push(index as u64);
                    }
                }
                EntryKind::Link { target } => {
                    let name = partial_name(index);
                    match unlinkat(&self.partial, &name, AtFlags::empty()) {
                        Ok(()) | Err(Errno::NOENT) => {}
                        Err(error) => return Err(FileError::io(path, "created", error)),
                    }
                    let nofollow = AtFlags::SYMLINK_NOFOLLOW;
                    symlinkat(&target[..], &self.partial, &name)
                        .and_then(|()| utimensat(&self.partial, &name, &times(entry.modified), nofollow))
                        .map_err(|error| FileError::io(path, "created", error))?;
                }
            }
        }
        let synced = if is_few { system::sync(&self.partial) } else { system::sync_all(&self.partial) };
        synced.map_err(|error| FileError::io(&self.path, "made durable", error))?;
        self.begin_renaming(made)
    }

    pub(super) fn rename_all(&mut self) -> Result<(), FileError> {
        self.open.clear();
        let manifest = Arc::clone(&self.manifest);
        let entries = manifest.entries();
        let mut changed: BTreeSet<&[u8]> = BTreeSet::new();
        let made: BTreeSet<u64> = self.renaming.iter().flatten().copied().collect();
        for (index, entry) in
            entries.iter().enumerate().filter(|(_, entry)| entry.kind == EntryKind::Directory)
        {
            self.make_directory(entry, made.contains(&(index as u64)))?;
        }
        let is_link = |entry: &ManifestEntry| matches!(entry.kind, EntryKind::Link { .. });
        let files =
            entries.iter().enumerate().filter(|(_, entry)| matches!(entry.kind, EntryKind::File { .. }));
        let links = entries.iter().enumerate().filter(|(_, entry)| is_link(entry));
        let mut placed = HashSet::new();
        for (index, entry) in files.chain(links) {
            self.rename(index, entry, &mut placed)?;
            // Also sync the directories of files that got their names before a crash.
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
            // Sync the directories now, because their final permissions may make them unreadable.
            for path in changed {
                self.sync_directory(path)?;
            }
        }
        // Change the deepest directories first: nothing can change below a directory without write
        // permission.
        for (index, entry) in entries.iter().enumerate().rev() {
            if made.contains(&(index as u64)) && entry.kind == EntryKind::Directory {
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
            // Ignore an existing directory that is writable but not readable: the file system makes
            // it durable some time later.
            Err(FileError::Io { source, .. }) if source.kind() == ErrorKind::PermissionDenied => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Gives a directory its time and permissions.
    fn change_directory(&mut self, entry: &ManifestEntry, is_synced: bool) -> Result<(), FileError> {
        let mode = Mode::from_raw_mode(entry.mode.into());
        let Some(directory) = self.jail.directory(&entry.path)? else { return Ok(()) };
        futimens(&directory, &times(entry.modified))
            .and_then(|()| fchmod(&directory, mode))
            .and_then(|()| if is_synced { system::sync(&directory) } else { Ok(()) })
            .map_err(|error| {
                FileError::io(self.jail.shown(&entry.path), "given its time and permissions", error)
            })
    }

    /// Creates a writable directory; it gets its permissions when its contents are complete. If
    /// `is_own` is set, this transfer created the directory, perhaps before a crash.
    fn make_directory(&mut self, entry: &ManifestEntry, is_own: bool) -> Result<(), FileError> {
        let path = self.jail.shown(&entry.path);
        let Some((parent, name)) = self.jail.parent(&entry.path, true)? else { return Ok(()) };
        match mkdirat(parent, name, Mode::from_raw_mode(0o700)) {
            Ok(()) => return Ok(()),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(FileError::io(path, "created", error)),
        }
        // A link does not count as a directory.
        match system::let_in(parent, name, is_own) {
            Ok(()) => Ok(()),
            Err(error) if system::is_no_directory(error) => Err(FileError::Exists(path)),
            Err(error) => Err(FileError::io(&path, "opened", error)),
        }
    }

    /// Gives an entry its final name, unless the entry has this name already. `placed` collects the
    /// inodes of entries that have their names.
    fn rename(
        &mut self,
        index: usize,
        entry: &ManifestEntry,
        placed: &mut HashSet<u64>,
    ) -> Result<(), FileError> {
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
            // Not every file system can rename without replacing. A hard link never replaces an
            // existing name.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                linkat(partial, &from, parent, name, AtFlags::empty())
                    .and_then(|()| unlinkat(partial, &from, AtFlags::empty()))
            }
            other => other,
        };
        let renamed = match renamed {
            Err(Errno::EXIST) => match statat(parent, name, nofollow).map(|stat| system::inode(&stat)) {
                // A crash came after the second name was added and before the first name was
                // removed.
                Ok(there) if there == inode => unlinkat(partial, &from, AtFlags::empty()),
                // A different entry of this transfer has this name, on a file system that ignores
                // case.
                Ok(there) if placed.contains(&there) => return Err(FileError::NamesCollide(path)),
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
            Err(error) => Err(FileError::io(path, "renamed", error)),
        }
    }
}

/// A transfer of which all files have their names, as the journal records.
#[derive(Debug)]
pub struct RenamedFiles(Destination);

impl RenamedFiles {
    /// Removes the journal. Call this when both ends know that the transfer is done. Errors: of the
    /// system; the files keep their names.
    pub fn remove_journal(self) -> Result<(), FileError> {
        self.0.remove_partial()
    }
}

/// Whether the file with this name is the entry's file, judged by size and time.
fn is_same(stat: &Stat, entry: &ManifestEntry) -> bool {
    let EntryKind::File { size, .. } = &entry.kind else { return false };
    let (seconds, nanos) = system::modified(stat);
    let Modified { seconds: own, nanos: fine } = entry.modified;
    // FAT stores times in steps of two seconds, some other file systems in seconds.
    let is_then = (seconds, nanos) == (own, fine.into()) || nanos == 0 && seconds.abs_diff(own) < 2;
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_size as u64 == *size && is_then
}

/// Times to set for a file. The time of the last read is left unchanged.
fn times(modified: Modified) -> Timestamps {
    let last_modification = Timespec { tv_sec: modified.seconds, tv_nsec: modified.nanos.into() };
    Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification }
}
