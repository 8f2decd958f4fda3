//! What is there of each file, and its BLAKE3.

use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::{Destination, FileError, GROUP_BYTES, Kept, Node, Tree};

impl Destination {
    /// BLAKE3 of a file's data (see [`Source::digest`](crate::files::Source::digest)) once all is there. Groups whose hash was not kept are read.
    ///
    /// # Errors
    /// What the system refuses; [`FileError::Incomplete`].
    pub fn digest(&mut self, entry: usize) -> Result<[u8; 32], FileError> {
        let of = self.manifest.range(entry);
        let tree = self.trees.entry(entry).or_insert_with(|| Tree::new(of.end - of.start));
        if let Some(root) = tree.root() {
            return Ok(root);
        }
        let missing: Vec<u64> = (0..tree.groups()).filter(|group| !tree.contains(*group)).collect();
        for group in missing {
            self.hash_group(entry, group, None)?;
        }
        let missing = || self.written.gaps(&of).map(|gap| gap.end - gap.start).sum();
        self.trees
            .get(&entry)
            .and_then(Tree::root)
            .ok_or_else(|| FileError::Incomplete { missing: missing() })
    }

    /// Forgets a file, on the disk too: it comes anew.
    pub(in super::super) fn forget(&mut self, entry: usize) -> Result<(), FileError> {
        let of = self.manifest.range(entry);
        if of.start < of.end {
            self.written.remove(of.clone());
            self.fresh.remove(of);
        }
        self.trees.remove(&entry);
        self.nodes.retain(|node| node.entry != entry as u64);
        self.journal.replace(&self.kept())
    }

    /// All that the journal may say after a sync.
    pub(super) fn kept(&self) -> Kept {
        let mut held = self.written.clone();
        self.fresh.iter().for_each(|range| held.remove(range.clone()));
        let nodes = self.trees.iter().flat_map(|(entry, tree)| {
            let of = self.manifest.range(*entry);
            let held = &held;
            tree.nodes().filter_map(move |(level, index, value)| {
                let groups = GROUP_BYTES << level;
                let start = of.start + index * groups;
                let end = (start + groups).min(of.end);
                let is_held = start < end && held.gaps(&(start..end)).next().is_none();
                is_held.then_some(Node { entry: *entry as u64, level, index, value: *value })
            })
        });
        Kept { nodes: nodes.collect(), placing: self.placing.clone(), held }
    }

    pub(super) fn take_up(&mut self, kept: Kept) {
        self.written = self.manifest.within(kept.held);
        self.placing = kept.placing;
        for node in kept.nodes {
            let Ok(entry) = usize::try_from(node.entry) else { continue };
            let of = self.manifest.range(entry);
            if of.start < of.end {
                let tree = self.trees.entry(entry).or_insert_with(|| Tree::new(of.end - of.start));
                tree.insert(node.level, node.index, node.value);
            }
        }
    }

    /// Hashes the groups that `object`, which was written with `bytes`, makes whole.
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

    /// Hashes a group if it is whole and was not hashed; from `at_hand`, or from its file.
    fn hash_group(&mut self, entry: usize, group: u64, at_hand: Option<&[u8]>) -> Result<(), FileError> {
        let of = self.manifest.range(entry);
        let start = of.start + group * GROUP_BYTES;
        let whole = start..of.end.min(start + GROUP_BYTES);
        let tree = self.trees.entry(entry).or_insert_with(|| Tree::new(of.end - of.start));
        let is_whole = whole.start < whole.end && self.written.gaps(&whole).next().is_none();
        if !is_whole || tree.contains(group) {
            return Ok(());
        }
        let value = match at_hand {
            Some(bytes) => tree.insert_bytes(group, bytes),
            None => {
                let mut bytes = vec![0; (whole.end - start) as usize];
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
                tree.insert_bytes(group, &bytes)
            }
        };
        self.nodes.push(Node { entry: entry as u64, level: 0, index: group, value });
        Ok(())
    }
}
