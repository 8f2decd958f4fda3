//! Stores hashes of files on disk, so that a restarted sender need not compute them again.

use std::collections::HashSet;
use std::fs::DirBuilder;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, flock, fstat, futimens,
    mkdirat, openat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::super::journal_state::ITEMS_MAX;
use super::super::system::UnlockOnDrop;
use super::super::walk::FileState;
use super::super::{
    EntryKind, FileError, HashNode, Journal, JournalRecord, JournalState, TransferId, journal, system,
};
use super::Source;

/// Seconds for which a file counts as fresh after its status changed. A fresh file may change again
/// without a new time: times on FAT have steps of two seconds, and times on other file systems have
/// steps of a kernel clock tick. Hashes of a fresh file are not kept (as in git's index).
const FRESH_S: i64 = 2;

/// The journal of a sender: groups that were read, and their hashes.
#[derive(Debug)]
pub(super) struct HashCache {
    root: OwnedFd,
    name: String,
    shown: PathBuf,
    directory: UnlockOnDrop,
    journal: Journal,
    /// Nodes that are not in the journal yet.
    nodes: Vec<HashNode>,
    /// Entries for which no hashes are kept.
    excluded: HashSet<usize>,
}

impl HashCache {
    pub(super) fn add(&mut self, entry: usize, group: u64, value: [u8; 32]) {
        if !self.excluded.contains(&entry) {
            self.nodes.push(HashNode { entry: entry as u64, level: 0, index: group, value });
        }
    }

    pub(super) fn exclude(&mut self, entry: usize) {
        self.excluded.insert(entry);
        self.nodes.retain(|node| node.entry != entry as u64);
    }

    fn append(&mut self) -> Result<(), FileError> {
        let nodes = std::mem::take(&mut self.nodes);
        let records: Vec<JournalRecord> =
            nodes.chunks(ITEMS_MAX).map(|some| JournalRecord::Nodes(some.to_vec())).collect();
        if records.is_empty() { Ok(()) } else { self.journal.append(&records) }
    }
}

impl Drop for HashCache {
    /// Writes the remaining hashes. An error is ignored: hashes that were not written are computed
    /// again by the next sender.
    fn drop(&mut self) {
        let _ = self.append();
    }
}

impl Source {
    /// Stores, in a journal below `directory`, the hashes of all bytes that the source reads. A
    /// restarted sender then reads for its [`digest`](Self::digest)s only bytes that were not read
    /// before. The directory is for this purpose only, is created if it does not exist, and must
    /// not be among the files that are sent. Hashes that an earlier sender kept for `id` are used
    /// if no file has changed since then (device, inode, size, times of modification and of
    /// status).
    ///
    /// Hashes are made durable after each 256 MiB of data, and when the source is dropped. If
    /// writing them fails, no more hashes are kept, so a restarted sender must read more bytes
    /// again. [Remove](Self::remove_hash_cache) the hashes when the transfer is done, or when the
    /// receiver reports a wrong digest. Errors: of the system; [`FileError::Busy`] if a different
    /// sender uses the hashes; [`FileError::NotOwnDirectory`]. After an error the source uses and
    /// keeps no hashes.
    pub fn use_hash_cache(&mut self, directory: &Path, id: TransferId) -> Result<(), FileError> {
        self.use_hash_cache_older(directory, id, FRESH_S)
    }

    /// Removes hashes that [`use_hash_cache`](Self::use_hash_cache) kept.
    pub fn remove_hash_cache(&mut self) -> Result<(), FileError> {
        let Some(mut cache) = self.hash_cache.take() else { return Ok(()) };
        cache.nodes.clear();
        let io = |error| FileError::io(&cache.shown, "removed", error);
        for name in [journal::NEXT_NAME, journal::NAME] {
            match unlinkat(&cache.directory, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(io(error)),
            }
        }
        unlinkat(&cache.root, &cache.name, AtFlags::REMOVEDIR).map_err(io)
    }

    /// Like [`use_hash_cache`](Self::use_hash_cache), but a file counts as fresh for `fresh_s`
    /// seconds.
    pub(in super::super) fn use_hash_cache_older(
        &mut self,
        directory: &Path,
        id: TransferId,
        fresh_s: i64,
    ) -> Result<(), FileError> {
        self.hash_cache = None;
        let (name, shown) = (id.directory(), directory.join(id.directory()));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| FileError::io(directory, "created", error))?;
        let io = |what| {
            let shown = shown.clone();
            move |error: Errno| FileError::io(shown, what, error)
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, directory, flags, Mode::empty()).map_err(io("opened"))?;
        match mkdirat(&root, &name, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(io("created")(error)),
        }
        let own = match openat(&root, &name, flags | OFlags::NOFOLLOW, Mode::empty()) {
            Err(error) if system::is_no_directory(error) => return Err(FileError::NotOwnDirectory(shown)),
            other => UnlockOnDrop(other.map_err(io("opened"))?),
        };
        let stat = fstat(&own).map_err(io("opened"))?;
        if stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
            return Err(FileError::NotOwnDirectory(shown));
        }
        match flock(&own, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(FileError::Busy(shown)),
            other => other.map_err(io("locked"))?,
        }
        // The process that held the lock may have removed the directory meanwhile.
        if system::is_gone(&own, &root, &name).map_err(io("opened"))? {
            return Err(FileError::Busy(shown));
        }
        // Read the time from the file system, because this module has no clock.
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        futimens(&own, &Timestamps { last_access: now, last_modification: now }).map_err(io("written"))?;
        let now = FileState::of(&fstat(&own).map_err(io("read"))?).changed.0;

        let (tie, bytes) = (self.tie(), self.manifest.bytes());
        let open = || Journal::open(own.as_fd(), &shown, id, &tie, bytes);
        let (journal, kept) = match open() {
            // The files changed since the journal was written: start a new journal.
            Err(FileError::Journal(_)) => {
                unlinkat(&own, journal::NAME, AtFlags::empty()).map_err(io("removed"))?;
                open()?
            }
            other => other?,
        };
        let files = self.files.iter().enumerate();
        let fresh = files.filter(|(_, file)| now - fresh_s < file.state.changed.0).map(|(entry, _)| entry);
        let mut excluded: HashSet<usize> = fresh.collect();
        excluded
            .extend(self.files.iter().enumerate().filter(|(_, at)| at.touches > 0).map(|(entry, _)| entry));
        for node in kept.nodes {
            let Ok(entry) = usize::try_from(node.entry) else { continue };
            let is_file = matches!(self.manifest.entries().get(entry), Some(found) if found.stored() > 0);
            if is_file && !excluded.contains(&entry) {
                self.tree(entry).insert(node.level, node.index, node.value);
            }
        }
        self.hash_cache =
            Some(HashCache { root, name, shown, directory: own, journal, nodes: vec![], excluded });
        Ok(())
    }

    /// Appends new hashes to the journal when there are enough of them. Rewrites the journal when
    /// it has grown too long.
    pub(super) fn keep(&mut self) {
        let Some(cache) = self.hash_cache.as_mut().filter(|some| some.nodes.len() >= ITEMS_MAX) else {
            return;
        };
        let mut kept = cache.append();
        if kept.is_ok() && cache.journal.is_long() {
            let trees = self.trees.iter().filter(|(entry, _)| !cache.excluded.contains(entry));
            let nodes = trees.flat_map(|(entry, tree)| {
                tree.nodes().map(|(level, index, value)| HashNode {
                    entry: *entry as u64,
                    level,
                    index,
                    value: *value,
                })
            });
            let all = JournalState { nodes: nodes.collect(), ..JournalState::default() };
            kept = cache.journal.replace(&all);
        }
        if kept.is_err() {
            self.hash_cache = None;
        }
    }

    /// Digest of the manifest and of the state of each file. Kept hashes are valid only for the
    /// same digest.
    fn tie(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"barograph sender's hashes 1").update(&self.manifest.digest());
        for (file, entry) in self.files.iter().zip(self.manifest.entries()) {
            if matches!(entry.kind, EntryKind::File { .. }) {
                let FileState { device, inode, size, modified, changed } = file.state;
                let numbers =
                    [device, inode, size, modified.0 as u64, modified.1, changed.0 as u64, changed.1];
                for number in numbers {
                    hasher.update(&number.to_be_bytes());
                }
            }
        }
        *hasher.finalize().as_bytes()
    }
}
