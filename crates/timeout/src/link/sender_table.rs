//! Record of handled messages: one number for each sender, for a bounded number of senders.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex as Lock};

use tokio::sync::{Mutex, oneshot};

use super::wire::SenderId;
use crate::sync::lock;

#[derive(Debug, Default)]
pub(super) struct SenderState {
    /// Identifier of the last message that was handled, 0 before the first message. The identifier
    /// is locked while a message is handled, so that a copy waits for the outcome of the previous
    /// copy.
    pub(super) last: Mutex<u64>,
    /// Channel to the newest connection of this sender. When a newer connection sends hello, this
    /// channel is dropped, and the drop notifies the older connection.
    newest: Lock<Option<oneshot::Sender<()>>>,
}

impl SenderState {
    /// Records that a connection of this sender sent hello. The returned channel receiver completes
    /// with an error when a newer connection of this sender sends hello.
    pub(super) fn arrive(&self) -> oneshot::Receiver<()> {
        let (newest, overtaken) = oneshot::channel();
        *lock(&self.newest) = Some(newest);
        overtaken
    }

    /// Records that a connection has dropped the channel receiver that [`SenderState::arrive`]
    /// returned.
    pub(super) fn leave(&self) {
        let mut newest = lock(&self.newest);
        if newest.as_ref().is_some_and(oneshot::Sender::is_closed) {
            *newest = None;
        }
    }
}

/// Senders and their last identifiers. A sender has one message in progress at a time, so the last
/// identifier suffices: an equal identifier belongs to a duplicate, and a smaller identifier
/// belongs to a message that its sender has abandoned.
#[derive(Debug)]
pub(super) struct SenderTable {
    senders_max: usize,
    entries: Lock<SenderEntries>,
}

#[derive(Debug, Default)]
struct SenderEntries {
    senders: HashMap<SenderId, (Arc<SenderState>, u64)>,
    /// The senders by their last use, on a clock that advances with every use.
    order: BTreeMap<u64, SenderId>,
    tick: u64,
}

impl SenderTable {
    pub(super) fn new(senders_max: usize) -> Self {
        Self { senders_max, entries: Lock::default() }
    }

    /// Returns the state of `sender`, and makes `sender` the most recently used sender. If there is
    /// no room for a new sender, the sender that has been idle longest is forgotten. A connected
    /// sender, which holds a handle to its [`SenderState`], is never forgotten; the result is
    /// `None` if all senders are connected.
    pub(super) fn of(&self, sender: SenderId) -> Option<Arc<SenderState>> {
        let mut entries = lock(&self.entries);
        entries.tick += 1;
        let tick = entries.tick;
        if let Some((state, used)) = entries.senders.get_mut(&sender) {
            let (state, before) = (state.clone(), std::mem::replace(used, tick));
            entries.order.remove(&before);
            entries.order.insert(tick, sender);
            return Some(state);
        }
        if entries.senders.len() >= self.senders_max && !entries.forget_one() {
            return None;
        }
        let new = Arc::<SenderState>::default();
        entries.senders.insert(sender, (new.clone(), tick));
        entries.order.insert(tick, sender);
        Some(new)
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.entries).senders.len()
    }
}

impl SenderEntries {
    fn forget_one(&mut self) -> bool {
        let idle = |sender: &SenderId| {
            self.senders.get(sender).is_none_or(|(state, _)| Arc::strong_count(state) == 1)
        };
        let Some((&tick, &sender)) = self.order.iter().find(|(_, sender)| idle(sender)) else {
            return false;
        };
        self.order.remove(&tick);
        self.senders.remove(&sender);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(n: u8) -> SenderId {
        SenderId([n; 16])
    }

    #[tokio::test]
    async fn a_full_table_forgets_the_longest_idle_sender_but_no_connected_one() {
        let table = SenderTable::new(3);
        let connected = table.of(sender(1)).expect("room");
        *connected.last.lock().await = 7;
        *table.of(sender(2)).expect("room").last.lock().await = 8;
        *table.of(sender(3)).expect("room").last.lock().await = 9;
        // Sender 2 is used again, so sender 3 has been idle longest.
        assert_eq!(*table.of(sender(2)).expect("known").last.lock().await, 8);
        assert_eq!(*table.of(sender(4)).expect("room is made").last.lock().await, 0);
        assert_eq!(table.len(), 3);
        assert_eq!(*table.of(sender(1)).expect("known").last.lock().await, 7);
        assert_eq!(*table.of(sender(2)).expect("known").last.lock().await, 8);
        assert_eq!(*table.of(sender(3)).expect("room is made").last.lock().await, 0, "it was forgotten");
    }

    #[test]
    fn a_table_full_of_connected_senders_rejects_new_senders() {
        let table = SenderTable::new(2);
        let (a, b) = (table.of(sender(1)), table.of(sender(2)));
        assert!(a.is_some() && b.is_some() && table.of(sender(3)).is_none());
        drop(a);
        assert!(table.of(sender(3)).is_some());
    }
    #[test]
    fn a_new_connection_of_a_sender_notifies_the_previous_one() {
        let sender = SenderState::default();
        let mut first = sender.arrive();
        assert_eq!(first.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        let mut second = sender.arrive();
        assert_eq!(first.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        drop(first);
        sender.leave();
        assert_eq!(second.try_recv(), Err(oneshot::error::TryRecvError::Empty), "the second is still here");
        drop(second);
        sender.leave();
        assert!(lock(&sender.newest).is_none());
    }
}
