//! Connection to the directory: keeps the station's entry registered under a lease, and watches
//! each group. Both tasks retry after failures, with growing pauses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use barograph_engine::{Capabilities, Engine, Entry, Error, Event, Lease, LeaseState};
use barograph_forecast::Name;
use futures_util::StreamExt;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout};

use super::addresses;
use super::engine::Kind;
use super::mesh_state::MeshState;
use super::rests::{chance, spread};
use crate::config::MeshConfig;

/// Message of a watch about its group.
#[derive(Debug)]
pub(super) enum Told {
    /// The watch starts, perhaps again; a snapshot follows.
    Began,
    /// An event of the directory.
    Event(Event),
    Ended,
}

/// Data from which this station makes its entry.
#[derive(Clone)]
pub(super) struct Card {
    pub(super) host: Name,
    pub(super) listen: SocketAddr,
    pub(super) config: MeshConfig,
    pub(super) key: [u8; 32],
}

impl Card {
    /// Current addresses at which others reach this station.
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
            },
            key: Some(self.key),
        }
    }
}

/// Keeps this station registered until its task is aborted. `again` is notified when it must
/// register again.
pub(super) async fn stay_registered(
    engine: Arc<dyn Engine>,
    card: Card,
    mesh_state: Arc<MeshState>,
    again: Arc<Notify>,
) {
    let mut pause = PAUSE_MIN;
    // The old lease is dropped when the new one exists, so that the station always has one.
    let mut held: Option<Box<dyn Lease>> = None;
    loop {
        let entry = card.entry(mesh_state.standing().groups);
        mesh_state.set_directory(|directory| {
            // Events about the previous registration may still arrive.
            let skipped = directory.given.len().saturating_sub(GIVEN - 1);
            directory.given.drain(..skipped);
            directory.given.push(entry.addresses.clone());
        });
        match within_limit(engine.register(&entry, card.config.lease)).await {
            Ok(lease) => {
                // Set before the old lease is dropped, because the directory may report its end.
                mesh_state.set_directory(|directory| {
                    (directory.is_registered, directory.was_registered) = (true, true);
                    (directory.refused, directory.displaced, directory.is_vacant) = (None, None, false);
                    directory.denied = None;
                });
                let is_first = held.is_none();
                let lease = held.insert(lease);
                if is_first {
                    tracing::info!(
                        "registered in the mesh's directory as {}, at {}",
                        card.host,
                        shown(&entry)
                    );
                }
                pause = PAUSE_MIN;
                until_news(&card, &entry, &**lease, &mesh_state, &again).await;
            }
            Err(error) => {
                let message = format!("this station cannot be registered: {error}");
                if mesh_state.directory().refused.as_ref() != Some(&message) {
                    tracing::warn!("{message}; measuring goes on, and it is tried again");
                }
                let denied = matches!(error, Error::Denied(_)).then(|| what_to_do(&mesh_state.kind, &error));
                mesh_state.set_directory(|directory| {
                    (directory.refused, directory.denied) = (Some(message), denied);
                });
                // A watch notifies when the directory responds again.
                let _ = timeout(spread(pause, chance()), again.notified()).await;
                pause = PAUSE_MAX.min(pause * 2);
            }
        }
    }
}

/// Advice for the operator, as a sentence, if the directory rejects this station: retrying alone
/// does not help.
fn what_to_do(kind: &Kind, error: &Error) -> String {
    match kind {
        Kind::Remote(url) => format!(
            "{url} does not let this station in ({error}): run `barograph invite` there, and start this station with \
             the new token (BAROGRAPH_JOIN_TOKEN or mesh.join_token_file)"
        ),
        _ => format!("the mesh does not let this station in ({error})"),
    }
}

/// Time for which a peer may be missing from snapshots before it is lost, for a station with this
/// lease: the time until all stations have registered again or the lease has ended, whichever is
/// longer, plus one second.
pub(super) fn grace(lease: Duration) -> Duration {
    lease.max(RETURN_MAX) + Duration::from_secs(1)
}

/// Waits until the station must register again: its entry has changed, or the directory has lost
/// it. While another station has the name, continues to wait, because the two stations would
/// displace each other for ever.
async fn until_news(
    card: &Card,
    registered: &Entry,
    lease: &dyn Lease,
    mesh_state: &MeshState,
    again: &Notify,
) {
    let mut looked = Instant::now();
    let mut displaced = false;
    loop {
        let notified = tokio::select! {
            () = sleep(LOOK_AT_LEASE) => false,
            () = again.notified() => true,
        };
        match lease.state() {
            LeaseState::Displaced if !displaced && !mesh_state.directory().is_vacant => {
                displaced = true;
                tell_displaced(card, mesh_state);
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
        if LOOK_EVERY <= looked.elapsed() {
            looked = Instant::now();
            if card.addresses() != registered.addresses {
                tracing::info!("this host's addresses have changed");
                return;
            }
        }
    }
}

/// Reports that the directory gave the name to another registration.
fn tell_displaced(card: &Card, mesh_state: &MeshState) {
    let message = format!(
        "another process has registered as `{}`, perhaps a copy of this station: give one of them another name \
         (host = …) and a state directory of its own",
        card.host
    );
    if mesh_state.directory().conflict().is_none() {
        tracing::error!("{message}");
    }
    mesh_state.set_directory(|directory| {
        (directory.is_registered, directory.displaced) = (false, Some(message));
    });
}

/// Watches a group and sends its events to `told`. Ends when its task is aborted or the receiver is
/// dropped.
pub(super) async fn keep_watching(
    engine: Arc<dyn Engine>,
    group: Name,
    mesh_state: Arc<MeshState>,
    told: mpsc::Sender<(Name, Told)>,
    again: Arc<Notify>,
) {
    let mut pause = PAUSE_MIN;
    let mut is_first = true;
    loop {
        let mut events = engine.watch(&group);
        let mut synced = false;
        if told.send((group.clone(), Told::Began)).await.is_err() {
            return;
        }
        let why = loop {
            let Some(event) = events.next().await else { break Error::Unavailable("the watch ended".into()) };
            match event {
                Ok(event) => {
                    if matches!(event, Event::Synced) && !synced {
                        synced = true;
                        pause = PAUSE_MIN;
                        if !std::mem::take(&mut is_first) {
                            // The directory may have been restarted, and the next renewal may be
                            // minutes away.
                            again.notify_one();
                        }
                        mesh_state.set_directory(|directory| {
                            directory.watching.insert(group.clone());
                            directory.unwatched = None;
                        });
                    }
                    if told.send((group.clone(), Told::Event(event))).await.is_err() {
                        return;
                    }
                }
                Err(error) => break error,
            }
        };
        drop(events);
        let message = format!("the group {group} cannot be watched: {why}");
        if mesh_state.directory().unwatched.as_ref() != Some(&message) {
            tracing::warn!("{message}; the peers known last are measured, and it is tried again");
        }
        mesh_state.set_directory(|directory| {
            directory.watching.remove(&group);
            directory.unwatched = Some(message);
        });
        if told.send((group.clone(), Told::Ended)).await.is_err() {
            return;
        }
        is_first = false;
        sleep(spread(pause, chance())).await;
        pause = PAUSE_MAX.min(pause * 2);
    }
}

async fn within_limit<T>(future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match timeout(ANSWER, future).await {
        Ok(result) => result,
        Err(_) => Err(Error::Unavailable(format!("no answer for {} s", ANSWER.as_secs()))),
    }
}

fn shown(entry: &Entry) -> String {
    let addresses: Vec<String> = entry.addresses.iter().map(ToString::to_string).collect();
    if addresses.is_empty() { "no address".into() } else { addresses.join(", ") }
}

/// First and longest pause after a failure. The first pauses are short, so that stations soon find
/// a directory that was restarted. Later pauses are long, so that a directory that was away for
/// long does not get requests of thousands of stations at once.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Longest time for a request to an engine. An engine may have no deadline of its own.
const ANSWER: Duration = Duration::from_secs(30);
/// Time in which all stations have registered again after a restart of the directory: the longest
/// pause, up to a quarter more by random variation, and some seconds for the two requests. A
/// station detects the restart when its watch ends, and registers when the next watch works.
const RETURN_MAX: Duration = Duration::from_secs(30);
/// Time between two checks of the lease, which cost nothing.
const LOOK_AT_LEASE: Duration = Duration::from_secs(1);
/// Number of newest registrations to remember: events of the directory may still contain them.
const GIVEN: usize = 2;
/// Time between two checks of this host's addresses, which DHCP and tunnels change.
const LOOK_EVERY: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
