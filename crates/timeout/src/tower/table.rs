//! Table of targets by key: read without a lock, written under one.
//!
//! Targets are only added to a [`Table`], by setting empty cells. So readers need no lock, and they
//! do not write to memory that other readers use. When there are too many targets for the buckets,
//! or targets must be forgotten, a new table replaces the old one.

use core::hash::{BuildHasher, Hash};
use std::boxed::Box;
use std::collections::hash_map::RandomState;
use std::sync::{Arc, Mutex, OnceLock};
use std::vec::Vec;

use arc_swap::ArcSwap;

use super::target::Target;
use crate::sync::lock;

/// The current table, and its writer's state.
#[derive(Debug)]
pub(super) struct Directory<K> {
    table: ArcSwap<Table<K>>,
    /// Locked while the table is changed or replaced.
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
struct Table<K> {
    buckets: Box<[Cell<K>]>,
}

type Cell<K> = OnceLock<Box<Entry<K>>>;

#[derive(Debug)]
struct Entry<K> {
    hash: u64,
    key: K,
    target: Arc<Target>,
    next: Cell<K>,
}

impl<K: Clone + Eq + Hash> Directory<K> {
    /// Creates a table for at most `most` targets; 0 counts as 1.
    pub(super) fn new(most: usize) -> Self {
        Self {
            table: ArcSwap::from_pointee(Table::new(FIRST_BUCKETS)),
            numbers: Mutex::default(),
            hasher: RandomState::new(),
            most: most.max(1),
        }
    }

    /// Returns the target of `key`, or inserts the one that `make` creates. Finding a target takes
    /// no lock.
    pub(super) fn find(&self, key: K, make: impl FnOnce() -> Target) -> Arc<Target> {
        let hash = self.hasher.hash_one(&key);
        if let Ok(target) = self.table.load().find(hash, &key) {
            return target.clone();
        }
        self.find_or_insert(hash, key, make)
    }

    /// Returns the target of `key`, if there is one.
    pub(super) fn peek(&self, key: &K) -> Option<Arc<Target>> {
        self.table.load().find(self.hasher.hash_one(key), key).ok().cloned()
    }

    pub(super) fn all(&self) -> Vec<(K, Arc<Target>)> {
        let table = self.table.load_full();
        table.entries().map(|entry| (entry.key.clone(), entry.target.clone())).collect()
    }

    pub(super) fn length(&self) -> usize {
        lock(&self.numbers).length
    }

    pub(super) fn forgotten(&self) -> u64 {
        lock(&self.numbers).forgotten
    }

    fn find_or_insert(&self, hash: u64, key: K, make: impl FnOnce() -> Target) -> Arc<Target> {
        let mut numbers = lock(&self.numbers);
        let mut table = self.table.load_full();
        if let Ok(target) = table.find(hash, &key) {
            return target.clone();
        }
        let buckets = table.buckets.len();
        if numbers.length >= self.most {
            let (kept, gone) = table.without_idlest();
            numbers.length -= gone;
            numbers.forgotten += gone as u64;
            table = Arc::new(kept);
        } else if numbers.length >= buckets {
            table = Arc::new(Table::of(table.entries(), 2 * buckets));
        }
        let target = Arc::new(make());
        table.insert(hash, key, target.clone());
        numbers.length += 1;
        self.table.store(table);
        target
    }
}

impl<K: Clone + Eq> Table<K> {
    fn new(buckets: usize) -> Self {
        Self { buckets: (0..buckets).map(|_| OnceLock::new()).collect() }
    }

    fn of<'a>(entries: impl Iterator<Item = &'a Entry<K>>, buckets: usize) -> Self
    where
        K: 'a,
    {
        let table = Self::new(buckets);
        for entry in entries {
            table.insert(entry.hash, entry.key.clone(), entry.target.clone());
        }
        table
    }

    /// Returns a table without the eighth of the targets that was idle longest, and the number
    /// removed. It removes an eighth, not one target. Otherwise each new key would need a new
    /// table.
    fn without_idlest(&self) -> (Self, usize) {
        let mut used: Vec<_> = self.entries().map(|entry| (entry.target.used(), entry)).collect();
        used.sort_by_key(|(used, _)| *used);
        let gone = used.len().div_ceil(8);
        (Self::of(used.iter().skip(gone).map(|(_, entry)| *entry), self.buckets.len()), gone)
    }

    /// Returns the target, or the empty cell where it would be.
    fn find(&self, hash: u64, key: &K) -> Result<&Arc<Target>, &Cell<K>> {
        // The number of buckets is a power of two, so the cast drops only bits that the mask would
        // drop.
        let mut cell = &self.buckets[hash as usize & (self.buckets.len() - 1)];
        while let Some(entry) = cell.get() {
            if entry.hash == hash && entry.key == *key {
                return Ok(&entry.target);
            }
            cell = &entry.next;
        }
        Err(cell)
    }

    /// Adds a target. The caller must have the directory's lock, or must not have shared the table
    /// yet.
    fn insert(&self, hash: u64, key: K, target: Arc<Target>) {
        if let Err(cell) = self.find(hash, &key) {
            let entry = Box::new(Entry { hash, key, target, next: OnceLock::new() });
            let set = cell.set(entry);
            debug_assert!(set.is_ok(), "one writer at a time");
        }
    }

    fn entries(&self) -> impl Iterator<Item = &Entry<K>> {
        self.buckets
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

    fn target() -> Target {
        Target::new(Adaptive::default(), Instant::now())
    }

    #[test]
    fn a_target_that_is_there_is_found_while_the_table_is_locked() {
        let directory: Directory<String> = Directory::new(1000);
        (0..1000).for_each(|n: u32| drop(directory.find(n.to_string(), target)));
        let locked = lock(&directory.numbers);
        std::thread::scope(|threads| {
            let (found, wait) = mpsc::channel();
            let directory = &directory;
            threads.spawn(move || {
                for n in 0..1000_u32 {
                    directory.find(n.to_string(), || unreachable!("it is known"));
                }
                found.send(())
            });
            let found = wait.recv_timeout(Duration::from_secs(20));
            // Unlock before any panic, or the scope would wait forever.
            drop(locked);
            assert_eq!(found, Ok(()));
        });
    }

    #[test]
    fn those_idle_longest_are_forgotten() {
        let directory = Directory::new(80);
        let began = Instant::now();
        for n in 0..80_u32 {
            // A target with a greater key has been idle longer.
            let used = began - Duration::from_secs(n.into());
            directory.find(n, || Target::new(Adaptive::default(), used));
        }
        directory.find(80, target);
        let mut keys: Vec<_> = directory.all().into_iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        assert!(keys.into_iter().eq((0..70).chain([80])), "an eighth of 80 makes room for one");
        assert_eq!((directory.length(), directory.forgotten()), (71, 10));
    }
}
