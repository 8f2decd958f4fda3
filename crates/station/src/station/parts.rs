//! Creates the parts of a station. Most parts need other parts, which are created first.

use std::collections::{HashMap, HashSet};
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Instant;

use barograph_engine::Engine;
use barograph_forecast::{Name, Quantity};
use barograph_probe::io::{Responder, ResponderLimits};
use tokio::sync::watch;

use super::StartError;
use crate::api::{self, ApiState, MemberService};
use crate::config::Config;
use crate::config::tls;
use crate::echo::{self, Echo};
use crate::forecast::hub::PointHub;
use crate::forecast::series::SeriesTable;
use crate::health::Health;
use crate::http::server::{self, Ports, Server};
use crate::limits::Limit;
use crate::limits::authenticated::AuthenticatedCallers;
use crate::measure::default_targets;
use crate::measure::prober::{self, Prober};
use crate::measure::targets::{Targets, TargetsError};
use crate::mesh::identity::{self, Identity};
use crate::mesh::members;
use crate::mesh::sites::{SiteAssignment, Sites};
use crate::mesh::snapshot::MeshSnapshot;
use crate::mesh::{
    self, Bulk, BulkDependencies, Engines, MeshState, Registrar, Removed, RemovedStations, TestConsent,
};
use crate::record::recorder::{self, Inbox, InboxReceiver};
use crate::record::replay;
use crate::state;
use crate::state::StateFiles;
use crate::sync::lock;
use crate::target::{Provenance, Secret, Target};
use crate::time::now_unix_ns;
use crate::transfer::Transfers;

/// Parts that are opened before the first thread starts. These are all parts that can fail because
/// of the configuration or the state directory.
pub(super) struct Opened {
    pub(super) base: Base,
    pub(super) identity: Arc<Identity>,
    pub(super) token: String,
    pub(super) tls: Option<Arc<rustls::ServerConfig>>,
    pub(super) ports: Ports,
    pub(super) served: Option<MemberService>,
    pub(super) assignment: SiteAssignment,
    pub(super) removed: RemovedStations,
    pub(super) targets: Targets,
    /// The targets of the configuration, with their tokens.
    pub(super) configured: Vec<Target>,
    pub(super) outbox: InboxReceiver,
}

/// Parts that most other parts need.
pub(super) struct Base {
    pub(super) host: Name,
    /// Configuration at the start.
    pub(super) config: Arc<Config>,
    /// Current configuration of the station.
    pub(super) current: Arc<RwLock<Arc<Config>>>,
    pub(super) files: StateFiles,
    /// Address on which the station listens.
    pub(super) address: SocketAddr,
    pub(super) engines: Engines,
    pub(super) series_table: Arc<Mutex<SeriesTable>>,
    pub(super) hub: PointHub,
    pub(super) health: Arc<Health>,
    pub(super) inbox: Inbox,
    /// The prober; `None` until the prober is started.
    pub(super) prober: Arc<Mutex<Option<Prober>>>,
}

impl Opened {
    pub(super) fn new(config: Config, engines: Engines) -> Result<Self, StartError> {
        tracing::info!("archive, token and added targets are in {}", config.state.display());
        let refuse = |path: PathBuf| move |error| StartError::State { path, error };
        state::prepare(&config.state).map_err(refuse(config.state.clone()))?;
        let files = StateFiles::new(&config.state);
        let token = state::token(&files).map_err(refuse(config.state.join(state::TOKEN_FILE)))?;
        let host = own_name(&config);
        let key = config.state.join(identity::KEY_FILE);
        let identity = Arc::new(Identity::open(&files, host.clone()).map_err(refuse(key))?);
        let configured = with_tokens(&config)?;
        let tls = tls::load(config.tls_certificate.as_deref(), config.tls_key.as_deref())?;
        let config = Arc::new(config);
        let current = Arc::new(RwLock::new(Arc::clone(&config)));
        let prober = Arc::new(Mutex::new(None::<Prober>));
        let series_table = Arc::new(Mutex::new(SeriesTable::new(config.series_max)));
        let targets = open_targets(&config, &current, &prober, &series_table)?;
        let removed = RemovedStations::open(&files);
        exclude(&series_table, &removed, configured.iter().chain(&targets.all()));
        let ports = server::bind(config.listen)
            .map_err(|error| StartError::Listen { address: config.listen, error })?;
        let address = ports.address;
        announce(&config, &files, address, tls.is_some());
        let served =
            engines.served.is_some().then(|| MemberService::open(files.clone(), host.clone())).transpose();
        let served = served.map_err(refuse(config.state.join(members::FILE)))?;
        if let Some(archive) = &engines.served {
            let hosts: Vec<Name> = removed.all().into_iter().map(|removed| removed.host).collect();
            archive.restore_removed(&hosts);
        }
        let assignment = SiteAssignment::at_start(&config.mesh, &config.state);
        // Reserve series before history is replayed, so that there is also room for the series of
        // absent members.
        let others = match &served {
            Some(served) => served.groups(),
            None if engines.archiver.is_some() => mesh::groups_known(&config.state),
            None => HashMap::new(),
        };
        lock(&series_table).reserve(crate::limits::reserved(others, &host, &assignment.groups));
        let health = health_of(&engines, served.as_ref());
        let (inbox, outbox) = Inbox::new(Arc::clone(&health));
        let hub = PointHub::new();
        let base =
            Base { host, config, current, files, address, engines, series_table, hub, health, inbox, prober };
        Ok(Self {
            base,
            identity,
            token,
            tls,
            ports,
            served,
            assignment,
            removed,
            targets,
            configured,
            outbox,
        })
    }
}

impl Base {
    /// Replays history, then starts the thread that records.
    pub(super) fn start_recorder(
        &self,
        served: Option<&MemberService>,
        outbox: InboxReceiver,
    ) -> Result<JoinHandle<Option<usize>>, StartError> {
        let engines = &self.engines;
        let parts = recorder::RecorderDependencies {
            host: self.host.clone(),
            engine: Arc::clone(&engines.engine),
            archive: engines.foreign_archive.clone(),
            series_table: Arc::clone(&self.series_table),
            hub: self.hub.clone(),
            health: Arc::clone(&self.health),
            spool_records_max: self.config.spool_records_max,
        };
        let members = || served.into_iter().flat_map(MemberService::names).collect();
        let members = engines.archiver.is_none().then(members);
        let runtime = runtime()?;
        runtime.block_on(replay(&parts, engines.local.as_ref(), members.as_ref()));
        let task = self.health.task("recorder");
        let reads_into = engines.foreign_archive.clone().filter(|_| engines.archiver.is_some());
        let stored = recorder::ArchiveSubscription::new(reads_into, self.host.clone());
        if let Some(archiver) = &engines.archiver {
            // The archiver starts only now, so that its records are not replayed, and all reach
            // `stored`.
            archiver.begin();
        }
        spawn("recorder", move || runtime.block_on(task.watch(recorder::run(parts, stored, outbox))))
    }

    /// Bulk tests between this station and its peers.
    pub(super) fn bulk(&self, mesh_state: &Arc<MeshState>) -> Result<Arc<Bulk>, StartError> {
        let parts = BulkDependencies {
            host: self.host.clone(),
            mesh_state: Arc::clone(mesh_state),
            series_table: Arc::clone(&self.series_table),
            inbox: self.inbox.clone(),
            files: self.files.clone(),
        };
        Ok(Arc::new(Bulk::new(&self.config.mesh, parts)?))
    }

    pub(super) fn start_responder(
        &self,
        bulk: &Arc<Bulk>,
        udp: Option<UdpSocket>,
    ) -> Result<Arc<Responder>, StartError> {
        let consent = Arc::new(TestConsent(Arc::clone(bulk)));
        let task = udp.is_some().then(|| self.health.task("datagrams"));
        let responder = Responder::start_with(ResponderLimits::default(), udp, Some(consent), move |serve| {
            if let Some(task) = task {
                task.run(|| serve(&|| task.kill_point()));
            }
        });
        responder.map(Arc::new).map_err(StartError::Thread)
    }

    pub(super) fn start_prober(
        &self,
        mesh_state: &Arc<MeshState>,
        bulk: &Bulk,
        responder: &Arc<Responder>,
    ) -> Result<(), StartError> {
        let parts = prober::ProberDependencies {
            host: self.host.clone(),
            inbox: self.inbox.clone(),
            series_table: Arc::clone(&self.series_table),
            health: Arc::clone(&self.health),
            responder: Arc::clone(responder),
            workers_max: self.config.workers_max,
            mesh_state: Arc::clone(mesh_state),
            bulk_slot: Arc::clone(&bulk.slot),
        };
        *lock(&self.prober) = Some(Prober::start(parts).map_err(StartError::Thread)?);
        Ok(())
    }

    pub(super) fn snapshot(&self, mesh_state: &Arc<MeshState>) -> MeshSnapshot {
        let (engine, task) = (Arc::clone(&self.engines.engine), self.health.task("mesh_snapshot"));
        MeshSnapshot::new(
            self.host.clone(),
            Arc::clone(mesh_state),
            engine,
            Arc::clone(&self.series_table),
            task,
        )
    }

    pub(super) fn sites(&self, mesh_state: &Arc<MeshState>, snapshot: &MeshSnapshot) -> Arc<Sites> {
        let mesh = (self.config.mesh.clone(), self.config.state.as_path());
        let (host, series_table) = (self.host.clone(), Arc::clone(&self.series_table));
        Arc::new(Sites::new(host, mesh, Arc::clone(mesh_state), snapshot.clone(), series_table))
    }

    pub(super) fn transfers(&self, bulk: &Arc<Bulk>, mesh_state: &Arc<MeshState>) -> Arc<Transfers> {
        let (host, inbox) = (self.host.clone(), self.inbox.clone());
        Transfers::new(host, &self.config.state, Arc::clone(bulk), Arc::clone(mesh_state), inbox)
    }

    pub(super) fn echo(
        &self,
        responder: &Arc<Responder>,
        authenticated: &AuthenticatedCallers,
        stopping: &watch::Receiver<bool>,
    ) -> Arc<Echo> {
        let parts = echo::EchoDependencies {
            host: self.host.clone(),
            inbox: self.inbox.clone(),
            series_table: Arc::clone(&self.series_table),
            responder: Arc::clone(responder),
            authenticated: authenticated.clone(),
            stopping: stopping.clone(),
        };
        Arc::new(Echo::new(&self.config.echo, parts))
    }
}

/// Starts the thread that accepts connections.
pub(super) fn start_server(
    shared: &Arc<ApiState>,
    tls: Option<watch::Receiver<Arc<rustls::ServerConfig>>>,
    listener: std::net::TcpListener,
) -> Result<JoinHandle<()>, StartError> {
    let server = Server {
        router: api::router(Arc::clone(shared)),
        task: shared.health.task("http"),
        health: Arc::clone(&shared.health),
        connections: shared.connections.clone(),
        echo: Arc::clone(&shared.echo),
        tls,
        stopping: shared.stopping.clone(),
    };
    let runtime = runtime()?;
    listener.set_nonblocking(true).map_err(StartError::Thread)?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener).map_err(StartError::Thread)?
    };
    spawn("http", move || runtime.block_on(server.run(listener)))
}

/// Starts the thread that follows the directory and sets the peers to measure.
pub(super) fn keep_peers(shared: &Arc<ApiState>) -> Result<Registrar, StartError> {
    let [measured, checked, removed, readmitted, listed] = std::array::from_fn(|_| Arc::clone(shared));
    Registrar::start(mesh::RegistrarDependencies {
        host: shared.host.clone(),
        listen: shared.address,
        config: Arc::clone(&shared.initial),
        current: Arc::clone(&shared.config),
        engine: Arc::clone(&shared.engine),
        health: Arc::clone(&shared.health),
        files: shared.files.clone(),
        mesh_state: Arc::clone(&shared.mesh_state),
        sites: Arc::clone(&shared.sites),
        set_targets: Box::new(move |peers| {
            measured.targets.set_mesh(peers);
            measured.reserve_series();
        }),
        on_checked: Box::new(move |host, period, unreachable| {
            // If another source than the mesh has a target of this name, that target is measured
            // instead.
            if checked.targets.overrides_mesh(host.as_str()).is_none() {
                let is_loaded = checked.responder.bulk_running();
                checked.mesh_state.latencies.unmeasured(host, is_loaded, period, Instant::now());
                if let Some(unreachable) = unreachable {
                    checked.inbox.offer(unreachable.to_measurement(&checked.host, host, now_unix_ns()));
                }
            }
        }),
        removed: Box::new(move |Removed { host, at_unix_ns }| {
            let is_target = removed.targets.overrides_mesh(host.as_str()).is_some();
            hide(&mut lock(&removed.series_table), host, *at_unix_ns, is_target);
            removed.snapshot.forget_members();
            removed.authenticated.with(|authenticated| authenticated.forget(host));
        }),
        readmitted: Box::new(move |host| readmitted.readmit(host)),
        is_removed: Box::new(move |host| lock(&listed.series_table).is_removed(host)),
    })
    .map_err(StartError::Thread)
}

/// Stores the station's URL for other verbs on this host, and logs whether it is reachable from
/// other hosts.
fn announce(config: &Config, files: &StateFiles, address: SocketAddr, speaks_tls: bool) {
    state::write_url(files, &url(address, speaks_tls));
    if address.ip().is_loopback() {
        return;
    }
    if config.listen_implied {
        tracing::info!("listening on {address} for the mesh; set `listen` to change that");
    }
    let token = config.state.join(state::TOKEN_FILE);
    tracing::info!("reachable from elsewhere; changes and probes need the token in {}", token.display());
}

/// Health with the tasks of the engines.
fn health_of(engines: &Engines, served: Option<&MemberService>) -> Arc<Health> {
    let health = Arc::new(Health::new());
    health.adopt(engines.local.tasks());
    health.adopt(engines.engine.tasks());
    health.adopt(engines.archiver.iter().flat_map(|archiver| archiver.tasks()));
    health.adopt(served.map(MemberService::task));
    health
}

/// Hides the series of the stations that were removed from the mesh, except `targets`, which are
/// measured independently of the mesh.
fn exclude<'a>(
    series_table: &Mutex<SeriesTable>,
    removed: &RemovedStations,
    targets: impl Iterator<Item = &'a Target> + Clone,
) {
    let mut series_table = lock(series_table);
    for Removed { host, at_unix_ns } in removed.all() {
        let is_target = targets.clone().any(|target| target.name == host);
        hide(&mut series_table, &host, at_unix_ns, is_target);
    }
}

fn hide(series_table: &mut SeriesTable, host: &Name, at_unix_ns: i64, is_target: bool) {
    if is_target {
        series_table.remove_target_station(host, at_unix_ns);
    } else {
        series_table.remove_station(host, at_unix_ns);
    }
}

/// Opens the list of targets. Each change of the list is sent to the prober, if a prober runs. A
/// target that does not come from the mesh is shown even if a station with its name was removed
/// from the mesh.
fn open_targets(
    config: &Config,
    current: &Arc<RwLock<Arc<Config>>>,
    prober: &Arc<Mutex<Option<Prober>>>,
    series_table: &Arc<Mutex<SeriesTable>>,
) -> Result<Targets, TargetsError> {
    let (current, prober, series_table) = (Arc::clone(current), Arc::clone(prober), Arc::clone(series_table));
    Targets::open(&config.state, move |targets| {
        lock(&series_table).set_targets(|name| {
            targets.iter().any(|target| target.provenance != Provenance::Mesh && target.name == *name)
        });
        let config = Arc::clone(&current.read().unwrap_or_else(PoisonError::into_inner));
        if let Some(prober) = lock(&prober).as_ref() {
            prober.plan(config, targets);
        }
    })
}

/// The default targets, and those of the configuration.
pub(super) fn given(
    config: &Config,
    configured: Vec<Target>,
    shared: &ApiState,
    speaks_tls: bool,
) -> Vec<Target> {
    let mut given = Vec::new();
    if config.default_targets {
        let own = own_responder(&shared.host, shared.address, speaks_tls);
        // The station may require its token from callers on this host, too, for instance behind a
        // proxy.
        let token = Some(Secret::new(shared.token.clone()));
        given.extend(own.map(|target| Target { token, ..target }));
        let around = default_targets::discover(config.gateway_port);
        given.extend(around.into_iter().filter_map(|address| {
            let connect = [Quantity::CONNECT.as_str().to_string()];
            Target::parse(&address.to_string(), &connect, None, Provenance::Default).ok()
        }));
    }
    given.extend(configured);
    given
}

/// The configured targets with their current tokens. The token of a target is read from the
/// target's own file, or otherwise from the file for all targets.
pub(super) fn with_tokens(config: &Config) -> Result<Vec<Target>, StartError> {
    let with_token = |target: &Target| {
        let Some(path) = target.token_file.as_ref().or(config.token_file.as_ref()) else {
            return Ok(target.clone());
        };
        let refuse = |error| StartError::State { path: path.clone(), error };
        let token = Secret::new(state::other_token(path).map_err(refuse)?);
        Ok(Target { token: Some(token), ..target.clone() })
    };
    config.targets.iter().map(with_token).collect()
}

/// Target for the station's own responder, named after the host, because the port may change and
/// the series should stay the same. `None` with TLS, because the certificate may not match the
/// address.
fn own_responder(host: &Name, address: SocketAddr, speaks_tls: bool) -> Option<Target> {
    if speaks_tls {
        return None;
    }
    let address = server::reachable(address).to_string();
    let rtt = [Quantity::RTT.as_str().to_string()];
    let target = Target::parse(&address, &rtt, None, Provenance::Default).ok()?;
    Some(Target { name: host.clone(), ..target })
}

/// Replays history from the station's own archive, so that an unreachable mesh does not delay the
/// start.
async fn replay(
    parts: &recorder::RecorderDependencies,
    archive: &dyn Engine,
    members: Option<&HashSet<Name>>,
) {
    // No other thread uses the series table yet, so it is filled without its lock.
    let mut series_table = std::mem::replace(&mut *lock(&parts.series_table), SeriesTable::new(0));
    let began = Instant::now();
    let replayed = replay::replay(archive, &mut series_table, &parts.host, members, now_unix_ns()).await;
    let series = series_table.len();
    parts.health.refused(Limit::Series, series_table.refused());
    *lock(&parts.series_table) = series_table;
    match replayed {
        Ok(0) => {}
        Ok(records) => {
            tracing::info!("replayed {records} records of {series} series in {:.1?}", began.elapsed());
        }
        Err(error) => {
            tracing::error!("cannot replay the history: {error}");
            parts.health.replay_failed(&error.to_string());
        }
    }
}

pub(super) fn url(address: SocketAddr, speaks_tls: bool) -> String {
    let scheme = if speaks_tls { "https" } else { "http" };
    format!("{scheme}://{}/", server::reachable(address))
}

fn runtime() -> Result<tokio::runtime::Runtime, StartError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, StartError> {
    std::thread::Builder::new().name(name.into()).spawn(work).map_err(StartError::Thread)
}

/// Configured name of the station, otherwise the system's host name.
pub(super) fn own_name(config: &Config) -> Name {
    config.host.clone().unwrap_or_else(host_name)
}

/// The system's host name; `localhost` if the host name is not a valid [`Name`].
fn host_name() -> Name {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    name.and_then(|name| Name::new(&name).ok()).unwrap_or_else(|| {
        tracing::warn!("this host has no usable name; using `localhost` (set host = …)");
        Name::new("localhost").expect("a plain word is a name")
    })
}
