//! A few things, of which the one longest unused makes room.

/// At most `room` values by key.
///
/// Searched from the most recent on: what is asked for is mostly what was asked for last.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    kept: Vec<(K, V)>,
    room: usize,
}

impl<K: PartialEq, V> Recent<K, V> {
    /// Room for `room` values, one at least.
    pub(super) fn new(room: usize) -> Self {
        Self { kept: vec![], room: room.max(1) }
    }

    /// The value of `key`, made if it is not there.
    pub(super) fn get_or<E>(&mut self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<&mut V, E> {
        match self.kept.iter().rposition(|(of, _)| *of == key) {
            Some(index) if index + 1 < self.kept.len() => {
                let found = self.kept.remove(index);
                self.kept.push(found);
            }
            Some(_) => {}
            None => drop(self.put(key, make()?)),
        }
        // It was pushed, or is the last.
        let (_, value) = self.kept.last_mut().expect("one is kept");
        Ok(value)
    }

    /// Adds a value whose key is not there; the one that went for it.
    pub(super) fn put(&mut self, key: K, value: V) -> Option<V> {
        let gone = (self.room <= self.kept.len()).then(|| self.kept.remove(0).1);
        self.kept.push((key, value));
        gone
    }

    /// The value of `key`, if it is there.
    pub(super) fn peek(&self, key: &K) -> Option<&V> {
        self.kept.iter().rev().find(|(of, _)| of == key).map(|(_, value)| value)
    }

    /// Drops what `is_kept` does not hold.
    pub(super) fn retain(&mut self, mut is_kept: impl FnMut(&K) -> bool) {
        self.kept.retain(|(key, _)| is_kept(key));
    }

    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }
}
