//! Append-only journal of durable byte ranges; lets an interrupted transfer resume.

use std::fs::File;
use std::io::Read;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, openat, renameat};
use rustix::io::Errno;

use super::journal_state::Check;
use super::{FileError, JournalRecord, JournalState, TransferId, system};

/// File name of the journal, beside the partial files.
pub(super) const NAME: &str = "journal";

/// File name of a rewritten journal until the rewrite is complete.
pub(super) const NEXT_NAME: &str = "journal.new";

/// Minimum growth in bytes before the journal is rewritten. A rewrite is due when the length of the
/// journal exceeds twice its length after the last rewrite, plus this number. So rewrites are rare
/// and write few bytes in total.
const GROWTH_BYTES: u64 = 1 << 20;

/// Maximum number of bytes that are read from a journal. With a million files and 2^17 ranges a
/// journal has 50 MB after a rewrite, and 100 MB before the next rewrite.
const BYTES_MAX: u64 = 1 << 30;

/// An append-only file that records which ranges of the object are durable.
///
/// [`append`](Self::append) returns when its records are on the disk. The data that the records
/// describe must be durable before the call. After a crash only whole records are read. The whole
/// records include all records of calls that returned, and possibly some records of the interrupted
/// call.
#[derive(Debug)]
pub struct Journal {
    file: File,
    directory: OwnedFd,
    shown: PathBuf,
    head: Vec<u8>,
    last: Check,
    bytes: u64,
    bytes_compact: u64,
}

impl Journal {
    /// Opens the journal in `directory`, or creates an empty journal. Returns the journal and its
    /// contents. `shown` is the path of `directory` in messages. Errors: of the system;
    /// [`FileError::Journal`] if the journal is of another transfer or of other files.
    pub fn open(
        directory: BorrowedFd<'_>,
        shown: &Path,
        id: TransferId,
        manifest: &[u8; 32],
        object_bytes: u64,
    ) -> Result<(Self, JournalState), FileError> {
        let shown = shown.join(NAME);
        let directory =
            directory.try_clone_to_owned().map_err(|error| FileError::io(&shown, "opened", error))?;
        let head = JournalState::head(id, manifest);
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(&directory, NAME, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => {
                let (file, last, bytes) = begin(&directory, &shown, &head, &[])?;
                return Ok((
                    Self { file, directory, shown, head, last, bytes, bytes_compact: bytes },
                    JournalState::default(),
                ));
            }
            Err(error) => return Err(FileError::io(shown, "opened", error)),
        };
        let mut bytes = vec![];
        (&file)
            .take(BYTES_MAX)
            .read_to_end(&mut bytes)
            .map_err(|error| FileError::io(&shown, "read", error))?;
        let Some((kept, length, last)) = JournalState::read(&bytes, id, manifest, object_bytes) else {
            return Err(FileError::Journal(shown));
        };
        let bytes = length as u64;
        let bytes_compact = head.len() as u64;
        Ok((Self { file, directory, shown, head, last, bytes, bytes_compact }, kept))
    }

    /// Appends `records`, and returns when the records are on the disk. Errors: of the system.
    /// After an error nothing is recorded, and the call may be retried.
    pub fn append(&mut self, records: &[JournalRecord]) -> Result<(), FileError> {
        let (mut out, mut last) = (vec![], self.last);
        for record in records {
            last = record.put(&mut out, &last);
        }
        // Remove the bytes of an incomplete write.
        self.file.set_len(self.bytes).map_err(|error| FileError::io(&self.shown, "written", error))?;
        self.file
            .write_all_at(&out, self.bytes)
            .map_err(|error| FileError::io(&self.shown, "written", error))?;
        self.file.sync_data().map_err(|error| FileError::io(&self.shown, "written", error))?;
        self.bytes += out.len() as u64;
        self.last = last;
        Ok(())
    }

    /// Whether the journal has grown so much that it should be [`replace`](Self::replace)d.
    pub fn is_long(&self) -> bool {
        2 * self.bytes_compact + GROWTH_BYTES < self.bytes
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Rewrites the journal with the contents of `kept`, atomically. Errors: of the system. After
    /// an error the journal is unchanged, unless only the sync of the directory failed.
    pub fn replace(&mut self, kept: &JournalState) -> Result<(), FileError> {
        let (file, last, bytes) = begin(&self.directory, &self.shown, &self.head, &kept.records())?;
        (self.file, self.last, self.bytes, self.bytes_compact) = (file, last, bytes, bytes);
        Ok(())
    }
}

/// Writes a new journal to a separate file, and then renames this file to replace the existing
/// journal.
fn begin(
    directory: &OwnedFd,
    shown: &Path,
    head: &[u8],
    records: &[JournalRecord],
) -> Result<(File, Check, u64), FileError> {
    let io = |error: std::io::Error| FileError::io(shown, "written", error);
    let mut out = head.to_vec();
    let mut last: Check = head.last_chunk().copied().unwrap_or_default();
    for record in records {
        last = record.put(&mut out, &last);
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    let file = File::from(openat(directory, NEXT_NAME, flags, mode).map_err(|error| io(error.into()))?);
    file.write_all_at(&out, 0).map_err(io)?;
    file.sync_all().map_err(io)?;
    renameat(directory, NEXT_NAME, directory, NAME).map_err(|error| io(error.into()))?;
    system::sync(directory).map_err(|error| io(error.into()))?;
    Ok((file, last, out.len() as u64))
}
