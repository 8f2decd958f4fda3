//! Received parts of each file, and their BLAKE3 hashes.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;

use rangemap::RangeSet;
use rustix::fs::{AtFlags, FileType, statat};
use rustix::io::Errno;

use super::super::EntryKind;
use super::{Destination, FileError, GROUP_BYTES, HashNode, JournalState, Tree, partial_name};

impl Destination {
    /// BLAKE3 of a file's data (see [`Source::digest`](crate::files::Source::digest)), once all
    /// data of the file were written. Groups without a kept hash are read. Errors: of the system;
    /// [`FileError::Incomplete`].
    pub fn digest(&mut self, entry: usize) -> Result<[u8; 32], FileError> {
        self.digest_unless(entry, &AtomicBool::new(false))
    }

    /// Like [`digest`](Self::digest), but reads `stop` before each group. If `stop` is set, returns
    /// [`FileError::Stopped`].
    pub(in super::super) fn digest_unless(
        &mut self,
        entry: usize,
        stop: &AtomicBool,
    ) -> Result<[u8; 32], FileError> {
        let of = self.manifest.range(entry);
        let tree = self.trees.entry(entry).or_insert_with(|| Tree::new(of.end - of.start));
        if let Some(root) = tree.root() {
            return Ok(root);
        }
        let missing: Vec<u64> = (0..tree.groups()).filter(|group| !tree.contains(*group)).collect();
        for group in missing {
            FileError::check_stop(stop)?;
            self.hash_group(entry, group, None)?;
        }
        let missing = || self.written.gaps(&of).map(|gap| gap.end - gap.start).sum();
        self.trees
            .get(&entry)
            .and_then(Tree::root)
            .ok_or_else(|| FileError::Incomplete { missing: missing() })
    }

    /// Discards a file's data, also in the journal, so that the file is received again.
    pub(in super::super) fn discard_file(&mut self, entry: usize) -> Result<(), FileError> {
        let of = self.manifest.range(entry);
        if of.start < of.end {
            self.written.remove(of.clone());
            self.fresh =
                std::mem::take(&mut self.fresh).into_iter().flat_map(|range| outside(&range, &of)).collect();
        }
        self.trees.remove(&entry);
        self.nodes.retain(|node| node.entry != entry as u64);
        self.journal.replace(&self.journal_state())
    }

    /// The durable state, for the journal.
    pub(super) fn journal_state(&self) -> JournalState {
        let mut held = self.written.clone();
        self.fresh.iter().for_each(|range| held.remove(range.clone()));
        let nodes = self.trees.iter().flat_map(|(entry, tree)| {
            let of = self.manifest.range(*entry);
            let held = &held;
            tree.nodes().filter_map(move |(level, index, value)| {
                let groups = GROUP_BYTES << level;
                let start = of.start + index * groups;
                let end = (start + groups).min(of.end);
                let is_held = start < end && covers(held, &(start..end));
                is_held.then_some(HashNode { entry: *entry as u64, level, index, value: *value })
            })
        });
        JournalState { nodes: nodes.collect(), renaming: self.renaming.clone(), held }
    }

    /// Restores the state that the journal recorded. A file that changed after the journal was
    /// written is received again.
    pub(super) fn restore(&mut self, kept: JournalState) -> Result<(), FileError> {
        self.written = self.manifest.within(kept.held);
        self.renaming = kept.renaming;
        for node in kept.nodes {
            let Ok(entry) = usize::try_from(node.entry) else { continue };
            let of = self.manifest.range(entry);
            if of.start < of.end {
                let tree = self.trees.entry(entry).or_insert_with(|| Tree::new(of.end - of.start));
                tree.insert(node.level, node.index, node.value);
            }
        }
        if let Some(made) = self.renaming.clone() {
            let lost = self.missing_entries(&made)?;
            if lost.is_empty() {
                return Ok(());
            }
            // A file that already had its final name was removed or changed: receive all of the
            // file again.
            self.renaming = None;
            for entry in lost {
                let of = self.manifest.range(entry);
                if of.start < of.end {
                    self.written.remove(of);
                }
                self.trees.remove(&entry);
            }
            return self.journal.replace(&self.journal_state());
        }
        let mut is_less = false;
        for (entry, found) in self.manifest.entries().iter().enumerate() {
            let (EntryKind::File { size, .. }, of) = (&found.kind, self.manifest.range(entry)) else {
                continue;
            };
            if of.is_empty() || !self.written.overlaps(&of) {
                continue;
            }
            let is_there = match statat(&self.partial, partial_name(entry), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => {
                    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
                        && stat.st_size as u64 == *size
                }
                Err(Errno::NOENT) => false,
                Err(error) => return Err(FileError::io(&self.path, "read", error)),
            };
            if !is_there {
                self.written.remove(of);
                self.trees.remove(&entry);
                is_less = true;
            }
        }
        if is_less { self.journal.replace(&self.journal_state()) } else { Ok(()) }
    }

    /// Hashes the groups that became complete when `bytes` was written at `object`.
    pub(super) fn hash(&mut self, entry: usize, object: &Range<u64>, bytes: &[u8]) -> Result<(), FileError> {
        let of = self.manifest.range(entry);
        let (first, last) =
            ((object.start - of.start) / GROUP_BYTES, (object.end - 1 - of.start) / GROUP_BYTES);
        for group in first..=last {
            let start = of.start + group * GROUP_BYTES;
            let whole = start..of.end.min(start + GROUP_BYTES);
            let at_hand = start
                .checked_sub(object.start)
                .and_then(|from| bytes.get(from as usize..(whole.end - object.start) as usize));
            self.hash_group(entry, group, at_hand)?;
        }
        Ok(())
    }

    /// Hashes a group if it is complete and not hashed yet, from the bytes `at_hand` or from the
    /// group's file.
    fn hash_group(&mut self, entry: usize, group: u64, at_hand: Option<&[u8]>) -> Result<(), FileError> {
        let of = self.manifest.range(entry);
        let start = of.start + group * GROUP_BYTES;
        let whole = start..of.end.min(start + GROUP_BYTES);
        let tree = self.trees.entry(entry).or_insert_with(|| Tree::new(of.end - of.start));
        let is_whole = whole.start < whole.end && covers(&self.written, &whole);
        if !is_whole || tree.contains(group) {
            return Ok(());
        }
        let value = match at_hand {
            Some(bytes) => tree.insert_bytes(group, bytes),
            None => {
                let mut bytes = std::mem::take(&mut self.group);
                bytes.resize((whole.end - start) as usize, 0);
                let path = self.shown(entry);
                let pieces: Vec<_> = self.manifest.pieces(whole).collect();
                let file = self.file(entry)?;
                for piece in pieces {
                    let into = (piece.object.start - start) as usize..(piece.object.end - start) as usize;
                    let Some(into) = bytes.get_mut(into) else { continue };
                    file.read_exact_at(into, piece.at)
                        .map_err(|error| FileError::io(&path, "read", error))?;
                }
                let tree = self.trees.entry(entry).or_insert_with(|| Tree::new(of.end - of.start));
                let value = tree.insert_bytes(group, &bytes);
                self.group = bytes;
                value
            }
        };
        self.nodes.push(HashNode { entry: entry as u64, level: 0, index: group, value });
        Ok(())
    }
}

/// Whether all of `range`, which is not empty, is in `set`.
fn covers(set: &RangeSet<u64>, range: &Range<u64>) -> bool {
    set.get(&range.start).is_some_and(|found| range.end <= found.end)
}

/// The parts of `range` that are outside `of`.
fn outside(range: &Range<u64>, of: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    [range.start..range.end.min(of.start), range.start.max(of.end)..range.end]
        .into_iter()
        .filter(|part| part.start < part.end)
}
