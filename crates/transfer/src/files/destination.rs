//! Writing what is received.

mod hashes;
mod room;

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rangemap::RangeSet;
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, chmodat, fdatasync, flock, fstat, fsync, mkdirat, openat, syncfs,
    unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::jail::Jail;
use super::kept::ITEMS_MAX;
use super::recent::Recent;
use super::{
    FileError, GROUP_BYTES, Journal, Kept, Kind, Manifest, Node, RESERVED_PREFIX, Record, Tree, journal,
};

/// Files that are synced one by one; more are synced with all else on their file system, which is a call instead of a disk's cache flush
/// for each (syncfs(2)).
pub(super) const SYNCED_ALONE_MAX: usize = 32;

/// Names a transfer, also across sessions; whoever knows it can go on with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferId(pub [u8; 16]);

impl TransferId {
    /// The directory that its partial files are in.
    pub fn directory(&self) -> String {
        let hex = self.0.iter().map(|byte| format!("{byte:02x}"));
        RESERVED_PREFIX.chars().map(String::from).chain(hex).collect()
    }
}

/// What may be received, and how.
#[derive(Clone, Copy, Debug)]
pub struct DestinationConfig {
    /// Bytes of data, at most.
    pub bytes_max: u64,
    /// Entries, at most.
    pub entries_max: u64,
    /// Files and links that are there already are replaced.
    pub replace: bool,
    /// Room for all files is taken at the beginning, so that a full disk is told then.
    pub allocate: bool,
    /// Symbolic links are taken. None leads out of the directory.
    pub links: bool,
    /// Files kept open, one at least.
    pub files_open: usize,
}

impl Default for DestinationConfig {
    /// All that fits, nothing replaced, no links, 128 open files: an eighth of what a process may have open at least on Linux.
    fn default() -> Self {
        Self {
            bytes_max: u64::MAX,
            entries_max: u64::MAX,
            replace: false,
            allocate: false,
            links: false,
            files_open: 128,
        }
    }
}

/// The receiver's directory as one object.
///
/// What comes is written to partial files in one hidden directory, only the user's own; nothing else is touched before
/// [`finish`](Self::finish). Each group of a file is hashed when it is whole, from memory or the page cache.
///
/// Dropped at any time, or killed, it goes on at its last [`sync`](Self::sync) when it is opened again.
#[derive(Debug)]
pub struct Destination {
    pub(super) jail: Jail,
    pub(super) partial: OwnedFd,
    pub(super) path: PathBuf,
    pub(super) name: String,
    pub(super) manifest: Arc<Manifest>,
    pub(super) config: DestinationConfig,
    pub(super) open: Recent<usize, File>,
    /// Written since the last sync.
    dirty: BTreeSet<usize>,
    /// Some of them are closed, or new.
    is_dirty_beyond: bool,
    written: RangeSet<u64>,
    fresh: RangeSet<u64>,
    trees: HashMap<usize, Tree>,
    nodes: Vec<Node>,
    journal: Journal,
    pub(super) placing: Option<Vec<u64>>,
    is_failed: bool,
}

impl Destination {
    /// Begins to receive `manifest` into the directory `root`, or goes on.
    ///
    /// # Errors
    /// What is not allowed, or exists already; what the system refuses.
    pub fn open(
        root: &Path,
        id: TransferId,
        manifest: Manifest,
        config: DestinationConfig,
    ) -> Result<Self, FileError> {
        room::check_allowed(&manifest, &config)?;
        let jail = Jail::open(root)?;
        let (name, path) = (id.directory(), root.join(id.directory()));
        let io = |what| {
            let path = path.clone();
            move |error: Errno| FileError::io(path, what, error)
        };
        let is_new = match mkdirat(jail.root(), &name, Mode::from_raw_mode(0o700)) {
            Ok(()) => fsync(jail.root()).map(|()| true).map_err(io("made durable"))?,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(io("made")(error)),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let partial = match openat(jail.root(), &name, flags, Mode::empty()) {
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(FileError::Foreign(path)),
            other => other.map_err(io("opened"))?,
        };
        let stat = fstat(&partial).map_err(io("opened"))?;
        if stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
            return Err(FileError::Foreign(path));
        }
        match flock(&partial, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(FileError::Busy(path)),
            other => other.map_err(io("locked"))?,
        }
        // Who had the lock may have finished and removed it meanwhile.
        if fstat(&partial).map_err(io("opened"))?.st_nlink == 0 {
            return Err(FileError::Busy(path));
        }
        let (journal, kept) =
            Journal::open(partial.as_fd(), &path, id, &manifest.digest(), manifest.bytes())?;
        let mut destination = Self {
            jail,
            partial,
            path,
            name,
            manifest: Arc::new(manifest),
            config,
            open: Recent::new(config.files_open),
            dirty: BTreeSet::new(),
            // The names of files that a killed session made may not be durable.
            is_dirty_beyond: true,
            written: RangeSet::new(),
            fresh: RangeSet::new(),
            trees: HashMap::new(),
            nodes: vec![],
            journal,
            placing: None,
            is_failed: false,
        };
        destination.take_up(kept);
        if destination.placing.is_none() {
            let begun = destination.check_free().and_then(|()| destination.allocate());
            if let Err(error) = begun {
                // Nothing came yet. What is told is why; what cannot be removed is taken up by the next try.
                if is_new {
                    let _ = destination.discard();
                }
                return Err(error);
            }
        }
        Ok(destination)
    }

    /// What is there, on the disk or not yet.
    pub fn held(&self) -> &RangeSet<u64> {
        &self.written
    }

    /// What is received.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Writes a range of the object where it belongs.
    ///
    /// # Errors
    /// What the system refuses: [`FileError::Full`] may be tried again. A range beyond the object.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.check_failed()?;
        let end = offset.saturating_add(bytes.len() as u64);
        if self.manifest.bytes() < end {
            return Err(FileError::Beyond { end, bytes: self.manifest.bytes() });
        }
        let mut at = offset;
        while at < end {
            let Some(piece) = self.manifest.pieces(at..end).next() else { break };
            let part = (piece.object.start - offset) as usize..(piece.object.end - offset) as usize;
            let part = bytes.get(part).unwrap_or_default();
            let wrote = self.file(piece.entry)?.write_all_at(part, piece.at);
            wrote.map_err(|error| FileError::io(self.shown(piece.entry), "written", error))?;
            self.dirty.insert(piece.entry);
            self.written.insert(piece.object.clone());
            self.fresh.insert(piece.object.clone());
            self.hash(piece.entry, &piece.object, part)?;
            at = piece.object.end;
        }
        Ok(())
    }

    /// Makes what was written durable, and then says so in the journal. How often it is called is how much is sent again after a crash.
    ///
    /// # Errors
    /// What the system refuses. After that nothing is taken any more, as it is not known what was lost: open it again.
    pub fn sync(&mut self) -> Result<(), FileError> {
        self.check_failed()?;
        if self.fresh.is_empty() && self.nodes.is_empty() && self.dirty.is_empty() {
            return Ok(());
        }
        let synced = self.sync_data();
        self.is_failed = synced.is_err();
        synced?;
        let fresh: Vec<Range<u64>> = self.fresh.iter().cloned().collect();
        let mut records: Vec<Record> =
            fresh.chunks(ITEMS_MAX).map(|some| Record::Held(some.to_vec())).collect();
        // Behind the ranges: what a torn journal says of subtrees is held.
        records.extend(self.nodes.chunks(ITEMS_MAX).map(|some| Record::Nodes(some.to_vec())));
        self.journal.append(&records)?;
        self.fresh.clear();
        self.nodes.clear();
        if self.journal.is_long() {
            self.journal.replace(&self.kept())?;
        }
        Ok(())
    }

    /// Removes all that was received and not finished.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn discard(mut self) -> Result<(), FileError> {
        self.open.clear();
        for entry in 0..self.manifest.entries().len() {
            match unlinkat(&self.partial, partial_name(entry), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(FileError::io(&self.path, "removed", error)),
            }
        }
        self.remove_partial()
    }

    pub(super) fn remove_partial(&self) -> Result<(), FileError> {
        for name in [journal::NEXT_NAME, journal::NAME] {
            match unlinkat(&self.partial, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(FileError::io(self.path.join(name), "removed", error)),
            }
        }
        let removed = unlinkat(self.jail.root(), &self.name, AtFlags::REMOVEDIR);
        removed
            .and_then(|()| fsync(self.jail.root()))
            .map_err(|error| FileError::io(&self.path, "removed", error))
    }

    /// Makes all that was written, and the names in the partial directory, durable.
    pub(super) fn sync_data(&mut self) -> Result<(), FileError> {
        let alone: Option<Vec<(usize, &File)>> =
            self.dirty.iter().map(|entry| Some((*entry, self.open.peek(entry)?))).collect();
        match alone {
            Some(files) if !self.is_dirty_beyond && files.len() <= SYNCED_ALONE_MAX => {
                for (entry, file) in files {
                    fdatasync(file)
                        .map_err(|error| FileError::io(self.shown(entry), "made durable", error))?;
                }
            }
            _ => syncfs(&self.partial).map_err(|error| FileError::io(&self.path, "made durable", error))?,
        }
        self.dirty.clear();
        self.is_dirty_beyond = false;
        Ok(())
    }

    /// The file that an entry's bytes are written to, made if it is not there.
    pub(super) fn file(&mut self, entry: usize) -> Result<&File, FileError> {
        let Some(found) = self.manifest.entries().get(entry) else {
            return Err(FileError::Incomplete { missing: self.manifest.bytes() });
        };
        let Kind::File { size, .. } = &found.kind else { return Err(FileError::Link(found.shown())) };
        let (partial, jail) = (&self.partial, &self.jail);
        let mut is_new = false;
        let (file, gone) = self.open.get_or(entry, || {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let (name, mode) = (partial_name(entry), Mode::from_raw_mode(0o600));
            let opened = openat(partial, &name, flags, mode).or_else(|error| match error {
                // It has its own permissions already: a session was killed just before it had its name.
                Errno::ACCESS => chmodat(partial, &name, mode, AtFlags::empty())
                    .and_then(|()| openat(partial, &name, flags, mode)),
                _ => Err(error),
            });
            let file =
                File::from(opened.map_err(|error| FileError::io(jail.shown(&found.path), "opened", error))?);
            let length = file
                .metadata()
                .map_err(|error| FileError::io(jail.shown(&found.path), "opened", error))?
                .len();
            if length != *size {
                // Holes are what is never written.
                file.set_len(*size).map_err(|error| {
                    FileError::io(jail.shown(&found.path), "made as long as it will be", error)
                })?;
                is_new = true;
            }
            Ok::<_, FileError>(file)
        })?;
        let is_dirty_gone = gone.is_some_and(|gone| self.dirty.contains(&gone));
        self.is_dirty_beyond |= is_new || is_dirty_gone;
        Ok(file)
    }

    /// The path of an entry, for messages.
    fn shown(&self, entry: usize) -> PathBuf {
        self.jail.shown(self.manifest.entries().get(entry).map_or(&[][..], |entry| &entry.path))
    }

    /// Bytes of the object that were not written.
    pub(super) fn missing(&self) -> u64 {
        self.manifest.bytes() - self.written.iter().map(|range| range.end - range.start).sum::<u64>()
    }

    pub(super) fn begin_placing(&mut self, made: Vec<u64>) -> Result<(), FileError> {
        self.journal.append(&[Record::Placing(made.clone())])?;
        self.placing = Some(made);
        Ok(())
    }

    fn check_failed(&self) -> Result<(), FileError> {
        if self.is_failed { Err(FileError::Failed(self.path.clone())) } else { Ok(()) }
    }
}

/// The name of an entry's partial file.
pub(super) fn partial_name(entry: usize) -> String {
    format!("{entry:08x}")
}
