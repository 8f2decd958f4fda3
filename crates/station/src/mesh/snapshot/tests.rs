use std::sync::atomic::{AtomicUsize, Ordering};

use barograph_engine::{BoxStream, EngineError, Group};
use barograph_testkit::{EngineCall, EngineHooks, HookedEngine};
use tokio::time::sleep;

use super::*;
use crate::config::MeshConfig;
use crate::mesh::Engines;
use crate::mesh::identity::Identity;
use crate::state::StateFiles;

/// An empty directory that counts its snapshots. Each snapshot takes some time.
#[derive(Default)]
struct Fake {
    looks: AtomicUsize,
}

impl EngineHooks for Fake {
    fn route(&self, _: EngineCall<'_>) -> Result<Arc<dyn Engine>, EngineError> {
        Err(EngineError::Unavailable("it is a directory alone".into()))
    }

    fn watch(&self, _: &Group) -> BoxStream<Event> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        Box::pin(futures_util::stream::once(async {
            sleep(Duration::from_millis(100)).await;
            Ok(Event::Synced)
        }))
    }
}

/// A cache of a station that is alone in its group. So a refresh takes only one snapshot, the
/// snapshot of `global`.
struct Room {
    snapshot: MeshSnapshot,
    engine: Arc<HookedEngine<Fake>>,
    _state: tempfile::TempDir,
}

impl Room {
    fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let (host, config) = (Name::new("a").unwrap(), MeshConfig::default());
        let engine = HookedEngine::new(Fake::default());
        let shared: Arc<dyn Engine> = Arc::<HookedEngine<Fake>>::clone(&engine);
        let files = StateFiles::new(state.path());
        let identity = Arc::new(Identity::open(&files, host.clone()).unwrap());
        let assignment = crate::mesh::sites::SiteAssignment::at_start(&config, state.path());
        let removed = crate::mesh::RemovedStations::open(&files);
        let mesh_state =
            MeshState::new(identity, &Engines::alone(Arc::clone(&shared)), &config, assignment, removed);
        let snapshot = MeshSnapshot::new(
            host,
            Arc::new(mesh_state),
            shared,
            Arc::new(Mutex::new(SeriesTable::new(1))),
            TaskStatus::new("mesh_snapshot"),
        );
        Self { snapshot, engine, _state: state }
    }

    fn looks(&self) -> usize {
        self.engine.0.looks.load(Ordering::SeqCst)
    }

    /// Number of snapshots in `time` without requests.
    async fn looks_in(&self, time: Duration) -> usize {
        let before = self.looks();
        sleep(time).await;
        self.looks() - before
    }

    /// Number of snapshots in `seconds` with a request every second.
    async fn looks_asked(&self, seconds: usize) -> usize {
        let before = self.looks();
        for _ in 0..seconds {
            self.snapshot.latest().await;
            sleep(Duration::from_secs(1)).await;
        }
        self.looks() - before
    }
}

const MINUTE: Duration = Duration::from_mins(1);

#[tokio::test(start_paused = true)]
async fn one_refresh_serves_all_waiting_requests_and_later_requests_do_not_wait() {
    let room = Room::new();
    let all = futures_util::future::join_all((0..20).map(|_| room.snapshot.latest())).await;
    assert_eq!(room.looks(), 1);
    assert!(all.iter().all(|mesh| Arc::ptr_eq(&mesh.0, &all[0].0) && Arc::ptr_eq(&mesh.1, &all[0].1)));
    // Requests return at once while the next refresh runs.
    let last = room.snapshot.latest().await.1;
    for _ in 0..2000 {
        if room.looks() == 2 {
            break;
        }
        sleep(Duration::from_millis(10)).await;
    }
    let at = Instant::now();
    let old = room.snapshot.latest().await;
    assert_eq!((room.looks(), at.elapsed()), (2, Duration::ZERO));
    assert!(Arc::ptr_eq(&old.1, &last));
}

#[tokio::test(start_paused = true)]
async fn the_snapshot_refreshes_less_often_after_the_last_request_and_then_stops() {
    let room = Room::new();
    for _ in 0..2 {
        let looks = room.looks_asked(100).await;
        assert!((9..=11).contains(&looks), "one every ten seconds: {looks}");
        let models = room.snapshot.latest().await.1;
        // There are two snapshots soon after the last request, and then one snapshot each minute.
        let looks = room.looks_in(10 * MINUTE).await;
        assert!((9..=12).contains(&looks), "{looks}");
        assert!(!Arc::ptr_eq(&room.snapshot.latest().await.1, &models), "models are refreshed, too");
        room.looks_in(IDLE + MINUTE).await;
        assert_eq!(room.looks_in(2 * IDLE).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_members_request_refreshes_only_members_and_leaves_no_task_running() {
    let room = Room::new();
    for _ in 0..60 {
        room.snapshot.members(RENEWED).await;
        sleep(Duration::from_secs(1)).await;
    }
    assert!((5..=6).contains(&room.looks()), "{}", room.looks());
    assert!(lock(&room.snapshot.parts.cache).models.is_none(), "no request needed models");
    assert_eq!(room.looks_in(IDLE).await, 0);
}

#[tokio::test(start_paused = true)]
async fn requests_for_unknown_hosts_cause_one_refresh_and_no_new_models() {
    let room = Room::new();
    // This request alone would cause a refresh only after ten seconds.
    let (mut members, models) = room.snapshot.latest().await;
    for second in 0..9 {
        let newer = room.snapshot.members_newer_than(&members).await;
        assert_eq!(newer.is_some(), second == 0, "{second}");
        members = newer.unwrap_or(members);
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(room.looks(), 2);
    assert!(Arc::ptr_eq(&room.snapshot.latest().await.1, &models));
    // A refresh has read membership meanwhile.
    let (old, looks) = (members, room.looks());
    sleep(RENEWED).await;
    let looks_now = room.looks();
    assert!(
        looks < looks_now
            && room.snapshot.members_newer_than(&old).await.is_some()
            && room.looks() == looks_now
    );
}

#[test]
fn groups_of_a_member_with_many_groups_come_last() {
    let name = |text: String| Name::new(&text).unwrap();
    let mut named = Named::default();
    named.add(&(0..64).map(|index| name(format!("!{index:02}"))).collect::<Vec<_>>());
    named.add(&[name("local:zz".into()), name("zone".into())]);
    named.first(name("global".into()));
    let order: Vec<String> =
        std::iter::from_fn(|| named.next()).map(|group| group.to_string()).take(3).collect();
    assert_eq!(order[0], "global");
    assert_eq!(order[1..].iter().collect::<BTreeSet<_>>().len(), 2);
    assert!(order[1..].iter().all(|group| ["local:zz", "zone"].contains(&group.as_str())), "{order:?}");
}
