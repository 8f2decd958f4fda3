//! What is on the disk, on the disk.

use std::fs::File;
use std::io::Read;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, openat, renameat};
use rustix::io::Errno;

use super::kept::Check;
use super::{FileError, Kept, Record, TransferId, system};

/// Its name beside the partial files.
pub(super) const NAME: &str = "journal";

/// Its next version, until it is whole.
pub(super) const NEXT_NAME: &str = "journal.new";

/// It is written anew when it is twice what it was then, and this (bytes): rarely, and for a small part of what is written anyway.
const GROWTH_BYTES: u64 = 1 << 20;

/// Longer is no journal of ours: of a million files and 2^17 ranges it is 50 MB when it is written anew, and twice that before.
const BYTES_MAX: u64 = 1 << 30;

/// An append-only file that says which ranges of the object are durable.
///
/// [`append`](Self::append) returns when what it says is on the disk; what it says must be there before. After a crash at any moment it
/// says what whole records say: a part of what was durable, and all of it up to the last call that returned.
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
    /// Opens the journal in `directory` (`shown` in messages), or begins one; and what it says.
    /// Errors: what the system refuses; [`FileError::Journal`] if it is of another transfer or of other files.
    pub fn open(
        directory: BorrowedFd<'_>,
        shown: &Path,
        id: TransferId,
        manifest: &[u8; 32],
        object_bytes: u64,
    ) -> Result<(Self, Kept), FileError> {
        let shown = shown.join(NAME);
        let directory =
            directory.try_clone_to_owned().map_err(|error| FileError::io(&shown, "opened", error))?;
        let head = Kept::head(id, manifest);
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(&directory, NAME, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => {
                let (file, last, bytes) = begin(&directory, &shown, &head, &[])?;
                return Ok((
                    Self { file, directory, shown, head, last, bytes, bytes_compact: bytes },
                    Kept::default(),
                ));
            }
            Err(error) => return Err(FileError::io(shown, "opened", error)),
        };
        let mut bytes = vec![];
        (&file)
            .take(BYTES_MAX)
            .read_to_end(&mut bytes)
            .map_err(|error| FileError::io(&shown, "read", error))?;
        let Some((kept, length, last)) = Kept::read(&bytes, id, manifest, object_bytes) else {
            return Err(FileError::Journal(shown));
        };
        let bytes = length as u64;
        let bytes_compact = head.len() as u64;
        Ok((Self { file, directory, shown, head, last, bytes, bytes_compact }, kept))
    }

    /// Adds `records`; they are on the disk when it returns.
    /// Errors: what the system refuses; nothing is said then, and it may be tried again.
    pub fn append(&mut self, records: &[Record]) -> Result<(), FileError> {
        let (mut out, mut last) = (vec![], self.last);
        for record in records {
            last = record.put(&mut out, &last);
        }
        // What a torn or failed write left goes.
        self.file.set_len(self.bytes).map_err(|error| FileError::io(&self.shown, "written", error))?;
        self.file
            .write_all_at(&out, self.bytes)
            .map_err(|error| FileError::io(&self.shown, "written", error))?;
        self.file.sync_data().map_err(|error| FileError::io(&self.shown, "written", error))?;
        self.bytes += out.len() as u64;
        self.last = last;
        Ok(())
    }

    /// Whether it has grown so that it should be [`replace`](Self::replace)d.
    pub fn is_long(&self) -> bool {
        2 * self.bytes_compact + GROWTH_BYTES < self.bytes
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes it anew, as `kept` has it; whole or not at all.
    /// Errors: what the system refuses; the journal is as before then.
    pub fn replace(&mut self, kept: &Kept) -> Result<(), FileError> {
        let (file, last, bytes) = begin(&self.directory, &self.shown, &self.head, &kept.records())?;
        (self.file, self.last, self.bytes, self.bytes_compact) = (file, last, bytes, bytes);
        Ok(())
    }
}

/// Writes a journal beside the one that is there, and puts it in its place.
fn begin(
    directory: &OwnedFd,
    shown: &Path,
    head: &[u8],
    records: &[Record],
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
