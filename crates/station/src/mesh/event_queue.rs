//! Queue of events for a slow command or URL. The queue keeps only the newest event of each host,
//! so that a host that often joins and leaves does not delay events of other hosts.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use barograph_api::PeerEvent;

use crate::sync::lock;

/// Queue of events for one hook. All clones share one queue.
#[derive(Clone, Debug, Default)]
pub(super) struct EventQueue(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    /// Each event with the command or URL for it.
    events: VecDeque<(String, Arc<PeerEvent>)>,
    has_ended: bool,
}

impl EventQueue {
    /// Replaces the queued event of the same host, or appends the event. Returns whether an event
    /// was dropped. This is either the replaced event, or `event` itself if the queue is full or
    /// closed.
    pub(super) fn push(&self, setting: String, event: Arc<PeerEvent>) -> bool {
        let (state, more) = &*self.0;
        let mut state = lock(state);
        let older = state.events.iter_mut().find(|(_, older)| older.host == event.host);
        if let Some(older) = older {
            *older = (setting, event);
            return true;
        }
        let is_full = state.has_ended || state.events.len() >= EVENTS_MAX;
        if !is_full {
            state.events.push_back((setting, event));
            more.notify_one();
        }
        is_full
    }

    /// Waits for the next event; `None` = the queue is closed and empty.
    pub(super) fn next(&self) -> Option<(String, Arc<PeerEvent>)> {
        let (state, more) = &*self.0;
        let is_waited_for = |state: &mut State| state.events.is_empty() && !state.has_ended;
        let state = more.wait_while(lock(state), is_waited_for);
        state.unwrap_or_else(PoisonError::into_inner).events.pop_front()
    }

    /// Closes the queue; queued events remain.
    pub(super) fn end(&self) {
        let (state, more) = &*self.0;
        lock(state).has_ended = true;
        more.notify_all();
    }
}

/// Maximum number of queued events. The queue has at most one event for each host, so it has room
/// for more hosts than the largest measured mesh.
const EVENTS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use barograph_api::PeerChange;

    use super::*;

    fn event(id: u64, host: &str) -> Arc<PeerEvent> {
        let (addresses, groups) = (Vec::new(), Vec::new());
        let (host, version) = (host.into(), "0.1.0".into());
        Arc::new(PeerEvent { id, event: PeerChange::Lost, time_s: 1.5, host, addresses, version, groups })
    }

    #[test]
    fn a_flapping_host_does_not_delay_events_of_other_hosts() {
        let queue = EventQueue::default();
        let dropped = (0..1000).filter(|id| queue.push("x".into(), event(*id, "flaps"))).count();
        assert_eq!(dropped, 999);
        assert!(!queue.push("x".into(), event(1000, "honest")));
        let next = || queue.next().map(|(_, event)| event.id);
        assert_eq!([next(), next()], [Some(999), Some(1000)]);
        queue.push("x".into(), event(1001, "honest"));
        queue.end();
        assert_eq!([next(), next()], [Some(1001), None], "queued events remain");
        assert!(queue.push("x".into(), event(1002, "honest")), "the queue is closed");
        let queue = EventQueue::default();
        for id in 0..EVENTS_MAX as u64 {
            assert!(!queue.push("x".into(), event(id, &format!("h{id}"))));
        }
        assert!(queue.push("x".into(), event(0, "one more")));
    }
}
