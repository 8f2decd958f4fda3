//! Hashes of what was read outlive the sender.

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

use super::super::kept::ITEMS_MAX;
use super::super::walk::State;
use super::super::{FileError, Journal, Kept, Kind, Node, Record, TransferId, journal, system};
use super::Source;

/// A file whose status changed less than this before (seconds) may change again with no other time to show for it: FAT counts two seconds,
/// others a tick of the kernel's clock. Nothing of it is remembered (as git does with its index).
const FRESH_S: i64 = 2;

/// The journal of a sender: groups that were read and their hashes.
#[derive(Debug)]
pub(super) struct Remembered {
    root: OwnedFd,
    name: String,
    shown: PathBuf,
    directory: OwnedFd,
    journal: Journal,
    /// Not in the journal yet.
    nodes: Vec<Node>,
    /// Of these entries nothing is kept.
    excluded: HashSet<usize>,
}

impl Remembered {
    pub(super) fn add(&mut self, entry: usize, group: u64, value: [u8; 32]) {
        if !self.excluded.contains(&entry) {
            self.nodes.push(Node { entry: entry as u64, level: 0, index: group, value });
        }
    }

    pub(super) fn exclude(&mut self, entry: usize) {
        self.excluded.insert(entry);
        self.nodes.retain(|node| node.entry != entry as u64);
    }

    fn append(&mut self) -> Result<(), FileError> {
        let nodes = std::mem::take(&mut self.nodes);
        let records: Vec<Record> = nodes.chunks(ITEMS_MAX).map(|some| Record::Nodes(some.to_vec())).collect();
        if records.is_empty() { Ok(()) } else { self.journal.append(&records) }
    }
}

impl Drop for Remembered {
    /// What cannot be kept is read again.
    fn drop(&mut self) {
        let _ = self.append();
    }
}

impl Source {
    /// Keeps hashes of what is read below `directory`, the sender's own (made if it is not there, and not among what is sent), so that a
    /// sender that is started again reads for its [`digest`](Self::digest)s only what it did not read before. Takes up what an earlier one
    /// kept for `id` if every file is still as it was then (device, inode, size, times of modification and of status).
    ///
    /// Each 256 MiB are made durable, and the rest when this is dropped. Where that fails nothing more is kept: it costs a second reading.
    /// To be [forgotten](Self::forget) when the transfer is done, or when the receiver says that a digest is wrong.
    /// Errors: what the system refuses; [`FileError::Busy`] if another sender keeps them; [`FileError::Foreign`]. The source is as before then.
    pub fn remember(&mut self, directory: &Path, id: TransferId) -> Result<(), FileError> {
        self.remember_older(directory, id, FRESH_S)
    }

    /// Removes what was [remembered](Self::remember).
    pub fn forget(&mut self) -> Result<(), FileError> {
        let Some(mut remembered) = self.remembered.take() else { return Ok(()) };
        remembered.nodes.clear();
        let io = |error| FileError::io(&remembered.shown, "removed", error);
        for name in [journal::NEXT_NAME, journal::NAME] {
            match unlinkat(&remembered.directory, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(io(error)),
            }
        }
        unlinkat(&remembered.root, &remembered.name, AtFlags::REMOVEDIR).map_err(io)
    }

    /// [`remember`](Self::remember), where a file is fresh for `fresh_s` seconds.
    pub(in super::super) fn remember_older(
        &mut self,
        directory: &Path,
        id: TransferId,
        fresh_s: i64,
    ) -> Result<(), FileError> {
        self.remembered = None;
        let (name, shown) = (id.directory(), directory.join(id.directory()));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| FileError::io(directory, "made", error))?;
        let io = |what| {
            let shown = shown.clone();
            move |error: Errno| FileError::io(shown, what, error)
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, directory, flags, Mode::empty()).map_err(io("opened"))?;
        match mkdirat(&root, &name, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(io("made")(error)),
        }
        let own = match openat(&root, &name, flags | OFlags::NOFOLLOW, Mode::empty()) {
            Err(error) if system::is_no_directory(error) => return Err(FileError::Foreign(shown)),
            other => other.map_err(io("opened"))?,
        };
        let stat = fstat(&own).map_err(io("opened"))?;
        if stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
            return Err(FileError::Foreign(shown));
        }
        match flock(&own, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(FileError::Busy(shown)),
            other => other.map_err(io("locked"))?,
        }
        // Who had the lock may have forgotten it meanwhile.
        if system::is_gone(&own, &root, &name).map_err(io("opened"))? {
            return Err(FileError::Busy(shown));
        }
        // What time it is to the file system: this module has no clock.
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        futimens(&own, &Timestamps { last_access: now, last_modification: now }).map_err(io("written"))?;
        let now = State::of(&fstat(&own).map_err(io("read"))?).changed.0;

        let (tie, bytes) = (self.tie(), self.manifest.bytes());
        let open = || Journal::open(own.as_fd(), &shown, id, &tie, bytes);
        let (journal, kept) = match open() {
            // Of files that changed since; it does not go on.
            Err(FileError::Journal(_)) => {
                unlinkat(&own, journal::NAME, AtFlags::empty()).map_err(io("removed"))?;
                open()?
            }
            other => other?,
        };
        let places = self.places.iter().enumerate();
        let fresh = places.filter(|(_, place)| now - fresh_s < place.state.changed.0).map(|(entry, _)| entry);
        let mut excluded: HashSet<usize> = fresh.collect();
        excluded
            .extend(self.places.iter().enumerate().filter(|(_, at)| 0 < at.touches).map(|(entry, _)| entry));
        for node in kept.nodes {
            let Ok(entry) = usize::try_from(node.entry) else { continue };
            let is_file = matches!(self.manifest.entries().get(entry), Some(found) if 0 < found.stored());
            if is_file && !excluded.contains(&entry) {
                self.tree(entry).insert(node.level, node.index, node.value);
            }
        }
        self.remembered =
            Some(Remembered { root, name, shown, directory: own, journal, nodes: vec![], excluded });
        Ok(())
    }

    /// From time to time: appends what is new, and writes all anew where that has grown long.
    pub(super) fn keep(&mut self) {
        let Some(remembered) = self.remembered.as_mut().filter(|some| ITEMS_MAX <= some.nodes.len()) else {
            return;
        };
        let mut kept = remembered.append();
        if kept.is_ok() && remembered.journal.is_long() {
            let trees = self.trees.iter().filter(|(entry, _)| !remembered.excluded.contains(entry));
            let nodes = trees.flat_map(|(entry, tree)| {
                tree.nodes().map(|(level, index, value)| Node {
                    entry: *entry as u64,
                    level,
                    index,
                    value: *value,
                })
            });
            let all = Kept { nodes: nodes.collect(), ..Kept::default() };
            kept = remembered.journal.replace(&all);
        }
        if kept.is_err() {
            self.remembered = None;
        }
    }

    /// What hashes are of: the manifest, and which files there were.
    fn tie(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"barograph sender's hashes 1").update(&self.manifest.digest());
        for (place, entry) in self.places.iter().zip(self.manifest.entries()) {
            if matches!(entry.kind, Kind::File { .. }) {
                let State { device, inode, size, modified, changed } = place.state;
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
