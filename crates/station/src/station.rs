//! A station: its threads put together, reloaded, and stopped in order.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use barograph_engine::{Engine, Local, TaskStatus};
use barograph_forecast::{Name, Quantity};
use barograph_probe::io::{Limits, Responder};
use tokio::sync::watch;

use crate::api::{self, Served, Shared};
use crate::config::Config;
use crate::config::tls::{self, TlsError};
use crate::echo::{self, Echo};
use crate::forecast::bank::Bank;
use crate::forecast::hub::Hub;
use crate::health::Health;
use crate::http::server::{self, Server};
use crate::limits::Limit;
use crate::limits::admission::Kind;
use crate::limits::connections::Connections;
use crate::limits::heavy::HeavyReads;
use crate::limits::proved::ProvedCallers;
use crate::limits::unread::UnreadAnswers;
use crate::measure::prober::{self, Prober};
use crate::measure::surroundings;
use crate::measure::targets::{Targets, TargetsError};
use crate::mesh::desk::Desk;
use crate::mesh::identity::{self, Identity};
use crate::mesh::members;
use crate::mesh::sites::{Sites, Standing};
use crate::mesh::{
    self, Board, Bulk, BulkParts, Door, Engines, JoinError, Keeper, Removed, RemovedStations, Tester,
};
use crate::record::recorder::{self, Inbox};
use crate::state;
use crate::state::StateFiles;
use crate::sync::lock;
use crate::target::{Provenance, Secret, Target};
use crate::time::now_unix_ns;
use crate::transfer::Transfers;

/// A running station.
///
/// Threads: `http` (a current-thread runtime), `recorder` and `directory` (others), `tester`, `prober` with its short-lived
/// experiments, the responder's sessions, and the archive's own.
pub struct Station {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// As it was started: what needs a restart is compared with it.
    initial: Arc<Config>,
    prober: Arc<Mutex<Option<Prober>>>,
    keeper: Keeper,
    tester: Tester,
    /// Lives as long as the station.
    _archiver: Option<Arc<mesh::Archiver>>,
    stopping: watch::Sender<bool>,
    certificates: Option<watch::Sender<Arc<rustls::ServerConfig>>>,
    recorder: JoinHandle<Option<usize>>,
    http: JoinHandle<()>,
}

/// Why a station did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Which address.
        address: SocketAddr,
        /// Why.
        error: std::io::Error,
    },
    /// The state directory, or a file in it, cannot be used.
    #[error("{path}: {error}", path = path.display(), error = barograph_engine::with_remedy(.error))]
    State {
        /// Which path.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The archive cannot be used.
    #[error("{}", mesh::one_line(.0))]
    Archive(#[from] barograph_engine::Error),
    /// The list of targets cannot be read.
    #[error("{0}")]
    Targets(String),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The mesh cannot be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The budget of bulk tests makes no sense.
    #[error("mesh.bulk_share, mesh.bulk_seconds: {0}")]
    Budget(#[from] barograph_mesh::BudgetError),
    /// A thread or a runtime could not be made.
    #[error("a thread could not be started: {0}")]
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
/// [`StartError::State`] and [`StartError::Archive`].
pub fn open_archive(config: &Config) -> Result<Local, StartError> {
    state::prepare(&config.state).map_err(|error| StartError::State { path: config.state.clone(), error })?;
    Ok(Local::open(config.archive())?)
}

impl Station {
    /// Opens the archive and starts a station as its configuration says: alone and to be joined, or in a mesh.
    ///
    /// # Errors
    /// [`StartError`], in one sentence with the value that cannot be used.
    pub fn up(config: Config) -> Result<Self, StartError> {
        let archive = Arc::new(open_archive(&config)?);
        let engines = mesh::engine(&config, &own_name(&config), archive)?;
        Self::start_in_mesh(config, engines)
    }

    /// Starts a station on `engine`, its own; when this returns it listens, and history was replayed.
    ///
    /// # Errors
    /// [`StartError`], in one sentence with the value that cannot be used.
    pub fn start(config: Config, engine: Arc<dyn Engine>) -> Result<Self, StartError> {
        Self::start_in_mesh(config, Engines::alone(engine))
    }

    /// The same on an archive of its own, which it serves to the stations that it invites
    /// (docs/spec/engine.md).
    ///
    /// # Errors
    /// [`StartError`], in one sentence with the value that cannot be used.
    pub fn serve(config: Config, archive: Arc<Local>) -> Result<Self, StartError> {
        Self::start_in_mesh(config, Engines::serving(archive))
    }

    /// The same on the engines of a mesh; one that cannot be reached is no reason not to start.
    ///
    /// # Errors
    /// [`StartError`], in one sentence with the value that cannot be used.
    pub fn start_in_mesh(config: Config, engines: Engines) -> Result<Self, StartError> {
        // Everything that can be refused comes before the first thread.
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
        let bank = Arc::new(Mutex::new(Bank::new(config.series_max)));
        let targets = open_targets(&config, &current, &prober, &bank)?;
        let removed = RemovedStations::open(&files);
        exclude(&bank, &removed, configured.iter().chain(&targets.all()));
        let ports = server::bind(config.listen)
            .map_err(|error| StartError::Listen { address: config.listen, error })?;
        let address = ports.address;
        // Other verbs on this host find the station by it, whatever its port.
        state::announce(&files, &url(address, tls.is_some()));
        if !address.ip().is_loopback() {
            let token = config.state.join(state::TOKEN_FILE);
            if config.listen_implied {
                tracing::info!("listening on {address} for the mesh (another address: listen = …)");
            }
            tracing::info!(
                "reachable from elsewhere; changes and probes need the token in {}",
                token.display()
            );
        }

        let served = engines.served.is_some().then(|| Served::open(files.clone(), host.clone())).transpose();
        let served = served.map_err(refuse(config.state.join(members::FILE)))?;
        if let Some(archive) = &engines.served {
            let hosts: Vec<Name> = removed.all().into_iter().map(|removed| removed.host).collect();
            archive.restore_removed(&hosts);
        }
        let standing = Standing::at_start(&config.mesh, &config.state);
        // Before history is replayed: members that are away have their room, too.
        let others = match &served {
            Some(served) => served.groups(),
            None if engines.archiver.is_some() => mesh::groups_known(&config.state),
            None => HashMap::new(),
        };
        lock(&bank).reserve(crate::limits::reserved(others, &host, &standing.groups));
        let health = Arc::new(Health::new());
        health.adopt(engines.local.tasks());
        health.adopt(engines.engine.tasks());
        health.adopt(engines.archiver.iter().flat_map(|archiver| archiver.tasks()));
        health.adopt(served.iter().map(Served::task));
        let hub = Hub::new();
        let (inbox, outbox) = Inbox::new(Arc::clone(&health));
        let recorder = start_recorder(
            recorder::Parts {
                host: host.clone(),
                engine: Arc::clone(&engines.engine),
                archive: engines.served.clone(),
                bank: Arc::clone(&bank),
                hub: hub.clone(),
                health: Arc::clone(&health),
                spool_records_max: config.spool_records_max,
            },
            &engines,
            engines.archiver.is_none().then(|| served.iter().flat_map(Served::names).collect()).as_ref(),
            outbox,
        )?;
        let board = Arc::new(Board::new(identity, &engines, &config.mesh, standing, removed));
        let bulk = open_bulk(&config, &host, &board, &bank, &inbox, &files)?;
        let door = Arc::new(Door(Arc::clone(&bulk)));
        let task = ports.udp.is_some().then(|| health.task("datagrams"));
        let responder = Responder::start_with(Limits::default(), ports.udp, Some(door), move |serve| {
            if let Some(task) = task {
                task.run(|| serve(&|| task.turn()));
            }
        });
        let responder = Arc::new(responder.map_err(StartError::Thread)?);
        let measuring = Prober::start(prober::Parts {
            host: host.clone(),
            inbox: inbox.clone(),
            bank: Arc::clone(&bank),
            health: Arc::clone(&health),
            responder: Arc::clone(&responder),
            workers_max: config.workers_max,
            board: Arc::clone(&board),
            place: Arc::clone(&bulk.place),
        })
        .map_err(StartError::Thread)?;
        *lock(&prober) = Some(measuring);

        let desk = Desk::new(
            host.clone(),
            Arc::clone(&board),
            Arc::clone(&engines.engine),
            Arc::clone(&bank),
            health.task("mesh_snapshot"),
        );
        let mesh = (config.mesh.clone(), config.state.as_path());
        let sites = Sites::new(host.clone(), mesh, Arc::clone(&board), desk.clone(), Arc::clone(&bank));
        let transfers =
            Transfers::new(host.clone(), &config.state, Arc::clone(&bulk), Arc::clone(&board), inbox.clone());
        let (stopping, stopped) = watch::channel(false);
        let proved = ProvedCallers::new();
        let echo = Arc::new(Echo::new(
            &config.echo,
            echo::Parts {
                host: host.clone(),
                inbox: inbox.clone(),
                bank: Arc::clone(&bank),
                responder: Arc::clone(&responder),
                proved: proved.clone(),
                stopping: stopped.clone(),
            },
        ));
        let shared = Arc::new(Shared {
            host,
            config: current,
            initial: Arc::clone(&config),
            bank,
            hub,
            engine: engines.engine,
            served,
            address,
            inbox,
            health: Arc::clone(&health),
            files,
            targets,
            board,
            desk,
            sites: Arc::new(sites),
            bulk: Arc::clone(&bulk),
            transfers,
            token,
            responder,
            echo: Arc::clone(&echo),
            started: SystemTime::now(),
            streams: Connections::new(config.streams_max, Kind::Seats, proved.clone()),
            connections: Connections::new(
                server::connections_max(&config),
                Kind::Connections,
                proved.clone(),
            ),
            proved,
            stopping: stopped.clone(),
            unread: UnreadAnswers::default(),
            heavy: HeavyReads::new(),
        });
        let (certificates, tls) = tls.map(watch::channel).unzip();
        let speaks_tls = tls.is_some();
        let router = api::router(Arc::clone(&shared));
        let connections = shared.connections.clone();
        let http = serve(
            Server { router, task: health.task("http"), health, connections, echo, tls, stopping: stopped },
            ports.tcp,
        )?;
        shared.targets.set_given(given(&config, configured, &shared, address, speaks_tls));
        let keeper = keep_peers(&config, &shared, address)?;
        let tester = Tester::start(bulk, &shared.health).map_err(StartError::Thread)?;
        Ok(Self {
            address,
            shared,
            initial: config,
            prober,
            keeper,
            tester,
            _archiver: engines.archiver,
            stopping,
            certificates,
            recorder,
            http,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The page's address for a client on this host.
    #[must_use]
    pub fn url(&self) -> String {
        url(self.address, self.certificates.is_some())
    }

    /// The station's name.
    #[must_use]
    pub fn host(&self) -> &Name {
        &self.shared.host
    }

    /// The status of each long-lived task and thread, as `/metrics` shows it.
    #[must_use]
    pub fn tasks(&self) -> Vec<Arc<TaskStatus>> {
        self.shared.health.tasks()
    }

    /// Uses a new configuration from now on, as far as that goes without a restart; gives the keys
    /// that have changed and need one.
    ///
    /// # Errors
    /// When new certificates or tokens cannot be used; nothing has changed then.
    pub fn reload(&self, new: Config) -> Result<Vec<&'static str>, StartError> {
        let configured = with_tokens(&new)?;
        let tls = tls::load(new.tls_certificate.as_deref(), new.tls_key.as_deref())?;
        let mut needs_restart = self.initial.needs_restart(&new);
        match (&self.certificates, tls) {
            (Some(certificates), Some(tls)) => drop(certificates.send(tls)),
            (None, None) => {}
            _ => needs_restart.push("tls"),
        }
        self.shared.echo.set_keeps(new.echo.keep);
        let new = Arc::new(new);
        *self.shared.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&new);
        let speaks_tls = self.certificates.is_some();
        self.shared.targets.set_given(given(&new, configured, &self.shared, self.address, speaks_tls));
        Ok(needs_restart)
    }

    /// Stops measuring, stores what was measured, ends all answers; within `limit` where the archive
    /// allows. Gives how many records could not be stored.
    pub fn stop(self, limit: Duration) -> usize {
        let deadline = Instant::now() + limit;
        // What ends from now on ends as it should.
        self.shared.health.stop_tasks();
        // First of all, so that peers do not take what stops for what fails.
        self.keeper.stop();
        self.tester.stop();
        self.shared.transfers.stop(deadline);
        let prober = lock(&self.prober).take();
        if let Some(prober) = prober {
            prober.stop();
        }
        self.shared.inbox.stop(deadline.saturating_duration_since(Instant::now()));
        let lost = self.recorder.join().ok().flatten().unwrap_or(0);
        state::withdraw(&self.shared.files);
        // Answers that wait for the recorder have theirs now.
        let _ = self.stopping.send(true);
        let _ = self.http.join();
        lost
    }
}

fn url(address: SocketAddr, speaks_tls: bool) -> String {
    let scheme = if speaks_tls { "https" } else { "http" };
    format!("{scheme}://{}/", server::reachable(address))
}

/// Bulk tests between this station and its peers.
fn open_bulk(
    config: &Config,
    host: &Name,
    board: &Arc<Board>,
    bank: &Arc<Mutex<Bank>>,
    inbox: &Inbox,
    files: &StateFiles,
) -> Result<Arc<Bulk>, StartError> {
    let parts = BulkParts {
        host: host.clone(),
        board: Arc::clone(board),
        bank: Arc::clone(bank),
        inbox: inbox.clone(),
        files: files.clone(),
    };
    Ok(Arc::new(Bulk::new(&config.mesh, parts)?))
}

/// Excludes the stations that were removed from the mesh from the bank, except `targets`: those are measured
/// whatever the mesh says.
fn exclude<'a>(
    bank: &Mutex<Bank>,
    removed: &RemovedStations,
    targets: impl Iterator<Item = &'a Target> + Clone,
) {
    let mut bank = lock(bank);
    for Removed { host, at_unix_ns } in removed.all() {
        if !targets.clone().any(|target| target.name == host) {
            bank.exclude(&host, at_unix_ns);
        }
    }
}

/// The list of targets, which gives every change to the prober, if one runs. A target that anybody but the
/// mesh asked for is shown, although a station of its name was removed.
fn open_targets(
    config: &Config,
    current: &Arc<RwLock<Arc<Config>>>,
    prober: &Arc<Mutex<Option<Prober>>>,
    bank: &Arc<Mutex<Bank>>,
) -> Result<Targets, TargetsError> {
    let (current, prober, bank) = (Arc::clone(current), Arc::clone(prober), Arc::clone(bank));
    Targets::open(&config.state, move |targets| {
        for target in targets.iter().filter(|target| target.from != Provenance::Mesh) {
            lock(&bank).include(&target.name);
        }
        let config = Arc::clone(&current.read().unwrap_or_else(PoisonError::into_inner));
        if let Some(prober) = lock(&prober).as_ref() {
            prober.plan(config, targets);
        }
    })
}

/// Replays history, then records on a thread of its own.
fn start_recorder(
    parts: recorder::Parts,
    engines: &Engines,
    members: Option<&HashSet<Name>>,
    outbox: recorder::Outbox,
) -> Result<JoinHandle<Option<usize>>, StartError> {
    let runtime = runtime()?;
    runtime.block_on(replay(&parts, engines.local.as_ref(), members));
    let task = parts.health.task("recorder");
    let reads_into = engines.keeps.clone().filter(|_| engines.archiver.is_some());
    let stored = recorder::Stored::new(reads_into, parts.host.clone());
    if let Some(archiver) = &engines.archiver {
        // What it stores is neither replayed nor learnt before this.
        archiver.begin();
    }
    spawn("recorder", move || runtime.block_on(task.watch(recorder::run(parts, stored, outbox))))
}

/// What the station measures without being asked, and what its configuration asks for.
fn given(
    config: &Config,
    configured: Vec<Target>,
    shared: &Shared,
    address: SocketAddr,
    speaks_tls: bool,
) -> Vec<Target> {
    let mut given = Vec::new();
    if config.default_targets {
        let own = own_responder(&shared.host, address, speaks_tls);
        // It may need it: behind a proxy also callers on this host do.
        let token = Some(Secret::new(shared.token.clone()));
        given.extend(own.map(|target| Target { token, ..target }));
        let around = surroundings::discover(config.gateway_port);
        given.extend(around.into_iter().filter_map(|address| {
            let connect = [Quantity::CONNECT.as_str().to_string()];
            Target::parse(&address.to_string(), &connect, None, Provenance::Default).ok()
        }));
    }
    given.extend(configured);
    given
}

/// The configured targets, each with the token that its own file, else the one for all, holds now.
fn with_tokens(config: &Config) -> Result<Vec<Target>, StartError> {
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

/// The own responder under the host's name: its port may change, its series should not. With TLS the
/// certificate need not fit the address, so that it is left out.
fn own_responder(host: &Name, address: SocketAddr, speaks_tls: bool) -> Option<Target> {
    if speaks_tls {
        return None;
    }
    let address = server::reachable(address).to_string();
    let rtt = [Quantity::RTT.as_str().to_string()];
    let target = Target::parse(&address, &rtt, None, Provenance::Default).ok()?;
    Some(Target { name: host.clone(), ..target })
}

/// History comes from the station's own archive: a mesh that is away is not waited for.
async fn replay(parts: &recorder::Parts, archive: &dyn Engine, members: Option<&HashSet<Name>>) {
    // Nobody else has the bank yet: it is filled outside of its lock.
    let mut bank = std::mem::replace(&mut *lock(&parts.bank), Bank::new(0));
    let began = Instant::now();
    let replayed =
        crate::record::replay::replay(archive, &mut bank, &parts.host, members, now_unix_ns()).await;
    let series = bank.len();
    parts.health.refused(Limit::Series, bank.refused());
    *lock(&parts.bank) = bank;
    match replayed {
        Ok(0) => {}
        Ok(records) => {
            tracing::info!("replayed {records} records of {series} series in {:.1?}", began.elapsed());
        }
        Err(error) => {
            tracing::error!("history could not be replayed: {error}");
            parts.health.replay_failed(&error.to_string());
        }
    }
}

fn serve(server: Server, listener: std::net::TcpListener) -> Result<JoinHandle<()>, StartError> {
    let runtime = runtime()?;
    listener.set_nonblocking(true).map_err(StartError::Thread)?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener).map_err(StartError::Thread)?
    };
    spawn("http", move || runtime.block_on(server.run(listener)))
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

/// The thread that finds the peers and says which to measure.
fn keep_peers(config: &Arc<Config>, shared: &Arc<Shared>, listen: SocketAddr) -> Result<Keeper, StartError> {
    let [measured, looked, removed, readmitted, hidden] = std::array::from_fn(|_| Arc::clone(shared));
    Keeper::start(mesh::Parts {
        host: shared.host.clone(),
        listen,
        config: Arc::clone(config),
        current: Arc::clone(&shared.config),
        engine: Arc::clone(&shared.engine),
        health: Arc::clone(&shared.health),
        files: shared.files.clone(),
        board: Arc::clone(&shared.board),
        sites: Arc::clone(&shared.sites),
        measure: Box::new(move |peers| {
            measured.targets.set_mesh(peers);
            measured.reserve_series();
        }),
        looked: Box::new(move |host, period, silence| {
            // Where somebody else asked for a target of this name, that is what is measured.
            if looked.targets.overrides_mesh(host.as_str()).is_none() {
                let is_loaded = looked.responder.bulk_running();
                looked.board.latencies.unmeasured(host, is_loaded, period, Instant::now());
                if let Some(silence) = silence {
                    looked.inbox.offer(silence.measured(&looked.host, host, now_unix_ns()));
                }
            }
        }),
        removed: Box::new(move |Removed { host, at_unix_ns }| {
            if removed.targets.overrides_mesh(host.as_str()).is_none() {
                lock(&removed.bank).exclude(host, *at_unix_ns);
            }
            removed.desk.forget_places();
            removed.proved.with(|proved| proved.forget(host));
        }),
        readmitted: Box::new(move |host| lock(&readmitted.bank).include(host)),
        is_hidden: Box::new(move |host| lock(&hidden.bank).is_excluded(host)),
    })
    .map_err(StartError::Thread)
}

/// The configured name, else the system's.
pub(crate) fn own_name(config: &Config) -> Name {
    config.host.clone().unwrap_or_else(host_name)
}

/// The system's host name; a station on a host without a usable one is called `localhost`.
fn host_name() -> Name {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    name.and_then(|name| Name::new(&name).ok()).unwrap_or_else(|| {
        tracing::warn!("this host has no usable name; the station is called localhost (host = …)");
        Name::new("localhost").expect("a plain word is a name")
    })
}
