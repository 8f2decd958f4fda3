//! The engine of a station's mesh, as the configuration selects it.

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

/// Why the configured engine cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// `mesh.join` is set, and there is no invitation.
    #[error(
        "to join {0}, run `barograph invite` there; then set BAROGRAPH_JOIN_TOKEN to the token, or \
         mesh.join_token_file to its file"
    )]
    Uninvited(String),
    /// The file with the token of the invitation cannot be read.
    #[error("{path}: {error}", path = path.display(), error = barograph_engine::describe_io_error(.error))]
    Token {
        /// Path of the file with the token.
        path: PathBuf,
        /// Error from reading the file.
        error: std::io::Error,
    },
    /// `mesh.join` names this station itself.
    #[error(
        "mesh.join names this station itself ({0}): remove mesh.join here, and set it on the stations that join"
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
    Engine(#[from] barograph_engine::EngineError),
}

/// An error message on one line; messages of SQLite may have several lines.
pub(crate) fn one_line(error: &barograph_engine::EngineError) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The engines in which a station stores its records, from which the station reads records, and
/// with which the station registers.
#[derive(Clone)]
pub struct Engines {
    pub(crate) engine: Arc<dyn Engine>,
    /// Archive of this station. History is replayed from this archive, so that the start of the
    /// station does not need the mesh.
    pub(crate) local: Arc<dyn Engine>,
    /// Archive that this station serves to the stations that it invites; `None` = no station can
    /// join this station.
    pub(crate) served: Option<Arc<Local>>,
    /// Archive of this station, if it stores records of other stations; `None` = it stores only
    /// records of this station.
    pub(crate) foreign_archive: Option<Arc<Local>>,
    pub(crate) location: EngineLocation,
    pub(crate) spool: Option<SpoolFn>,
    /// Stores the history of a mesh on NATS in this station's archive, as long as the station runs.
    /// `None` = this station does not store this history.
    pub(crate) archiver: Option<Arc<Archiver>>,
}

/// Where the engine of a mesh runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineLocation {
    /// The engine runs in this station; other stations may join this station.
    Local,
    /// The engine runs in the station with this URL.
    Remote(String),
    /// The engine uses NATS servers, which all members share.
    Nats {
        /// Whether this station stores the mesh's history.
        archive: bool,
    },
}

/// State of the spool: records in the station's archive that the mesh has not acknowledged. The
/// counters begin at 0 when the station starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spool {
    /// Number of records that the mesh has not acknowledged yet.
    pub records: u64,
    /// Whether the spool is full.
    pub is_full: bool,
    /// Number of appends that were refused because the spool was full.
    pub refused_full: u64,
    /// Number of records that the mesh acknowledged. A record that was sent twice counts twice.
    pub forwarded: u64,
    /// Number of this station's records that the mesh refused.
    pub refused: u64,
    /// Number of this station's records that may never reach the mesh, because the mesh stores
    /// different records under the same sequence numbers.
    pub conflicting: u64,
    /// Whether the mesh limits the rate of forwarding.
    pub is_throttled: bool,
    /// Sequence number up to which the mesh misses no record; `None` before its first response.
    pub watermark: Option<u64>,
    /// Why nothing is forwarded now; `None` if forwarding works.
    pub last_error: Option<String>,
}

/// A function that returns the current state of a spool.
type SpoolFn = Arc<dyn Fn() -> Spool + Send + Sync>;

impl Engines {
    /// Engines of a station that has joined no mesh: `engine` is used for everything.
    #[must_use]
    pub fn alone(engine: Arc<dyn Engine>) -> Self {
        Self {
            local: Arc::clone(&engine),
            engine,
            served: None,
            foreign_archive: None,
            location: EngineLocation::Local,
            spool: None,
            archiver: None,
        }
    }

    /// Engines of a station that uses its own archive for everything. Other stations may join this
    /// station, and use the archive too.
    #[must_use]
    pub fn serving(archive: Arc<Local>) -> Self {
        let engine: Arc<dyn Engine> = Arc::<Local>::clone(&archive);
        Self { foreign_archive: Some(Arc::clone(&archive)), served: Some(archive), ..Self::alone(engine) }
    }
}

/// Creates the engines that `config` selects, around the station's own archive. Does not wait for a
/// connection.
///
/// # Errors
/// [`JoinError`] if a token or a certificate cannot be used, or the archive cannot be a spool.
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
    spooled(mesh, host, local, Arc::new(remote), EngineLocation::Remote(url.clone()))
}

/// Whether a URL names this station. Host names are not resolved, so some such URLs are not
/// detected.
fn is_own(url: &str, config: &Config, host: &Name) -> bool {
    let Ok(target) = Target::parse(url) else { return false };
    let is_here = match target.host().parse::<IpAddr>() {
        Ok(ip) => ip.is_loopback() || ip.is_unspecified() || super::addresses::interfaces().contains(&ip),
        Err(_) => ["localhost", host.as_str()].iter().any(|own| own.eq_ignore_ascii_case(target.host())),
    };
    is_here && target.port() == config.listen.port()
}

/// Engines of a station with its own archive as the spool of the mesh's engine.
fn spooled(
    mesh: &MeshConfig,
    host: &Name,
    local: Arc<Local>,
    engine: Arc<dyn Engine>,
    location: EngineLocation,
) -> Result<Engines, JoinError> {
    let config = JoinedConfig {
        spool_records_max: mesh.spool_records_max,
        is_archive: location == EngineLocation::Nats { archive: true },
        ..JoinedConfig::new(host.clone())
    };
    let joined = Arc::new(Joined::start(config, Arc::clone(&local), engine)?);
    let figures = Arc::clone(&joined);
    let spool: SpoolFn = Arc::new(move || spool(&figures));
    Ok(Engines {
        engine: joined,
        local,
        served: None,
        foreign_archive: None,
        location,
        spool: Some(spool),
        archiver: None,
    })
}

fn spool(joined: &Joined) -> Spool {
    let figures = joined.statistics();
    Spool {
        records: figures.spooled,
        is_full: figures.is_full,
        refused_full: figures.spool_rejections,
        forwarded: figures.forwarded,
        refused: figures.refused,
        conflicting: figures.conflicting,
        is_throttled: figures.is_paced,
        watermark: figures.watermark,
        last_error: figures.last_error.map(|error| error.to_string()),
    }
}

/// Token of the invitation, from the environment, otherwise from its file.
fn invitation(mesh: &MeshConfig) -> Result<String, JoinError> {
    match (&mesh.join_token, &mesh.join_token_file) {
        (Some(token), _) => Ok(token.reveal().to_string()),
        (None, Some(path)) => {
            state::other_token(path).map_err(|error| JoinError::Token { path: path.clone(), error })
        }
        (None, None) => Err(JoinError::Uninvited(mesh.join.clone().unwrap_or_default())),
    }
}

impl EngineLocation {
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote(_) => "remote",
            Self::Nats { .. } => "nats",
        }
    }

    /// Role of the station in its mesh.
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
    fn a_station_recognizes_its_own_urls() {
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
