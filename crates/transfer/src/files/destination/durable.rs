//! Makes written data durable.

use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use super::super::JournalRecord;
use super::super::journal_state::ITEMS_MAX;
use super::super::system::{self, SYNCED_ALONE_MAX};
use super::{Destination, FileError, partial_name};

/// Number of written bytes of a file after which its write-back starts, so that a sync has little
/// to wait for. The number is large enough for the queue of any disk. The number is small compared
/// with the bytes between two syncs.
const BEGUN_BYTES: u64 = 16 << 20;

impl Destination {
    /// Makes written data durable, and then records it in the journal. The time between calls
    /// decides how much is sent again after a crash.
    /// Errors: of the system. If the data could not be synced, nothing more is accepted, because it
    /// is unknown what was lost: open the destination again.
    pub fn sync(&mut self) -> Result<(), FileError> {
        self.check_failed()?;
        if self.fresh.is_empty() && self.nodes.is_empty() && self.dirty.is_empty() {
            return Ok(());
        }
        let synced = self.sync_data();
        self.is_failed = synced.is_err();
        synced?;
        let mut records: Vec<JournalRecord> =
            self.fresh.chunks(ITEMS_MAX).map(|some| JournalRecord::Held(some.to_vec())).collect();
        // Append the nodes after the ranges. Then a torn journal contains no node without the
        // node's ranges.
        records.extend(self.nodes.chunks(ITEMS_MAX).map(|some| JournalRecord::Nodes(some.to_vec())));
        self.journal.append(&records)?;
        self.fresh.clear();
        self.nodes.clear();
        if self.journal.is_long() {
            self.journal.replace(&self.journal_state())?;
        }
        Ok(())
    }

    /// Makes all written files, and the names in the partial directory, durable.
    fn sync_data(&mut self) -> Result<(), FileError> {
        let io = |error| FileError::io(&self.path, "made durable", error);
        if self.dirty.len() > SYNCED_ALONE_MAX {
            system::sync_all(&self.partial).map_err(io)?;
        } else {
            // Start write-back of all files before the first wait, so that they share a commit of
            // the file system's journal. Write-back of large files started while they were written.
            for entry in self.dirty.iter().filter(|_| self.dirty.len() > 1) {
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

    /// Calls `sync` with a file that was written. If the file was closed meanwhile, opens it again.
    fn with_dirty(
        &self,
        entry: usize,
        sync: impl FnOnce(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Result<(), FileError> {
        let synced = match self.open.peek(&entry) {
            Some(file) => sync(file.as_fd()),
            // Linux reports an unreported write error to the process that opens the file next
            // (errseq_t).
            None => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                openat(&self.partial, partial_name(entry), flags, Mode::empty())
                    .and_then(|file| sync(file.as_fd()))
            }
        };
        synced.map_err(|error| FileError::io(self.shown(entry), "made durable", error))
    }

    /// Starts write-back of a large file once enough of it was written. `at` is the range of the
    /// file that the last write covered.
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
