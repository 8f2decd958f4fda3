//! The manifest of a transfer: entries, and the object that their bytes form.

mod codec;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

use rangemap::RangeSet;
use thiserror::Error;

use super::path::{PathError, check_path, shown};
use crate::proto::wire::{NUMBER_MAX, WireError};

/// Maximum number of entries in a manifest. A receiver needs about 150 bytes for each entry in
/// addition to the path: 150 MiB for the maximum number. For a larger tree, send an archive of the
/// tree.
pub(super) const ENTRIES_MAX: usize = 1 << 20;

/// Maximum number of data extents in all sparse files together. Each extent takes 24 bytes of
/// memory. If the extents of one more file would exceed this number, the holes of that file are
/// sent as zeros.
pub(super) const EXTENTS_MAX: usize = 1 << 20;

/// Maximum size of an encoded manifest, in bytes: 128 for each of [`ENTRIES_MAX`] entries.
pub(super) const ENCODED_BYTES_MAX: usize = 1 << 27;

/// Time of last modification (POSIX.1-2017 §4.16): seconds and nanoseconds after the start of 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modified {
    /// Seconds since the start of 1970, negative for earlier times.
    pub seconds: i64,
    /// Nanoseconds after `seconds`, below 10^9.
    pub nanos: u32,
}

/// Whether an entry is a file, a directory or a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    File {
        /// Length of the file in bytes, including its holes.
        size: u64,
        /// Ranges of data, if the file has holes: in ascending order, within `size`, none of them
        /// empty, and with a hole between any two.
        extents: Option<Vec<Range<u64>>>,
    },
    /// A directory. Directories that only lead to other entries need no entry.
    Directory,
    Link {
        target: Vec<u8>,
    },
}

/// A file, directory or link of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestEntry {
    /// Path below the destination: bytes in any encoding, `/` between components.
    pub path: Vec<u8>,
    pub kind: EntryKind,
    /// Permissions of owner, group and others (`0o777` at most; 0 for links). Set-user-ID,
    /// set-group-ID and sticky bits are not sent, because they would grant rights on another host.
    pub mode: u16,
    /// Time of last modification.
    pub modified: Modified,
}

impl ManifestEntry {
    /// Number of bytes of the object that belong to this entry.
    pub fn stored(&self) -> u64 {
        match &self.kind {
            EntryKind::File { size, extents: None } => *size,
            EntryKind::File { extents: Some(extents), .. } => {
                extents.iter().map(|data| data.end - data.start).sum()
            }
            _ => 0,
        }
    }

    /// Path of the entry, for messages.
    pub fn shown(&self) -> PathBuf {
        shown(&self.path)
    }
}

/// Why entries or bytes are not a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum ManifestError {
    /// The bytes end too early, or contain an impossible number.
    #[error("the manifest is damaged: {0}")]
    Wire(#[from] WireError),
    /// The bytes do not begin like a manifest of this version.
    #[error("this is not a manifest of version 1: use the same version at both ends")]
    Version,
    /// Bytes follow the end of the manifest.
    #[error("the manifest has {0} bytes after its end")]
    Trailing(usize),
    #[error(transparent)]
    Path(#[from] PathError),
    /// Two entries have the same path, or entries are not in order.
    #[error("{0:?} occurs twice, or is out of order: name each path once")]
    Order(PathBuf),
    /// An entry is below an entry that is not a directory.
    #[error("{0:?} is below something that is not a directory")]
    Below(PathBuf),
    /// A field has an invalid value.
    #[error("{0:?} has {1}")]
    Field(PathBuf, &'static str),
    #[error("{0} {1}, but at most {2} are possible: send less at once, or pack the files into an archive")]
    TooMany(u64, &'static str, u64),
}

/// A part of the object within one extent of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the entry that the piece belongs to.
    pub entry: usize,
    /// Range of the piece in the object.
    pub object: Range<u64>,
    /// Offset of the piece in the file.
    pub at: u64,
}

/// Entries that are sent. The object is the data of all files without holes, one file after the
/// other in the order of the entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    entries: Vec<ManifestEntry>,
    /// Offset of each entry's bytes in the object.
    starts: Vec<u64>,
    /// For each sparse file, the offset of each extent in the file's bytes without holes.
    sparse: HashMap<usize, Vec<u64>>,
    bytes: u64,
}

impl Manifest {
    /// Creates a manifest of `entries`, in any order.
    /// Errors: an entry is not valid; a limit is exceeded.
    pub fn new(mut entries: Vec<ManifestEntry>) -> Result<Self, ManifestError> {
        entries.sort_by(|a, b| by_component(&a.path, &b.path));
        Self::ordered(entries)
    }

    /// Creates a manifest of entries that are in order already. Paths are compared component by
    /// component, so the contents of a directory follow the directory.
    fn ordered(entries: Vec<ManifestEntry>) -> Result<Self, ManifestError> {
        if entries.len() > ENTRIES_MAX {
            return Err(ManifestError::TooMany(entries.len() as u64, "entries", ENTRIES_MAX as u64));
        }
        let (mut starts, mut sparse) = (Vec::with_capacity(entries.len()), HashMap::new());
        let (mut bytes, mut extents_all, mut encoded) = (0u64, 0, codec::head_len(entries.len()));
        let (mut before, mut leaf): (Option<&ManifestEntry>, Option<&ManifestEntry>) = (None, None);
        for (index, entry) in entries.iter().enumerate() {
            check_path(&entry.path)?;
            check_fields(entry)?;
            if before.is_some_and(|before| by_component(&before.path, &entry.path) != Ordering::Less) {
                return Err(ManifestError::Order(entry.shown()));
            }
            if leaf.is_some_and(|leaf| is_below(&entry.path, &leaf.path)) {
                return Err(ManifestError::Below(entry.shown()));
            }
            if entry.kind != EntryKind::Directory {
                leaf = Some(entry);
            }
            starts.push(bytes);
            if let EntryKind::File { extents: Some(extents), .. } = &entry.kind {
                extents_all += extents.len();
                let begins = extents.iter().scan(0, |end, data| {
                    let begin = *end;
                    *end += data.end - data.start;
                    Some(begin)
                });
                sparse.insert(index, begins.collect());
            }
            // No overflow: both numbers are below 2^62.
            bytes += entry.stored();
            if bytes > NUMBER_MAX {
                return Err(ManifestError::TooMany(bytes, "bytes", NUMBER_MAX));
            }
            if extents_all > EXTENTS_MAX {
                return Err(ManifestError::TooMany(extents_all as u64, "extents", EXTENTS_MAX as u64));
            }
            encoded += codec::entry_len(entry);
            before = Some(entry);
        }
        if encoded > ENCODED_BYTES_MAX {
            return Err(ManifestError::TooMany(
                encoded as u64,
                "bytes of a manifest",
                ENCODED_BYTES_MAX as u64,
            ));
        }
        Ok(Self { entries, starts, sparse, bytes })
    }

    /// The entries, in order.
    pub fn entries(&self) -> &[ManifestEntry] {
        &self.entries
    }

    /// The regular files, with their indices in [`entries`](Self::entries).
    pub fn files(&self) -> impl Iterator<Item = (usize, &ManifestEntry)> {
        self.entries.iter().enumerate().filter(|(_, entry)| matches!(entry.kind, EntryKind::File { .. }))
    }

    /// Length of the object, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Range of an entry's bytes in the object; empty if there is no such entry.
    pub fn range(&self, entry: usize) -> Range<u64> {
        let start = |entry| self.starts.get(entry).copied().unwrap_or(self.bytes);
        start(entry)..start(entry.saturating_add(1))
    }

    /// Splits a range of the object by files and extents, in order. Bytes beyond the object are
    /// ignored.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Piece> {
        let end = range.end.min(self.bytes);
        let mut at = range.start;
        std::iter::from_fn(move || {
            if end <= at {
                return None;
            }
            let piece = self.piece(at..end)?;
            at = piece.object.end;
            Some(piece)
        })
    }

    /// The first piece of a range that is within the object.
    fn piece(&self, range: Range<u64>) -> Option<Piece> {
        // If several entries begin at the same offset, use the last of them: all others are empty.
        let entry = self.starts.partition_point(|start| *start <= range.start).checked_sub(1)?;
        let of = self.range(entry);
        let within = range.start - of.start;
        let (at, end) = match (&self.entries.get(entry)?.kind, self.sparse.get(&entry)) {
            (EntryKind::File { extents: Some(extents), .. }, Some(begins)) => {
                let index = begins.partition_point(|begin| *begin <= within).checked_sub(1)?;
                let (data, begin) = (extents.get(index)?, begins.get(index)?);
                (data.start + (within - begin), of.start + begin + (data.end - data.start))
            }
            _ => (within, of.end),
        };
        Some(Piece { entry, object: range.start..end.min(range.end), at })
    }

    /// BLAKE3 of the encoded manifest.
    pub fn digest(&self) -> [u8; 32] {
        *blake3::hash(&self.encode()).as_bytes()
    }

    /// `held` without ranges beyond the object.
    pub(super) fn within(&self, mut held: RangeSet<u64>) -> RangeSet<u64> {
        held.remove(self.bytes..u64::MAX);
        held
    }
}

fn check_fields(entry: &ManifestEntry) -> Result<(), ManifestError> {
    let wrong = |what| Err(ManifestError::Field(entry.shown(), what));
    if 0o777 < entry.mode || matches!(entry.kind, EntryKind::Link { .. }) && entry.mode != 0 {
        return wrong("permissions beyond those of owner, group and others");
    }
    if entry.modified.nanos >= 1_000_000_000 {
        return wrong("a second of more than 10^9 nanoseconds");
    }
    match &entry.kind {
        EntryKind::File { size, .. } if *size > NUMBER_MAX => wrong("more bytes than a file can have"),
        EntryKind::File { size, extents: Some(extents) } => {
            let mut end = None;
            for data in extents {
                if data.end <= data.start || *size < data.end || end.is_some_and(|end| data.start <= end) {
                    return wrong("extents that are empty, touch, or are beyond its end");
                }
                end = Some(data.end);
            }
            let is_whole = *size == 0 || extents.first().is_some_and(|data| *data == (0..*size));
            if is_whole { wrong("extents without a hole") } else { Ok(()) }
        }
        EntryKind::Link { target } if target.is_empty() || target.len() > super::path::PATH_BYTES_MAX => {
            wrong("a target that is empty or too long")
        }
        EntryKind::Link { target } if target.contains(&0) => wrong("a target that contains a NUL"),
        _ => Ok(()),
    }
}

/// Compares two paths component by component: `a/b` is after `a` and before `a b`, although the
/// byte `/` is greater than a space.
fn by_component(a: &[u8], b: &[u8]) -> Ordering {
    let rank = |byte: &u8| if *byte == b'/' { 0 } else { u16::from(*byte) + 1 };
    a.iter().map(rank).cmp(b.iter().map(rank))
}

fn is_below(path: &[u8], above: &[u8]) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.first() == Some(&b'/'))
}
