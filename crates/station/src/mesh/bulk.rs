//! Bulk tests between stations: consent of both ends, the tests, and their records
//! (docs/spec/mesh.md §5).
//!
//! A test needs three permissions: this host's only [`BulkSlot`] for bulk transfers; its
//! [`TestAdmission`] (budget and token); and the peer's consent in the probe session. The consent
//! needs the [`BulkSlot`] and the [`TestAdmission`] of the peer.

mod budget_file;
mod consent;
mod early;
mod iperf3;
mod log;
mod parameters;
mod result;
mod slot;
mod tester;
mod use_iperf3;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use barograph_api::BulkTest;
use barograph_forecast::{Interval, Name, Quantity, SeriesId};
use barograph_mesh::{
    BudgetError, BudgetUsage, Cost, EarlyTestCounts, PlanConfig, TestAdmission, TestAdmissionConfig,
    TestRefusal, TurnCounts,
};
use barograph_probe::io::{CancellationToken, ProbeContext, stream_counted, train};
use barograph_probe::stop::ForecastInterval;
use barograph_probe::stream::{StreamPlan, StreamResult};
use barograph_probe::wire::{DeclineReason, STREAM_MS_MAX};
use barograph_probe::{ProbeError, Target};

use self::budget_file::BudgetFile;
pub(crate) use self::consent::TestConsent;
pub(crate) use self::iperf3::usable as iperf3_usable;
use self::log::Log;
pub(crate) use self::log::{ROLES, STATES};
use self::parameters::{PathHistory, TestParameters};
use self::result::checked;
pub(crate) use self::slot::{BulkSlot, BulkSlotGuard, BulkUse};
pub(crate) use self::tester::Tester;
use self::use_iperf3::{IPERF3_RETRY, Iperf3Unavailable, PEER_LACKS_IPERF3};
use super::MeshState;
use super::mesh_state::now_s;
use super::peers::Peer;
use crate::config::{BulkWith, MeshConfig};
use crate::forecast::series::{SeriesState, SeriesTable};
use crate::record::recorder::Inbox;
use crate::state::StateFiles;
use crate::sync::lock;

/// Bulk tests of one station, as source and as target.
pub(crate) struct Bulk {
    pub(crate) host: Name,
    /// Whether this station takes part in bulk tests.
    pub(crate) consents: bool,
    pub(crate) plan: PlanConfig,
    pub(crate) slot: Arc<BulkSlot>,
    /// Whether changes of a path bring tests forward.
    early_tests: bool,
    early_stop: bool,
    with: BulkWith,
    /// Port of the iperf3 server; `None` = iperf3 is not enabled.
    iperf3_port: Option<u16>,
    mesh_state: Arc<MeshState>,
    series_table: Arc<Mutex<SeriesTable>>,
    inbox: Inbox,
    gate: Mutex<TestAdmission>,
    /// File with the admitted tests, so that a restart does not restore the budget.
    budget_file: Mutex<BudgetFile>,
    log: Mutex<Log>,
    /// State of the path to each peer.
    paths: Mutex<BTreeMap<Name, PathHistory>>,
    turns: Mutex<Turns>,
    cancel: CancellationToken,
    began: Instant,
}

/// Counters of the plan of turns, and the time of the next turn.
#[derive(Clone, Copy, Debug, Default)]
struct Turns {
    statistics: TurnCounts,
    /// Time of the next turn; `None` without peers.
    next_at: Option<Duration>,
    early: EarlyTestCounts,
}

/// Parts of the station that bulk tests use.
pub(crate) struct BulkDependencies {
    pub(crate) host: Name,
    pub(crate) mesh_state: Arc<MeshState>,
    pub(crate) series_table: Arc<Mutex<SeriesTable>>,
    pub(crate) inbox: Inbox,
    pub(crate) files: StateFiles,
}

/// Result of a test that this station wanted to start.
#[derive(Debug)]
pub(crate) enum TestAttempt {
    /// The test ran, and either measured a rate or did not.
    Ran { row: BulkTest, cost: Cost },
    /// The peer refused its consent.
    Refused { reason: String, retry_after: Duration },
    /// This host cannot start the test now.
    Deferred { reason: String, retry_after: Duration },
    /// The station stopped during the test.
    Stopped,
}

/// Numbers about the budget, the tests and the turns, for `/metrics` and `GET /v1/tests`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BulkTestMetrics {
    pub(crate) counts: [[u64; 3]; 2],
    pub(crate) spent: BudgetUsage,
    /// Number of turns in which every peer that the plan tried refused the test.
    pub(crate) skipped: u64,
    /// Number of turns that were postponed because this host could not start a test: the slot of
    /// the host was taken, its budget was used up, or iperf3 was missing.
    pub(crate) deferred: u64,
    pub(crate) next_turn_s: Option<f64>,
    /// Tests that a change brought forward, and the packet trains that look for changes.
    pub(crate) early: EarlyTestCounts,
}

impl Bulk {
    /// Creates the bulk tests of a station. What earlier runs have spent is charged to the budget.
    ///
    /// # Errors
    /// [`BudgetError`] if the budget is not valid.
    pub(crate) fn new(config: &MeshConfig, parts: BulkDependencies) -> Result<Self, BudgetError> {
        let seed = seed();
        let plan = PlanConfig { seed, ..config.plan() };
        plan.check()?;
        let mut gate = TestAdmission::new(TestAdmissionConfig {
            budget: plan.budget,
            seed,
            ..TestAdmissionConfig::default()
        })?;
        if config.wants_iperf3() {
            iperf3::warn();
        }
        let BulkDependencies { host, mesh_state, series_table, inbox, files } = parts;
        let budget_file = BudgetFile::open(&files, &plan.budget, &mut gate);
        Ok(Self {
            host,
            consents: config.bulk,
            plan,
            slot: Arc::default(),
            early_tests: config.wants_early_tests(),
            early_stop: config.bulk_early_stop,
            with: config.bulk_with,
            iperf3_port: config.wants_iperf3().then_some(config.bulk_iperf3_port),
            mesh_state,
            series_table,
            inbox,
            gate: Mutex::new(gate),
            budget_file: Mutex::new(budget_file),
            log: Mutex::default(),
            paths: Mutex::default(),
            turns: Mutex::default(),
            cancel: CancellationToken::default(),
            began: Instant::now(),
        })
    }

    /// The logged tests, newest first.
    pub(crate) fn tests(&self) -> Vec<BulkTest> {
        lock(&self.log).newest()
    }

    /// Number of tests that peers requested and this station refused since its start.
    pub(crate) fn refused_tests(&self) -> u64 {
        lock(&self.log).counts[1][2]
    }

    pub(crate) fn figures(&self) -> BulkTestMetrics {
        let turns = *lock(&self.turns);
        let now = self.now();
        BulkTestMetrics {
            counts: lock(&self.log).counts,
            spent: lock(&self.gate).spent(now),
            skipped: turns.statistics.skipped,
            deferred: turns.statistics.deferrals,
            next_turn_s: turns.next_at.map(|at| at.saturating_sub(now).as_secs_f64()),
            early: turns.early,
        }
    }

    /// Runs a requested test. Blocks for the length of the test and some seconds. `None` = there is
    /// no such peer.
    pub(crate) fn on_demand(&self, peer: &Name, length: Option<Duration>) -> Option<TestAttempt> {
        let target = self.peers().remove(peer)?;
        let parameters = self.path(peer).on_demand(length, self.early_stop, &self.plan.budget);
        Some(self.test(peer, &target, &parameters, true))
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Peers that can be tested, and their addresses.
    fn peers(&self) -> BTreeMap<Name, Target> {
        let peers = self.mesh_state.peers();
        let able = peers.all().filter(|peer| peer.entry.capabilities.bulk);
        able.filter_map(|peer| {
            let target = Target::parse(&peer.target()?.to_string()).ok()?;
            Some((peer.entry.host.clone(), target))
        })
        .collect()
    }

    /// Number of groups with different members among these peers; see
    /// [`barograph_mesh::Planner::set_groups`].
    fn groups(&self, peers: &BTreeMap<Name, Target>) -> u32 {
        let groups = self.mesh_state.site_assignment().groups;
        let all = self.mesh_state.peers();
        let members = |group: &Name| -> BTreeSet<Name> {
            let is_member = |peer: &&Peer| peer.entry.groups.contains(group);
            let inside = peers.keys().filter_map(|name| all.get(name)).filter(is_member);
            inside.map(|peer| peer.entry.host.clone()).collect()
        };
        let different: BTreeSet<_> =
            groups.iter().map(members).filter(|members| !members.is_empty()).collect();
        u32::try_from(different.len()).unwrap_or(u32::MAX)
    }

    /// Peers that answer packet trains.
    fn peers_with_trains(&self) -> BTreeSet<Name> {
        let peers = self.mesh_state.peers();
        let able = peers.all().filter(|peer| peer.entry.capabilities.trains);
        able.map(|peer| peer.entry.host.clone()).collect()
    }

    /// Sends a packet train to `peer` and returns its rate (bit/s). `None` if the train gave no
    /// rate, or if a bulk transfer of this host ran meanwhile.
    fn train(&self, peer: &Name, target: &Target) -> Option<f64> {
        let begun = self.slot.begun();
        let rate = train(target, &self.context(peer)).ok().flatten();
        rate.filter(|_| begun == self.slot.begun() && !self.slot.is_taken())
    }

    fn series(&self, peer: &Name) -> SeriesId {
        self.series_of(peer, Quantity::GOODPUT)
    }

    fn series_of(&self, peer: &Name, quantity: Quantity) -> SeriesId {
        SeriesId { source: self.host.clone(), target: peer.clone(), quantity }
    }

    /// Forecast of the round-trip time to `peer` (s).
    fn rtt_s(&self, peer: &Name) -> Option<f64> {
        let series = self.series_of(peer, Quantity::RTT);
        let next = lock(&self.series_table).get(&series).and_then(SeriesState::forecasts)?;
        Some(next.median.value)
    }

    /// State of the path to `peer`. The calibration is stored here; the forecast is read from the
    /// series table.
    fn path(&self, peer: &Name) -> PathHistory {
        let path = lock(&self.paths).get(peer).copied().unwrap_or_default();
        let series_table = lock(&self.series_table);
        let state = series_table.get(&self.series(peer));
        PathHistory {
            forecast_bit_s: state.and_then(|state| state.forecasts()).map(|next| next.median.value),
            guard: state
                .and_then(|state| state.interval(Interval::DEFAULT_LEVEL))
                .map(|(lower_bit_s, upper_bit_s)| ForecastInterval { lower_bit_s, upper_bit_s }),
            ..path
        }
    }

    /// Runs one test to `peer` and records it, with the consent of both ends.
    fn test(
        &self,
        peer: &Name,
        target: &Target,
        parameters: &TestParameters,
        on_demand: bool,
    ) -> TestAttempt {
        let row = log::begun(now_s(), ROLES[0], peer.as_str(), parameters.length.as_secs_f64(), on_demand);
        let deferred = |reason: String, retry_after: Duration| {
            let row = log::refused(
                row.clone(),
                format!("refused by this station: {reason}"),
                Some(retry_after.as_secs_f64()),
            );
            lock(&self.log).add(row);
            TestAttempt::Deferred { reason, retry_after }
        };
        let iperf3_test = match self.iperf3(peer, parameters) {
            Ok(test) => test,
            Err(Iperf3Unavailable::Local(reason)) => return deferred(reason, IPERF3_RETRY),
            Err(Iperf3Unavailable::Peer) => {
                let reason = PEER_LACKS_IPERF3.to_string();
                lock(&self.log).add(log::refused(row, reason.clone(), Some(IPERF3_RETRY.as_secs_f64())));
                return TestAttempt::Refused { reason, retry_after: IPERF3_RETRY };
            }
        };
        let Some(_held) = self.slot.take(BulkUse::Test) else {
            return deferred("another bulk transfer is running here".into(), SLOT_RETRY);
        };
        let now = self.now();
        let grant = match self.start(now, peer, parameters.expected) {
            Ok(grant) => grant,
            Err(refusal) => return deferred(refusal.to_string(), retry_after(&refusal)),
        };
        let row = BulkTest { with: iperf3_test.map(|_| iperf3::NAME.into()), ..row };
        let id = lock(&self.log).add(row.clone());
        let sent = AtomicU64::new(0);
        let began = Instant::now();
        let by_iperf3 = iperf3_test.and_then(|test| self.send_iperf3(peer, target, test, &sent));
        let row = BulkTest { with: by_iperf3.as_ref().map(|_| iperf3::NAME.into()), ..row };
        let result = by_iperf3.unwrap_or_else(|| self.stream(peer, target, parameters, &sent));
        let result = result.and_then(|streamed| checked(streamed, began));
        let cost = match &result {
            Ok(streamed) => {
                Cost { duration: Duration::from_secs_f64(streamed.elapsed_s.max(0.0)), bytes: streamed.bytes }
            }
            Err(_) => match sent.load(Ordering::Relaxed) {
                // A test that was declined or never started costs nothing.
                0 => Cost::default(),
                bytes => Cost { duration: began.elapsed(), bytes },
            },
        };
        // The admission has already counted a test that did not end in time, so an error is ignored
        // here.
        let _ = lock(&self.gate).end(self.now(), grant, cost);
        self.keep();
        let (row, attempt) = self.evaluate(peer, parameters, row, cost, result);
        lock(&self.log).end(id, row);
        attempt
    }

    /// Charges the test to this host's budget, and takes a token for the test from this host's
    /// [`TestAdmission`]. The time limit of the token begins at once, because the peer's response
    /// arrives within the time of the test.
    fn start(&self, now: Duration, peer: &Name, expected: Cost) -> Result<u64, TestRefusal> {
        let mut gate = lock(&self.gate);
        let grant = gate.start(now, peer.as_str(), expected)?;
        let begun = gate.begin(now, grant.token, peer.as_str());
        drop(gate);
        self.keep();
        begun.map(|()| grant.token).map_err(|_| TestRefusal::Busy { retry_after: SLOT_RETRY })
    }

    /// Stores the spent budget, so that a restart does not restore the budget. Called before each
    /// test, because the station may be killed during the test, and called again after the test.
    fn keep(&self) {
        let file = lock(&self.budget_file);
        let past = lock(&self.gate).export_tests(self.now());
        file.write(&past);
    }

    /// Context of a probe session: signed requests, and [`SESSION_OVERHEAD`] as the time in
    /// addition to the test.
    fn context(&self, peer: &Name) -> ProbeContext {
        ProbeContext {
            deadline: SESSION_OVERHEAD,
            sign: Some(self.mesh_state.identity.signer(peer.clone())),
            signs_first: true,
            cancel: self.cancel.clone(),
            ..ProbeContext::default()
        }
    }

    /// Runs the test as Barograph's own stream. If the peer permits only a smaller test, requests
    /// the smaller test.
    fn stream(
        &self,
        peer: &Name,
        target: &Target,
        parameters: &TestParameters,
        sent: &AtomicU64,
    ) -> Result<StreamResult, ProbeError> {
        let mut plan = StreamPlan {
            seconds: parameters.length.as_secs_f64(),
            bytes_max: parameters.bytes_max,
            congestion: None,
            early: parameters.early,
        };
        let context = self.context(peer);
        let mut tries = 0..LOWERED_MAX;
        loop {
            let result = stream_counted(target, &plan, &context, sent);
            let limit = match &result {
                Err(ProbeError { declined: Some(DeclineReason::TooLarge { limit }), .. }) => *limit,
                _ => return result,
            };
            if limit == 0 || tries.next().is_none() {
                return result;
            }
            // `limit` is in bytes or in milliseconds. A limit in bytes is always above
            // STREAM_MS_MAX, and a limit in milliseconds is not, so the unit is known.
            if limit <= u64::from(STREAM_MS_MAX) {
                plan.seconds = plan.seconds.min(limit as f64 / 1000.0);
            } else {
                plan.bytes_max = plan.bytes_max.min(limit);
            }
        }
    }
}

fn retry_after(refusal: &TestRefusal) -> Duration {
    match refusal {
        TestRefusal::Busy { retry_after } | TestRefusal::Spent { retry_after } => *retry_after,
        TestRefusal::NotAMember => Duration::ZERO,
    }
}

/// Random seed, from the system's randomness that seeds the hash maps of the standard library.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

/// Time that a session needs in addition to the test: for two connections, the request, and the
/// last acknowledgement. This time is less than 5 s, the time by which [`TestAdmission`] permits a
/// test to exceed its length.
const SESSION_OVERHEAD: Duration = Duration::from_secs(4);
/// Time before a retry while another bulk transfer runs on this host; such transfers take seconds.
const SLOT_RETRY: Duration = Duration::from_secs(5);
/// Maximum number of repetitions of a request: one if the peer permits fewer bytes, and one if the
/// peer permits less time.
const LOWERED_MAX: u32 = 2;
