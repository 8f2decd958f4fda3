//! Which stations form a site, by what is forecast here, and this station's own place among them: told, accepted, or
//! taken by itself (docs/spec/mesh.md, "Sites").

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use barograph_forecast::Name;
use barograph_mesh::{
    GLOBAL, LOCAL, Patience, Position, RoundTrip, SITES_HOSTS_MAX, Site, Stand, UNSET, clear_position,
    position, sites_of,
};

use tokio::sync::OwnedMutexGuard;

use super::desk::{self, Desk};
use crate::config::MeshConfig;
use crate::forecast::bank::Bank;
use crate::forecast::best::{Pairs, Places};
use crate::mesh::{Board, Kind};
use crate::sync::lock;
use crate::time::now_unix_ns;

pub(crate) use standing::{Origin, Standing};

mod standing;

/// What can be proposed now.
pub(crate) struct View {
    pub(crate) hosts: Vec<Stand>,
    pub(crate) sites: Vec<Site>,
    /// This station among the hosts.
    own: usize,
    /// Hosts of which no round trip is known.
    pub(crate) unknown: Vec<usize>,
    /// Hosts beyond the most that are looked at.
    pub(crate) left_out: usize,
    /// Somebody else is in `local:default` and not in `global`.
    has_unset: bool,
}

impl View {
    /// The sites of a mesh. What is known of a pair is the longer of what its two ends forecast; what only one end says
    /// counts if that is this station: so no station comes near others by its word alone. A pair of which one direction
    /// failed is not known. A pair is seen from here if this station is one of its ends, or what one of its ends measured comes here.
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
        // The closure holds the bank.
        drop(rtt);
        let is_unknown = |host: &usize| {
            let of_host = &known[host * n..][..n];
            !of_host.iter().any(|pair| matches!(pair, RoundTrip::Known(_)))
        };
        let unknown = (0..names.len()).filter(is_unknown).collect();
        let sites = sites_of(&hosts, |a, b| known[a * n + b]);
        Self { hosts, sites, own, unknown, left_out, has_unset }
    }

    /// Where the station goes by itself.
    fn asked(&self) -> Option<Position> {
        clear_position(self.own, &self.hosts, &self.sites)
    }

    /// The place for this station by the forecasts; `None` = it stands alone, or nothing is known.
    fn proposed(&self) -> Option<Position> {
        position(self.own, &self.hosts, &self.sites)
    }
}

/// The sites, looked for when somebody asks, and this station's place.
pub(crate) struct Sites {
    host: Name,
    config: MeshConfig,
    state: std::path::PathBuf,
    board: Arc<Board>,
    desk: Desk,
    bank: Arc<Mutex<Bank>>,
    /// Made once for all who ask at the same time.
    kept: tokio::sync::Mutex<Option<(Instant, Arc<View>)>>,
    patience: Mutex<Patience>,
    began: Instant,
    /// One change after the other: of the file and of the board as one.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// Why a place is not taken, or not given up.
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
        board: Arc<Board>,
        desk: Desk,
        bank: Arc<Mutex<Bank>>,
    ) -> Self {
        let patience = Mutex::new(Patience::new(config.sites_hold));
        let (kept, began) = (tokio::sync::Mutex::default(), Instant::now());
        let (state, turn) = (state.to_path_buf(), Arc::default());
        Self { host, config, state, board, desk, bank, kept, patience, began, turn }
    }

    /// What can be proposed, as of some seconds ago at most.
    pub(crate) async fn view(&self) -> Arc<View> {
        let mut kept = self.kept.lock().await;
        if let Some((at, view)) = &*kept
            && at.elapsed() < VIEW_AGE
        {
            return Arc::clone(view);
        }
        // Reading the directory is work, too, but a proposal that is to last a shorter time is judged more often.
        let age = (self.config.sites_hold / LOOKS).clamp(VIEW_AGE, desk::RENEWED);
        let places = self.desk.places(age).await;
        let (own, standing, bank) = (self.host.clone(), self.board.standing(), Arc::clone(&self.bank));
        // A second in a large mesh: away from the thread that answers.
        let made = tokio::task::spawn_blocking(move || {
            let pairs = Pairs::new(&bank, now_unix_ns(), desk::PAUSE);
            View::new(&own, &places, &standing, move |from, to| pairs.tried_round_trip(from, to))
        });
        // The station is stopping, or there was a panic.
        let view = made.await.unwrap_or_else(|error| {
            tracing::error!("sites are not looked for: {error}");
            let standing = self.board.standing();
            View::new(&self.host, &Places::default(), &standing, |_, _| RoundTrip::Unmeasured)
        });
        let view = Arc::new(view);
        *kept = Some((Instant::now(), Arc::clone(&view)));
        view
    }

    /// Whether all pairs of the mesh come here, or those of this station alone.
    pub(crate) fn sees_all(&self) -> bool {
        matches!(self.board.kind, Kind::Local | Kind::Nats { archive: true })
    }

    /// What the station is about to do by itself, and in how long.
    pub(crate) fn pending(&self) -> Option<(Position, Duration)> {
        let patience = lock(&self.patience);
        patience.pending(self.began.elapsed()).map(|(position, left)| (position.clone(), left))
    }

    /// The place that accepting takes now.
    pub(crate) fn proposed(&self, view: &View) -> Option<Position> {
        let standing = self.at(&view.proposed()?, Origin::Accepted).ok()?;
        Some(Position { site: standing.site.to_string(), represents: standing.represents })
    }

    /// Takes the proposed place, which must be at `site` if that is said.
    pub(crate) async fn accept(&self, site: Option<&str>) -> Result<(), SitesError> {
        let turn = self.turn().await?;
        let proposed = self.view().await.proposed().ok_or(SitesError::Nothing)?;
        if let Some(site) = site.filter(|site| *site != proposed.site) {
            return Err(SitesError::Other(site.into(), proposed.site));
        }
        let standing = self.at(&proposed, Origin::Accepted).map_err(SitesError::Unusable)?;
        self.stand(turn, standing).await
    }

    /// Goes back to what the configuration says.
    pub(crate) async fn forget(&self) -> Result<(), SitesError> {
        let turn = self.turn().await?;
        if self.config.sites_auto && self.board.standing().from != Origin::Accepted {
            return Err(SitesError::Auto);
        }
        self.stand(turn, Standing::told(&self.config)).await
    }

    /// Looks again and again at a place that was taken, and takes proposed ones by itself if it may, as long as it is polled.
    pub(crate) async fn follow(&self) {
        let every = LOOK_EVERY.min(self.config.sites_hold / LOOKS).max(VIEW_AGE);
        // Until nobody needs the station in `local:default` any more.
        let mut leaving = Patience::new(self.config.sites_hold);
        loop {
            tokio::time::sleep(every).await;
            let Ok(turn) = self.turn().await else { return std::future::pending().await };
            let standing = self.board.standing();
            let is_free = self.config.sites_auto && standing.from != Origin::Accepted;
            if !is_free && !standing.is_taken() {
                continue;
            }
            let view = self.view().await;
            let asked = if is_free { view.asked() } else { None };
            // What would change nothing is not asked, whatever the configuration makes of it.
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

    /// The leave to change the place.
    async fn turn(&self) -> Result<OwnedMutexGuard<()>, SitesError> {
        if self.config.has_site() {
            return Err(SitesError::Configured(self.config.site.clone()));
        }
        Ok(Arc::clone(&self.turn).lock_owned().await)
    }

    /// This station at a position. It stays in `local:default` if it is there: others may not have gone yet.
    fn at(&self, position: &Position, from: Origin) -> Result<Standing, String> {
        Standing::taken(&self.config, position, from, self.board.standing().is_unset())
    }

    async fn stand(&self, turn: OwnedMutexGuard<()>, standing: Standing) -> Result<(), SitesError> {
        let (board, state) = (Arc::clone(&self.board), self.state.clone());
        // As a whole, even if nobody waits for it any more.
        let done = tokio::task::spawn_blocking(move || {
            standing.keep(&state).map_err(|(path, error)| SitesError::Store { path, error })?;
            let role = if standing.represents { ", which it represents" } else { "" };
            tracing::info!(
                "this station is at the site {}{role} ({})",
                standing.site,
                standing.from.as_str()
            );
            board.set_standing(standing);
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
        // What was seen from the old place is not asked for again, nor waited for.
        lock(&self.patience).reset();
        *self.kept.lock().await = None;
        Ok(())
    }
}

/// What is known of a pair by what its two ends forecast. One end alone counts only if it is this station.
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

/// What a host says of itself, by its groups.
fn stand(host: &Name, groups: &[Name]) -> Stand {
    let mut sites = groups.iter().filter_map(|group| group.as_str().strip_prefix(LOCAL));
    Stand {
        host: host.to_string(),
        site: sites.find(|site| *site != UNSET).map(String::from),
        represents: groups.iter().any(|group| group.as_str() == GLOBAL),
    }
}

/// Sites do not change within seconds, and looking for them is work.
const VIEW_AGE: Duration = Duration::from_secs(1);
/// How often a station looks whether it should be elsewhere, and at least how often within the time that a proposal has to last.
const LOOK_EVERY: Duration = Duration::from_secs(30);
const LOOKS: u32 = 4;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
