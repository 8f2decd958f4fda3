//! Cached mesh membership and composition error; refreshed in the background while `/v1/best` is
//! used.
//!
//! A request waits only if nothing is cached: after the start, and after an hour without requests.
//! Otherwise the response uses the last refresh. The peers that were lost since that refresh are
//! read from [`MeshState::peers`], which is in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barograph_engine::{Engine, Event, TaskStatus};
use barograph_forecast::Name;
use barograph_mesh::GLOBAL;
use futures_util::StreamExt;
use tokio::time::Instant;

use super::{MeshState, PeerState};
use crate::config::unset_group;
use crate::forecast::best::{MeshMember, MeshMembers, Models, NoForecasts, Pairs};
use crate::forecast::series::SeriesTable;
use crate::sync::lock;
use crate::time::now_unix_ns;

/// The cache of membership and composition models.
#[derive(Clone)]
pub(crate) struct MeshSnapshot {
    parts: Arc<SnapshotParts>,
}

struct SnapshotParts {
    host: Name,
    mesh_state: Arc<MeshState>,
    engine: Arc<dyn Engine>,
    series_table: Arc<Mutex<SeriesTable>>,
    /// Status of the task that refreshes the cache.
    task: Arc<TaskStatus>,
    cache: Mutex<CachedSnapshot>,
    /// `members_lock` is locked while membership is read, and `models_lock` while models are
    /// learnt. So waiting requests share one result, and the newest result is kept.
    members_lock: tokio::sync::Mutex<()>,
    models_lock: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct CachedSnapshot {
    /// Membership, and when it was read.
    members: Option<(Instant, Arc<MeshMembers>)>,
    models: Option<Arc<Models>>,
    /// Time of the last request; `None` = no task refreshes the cache.
    last_request: Option<Instant>,
    /// When membership was last read for a missing host.
    last_miss: Option<Instant>,
}

impl MeshSnapshot {
    /// Creates an empty cache. `host` is this station.
    pub(crate) fn new(
        host: Name,
        mesh_state: Arc<MeshState>,
        engine: Arc<dyn Engine>,
        series_table: Arc<Mutex<SeriesTable>>,
        task: Arc<TaskStatus>,
    ) -> Self {
        let (cache, members_lock, models_lock) = (Mutex::default(), Default::default(), Default::default());
        Self {
            parts: Arc::new(SnapshotParts {
                host,
                mesh_state,
                engine,
                series_table,
                task,
                cache,
                members_lock,
                models_lock,
            }),
        }
    }

    /// Returns the membership and models of the last refresh, at most [`UNASKED`] old. The call
    /// counts as a request, so the periodic refreshes of the cache continue.
    pub(crate) async fn latest(&self) -> (Arc<MeshMembers>, Arc<Models>) {
        if let Some(mesh) = self.parts.cached() {
            return mesh;
        }
        let members = self.members(RENEWED).await;
        let _one = self.parts.models_lock.lock().await;
        let known = lock(&self.parts.cache).models.clone();
        match known {
            Some(models) => (members, models),
            None => (Arc::clone(&members), self.parts.refresh_models(members).await),
        }
    }

    /// Membership, at most `age` old. Does not count as a request.
    pub(crate) async fn members(&self, age: Duration) -> Arc<MeshMembers> {
        let _one = self.parts.members_lock.lock().await;
        let known = lock(&self.parts.cache).members.clone();
        match known {
            Some((at, members)) if at.elapsed() <= age => members,
            _ => self.parts.refresh_members().await,
        }
    }

    /// Drops the cached membership, because a station was removed from the mesh.
    pub(crate) fn forget_members(&self) {
        lock(&self.parts.cache).members = None;
    }

    /// Returns newer membership, for a request with a host that is not in `members`. This host may
    /// have joined since the last refresh. `None` if membership was read for a missing host less
    /// than [`RENEWED`] ago. This limit is needed because any caller may request a host that does
    /// not exist, and each read makes the directory return all groups.
    pub(crate) async fn members_newer_than(&self, members: &Arc<MeshMembers>) -> Option<Arc<MeshMembers>> {
        let _one = self.parts.members_lock.lock().await;
        {
            let mut cache = lock(&self.parts.cache);
            match &cache.members {
                Some((_, newer)) if !Arc::ptr_eq(newer, members) => return Some(Arc::clone(newer)),
                _ if cache.last_miss.is_some_and(|at| at.elapsed() < RENEWED) => return None,
                _ => cache.last_miss = Some(Instant::now()),
            }
        }
        Some(self.parts.refresh_members().await)
    }
}

impl SnapshotParts {
    /// Cached state for a request. Starts the task that refreshes the cache, if no such task runs.
    fn cached(self: &Arc<Self>) -> Option<(Arc<MeshMembers>, Arc<Models>)> {
        let mut cache = lock(&self.cache);
        if cache.last_request.replace(Instant::now()).is_none() {
            let parts = Arc::clone(self);
            tokio::spawn(async move { parts.task.restart(|| Arc::clone(&parts).refresh_loop()).await });
        }
        Some((Arc::clone(&cache.members.as_ref()?.1), Arc::clone(cache.models.as_ref()?)))
    }

    /// Refreshes the cache until there was no request for [`IDLE`].
    async fn refresh_loop(self: Arc<Self>) {
        let mut renewed_at = Instant::now();
        loop {
            tokio::time::sleep(RENEWED).await;
            let unasked = {
                let mut cache = lock(&self.cache);
                let unasked = cache.last_request.map_or(IDLE, |at| at.elapsed());
                if unasked >= IDLE {
                    *cache = CachedSnapshot::default();
                    return;
                }
                unasked
            };
            if unasked < RENEWED || UNASKED - RENEWED <= renewed_at.elapsed() {
                renewed_at = Instant::now();
                let members = {
                    let _one = self.members_lock.lock().await;
                    self.refresh_members().await
                };
                let _one = self.models_lock.lock().await;
                self.refresh_models(members).await;
            }
        }
    }

    /// Reads membership; the caller holds `members_lock`.
    async fn refresh_members(&self) -> Arc<MeshMembers> {
        let at = Instant::now();
        let members = self.read_members().await;
        let found = away("sorting the mesh", move || MeshMembers::new(members)).await.map(Arc::new);
        let mut cache = lock(&self.cache);
        let members = found.or_else(|| Some(Arc::clone(&cache.members.as_ref()?.1))).unwrap_or_default();
        cache.members = Some((at, Arc::clone(&members)));
        members
    }

    /// Learns models from the pairs of `members`; the caller holds `models_lock`.
    async fn refresh_models(&self, members: Arc<MeshMembers>) -> Arc<Models> {
        let series_table = Arc::clone(&self.series_table);
        let learn = move || Models::learnt(&members, &Pairs::new(&series_table, now_unix_ns(), PAUSE));
        // Learning takes up to two seconds in a large mesh.
        let found = away("learning from pairs", learn).await.map(Arc::new);
        let mut cache = lock(&self.cache);
        let models = found
            .or_else(|| cache.models.clone())
            .unwrap_or_else(|| Arc::new(Models::learnt(&MeshMembers::default(), &NoForecasts)));
        cache.models = Some(Arc::clone(&models));
        models
    }

    /// This station, its peers, and all members of the groups of these stations, as the directory
    /// lists them.
    async fn read_members(&self) -> BTreeMap<Name, MeshMember> {
        let (host, groups) = (&self.host, self.mesh_state.site_assignment().groups);
        let mut members = BTreeMap::new();
        for peer in self.mesh_state.peers().all() {
            let is_lost = peer.state == PeerState::Lost;
            members
                .insert(peer.entry.host.clone(), MeshMember { groups: peer.entry.groups.clone(), is_lost });
        }
        members.insert(host.clone(), MeshMember { groups: groups.clone(), is_lost: false });
        // The members of this station's own groups are known already.
        let mut asked: BTreeSet<Name> = groups.iter().cloned().collect();
        let mut named = Named::default();
        members.values().for_each(|member| named.add(&member.groups));
        // First the representatives (`global`), and the stations without a site (`local:default`).
        Name::new(GLOBAL).ok().into_iter().chain([unset_group()]).for_each(|group| named.first(group));
        let deadline = tokio::time::Instant::now() + SNAPSHOTS_TIMEOUT;
        while asked.len() < GROUPS_MAX {
            let Some(group) = named.next() else { break };
            if !asked.insert(group.clone()) {
                continue;
            }
            let in_group = tokio::time::timeout_at(deadline, self.read_group(&group));
            for (host, groups) in in_group.await.unwrap_or_default() {
                if members.len() < HOSTS_MAX && !members.contains_key(&host) {
                    named.add(&groups);
                    members.insert(host, MeshMember { groups, is_lost: false });
                }
            }
        }
        members
    }

    /// Current members of a group, each with its groups. If the directory fails during the
    /// snapshot, returns the members that it has sent so far.
    async fn read_group(&self, group: &Name) -> Vec<(Name, Vec<Name>)> {
        let mut events = self.engine.watch(group);
        let mut found = Vec::new();
        while let Some(Ok(Event::Up(entry))) = events.next().await {
            found.push((entry.host, entry.groups));
            if found.len().is_multiple_of(YIELDED) {
                tokio::task::yield_now().await;
            }
        }
        found
    }
}

/// Groups of the members, with the weight of each group. Each member adds a total weight of 1,
/// divided equally among its groups. So a member of many groups cannot displace the groups of other
/// members.
#[derive(Default)]
struct Named(BTreeMap<Name, f64>);

impl Named {
    fn add(&mut self, groups: &[Name]) {
        for group in groups {
            *self.0.entry(group.clone()).or_default() += 1.0 / groups.len() as f64;
        }
    }

    /// Gives a group the largest weight, so that this group comes before all groups of members.
    fn first(&mut self, group: Name) {
        self.0.insert(group, f64::INFINITY);
    }

    /// Removes and returns the group with the largest weight.
    fn next(&mut self) -> Option<Name> {
        let heaviest = self.0.iter().max_by(|(_, one), (_, other)| one.total_cmp(other));
        let group = heaviest.map(|(group, _)| group.clone())?;
        self.0.remove(&group);
        Some(group)
    }
}

/// Runs `make` on a thread for blocking work. Returns `None` after a panic or while the station is
/// stopping. Callers then keep the last result.
async fn away<T: Send + 'static>(what: &str, make: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let made = tokio::task::spawn_blocking(make).await;
    made.inspect_err(|error| {
        if error.is_panic() {
            tracing::error!("{what} panicked ({error}); using the previous result");
        }
    })
    .ok()
}

/// Time between two refreshes while there are requests: a lease of the default length.
pub(crate) const RENEWED: Duration = Duration::from_secs(10);
/// Time between two refreshes in the hour after the last request.
const UNASKED: Duration = Duration::from_secs(60);
/// Time without requests after which the cache is dropped, because a refresh makes the directory
/// return every group.
const IDLE: Duration = Duration::from_hours(1);
/// Pause between two accesses to the series table while models are learnt. In this pause, requests
/// and measurements can lock the series table.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);
/// Number of entries of a snapshot after which other tasks may run. So many entries take some tens
/// of microseconds.
const YIELDED: usize = 64;
/// Time limit for the snapshots of all groups together. If the directory is unreachable, the first
/// request waits for this time.
const SNAPSHOTS_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of groups, including the station's own groups; and maximum number of hosts: ten
/// times as many as a station measures.
const GROUPS_MAX: usize = 256;
const HOSTS_MAX: usize = 10_000;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
