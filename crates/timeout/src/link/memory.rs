//! Record of handled messages: one number a sender, for a bounded number of senders.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex as Lock};

use tokio::sync::{Mutex, oneshot};

use super::wire::SenderId;
use crate::sync::lock;

/// State of one sender.
#[derive(Debug, Default)]
pub(super) struct Sender {
    /// Identifier of the last message that was handled, 0 before the first. It is locked while a
    /// message is handled, so that a copy waits for the outcome of the copy before it.
    pub(super) last: Mutex<u64>,
    /// Channel to the newest connection of this sender. It is dropped, which notifies that
    /// connection, when a newer connection sends hello.
    newest: Lock<Option<oneshot::Sender<()>>>,
}

impl Sender {
    /// Records that a connection of this sender sent hello. The returned receiver completes with an
    /// error when a newer connection of this sender sends hello.
    pub(super) fn arrive(&self) -> oneshot::Receiver<()> {
        let (newest, overtaken) = oneshot::channel();
        *lock(&self.newest) = Some(newest);
        overtaken
    }

    /// Records that a connection has dropped the receiver that [`Sender::arrive`] returned.
    pub(super) fn leave(&self) {
        let mut newest = lock(&self.newest);
        if newest.as_ref().is_some_and(oneshot::Sender::is_closed) {
            *newest = None;
        }
    }
}

/// Senders and their last identifiers. A sender has one message in progress at a time, so the last
/// identifier suffices: an equal identifier is that of a duplicate, and a smaller identifier is
/// that of a message that its sender has abandoned.
#[derive(Debug)]
pub(super) struct Memory {
    senders_max: usize,
    known: Lock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    senders: HashMap<SenderId, (Arc<Sender>, u64)>,
    /// The senders by their last use, on a clock that advances with every use.
    order: BTreeMap<u64, SenderId>,
    tick: u64,
}

impl Memory {
    pub(super) fn new(senders_max: usize) -> Self {
        Self { senders_max, known: Lock::default() }
    }

    /// Returns the state of `sender`, which becomes the most recently used. If there is no room for
    /// a new sender, the one that has been idle longest is forgotten. A connected sender, which
    /// holds a handle to its [`Sender`], is never forgotten; `None` if all are connected.
    pub(super) fn of(&self, sender: SenderId) -> Option<Arc<Sender>> {
        let mut known = lock(&self.known);
        known.tick += 1;
        let tick = known.tick;
        if let Some((known_as, used)) = known.senders.get_mut(&sender) {
            let (known_as, before) = (known_as.clone(), std::mem::replace(used, tick));
            known.order.remove(&before);
            known.order.insert(tick, sender);
            return Some(known_as);
        }
        if self.senders_max <= known.senders.len() && !known.forget_one() {
            return None;
        }
        let new = Arc::<Sender>::default();
        known.senders.insert(sender, (new.clone(), tick));
        known.order.insert(tick, sender);
        Some(new)
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.known).senders.len()
    }
}

impl Known {
    fn forget_one(&mut self) -> bool {
        let idle = |sender: &SenderId| {
            self.senders.get(sender).is_none_or(|(known, _)| Arc::strong_count(known) == 1)
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
    async fn the_longest_idle_is_forgotten_and_the_connected_never() {
        let memory = Memory::new(3);
        let connected = memory.of(sender(1)).expect("room");
        *connected.last.lock().await = 7;
        *memory.of(sender(2)).expect("room").last.lock().await = 8;
        *memory.of(sender(3)).expect("room").last.lock().await = 9;
        // Sender 2 is used again, so sender 3 has been idle longest.
        assert_eq!(*memory.of(sender(2)).expect("known").last.lock().await, 8);
        assert_eq!(*memory.of(sender(4)).expect("room is made").last.lock().await, 0);
        assert_eq!(memory.len(), 3);
        assert_eq!(*memory.of(sender(1)).expect("known").last.lock().await, 7);
        assert_eq!(*memory.of(sender(2)).expect("known").last.lock().await, 8);
        assert_eq!(*memory.of(sender(3)).expect("room is made").last.lock().await, 0, "it was forgotten");
    }

    #[test]
    fn when_all_are_connected_there_is_no_room() {
        let memory = Memory::new(2);
        let (a, b) = (memory.of(sender(1)), memory.of(sender(2)));
        assert!(a.is_some() && b.is_some() && memory.of(sender(3)).is_none());
        drop(a);
        assert!(memory.of(sender(3)).is_some());
    }
    #[test]
    fn a_connection_hears_of_the_next_one_of_its_sender() {
        let sender = Sender::default();
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
