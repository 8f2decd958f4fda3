//! Sites of the mesh, computed from the forecasts of this station, and the site of this station:
//! configured, accepted or taken automatically (docs/spec/mesh.md, "Sites").

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use barograph_forecast::Name;
use barograph_mesh::{
    Debounce, GLOBAL, LOCAL, RttState, SITES_HOSTS_MAX, Site, SitePosition, SiteReport, UNSET,
    certain_position, position, sites_of,
};

use tokio::sync::OwnedMutexGuard;

use super::snapshot::{self, MeshSnapshot};
use crate::config::MeshConfig;
use crate::forecast::best::{MeshMembers, Pairs};
use crate::forecast::series::SeriesTable;
use crate::mesh::{EngineLocation, MeshState};
use crate::sync::lock;
use crate::time::now_unix_ns;

pub(crate) use assignment::{SiteAssignment, SiteSource};

mod assignment;

/// Sites that the current forecasts propose.
pub(crate) struct SiteProposals {
    pub(crate) hosts: Vec<SiteReport>,
    pub(crate) sites: Vec<Site>,
    /// Index of this station in `hosts`.
    own: usize,
    /// Indices of hosts without a known round-trip time.
    pub(crate) unknown: Vec<usize>,
    /// Number of hosts left out, because only [`SITES_HOSTS_MAX`] are considered.
    pub(crate) left_out: usize,
    /// Whether another station has no site and is not in `global`.
    has_unset: bool,
}

impl SiteProposals {
    /// Computes the sites of a mesh.
    ///
    /// The round-trip time of a pair is the longer of the forecasts of its two ends. If only one
    /// end has a forecast, this forecast counts only if that end is this station. So no station can
    /// get into a site by its own false values. A pair counts as failed if one direction failed. A
    /// pair is `NotVisible` if neither end is this station and this station receives no
    /// measurements of either end.
    fn new(
        own: &Name,
        members: &MeshMembers,
        assignment: &SiteAssignment,
        rtt: impl Fn(&Name, &Name) -> RttState,
    ) -> Self {
        let mut names: Vec<&Name> =
            members.hosts().filter(|host| *host != own && !members.is_lost(host)).collect();
        let is_unset = |report: SiteReport| report.site.is_none() && !report.represents;
        let has_unset = names.iter().any(|host| is_unset(site_report(host, members.groups(host))));
        let left_out = names.len().saturating_sub(SITES_HOSTS_MAX - 1);
        names.truncate(SITES_HOSTS_MAX - 1);
        names.push(own);
        names.sort();
        let groups = |host| if host == own { &assignment.groups[..] } else { members.groups(host) };
        let hosts: Vec<SiteReport> = names.iter().map(|host| site_report(host, groups(*host))).collect();
        let own = names.iter().position(|name| *name == own).unwrap_or(0);
        let n = names.len();
        let mut ways = vec![RttState::Unmeasured; n * n];
        for (a, b) in (0..n).flat_map(|b| (0..n).map(move |a| (a, b))).filter(|(a, b)| a != b) {
            ways[a * n + b] = rtt(names[a], names[b]);
        }
        let seen: Vec<bool> = (0..n)
            .map(|host| host == own || ways[host * n..][..n].iter().any(|way| *way != RttState::Unmeasured))
            .collect();
        let way = |a: usize, b: usize| DirectedRtt { rtt: ways[a * n + b], is_own: a == own };
        let pair = |a: usize, b: usize| match both_ways(way(a, b), way(b, a)) {
            RttState::Unmeasured if !seen[a] && !seen[b] => RttState::NotVisible,
            both => both,
        };
        let known: Vec<RttState> = (0..n * n).map(|at| pair(at / n, at % n)).collect();
        // Release the lock of the series table, which `rtt` holds.
        drop(rtt);
        let is_unknown = |host: &usize| {
            let of_host = &known[host * n..][..n];
            !of_host.iter().any(|pair| matches!(pair, RttState::Known(_)))
        };
        let unknown = (0..names.len()).filter(is_unknown).collect();
        let sites = sites_of(&hosts, |a, b| known[a * n + b]);
        Self { hosts, sites, own, unknown, left_out, has_unset }
    }

    /// Position that the station takes automatically.
    fn automatic(&self) -> Option<SitePosition> {
        certain_position(self.own, &self.hosts, &self.sites)
    }

    /// Position that the forecasts propose for this station; `None` without a proposal, for example
    /// if this station is alone at its site.
    fn proposed(&self) -> Option<SitePosition> {
        position(self.own, &self.hosts, &self.sites)
    }
}

/// Computes the sites on request, and changes the site of this station.
pub(crate) struct Sites {
    host: Name,
    config: MeshConfig,
    state: std::path::PathBuf,
    mesh_state: Arc<MeshState>,
    snapshot: MeshSnapshot,
    series_table: Arc<Mutex<SeriesTable>>,
    /// The last proposals, and when they were computed. Concurrent requests wait for the lock, and
    /// then share one result.
    cached: tokio::sync::Mutex<Option<(Instant, Arc<SiteProposals>)>>,
    debounce: Mutex<Debounce>,
    began: Instant,
    /// Serialises changes, so that the file and the state of the mesh change together.
    changes_lock: Arc<tokio::sync::Mutex<()>>,
}

/// Why a request could not change the site of this station.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SitesError {
    #[error(
        "mesh.site is {0}, and a configured site takes precedence; remove mesh.site to accept a proposal"
    )]
    Configured(Name),
    #[error("mesh.sites is \"auto\", so the station would join a site again; accept a site or set mesh.site")]
    Auto,
    #[error(
        "no site is proposed for this station: no other station is close, or there are too few forecasts yet"
    )]
    Nothing,
    #[error("the site proposed for this station is {1}, not {0}")]
    Other(String, String),
    #[error("the proposed site has no valid group name ({0}); set mesh.site")]
    Unusable(String),
    #[error("cannot store the site in {path}: {error}", path = path.display())]
    Store { path: std::path::PathBuf, error: std::io::Error },
    #[error("the station is stopping")]
    Stopping,
    #[error("internal error: changing the site panicked, see the log")]
    Panicked,
}

impl Sites {
    pub(crate) fn new(
        host: Name,
        (config, state): (MeshConfig, &Path),
        mesh_state: Arc<MeshState>,
        snapshot: MeshSnapshot,
        series_table: Arc<Mutex<SeriesTable>>,
    ) -> Self {
        let debounce = Mutex::new(Debounce::new(config.sites_hold));
        let (cached, began) = (tokio::sync::Mutex::default(), Instant::now());
        let (state, changes_lock) = (state.to_path_buf(), Arc::default());
        Self {
            host,
            config,
            state,
            mesh_state,
            snapshot,
            series_table,
            cached,
            debounce,
            began,
            changes_lock,
        }
    }

    /// The proposed sites, at most some seconds old.
    pub(crate) async fn proposals(&self) -> Arc<SiteProposals> {
        let mut cached = self.cached.lock().await;
        if let Some((at, proposals)) = &*cached
            && at.elapsed() < PROPOSALS_AGE
        {
            return Arc::clone(proposals);
        }
        // Reading the directory is costly. But if a proposal is taken after only a short time
        // (`sites_hold`), proposals are computed more often and need newer data.
        let age = (self.config.sites_hold / SITE_CHECKS_MIN).clamp(PROPOSALS_AGE, snapshot::RENEWED);
        let members = self.snapshot.members(age).await;
        let (own, assignment, series_table) =
            (self.host.clone(), self.mesh_state.site_assignment(), Arc::clone(&self.series_table));
        // This computation takes a second in a large mesh, so it must not block the async thread.
        let made = tokio::task::spawn_blocking(move || {
            let pairs = Pairs::new(&series_table, now_unix_ns(), snapshot::PAUSE);
            SiteProposals::new(&own, &members, &assignment, move |from, to| pairs.tried_round_trip(from, to))
        });
        // Fails only after a panic or while the station is stopping.
        let proposals = made.await.unwrap_or_else(|error| {
            tracing::error!("cannot compute sites: {error}");
            let assignment = self.mesh_state.site_assignment();
            SiteProposals::new(&self.host, &MeshMembers::default(), &assignment, |_, _| RttState::Unmeasured)
        });
        let proposals = Arc::new(proposals);
        *cached = Some((Instant::now(), Arc::clone(&proposals)));
        proposals
    }

    /// Whether this station receives the records of all pairs of the mesh, not only its own.
    pub(crate) fn sees_all(&self) -> bool {
        matches!(self.mesh_state.location, EngineLocation::Local | EngineLocation::Nats { archive: true })
    }

    /// Position that the station will take automatically, and the time until the station takes this
    /// position.
    pub(crate) fn pending(&self) -> Option<(SitePosition, Duration)> {
        let debounce = lock(&self.debounce);
        debounce.pending(self.began.elapsed()).map(|(position, left)| (position.clone(), left))
    }

    /// Position that [`Self::accept`] would take now.
    pub(crate) fn proposed(&self, proposals: &SiteProposals) -> Option<SitePosition> {
        let assignment = self.assignment_at(&proposals.proposed()?, SiteSource::Accepted).ok()?;
        Some(SitePosition { site: assignment.site.to_string(), represents: assignment.represents })
    }

    /// Takes the proposed position. If `site` is given, the position must be at that site.
    pub(crate) async fn accept(&self, site: Option<&str>) -> Result<(), SitesError> {
        let guard = self.lock_changes().await?;
        let proposed = self.proposals().await.proposed().ok_or(SitesError::Nothing)?;
        if let Some(site) = site.filter(|site| *site != proposed.site) {
            return Err(SitesError::Other(site.into(), proposed.site));
        }
        let assignment = self.assignment_at(&proposed, SiteSource::Accepted).map_err(SitesError::Unusable)?;
        self.apply(guard, assignment).await
    }

    /// Drops the site that was taken, and uses the configured site again.
    pub(crate) async fn reset(&self) -> Result<(), SitesError> {
        let guard = self.lock_changes().await?;
        if self.config.sites_auto && self.mesh_state.site_assignment().source != SiteSource::Accepted {
            return Err(SitesError::Auto);
        }
        self.apply(guard, SiteAssignment::configured(&self.config)).await
    }

    /// Periodically evaluates the position that this station has taken. If `mesh.sites` is `auto`,
    /// also takes proposed positions. Runs until the future is dropped.
    pub(crate) async fn run(&self) {
        let every = SITE_CHECK_PERIOD.min(self.config.sites_hold / SITE_CHECKS_MIN).max(PROPOSALS_AGE);
        // Delays the departure from `local:default` until no other station has needed this group
        // for `sites_hold`.
        let mut leaving = Debounce::new(self.config.sites_hold);
        loop {
            tokio::time::sleep(every).await;
            let Ok(guard) = self.lock_changes().await else { return std::future::pending().await };
            let assignment = self.mesh_state.site_assignment();
            let is_free = self.config.sites_auto && assignment.source != SiteSource::Accepted;
            if !is_free && !assignment.is_taken() {
                continue;
            }
            let proposals = self.proposals().await;
            let asked = if is_free { proposals.automatic() } else { None };
            // Ignore a proposal that would not change the groups of this station.
            let asked = asked.filter(|asked| {
                self.assignment_at(asked, SiteSource::Auto).is_ok_and(|new| new.groups != assignment.groups)
            });
            let now = self.began.elapsed();
            let due = lock(&self.debounce).observe(asked, now);
            let is_idle = assignment.is_unset() && !proposals.has_unset;
            let leaves = leaving.observe(is_idle.then_some(()), now).is_some();
            let position =
                SitePosition { site: assignment.site.to_string(), represents: assignment.represents };
            let new = match due {
                Some(position) => self.assignment_at(&position, SiteSource::Auto),
                None if !assignment.is_taken() => continue,
                None => {
                    let is_unset = proposals.has_unset || (assignment.is_unset() && !leaves);
                    SiteAssignment::at_position(&self.config, &position, assignment.source, is_unset)
                }
            };
            if let Ok(new) = new
                && new != assignment
                && let Err(error) = self.apply(guard, new).await
            {
                tracing::warn!("{error}");
            }
        }
    }

    /// Waits for the exclusive right to change the site. Fails if `mesh.site` is set.
    async fn lock_changes(&self) -> Result<OwnedMutexGuard<()>, SitesError> {
        if self.config.has_site() {
            return Err(SitesError::Configured(self.config.site.clone()));
        }
        Ok(Arc::clone(&self.changes_lock).lock_owned().await)
    }

    /// Assignment of this station at a position. A station in `local:default` stays in this group,
    /// because other stations may still be in `local:default` only.
    fn assignment_at(&self, position: &SitePosition, source: SiteSource) -> Result<SiteAssignment, String> {
        SiteAssignment::at_position(
            &self.config,
            position,
            source,
            self.mesh_state.site_assignment().is_unset(),
        )
    }

    async fn apply(&self, guard: OwnedMutexGuard<()>, assignment: SiteAssignment) -> Result<(), SitesError> {
        let (mesh_state, state) = (Arc::clone(&self.mesh_state), self.state.clone());
        // Completes even if the caller stops waiting.
        let done = tokio::task::spawn_blocking(move || {
            assignment.store(&state).map_err(|(path, error)| SitesError::Store { path, error })?;
            let role = if assignment.represents { ", which it represents" } else { "" };
            tracing::info!(
                "this station is at the site {}{role} ({})",
                assignment.site,
                assignment.source.as_str()
            );
            mesh_state.set_site_assignment(assignment);
            drop(guard);
            Ok(())
        });
        done.await.unwrap_or_else(|error| {
            if !error.is_panic() {
                return Err(SitesError::Stopping);
            }
            tracing::error!("the site was not changed: {error}");
            Err(SitesError::Panicked)
        })?;
        // Drop the pending position and the proposals, because both were computed for the old
        // position.
        lock(&self.debounce).reset();
        *self.cached.lock().await = None;
        Ok(())
    }
}

/// Round-trip time of a pair, as one end of the pair forecasts it.
#[derive(Clone, Copy)]
struct DirectedRtt {
    rtt: RttState,
    /// Whether this station is the end that makes the forecast.
    is_own: bool,
}

/// Combines the forecasts of the two ends of a pair. If only one end has a forecast, this forecast
/// counts only if that end is this station.
fn both_ways(there: DirectedRtt, back: DirectedRtt) -> RttState {
    match (there.rtt, back.rtt) {
        (RttState::Known(there), RttState::Known(back)) => {
            RttState::Known(if there.value < back.value { back } else { there })
        }
        (RttState::Failed, _) | (_, RttState::Failed) => RttState::Failed,
        (RttState::Known(_), _) if there.is_own => there.rtt,
        (_, RttState::Known(_)) if back.is_own => back.rtt,
        _ => RttState::Unmeasured,
    }
}

/// Site and role of a host, from its groups.
fn site_report(host: &Name, groups: &[Name]) -> SiteReport {
    let mut sites = groups.iter().filter_map(|group| group.as_str().strip_prefix(LOCAL));
    SiteReport {
        host: host.to_string(),
        site: sites.find(|site| *site != UNSET).map(String::from),
        represents: groups.iter().any(|group| group.as_str() == GLOBAL),
    }
}

/// Maximum age of the cached proposals. Sites do not change within seconds, and computing the sites
/// is costly.
const PROPOSALS_AGE: Duration = Duration::from_secs(1);
/// Maximum time between two evaluations of the station's site; and the minimum number of
/// evaluations within `sites_hold`, the time before a proposal is taken.
const SITE_CHECK_PERIOD: Duration = Duration::from_secs(30);
const SITE_CHECKS_MIN: u32 = 4;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
