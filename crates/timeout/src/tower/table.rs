//! Targets by key: read without a lock, written under one.
//!
//! A [`Table`] only grows, by setting cells that were empty, so readers need no lock and write nothing.
//! What would need more – room, forgetting – makes a new table, and counts a generation on. A service keeps
//! the table it saw last, and compares generations at each call: a load of a word that hardly ever changes.

use core::hash::{BuildHasher, Hash};
use std::boxed::Box;
use std::collections::hash_map::RandomState;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::vec::Vec;

use super::target::Target;

/// The current table, and how to come by it.
#[derive(Debug)]
pub(super) struct Directory<K> {
    generation: AtomicU64,
    current: Mutex<Current<K>>,
    hasher: RandomState,
    most: usize,
}

#[derive(Debug)]
struct Current<K> {
    table: Arc<Table<K>>,
    length: usize,
    forgotten: u64,
}

/// The table that a service saw last.
#[derive(Debug)]
pub(super) struct Seen<K> {
    generation: u64,
    table: Arc<Table<K>>,
}

/// Chains of entries; an entry never moves.
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
    /// Room for `most` targets, at least 1.
    pub(super) fn new(most: usize) -> Self {
        let current = Current { table: Arc::new(Table::new(FIRST_BUCKETS)), length: 0, forgotten: 0 };
        Self {
            generation: AtomicU64::new(0),
            current: Mutex::new(current),
            hasher: RandomState::new(),
            most: most.max(1),
        }
    }

    pub(super) fn see(&self) -> Seen<K> {
        let current = self.lock();
        // The generation is only changed under the lock.
        Seen { generation: self.generation.load(Ordering::Acquire), table: current.table.clone() }
    }

    /// The target of `key`; one that `make` makes, if there is none. No lock is taken for one that was there.
    pub(super) fn find(&self, seen: &mut Seen<K>, key: K, make: impl FnOnce() -> Target) -> Arc<Target> {
        let hash = self.hasher.hash_one(&key);
        if seen.generation == self.generation.load(Ordering::Acquire)
            && let Ok(target) = seen.table.find(hash, &key)
        {
            return target.clone();
        }
        let target = self.find_or_insert(hash, key, make);
        *seen = self.see();
        target
    }

    /// The target of `key` if there is one; takes the lock.
    pub(super) fn peek(&self, key: &K) -> Option<Arc<Target>> {
        self.lock().table.find(self.hasher.hash_one(key), key).ok().cloned()
    }

    pub(super) fn all(&self) -> Vec<(K, Arc<Target>)> {
        let table = self.lock().table.clone();
        table.entries().map(|entry| (entry.key.clone(), entry.target.clone())).collect()
    }

    pub(super) fn length(&self) -> usize {
        self.lock().length
    }

    /// Targets that were forgotten for lack of room.
    pub(super) fn forgotten(&self) -> u64 {
        self.lock().forgotten
    }

    fn find_or_insert(&self, hash: u64, key: K, make: impl FnOnce() -> Target) -> Arc<Target> {
        let mut current = self.lock();
        if let Ok(target) = current.table.find(hash, &key) {
            return target.clone();
        }
        if current.length >= self.most {
            current.forget();
            self.generation.fetch_add(1, Ordering::Release);
        } else if current.length >= current.table.buckets.len() {
            let entries = current.table.entries();
            current.table = Arc::new(Table::of(entries, 2 * current.table.buckets.len()));
            self.generation.fetch_add(1, Ordering::Release);
        }
        let target = Arc::new(make());
        current.table.insert(hash, key, target.clone());
        current.length += 1;
        target
    }

    fn lock(&self) -> MutexGuard<'_, Current<K>> {
        // A panic in a key's own code leaves the table whole: entries are set in one step.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq> Current<K> {
    /// Forgets the eighth of the targets that has been idle longest: an eighth, so that a stream of keys
    /// that never come again pays for a new table only once in so many.
    fn forget(&mut self) {
        let mut used: Vec<_> = self.table.entries().map(|entry| (entry.target.used(), entry)).collect();
        used.sort_by_key(|(used, _)| *used);
        let gone = used.len().div_ceil(8);
        let kept = Table::of(used.iter().skip(gone).map(|(_, entry)| *entry), self.table.buckets.len());
        self.length = used.len() - gone;
        self.forgotten += gone as u64;
        self.table = Arc::new(kept);
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

    /// The target, or the empty cell in which it would be.
    fn find(&self, hash: u64, key: &K) -> Result<&Arc<Target>, &Cell<K>> {
        // The number of buckets is a power of two, so the cast cuts off what the mask would.
        let mut cell = &self.buckets[hash as usize & (self.buckets.len() - 1)];
        while let Some(entry) = cell.get() {
            if entry.hash == hash && entry.key == *key {
                return Ok(&entry.target);
            }
            cell = &entry.next;
        }
        Err(cell)
    }

    /// Only under the directory's lock, or before the table is shared.
    fn insert(&self, hash: u64, key: K, target: Arc<Target>) {
        if let Err(cell) = self.find(hash, &key) {
            let entry = Box::new(Entry { hash, key, target, next: OnceLock::new() });
            assert!(cell.set(entry).is_ok(), "one writer at a time");
        }
    }

    fn entries(&self) -> impl Iterator<Item = &Entry<K>> {
        self.buckets
            .iter()
            .flat_map(|bucket| core::iter::successors(bucket.get(), |entry| entry.next.get()))
            .map(|entry| &**entry)
    }
}

impl<K> Clone for Seen<K> {
    fn clone(&self) -> Self {
        Self { generation: self.generation, table: self.table.clone() }
    }
}

/// A power of two; enough for most programs, and a kilobyte.
const FIRST_BUCKETS: usize = 64;
