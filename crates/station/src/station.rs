//! The station: starts its threads, reloads its configuration, and stops the threads in order.

mod parts;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use barograph_engine::{Engine, Local, LocalConfig, TaskStatus};
use barograph_forecast::Name;
use barograph_limits::admission::AdmissionKind;
use tokio::sync::watch;

use self::parts::{Opened, own_name};
use crate::api::heavy::HeavyReads;
use crate::api::{ApiState, NameReservations};
use crate::config::Config;
use crate::config::tls::{self, TlsError};
use crate::http::server;
use crate::limits::authenticated::AuthenticatedCallers;
use crate::limits::connections::Connections;
use crate::limits::unread::UnreadResponses;
use crate::measure::prober::Prober;
use crate::measure::targets::TargetsError;
use crate::mesh::{self, Engines, JoinError, MeshState, Registrar, Tester};
use crate::state;
use crate::sync::lock;

/// A running station, started by [`Station::up`].
///
/// Threads: `http`, `recorder` and `directory`, each with a current-thread async runtime; `tester`;
/// `prober` with its short-lived experiments; the threads of the responder's sessions; and the
/// threads of the archive.
pub struct Station {
    shared: Arc<ApiState>,
    prober: Arc<Mutex<Option<Prober>>>,
    registrar: Registrar,
    tester: Tester,
    /// Kept so that the archiver runs as long as the station.
    _archiver: Option<Arc<mesh::Archiver>>,
    stopping: watch::Sender<bool>,
    certificates: Option<watch::Sender<Arc<rustls::ServerConfig>>>,
    recorder: JoinHandle<Option<usize>>,
    http: JoinHandle<()>,
}

/// Why a station did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The station cannot listen on the address.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address that was configured.
        address: SocketAddr,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The state directory, or a file in it, cannot be used.
    #[error("{path}: {error}", path = path.display(), error = barograph_engine::describe_io_error(.error))]
    State {
        /// The path that cannot be used.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The archive cannot be used.
    #[error("{}", mesh::one_line(.0))]
    Archive(#[from] barograph_engine::EngineError),
    /// The list of targets cannot be read.
    #[error("{0}")]
    Targets(String),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The mesh cannot be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The budget of bulk tests is not valid.
    #[error("mesh.bulk_share, mesh.bulk_seconds: {0}")]
    Budget(#[from] barograph_mesh::BudgetError),
    /// A thread or an async runtime could not be created.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

impl From<TargetsError> for StartError {
    fn from(error: TargetsError) -> Self {
        Self::Targets(error.to_string())
    }
}

/// Opens the archive in the configured state directory.
///
/// # Errors
/// [`StartError::State`] or [`StartError::Archive`].
pub fn open_archive(config: &Config) -> Result<Local, StartError> {
    state::prepare(&config.state).map_err(|error| StartError::State { path: config.state.clone(), error })?;
    Ok(Local::open(LocalConfig { forwarders: mesh::stations_known(&config.state), ..config.archive() })?)
}

impl Station {
    /// Opens the archive and starts a station by its configuration: on its own, so that other
    /// stations can join it, or as a member of a mesh.
    ///
    /// # Errors
    /// [`StartError`], in one sentence with the value that cannot be used.
    pub fn up(config: Config) -> Result<Self, StartError> {
        let archive = Arc::new(open_archive(&config)?);
        let engines = mesh::engine(&config, &own_name(&config), archive)?;
        Self::start_in_mesh(config, engines)
    }

    /// Starts a station that uses `engine` for everything. When this returns, the station listens
    /// and has replayed its history.
    ///
    /// # Errors
    /// [`StartError`], in one sentence with the value that cannot be used.
    pub fn start(config: Config, engine: Arc<dyn Engine>) -> Result<Self, StartError> {
        Self::start_in_mesh(config, Engines::alone(engine))
    }

    /// Starts a station on its own archive, which it serves to the stations that it invites
    /// (docs/spec/engine.md).
    ///
    /// # Errors
    /// [`StartError`], in one sentence with the value that cannot be used.
    pub fn serve(config: Config, archive: Arc<Local>) -> Result<Self, StartError> {
        Self::start_in_mesh(config, Engines::serving(archive))
    }

    /// Starts a station on the engines of a mesh. A mesh that cannot be reached does not prevent
    /// the start.
    ///
    /// # Errors
    /// [`StartError`], in one sentence with the value that cannot be used.
    pub fn start_in_mesh(config: Config, engines: Engines) -> Result<Self, StartError> {
        // Everything that can fail comes before the first thread.
        let opened = Opened::new(config, engines)?;
        let Opened { base, identity, token, tls, ports, served, assignment, removed, .. } = opened;
        let recorder = base.start_recorder(served.as_ref(), opened.outbox)?;
        let mesh_state = MeshState::new(identity, &base.engines, &base.config.mesh, assignment, removed);
        let mesh_state = Arc::new(mesh_state);
        let bulk = base.bulk(&mesh_state)?;
        let responder = base.start_responder(&bulk, ports.udp)?;
        base.start_prober(&mesh_state, &bulk, &responder)?;
        let snapshot = base.snapshot(&mesh_state);
        let (stopping, stopped) = watch::channel(false);
        let (certificates, tls) = tls.map(watch::channel).unzip();
        let authenticated = AuthenticatedCallers::new();
        let connections_max = server::connections_max(&base.config);
        let shared = Arc::new(ApiState {
            sites: base.sites(&mesh_state, &snapshot),
            transfers: base.transfers(&bulk, &mesh_state),
            echo: base.echo(&responder, &authenticated, &stopped),
            streams: Connections::new(
                base.config.streams_max,
                AdmissionKind::SessionSlots,
                authenticated.clone(),
            ),
            connections: Connections::new(connections_max, AdmissionKind::Connections, authenticated.clone()),
            host: base.host,
            config: base.current,
            initial: base.config,
            series_table: base.series_table,
            hub: base.hub,
            engine: base.engines.engine,
            served,
            address: base.address,
            inbox: base.inbox,
            health: base.health,
            files: base.files,
            targets: opened.targets,
            mesh_state,
            snapshot,
            bulk,
            token,
            responder,
            started: SystemTime::now(),
            authenticated,
            stopping: stopped,
            unread: UnreadResponses::default(),
            heavy: HeavyReads::new(),
            name_reservations: NameReservations::default(),
        });
        let http = parts::start_server(&shared, tls, ports.tcp)?;
        let given = parts::given(&shared.initial, opened.configured, &shared, certificates.is_some());
        shared.targets.set_configured(given);
        let registrar = parts::keep_peers(&shared)?;
        let tester = Tester::start(Arc::clone(&shared.bulk), &shared.health).map_err(StartError::Thread)?;
        Ok(Self {
            prober: base.prober,
            registrar,
            tester,
            _archiver: base.engines.archiver,
            stopping,
            certificates,
            recorder,
            http,
            shared,
        })
    }

    /// Address on which the station listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// URL of the page, for a client on this host.
    #[must_use]
    pub fn url(&self) -> String {
        parts::url(self.shared.address, self.certificates.is_some())
    }

    /// The station's name: the source of its series.
    #[must_use]
    pub fn host(&self) -> &Name {
        &self.shared.host
    }

    /// The status of each long-lived task and thread, as `/metrics` shows it.
    #[must_use]
    pub fn tasks(&self) -> Vec<Arc<TaskStatus>> {
        self.shared.health.tasks()
    }

    /// Applies a new configuration, as far as that is possible without a restart. Returns the
    /// changed keys that need a restart.
    ///
    /// # Errors
    /// [`StartError`] if new certificates or tokens cannot be used. The old configuration is then
    /// still in use.
    pub fn reload(&self, new: Config) -> Result<Vec<&'static str>, StartError> {
        let configured = parts::with_tokens(&new)?;
        let tls = tls::load(new.tls_certificate.as_deref(), new.tls_key.as_deref())?;
        let mut needs_restart = self.shared.initial.needs_restart(&new);
        match (&self.certificates, tls) {
            (Some(certificates), Some(tls)) => drop(certificates.send(tls)),
            (None, None) => {}
            _ => needs_restart.push("tls"),
        }
        self.shared.echo.set_reports_enabled(new.echo.keep);
        let new = Arc::new(new);
        *self.shared.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&new);
        let given = parts::given(&new, configured, &self.shared, self.certificates.is_some());
        self.shared.targets.set_configured(given);
        Ok(needs_restart)
    }

    /// Stops measuring, stores the remaining records and ends all responses, within `limit` if the
    /// archive permits. Returns the number of records that could not be stored.
    pub fn stop(self, limit: Duration) -> usize {
        let deadline = Instant::now() + limit;
        // A task that ends from now on has not failed.
        self.shared.health.stop_tasks();
        // Leave the directory first, so that peers do not record this stop as a failure.
        self.registrar.stop();
        self.tester.stop();
        self.shared.transfers.stop(deadline);
        let prober = lock(&self.prober).take();
        if let Some(prober) = prober {
            prober.stop();
        }
        self.shared.inbox.stop(deadline.saturating_duration_since(Instant::now()));
        let lost = self.recorder.join().ok().flatten().unwrap_or(0);
        state::remove_url(&self.shared.files);
        // Responses that waited for the recorder are complete now.
        let _ = self.stopping.send(true);
        let _ = self.http.join();
        lost
    }
}
