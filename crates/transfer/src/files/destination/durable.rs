//! What was written is made to outlast a crash.

use rustix::fs::{Mode, OFlags, fdatasync, fsync, openat, syncfs};

use super::super::Record;
use super::super::kept::ITEMS_MAX;
use super::{Destination, FileError, partial_name};

/// Files that are synced one by one; more are synced with all else on their file system (syncfs(2)).
pub(in super::super) const SYNCED_ALONE_MAX: usize = 32;

impl Destination {
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
            syncfs(&self.partial).map_err(io)?;
        } else {
            for entry in &self.dirty {
                let synced = match self.open.peek(entry) {
                    Some(file) => fdatasync(file),
                    // An error of writing that nobody was told of is told to who opens it next (errseq_t in Linux).
                    None => {
                        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                        openat(&self.partial, partial_name(*entry), flags, Mode::empty()).and_then(fdatasync)
                    }
                };
                synced.map_err(|error| FileError::io(self.shown(*entry), "made durable", error))?;
            }
            if self.is_named {
                fsync(&self.partial).map_err(io)?;
            }
        }
        self.dirty.clear();
        self.is_named = false;
        Ok(())
    }
}
