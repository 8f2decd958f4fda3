//! The engine that a station's configuration asks for.

#[cfg_attr(not(feature = "nats"), path = "engine/without_nats.rs")]
mod nats;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use barograph_engine::{Engine, Joined, JoinedConfig, Local, Remote, RemoteConfig};
use barograph_forecast::Name;
use barograph_probe::Target;

pub(crate) use self::nats::{Archiver, ArchiverStatistics};
use crate::config::{Config, MeshConfig};
use crate::state;

/// Why the engine that a configuration asks for cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// A mesh is to be joined without an invitation.
    #[error(
        "joining {0} needs an invitation: run `barograph invite` there, and give its token as the variable \
         BAROGRAPH_JOIN_TOKEN or in mesh.join_token_file"
    )]
    Uninvited(String),
    /// The file with the token of the invitation cannot be read.
    #[error("{path}: {error}", path = path.display(), error = barograph_engine::with_remedy(.error))]
    Token {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A station is to join itself.
    #[error(
        "{0} is this station itself: mesh.join names the station that others join, and that one joins nobody"
    )]
    Itself(String),
    /// The configuration names NATS servers, and this build has no NATS client.
    #[cfg(not(feature = "nats"))]
    #[error(
        "mesh.nats: this build has no NATS client. Use a release build: \
         `cargo install --locked --path crates/cli`, or `cargo build --release --locked` in the repository"
    )]
    WithoutNats,
    /// A certificate or credentials cannot be used, or the archive cannot be a spool.
    #[error("{}", one_line(.0))]
    Engine(#[from] barograph_engine::Error),
}

/// A message in one line; SQLite's may have several.
pub(crate) fn one_line(error: &barograph_engine::Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What a station stores in, reads from and is registered with.
#[derive(Clone)]
pub struct Engines {
    pub(crate) engine: Arc<dyn Engine>,
    /// The station's own archive: history is replayed from it, whether the mesh can be reached or not.
    pub(crate) local: Arc<dyn Engine>,
    /// Served to the stations that this one invites; `None` = the mesh's engine is another's.
    pub(crate) served: Option<Arc<Local>>,
    /// The station's own archive where it takes what others measured; `None` = it does not.
    pub(crate) keeps: Option<Arc<Local>>,
    pub(crate) kind: Kind,
    pub(crate) spool: Option<SpoolFn>,
    /// Keeps the mesh's history for as long as the station runs.
    pub(crate) archiver: Option<Arc<Archiver>>,
}

/// How the engine of a mesh is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is the station's own; others may join it.
    Local,
    /// It is that of the station with this URL.
    Remote(String),
    /// NATS servers; `archive` = this station keeps the mesh's history.
    Nats {
        /// Whether it does.
        archive: bool,
    },
}

/// Records that wait for the mesh, in the station's own archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spool {
    /// Records that wait.
    pub records: u64,
    /// Whether no further record may wait.
    pub is_full: bool,
    /// Appends refused because no further record might wait.
    pub turned_away: u64,
    /// Records that the mesh has acknowledged, repetitions counted again.
    pub forwarded: u64,
    /// Own records that the mesh does not take.
    pub refused: u64,
    /// Own records that the mesh may never get, because it holds another station's under their numbers.
    pub overtaken: u64,
    /// Whether they go at the pace that the mesh asked for.
    pub is_paced: bool,
    /// The sequence up to which the mesh has everything; `None` = it has not said yet.
    pub watermark: Option<u64>,
    /// Why forwarding does not go on; `None` = it does.
    pub last_error: Option<String>,
}

/// Asks for the figures of a spool.
type SpoolFn = Arc<dyn Fn() -> Spool + Send + Sync>;

impl Engines {
    /// One engine for everything, of a station that has joined no mesh.
    #[must_use]
    pub fn alone(engine: Arc<dyn Engine>) -> Self {
        Self {
            local: Arc::clone(&engine),
            engine,
            served: None,
            keeps: None,
            kind: Kind::Local,
            spool: None,
            archiver: None,
        }
    }

    /// A station's own archive, which others may join.
    #[must_use]
    pub fn serving(archive: Arc<Local>) -> Self {
        let engine: Arc<dyn Engine> = Arc::<Local>::clone(&archive);
        Self { keeps: Some(Arc::clone(&archive)), served: Some(archive), ..Self::alone(engine) }
    }
}

/// The engines that `config` asks for, around the station's own archive. None of them is waited for.
///
/// # Errors
/// [`JoinError`] when a token or a certificate cannot be used, or the archive cannot be a spool.
pub(crate) fn engine(config: &Config, host: &Name, local: Arc<Local>) -> Result<Engines, JoinError> {
    let mesh = &config.mesh;
    if !mesh.nats.is_empty() {
        return nats::engines(config, host, local);
    }
    let Some(url) = &mesh.join else { return Ok(Engines::serving(local)) };
    if is_own(url, config, host) {
        return Err(JoinError::Itself(url.clone()));
    }
    let remote = Remote::new(RemoteConfig {
        token: Some(invitation(mesh)?),
        ca: mesh.join_ca.clone(),
        ..RemoteConfig::new(url, host.clone())
    })?;
    spooled(mesh, host, local, Arc::new(remote), Kind::Remote(url.clone()))
}

/// Whether a URL says this station, as far as that is known without asking anybody.
fn is_own(url: &str, config: &Config, host: &Name) -> bool {
    let Ok(target) = Target::parse(url) else { return false };
    let is_here = match target.host().parse::<IpAddr>() {
        Ok(ip) => ip.is_loopback() || ip.is_unspecified() || super::addresses::interfaces().contains(&ip),
        Err(_) => ["localhost", host.as_str()].iter().any(|own| own.eq_ignore_ascii_case(target.host())),
    };
    is_here && target.port() == config.listen.port()
}

/// The station's own archive before the engine of a mesh.
fn spooled(
    mesh: &MeshConfig,
    host: &Name,
    local: Arc<Local>,
    engine: Arc<dyn Engine>,
    kind: Kind,
) -> Result<Engines, JoinError> {
    let config = JoinedConfig {
        spool_records_max: mesh.spool_records_max,
        is_archive: kind == Kind::Nats { archive: true },
        ..JoinedConfig::new(host.clone())
    };
    let joined = Arc::new(Joined::start(config, Arc::clone(&local), engine)?);
    let figures = Arc::clone(&joined);
    let spool: SpoolFn = Arc::new(move || spool(&figures));
    Ok(Engines { engine: joined, local, served: None, keeps: None, kind, spool: Some(spool), archiver: None })
}

fn spool(joined: &Joined) -> Spool {
    let figures = joined.statistics();
    Spool {
        records: figures.spooled,
        is_full: figures.is_full,
        turned_away: figures.turned_away,
        forwarded: figures.forwarded,
        refused: figures.refused,
        overtaken: figures.overtaken,
        is_paced: figures.is_paced,
        watermark: figures.watermark,
        last_error: figures.last_error.map(|error| error.to_string()),
    }
}

/// The token of the invitation, from the environment, else from its file.
fn invitation(mesh: &MeshConfig) -> Result<String, JoinError> {
    match (&mesh.join_token, &mesh.join_token_file) {
        (Some(token), _) => Ok(token.reveal().to_string()),
        (None, Some(path)) => {
            state::other_token(path).map_err(|error| JoinError::Token { path: path.clone(), error })
        }
        (None, None) => Err(JoinError::Uninvited(mesh.join.clone().unwrap_or_default())),
    }
}

impl Kind {
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote(_) => "remote",
            Self::Nats { .. } => "nats",
        }
    }

    /// What the station is in its mesh.
    pub(crate) fn role(&self) -> &'static str {
        match self {
            Self::Local => "host",
            Self::Remote(_) | Self::Nats { archive: false } => "member",
            Self::Nats { archive: true } => "archive",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_knows_itself() {
        let config = Config { listen: ([0, 0, 0, 0], 7).into(), ..Config::default() };
        let host = Name::new("north.example").expect("a name");
        let is_own = |url| is_own(url, &config, &host);
        for own in
            ["http://127.0.0.1:7/", "http://[::1]:7/", "https://localhost:7/", "http://North.example:7/"]
        {
            assert!(is_own(own), "{own}");
        }
        assert!(is_own("http://0.0.0.0:7/") && is_own("http://[::]:7/"));
        for other in ["http://127.0.0.1:8/", "http://south.example:7/", "http://192.0.2.1:7/"] {
            assert!(!is_own(other), "{other}");
        }
    }
}
