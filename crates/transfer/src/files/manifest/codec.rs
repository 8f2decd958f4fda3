//! Encoding of a manifest (`docs/spec/transfer.md`). Each manifest has exactly one valid encoding,
//! and the size of the encoding is limited. The work of decoding is proportional to the number of
//! bytes.

use super::super::path::{PATH_BYTES_MAX, shown};
use super::{
    ENCODED_BYTES_MAX, ENTRIES_MAX, EXTENTS_MAX, EntryKind, Manifest, ManifestEntry, ManifestError, Modified,
};
use crate::proto::wire::{WireError, varint};

/// First bytes of a manifest; the last of them is the version.
const MAGIC: [u8; 4] = *b"BGM\x01";

/// The encoded bytes before the first entry, for a manifest of `entries` entries.
pub(super) fn head_len(entries: usize) -> usize {
    MAGIC.len() + varint::len(entries as u64)
}

const FILE: u8 = 0;
const SPARSE: u8 = 1;
const DIRECTORY: u8 = 2;
const LINK: u8 = 3;

/// Maximum size of the magic bytes and the number of entries together, in bytes.
const HEAD_BYTES_MAX: usize = MAGIC.len() + 8;

/// Maximum size of an entry without its extents, in bytes: kind, path, mode, time and a link's
/// target. Instead of a target, a file has its size and its number of extents, and these are
/// shorter than the longest target.
const ENTRY_BYTES_MAX: usize = 1 + 2 * (2 + PATH_BYTES_MAX) + 2 + 8 + 4;

/// Maximum size of an extent, in bytes: the length of the hole before it and its own length, 62
/// bits each.
const EXTENT_BYTES_MAX: usize = 16;

/// Minimum size of an entry, in bytes: kind, length of the path, one byte of the path, mode and
/// time.
const ENTRY_BYTES_MIN: usize = 1 + 2 + 1 + 9;

impl Manifest {
    /// Maximum size of a manifest with `entries` entries, in bytes.
    pub fn encoded_bytes_max(entries: u64) -> u64 {
        let extents = (EXTENTS_MAX * EXTENT_BYTES_MAX) as u64;
        let of_entries = entries.saturating_mul(ENTRY_BYTES_MAX as u64);
        of_entries.saturating_add(extents + HEAD_BYTES_MAX as u64).min(ENCODED_BYTES_MAX as u64)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        varint::put(&mut out, self.entries.len() as u64);
        for entry in &self.entries {
            put_entry(&mut out, entry);
        }
        out
    }

    /// Decodes what [`encode`](Self::encode) wrote, and refuses any other encoding of the same
    /// manifest.
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.len() > ENCODED_BYTES_MAX {
            let (asked, allowed) = (bytes.len() as u64, ENCODED_BYTES_MAX as u64);
            return Err(ManifestError::TooMany(asked, "bytes of a manifest", allowed));
        }
        let mut rest = bytes.strip_prefix(&MAGIC).ok_or(ManifestError::Version)?;
        let count = varint::take(&mut rest, "the number of entries")?;
        if ENTRIES_MAX as u64 <= count.saturating_sub(1) {
            return Err(ManifestError::TooMany(count, "entries", ENTRIES_MAX as u64));
        }
        // Reserve memory for the entries that the bytes can contain, not for the number that they
        // claim.
        let mut entries = Vec::with_capacity((count as usize).min(rest.len() / ENTRY_BYTES_MIN + 1));
        let mut extents_all = 0;
        for _ in 0..count {
            entries.push(take_entry(&mut rest, &mut extents_all)?);
        }
        if !rest.is_empty() {
            return Err(ManifestError::Trailing(rest.len()));
        }
        Self::ordered(entries)
    }
}

/// Number of bytes of an encoded entry.
pub(super) fn entry_len(entry: &ManifestEntry) -> usize {
    let text = |bytes: &[u8]| varint::len(bytes.len() as u64) + bytes.len();
    let head = 1 + text(&entry.path) + varint::len(u64::from(entry.mode)) + 8;
    head + varint::len(u64::from(entry.modified.nanos))
        + match &entry.kind {
            EntryKind::File { size, extents: None } => varint::len(*size),
            EntryKind::File { size, extents: Some(extents) } => {
                let mut end = 0;
                let each = extents.iter().map(|data| {
                    let gap = data.start - std::mem::replace(&mut end, data.end);
                    varint::len(gap) + varint::len(data.end - data.start)
                });
                varint::len(*size) + varint::len(extents.len() as u64) + each.sum::<usize>()
            }
            EntryKind::Directory => 0,
            EntryKind::Link { target } => text(target),
        }
}

fn put_entry(out: &mut Vec<u8>, entry: &ManifestEntry) {
    out.push(match &entry.kind {
        EntryKind::File { extents: None, .. } => FILE,
        EntryKind::File { extents: Some(_), .. } => SPARSE,
        EntryKind::Directory => DIRECTORY,
        EntryKind::Link { .. } => LINK,
    });
    put_text(out, &entry.path);
    varint::put(out, u64::from(entry.mode));
    out.extend(entry.modified.seconds.to_be_bytes());
    varint::put(out, u64::from(entry.modified.nanos));
    match &entry.kind {
        EntryKind::File { size, extents } => {
            varint::put(out, *size);
            if let Some(extents) = extents {
                varint::put(out, extents.len() as u64);
                let mut end = 0;
                for data in extents {
                    varint::put(out, data.start - end);
                    varint::put(out, data.end - data.start);
                    end = data.end;
                }
            }
        }
        EntryKind::Directory => {}
        EntryKind::Link { target } => put_text(out, target),
    }
}

/// Reads an entry. `extents_all` counts the extents of all entries so far. This count is checked
/// before memory for the extents is allocated.
fn take_entry(rest: &mut &[u8], extents_all: &mut u64) -> Result<ManifestEntry, ManifestError> {
    let (kind, after) = rest.split_first().ok_or(WireError::Truncated("an entry"))?;
    *rest = after;
    let path = take_text(rest, "a path")?;
    let mode = varint::take(rest, "permissions")?;
    let mode = u16::try_from(mode).map_err(|_| WireError::TooLarge("permissions", mode))?;
    let (seconds, after) = rest.split_first_chunk().ok_or(WireError::Truncated("a time"))?;
    *rest = after;
    let modified =
        Modified { seconds: i64::from_be_bytes(*seconds), nanos: varint::take_u32(rest, "nanoseconds")? };
    let kind = match *kind {
        FILE => EntryKind::File { size: varint::take(rest, "a size")?, extents: None },
        SPARSE => {
            let size = varint::take(rest, "a size")?;
            let count = varint::take(rest, "the number of extents")?;
            *extents_all += count;
            if *extents_all > EXTENTS_MAX as u64 {
                return Err(ManifestError::TooMany(*extents_all, "extents", EXTENTS_MAX as u64));
            }
            // An extent takes at least two bytes.
            let mut extents = Vec::with_capacity((count as usize).min(rest.len() / 2));
            let mut end: u64 = 0;
            for _ in 0..count {
                // Numbers have 62 bits: the sums cannot overflow while `end` is within the size.
                let start = end + varint::take(rest, "an extent")?;
                end = start + varint::take(rest, "an extent")?;
                if size < end {
                    return Err(WireError::TooLarge("the end of an extent", end).into());
                }
                extents.push(start..end);
            }
            EntryKind::File { size, extents: Some(extents) }
        }
        DIRECTORY => EntryKind::Directory,
        LINK => EntryKind::Link { target: take_text(rest, "a link's target")? },
        _ => return Err(ManifestError::Field(shown(&path), "a kind that is unknown")),
    };
    Ok(ManifestEntry { path, kind, mode, modified })
}

fn put_text(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::put(out, bytes.len() as u64);
    out.extend(bytes);
}

fn take_text(rest: &mut &[u8], what: &'static str) -> Result<Vec<u8>, WireError> {
    let length = varint::take(rest, what)?;
    if PATH_BYTES_MAX as u64 <= length.saturating_sub(1) {
        return Err(WireError::TooLarge(what, length));
    }
    let (text, after) = rest.split_at_checked(length as usize).ok_or(WireError::Truncated(what))?;
    *rest = after;
    Ok(text.to_vec())
}
