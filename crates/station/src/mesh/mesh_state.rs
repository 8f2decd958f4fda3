//! Current state of the mesh. The thread `directory` writes this state; the API and the prober read
//! the state. Locks are held only for a short time.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use barograph_engine::{Engine, EngineError, Entry, Local, LocalStatistics, ReadOnly};
use barograph_forecast::Name;
use tokio::sync::Notify;

use super::engine::{Archiver, ArchiverStatistics, EngineLocation, Spool};
use super::events::Events;
use super::latency::{Latencies, LatencyDistribution};
use super::peers::Peers;
use super::removals::Removals;
use super::removed::RemovedStations;
use super::{Engines, PeerState};
use crate::config::MeshConfig;
use crate::health::Health;
use crate::limits::Limit;
use crate::mesh::identity::{Identity, SignatureError};
use crate::mesh::sites;
use crate::sync::lock;

/// State of the mesh, which the threads of a station share.
pub(crate) struct MeshState {
    pub(crate) identity: Arc<Identity>,
    pub(crate) location: EngineLocation,
    pub(crate) events: Events,
    pub(crate) latencies: Latencies,
    pub(crate) removed: RemovedStations,
    /// Times at which stations were removed, so that sessions which a station opened before its
    /// removal end.
    removals: Mutex<Removals>,
    peers: Mutex<Peers>,
    directory: Mutex<DirectoryConnection>,
    site_assignment: Mutex<sites::SiteAssignment>,
    /// Notified when the station's groups have changed.
    pub(super) regrouped: Notify,
    spool: Option<Arc<dyn Fn() -> Spool + Send + Sync>>,
    /// Archive that stores records of other stations. The reference is weak, so that the archive
    /// closes when the station has stopped.
    foreign_archive: Weak<Local>,
    /// Copies the mesh's stream into this archive.
    archiver: Weak<Archiver>,
    /// Engine that reports whether the directory accepts writes. The reference is weak, so that the
    /// engine can close.
    engine: Weak<dyn Engine>,
    lease: Duration,
    /// Notified when the addresses of a peer need a check.
    pub(super) doubt: Notify,
    /// Number of events that were dropped before they reached the command or the webhook.
    pub(super) hooks_dropped: AtomicU64,
}

/// State and counters of the mesh for `/metrics`.
#[derive(Clone, Debug)]
pub(crate) struct MeshMetrics {
    pub(crate) is_connected: bool,
    pub(crate) is_read_only: bool,
    /// Number of stations in each state.
    pub(crate) peers: [(&'static str, usize); 3],
    pub(crate) hooks_dropped: u64,
    pub(crate) spool: Option<Spool>,
    /// Number of messages of the NATS stream that this station's archive has not read yet; `None` =
    /// the archive does not read the stream.
    pub(crate) archive_lag: Option<u64>,
    pub(crate) latencies: Vec<LatencyDistribution>,
}

/// State of the station's connection to the directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct DirectoryConnection {
    /// Why the last registration failed; `None` if the last registration succeeded.
    pub(super) registration_error: Option<String>,
    /// Advice for the operator, as a sentence, if the directory rejects this station's invitation.
    pub(super) denied_advice: Option<String>,
    pub(super) is_registered: bool,
    /// Groups that are watched. `watch_error` is the reason why a group of [`Self::groups`] is not
    /// watched.
    pub(super) watching: BTreeSet<Name>,
    pub(super) watch_error: Option<String>,
    /// Groups that should be watched.
    pub(super) groups: Vec<Name>,
    /// `Some` while the directory can be read but accepts no writes.
    pub(super) read_only: Option<ReadOnly>,
    /// Since when [`Self::is_connected`] is false.
    pub(super) away_since: Option<Instant>,
    /// Whether the station was registered in this run.
    pub(super) was_registered: bool,
    /// Whether [`Self::is_connected`] was true in this run.
    pub(super) was_connected: bool,
    /// Addresses of the newest registrations of this run, the newest last.
    pub(super) registered_addresses: Vec<Vec<SocketAddr>>,
    /// Conflict with a different station that uses this station's name, as the watch of the
    /// directory reported it.
    pub(super) conflict: Option<String>,
    /// Conflict with a different station that uses this station's name, as the lease of this
    /// station reported it.
    pub(super) lease_conflict: Option<String>,
    /// Whether no station is registered under this station's name.
    pub(super) is_vacant: bool,
    /// Number of hosts that were ignored because the mesh has too many hosts.
    pub(crate) ignored_hosts: u64,
}

impl DirectoryConnection {
    /// Whether this station is registered and watches all its groups.
    pub(crate) fn is_connected(&self) -> bool {
        let is_watching = self.groups.iter().all(|group| self.watching.contains(group));
        self.is_registered && is_watching && self.registration_error.is_none() && self.conflict().is_none()
    }

    /// Why the station is not connected; `None` if the station is connected.
    pub(crate) fn reason(&self) -> Option<&str> {
        if self.is_connected() {
            return None;
        }
        if let Some(read_only) = self.read_only.as_ref().filter(|_| self.conflict().is_none()) {
            return Some(&read_only.error);
        }
        let why = self.registration_error.as_deref().or(self.watch_error.as_deref()).or(self.conflict());
        let unknown = if self.was_registered { LAPSED } else { "no response yet" };
        Some(why.unwrap_or(unknown))
    }

    /// Seconds for which the station has not been connected; `None` if it is connected.
    pub(crate) fn away_s(&self) -> Option<f64> {
        self.away_since.map(|since| since.elapsed().as_secs_f64())
    }

    /// Time in seconds for which the directory could be read but accepted no writes; `None` if the
    /// directory accepts writes or cannot be read.
    pub(crate) fn read_only_s(&self) -> Option<f64> {
        self.read_only.as_ref().map(|read_only| read_only.since.elapsed().as_secs_f64())
    }

    /// Describes a different station that is registered under this station's name.
    pub(crate) fn conflict(&self) -> Option<&str> {
        self.conflict.as_deref().or(self.lease_conflict.as_deref())
    }

    /// Addresses of this station's newest registration; empty before the first registration.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        self.registered_addresses.last().map_or(&[], Vec::as_slice)
    }

    /// Returns advice for the operator, as a sentence, if `entry` has this station's name, but its
    /// key or addresses show that it belongs to another station.
    pub(super) fn conflict_with(&self, entry: &Entry, key: [u8; 32]) -> Option<String> {
        let has_other_key = entry.key != Some(key);
        // The first registration of this run replaces an entry of an earlier run.
        let is_copy = self.was_registered && !self.registered_addresses.contains(&entry.addresses);
        (has_other_key || is_copy).then(|| {
            let at: Vec<String> = entry.addresses.iter().take(2).map(ToString::to_string).collect();
            let (what, how) = if has_other_key {
                ("", "")
            } else {
                (" with this station's key", " and its own state directory")
            };
            format!(
                "another station{what} is registered as `{}` (at {}); set another name (host = …){how} on one of them",
                entry.host,
                at.join(", ")
            )
        })
    }

    /// Sets `away_since` to `now` when the connection is lost, and to `None` when the station is
    /// connected. Sets `was_connected`.
    fn update_connection(&mut self, now: Instant) {
        let is_connected = self.is_connected();
        self.was_connected |= is_connected;
        self.away_since = if is_connected { None } else { self.away_since.or(Some(now)) };
    }
}

impl MeshState {
    pub(crate) fn new(
        identity: Arc<Identity>,
        engines: &Engines,
        mesh: &MeshConfig,
        assignment: sites::SiteAssignment,
        removed: RemovedStations,
    ) -> Self {
        let groups = assignment.groups.clone();
        let away_since = Some(Instant::now());
        let directory = DirectoryConnection { groups, away_since, ..DirectoryConnection::default() };
        Self {
            identity,
            location: engines.location.clone(),
            events: Events::new(u64::try_from(now_s_of_events().as_millis()).unwrap_or(0)),
            latencies: Latencies::default(),
            removed,
            removals: Mutex::default(),
            peers: Mutex::default(),
            directory: Mutex::new(directory),
            site_assignment: Mutex::new(assignment),
            regrouped: Notify::new(),
            spool: engines.spool.clone(),
            foreign_archive: engines.foreign_archive.as_ref().map_or_else(Weak::new, Arc::downgrade),
            archiver: engines.archiver.as_ref().map_or_else(Weak::new, Arc::downgrade),
            engine: Arc::downgrade(&engines.engine),
            lease: mesh.lease,
            doubt: Notify::new(),
            hooks_dropped: AtomicU64::new(0),
        }
    }

    /// Site and groups of this station.
    pub(crate) fn site_assignment(&self) -> sites::SiteAssignment {
        lock(&self.site_assignment).clone()
    }

    /// Changes the site and groups of this station.
    pub(crate) fn set_site_assignment(&self, assignment: sites::SiteAssignment) {
        let before = std::mem::replace(&mut *lock(&self.site_assignment), assignment.clone());
        if before.groups != assignment.groups {
            self.regrouped.notify_one();
        }
    }

    /// Locks the table of peers. Hold the lock only for moments.
    pub(crate) fn peers(&self) -> MutexGuard<'_, Peers> {
        lock(&self.peers)
    }

    /// State of the station's connection to the directory.
    pub(crate) fn directory(&self) -> DirectoryConnection {
        DirectoryConnection { read_only: self.read_only(), ..lock(&self.directory).clone() }
    }

    /// Why the directory accepts no writes although it can be read, and since when. While this
    /// function returns a reason, no peer is marked as lost.
    pub(crate) fn read_only(&self) -> Option<ReadOnly> {
        self.engine.upgrade()?.read_only()
    }

    pub(super) fn set_directory(&self, change: impl FnOnce(&mut DirectoryConnection)) {
        let mut directory = lock(&self.directory);
        change(&mut directory);
        directory.update_connection(Instant::now());
    }

    /// State of the spool; `None` if the station has joined no mesh.
    pub(crate) fn spool(&self) -> Option<Spool> {
        self.spool.as_ref().map(|figures| figures())
    }

    /// Statistics of the archive that stores records of other stations; `None` if this station has
    /// no such archive.
    pub(crate) fn archive(&self) -> Option<LocalStatistics> {
        self.foreign_archive.upgrade().map(|archive| archive.statistics())
    }

    /// Removes a station from the list of removed stations, because the station is back.
    pub(crate) fn readmit(&self, host: &Name) {
        if self.removed.remove(host) {
            // Wake the thread that writes the list to its file.
            self.doubt.notify_one();
        }
    }

    /// Whether a station of this name ever forwarded a record to this station's archive.
    pub(crate) async fn has_forwarded(&self, name: &Name) -> Result<bool, EngineError> {
        match self.foreign_archive.upgrade() {
            Some(archive) => archive.has_forwarded(name).await,
            None => Ok(false),
        }
    }

    /// Statistics of the archiver that reads the mesh's stream; `None` if this station has no
    /// archiver.
    fn archiver(&self) -> Option<ArchiverStatistics> {
        self.archiver.upgrade().map(|archiver| archiver.statistics())
    }

    /// Reports to `health` how many hosts, events and records were refused or dropped by the table
    /// of peers, the hooks, the spool and the archive of the mesh.
    pub(crate) fn report_refusals(&self, health: &Health) {
        health.refused_in_all(Limit::Peers, lock(&self.directory).ignored_hosts);
        health.refused_in_all(Limit::Hooks, self.hooks_dropped());
        if let Some(spool) = self.spool() {
            health.refused_in_all(Limit::MeshSpool, spool.refused_full);
            health.refused_in_all(Limit::MeshRecords, spool.refused + spool.conflicting);
        }
        let Some(LocalStatistics { dropped_by_cause, .. }) = self.archive() else { return };
        let archiver = self.archiver().unwrap_or_default();
        for (limit, total) in [
            (Limit::ArchiveSeries, dropped_by_cause.series),
            (Limit::ArchiveMemberSeries, dropped_by_cause.member_series),
            (Limit::ArchiveOld, dropped_by_cause.old),
            (Limit::ArchiveForeign, dropped_by_cause.foreign + archiver.discarded),
            (Limit::ArchiveOrigins, dropped_by_cause.origins),
            (Limit::ArchiveGaps, dropped_by_cause.gaps),
            (Limit::ArchiveNumbers, dropped_by_cause.numbers),
            (Limit::StreamMissed, archiver.missed),
        ] {
            health.refused_in_all(limit, total);
        }
    }

    /// Number of events that the command or the webhook did not receive, because the queue was full
    /// or because a newer event of the same host replaced the event.
    pub(crate) fn hooks_dropped(&self) -> u64 {
        self.hooks_dropped.load(Ordering::Relaxed)
    }

    /// Records the end of an experiment with a peer. Never waits.
    pub(crate) fn measured(&self, host: &Name, answered: bool) {
        if self.peers().measured(host, answered) {
            self.doubt.notify_one();
        }
    }

    /// Records that a station was removed now. The sessions of this station end.
    pub(super) fn end_sessions(&self, host: &Name) {
        lock(&self.removals).insert(host, Instant::now());
    }

    /// Whether a session may continue. The station `host` signed the request for this session at
    /// `signed_at`. The station must still be allowed to request experiments, and must not have
    /// been removed since then. After a removal, a different station may have the name.
    pub(super) fn may_still_request(&self, host: &Name, signed_at: Instant) -> bool {
        self.may_request(host) && !lock(&self.removals).ended(host, signed_at)
    }

    /// Whether the station `host` may request experiments from this station now.
    pub(super) fn may_request(&self, host: &Name) -> bool {
        self.key(host).is_some()
    }

    /// Verifies a signed request and returns the caller's name.
    pub(crate) fn verify(
        &self,
        authorization: &str,
        method: &str,
        path: &str,
    ) -> Result<Name, SignatureError> {
        self.identity.verify(authorization, method, path, |host| self.key(host))
    }

    fn key(&self, host: &Name) -> Option<Option<[u8; 32]>> {
        // A station that serves the directory knows which members were removed.
        let must_be_named = self.location != EngineLocation::Local && self.directory().was_connected;
        self.peers().key(host, Instant::now(), self.lease, must_be_named)
    }

    /// Number of stations in each state: up, lost, ignored.
    pub(crate) fn counts(&self) -> [(&'static str, usize); 3] {
        let peers = self.peers();
        let count = |word| (word, peers.all().filter(|peer| peer.state.as_str() == word).count());
        let words = [PeerState::Up, PeerState::Lost, PeerState::Ignored(String::new())];
        words.map(|state| count(state.as_str()))
    }

    /// State and counters of the mesh for `/metrics`. `host` is this station.
    pub(crate) fn figures(&self, host: &Name) -> MeshMetrics {
        MeshMetrics {
            is_connected: self.directory().is_connected(),
            is_read_only: self.read_only().is_some(),
            peers: self.counts(),
            hooks_dropped: self.hooks_dropped(),
            spool: self.spool(),
            archive_lag: self.archiver().map(|archiver| archiver.lag),
            latencies: self.distributions(host),
        }
    }

    /// Latency distributions of the exchanges of this station with its peers. `host` is this
    /// station. Removed peers are left out, even if an exchange ended after the removal.
    pub(crate) fn distributions(&self, host: &Name) -> Vec<LatencyDistribution> {
        let mut distributions = self.latencies.distributions(host, Instant::now());
        distributions.retain(|distribution| !self.removed.contains(&distribution.series.target));
        distributions
    }

    /// Stations that send records with time labels too far in the future, and by how much.
    pub(crate) fn clocks_ahead(&self) -> Vec<(Name, Duration)> {
        self.foreign_archive.upgrade().map_or_else(Vec::new, |archive| archive.clocks_ahead())
    }

    /// Problems of the mesh, as sentences for `/healthz`.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        let directory = self.directory();
        let read_only = directory.read_only.as_ref().filter(|_| directory.denied_advice.is_none());
        if let Some(read_only) = read_only {
            // Report only an outage that is longer than a lease, because a shorter outage ends no
            // registration.
            let since = Some(read_only.since.elapsed()).filter(|since| self.lease <= *since);
            reasons.extend(since.map(|since| {
                format!(
                    "the mesh's directory has been read-only for {} s ({}): {READ_ONLY}",
                    since.as_secs(),
                    read_only.error
                )
            }));
        } else if let Some(away) =
            directory.away_since.map(|since| since.elapsed()).filter(|away| *away > AWAY_MATTERS)
            && directory.conflict().is_none()
            && directory.denied_advice.is_none()
        {
            let why = directory.reason().unwrap_or_default();
            reasons.push(format!("no connection to the mesh's directory for {} s: {why}", away.as_secs()));
        }
        reasons.extend(directory.conflict().map(String::from));
        reasons.extend(directory.denied_advice);
        if self.spool().is_some_and(|spool| spool.is_full) {
            let key = "mesh.spool_records_max";
            reasons.push(format!("the spool for the mesh is full ({key}); new records are refused"));
        }
        reasons
    }
}

/// Current wall-clock time, in seconds since 1970-01-01 UTC.
pub(super) fn now_s() -> f64 {
    now_s_of_events().as_secs_f64()
}

fn now_s_of_events() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Reason that is shown if a station was registered, is not connected, and no other reason is
/// known.
const LAPSED: &str = "this station's registration has expired or was lost; retries automatically";
/// Text for `/healthz`: the effect of a directory that takes no writes, and advice for the
/// operator.
const READ_ONLY: &str = "peers are still measured, but no station can join. Start the NATS servers that are down, or \
                         free disk space on a server and restart it";
/// Time without connection to the directory after which `/healthz` reports this. If the station
/// that serves the mesh restarts, the interruption takes seconds; a minute is an outage.
const AWAY_MATTERS: Duration = Duration::from_secs(60);
