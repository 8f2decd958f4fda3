//! How many sessions are open: in all, from each network, and for each caller that signed.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

use crate::wire::Declined;

/// Counts of the sessions that are open or reserved.
#[derive(Debug, Default)]
pub(super) struct SessionSlots {
    pub(super) by_network: HashMap<IpAddr, usize>,
    /// Those that were signed.
    pub(super) by_caller: HashMap<String, usize>,
}

impl SessionSlots {
    pub(super) fn taken(&self) -> usize {
        self.by_network.values().sum()
    }
}

/// Counts one more of `key`.
///
/// # Errors
/// [`Declined::Full`] when it has `most` already.
pub(super) fn take<K: Eq + Hash>(taken: &mut HashMap<K, usize>, key: K, most: usize) -> Result<(), Declined> {
    let count = taken.get(&key).copied().unwrap_or(0);
    if most <= count {
        return Err(Declined::Full);
    }
    taken.insert(key, count + 1);
    Ok(())
}

/// Counts one less of `key`, and forgets it with its last.
pub(super) fn give_back<K: Eq + Hash>(taken: &mut HashMap<K, usize>, key: &K) {
    match taken.get_mut(key) {
        Some(count) if 1 < *count => *count -= 1,
        _ => drop(taken.remove(key)),
    }
}
