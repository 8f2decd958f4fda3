//! The thread that maintains the table of peers. When an event of the directory arrives, this
//! thread updates the targets, publishes peer events and calls hooks.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use barograph_api::PeerChange;
use barograph_engine::{Engine, Entry, Event, LogLimiter, TaskStatus};
use barograph_forecast::Name;
use barograph_mesh::roster::{MembershipChange, Roster};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::check::{PeerUnreachable, first_that_answers};
use super::check_backoff::{CheckBackoff, chance};
use super::directory::{OwnEntry, WatchMessage, grace, stay_registered};
use super::events;
use super::hook::Hooks;
use super::mesh_state::{MeshState, now_s};
use super::peers::{LocalStation, PeerState};
use super::removed::Removed;
use super::watches::Watches;
use super::{PEERS_MAX, peers_file};
use crate::config::Config;
use crate::health::Health;
use crate::mesh::sites::Sites;
use crate::state::StateFiles;
use crate::target::{Provenance, Target};
use crate::time::now_unix_ns;

/// Handle of the thread `directory`. Stopping the thread withdraws the station from the directory.
#[derive(Debug)]
pub(crate) struct Registrar {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

/// Callback after the check of a peer. Arguments: the name of the peer, the period of its latency
/// tests, and the reason if the check did not find the peer.
type OnChecked = dyn Fn(&Name, Duration, Option<&PeerUnreachable>) + Send + Sync;

/// Parts of the station that the thread uses.
pub(crate) struct RegistrarDependencies {
    pub(crate) host: Name,
    /// Address on which the station listens.
    pub(crate) listen: std::net::SocketAddr,
    /// Configuration at the start.
    pub(crate) config: Arc<Config>,
    /// Current configuration, from which the hooks are read at every event.
    pub(crate) current: Arc<RwLock<Arc<Config>>>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) health: Arc<Health>,
    pub(crate) files: StateFiles,
    pub(crate) mesh_state: Arc<MeshState>,
    /// Periodically evaluates the site of the station.
    pub(crate) sites: Arc<Sites>,
    /// Called with the peers to measure, at every change.
    pub(crate) set_targets: Box<dyn Fn(Vec<Target>) + Send + Sync>,
    /// Called after the check of a peer that is up.
    pub(crate) on_checked: Box<OnChecked>,
    /// Called for a station that was removed from the mesh, to hide its series.
    pub(crate) removed: Box<dyn Fn(&Removed) + Send + Sync>,
    /// Called for a removed station that registered again.
    pub(crate) readmitted: Box<dyn Fn(&Name) + Send + Sync>,
    /// Whether a station is removed and has not returned.
    pub(crate) is_removed: Box<dyn Fn(&Name) -> bool + Send + Sync>,
}

impl Registrar {
    /// Starts the thread. The thread first sets the peers of the last run as targets, and then
    /// follows the directory.
    ///
    /// # Errors
    /// The error of the system if the thread or its runtime cannot be created.
    pub(crate) fn start(parts: RegistrarDependencies) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(false);
        let task = parts.health.task("directory");
        let thread = std::thread::Builder::new().name("directory".into()).spawn(move || {
            runtime.block_on(task.watch(run(parts, stopped)));
            // Do not wait for network operations that still run.
            runtime.shutdown_background();
        })?;
        Ok(Self { stop, thread })
    }

    /// Withdraws the station from the directory and ends the thread.
    pub(crate) fn stop(self) {
        let _ = self.stop.send(true);
        let _ = self.thread.join();
    }
}

struct RegistrarState {
    parts: RegistrarDependencies,
    own_entry: OwnEntry,
    own: LocalStation,
    roster: Roster<Entry>,
    began: Instant,
    hooks: Hooks,
    /// Notified when the station must register again.
    reregister: Arc<Notify>,
    checks: JoinSet<Checked>,
    check: Arc<TaskStatus>,
    check_backoff: CheckBackoff,
    /// Limits log lines about changed keys.
    new_keys: LogLimiter,
    targets_changed: bool,
    /// Whether `peers.json` is out of date.
    file_is_stale: bool,
    /// When `peers.json` was last written.
    file_written_at: Option<Instant>,
    /// When failed writes were last retried.
    retried: Option<Instant>,
}

/// A peer, the addresses that were tried, and the result of the check.
type Checked = (Name, Vec<std::net::SocketAddr>, Result<std::net::SocketAddr, PeerUnreachable>);

async fn run(parts: RegistrarDependencies, mut stopped: watch::Receiver<bool>) {
    let (sender, mut messages) = mpsc::channel(MESSAGES_MAX);
    let mut tasks = JoinSet::new();
    let mut state = RegistrarState::new(parts);
    let (engine, mesh_state) = (Arc::clone(&state.parts.engine), Arc::clone(&state.parts.mesh_state));
    let health = Arc::clone(&state.parts.health);
    let task = health.task("watch");
    let mut watches = Watches::new(engine, mesh_state, Arc::clone(&state.reregister), sender, task);
    watches.follow(&state.own.groups, &mut tasks);
    let sites = Arc::clone(&state.parts.sites);
    let task = health.task("sites");
    tasks.spawn(async move { task.restart(|| sites.run()).await });
    let engine = Arc::clone(&state.parts.engine);
    let (mesh_state, reregister) = (Arc::clone(&state.parts.mesh_state), Arc::clone(&state.reregister));
    let (own_entry, task) = (state.own_entry.clone(), health.task("registration"));
    tasks.spawn(async move {
        let stay = || {
            stay_registered(
                Arc::clone(&engine),
                own_entry.clone(),
                Arc::clone(&mesh_state),
                Arc::clone(&reregister),
            )
        };
        task.restart(stay).await;
    });
    loop {
        state.settle();
        let due = state.next_due();
        let mesh_state = Arc::clone(&state.parts.mesh_state);
        tokio::select! {
            message = messages.recv() => {
                let Some(message) = message else { break };
                state.on_message(message);
                // Handle queued events before the next iteration of the loop.
                for _ in 0..MESSAGES_MAX {
                    let Ok(message) = messages.try_recv() else { break };
                    state.on_message(message);
                }
            }
            () = sleep_until(due) => {}
            () = mesh_state.doubt.notified() => {}
            () = mesh_state.regrouped.notified() => {
                state.regroup();
                watches.follow(&state.own.groups, &mut tasks);
            }
            Some(found) = state.checks.join_next(), if !state.checks.is_empty() => {
                if let Ok(found) = found {
                    state.checked(found);
                }
            }
            _ = stopped.wait_for(|stopped| *stopped) => break,
        }
    }
    state.keep();
    state.keep_removed();
    // Dropping the lease withdraws the station from the directory. Wait a short time for this
    // request.
    let _ = timeout(DEREGISTER_TIMEOUT, tasks.shutdown()).await;
}

impl RegistrarState {
    fn new(parts: RegistrarDependencies) -> Self {
        let mesh = parts.config.mesh.clone();
        let own_entry = OwnEntry {
            host: parts.host.clone(),
            listen: parts.listen,
            config: mesh,
            key: parts.mesh_state.identity.public_key(),
        };
        let own = LocalStation {
            host: parts.host.clone(),
            version: env!("CARGO_PKG_VERSION"),
            groups: parts.mesh_state.site_assignment().groups,
            addresses: own_entry.addresses(),
        };
        let mut roster = Roster::new(grace(own_entry.config.lease), PEERS_MAX);
        let is_removed = |entry: &Entry| parts.mesh_state.removed.contains(&entry.host);
        for entry in peers_file::read(&parts.config.state).into_iter().filter(|entry| !is_removed(entry)) {
            let groups: Vec<Name> =
                entry.groups.iter().filter(|group| own.groups.contains(group)).cloned().collect();
            roster.remember(&entry.host, &groups, entry.clone());
            if roster.is_up(&entry.host) {
                parts.mesh_state.peers().up(&own, entry, now_s(), false);
            }
        }
        let check = parts.health.task("check");
        Self {
            hooks: Hooks::new(Arc::clone(&parts.mesh_state), Arc::clone(&parts.health)),
            parts,
            own_entry,
            own,
            roster,
            began: Instant::now(),
            reregister: Arc::new(Notify::new()),
            checks: JoinSet::new(),
            check,
            check_backoff: CheckBackoff::default(),
            new_keys: LogLimiter::default(),
            targets_changed: true,
            file_is_stale: false,
            file_written_at: None,
            retried: None,
        }
    }

    /// Time until which the loop waits if no event arrives.
    fn next_due(&self) -> Instant {
        let roster = self.roster.next_due().map(|due| self.began + due);
        let keep = self.file_written_at.filter(|_| self.file_is_stale).map(|written| written + KEEP_EVERY);
        let retry = self.parts.files.are_pending().then(|| self.retried.unwrap_or(self.began) + KEEP_EVERY);
        let soonest = self.check_backoff.next_due().into_iter().chain(roster).chain(keep).chain(retry).min();
        // While the directory accepts no writes, the grace period of missing peers does not begin.
        // So check often whether the directory accepts writes again.
        let is_read_only = roster.is_some() && self.parts.mesh_state.read_only().is_some();
        let idle = Instant::now() + if is_read_only { WRITABLE_CHECK_PERIOD } else { IDLE };
        soonest.map_or(idle, |due| due.min(idle))
    }

    /// Does the work that is due, and publishes changes.
    fn settle(&mut self) {
        if self.parts.mesh_state.read_only().is_some() {
            self.roster.postpone(self.began.elapsed());
        }
        for change in self.roster.tick(self.began.elapsed()) {
            self.apply(&change);
        }
        self.keep_removed();
        self.parts.mesh_state.report_refusals(&self.parts.health);
        self.begin_checks();
        if std::mem::take(&mut self.targets_changed) {
            self.update_targets();
        }
        if self.file_is_stale && self.file_written_at.is_none_or(|written| written.elapsed() >= KEEP_EVERY) {
            (self.file_is_stale, self.file_written_at) = (false, Some(Instant::now()));
            self.keep();
        }
        if self.parts.files.are_pending()
            && self.retried.is_none_or(|retried| retried.elapsed() >= KEEP_EVERY)
        {
            self.retried = Some(Instant::now());
            self.parts.files.retry();
        }
    }

    /// Applies a change of the station's groups. A group that the station left is handled like an
    /// empty snapshot: the peers in this group become lost after the grace period, unless they are
    /// in one of the new groups.
    fn regroup(&mut self) {
        let groups = self.parts.mesh_state.site_assignment().groups;
        let left: Vec<Name> =
            self.own.groups.iter().filter(|group| !groups.contains(group)).cloned().collect();
        self.parts.mesh_state.set_directory(|directory| {
            directory.watching.retain(|group| groups.contains(group));
            directory.groups.clone_from(&groups);
        });
        self.own.groups = groups;
        for group in left {
            self.roster.begin(&group);
            self.roster.synced(&group, self.began.elapsed());
        }
        // A new registration reports the groups to other stations.
        self.reregister.notify_one();
    }

    fn on_message(&mut self, (group, message): (Name, WatchMessage)) {
        if !self.own.groups.contains(&group) {
            // This message is from a watch that has just been aborted.
            return;
        }
        let now = self.began.elapsed();
        let change = match message {
            WatchMessage::Began => {
                self.roster.begin(&group);
                // The addresses of this host may have changed, too.
                self.own.addresses = self.own_entry.addresses();
                None
            }
            WatchMessage::Ended => {
                self.roster.interrupted(&group);
                None
            }
            WatchMessage::Event(Event::Synced) => {
                self.roster.synced(&group, now);
                None
            }
            WatchMessage::Event(Event::Down(host)) => self.roster.down(&group, &host),
            WatchMessage::Event(Event::Removed(host)) => {
                let change = self.roster.removed(&group, &host);
                if change.is_none() && self.roster.description(&host).is_none() {
                    // The station is unknown here, but the archive may contain its records.
                    self.exclude(&host);
                }
                change
            }
            WatchMessage::Event(Event::Up(entry)) => {
                (self.parts.readmitted)(&entry.host);
                if entry.host == self.own.host {
                    self.on_own_entry(&entry);
                }
                let host = entry.host.clone();
                self.parts.mesh_state.peers().set_named(&host);
                let change = self.roster.up(&group, &host, entry);
                if self.roster.refused() != self.parts.mesh_state.directory().ignored_hosts {
                    let refused = self.roster.refused();
                    if self.parts.mesh_state.directory().ignored_hosts == 0 {
                        tracing::warn!(
                            "ignoring {host}: there are {PEERS_MAX} peers already; divide the mesh into groups \
                             (further ones are not logged)"
                        );
                    }
                    self.parts.mesh_state.set_directory(|directory| directory.ignored_hosts = refused);
                }
                change
            }
        };
        if let Some(change) = change {
            self.apply(&change);
        }
    }

    /// Handles an entry under this station's name: the entry of this station, or the entry of a
    /// different station with the same name.
    fn on_own_entry(&mut self, entry: &Entry) {
        let directory = self.parts.mesh_state.directory();
        let conflict = directory.conflict_with(entry, self.own_entry.key);
        if let Some(conflict) = &conflict
            && directory.conflict().is_none()
        {
            tracing::error!("{conflict}");
        }
        self.parts.mesh_state.set_directory(|directory| {
            (directory.conflict, directory.is_vacant) = (conflict, false);
        });
    }

    fn apply(&mut self, change: &MembershipChange) {
        let host = change.host().clone();
        self.file_is_stale = true;
        if host == self.own.host {
            if matches!(change, MembershipChange::Lost(_) | MembershipChange::Removed(_)) {
                // The directory was restarted, or the other station with this name left.
                self.parts.mesh_state.set_directory(|directory| {
                    (directory.conflict, directory.lease_conflict) = (None, None);
                    (directory.is_registered, directory.is_vacant) = (false, true);
                });
                self.reregister.notify_one();
            }
            return;
        }
        self.targets_changed = true;
        let now_s = now_s();
        if let MembershipChange::Removed(_) = change {
            return self.remove(&host, now_s);
        }
        let Some(entry) = self.roster.description(&host).cloned() else { return };
        let published = match change {
            MembershipChange::Lost(_) => self
                .parts
                .mesh_state
                .peers()
                .lost(&host, now_s, std::time::Instant::now())
                .then_some(PeerChange::Lost),
            // This arm does not run: the code above handles a removal and returns.
            MembershipChange::Removed(_) => None,
            MembershipChange::Joined(_) | MembershipChange::Returned(_) | MembershipChange::Changed(_) => {
                let known = self.parts.mesh_state.peers().get(&entry.host).map(|peer| peer.entry.key);
                let change = self.parts.mesh_state.peers().up(&self.own, entry.clone(), now_s, true);
                match known {
                    Some(known) if known != entry.key => self.on_new_key(&entry.host),
                    // A station of this name may have been here before, and the roster may have
                    // forgotten it.
                    None => self.parts.mesh_state.end_sessions(&entry.host),
                    Some(_) => {}
                }
                change
            }
        };
        self.check_backoff.wake(&host, Instant::now());
        // To make room, the roster drops the peers that have been lost for the longest time.
        let roster = &self.roster;
        self.parts.mesh_state.peers().retain(|known| roster.description(known).is_some());
        if let Some(what) = published {
            self.publish(what, &entry, now_s);
        }
    }

    fn publish(&mut self, what: PeerChange, entry: &Entry, now_s: f64) {
        tracing::info!("{} {}", entry.host, events::words(what));
        let event = self.parts.mesh_state.events.publish(what, entry, now_s);
        let config = Arc::clone(&self.parts.current.read().unwrap_or_else(PoisonError::into_inner));
        self.hooks.enqueue(&config.mesh, &event);
    }

    /// Forgets a peer that was removed from the mesh.
    fn remove(&mut self, host: &Name, now_s: f64) {
        let entry = self.parts.mesh_state.peers().remove(host);
        // Stop measuring the peer before its series are dropped, and write `peers.json` without the
        // peer now.
        (self.targets_changed, self.file_written_at) = (false, None);
        self.update_targets();
        self.exclude(host);
        if let Some(entry) = entry {
            self.publish(PeerChange::Removed, &entry, now_s);
        }
    }

    fn exclude(&self, host: &Name) {
        if *host == self.own.host {
            return;
        }
        self.parts.mesh_state.latencies.remove(host);
        self.parts.mesh_state.end_sessions(host);
        // Each new watch reports an earlier removal again.
        let is_known = self.parts.mesh_state.removed.contains(host) && (self.parts.is_removed)(host);
        if !is_known {
            let removed = Removed { host: host.clone(), at_unix_ns: now_unix_ns() };
            self.parts.mesh_state.removed.insert(removed.clone());
            (self.parts.removed)(&removed);
        }
    }

    /// Ends the sessions of the station that had the name before. Call this function after the new
    /// key is stored, so that no session with the old key can begin later. Logs the change, at most
    /// once a minute for each name. The key changes if a station was set up again, or if a
    /// different station uses its name.
    fn on_new_key(&mut self, host: &Name) {
        self.parts.mesh_state.end_sessions(host);
        if self.new_keys.is_due(host.as_str(), std::time::Instant::now()) {
            tracing::warn!(
                "the key of {host} has changed: it was set up again, or another station uses its name"
            );
        }
    }

    /// Starts checks of the peers that need a check. Limits the number of simultaneous checks.
    fn begin_checks(&mut self) {
        let peers = self.parts.mesh_state.peers();
        for host in self.check_backoff.begin(&peers.to_check(), Instant::now()) {
            let addresses = peers.to_try(&host);
            let task = Arc::clone(&self.check);
            self.checks.spawn(async move {
                let found = task.watch_until_done(first_that_answers(host.clone(), addresses.clone())).await;
                (host, addresses, found.unwrap_or_else(|| Err(PeerUnreachable::after_panic())))
            });
        }
    }

    fn checked(&mut self, (host, tried, found): Checked) {
        self.check_backoff.ended(&host, found.is_ok(), Instant::now(), chance());
        if let Err(unreachable) = &found {
            tracing::debug!("{host}: {}", unreachable.reason);
        }
        let is_up = self.parts.mesh_state.peers().get(&host).is_some_and(|peer| peer.state == PeerState::Up);
        if is_up {
            let usual = self.parts.current.read().unwrap_or_else(PoisonError::into_inner).probe_period;
            let up = self.parts.mesh_state.peers().up_count();
            let period = self.own_entry.config.latency_period(up, QUANTITIES.len()).max(usual);
            (self.parts.on_checked)(&host, period, found.as_ref().err());
        }
        let found = found.map_err(|unreachable| unreachable.reason);
        self.targets_changed |= self.parts.mesh_state.peers().checked(&host, &tried, found);
    }

    fn update_targets(&self) {
        let quantities = QUANTITIES.map(String::from);
        let (up, peers): (BTreeSet<Name>, Vec<_>) = {
            let peers = self.parts.mesh_state.peers();
            let known = peers.all().filter_map(|peer| Some((peer.entry.host.clone(), peer.target()?)));
            let up = peers.all().filter(|peer| peer.state == PeerState::Up);
            (up.map(|peer| peer.entry.host.clone()).collect(), known.collect())
        };
        self.parts.mesh_state.latencies.set_peers(&up, std::time::Instant::now());
        // Each experiment gives one quantity. All peers that are up count, even before their check.
        // Otherwise the first checked peers of a large mesh would be measured as often as peers of
        // a small mesh.
        let period = Some(self.own_entry.config.latency_period(up.len(), quantities.len()));
        let target = |(host, address): (Name, std::net::SocketAddr)| {
            let target = Target::parse(&address.to_string(), &quantities, period, Provenance::Mesh).ok()?;
            Some(Target { name: host, ..target })
        };
        (self.parts.set_targets)(peers.into_iter().filter_map(target).collect());
    }

    /// Writes the removed stations to their file, without those that have returned.
    fn keep_removed(&self) {
        self.parts.mesh_state.removed.retain(&self.parts.is_removed);
        self.parts.mesh_state.removed.keep();
    }

    /// Writes the peers that are up to `peers.json`, for a start without the directory.
    fn keep(&self) {
        let own = &self.own.host;
        let there = self.roster.hosts().filter(|(name, _, is_up)| *is_up && *name != own);
        peers_file::write(&self.parts.files, there.map(|(_, entry, _)| entry));
    }
}

/// Quantities that are measured with each peer.
const QUANTITIES: [&str; 2] = ["rtt", "loss"];
/// Maximum number of events of the directory that are handled in one iteration of the loop, so that
/// a snapshot of a large mesh needs few iterations.
const MESSAGES_MAX: usize = 1024;
/// Longest time between two iterations of the loop.
const IDLE: Duration = Duration::from_secs(60);
/// Time between two checks whether the directory takes writes again.
const WRITABLE_CHECK_PERIOD: Duration = Duration::from_secs(1);
/// Minimum time between two writes of `peers.json`, so that a thousand peers that often join and
/// leave do not wear out a disk. If the station is killed, the changes of this time are lost.
const KEEP_EVERY: Duration = Duration::from_secs(5);
/// Time limit for the request that withdraws the station from the directory. The request takes a
/// round trip.
const DEREGISTER_TIMEOUT: Duration = Duration::from_secs(1);
