//! What was written is made to outlast a crash.

use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use super::super::Record;
use super::super::kept::ITEMS_MAX;
use super::super::system::{self, SYNCED_ALONE_MAX};
use super::{Destination, FileError, partial_name};

/// Of a file (bytes): so much is written to the disk as soon as it came, that there is little to wait for when it is synced. Large enough
/// for any disk's queue, and small beside what is synced at once.
const BEGUN_BYTES: u64 = 16 << 20;

impl Destination {
    /// Makes what was written durable, and then says so in the journal. How often it is called is how much is sent again after a crash.
    /// Errors: what the system refuses. After that nothing is taken any more, as it is not known what was lost: open it again.
    pub fn sync(&mut self) -> Result<(), FileError> {
        self.check_failed()?;
        if self.fresh.is_empty() && self.nodes.is_empty() && self.dirty.is_empty() {
            return Ok(());
        }
        let synced = self.sync_data();
        self.is_failed = synced.is_err();
        synced?;
        let mut records: Vec<Record> =
            self.fresh.chunks(ITEMS_MAX).map(|some| Record::Held(some.to_vec())).collect();
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

    /// Makes all that was written, and the names in the partial directory, durable.
    fn sync_data(&mut self) -> Result<(), FileError> {
        let io = |error| FileError::io(&self.path, "made durable", error);
        if SYNCED_ALONE_MAX < self.dirty.len() {
            system::sync_all(&self.partial).map_err(io)?;
        } else {
            // All are begun before the first is waited for: so they share the file system's journal. Large ones were, as they came.
            for entry in self.dirty.iter().filter(|_| 1 < self.dirty.len()) {
                let of = self.manifest.range(*entry);
                if of.end - of.start < BEGUN_BYTES {
                    self.with_dirty(*entry, |file| begin(file, 0, None))?;
                }
            }
            for entry in &self.dirty {
                self.with_dirty(*entry, |file| system::sync_data(file))?;
            }
            if self.is_named {
                system::sync(&self.partial).map_err(io)?;
            }
        }
        self.dirty.clear();
        self.is_named = false;
        Ok(())
    }

    /// Does something with a file that was written to, whether it is still open or not.
    fn with_dirty(
        &self,
        entry: usize,
        sync: impl FnOnce(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Result<(), FileError> {
        let synced = match self.open.peek(&entry) {
            Some(file) => sync(file.as_fd()),
            // An error of writing that nobody was told of is told to who opens it next (errseq_t in Linux).
            None => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                openat(&self.partial, partial_name(entry), flags, Mode::empty())
                    .and_then(|file| sync(file.as_fd()))
            }
        };
        synced.map_err(|error| FileError::io(self.shown(entry), "made durable", error))
    }

    /// Begins to write to the disk what came of a large file, once it is enough; `piece` is at `at` in it.
    pub(super) fn begin_writing(&mut self, entry: usize, at: Range<u64>) -> Result<(), FileError> {
        let (of, begun) = match self.begun.take() {
            Some((of, begun)) if of == entry => (of, begun.start.min(at.start)..begun.end.max(at.end)),
            _ => (entry, at),
        };
        if begun.end - begun.start < BEGUN_BYTES {
            self.begun = Some((of, begun));
            return Ok(());
        }
        self.with_dirty(entry, |file| begin(file, begun.start, NonZeroU64::new(begun.end - begun.start)))
    }
}

fn begin(file: BorrowedFd<'_>, offset: u64, length: Option<NonZeroU64>) -> Result<(), Errno> {
    system::begin_writing(file, offset, length);
    Ok(())
}
