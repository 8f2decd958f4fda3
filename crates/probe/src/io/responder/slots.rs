//! Counts of open sessions: in all, from each network, and for each signed caller.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

use crate::wire::DeclineReason;

/// Number of sessions that are open or reserved.
#[derive(Debug, Default)]
pub(super) struct SessionSlots {
    pub(super) by_network: HashMap<IpAddr, usize>,
    /// Sessions of callers that signed, by name.
    pub(super) by_caller: HashMap<String, usize>,
}

impl SessionSlots {
    pub(super) fn taken(&self) -> usize {
        self.by_network.values().sum()
    }
}

/// Adds one session for `key`.
///
/// # Errors
/// [`DeclineReason::Full`] if `key` already has `most` sessions.
pub(super) fn take<K: Eq + Hash>(
    taken: &mut HashMap<K, usize>,
    key: K,
    most: usize,
) -> Result<(), DeclineReason> {
    let count = taken.get(&key).copied().unwrap_or(0);
    if most <= count {
        return Err(DeclineReason::Full);
    }
    taken.insert(key, count + 1);
    Ok(())
}

/// Removes one session of `key`. The last session of `key` also removes its map entry.
pub(super) fn release<K: Eq + Hash>(taken: &mut HashMap<K, usize>, key: &K) {
    match taken.get_mut(key) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(taken.remove(key)),
    }
}
