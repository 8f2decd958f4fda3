//! Sites of the mesh, computed from the forecasts of this station, and the site of this station:
//! configured, accepted or taken automatically (docs/spec/mesh.md, "Sites").

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use barograph_forecast::Name;
use barograph_mesh::{
    GLOBAL, LOCAL, Patience, Position, RoundTrip, SITES_HOSTS_MAX, Site, Stand, UNSET, clear_position,
    position, sites_of,
};

use tokio::sync::OwnedMutexGuard;

use super::snapshot::{self, MeshSnapshot};
use crate::config::MeshConfig;
use crate::forecast::bank::Bank;
use crate::forecast::best::{Pairs, Places};
use crate::mesh::{Kind, MeshState};
use crate::sync::lock;
use crate::time::now_unix_ns;

pub(crate) use standing::{Origin, Standing};

mod standing;

/// Sites that the current forecasts propose.
pub(crate) struct View {
    pub(crate) hosts: Vec<Stand>,
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

impl View {
    /// Computes the sites of a mesh.
    ///
    /// The round-trip time of a pair is the longer of the forecasts of its two ends. A forecast of
    /// one end alone counts only if that end is this station, so that no station can get into a
    /// site by false values of its own. A pair with a failed direction counts as failed. A pair is
    /// `Unseen` if neither end is this station and no measurement of either end arrives here.
    fn new(
        own: &Name,
        places: &Places,
        standing: &Standing,
        rtt: impl Fn(&Name, &Name) -> RoundTrip,
    ) -> Self {
        let mut names: Vec<&Name> =
            places.hosts().filter(|host| *host != own && !places.is_lost(host)).collect();
        let is_unset = |stand: Stand| stand.site.is_none() && !stand.represents;
        let has_unset = names.iter().any(|host| is_unset(stand(host, places.groups(host))));
        let left_out = names.len().saturating_sub(SITES_HOSTS_MAX - 1);
        names.truncate(SITES_HOSTS_MAX - 1);
        names.push(own);
        names.sort();
        let groups = |host| if host == own { &standing.groups[..] } else { places.groups(host) };
        let hosts: Vec<Stand> = names.iter().map(|host| stand(host, groups(*host))).collect();
        let own = names.iter().position(|name| *name == own).unwrap_or(0);
        let n = names.len();
        let mut ways = vec![RoundTrip::Unmeasured; n * n];
        for (a, b) in (0..n).flat_map(|b| (0..n).map(move |a| (a, b))).filter(|(a, b)| a != b) {
            ways[a * n + b] = rtt(names[a], names[b]);
        }
        let seen: Vec<bool> = (0..n)
            .map(|host| host == own || ways[host * n..][..n].iter().any(|way| *way != RoundTrip::Unmeasured))
            .collect();
        let pair = |a: usize, b: usize| match both_ways(ways[a * n + b], ways[b * n + a], a == own, b == own)
        {
            RoundTrip::Unmeasured if !seen[a] && !seen[b] => RoundTrip::Unseen,
            both => both,
        };
        let known: Vec<RoundTrip> = (0..n * n).map(|at| pair(at / n, at % n)).collect();
        // Release the lock of the bank, which `rtt` holds.
        drop(rtt);
        let is_unknown = |host: &usize| {
            let of_host = &known[host * n..][..n];
            !of_host.iter().any(|pair| matches!(pair, RoundTrip::Known(_)))
        };
        let unknown = (0..names.len()).filter(is_unknown).collect();
        let sites = sites_of(&hosts, |a, b| known[a * n + b]);
        Self { hosts, sites, own, unknown, left_out, has_unset }
    }

    /// Position that the station takes automatically.
    fn asked(&self) -> Option<Position> {
        clear_position(self.own, &self.hosts, &self.sites)
    }

    /// Position of this station by the forecasts; `None` if it stands alone, or too little is
    /// known.
    fn proposed(&self) -> Option<Position> {
        position(self.own, &self.hosts, &self.sites)
    }
}

/// Computes the sites on request, and holds and changes the site of this station.
pub(crate) struct Sites {
    host: Name,
    config: MeshConfig,
    state: std::path::PathBuf,
    mesh_state: Arc<MeshState>,
    snapshot: MeshSnapshot,
    bank: Arc<Mutex<Bank>>,
    /// The last view and its time. Concurrent requests wait for the lock and share one view.
    kept: tokio::sync::Mutex<Option<(Instant, Arc<View>)>>,
    patience: Mutex<Patience>,
    began: Instant,
    /// Serialises changes, so that the file and the state of the mesh change together.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// Why the site of this station does not change.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SitesError {
    #[error("mesh.site is set to {0}: what is configured goes before a proposal")]
    Configured(Name),
    #[error(
        "mesh.sites is auto: the station would take a place again by itself; accept one, or set mesh.site"
    )]
    Auto,
    #[error("no site is proposed for this station: it stands alone, or too little is forecast yet")]
    Nothing,
    #[error("{0} is not proposed for this station now, but {1}")]
    Other(String, String),
    #[error("the site that is proposed makes no group ({0}): set mesh.site")]
    Unusable(String),
    #[error("the place cannot be kept in {path}: {error}", path = path.display())]
    Store { path: std::path::PathBuf, error: std::io::Error },
    #[error("the station is stopping")]
    Stopping,
    #[error("internal error: taking the place ended in a panic, see the log")]
    Panicked,
}

impl Sites {
    pub(crate) fn new(
        host: Name,
        (config, state): (MeshConfig, &Path),
        mesh_state: Arc<MeshState>,
        snapshot: MeshSnapshot,
        bank: Arc<Mutex<Bank>>,
    ) -> Self {
        let patience = Mutex::new(Patience::new(config.sites_hold));
        let (kept, began) = (tokio::sync::Mutex::default(), Instant::now());
        let (state, turn) = (state.to_path_buf(), Arc::default());
        Self { host, config, state, mesh_state, snapshot, bank, kept, patience, began, turn }
    }

    /// The proposed sites, at most some seconds old.
    pub(crate) async fn view(&self) -> Arc<View> {
        let mut kept = self.kept.lock().await;
        if let Some((at, view)) = &*kept
            && at.elapsed() < VIEW_AGE
        {
            return Arc::clone(view);
        }
        // Reading the directory is costly. But if a proposal has to last only for a short time, it
        // is evaluated more often, and needs newer data.
        let age = (self.config.sites_hold / LOOKS).clamp(VIEW_AGE, snapshot::RENEWED);
        let places = self.snapshot.places(age).await;
        let (own, standing, bank) = (self.host.clone(), self.mesh_state.standing(), Arc::clone(&self.bank));
        // Takes a second in a large mesh, so it must not block the async thread.
        let made = tokio::task::spawn_blocking(move || {
            let pairs = Pairs::new(&bank, now_unix_ns(), snapshot::PAUSE);
            View::new(&own, &places, &standing, move |from, to| pairs.tried_round_trip(from, to))
        });
        // Fails only after a panic or while the station is stopping.
        let view = made.await.unwrap_or_else(|error| {
            tracing::error!("sites are not looked for: {error}");
            let standing = self.mesh_state.standing();
            View::new(&self.host, &Places::default(), &standing, |_, _| RoundTrip::Unmeasured)
        });
        let view = Arc::new(view);
        *kept = Some((Instant::now(), Arc::clone(&view)));
        view
    }

    /// Whether this station receives the records of all pairs of the mesh, not only its own.
    pub(crate) fn sees_all(&self) -> bool {
        matches!(self.mesh_state.kind, Kind::Local | Kind::Nats { archive: true })
    }

    /// Position that the station will take automatically, and the time until then.
    pub(crate) fn pending(&self) -> Option<(Position, Duration)> {
        let patience = lock(&self.patience);
        patience.pending(self.began.elapsed()).map(|(position, left)| (position.clone(), left))
    }

    /// Position that [`Self::accept`] would take now.
    pub(crate) fn proposed(&self, view: &View) -> Option<Position> {
        let standing = self.at(&view.proposed()?, Origin::Accepted).ok()?;
        Some(Position { site: standing.site.to_string(), represents: standing.represents })
    }

    /// Takes the proposed position. If `site` is given, the position must be at that site.
    pub(crate) async fn accept(&self, site: Option<&str>) -> Result<(), SitesError> {
        let turn = self.turn().await?;
        let proposed = self.view().await.proposed().ok_or(SitesError::Nothing)?;
        if let Some(site) = site.filter(|site| *site != proposed.site) {
            return Err(SitesError::Other(site.into(), proposed.site));
        }
        let standing = self.at(&proposed, Origin::Accepted).map_err(SitesError::Unusable)?;
        self.stand(turn, standing).await
    }

    /// Returns to the configured site.
    pub(crate) async fn forget(&self) -> Result<(), SitesError> {
        let turn = self.turn().await?;
        if self.config.sites_auto && self.mesh_state.standing().from != Origin::Accepted {
            return Err(SitesError::Auto);
        }
        self.stand(turn, Standing::told(&self.config)).await
    }

    /// Periodically evaluates a position that was taken, and takes proposed positions if
    /// `mesh.sites` is `auto`. Never returns unless the future is dropped.
    pub(crate) async fn follow(&self) {
        let every = LOOK_EVERY.min(self.config.sites_hold / LOOKS).max(VIEW_AGE);
        // Delays leaving `local:default` until no other station needs it there.
        let mut leaving = Patience::new(self.config.sites_hold);
        loop {
            tokio::time::sleep(every).await;
            let Ok(turn) = self.turn().await else { return std::future::pending().await };
            let standing = self.mesh_state.standing();
            let is_free = self.config.sites_auto && standing.from != Origin::Accepted;
            if !is_free && !standing.is_taken() {
                continue;
            }
            let view = self.view().await;
            let asked = if is_free { view.asked() } else { None };
            // Ignore a proposal that would not change the groups of this station.
            let asked = asked
                .filter(|asked| self.at(asked, Origin::Auto).is_ok_and(|new| new.groups != standing.groups));
            let now = self.began.elapsed();
            let due = lock(&self.patience).look(asked, now);
            let is_idle = standing.is_unset() && !view.has_unset;
            let leaves = leaving.look(is_idle.then_some(()), now).is_some();
            let place = Position { site: standing.site.to_string(), represents: standing.represents };
            let new = match due {
                Some(position) => self.at(&position, Origin::Auto),
                None if !standing.is_taken() => continue,
                None => {
                    let is_unset = view.has_unset || (standing.is_unset() && !leaves);
                    Standing::taken(&self.config, &place, standing.from, is_unset)
                }
            };
            if let Ok(new) = new
                && new != standing
                && let Err(error) = self.stand(turn, new).await
            {
                tracing::warn!("{error}");
            }
        }
    }

    /// Waits for the exclusive right to change the site. Fails if `mesh.site` is set.
    async fn turn(&self) -> Result<OwnedMutexGuard<()>, SitesError> {
        if self.config.has_site() {
            return Err(SitesError::Configured(self.config.site.clone()));
        }
        Ok(Arc::clone(&self.turn).lock_owned().await)
    }

    /// Standing of this station at a position. A station in `local:default` stays in it, because
    /// others may still be there.
    fn at(&self, position: &Position, from: Origin) -> Result<Standing, String> {
        Standing::taken(&self.config, position, from, self.mesh_state.standing().is_unset())
    }

    async fn stand(&self, turn: OwnedMutexGuard<()>, standing: Standing) -> Result<(), SitesError> {
        let (mesh_state, state) = (Arc::clone(&self.mesh_state), self.state.clone());
        // Completes even if the caller stops waiting.
        let done = tokio::task::spawn_blocking(move || {
            standing.keep(&state).map_err(|(path, error)| SitesError::Store { path, error })?;
            let role = if standing.represents { ", which it represents" } else { "" };
            tracing::info!(
                "this station is at the site {}{role} ({})",
                standing.site,
                standing.from.as_str()
            );
            mesh_state.set_standing(standing);
            drop(turn);
            Ok(())
        });
        done.await.unwrap_or_else(|error| {
            if !error.is_panic() {
                return Err(SitesError::Stopping);
            }
            tracing::error!("the place was not taken: {error}");
            Err(SitesError::Panicked)
        })?;
        // Drop the pending proposal and the view: both belong to the old position.
        lock(&self.patience).reset();
        *self.kept.lock().await = None;
        Ok(())
    }
}

/// Combines the forecasts of the two ends of a pair. A forecast of one end alone counts only if
/// that end is this station.
fn both_ways(there: RoundTrip, back: RoundTrip, is_own_there: bool, is_own_back: bool) -> RoundTrip {
    match (there, back) {
        (RoundTrip::Known(there), RoundTrip::Known(back)) => {
            RoundTrip::Known(if there.value < back.value { back } else { there })
        }
        (RoundTrip::Failed, _) | (_, RoundTrip::Failed) => RoundTrip::Failed,
        (RoundTrip::Known(_), _) if is_own_there => there,
        (_, RoundTrip::Known(_)) if is_own_back => back,
        _ => RoundTrip::Unmeasured,
    }
}

/// Site and role of a host, from its groups.
fn stand(host: &Name, groups: &[Name]) -> Stand {
    let mut sites = groups.iter().filter_map(|group| group.as_str().strip_prefix(LOCAL));
    Stand {
        host: host.to_string(),
        site: sites.find(|site| *site != UNSET).map(String::from),
        represents: groups.iter().any(|group| group.as_str() == GLOBAL),
    }
}

/// Longest age of a view. Sites do not change within seconds, and computing them is costly.
const VIEW_AGE: Duration = Duration::from_secs(1);
/// Longest time between two evaluations of the station's site; and the minimum number of
/// evaluations within the time that a proposal has to last.
const LOOK_EVERY: Duration = Duration::from_secs(30);
const LOOKS: u32 = 4;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
