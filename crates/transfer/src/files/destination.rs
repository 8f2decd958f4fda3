//! Writes received ranges of the object to files below one directory.

mod durable;
mod hashes;
mod room;

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rangemap::RangeSet;
use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, chmodat, flock, fstat, mkdirat, openat, statat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::jail::Jail;
use super::lru::LruCache;
use super::manifest::ENTRIES_MAX;
use super::system::UnlockOnDrop;
use super::{
    EntryKind, FileError, GROUP_BYTES, HashNode, Journal, JournalRecord, JournalState, Manifest,
    RESERVED_PREFIX, Tree, journal, system,
};

/// Identifies a transfer, also across sessions. A sender that has this identifier can resume the
/// transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferId(pub [u8; 16]);

impl TransferId {
    /// Name of the directory with the transfer's partial files.
    pub fn directory(&self) -> String {
        let hex = self.0.iter().map(|byte| format!("{byte:02x}"));
        RESERVED_PREFIX.chars().map(String::from).chain(hex).collect()
    }
}

/// Limits and options of a receiver's directory.
#[derive(Clone, Copy, Debug)]
pub struct DestinationConfig {
    /// Maximum number of bytes of data. The limit also applies to the blocks of 4 KiB that the data
    /// and all names take. For this check the limit is rounded up to whole blocks.
    pub bytes_max: u64,
    /// Maximum number of files, directories and links together. A directory above an entry is
    /// counted, even if the manifest has no entry for the directory.
    pub entries_max: u64,
    /// Whether existing files and links are replaced.
    pub replace: bool,
    /// Whether space for all files is allocated at the start, so that a full disk is reported at
    /// the start.
    pub allocate: bool,
    /// Whether symbolic links are accepted. No accepted link leads out of the directory.
    pub links: bool,
    /// Maximum number of files kept open; at least 1.
    pub files_open: usize,
    /// Whether the directory's path was resolved before. A resolved path is absolute and without
    /// links, so a link that is found in the path now is an error.
    pub forbid_links_in_path: bool,
}

impl Default for DestinationConfig {
    /// Sets no limit of bytes. Accepts as many entries as a manifest can have, and no links.
    /// Replaces no files, and allocates no space. Keeps at most 128 files open, an eighth of
    /// Linux's usual limit for a process.
    fn default() -> Self {
        Self {
            bytes_max: u64::MAX,
            entries_max: ENTRIES_MAX as u64,
            replace: false,
            allocate: false,
            links: false,
            files_open: 128,
            forbid_links_in_path: false,
        }
    }
}

/// The receiver's directory as one object.
///
/// Received bytes are written to partial files in one hidden directory that only the user can write
/// to. Nothing else changes before [`finish`](Self::finish). Each group of a file is hashed as soon
/// as the group is complete. The bytes of the group come from memory or from the page cache.
///
/// If the value is dropped or the process is killed, the transfer resumes from the last
/// [`sync`](Self::sync) when the destination is opened again.
#[derive(Debug)]
pub struct Destination {
    pub(super) jail: Jail,
    pub(super) partial: UnlockOnDrop,
    pub(super) path: PathBuf,
    pub(super) name: String,
    pub(super) manifest: Arc<Manifest>,
    pub(super) config: DestinationConfig,
    pub(super) open: LruCache<usize, File>,
    /// Entries with files that were written since the last sync.
    dirty: BTreeSet<usize>,
    /// The file that was written last, and the range of this file that was written after the last
    /// start of write-back.
    begun: Option<(usize, Range<u64>)>,
    /// Whether files may have been created in the partial directory since the last sync.
    is_named: bool,
    written: RangeSet<u64>,
    /// Ranges of `written` that are not in the journal yet, in order of arrival.
    fresh: Vec<Range<u64>>,
    trees: HashMap<usize, Tree>,
    nodes: Vec<HashNode>,
    /// Buffer for a group that is read from its file to be hashed.
    group: Vec<u8>,
    journal: Journal,
    /// Lock file, locked as long as this value lives; see [`lock`].
    _lock: Option<UnlockOnDrop>,
    pub(super) renaming: Option<Vec<u64>>,
    is_failed: bool,
}

impl Destination {
    /// Starts to receive `manifest` into the directory `root`, or resumes the transfer `id`.
    /// Errors: the manifest exceeds a limit of `config`; a file exists already; an error of the
    /// system.
    pub fn open(
        root: &Path,
        id: TransferId,
        manifest: Manifest,
        config: DestinationConfig,
    ) -> Result<Self, FileError> {
        room::check_allowed(&manifest, &config)?;
        let mut jail = Jail::open(root, config.forbid_links_in_path)?;
        let (name, path) = (id.directory(), root.join(id.directory()));
        let io = |what| {
            let path = path.clone();
            move |error: Errno| FileError::io(path, what, error)
        };
        let is_new = match mkdirat(jail.root(), &name, Mode::from_raw_mode(0o700)) {
            Ok(()) => system::sync(jail.root()).map(|()| true).map_err(io("made durable"))?,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(io("created")(error)),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let partial = match openat(jail.root(), &name, flags, Mode::empty()) {
            Err(error) if system::is_no_directory(error) => return Err(FileError::NotOwnDirectory(path)),
            other => UnlockOnDrop(other.map_err(io("opened"))?),
        };
        let stat = fstat(&partial).map_err(io("opened"))?;
        if stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
            return Err(FileError::NotOwnDirectory(path));
        }
        match flock(&partial, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(FileError::Busy(path)),
            // Without locks, the user must ensure that only one host uses the file system.
            Err(error) if system::has_no_locks(error) => {}
            other => other.map_err(io("locked"))?,
        }
        // The process that held the lock may have finished and removed the directory meanwhile.
        if system::is_gone(&partial, jail.root(), &name).map_err(io("opened"))? {
            return Err(FileError::Busy(path));
        }
        jail.close(&stat);
        if !is_new && !is_ours(&partial).map_err(io("listed"))? {
            return Err(FileError::NotOwnDirectory(path));
        }
        let lock = lock(&partial, &path)?;
        let (journal, kept) =
            Journal::open(partial.as_fd(), &path, id, &manifest.digest(), manifest.bytes())?;
        let mut destination = Self {
            jail,
            partial,
            path,
            name,
            manifest: Arc::new(manifest),
            config,
            open: LruCache::new(config.files_open),
            dirty: BTreeSet::new(),
            begun: None,
            // Names of files that a killed session created may not be durable.
            is_named: true,
            written: RangeSet::new(),
            fresh: vec![],
            trees: HashMap::new(),
            nodes: vec![],
            group: vec![],
            journal,
            _lock: lock,
            renaming: None,
            is_failed: false,
        };
        destination.restore(kept)?;
        if destination.renaming.is_none() {
            let begun = destination.check_free().and_then(|()| destination.allocate());
            if let Err(error) = begun {
                // Nothing was received yet. Report the error that stopped the start. Ignore an
                // error of the removal: the next try resumes in the directory.
                if is_new {
                    let _ = destination.discard();
                }
                return Err(error);
            }
        }
        Ok(destination)
    }

    /// Copies of the locked descriptors, as a child process has them until it starts its program.
    #[cfg(test)]
    pub(super) fn copies_of_locks(&self) -> Vec<std::os::fd::OwnedFd> {
        let Self { partial, _lock: lock, .. } = self;
        let locks = std::iter::once(partial).chain(lock);
        locks.map(|lock| rustix::io::dup(lock).expect("the descriptor is open")).collect()
    }

    /// Ranges that were written, durable or not.
    pub fn held(&self) -> &RangeSet<u64> {
        &self.written
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Writes a range of the object to its files. Bytes that were written before are not written
    /// again, because the hash of these bytes may be computed already. Errors: of the system
    /// ([`FileError::Full`] may be retried); a range beyond the object.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.check_failed()?;
        let end = offset.saturating_add(bytes.len() as u64);
        if self.manifest.bytes() < end {
            return Err(FileError::OutOfRange { end, bytes: self.manifest.bytes() });
        }
        let mut at = offset;
        while at < end {
            let Some(gap) = self.written.gaps(&(at..end)).next() else { break };
            let Some(piece) = self.manifest.pieces(gap).next() else { break };
            let part = (piece.object.start - offset) as usize..(piece.object.end - offset) as usize;
            let part = bytes.get(part).unwrap_or_default();
            self.dirty.insert(piece.entry);
            let wrote = self.file(piece.entry)?.write_all_at(part, piece.at);
            wrote.map_err(|error| FileError::io(self.shown(piece.entry), "written", error))?;
            self.written.insert(piece.object.clone());
            match self.fresh.last_mut() {
                Some(last) if last.end == piece.object.start => last.end = piece.object.end,
                _ => self.fresh.push(piece.object.clone()),
            }
            self.hash(piece.entry, &piece.object, part)?;
            self.begin_writing(piece.entry, piece.at..piece.at + part.len() as u64)?;
            at = piece.object.end;
        }
        Ok(())
    }

    /// Removes all received data. Does nothing if the files are already verified, because some
    /// files may already have their final names.
    pub fn discard(mut self) -> Result<(), FileError> {
        if self.renaming.is_some() {
            return Ok(());
        }
        self.open.clear();
        for entry in 0..self.manifest.entries().len() {
            match unlinkat(&self.partial, partial_name(entry), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(FileError::io(&self.path, "removed", error)),
            }
        }
        self.remove_partial()
    }

    pub(super) fn remove_partial(self) -> Result<(), FileError> {
        let Self { jail, partial, path, name, open, journal, _lock: lock, .. } = self;
        // Close the files first: NFS keeps a removed file under a different name while the file is
        // open, so the directory could not be removed. Release the lock after all files are
        // removed: while this host has the lock, no other host uses the directory.
        drop((open, journal));
        for name in [journal::NEXT_NAME, journal::NAME, LOCK_NAME] {
            match unlinkat(&partial, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(FileError::io(path.join(name), "removed", error)),
            }
        }
        drop(lock);
        match unlinkat(jail.root(), &name, AtFlags::REMOVEDIR).and_then(|()| system::sync(jail.root())) {
            // A different host started to use the directory again, or an NFS server still keeps a
            // name. The received data is removed in both cases.
            Ok(()) | Err(Errno::NOTEMPTY) => Ok(()),
            Err(error) => Err(FileError::io(&path, "removed", error)),
        }
    }

    /// Returns the partial file of an entry. Creates the file if it does not exist.
    pub(super) fn file(&mut self, entry: usize) -> Result<&File, FileError> {
        let Some(found) = self.manifest.entries().get(entry) else {
            return Err(FileError::Incomplete { missing: self.manifest.bytes() });
        };
        let EntryKind::File { size, .. } = &found.kind else { return Err(FileError::Link(found.shown())) };
        let (partial, jail, is_renaming) = (&self.partial, &self.jail, self.renaming.is_some());
        let mut is_new = false;
        let file = self.open.get_or(entry, || {
            let mut flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            // While files get their names, a file that is missing in the partial directory has its
            // final name already.
            flags.set(OFlags::CREATE, !is_renaming);
            let (name, mode) = (partial_name(entry), Mode::from_raw_mode(0o600));
            let opened = openat(partial, &name, flags, mode).or_else(|error| match error {
                // The file already has its final permissions, because an earlier session was killed
                // just before it renamed the file.
                Errno::ACCESS => chmodat(partial, &name, mode, AtFlags::empty())
                    .and_then(|()| openat(partial, &name, flags, mode)),
                _ => Err(error),
            });
            let file =
                File::from(opened.map_err(|error| FileError::io(jail.shown(&found.path), "opened", error))?);
            let metadata =
                file.metadata().map_err(|error| FileError::io(jail.shown(&found.path), "opened", error))?;
            if !metadata.is_file() {
                return Err(FileError::NotOwnDirectory(self.path.join(name)));
            }
            if metadata.len() != *size {
                // Set the final length now: ranges that are never written stay holes.
                file.set_len(*size)
                    .map_err(|error| FileError::io(jail.shown(&found.path), "resized", error))?;
                is_new = true;
            }
            Ok::<_, FileError>(file)
        })?;
        self.is_named |= is_new;
        Ok(file)
    }

    /// Path of an entry, for messages.
    fn shown(&self, entry: usize) -> PathBuf {
        self.jail.shown(self.manifest.entries().get(entry).map_or(&[][..], |entry| &entry.path))
    }

    /// Number of bytes of the object that were not written.
    pub(super) fn missing(&self) -> u64 {
        self.manifest.bytes() - self.written.iter().map(|range| range.end - range.start).sum::<u64>()
    }

    pub(super) fn begin_renaming(&mut self, made: Vec<u64>) -> Result<(), FileError> {
        self.journal.append(&[JournalRecord::Renaming(made.clone())])?;
        self.renaming = Some(made);
        Ok(())
    }

    fn check_failed(&self) -> Result<(), FileError> {
        if self.is_failed { Err(FileError::SyncFailed(self.path.clone())) } else { Ok(()) }
    }
}

/// Whether an existing directory belongs to an unfinished transfer: it contains a journal, or only
/// the files that are created before the journal.
fn is_ours(partial: &UnlockOnDrop) -> Result<bool, Errno> {
    match statat(partial, journal::NAME, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => return Ok(FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile),
        Err(Errno::NOENT) => {}
        Err(error) => return Err(error),
    }
    for entry in Dir::read_from(partial)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let is_own = name == journal::NEXT_NAME.as_bytes() || name == LOCK_NAME.as_bytes();
        if name != b"." && name != b".." && !is_own {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Locks a partial directory against other hosts that share the storage; `None` if the file system
/// has no such locks.
///
/// The lock of the directory itself excludes only processes of this host, because an NFS client
/// does not send locks of directories to the server. An NFS client does send locks of files that
/// are open for writing (flock(2), NOTES; nfs_flock in Linux).
fn lock(partial: &UnlockOnDrop, path: &Path) -> Result<Option<UnlockOnDrop>, FileError> {
    let io = |error: Errno| FileError::io(path.join(LOCK_NAME), "locked", error);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = UnlockOnDrop(openat(partial, LOCK_NAME, flags, Mode::from_raw_mode(0o600)).map_err(io)?);
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(FileError::Busy(path.into())),
        Err(error) if system::has_no_locks(error) => return Ok(None),
        Err(error) => return Err(io(error)),
    }
    // The process that held the lock may have finished and removed the file meanwhile.
    let there = statat(partial, LOCK_NAME, AtFlags::SYMLINK_NOFOLLOW).map(|stat| stat.st_ino);
    if there != Ok(fstat(&file).map_err(io)?.st_ino) {
        return Err(FileError::Busy(path.into()));
    }
    Ok(Some(file))
}

/// Name of the lock file, which is empty and in the same directory as the partial files.
const LOCK_NAME: &str = "lock";

/// Name of an entry's partial file.
pub(super) fn partial_name(entry: usize) -> String {
    format!("{entry:08x}")
}
