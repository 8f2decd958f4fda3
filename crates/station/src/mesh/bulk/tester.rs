//! Thread that starts this station's bulk tests at its turns.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use barograph_api::BulkTestState;
use barograph_engine::TaskStatus;
use barograph_forecast::Name;
use barograph_mesh::{PairForecast, Planner};
use barograph_probe::Target;

use super::early::EarlyPlan;
use super::{Bulk, TestAttempt, Turns};
use crate::health::Health;
use crate::sync::lock;

/// Handle of the thread. Stopping it cancels a running test.
pub(crate) struct Tester {
    bulk: Arc<Bulk>,
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Tester {
    /// Starts the thread, which tests peers if this station takes part in tests.
    ///
    /// # Errors
    /// The error of the system if the thread cannot be created.
    pub(crate) fn start(bulk: Arc<Bulk>, health: &Health) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let ours = Arc::clone(&bulk);
        let task = ours.consents.then(|| health.task("tester"));
        let thread = std::thread::Builder::new().name("tester".into()).spawn(move || {
            let planner = Planner::new(ours.host.as_str(), ours.plan, ours.now());
            // The plan was checked when the station started.
            if let (Some(task), Ok(planner)) = (task, planner) {
                let early = EarlyPlan::new(&ours);
                let plan =
                    Plan { bulk: ours, planner, new: BTreeMap::new(), is_brought_forward: false, early };
                task.run(|| plan.run(&stopped, &task));
            }
        })?;
        Ok(Self { bulk, stop, thread })
    }

    /// Cancels all tests that this station has started. Unfinished tests are not recorded.
    pub(crate) fn stop(self) {
        self.bulk.cancel.cancel();
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

struct Plan {
    bulk: Arc<Bulk>,
    planner: Planner,
    /// For each peer, the number of further times that the peer may bring the next turn forward.
    /// The number is 0 for a peer with a test result in this run.
    new: BTreeMap<Name, u32>,
    /// Whether the next turn was brought forward already.
    is_brought_forward: bool,
    /// Tests that a change brings forward; `None` if this station makes none.
    early: Option<EarlyPlan>,
}

impl Plan {
    fn run(mut self, stopped: &Receiver<()>, task: &TaskStatus) {
        loop {
            task.kill_point();
            let peers = self.bulk.peers();
            self.update_peers(&peers);
            let now = self.bulk.now();
            if !peers.is_empty() && self.planner.next_at() <= now {
                self.turn(&peers, now);
            }
            if let Some(early) = &mut self.early {
                early.step(&self.bulk, &peers);
            }
            let next_at = (!peers.is_empty()).then(|| self.planner.next_at());
            let early = self.early.as_ref().map(EarlyPlan::counts).unwrap_or_default();
            *lock(&self.bulk.turns) = Turns { statistics: self.planner.turn_counts(), next_at, early };
            let wait = next_at
                .map_or(PEER_CHECK_PERIOD, |at| at.saturating_sub(self.bulk.now()).min(PEER_CHECK_PERIOD));
            match stopped.recv_timeout(wait) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Updates the peers of the plan. A new peer makes the next turn earlier, so that its first
    /// test does not wait for a whole interval.
    fn update_peers(&mut self, peers: &BTreeMap<Name, Target>) {
        self.planner.set_peers(peers.keys().map(Name::as_str));
        self.planner.set_groups(self.bulk.groups(peers));
        lock(&self.bulk.gate).set_peers(peers.len());
        self.new.retain(|peer, _| peers.contains_key(peer));
        for peer in peers.keys() {
            if !self.new.contains_key(peer) {
                let is_new = self.bulk.path(peer).forecast_bit_s.is_none();
                self.new.insert(peer.clone(), if is_new { BROUGHT_FORWARD_MAX } else { 0 });
            }
        }
        if !self.is_brought_forward && self.new.values().any(|left| *left > 0) {
            self.is_brought_forward = true;
            let every = self.bulk.plan.every;
            let spread = every.min(SPREAD.saturating_mul(u32::try_from(peers.len()).unwrap_or(u32::MAX)));
            let phase = phase(self.bulk.host.as_str(), self.planner.turn_counts().tests, self.bulk.plan.seed);
            // Wait until the peer, too, has this station's entry.
            self.planner
                .advance_next_turn(self.bulk.now() + NEW_PEER_DELAY.min(every) + spread.mul_f64(phase));
        }
    }

    /// Tests the peer that the plan selects for this turn.
    fn turn(&mut self, peers: &BTreeMap<Name, Target>, now: Duration) {
        self.is_brought_forward = false;
        for peer in peers.keys() {
            if let Some(forecast) = self.forecast(peer) {
                self.planner.set_forecast(peer.as_str(), forecast);
            }
        }
        let Some(next) = self.planner.next(now) else { return };
        let known = Name::new(&next.peer).ok().and_then(|name| peers.get_key_value(&name));
        // The function never returns at this statement, because the planner selects only from these
        // peers.
        let Some((peer, target)) = known else { return };
        let parameters =
            self.bulk.path(peer).scheduled(next.kind, self.bulk.early_stop, &self.bulk.plan.budget);
        let attempt = self.bulk.test(peer, target, &parameters, false);
        let now = self.bulk.now();
        let left = self.new.entry(peer.clone()).or_default();
        match attempt {
            TestAttempt::Ran { row, cost } => {
                *left = 0;
                match row.goodput_bit_s.filter(|_| row.state == BulkTestState::Done) {
                    Some(rate) => self.planner.record_test(now, &next.peer, cost, rate),
                    None => self.planner.record_failure(now, &next.peer, cost),
                }
            }
            TestAttempt::Refused { retry_after, .. } => {
                *left = left.saturating_sub(1);
                self.planner.record_refusal(now, &next.peer, retry_after);
            }
            TestAttempt::Deferred { retry_after, .. } => self.planner.postpone(now, retry_after),
            TestAttempt::Stopped => {}
        }
    }

    fn forecast(&self, peer: &Name) -> Option<PairForecast> {
        let path = self.bulk.path(peer);
        let goodput_bit_s = path.forecast_bit_s?;
        Some(PairForecast { goodput_bit_s, settles_in: path.settles_in(&self.bulk.plan.budget) })
    }
}

/// Delay of a first test, as a fraction (0 to 1) of the time over which first tests are spread. The
/// fraction depends on the station's name, the turn and the seed.
fn phase(host: &str, turn: u64, seed: u64) -> f64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (host, turn, seed).hash(&mut hasher);
    // Use the upper 53 bits, because an `f64` holds 53 bits.
    (hasher.finish() >> 11) as f64 / (1u64 << 53) as f64
}

/// Time between two checks for new peers, and for changes that bring a test forward.
const PEER_CHECK_PERIOD: Duration = Duration::from_secs(1);
/// The first tests of a mesh are spread over this time multiplied by the number of peers, and over
/// one interval at most. A test occupies both ends for 2 s, and each station is source and target
/// of tests. So while all peers are new, tests take a fifth of the time.
const SPREAD: Duration = Duration::from_secs(20);
/// Delay of the first test of a new peer: half a lease. After this delay the peer has this
/// station's entry, and a check has found the address of the peer.
const NEW_PEER_DELAY: Duration = Duration::from_secs(5);
/// Maximum number of times that a peer that refuses its first test may make the next turn earlier.
const BROUGHT_FORWARD_MAX: u32 = 5;
