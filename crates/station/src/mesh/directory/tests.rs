#![allow(clippy::unwrap_used)]
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use barograph_engine::{BoxStream, Group, ReadOnly};
use barograph_testkit::{EngineCall, EngineHooks, HookedEngine};

use super::*;
use crate::mesh::Engines;
use crate::mesh::engine::EngineLocation;
use crate::mesh::identity::Identity;
use crate::mesh::peers::LocalStation;
use crate::mesh::sites::SiteAssignment;
use crate::state::StateFiles;

/// A directory that counts registrations. The test controls its watches and leases.
struct Fake {
    registrations: AtomicUsize,
    state: Arc<Mutex<LeaseState>>,
    denies: std::sync::atomic::AtomicBool,
    read_only: Mutex<Option<ReadOnly>>,
    /// Whether watches end after the snapshot.
    watches_end: bool,
}

struct FakeLease(Arc<Mutex<LeaseState>>);

impl Lease for FakeLease {
    fn ttl(&self) -> Duration {
        Duration::from_secs(300)
    }

    fn state(&self) -> LeaseState {
        *self.0.lock().unwrap()
    }
}

#[async_trait::async_trait]
impl EngineHooks for Fake {
    fn route(&self, _: EngineCall<'_>) -> Result<Arc<dyn Engine>, EngineError> {
        Err(EngineError::Unavailable("it is a directory alone".into()))
    }

    async fn register(&self, _: &Entry, _: Duration) -> Result<Box<dyn Lease>, EngineError> {
        self.registrations.fetch_add(1, Ordering::SeqCst);
        if self.denies.load(Ordering::SeqCst) {
            return Err(EngineError::Denied("the token is unknown or withdrawn".into()));
        }
        *self.state.lock().unwrap() = LeaseState::Held;
        Ok(Box::new(FakeLease(Arc::clone(&self.state))))
    }

    fn watch(&self, _: &Group) -> BoxStream<Event> {
        let snapshot = futures_util::stream::iter([Ok(Event::Synced)]);
        if self.watches_end {
            return Box::pin(snapshot);
        }
        Box::pin(snapshot.chain(futures_util::stream::pending()))
    }

    fn read_only(&self) -> Option<ReadOnly> {
        self.read_only.lock().unwrap().clone()
    }
}

/// A station in the directory, with its parts.
struct Station {
    engine: Arc<HookedEngine<Fake>>,
    mesh_state: Arc<MeshState>,
    reregister: Arc<Notify>,
    _messages: mpsc::Receiver<(Name, WatchMessage)>,
    _state: tempfile::TempDir,
    _tasks: tokio::task::JoinSet<()>,
}

fn station(watches_end: bool) -> Station {
    station_in(EngineLocation::Local, watches_end)
}

fn station_in(location: EngineLocation, watches_end: bool) -> Station {
    let state = tempfile::tempdir().unwrap();
    let host = Name::new("a").unwrap();
    let lease = Arc::new(Mutex::new(LeaseState::Held));
    let engine = HookedEngine::new(Fake {
        registrations: AtomicUsize::new(0),
        state: lease,
        denies: false.into(),
        read_only: Mutex::default(),
        watches_end,
    });
    let config = MeshConfig {
        lease: Duration::from_secs(300),
        advertise: vec!["192.0.2.1:1".parse().unwrap()],
        ..MeshConfig::default()
    };
    let files = StateFiles::new(state.path());
    let identity = Arc::new(Identity::open(&files, host.clone()).unwrap());
    let shared: Arc<dyn Engine> = Arc::<HookedEngine<Fake>>::clone(&engine);
    let assignment = SiteAssignment::at_start(&config, state.path());
    let removed = crate::mesh::RemovedStations::open(&files);
    let mesh_state = Arc::new(MeshState::new(
        identity,
        &Engines { location, ..Engines::alone(Arc::clone(&shared)) },
        &config,
        assignment,
        removed,
    ));
    let group = config.all_groups().remove(0);
    let own_entry = OwnEntry { host, listen: "192.0.2.1:1".parse().unwrap(), config, key: [1; 32] };
    let reregister = Arc::new(Notify::new());
    let (sender, messages) = mpsc::channel(1024);
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(keep_watching(
        Arc::clone(&shared),
        group,
        Arc::clone(&mesh_state),
        sender,
        Arc::clone(&reregister),
    ));
    tasks.spawn(stay_registered(shared, own_entry, Arc::clone(&mesh_state), Arc::clone(&reregister)));
    Station { engine, mesh_state, reregister, _messages: messages, _state: state, _tasks: tasks }
}

impl Station {
    fn registrations(&self) -> usize {
        self.engine.0.registrations.load(Ordering::SeqCst)
    }

    fn lease_is(&self, state: LeaseState) {
        *self.engine.0.state.lock().unwrap() = state;
    }
}

/// Advances the paused clock, which moves only while all tasks wait.
async fn pass(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_station_with_a_long_lease_registers_again_after_a_directory_restart() {
    let station = station(true);
    pass(5).await;
    assert!(station.registrations() >= 2, "the next renewal is 100 s away");
    drop(station);
    let quiet = super::tests::station(false);
    pass(25).await;
    assert_eq!(quiet.registrations(), 1, "nothing has happened");
}

#[test]
fn the_grace_period_covers_the_longest_reconnection() {
    let second = Duration::from_secs(1);
    assert!(PAUSE_MAX.mul_f64(1.25) + 10 * second <= grace(second));
    assert_eq!(grace(300 * second), 301 * second);
}

#[tokio::test(start_paused = true)]
async fn a_lapsed_lease_counts_as_disconnected() {
    let station = station(false);
    pass(2).await;
    assert!(station.mesh_state.directory().is_connected());
    station.lease_is(LeaseState::Lapsed);
    pass(2).await;
    let directory = station.mesh_state.directory();
    assert!(!directory.is_connected() && !station.mesh_state.figures(&Name::new("a").unwrap()).is_connected);
    assert!(directory.reason().unwrap().contains("has expired"), "{:?}", directory.reason());
    station.lease_is(LeaseState::Held);
    pass(2).await;
    assert!(station.mesh_state.directory().is_connected());
}

/// A peer of the last run may have been withdrawn since then, so it loses its rights once the
/// directory was reached, also if the connection is lost again. The station that serves the
/// directory knows which members were removed.
#[tokio::test(start_paused = true)]
async fn a_peer_of_the_last_run_has_no_rights_once_the_directory_was_reached() {
    let elsewhere = EngineLocation::Remote("http://192.0.2.9:10132".into());
    for (location, expected) in [(elsewhere, [true, false, false]), (EngineLocation::Local, [true; 3])] {
        let station = station_in(location, false);
        let peer = Name::new("b").unwrap();
        let capabilities = Capabilities { responder: true, ..Capabilities::default() };
        let groups = vec![Name::new("local:x").unwrap()];
        let entry = Entry {
            host: peer.clone(),
            addresses: vec!["192.0.2.2:1".parse().unwrap()],
            version: env!("CARGO_PKG_VERSION").into(),
            groups: groups.clone(),
            capabilities,
            key: Some([7; 32]),
        };
        let host = Name::new("a").unwrap();
        let own = LocalStation { host, version: env!("CARGO_PKG_VERSION"), groups, addresses: Vec::new() };
        station.mesh_state.peers().up(&own, entry, 1.0, false);
        let before = station.mesh_state.may_request(&peer);
        pass(2).await;
        assert!(station.mesh_state.directory().is_connected());
        let connected = station.mesh_state.may_request(&peer);
        station.lease_is(LeaseState::Lapsed);
        pass(2).await;
        assert!(!station.mesh_state.directory().is_connected());
        assert_eq!([before, connected, station.mesh_state.may_request(&peer)], expected);
        station.mesh_state.peers().set_named(&peer);
        assert!(station.mesh_state.may_request(&peer));
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_only_directory_is_reported_with_a_remedy() {
    let station = station(false);
    pass(2).await;
    let is_since = |seconds| {
        let since = std::time::Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        *station.engine.0.read_only.lock().unwrap() = Some(ReadOnly { since, error: "no quorum".into() });
    };
    is_since(20);
    let directory = station.mesh_state.directory();
    assert!(directory.is_connected(), "the registration has not expired yet");
    assert!(directory.read_only_s().unwrap() >= 20.0 && station.mesh_state.reasons().is_empty());
    is_since(400);
    station.lease_is(LeaseState::Lapsed);
    pass(70).await;
    let directory = station.mesh_state.directory();
    assert!(!directory.is_connected() && directory.reason() == Some("no quorum"));
    let reasons = station.mesh_state.reasons();
    assert!(reasons.len() == 1 && reasons[0].contains("read-only for 400 s (no quorum)"), "{reasons:?}");
    assert!(reasons[0].contains("Start the NATS servers"), "{reasons:?}");
    assert!(station.mesh_state.figures(&Name::new("a").unwrap()).is_read_only);
    *station.engine.0.read_only.lock().unwrap() = None;
    station.lease_is(LeaseState::Held);
    pass(2).await;
    assert!(
        station.mesh_state.reasons().is_empty() && station.mesh_state.directory().read_only_s().is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn a_displaced_station_reports_the_conflict_and_waits_for_the_name() {
    let station = station(false);
    pass(2).await;
    assert!(station.mesh_state.reasons().is_empty());
    station.lease_is(LeaseState::Displaced);
    pass(2).await;
    let directory = station.mesh_state.directory();
    assert!(!directory.is_connected() && directory.conflict().unwrap().contains("registered as `a`"));
    assert_eq!(station.mesh_state.reasons().len(), 1);
    // While another station has its name, this station must not register again for any reason.
    // Otherwise the two stations would displace each other for ever.
    station.reregister.notify_one();
    pass(100).await;
    assert_eq!(station.registrations(), 1);
    assert!(station.mesh_state.directory().conflict().is_some());
    station.mesh_state.set_directory(|directory| {
        (directory.conflict, directory.lease_conflict, directory.is_vacant) = (None, None, true);
    });
    station.reregister.notify_one();
    pass(2).await;
    assert_eq!(station.registrations(), 2);
    assert!(station.mesh_state.directory().is_connected() && station.mesh_state.reasons().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_refused_token_is_reported_at_once_with_a_remedy() {
    let station = station(false);
    station.engine.0.denies.store(true, Ordering::SeqCst);
    pass(2).await;
    let reasons = station.mesh_state.reasons();
    assert!(reasons.len() == 1 && reasons[0].contains("rejects this station"), "{reasons:?}");
    let url = "http://head:10132/".to_string();
    let sentence =
        what_to_do(&EngineLocation::Remote(url.clone()), &EngineError::Denied("the token is unknown".into()));
    assert!(sentence.contains(&url) && sentence.contains("barograph invite"), "{sentence}");
    station.engine.0.denies.store(false, Ordering::SeqCst);
    pass(20).await;
    assert!(station.mesh_state.reasons().is_empty());
}
