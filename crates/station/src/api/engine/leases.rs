//! Registrations of members, and the expiry of their leases.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barograph_engine::{Engine, EngineError, Entry, Group, Lease, TaskStatus};
use barograph_forecast::Name;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::state;
use crate::sync::lock;

/// The registrations of members: one for each registered name.
#[derive(Clone)]
pub(crate) struct Leases {
    entries: Arc<Mutex<HashMap<Name, LeaseEntry>>>,
    /// Lock held during a registration, so that two registrations of one name reach the engine and
    /// this table in the same order.
    registration_lock: Arc<tokio::sync::Mutex<()>>,
    /// Status of the tasks that remove expired leases.
    task: Arc<TaskStatus>,
}

impl Default for Leases {
    fn default() -> Self {
        Self {
            entries: Arc::default(),
            registration_lock: Arc::default(),
            task: TaskStatus::new("member_leases"),
        }
    }
}

struct LeaseEntry {
    registration: String,
    groups: Vec<Group>,
    ttl: Duration,
    deadline: Instant,
    sweeper: AbortHandle,
    /// Keeps the entry in the directory until this field is dropped.
    _lease: Box<dyn Lease>,
}

/// Error: a registration cannot be renewed or ended.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::api) enum LeaseError {
    /// No station is registered under the name.
    Unregistered,
    /// A newer registration of the name has replaced this registration.
    Displaced,
}

impl Leases {
    /// Status of the tasks that remove expired leases.
    pub(super) fn task(&self) -> Arc<TaskStatus> {
        Arc::clone(&self.task)
    }

    /// Registers `entry`, replaces an older registration of the same host, and returns the id of
    /// the new registration. Calls `admit` while no other registration is in progress, and
    /// registers only if `admit` succeeds.
    pub(super) async fn register<E: From<EngineError>>(
        &self,
        engine: &dyn Engine,
        entry: &Entry,
        ttl: Duration,
        admit: impl FnOnce() -> Result<(), E> + Send,
    ) -> Result<String, E> {
        let registration = state::random_token()
            .map_err(|error| EngineError::Unavailable(format!("no random numbers: {error}")))?;
        let registration = registration[..REGISTRATION_DIGITS].to_string();
        let _registering = self.registration_lock.lock().await;
        admit()?;
        let lease = engine.register(entry, ttl).await?;
        let name = entry.host.clone();
        let (of, swept, by) = (self.clone(), name.clone(), registration.clone());
        let sweep = async move {
            of.task.restart(|| of.clone().sweep(swept.clone(), by.clone())).await;
        };
        let mut entries = lock(&self.entries);
        let deadline = Instant::now() + ttl;
        let sweeper = tokio::spawn(sweep).abort_handle();
        let groups = entry.groups.clone();
        let new =
            LeaseEntry { registration: registration.clone(), groups, ttl, deadline, sweeper, _lease: lease };
        // The engine has already replaced the older registration.
        if let Some(older) = entries.insert(name, new) {
            older.sweeper.abort();
        }
        Ok(registration)
    }

    /// Groups of each registered station.
    pub(super) fn groups(&self) -> HashMap<Name, Vec<Group>> {
        lock(&self.entries).iter().map(|(host, entry)| (host.clone(), entry.groups.clone())).collect()
    }

    /// Renews the lease for its full duration, and returns this duration.
    pub(super) fn renew(&self, name: &Name, registration: &str) -> Result<Duration, LeaseError> {
        let mut entries = lock(&self.entries);
        let lease = entries.get_mut(name).ok_or(LeaseError::Unregistered)?;
        if lease.registration != registration {
            return Err(LeaseError::Displaced);
        }
        lease.deadline = Instant::now() + lease.ttl;
        Ok(lease.ttl)
    }

    /// Ends the registration, and removes the entry from the directory at once.
    pub(in crate::api) fn deregister(&self, name: &Name, registration: &str) -> Result<(), LeaseError> {
        let mut entries = lock(&self.entries);
        match entries.get(name) {
            None => Err(LeaseError::Unregistered),
            Some(other) if other.registration != registration => Err(LeaseError::Displaced),
            Some(_) => {
                remove(&mut entries, name);
                Ok(())
            }
        }
    }

    /// Ends the registration of the name and removes the station from the mesh, unless `is_held`
    /// returns true because a different member has the name by now. Returns whether the station was
    /// removed.
    pub(in crate::api) async fn remove(
        &self,
        engine: &dyn Engine,
        name: &Name,
        is_held: impl Fn() -> bool + Send,
    ) -> Result<bool, EngineError> {
        let _registering = self.registration_lock.lock().await;
        if is_held() {
            return Ok(false);
        }
        engine.remove(name).await?;
        remove(&mut lock(&self.entries), name);
        Ok(true)
    }

    /// Whether the name is registered.
    pub(in crate::api) fn holds(&self, name: &Name) -> bool {
        lock(&self.entries).contains_key(name)
    }

    /// Removes one registration when its lease ends. If this station was suspended during the
    /// lease, renews the lease for its full duration.
    async fn sweep(self, name: Name, registration: String) {
        loop {
            let (deadline, ttl) = match lock(&self.entries).get(&name) {
                Some(lease) if lease.registration == registration => (lease.deadline, lease.ttl),
                _ => return,
            };
            if deadline <= Instant::now() {
                tracing::info!("the lease of {name} ran out");
                lock(&self.entries).remove(&name);
                return;
            }
            let part = ttl / TICKS;
            let tick = deadline.min(Instant::now() + part);
            tokio::time::sleep_until(tick).await;
            if tick + part < Instant::now() {
                // This station was suspended and could not receive renewals, so the member does not
                // count as lost.
                let _ = self.renew(&name, &registration);
            }
        }
    }
}

fn remove(entries: &mut HashMap<Name, LeaseEntry>, name: &Name) {
    if let Some(lease) = entries.remove(name) {
        lease.sweeper.abort();
    }
}

/// Number of checks during one lease. Members renew a lease after every third of its duration. A
/// suspension for a third of the lease covers at least one check, so the station detects the
/// suspension.
const TICKS: u32 = 6;

/// Number of hexadecimal digits of a registration id. An id has 128 random bits, so that no station
/// can renew the registration of another station.
const REGISTRATION_DIGITS: usize = 32;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use barograph_engine::{Capabilities, Event, Local, LocalConfig};
    use futures_util::StreamExt as _;

    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn entry() -> Entry {
        let (host, groups) = (name("b"), vec![name("local")]);
        let capabilities = Capabilities::default();
        Entry { host, addresses: vec![], version: "1".into(), groups, capabilities, key: None }
    }

    #[tokio::test(start_paused = true)]
    async fn a_registration_ends_when_its_lease_expires_and_not_before() {
        const TTL: Duration = Duration::from_secs(3);
        let state = tempfile::tempdir().unwrap();
        let engine = Local::open(LocalConfig::new(state.path())).unwrap();
        let mut events = engine.watch(&name("local"));
        assert_eq!(events.next().await, Some(Ok(Event::Synced)));
        let leases = Leases::default();
        let older = leases.register(&engine, &entry(), TTL, || Ok::<_, EngineError>(())).await.unwrap();
        let registration =
            leases.register(&engine, &entry(), TTL, || Ok::<_, EngineError>(())).await.unwrap();
        for _ in 0..2 {
            assert_eq!(events.next().await, Some(Ok(Event::Up(entry()))));
        }
        assert_eq!(leases.renew(&name("b"), &older), Err(LeaseError::Displaced));
        assert_eq!(leases.deregister(&name("b"), &older), Err(LeaseError::Displaced));
        for _ in 0..5 {
            tokio::time::advance(TTL - Duration::from_millis(1)).await;
            assert_eq!(leases.renew(&name("b"), &registration), Ok(TTL));
        }
        let renewed = Instant::now();
        assert_eq!(events.next().await, Some(Ok(Event::Down(name("b")))));
        let held = renewed.elapsed();
        assert!(TTL <= held && held < TTL + Duration::from_millis(100), "{held:?}");
        assert_eq!(leases.renew(&name("b"), &registration), Err(LeaseError::Unregistered));
        assert!(!leases.holds(&name("b")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspension_of_this_station_does_not_end_a_lease() {
        const TTL: Duration = Duration::from_secs(10);
        let state = tempfile::tempdir().unwrap();
        let engine = Local::open(LocalConfig::new(state.path())).unwrap();
        let leases = Leases::default();
        let registration =
            leases.register(&engine, &entry(), TTL, || Ok::<_, EngineError>(())).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        // All timers expire late at the same time.
        tokio::time::advance(Duration::from_secs(15)).await;
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(leases.renew(&name("b"), &registration), Ok(TTL));
        tokio::time::advance(Duration::from_secs(15)).await;
        tokio::time::sleep(TTL + Duration::from_millis(100)).await;
        assert!(!leases.holds(&name("b")), "one lease more, and no longer");
    }
}
