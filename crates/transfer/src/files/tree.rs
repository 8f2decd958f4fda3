//! BLAKE3 of a file that arrives in parts, in any order.

use std::collections::BTreeMap;

use blake3::Hasher;
use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

/// Bytes that are hashed at once: a subtree of 256 chunks. A group has enough chunks for any SIMD
/// width, and is small enough to stay in the processor's cache until it is read back.
pub const GROUP_BYTES: u64 = 256 << 10;

/// The BLAKE3 tree of one file, built from groups of [`GROUP_BYTES`] in any order (its shape:
/// BLAKE3 §2.1 and §5.1).
///
/// Neighbours are merged as soon as both are added, so memory is proportional to the number of
/// holes, not to the size of the file.
///
/// ```
/// use barograph_transfer::testkit::files::{GROUP_BYTES, Tree};
///
/// let file = vec![7; 3 * GROUP_BYTES as usize + 5];
/// let mut tree = Tree::new(file.len() as u64);
/// for (group, bytes) in file.chunks(GROUP_BYTES as usize).enumerate().rev() {
///     assert_eq!(tree.root(), None);
///     tree.insert_bytes(group as u64, bytes);
/// }
/// assert_eq!(tree.root(), Some(*blake3::hash(&file).as_bytes()));
/// ```
#[derive(Clone, Debug)]
pub struct Tree {
    groups: u64,
    /// Chaining values of subtrees, by (level, index). A subtree has the groups from `index <<
    /// level` up to, but not including, `(index + 1) << level`.
    nodes: BTreeMap<(u8, u64), ChainingValue>,
}

impl Tree {
    /// Creates the tree of a file of `bytes`.
    pub fn new(bytes: u64) -> Self {
        // An empty file has one chunk, too.
        let groups = bytes.div_ceil(GROUP_BYTES).max(1);
        let mut tree = Self { groups, nodes: BTreeMap::new() };
        if bytes == 0 {
            tree.insert_bytes(0, &[]);
        }
        tree
    }

    /// Computes the chaining value of a group of this file. If the file has only one group, returns
    /// the digest.
    pub(super) fn hash_group(&self, group: u64, bytes: &[u8]) -> ChainingValue {
        let mut hasher = Hasher::new();
        if self.groups == 1 {
            return *hasher.update(bytes).finalize().as_bytes();
        }
        hasher.set_input_offset(group * GROUP_BYTES).update(bytes).finalize_non_root()
    }

    /// Hashes and adds a group; returns its chaining value. Panics: if the group is longer than
    /// [`GROUP_BYTES`], or if the group is empty but the file is not.
    pub fn insert_bytes(&mut self, group: u64, bytes: &[u8]) -> ChainingValue {
        let value = self.hash_group(group, bytes);
        self.insert(0, group, value);
        value
    }

    /// Adds a subtree of 2^`level` groups. Returns `false`, and changes nothing, if the file has no
    /// such subtree.
    pub fn insert(&mut self, level: u8, index: u64, value: ChainingValue) -> bool {
        if !self.has(level, index) {
            return false;
        }
        if self.contains(index << level) {
            return true;
        }
        let (mut level, mut index, mut value) = (level, index, value);
        // Do not merge the two children of the root here, because the root is computed differently.
        // Do not merge to a subtree that extends beyond the end of the file either.
        while self.has(level + 1, index / 2) {
            let Some(sibling) = self.nodes.remove(&(level, index ^ 1)) else { break };
            let (left, right) = if index % 2 == 0 { (value, sibling) } else { (sibling, value) };
            value = merge_subtrees_non_root(&left, &right, Mode::Hash);
            (level, index) = (level + 1, index / 2);
        }
        self.nodes.insert((level, index), value);
        true
    }

    /// Whether the group was added, alone or in a subtree.
    pub fn contains(&self, group: u64) -> bool {
        (0..=self.groups.ilog2() as u8).any(|level| self.nodes.contains_key(&(level, group >> level)))
    }

    /// Number of groups of the file.
    pub fn groups(&self) -> u64 {
        self.groups
    }

    /// The subtrees that are kept: level, index and chaining value.
    pub fn nodes(&self) -> impl Iterator<Item = (u8, u64, &ChainingValue)> {
        self.nodes.iter().map(|((level, index), value)| (*level, *index, value))
    }

    /// The file's BLAKE3, once all groups were added.
    pub fn root(&self) -> Option<[u8; 32]> {
        if self.groups == 1 {
            return self.nodes.get(&(0, 0)).copied();
        }
        let left = left_groups(self.groups);
        let (left, right) = (self.subtree(0, left)?, self.subtree(left, self.groups - left)?);
        Some(*merge_subtrees_root(&left, &right, Mode::Hash).as_bytes())
    }

    fn subtree(&self, first: u64, groups: u64) -> Option<ChainingValue> {
        if groups.is_power_of_two() {
            let level = groups.trailing_zeros() as u8;
            if let Some(value) = self.nodes.get(&(level, first >> level)) {
                return Some(*value);
            }
        }
        if groups == 1 {
            return None;
        }
        let left = left_groups(groups);
        let (left, right) = (self.subtree(first, left)?, self.subtree(first + left, groups - left)?);
        Some(merge_subtrees_non_root(&left, &right, Mode::Hash))
    }

    fn has(&self, level: u8, index: u64) -> bool {
        level < 63
            && (1 << level < self.groups || self.groups == 1 && level == 0)
            && index.checked_add(1).is_some_and(|end| end <= self.groups >> level)
    }
}

/// Number of groups of the left subtree: the largest power of two that leaves at least one group
/// for the right subtree (BLAKE3 §2.1). `groups` is at least 2.
fn left_groups(groups: u64) -> u64 {
    1 << (groups - 1).ilog2()
}
