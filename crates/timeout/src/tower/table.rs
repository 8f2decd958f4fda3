//! Table of targets by key. The table is read without a lock and written under a lock.
//!
//! Targets are only added to the [`Buckets`], by setting empty cells. So readers need no lock, and
//! they do not write to memory that other readers use. When there are too many targets for the
//! buckets, or targets must be forgotten, new buckets replace the old ones.

use core::hash::{BuildHasher, Hash};
use std::boxed::Box;
use std::collections::hash_map::RandomState;
use std::sync::{Arc, Mutex, OnceLock};
use std::vec::Vec;

use arc_swap::ArcSwap;

use super::target::TargetState;
use crate::sync::lock;

/// The current buckets, and their writer's state.
#[derive(Debug)]
pub(super) struct TargetTable<K> {
    buckets: ArcSwap<Buckets<K>>,
    /// Locked while the buckets are changed or replaced.
    numbers: Mutex<Numbers>,
    hasher: RandomState,
    most: usize,
}

#[derive(Debug, Default)]
struct Numbers {
    length: usize,
    forgotten: u64,
}

/// Hash table of chained entries. An entry never moves.
#[derive(Debug)]
struct Buckets<K> {
    cells: Box<[Cell<K>]>,
}

type Cell<K> = OnceLock<Box<Entry<K>>>;

#[derive(Debug)]
struct Entry<K> {
    hash: u64,
    key: K,
    target: Arc<TargetState>,
    next: Cell<K>,
}

impl<K: Clone + Eq + Hash> TargetTable<K> {
    /// Creates a table for at most `most` targets; 0 counts as 1.
    pub(super) fn new(most: usize) -> Self {
        Self {
            buckets: ArcSwap::from_pointee(Buckets::new(FIRST_BUCKETS)),
            numbers: Mutex::default(),
            hasher: RandomState::new(),
            most: most.max(1),
        }
    }

    /// Returns the target of `key`, or inserts the target that `make` creates. Finding a target
    /// takes no lock.
    pub(super) fn find(&self, key: K, make: impl FnOnce() -> TargetState) -> Arc<TargetState> {
        let hash = self.hasher.hash_one(&key);
        if let Ok(target) = self.buckets.load().find(hash, &key) {
            return target.clone();
        }
        self.find_or_insert(hash, key, make)
    }

    /// Returns the target of `key`, if there is one.
    pub(super) fn peek(&self, key: &K) -> Option<Arc<TargetState>> {
        self.buckets.load().find(self.hasher.hash_one(key), key).ok().cloned()
    }

    pub(super) fn all(&self) -> Vec<(K, Arc<TargetState>)> {
        let buckets = self.buckets.load_full();
        buckets.entries().map(|entry| (entry.key.clone(), entry.target.clone())).collect()
    }

    pub(super) fn length(&self) -> usize {
        lock(&self.numbers).length
    }

    pub(super) fn forgotten(&self) -> u64 {
        lock(&self.numbers).forgotten
    }

    fn find_or_insert(&self, hash: u64, key: K, make: impl FnOnce() -> TargetState) -> Arc<TargetState> {
        let mut numbers = lock(&self.numbers);
        let mut buckets = self.buckets.load_full();
        if let Ok(target) = buckets.find(hash, &key) {
            return target.clone();
        }
        let count = buckets.cells.len();
        if numbers.length >= self.most {
            let (kept, gone) = buckets.without_idlest();
            numbers.length -= gone;
            numbers.forgotten += gone as u64;
            buckets = Arc::new(kept);
        } else if numbers.length >= count {
            buckets = Arc::new(Buckets::of(buckets.entries(), 2 * count));
        }
        let target = Arc::new(make());
        buckets.insert(hash, key, target.clone());
        numbers.length += 1;
        self.buckets.store(buckets);
        target
    }
}

impl<K: Clone + Eq> Buckets<K> {
    fn new(count: usize) -> Self {
        Self { cells: (0..count).map(|_| OnceLock::new()).collect() }
    }

    fn of<'a>(entries: impl Iterator<Item = &'a Entry<K>>, count: usize) -> Self
    where
        K: 'a,
    {
        let buckets = Self::new(count);
        for entry in entries {
            buckets.insert(entry.hash, entry.key.clone(), entry.target.clone());
        }
        buckets
    }

    /// Returns buckets without the eighth of the targets that was idle longest, and the number of
    /// removed targets. The function removes an eighth of the targets and not one target, because
    /// otherwise each new key would need new buckets.
    fn without_idlest(&self) -> (Self, usize) {
        let mut used: Vec<_> = self.entries().map(|entry| (entry.target.used(), entry)).collect();
        used.sort_by_key(|(used, _)| *used);
        let gone = used.len().div_ceil(8);
        (Self::of(used.iter().skip(gone).map(|(_, entry)| *entry), self.cells.len()), gone)
    }

    /// Returns the target, or the empty cell in which the target would be stored.
    fn find(&self, hash: u64, key: &K) -> Result<&Arc<TargetState>, &Cell<K>> {
        // The number of buckets is a power of two, so the cast drops only bits that the mask would
        // drop.
        let mut cell = &self.cells[hash as usize & (self.cells.len() - 1)];
        while let Some(entry) = cell.get() {
            if entry.hash == hash && entry.key == *key {
                return Ok(&entry.target);
            }
            cell = &entry.next;
        }
        Err(cell)
    }

    /// Adds a target. The caller must have the table's lock, or must not have shared these
    /// buckets yet.
    fn insert(&self, hash: u64, key: K, target: Arc<TargetState>) {
        if let Err(cell) = self.find(hash, &key) {
            let entry = Box::new(Entry { hash, key, target, next: OnceLock::new() });
            let set = cell.set(entry);
            debug_assert!(set.is_ok(), "one writer at a time");
        }
    }

    fn entries(&self) -> impl Iterator<Item = &Entry<K>> {
        self.cells
            .iter()
            .flat_map(|bucket| core::iter::successors(bucket.get(), |entry| entry.next.get()))
            .map(|entry| &**entry)
    }
}

/// Initial number of buckets, a power of two: enough for most programs, and one kilobyte.
const FIRST_BUCKETS: usize = 64;

#[cfg(test)]
mod tests {
    use std::string::{String, ToString};
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::Adaptive;

    fn target() -> TargetState {
        TargetState::new(Adaptive::default(), Instant::now())
    }

    #[test]
    fn a_known_target_is_found_while_the_table_is_locked() {
        let table: TargetTable<String> = TargetTable::new(1000);
        (0..1000).for_each(|n: u32| drop(table.find(n.to_string(), target)));
        let locked = lock(&table.numbers);
        std::thread::scope(|threads| {
            let (found, wait) = mpsc::channel();
            let table = &table;
            threads.spawn(move || {
                for n in 0..1000_u32 {
                    table.find(n.to_string(), || unreachable!("it is known"));
                }
                found.send(())
            });
            let found = wait.recv_timeout(Duration::from_secs(20));
            // Unlock before the assertion. If the assertion panicked under the lock, the scope
            // would wait forever.
            drop(locked);
            assert_eq!(found, Ok(()));
        });
    }

    #[test]
    fn a_full_table_forgets_the_longest_idle_targets() {
        let table = TargetTable::new(80);
        let began = Instant::now();
        for n in 0..80_u32 {
            // The greater the key of a target, the longer the target has been idle.
            let used = began - Duration::from_secs(n.into());
            table.find(n, || TargetState::new(Adaptive::default(), used));
        }
        table.find(80, target);
        let mut keys: Vec<_> = table.all().into_iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        assert!(keys.into_iter().eq((0..70).chain([80])), "an eighth of 80 makes room for one");
        assert_eq!((table.length(), table.forgotten()), (71, 10));
    }
}
