//! Which stations form a site, by what is forecast here, and this station's own place among them: told, accepted, or
//! taken by itself (docs/spec/mesh.md, "Sites").

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use barograph_forecast::Name;
use barograph_mesh::{Estimate, Patience, Position, SITES_HOSTS_MAX, Site, Stand, position, sites_of};
use serde::{Deserialize, Serialize};

use crate::bank::Bank;
use crate::best::{Pairs, Places};
use crate::config::{MeshConfig, local_group};
use crate::desk::Desk;
use crate::health::lock;
use crate::mesh::{Board, Kind};
use crate::prober::now_unix_ns;
use crate::state::write_whole;

/// Where a station stands, and who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) site: Name,
    /// It is in `global`, whoever says so.
    pub(crate) represents: bool,
    pub(crate) from: Origin,
    pub(crate) groups: Vec<Name>,
}

/// Who says where a station stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nobody.
    Default,
    /// Its configuration.
    Configured,
    /// Somebody who accepted what was proposed.
    Accepted,
    /// The station itself.
    Auto,
}

impl Origin {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Configured => "configured",
            Self::Accepted => "accepted",
            Self::Auto => "auto",
        }
    }
}

/// What is kept of a place that was taken.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    site: String,
    represents: bool,
    auto: bool,
}

impl Standing {
    /// As it is at a start: a configured site, else the place that was taken before, else none.
    pub(crate) fn at_start(config: &MeshConfig, state: &Path) -> Self {
        let kept = if config.has_site() { None } else { kept(state) };
        // What a station took by itself it gives up when it may not any more.
        match kept.filter(|kept| !kept.auto || config.sites_auto) {
            Some(kept) => {
                let origin = if kept.auto { Origin::Auto } else { Origin::Accepted };
                let position = Position { site: kept.site, represents: kept.represents };
                Self::taken(config, &position, origin).unwrap_or_else(|| Self::told(config))
            }
            None => Self::told(config),
        }
    }

    /// As the configuration says; under `auto` it represents itself.
    fn told(config: &MeshConfig) -> Self {
        let represents = config.sites_auto && !config.has_site();
        let from = match (config.has_site(), config.sites_auto) {
            (true, _) => Origin::Configured,
            (false, true) => Origin::Auto,
            (false, false) => Origin::Default,
        };
        Self::new(config, config.site.clone(), represents, from)
    }

    /// At a position; `None` if its site's name makes no group.
    fn taken(config: &MeshConfig, position: &Position, from: Origin) -> Option<Self> {
        let site = Name::new(&position.site).ok().filter(|site| local_group(site).is_ok())?;
        Some(Self::new(config, site, position.represents, from))
    }

    fn new(config: &MeshConfig, site: Name, represents: bool, from: Origin) -> Self {
        let groups = config.groups_at(&site, represents);
        let represents = groups.iter().any(|group| group.as_str() == GLOBAL);
        Self { site, represents, from, groups }
    }
}

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
}

impl View {
    /// The sites of a mesh. What is known of a pair is the longer of what its two ends forecast; what only one end says
    /// counts if that is this station: so nobody comes near others by its word alone.
    fn new(
        own: &Name,
        places: &Places,
        standing: &Standing,
        rtt: impl Fn(&Name, &Name) -> Option<Estimate>,
    ) -> Self {
        let mut names: Vec<&Name> =
            places.hosts().filter(|host| *host != own && !places.is_lost(host)).collect();
        let left_out = names.len().saturating_sub(SITES_HOSTS_MAX - 1);
        names.truncate(SITES_HOSTS_MAX - 1);
        names.push(own);
        names.sort();
        let stand = |host: &&Name| {
            let groups = if *host == own { &standing.groups[..] } else { places.groups(host) };
            stand(host, groups)
        };
        let hosts: Vec<Stand> = names.iter().map(stand).collect();
        let own = names.iter().position(|name| *name == own).unwrap_or(0);
        let mut known = vec![None; names.len() * names.len()];
        for (a, b) in (0..names.len()).flat_map(|b| (0..b).map(move |a| (a, b))) {
            let both = match (rtt(names[a], names[b]), rtt(names[b], names[a])) {
                (Some(there), Some(back)) => Some(if there.value < back.value { back } else { there }),
                (there, back) => there.filter(|_| a == own).or(back.filter(|_| b == own)),
            };
            (known[a * names.len() + b], known[b * names.len() + a]) = (both, both);
        }
        // Whoever looks holds the bank.
        drop(rtt);
        let is_unknown =
            |host: &usize| known[host * names.len()..][..names.len()].iter().all(Option::is_none);
        let unknown = (0..names.len()).filter(is_unknown).collect();
        let sites = sites_of(&hosts, |a, b| known[a * names.len() + b]);
        Self { hosts, sites, own, unknown, left_out }
    }

    /// What the station is asked to change by itself.
    fn asked(&self) -> Option<Position> {
        position(self.own, &self.hosts, &self.sites)
    }

    /// The place that is proposed for this station, for somebody to accept; `None` = it stands alone, or nothing is known.
    pub(crate) fn proposed(&self) -> Option<Position> {
        let site = self.sites.iter().find(|site| site.proposal.hosts.contains(&self.own))?;
        let is_one = 1 < site.proposal.hosts.len();
        is_one.then(|| Position { site: site.name.clone(), represents: site.representative == self.own })
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
}

/// Why a place is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SitesError {
    #[error("mesh.site is set to {0}: what is configured goes before a proposal")]
    Configured(Name),
    #[error("no site is proposed for this station: it stands alone, or too little is forecast yet")]
    Nothing,
    #[error("{0} is not proposed for this station now, but {1}")]
    Other(String, String),
    #[error("the place cannot be kept in {path}: {error}", path = path.display())]
    Store { path: std::path::PathBuf, error: std::io::Error },
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
        Self { host, config, state: state.to_path_buf(), board, desk, bank, kept, patience, began }
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
        let age = (self.config.sites_hold / LOOKS).clamp(VIEW_AGE, crate::desk::RENEWED);
        let places = self.desk.places(age).await;
        let (own, standing, bank) = (self.host.clone(), self.board.standing(), Arc::clone(&self.bank));
        // A second in a large mesh: away from the thread that answers.
        let made = tokio::task::spawn_blocking(move || {
            let pairs = Pairs::new(&bank, now_unix_ns(), crate::desk::PAUSE);
            View::new(&own, &places, &standing, move |from, to| pairs.round_trip(from, to))
        });
        // It only fails when the station is stopping.
        let view = made.await.unwrap_or_else(|_| {
            View::new(&self.host, &Places::default(), &self.board.standing(), |_, _| None)
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

    /// Takes the proposed place, which must be at `site` if that is said.
    pub(crate) async fn accept(&self, site: Option<&str>) -> Result<(), SitesError> {
        if self.config.has_site() {
            return Err(SitesError::Configured(self.config.site.clone()));
        }
        let proposed = self.view().await.proposed().ok_or(SitesError::Nothing)?;
        match site {
            Some(site) if site != proposed.site => Err(SitesError::Other(site.into(), proposed.site)),
            _ => self.take(&proposed, Origin::Accepted).await,
        }
    }

    /// Goes back to what the configuration says.
    pub(crate) async fn forget(&self) -> Result<(), SitesError> {
        let path = self.state.join(FILE);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(SitesError::Store { path, error });
            }
            _ => {}
        }
        self.stand(Standing::told(&self.config)).await;
        Ok(())
    }

    /// Takes proposed places by itself, as long as it is polled.
    pub(crate) async fn follow(&self) {
        if !self.config.sites_auto || self.config.has_site() {
            return std::future::pending().await;
        }
        let every = LOOK_EVERY.min(self.config.sites_hold / LOOKS).max(VIEW_AGE);
        loop {
            tokio::time::sleep(every).await;
            let asked = self.view().await.asked();
            let standing = self.board.standing();
            let has_site = standing.site != self.config.site;
            let current = Position { site: standing.site.to_string(), represents: standing.represents };
            let current = has_site.then_some(&current);
            let due = lock(&self.patience).look(current, asked, self.began.elapsed());
            if let Some(position) = due
                && let Err(error) = self.take(&position, Origin::Auto).await
            {
                tracing::warn!("{error}");
            }
        }
    }

    async fn take(&self, position: &Position, from: Origin) -> Result<(), SitesError> {
        let standing = Standing::taken(&self.config, position, from).ok_or(SitesError::Nothing)?;
        let kept =
            Kept { site: position.site.clone(), represents: position.represents, auto: from == Origin::Auto };
        let path = self.state.join(FILE);
        let written = {
            let path = path.clone();
            tokio::task::spawn_blocking(move || {
                write_whole(&path, serde_json::to_string(&kept).unwrap_or_default().as_bytes())
            })
        };
        if let Ok(Err(error)) = written.await {
            return Err(SitesError::Store { path, error });
        }
        self.stand(standing).await;
        Ok(())
    }

    async fn stand(&self, standing: Standing) {
        let role = if standing.represents { ", which it represents" } else { "" };
        tracing::info!("this station is at the site {}{role} ({})", standing.site, standing.from.as_str());
        self.board.set_standing(standing);
        // What was seen from the old place is not asked for again.
        *self.kept.lock().await = None;
    }
}

fn kept(state: &Path) -> Option<Kept> {
    let path = state.join(FILE);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!("{}: {error}; the station's site is as configured", path.display());
            return None;
        }
    };
    match serde_json::from_slice(&text) {
        Ok(kept) => Some(kept),
        Err(error) => {
            tracing::warn!("{}: {error}; the station's site is as configured", path.display());
            None
        }
    }
}

/// What a host says of itself, by its groups.
fn stand(host: &Name, groups: &[Name]) -> Stand {
    let site = groups.iter().find_map(|group| group.as_str().strip_prefix(LOCAL));
    Stand {
        host: host.to_string(),
        site: site.filter(|site| *site != MeshConfig::UNSET).map(String::from),
        represents: groups.iter().any(|group| group.as_str() == GLOBAL),
    }
}

const FILE: &str = "site.json";
/// Sites do not change within seconds, and looking for them is work.
const VIEW_AGE: Duration = Duration::from_secs(1);
/// How often a station looks whether it should be elsewhere, and at least how often within the time that a proposal has to last.
const LOOK_EVERY: Duration = Duration::from_secs(30);
const LOOKS: u32 = 4;
const GLOBAL: &str = "global";
const LOCAL: &str = "local:";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
