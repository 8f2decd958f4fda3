//! Connection to the directory: keeps the station's entry registered under a lease, and watches
//! each group. Both tasks retry after failures, with growing pauses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use barograph_engine::{Capabilities, Engine, EngineError, Entry, Event, Lease, LeaseState};
use barograph_forecast::Name;
use futures_util::StreamExt;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout};

use super::addresses;
use super::check_backoff::{chance, spread};
use super::engine::EngineLocation;
use super::mesh_state::MeshState;
use crate::config::MeshConfig;

/// Message of a watch about its group.
#[derive(Debug)]
pub(super) enum WatchMessage {
    /// The watch has started, for the first time or again. A snapshot of the group follows.
    Began,
    /// An event of the directory.
    Event(Event),
    Ended,
}

/// Data from which this station makes its entry.
#[derive(Clone)]
pub(super) struct OwnEntry {
    pub(super) host: Name,
    pub(super) listen: SocketAddr,
    pub(super) config: MeshConfig,
    pub(super) key: [u8; 32],
}

impl OwnEntry {
    /// Current addresses at which other stations reach this station.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        if self.config.advertise.is_empty() {
            addresses::own(self.listen, &addresses::interfaces())
        } else {
            self.config.advertise.clone()
        }
    }

    fn entry(&self, groups: Vec<Name>) -> Entry {
        Entry {
            host: self.host.clone(),
            addresses: self.addresses(),
            version: env!("CARGO_PKG_VERSION").into(),
            groups,
            capabilities: Capabilities {
                responder: true,
                bulk: self.config.bulk,
                archive: self.config.archive,
                iperf3: self.config.wants_iperf3() && super::iperf3_usable().is_ok(),
                trains: self.config.wants_early_tests(),
            },
            key: Some(self.key),
        }
    }
}

/// Keeps this station registered until the task that runs this function is aborted. `reregister` is
/// notified when this station must register again.
pub(super) async fn stay_registered(
    engine: Arc<dyn Engine>,
    own_entry: OwnEntry,
    mesh_state: Arc<MeshState>,
    reregister: Arc<Notify>,
) {
    let mut pause = PAUSE_MIN;
    // The old lease is dropped only when the new lease exists, so that the station always has a
    // lease.
    let mut held: Option<Box<dyn Lease>> = None;
    loop {
        let entry = own_entry.entry(mesh_state.site_assignment().groups);
        mesh_state.set_directory(|directory| {
            // Events about the previous registration may still arrive.
            let skipped = directory.registered_addresses.len().saturating_sub(REGISTRATIONS_KEPT - 1);
            directory.registered_addresses.drain(..skipped);
            directory.registered_addresses.push(entry.addresses.clone());
        });
        match within_limit(engine.register(&entry, own_entry.config.lease)).await {
            Ok(lease) => {
                // Change this state before the old lease is dropped, because the directory may
                // report the end of the old lease.
                mesh_state.set_directory(|directory| {
                    (directory.is_registered, directory.was_registered) = (true, true);
                    (directory.registration_error, directory.lease_conflict, directory.is_vacant) =
                        (None, None, false);
                    directory.denied_advice = None;
                });
                let is_first = held.is_none();
                let lease = held.insert(lease);
                if is_first {
                    tracing::info!(
                        "registered in the mesh's directory as {}, at {}",
                        own_entry.host,
                        shown(&entry)
                    );
                }
                pause = PAUSE_MIN;
                until_reregister(&own_entry, &entry, &**lease, &mesh_state, &reregister).await;
            }
            Err(error) => {
                let message = format!("cannot register this station: {error}");
                if mesh_state.directory().registration_error.as_ref() != Some(&message) {
                    tracing::warn!("{message}; measuring continues, and registration retries automatically");
                }
                let denied =
                    matches!(error, EngineError::Denied(_)).then(|| what_to_do(&mesh_state.location, &error));
                mesh_state.set_directory(|directory| {
                    (directory.registration_error, directory.denied_advice) = (Some(message), denied);
                });
                // A watch notifies `reregister` when the directory responds again.
                let _ = timeout(spread(pause, chance()), reregister.notified()).await;
                pause = PAUSE_MAX.min(pause * 2);
            }
        }
    }
}

/// Advice for the operator, as a sentence, if the directory rejects this station: retrying alone
/// does not help.
fn what_to_do(location: &EngineLocation, error: &EngineError) -> String {
    match location {
        EngineLocation::Remote(url) => format!(
            "{url} rejects this station ({error}): run `barograph invite` there, and restart this station with the new \
             token (BAROGRAPH_JOIN_TOKEN or mesh.join_token_file)"
        ),
        _ => {
            format!("the mesh rejects this station ({error}): check its credentials (mesh.nats_credentials)")
        }
    }
}

/// Time for which a peer may be missing from snapshots before this station marks the peer as lost.
/// This time is the longer of two times, plus one second: `lease`, and the time in which all
/// stations register again after a restart of the directory.
pub(super) fn grace(lease: Duration) -> Duration {
    lease.max(RETURN_MAX) + Duration::from_secs(1)
}

/// Waits until this station must register again, because its entry has changed or the directory has
/// lost its registration. While a different station has the name, the function continues to wait.
/// Otherwise the two stations would displace each other for ever.
async fn until_reregister(
    own_entry: &OwnEntry,
    registered: &Entry,
    lease: &dyn Lease,
    mesh_state: &MeshState,
    reregister: &Notify,
) {
    let mut addresses_checked_at = Instant::now();
    let mut displaced = false;
    loop {
        let notified = tokio::select! {
            () = sleep(LEASE_CHECK_PERIOD) => false,
            () = reregister.notified() => true,
        };
        match lease.state() {
            LeaseState::Displaced if !displaced && !mesh_state.directory().is_vacant => {
                displaced = true;
                report_displaced(own_entry, mesh_state);
            }
            state => {
                let is_held = state == LeaseState::Held;
                if mesh_state.directory().is_registered != is_held {
                    mesh_state.set_directory(|directory| directory.is_registered = is_held);
                }
            }
        }
        let directory = mesh_state.directory();
        if directory.conflict().is_some() && !directory.is_vacant {
            continue;
        }
        if notified {
            return;
        }
        if addresses_checked_at.elapsed() >= ADDRESS_CHECK_PERIOD {
            addresses_checked_at = Instant::now();
            if own_entry.addresses() != registered.addresses {
                tracing::info!("this host's addresses have changed");
                return;
            }
        }
    }
}

/// Reports that the directory gave the name to another registration.
fn report_displaced(own_entry: &OwnEntry, mesh_state: &MeshState) {
    let message = format!(
        "another process has registered as `{}`, perhaps a copy of this station; give one of them another name \
         (host = …) and its own state directory",
        own_entry.host
    );
    if mesh_state.directory().conflict().is_none() {
        tracing::error!("{message}");
    }
    mesh_state.set_directory(|directory| {
        (directory.is_registered, directory.lease_conflict) = (false, Some(message));
    });
}

/// Watches a group and sends its events to `messages`. Ends when its task is aborted or the
/// receiver is dropped.
pub(super) async fn keep_watching(
    engine: Arc<dyn Engine>,
    group: Name,
    mesh_state: Arc<MeshState>,
    messages: mpsc::Sender<(Name, WatchMessage)>,
    reregister: Arc<Notify>,
) {
    let mut pause = PAUSE_MIN;
    let mut is_first = true;
    loop {
        let mut events = engine.watch(&group);
        let mut synced = false;
        if messages.send((group.clone(), WatchMessage::Began)).await.is_err() {
            return;
        }
        let why = loop {
            let Some(event) = events.next().await else {
                break EngineError::Unavailable("the watch ended".into());
            };
            match event {
                Ok(event) => {
                    if matches!(event, Event::Synced) && !synced {
                        synced = true;
                        pause = PAUSE_MIN;
                        if !std::mem::take(&mut is_first) {
                            // The directory may have been restarted, and the next renewal may be
                            // minutes away.
                            reregister.notify_one();
                        }
                        mesh_state.set_directory(|directory| {
                            directory.watching.insert(group.clone());
                            directory.watch_error = None;
                        });
                    }
                    if messages.send((group.clone(), WatchMessage::Event(event))).await.is_err() {
                        return;
                    }
                }
                Err(error) => break error,
            }
        };
        drop(events);
        let message = format!("cannot watch the group {group}: {why}");
        if mesh_state.directory().watch_error.as_ref() != Some(&message) {
            tracing::warn!("{message}; known peers are still measured; retries automatically");
        }
        mesh_state.set_directory(|directory| {
            directory.watching.remove(&group);
            directory.watch_error = Some(message);
        });
        if messages.send((group.clone(), WatchMessage::Ended)).await.is_err() {
            return;
        }
        is_first = false;
        sleep(spread(pause, chance())).await;
        pause = PAUSE_MAX.min(pause * 2);
    }
}

async fn within_limit<T>(future: impl Future<Output = Result<T, EngineError>>) -> Result<T, EngineError> {
    match timeout(ANSWER, future).await {
        Ok(result) => result,
        Err(_) => Err(EngineError::Unavailable(format!("no answer for {} s", ANSWER.as_secs()))),
    }
}

fn shown(entry: &Entry) -> String {
    let addresses: Vec<String> = entry.addresses.iter().map(ToString::to_string).collect();
    if addresses.is_empty() { "no address".into() } else { addresses.join(", ") }
}

/// First and longest pause after a failure. The first pauses are short, so that stations soon find
/// a directory that was restarted. Later pauses are long, so that after a long outage the directory
/// does not get requests of thousands of stations at once.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Time limit for a request to an engine, because an engine may have no time limit of its own.
const ANSWER: Duration = Duration::from_secs(30);
/// Time in which all stations have registered again after a restart of the directory: the longest
/// pause, which random variation makes up to a quarter longer, and some seconds for the two
/// requests. A station detects the restart when its watch ends, and registers when the next watch
/// works.
const RETURN_MAX: Duration = Duration::from_secs(30);
/// Time between two checks of the lease. A check sends no request.
const LEASE_CHECK_PERIOD: Duration = Duration::from_secs(1);
/// Number of newest registrations to remember, because events of the directory may still contain
/// their addresses.
const REGISTRATIONS_KEPT: usize = 2;
/// Time between two checks of this host's addresses, which DHCP and tunnels change.
const ADDRESS_CHECK_PERIOD: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
