//! Contents of a journal, as values and as bytes; pure.

use std::ops::Range;

use rangemap::RangeSet;

use super::TransferId;
use crate::proto::wire::varint;

/// First bytes of a journal; the last of them is the version.
const MAGIC: [u8; 4] = *b"BGJ\x01";

/// Size of a checksum in bytes. A torn record has the right checksum in one of 2^64 cases.
const CHECK_BYTES: usize = 8;

/// Maximum number of ranges or nodes in a record. A record then has at most 50 KB, so that little
/// is lost if a record is torn.
pub(super) const ITEMS_MAX: usize = 1024;

/// Maximum size of a record's body, in bytes. The longest list is the directories to create: a
/// million entries of 4 bytes each.
const BODY_BYTES_MAX: usize = 1 << 23;

const HELD: u8 = 1;
const NODES: u8 = 2;
const RENAMING: u8 = 3;

/// A subtree of a file's BLAKE3 tree (see [`Tree`](super::Tree)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashNode {
    pub entry: u64,
    /// The subtree has 2^`level` groups.
    pub level: u8,
    /// Index among the subtrees of its level.
    pub index: u64,
    pub value: [u8; 32],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalRecord {
    /// Ranges of the object that are durable.
    Held(Vec<Range<u64>>),
    /// Subtrees with bytes that were all durable before this record.
    Nodes(Vec<HashNode>),
    /// Marks that all files are complete and verified, and that they now get their names. The list
    /// has the entries of directories to create.
    Renaming(Vec<u64>),
}

/// The state that a journal records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalState {
    pub held: RangeSet<u64>,
    pub nodes: Vec<HashNode>,
    /// Set when files get their names: the entries of directories to create.
    pub renaming: Option<Vec<u64>>,
}

/// Checksum of a record. The checksum of the next record depends on this one, so old records after
/// the end of a rewritten journal do not match.
pub type Check = [u8; CHECK_BYTES];

impl JournalState {
    /// First bytes of a journal: magic bytes, identifier of the transfer, digest of the manifest,
    /// checksum.
    pub fn head(id: TransferId, manifest: &[u8; 32]) -> Vec<u8> {
        let mut head = [&MAGIC[..], &id.0, manifest].concat();
        head.extend(check(&[0; CHECK_BYTES], &head));
        head
    }

    /// Reads a journal. Returns the contents of the whole records, the number of bytes that these
    /// records take, and the checksum of the last whole record. Reading ends at the first record
    /// that is not whole, because such a record was never reported as durable. `None` if the
    /// journal is of another transfer or of other files.
    ///
    /// No returned range ends beyond `object_bytes`.
    pub fn read(
        bytes: &[u8],
        id: TransferId,
        manifest: &[u8; 32],
        object_bytes: u64,
    ) -> Option<(Self, usize, Check)> {
        let head = Self::head(id, manifest);
        let mut rest = bytes.strip_prefix(&head[..])?;
        let mut last: Check = head.last_chunk().copied().unwrap_or_default();
        let mut kept = Self::default();
        while let Some((record, next, after)) = take_record(rest, &last, object_bytes) {
            (last, rest) = (next, after);
            match record {
                JournalRecord::Held(ranges) => kept.held.extend(ranges),
                JournalRecord::Nodes(nodes) => kept.nodes.extend(nodes),
                JournalRecord::Renaming(made) => kept.renaming = Some(made),
            }
        }
        Some((kept, bytes.len() - rest.len(), last))
    }

    /// The fewest records that have the contents of this state.
    pub fn records(&self) -> Vec<JournalRecord> {
        let ranges: Vec<Range<u64>> = self.held.iter().cloned().collect();
        let mut records: Vec<JournalRecord> =
            ranges.chunks(ITEMS_MAX).map(|some| JournalRecord::Held(some.to_vec())).collect();
        records.extend(self.nodes.chunks(ITEMS_MAX).map(|some| JournalRecord::Nodes(some.to_vec())));
        records.extend(self.renaming.clone().map(JournalRecord::Renaming));
        records
    }
}

impl JournalRecord {
    /// Appends this record after the record with the checksum `last`; returns the checksum of this
    /// record.
    pub fn put(&self, out: &mut Vec<u8>, last: &Check) -> Check {
        let start = out.len();
        out.extend([match self {
            Self::Held(_) => HELD,
            Self::Nodes(_) => NODES,
            Self::Renaming(_) => RENAMING,
        }]);
        let mut body = vec![];
        match self {
            Self::Held(ranges) => {
                for range in ranges {
                    varint::put(&mut body, range.start);
                    varint::put(&mut body, range.end - range.start);
                }
            }
            Self::Nodes(nodes) => {
                for node in nodes {
                    varint::put(&mut body, node.entry);
                    body.push(node.level);
                    varint::put(&mut body, node.index);
                    body.extend(node.value);
                }
            }
            Self::Renaming(made) => made.iter().for_each(|entry| varint::put(&mut body, *entry)),
        }
        out.extend((body.len() as u32).to_be_bytes());
        out.extend(body);
        let check = check(last, out.get(start..).unwrap_or_default());
        out.extend(check);
        check
    }
}

/// Reads the next record; returns the record, its checksum and the bytes after it. `None` if the
/// record is incomplete or not valid.
fn take_record<'a>(
    bytes: &'a [u8],
    last: &Check,
    object_bytes: u64,
) -> Option<(JournalRecord, Check, &'a [u8])> {
    let ([kind, length @ ..], rest) = bytes.split_first_chunk::<5>()?;
    let length = u32::from_be_bytes(*length) as usize;
    if length > BODY_BYTES_MAX {
        return None;
    }
    let (mut body, rest) = rest.split_at_checked(length)?;
    let (told, rest) = rest.split_first_chunk::<CHECK_BYTES>()?;
    if check(last, bytes.get(..5 + length)?) != *told {
        return None;
    }
    let record = match *kind {
        HELD => {
            let mut ranges = vec![];
            while !body.is_empty() {
                let start = varint::take(&mut body, "").ok()?;
                let end = start + varint::take(&mut body, "").ok()?;
                if end <= start || object_bytes < end {
                    return None;
                }
                ranges.push(start..end);
            }
            JournalRecord::Held(ranges)
        }
        NODES => {
            let mut nodes = vec![];
            while !body.is_empty() {
                let entry = varint::take(&mut body, "").ok()?;
                let (level, after) = body.split_first()?;
                body = after;
                let index = varint::take(&mut body, "").ok()?;
                let (value, after) = body.split_first_chunk()?;
                body = after;
                nodes.push(HashNode { entry, level: *level, index, value: *value });
            }
            JournalRecord::Nodes(nodes)
        }
        RENAMING => {
            let mut made = vec![];
            while !body.is_empty() {
                made.push(varint::take(&mut body, "").ok()?);
            }
            JournalRecord::Renaming(made)
        }
        _ => return None,
    };
    Some((record, *told, rest))
}

/// Checksum of a record together with the previous checksum. The checksum detects torn writes and
/// mixed-up files, but does not protect against an attacker with write access to the user's
/// directory.
fn check(last: &Check, record: &[u8]) -> Check {
    let hash = blake3::Hasher::new().update(last).update(record).finalize();
    hash.as_bytes().first_chunk().copied().unwrap_or_default()
}
