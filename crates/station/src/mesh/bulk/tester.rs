//! The thread that makes this station's own tests, in their turns.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use barograph_api::TestState;
use barograph_engine::TaskStatus;
use barograph_forecast::Name;
use barograph_mesh::{PairForecast, Planner};
use barograph_probe::Target;

use super::{Bulk, Turns, Verdict};
use crate::health::Health;
use crate::sync::lock;

/// The thread; stopping it ends a test that runs.
pub(crate) struct Tester {
    bulk: Arc<Bulk>,
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Tester {
    /// Tests peers from now on, as far as this station takes part in tests.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub(crate) fn start(bulk: Arc<Bulk>, health: &Health) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let ours = Arc::clone(&bulk);
        let task = ours.consents.then(|| health.task("tester"));
        let thread = std::thread::Builder::new().name("tester".into()).spawn(move || {
            let planner = Planner::new(ours.host.as_str(), ours.plan, ours.now());
            // The plan was checked when the station was made.
            if let (Some(task), Ok(planner)) = (task, planner) {
                let plan = Plan { bulk: ours, planner, new: BTreeMap::new(), hastened: false };
                task.run(|| plan.run(&stopped, &task));
            }
        })?;
        Ok(Self { bulk, stop, thread })
    }

    /// Ends all tests that this station has started; what they had not finished is not recorded.
    pub(crate) fn stop(self) {
        self.bulk.cancel.cancel();
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

struct Plan {
    bulk: Arc<Bulk>,
    planner: Planner,
    /// Peers seen in this run: how often those that have no value yet may still hasten the next turn.
    new: BTreeMap<Name, u32>,
    /// The next turn was hastened already.
    hastened: bool,
}

impl Plan {
    fn run(mut self, stopped: &Receiver<()>, task: &TaskStatus) {
        loop {
            task.turn();
            let peers = self.bulk.peers();
            self.meet(&peers);
            let now = self.bulk.now();
            if !peers.is_empty() && self.planner.next_at() <= now {
                self.turn(&peers, now);
            }
            let next_at = (!peers.is_empty()).then(|| self.planner.next_at());
            *lock(&self.bulk.turns) = Turns { statistics: self.planner.statistics(), next_at };
            let wait = next_at.map_or(LOOK, |at| at.saturating_sub(self.bulk.now()).min(LOOK));
            match stopped.recv_timeout(wait) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Takes the peers in; where one is new, its first test need not wait for a whole interval.
    fn meet(&mut self, peers: &BTreeMap<Name, Target>) {
        self.planner.set_peers(peers.keys().map(Name::as_str));
        self.planner.set_groups(self.bulk.groups(peers));
        lock(&self.bulk.gate).set_peers(peers.len());
        self.new.retain(|peer, _| peers.contains_key(peer));
        for peer in peers.keys() {
            if !self.new.contains_key(peer) {
                let is_new = self.bulk.path(peer).forecast_bit_s.is_none();
                self.new.insert(peer.clone(), if is_new { HASTENED_MAX } else { 0 });
            }
        }
        if !self.hastened && self.new.values().any(|left| 0 < *left) {
            self.hastened = true;
            let every = self.bulk.plan.every;
            let spread = every.min(SPREAD.saturating_mul(u32::try_from(peers.len()).unwrap_or(u32::MAX)));
            let phase = phase(self.bulk.host.as_str(), self.planner.statistics().tests, self.bulk.plan.seed);
            // Not before the peer, too, has heard of this station.
            self.planner.hasten(self.bulk.now() + HEARD.min(every) + spread.mul_f64(phase));
        }
    }

    /// One peer, of those that the plan names in this turn.
    fn turn(&mut self, peers: &BTreeMap<Name, Target>, now: Duration) {
        self.hastened = false;
        for peer in peers.keys() {
            if let Some(forecast) = self.forecast(peer) {
                self.planner.set_forecast(peer.as_str(), forecast);
            }
        }
        let Some(next) = self.planner.next(now) else { return };
        let known = Name::new(&next.peer).ok().and_then(|name| peers.get_key_value(&name));
        // Only peers were given to it.
        let Some((peer, target)) = known else { return };
        let shape = self.bulk.path(peer).scheduled(next.length, self.bulk.early_stop, &self.bulk.plan.budget);
        let verdict = self.bulk.test(peer, target, &shape, false);
        let now = self.bulk.now();
        let left = self.new.entry(peer.clone()).or_default();
        match verdict {
            Verdict::Made { row, cost } if row.state == TestState::Done => {
                *left = 0;
                // A test that is done gave a rate; NaN would teach nothing.
                self.planner.tested(now, &next.peer, cost, row.goodput_bit_s.unwrap_or(f64::NAN));
            }
            Verdict::Made { cost, .. } => {
                *left = 0;
                self.planner.failed(now, &next.peer, cost);
            }
            Verdict::Refused { retry_after, .. } => {
                *left = left.saturating_sub(1);
                self.planner.refused(now, &next.peer, retry_after);
            }
            Verdict::Deferred { retry_after, .. } => self.planner.deferred(now, retry_after),
            Verdict::Stopped => {}
        }
    }

    fn forecast(&self, peer: &Name) -> Option<PairForecast> {
        let path = self.bulk.path(peer);
        let goodput_bit_s = path.forecast_bit_s?;
        Some(PairForecast { goodput_bit_s, settles_in: path.settles_in(&self.bulk.plan.budget) })
    }
}

/// A point of the first interval, 0 to 1, that the station's name and the turn decide.
fn phase(host: &str, turn: u64, seed: u64) -> f64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (host, turn, seed).hash(&mut hasher);
    // The upper 53 bits, as a fraction of 1.
    (hasher.finish() >> 11) as f64 / (1u64 << 53) as f64
}

/// The directory may tell of peers at any time.
const LOOK: Duration = Duration::from_secs(1);
/// The first tests of a mesh are spread over so long for each peer, and at most over one interval: a test takes 2 s, at
/// either end, so that a fifth of the time is used while all are new.
const SPREAD: Duration = Duration::from_secs(20);
/// Half a lease: by then a peer has told who it is, and its address was found.
const HEARD: Duration = Duration::from_secs(5);
/// How often a peer that refuses its first test may hasten the next turn.
const HASTENED_MAX: u32 = 5;
