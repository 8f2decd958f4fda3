//! A cache that drops the value that was used least recently.

/// Cache of at most `room` values by key; a full cache drops the value that was used least
/// recently.
///
/// A search begins at the most recent value: most requests are for the same key as the last one.
#[derive(Debug)]
pub(super) struct LruCache<K, V> {
    kept: Vec<(K, V)>,
    room: usize,
}

impl<K: PartialEq, V> LruCache<K, V> {
    /// Creates a cache of `room` values, at least one.
    pub(super) fn new(room: usize) -> Self {
        Self { kept: vec![], room: room.max(1) }
    }

    /// Returns the value of `key`. If the value is absent, `make` creates it.
    pub(super) fn get_or<E>(&mut self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<&mut V, E> {
        match self.kept.iter().rposition(|(of, _)| *of == key) {
            Some(index) if index + 1 < self.kept.len() => {
                let found = self.kept.remove(index);
                self.kept.push(found);
            }
            Some(_) => {}
            None => drop(self.put(key, make()?)),
        }
        // The value of `key` is now at the end of the list: the code above added or moved the value
        // there, or the value was there before.
        let (_, value) = self.kept.last_mut().expect("one is kept");
        Ok(value)
    }

    /// Adds a value with a key that is absent; returns the value that was dropped for it.
    pub(super) fn put(&mut self, key: K, value: V) -> Option<V> {
        let gone = (self.room <= self.kept.len()).then(|| self.kept.remove(0).1);
        self.kept.push((key, value));
        gone
    }

    /// The value of `key`, if it is present.
    pub(super) fn peek(&self, key: &K) -> Option<&V> {
        self.kept.iter().rev().find(|(of, _)| of == key).map(|(_, value)| value)
    }

    /// Drops each value if `is_kept` returns `false` for its key.
    pub(super) fn retain(&mut self, mut is_kept: impl FnMut(&K) -> bool) {
        self.kept.retain(|(key, _)| is_kept(key));
    }

    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }
}
