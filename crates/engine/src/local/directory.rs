//! Directory of a single machine, in memory, shared by all users of the engine.
//!
//! Within one process, no lease can outlive its holder: unwinding drops the lease, and the end of
//! the process removes the directory. So no timer is needed for the TTL.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream;
use tokio::sync::broadcast::{self, error::RecvError};

use crate::{BoxStream, EngineError, Entry, Event, Group, HostId, Lease, LeaseState};

/// The registered stations and their watches.
#[derive(Clone)]
pub(super) struct Directory(Arc<Mutex<State>>);

struct State {
    entries: BTreeMap<HostId, RegisteredEntry>,
    registrations: u64,
    /// Stations that were removed and have not registered since, oldest first.
    removed: VecDeque<HostId>,
    changes: broadcast::Sender<Change>,
}

/// An entry and the registration that holds it.
struct RegisteredEntry {
    registration: u64,
    entry: Arc<Entry>,
}

#[derive(Clone)]
enum Change {
    /// Entry of a station before and after the change.
    Entry { before: Option<Arc<Entry>>, after: Option<Arc<Entry>> },
    /// An operator removed this host.
    Removed(HostId),
}

impl Directory {
    pub(super) fn new() -> Self {
        let (changes, _) = broadcast::channel(CHANGES);
        let (entries, removed) = (BTreeMap::new(), VecDeque::new());
        Self(Arc::new(Mutex::new(State { entries, registrations: 0, removed, changes })))
    }

    pub(super) fn register(&self, entry: &Entry, ttl: Duration) -> Result<Box<dyn Lease>, EngineError> {
        entry.check()?;
        let mut state = self.lock();
        if state.entries.len() >= ENTRIES_MAX && !state.entries.contains_key(&entry.host) {
            return Err(EngineError::Invalid(format!("the directory has at most {ENTRIES_MAX} stations")));
        }
        state.registrations += 1;
        let registration = state.registrations;
        let after = Arc::new(entry.clone());
        let registered = RegisteredEntry { registration, entry: Arc::clone(&after) };
        let before = state.entries.insert(entry.host.clone(), registered).map(|registered| registered.entry);
        state.removed.retain(|host| *host != entry.host);
        state.send(Change::Entry { before, after: Some(after) });
        Ok(Box::new(LocalLease { directory: self.clone(), host: entry.host.clone(), registration, ttl }))
    }

    pub(super) fn remove(&self, host: &HostId) {
        let mut state = self.lock();
        state.entries.remove(host);
        state.record_removed(host);
        state.send(Change::Removed(host.clone()));
    }

    /// Restores the stations that were removed before this directory was made, oldest first.
    pub(super) fn restore_removed(&self, hosts: &[HostId]) {
        let mut state = self.lock();
        for host in hosts {
            if !state.entries.contains_key(host) {
                state.record_removed(host);
            }
        }
    }

    pub(super) fn watch(&self, group: &Group) -> BoxStream<Event> {
        let state = self.lock();
        let ups = state.entries.values().filter(|registered| registered.entry.groups.contains(group));
        let ups = ups.map(|registered| Event::Up((*registered.entry).clone()));
        let removed = state.removed.iter().cloned().map(Event::Removed);
        let ready: VecDeque<Event> = ups.chain([Event::Synced]).chain(removed).collect();
        let watch = Watch { group: group.clone(), ready, changes: Some(state.changes.subscribe()) };
        Box::pin(stream::unfold(watch, |mut watch| async { Some((watch.next().await?, watch)) }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // After a panic in the middle of a change, each collection is still valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn record_removed(&mut self, host: &HostId) {
        self.removed.retain(|known| known != host);
        if self.removed.len() >= REMOVED_MAX {
            self.removed.pop_front();
        }
        self.removed.push_back(host.clone());
    }

    fn send(&self, change: Change) {
        // `send` fails if there is no watch; that is no error.
        let _ = self.changes.send(change);
    }
}

struct Watch {
    group: Group,
    ready: VecDeque<Event>,
    changes: Option<broadcast::Receiver<Change>>,
}

impl Watch {
    async fn next(&mut self) -> Option<Result<Event, EngineError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            match self.changes.as_mut()?.recv().await {
                Ok(change) => self.ready.extend(change.seen_from(&self.group)),
                Err(RecvError::Closed) => self.changes = None,
                Err(RecvError::Lagged(missed)) => {
                    self.changes = None;
                    return Some(Err(EngineError::Lagged { missed }));
                }
            }
        }
    }
}

impl Change {
    fn seen_from(&self, group: &Group) -> Option<Event> {
        let member = |entry: &&Arc<Entry>| entry.groups.contains(group);
        let (before, after) = match self {
            Self::Entry { before, after } => (before, after),
            Self::Removed(host) => return Some(Event::Removed(host.clone())),
        };
        match (before.as_ref().filter(member), after.as_ref().filter(member)) {
            (_, Some(after)) => Some(Event::Up((**after).clone())),
            (Some(before), None) => Some(Event::Down(before.host.clone())),
            (None, None) => None,
        }
    }
}

struct LocalLease {
    directory: Directory,
    host: HostId,
    registration: u64,
    ttl: Duration,
}

impl Lease for LocalLease {
    fn ttl(&self) -> Duration {
        self.ttl
    }

    fn state(&self) -> LeaseState {
        let state = self.directory.lock();
        let is_held = state
            .entries
            .get(&self.host)
            .is_some_and(|registered| registered.registration == self.registration);
        if is_held { LeaseState::Held } else { LeaseState::Displaced }
    }
}

impl Drop for LocalLease {
    fn drop(&mut self) {
        let mut state = self.directory.lock();
        // Do not remove a later registration of the same host.
        if state
            .entries
            .get(&self.host)
            .is_some_and(|registered| registered.registration == self.registration)
        {
            let before = state.entries.remove(&self.host).map(|registered| registered.entry);
            state.send(Change::Entry { before, after: None });
        }
    }
}

/// Number of changes kept for a slow watch. If the watch misses more changes, its stream ends with
/// `Lagged`.
const CHANGES: usize = 1024;

/// Largest number of removed stations that are kept: the number of stations that one station can
/// invite.
const REMOVED_MAX: usize = 1000;

/// Largest number of registered stations, which is more than one machine can serve. A mesh of this
/// size needs a different engine.
const ENTRIES_MAX: usize = 10_000;
