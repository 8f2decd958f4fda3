//! Peer events in their order. The newest events are kept for watchers that connect later.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use barograph_api::{PeerChange, PeerEvent};
use barograph_engine::Entry;
use tokio::sync::broadcast;

use crate::sync::lock;

/// Verb phrase of a change, for a sentence that begins with the name of the station.
pub(super) fn words(change: PeerChange) -> &'static str {
    match change {
        PeerChange::Joined => "has joined",
        PeerChange::Lost => "is lost",
        PeerChange::Returned => "has returned",
        PeerChange::Removed => "was removed from the mesh",
        PeerChange::Unknown => "has changed",
    }
}

/// The newest peer events, and the channel that sends later events to watchers.
#[derive(Debug)]
pub(crate) struct Events {
    state: Mutex<State>,
    sender: broadcast::Sender<Arc<PeerEvent>>,
}

#[derive(Debug)]
struct State {
    kept: VecDeque<Arc<PeerEvent>>,
    next_id: u64,
}

impl Events {
    /// Creates an empty list. The first id is the start time in milliseconds. So if a watcher sends
    /// an id from an earlier run, the watcher receives all events of this run, unless the clock was
    /// set back in between.
    pub(super) fn new(started_unix_ms: u64) -> Self {
        let state = State { kept: VecDeque::new(), next_id: started_unix_ms };
        Self { state: Mutex::new(state), sender: broadcast::channel(KEPT).0 }
    }

    /// Keeps an event and sends it to all watchers.
    pub(super) fn publish(&self, what: PeerChange, entry: &Entry, time_s: f64) -> Arc<PeerEvent> {
        let mut state = lock(&self.state);
        let event = Arc::new(PeerEvent {
            id: state.next_id,
            event: what,
            time_s,
            host: entry.host.to_string(),
            addresses: entry.addresses.iter().map(ToString::to_string).collect(),
            version: entry.version.clone(),
            groups: entry.groups.iter().map(ToString::to_string).collect(),
        });
        state.next_id += 1;
        let of_host = || state.kept.iter().enumerate().filter(|(_, kept)| kept.host == event.host);
        if of_host().count() >= KEPT_OF_HOST
            && let Some((oldest, _)) = of_host().next()
        {
            state.kept.remove(oldest);
        } else if state.kept.len() >= KEPT {
            state.kept.pop_front();
        }
        state.kept.push_back(Arc::clone(&event));
        // An error only means that there is no watcher.
        let _ = self.sender.send(Arc::clone(&event));
        event
    }

    /// Returns the kept events with an id above `after`, and a receiver of all later events. Each
    /// event is returned once. Events that are no longer kept are missing.
    pub(crate) fn watch(
        &self,
        after: Option<u64>,
    ) -> (VecDeque<Arc<PeerEvent>>, broadcast::Receiver<Arc<PeerEvent>>) {
        let state = lock(&self.state);
        let is_new = |event: &&Arc<PeerEvent>| after.is_none_or(|after| after < event.id);
        (state.kept.iter().filter(is_new).cloned().collect(), self.sender.subscribe())
    }
}

/// Maximum number of events to keep. Also the maximum number of events that a watcher may be
/// behind. An event has some kilobytes at most in practice.
const KEPT: usize = 1000;

/// Maximum number of events kept of one host, so that the events of a host that often joins and
/// leaves do not displace those of all other hosts.
const KEPT_OF_HOST: usize = 20;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use barograph_engine::Capabilities;
    use barograph_forecast::Name;

    use super::*;

    #[test]
    fn the_newest_events_are_kept_and_replayed_after_an_id() {
        let entry = Entry {
            host: Name::new("b").unwrap(),
            addresses: vec!["192.0.2.1:1".parse().unwrap()],
            version: "0.1.0".into(),
            groups: vec![],
            capabilities: Capabilities::default(),
            key: None,
        };
        let events = Events::new(5);
        let (kept, mut live) = events.watch(None);
        assert!(kept.is_empty());
        for host in 0..KEPT + 30 {
            let host = Name::new(&format!("b{host}")).unwrap();
            events.publish(PeerChange::Joined, &Entry { host, ..entry.clone() }, 1.0);
        }
        assert!(live.try_recv().is_err(), "it is told that it missed some");
        let (kept, _) = events.watch(None);
        assert_eq!((kept.len(), kept[0].id), (KEPT, 5 + 30));
        let (kept, mut live) = events.watch(Some(5 + 30 + KEPT as u64 - 2));
        assert_eq!(kept.len(), 1);
        assert_eq!(events.publish(PeerChange::Lost, &entry, 2.0), live.try_recv().unwrap());
        let text = serde_json::to_string(&*kept[0]).unwrap();
        assert!(text.contains("\"event\":\"joined\"") && text.contains("192.0.2.1:1"), "{text}");
    }

    #[test]
    fn a_flapping_host_does_not_displace_events_of_other_hosts() {
        let entry = |host: &str| Entry {
            host: Name::new(host).unwrap(),
            addresses: vec![],
            version: String::new(),
            groups: vec![],
            capabilities: Capabilities::default(),
            key: None,
        };
        let events = Events::new(0);
        events.publish(PeerChange::Lost, &entry("quiet"), 1.0);
        for _ in 0..2 * KEPT {
            events.publish(PeerChange::Lost, &entry("loud"), 2.0);
        }
        let (kept, _) = events.watch(None);
        assert_eq!((kept.len(), kept[0].host.as_str()), (1 + KEPT_OF_HOST, "quiet"));
        assert_eq!(kept[1].id, (2 * KEPT - KEPT_OF_HOST + 1) as u64);
    }
}
