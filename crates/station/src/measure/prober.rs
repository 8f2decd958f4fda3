//! Runs experiments: one thread with a timetable, and a bounded number of short-lived threads.
//!
//! Measuring never waits for HTTP or storage (invariant 21). Each experiment blocks a thread of its
//! own, at most until its deadline, so no target delays another. At most one experiment for each
//! target and one bulk test on this host run at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use barograph_engine::TaskStatus;
use barograph_forecast::{Failure, Name, Outcome, Quantity, SeriesId};
use barograph_probe::exchange_schedule::since_due;
use barograph_probe::io::{
    CancellationToken, PacedResult, ProbeContext, Responder, TargetKind, detect, exchange_on_timer, run_one,
};
use barograph_probe::target::Scheme;
use barograph_probe::{Plan, ProbeError, QuantityResult};

use crate::config::Config;
use crate::forecast::series::{Measurement, SeriesTable};
use crate::health::Health;
use crate::measure::sensor::Sensors;
use crate::measure::timetable::Timetable;
use crate::mesh::{BulkSlot, BulkSlotGuard, BulkUse, EXCHANGE_PERIOD, MeshState, excess_delay};
use crate::quantity::loaded_form;
use crate::record::recorder::Inbox;
use crate::sync::lock;
use crate::target::{ExperimentKind, Provenance, Target};
use crate::time::now_unix_ns;

#[derive(Debug)]
pub(crate) struct Prober {
    commands: Sender<Command>,
    cancel: CancellationToken,
    thread: JoinHandle<()>,
}

/// Parts of the station that the prober uses.
#[derive(Clone)]
pub(crate) struct ProberDependencies {
    pub(crate) host: Name,
    pub(crate) inbox: Inbox,
    pub(crate) series_table: Arc<Mutex<SeriesTable>>,
    pub(crate) health: Arc<Health>,
    pub(crate) responder: Arc<Responder>,
    pub(crate) workers_max: usize,
    /// Signs requests to peers of the mesh, and records whether the peers answer.
    pub(crate) mesh_state: Arc<MeshState>,
    /// Permits one bulk transfer on this host at a time, by the prober or by the mesh.
    pub(crate) bulk_slot: Arc<BulkSlot>,
}

enum Command {
    Plan { config: Arc<Config>, targets: Vec<Target> },
    Finished(JobReport),
    Stop,
}

/// Report of a worker that has finished.
struct JobReport {
    job: Job,
    /// Kind of target that was detected.
    detected: Option<TargetKind>,
    /// Whether the response did not fit the detected kind of target.
    kind_mismatch: bool,
}

/// What the timetable schedules: a sensor reading, an experiment, or a new detection of a target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Job {
    Cpu,
    Memory,
    Detect(Name),
    /// Detects the kind of a server again: a station may run there by now.
    DetectAgain(Name),
    Probe(Name, ExperimentKind),
}

impl Prober {
    /// Starts the thread. The thread measures nothing before the first [`Prober::plan`].
    pub(crate) fn start(parts: ProberDependencies) -> std::io::Result<Self> {
        let (commands, receiver) = channel();
        let cancel = CancellationToken::default();
        let state = State {
            parts,
            cancel: cancel.clone(),
            reports: commands.clone(),
            config: Arc::new(Config::default()),
            targets: BTreeMap::new(),
            detected: BTreeMap::new(),
            timetable: Timetable::new(),
            sensors: Sensors::default(),
            busy: BTreeSet::new(),
            waiting: Vec::new(),
            began: Instant::now(),
        };
        let task = state.parts.health.task("prober");
        let thread = std::thread::Builder::new().name("prober".into()).spawn(move || {
            task.run(|| state.run(&receiver, &task));
        })?;
        Ok(Self { commands, cancel, thread })
    }

    /// Replaces all targets by `targets`.
    pub(crate) fn plan(&self, config: Arc<Config>, targets: Vec<Target>) {
        // Sending fails only after `stop`, when no thread needs the plan.
        let _ = self.commands.send(Command::Plan { config, targets });
    }

    /// Stops all experiments. Unfinished experiments are not recorded.
    pub(crate) fn stop(self) {
        self.cancel.cancel();
        let _ = self.commands.send(Command::Stop);
        let _ = self.thread.join();
    }
}

struct State {
    parts: ProberDependencies,
    cancel: CancellationToken,
    reports: Sender<Command>,
    config: Arc<Config>,
    targets: BTreeMap<Name, Target>,
    /// Detected kinds of the targets without configured quantities.
    detected: BTreeMap<Name, TargetKind>,
    timetable: Timetable<Job>,
    sensors: Sensors,
    /// Targets with a running experiment.
    busy: BTreeSet<Name>,
    /// Jobs that are due but cannot start, because their target is busy or a bulk test runs, each
    /// with the time it was due.
    waiting: Vec<(Job, Instant)>,
    began: Instant,
}

impl State {
    fn run(mut self, commands: &Receiver<Command>, task: &TaskStatus) {
        loop {
            task.kill_point();
            let now = self.began.elapsed();
            let next = self.timetable.next_due().map_or(IDLE, |due| due.saturating_sub(now));
            match commands.recv_timeout(Duration::min(next, IDLE)) {
                Ok(Command::Plan { config, targets }) => self.set_plan(config, targets),
                Ok(Command::Finished(report)) => self.finish(report),
                Ok(Command::Stop) => break,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            for job in self.timetable.take_due(self.began.elapsed()) {
                self.begin(job, Instant::now());
            }
        }
        self.drain(commands);
    }

    /// Waits for the workers, at most [`DRAIN`]. A worker reads the cancel flag every 0.1 s.
    fn drain(&mut self, commands: &Receiver<Command>) {
        let limit = Instant::now() + DRAIN;
        while !self.busy.is_empty() {
            match commands.recv_timeout(limit.saturating_duration_since(Instant::now())) {
                Ok(Command::Finished(report)) => {
                    self.busy.remove(target_of(&report.job).unwrap_or(&self.parts.host));
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }

    fn set_plan(&mut self, config: Arc<Config>, targets: Vec<Target>) {
        self.config = config;
        self.targets = targets.into_iter().map(|target| (target.name.clone(), target)).collect();
        self.detected.retain(|name, _| self.targets.contains_key(name));
        let now = self.began.elapsed();
        let mut jobs = vec![(Job::Cpu, self.config.sensor_period), (Job::Memory, self.config.sensor_period)];
        for target in self.targets.values() {
            jobs.extend(jobs_of(target, self.detected.get(&target.name).copied(), &self.config));
        }
        let wanted: BTreeSet<&Job> = jobs.iter().map(|(job, _)| job).collect();
        self.timetable.retain(|job| wanted.contains(job));
        self.waiting.retain(|(job, _)| wanted.contains(job));
        for (job, period) in jobs {
            let name = format!("{} {job:?}", self.parts.host);
            let spread = match &job {
                // Spread the first experiments over a whole period: many peers at once would cause
                // a burst at this station and at each new station.
                Job::Probe(name, kind) => {
                    let is_slowed = self.config.probe_period < period;
                    kind.is_bulk() || (is_slowed && self.is_peer(name))
                }
                Job::DetectAgain(_) => true,
                _ => false,
            };
            if spread {
                self.timetable.set_spread(job, &name, period, now);
            } else {
                self.timetable.set(job, &name, period, now);
            }
        }
    }

    fn is_peer(&self, name: &Name) -> bool {
        self.targets.get(name).is_some_and(|target| target.provenance == Provenance::Mesh)
    }

    fn finish(&mut self, report: JobReport) {
        if let Some(name) = target_of(&report.job) {
            self.busy.remove(name);
            let undecided = self.targets.get(name).is_some_and(|target| target.quantities.is_empty());
            let changed = match report.detected {
                Some(kind) => self.detected.insert(name.clone(), kind) != Some(kind),
                None => report.kind_mismatch && self.detected.remove(name).is_some(),
            };
            if undecided && changed {
                let targets = self.targets.values().cloned().collect();
                self.set_plan(Arc::clone(&self.config), targets);
            }
        }
        for (job, due) in std::mem::take(&mut self.waiting) {
            self.begin(job, due);
        }
    }

    fn begin(&mut self, job: Job, due: Instant) {
        match &job {
            Job::Cpu => {
                if let Some(outcome) = self.sensors.cpu_available() {
                    self.record_own(Quantity::CPU_AVAILABLE, outcome);
                } else {
                    // The first reading only starts the interval; schedule the next reading soon.
                    self.timetable.postpone(&job, self.began.elapsed() + FIRST_CPU_INTERVAL);
                }
            }
            Job::Memory => self.record_own(Quantity::MEMORY_FREE, self.sensors.memory_free()),
            Job::Detect(name) | Job::DetectAgain(name) | Job::Probe(name, _) => {
                let Some(target) = self.targets.get(name).cloned() else { return };
                let is_bulk = matches!(&job, Job::Probe(_, kind) if kind.is_bulk());
                if self.busy.contains(name) {
                    self.wait(job, due);
                } else if self.busy.len() >= self.parts.workers_max {
                    self.parts.health.skipped();
                    self.missed(&job);
                } else if !is_bulk {
                    self.spawn(job, due, target, None);
                } else if let Some(bulk_permit) = self.parts.bulk_slot.take(BulkUse::Prober) {
                    self.spawn(job, due, target, Some(bulk_permit));
                } else {
                    self.wait(job, due);
                }
            }
        }
    }

    fn wait(&mut self, job: Job, due: Instant) {
        if self.waiting.iter().any(|(other, _)| *other == job) {
            self.missed(&job);
        } else {
            self.waiting.push((job, due));
        }
    }

    /// Records a latency test of a peer that was due but does not run, as exchanges without
    /// response.
    fn missed(&self, job: &Job) {
        if let Job::Probe(name, ExperimentKind::Rtt) = job
            && self.is_peer(name)
        {
            let is_loaded = self.parts.responder.bulk_running();
            self.parts.mesh_state.latencies.add(
                name,
                is_loaded,
                &[],
                Plan::RTT_EXCHANGES.into(),
                Instant::now(),
            );
        }
    }

    /// Starts a worker. `bulk_permit` is the permit for a bulk transfer, released when the worker
    /// ends.
    fn spawn(&mut self, job: Job, due: Instant, target: Target, bulk_permit: Option<BulkSlotGuard>) {
        let name = target.name.clone();
        let worker = Worker {
            parts: self.parts.clone(),
            context: self.context(&target),
            bytes: self.config.goodput_bytes,
            waited: due.elapsed(),
            target,
        };
        let reports = self.reports.clone();
        let work = {
            let job = job.clone();
            move || {
                let done =
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| worker.work(job.clone())));
                drop(bulk_permit);
                // A panic in an experiment is a bug, but must not leave the target busy for ever.
                let done = done.unwrap_or(JobReport { job, detected: None, kind_mismatch: false });
                let _ = reports.send(Command::Finished(done));
            }
        };
        match std::thread::Builder::new().name("probe".into()).stack_size(STACK_BYTES).spawn(work) {
            Ok(_) => {
                self.busy.insert(name);
            }
            Err(error) => {
                tracing::warn!(
                    "cannot start a thread for an experiment with {name}: {error}; the experiment is skipped"
                );
                self.parts.health.skipped();
                self.missed(&job);
            }
        }
    }

    fn context(&self, target: &Target) -> ProbeContext {
        ProbeContext {
            deadline: self.config.probe_timeout,
            // Send only a token that belongs to this target: a target that another caller added
            // must not receive the station's tokens.
            token: target.token.as_ref().map(|token| token.reveal().to_string()),
            // Peers authenticate this station by its signature.
            sign: (target.provenance == Provenance::Mesh)
                .then(|| self.parts.mesh_state.identity.signer(target.name.clone())),
            cancel: self.cancel.clone(),
            ..ProbeContext::default()
        }
    }

    fn record_own(&self, quantity: Quantity, outcome: Outcome) {
        let host = self.parts.host.clone();
        let series = SeriesId { source: host.clone(), target: host, quantity };
        self.parts.inbox.offer(Measurement {
            series,
            time_unix_ns: now_unix_ns(),
            outcome,
            detail: String::new(),
        });
    }
}

/// Findings of an experiment about its target.
struct ProbeFindings {
    /// Whether the response shows that the target is of a different kind than detected.
    kind_mismatch: bool,
    /// Whether at least one value was measured.
    answered: bool,
    /// Whether the port refused the connection.
    refused: bool,
}

/// One experiment on its own thread.
struct Worker {
    parts: ProberDependencies,
    context: ProbeContext,
    bytes: u64,
    /// Time from the due time of the job to its start.
    waited: Duration,
    target: Target,
}

impl Worker {
    fn work(&self, job: Job) -> JobReport {
        match job {
            Job::Probe(_, kind) => {
                let ProbeFindings { kind_mismatch, .. } = self.measure(kind);
                JobReport { job, detected: None, kind_mismatch }
            }
            _ => {
                let detected = self.detect();
                JobReport { job, detected, kind_mismatch: false }
            }
        }
    }

    /// Detects the kind of the target. If a station declines, records a failed `rtt`. If detection
    /// fails for another reason, measures `connect`.
    fn detect(&self) -> Option<TargetKind> {
        match detect(&self.target.address, &self.context) {
            Ok(kind) => Some(kind),
            Err(error) if error.stopped => None,
            Err(error) if error.failure == Failure::Declined => {
                let outcome = Outcome::Failed { failure: error.failure, after_s: error.after_s };
                self.record(Quantity::RTT, outcome, error_detail(&error));
                None
            }
            Err(_) => self.connect(),
        }
    }

    /// Measures `connect` of a target of undetected kind, and infers the kind from the result.
    ///
    /// A server that never answers a GET is still a server. A host that refuses the connection is
    /// up, but its kind is known only when a program listens on the port. Until then the station
    /// detects the kind again in each period, and records the quantities that need the program as
    /// failed.
    fn connect(&self) -> Option<TargetKind> {
        let ProbeFindings { answered, refused, .. } = self.measure(ExperimentKind::Connect);
        if !refused {
            return answered.then_some(TargetKind::Server);
        }
        let last_kind = if self.was_station() { TargetKind::Station } else { TargetKind::Server };
        for kind in ExperimentKind::usual(last_kind, self.target.address.scheme())
            .iter()
            .filter(|kind| **kind != ExperimentKind::Connect)
        {
            self.measure(*kind);
        }
        None
    }

    /// Whether the target was measured as a station before.
    fn was_station(&self) -> bool {
        let (source, target) = (self.parts.host.clone(), self.target.name.clone());
        let series = SeriesId { source, target, quantity: Quantity::RTT };
        lock(&self.parts.series_table).get(&series).is_some()
    }

    fn measure(&self, kind: ExperimentKind) -> ProbeFindings {
        let bulk_before = self.bulk_begun();
        let loaded_before = self.parts.responder.bulk_running();
        // Lock the series table here, on the experiment's own thread: the timetable must never
        // wait.
        let rtt_forecast_s = if kind.is_bulk() { self.rtt_forecast_s() } else { None };
        let context = ProbeContext { rtt_forecast_s, ..self.context.clone() };
        let is_latency = self.target.provenance == Provenance::Mesh && kind == ExperimentKind::Rtt;
        let (readings, latencies) = if is_latency {
            let latencies = self.latencies(&context);
            let result = latencies.result.clone();
            (vec![QuantityResult { quantity: Quantity::RTT, result }], Some(latencies))
        } else {
            (run_one(&self.target.address, kind.experiment(self.bytes), &context), None)
        };
        let loaded = loaded_before
            || self.parts.responder.bulk_running()
            || bulk_before != self.bulk_begun()
            || latencies.as_ref().is_some_and(|latencies| latencies.loaded_there);
        if let Some(latencies) = latencies {
            let (peer, answered_s) = (&self.target.name, &latencies.answered_s);
            self.parts.mesh_state.latencies.add(
                peer,
                loaded,
                answered_s,
                latencies.missed.into(),
                Instant::now(),
            );
        }
        let (mut kind_mismatch, mut answered, mut refused, mut stopped) = (false, false, false, false);
        for reading in readings {
            let QuantityResult { quantity, result } = &reading;
            let detail = match result {
                Err(error) if error.stopped => {
                    stopped = true;
                    continue;
                }
                Err(error) => {
                    kind_mismatch |= error.failure == Failure::InvalidResponse;
                    error_detail(error)
                }
                Ok(measured) => {
                    answered = true;
                    refused |= measured.refused;
                    crate::detail::of(measured)
                }
            };
            if self.target.wants(quantity) {
                let quantity =
                    if loaded && !kind.is_bulk() { loaded_form(quantity) } else { quantity.clone() };
                self.record(quantity, reading.outcome(), detail);
            }
        }
        if self.target.provenance == Provenance::Mesh && !stopped {
            self.parts.mesh_state.measured(&self.target.name, answered);
        }
        ProbeFindings { kind_mismatch, answered, refused }
    }

    /// Measures the latency of a peer, each exchange from the time at which it was due.
    fn latencies(&self, context: &ProbeContext) -> PacedResult {
        let n = Plan::RTT_EXCHANGES;
        // Half of the deadline is left for opening the session and for the last responses.
        let every = EXCHANGE_PERIOD.min(context.deadline / (2 * n));
        let paced = exchange_on_timer(&self.target.address, n, every, context);
        // If this host stopped the test, the peer is not the cause of missing responses.
        let missed = if stopped(&paced.result) { 0 } else { paced.missed };
        let late = excess_delay(self.waited, paced.opened_after, &paced.answered_s);
        let answered_s = since_due(&paced.answered_s, every, late);
        PacedResult { missed, answered_s, ..paced }
    }

    /// Forecast of the idle round-trip time (s), which corrects a transfer's time (JavaNws §2.1.1).
    fn rtt_forecast_s(&self) -> Option<f64> {
        let (source, target) = (self.parts.host.clone(), self.target.name.clone());
        let series = SeriesId { source, target, quantity: Quantity::RTT };
        let next = lock(&self.parts.series_table)
            .get(&series)
            .and_then(crate::forecast::series::SeriesState::forecasts);
        next.map(|next| next.median.value)
    }

    /// Numbers of bulk transfers that have begun so far: on this host, and by the responder. If a
    /// number has changed between two calls, a transfer began between these calls.
    fn bulk_begun(&self) -> (u64, u64) {
        (self.parts.bulk_slot.begun(), self.parts.responder.bulk_begun())
    }

    fn record(&self, quantity: Quantity, outcome: Outcome, detail: String) {
        let series = SeriesId { source: self.parts.host.clone(), target: self.target.name.clone(), quantity };
        self.parts.inbox.offer(Measurement { series, time_unix_ns: now_unix_ns(), outcome, detail });
    }
}

/// Whether the station stopped the experiment.
fn stopped<T>(result: &Result<T, ProbeError>) -> bool {
    result.as_ref().is_err_and(|error| error.stopped)
}

/// The jobs that measure a target, with their periods.
fn jobs_of(target: &Target, detected: Option<TargetKind>, config: &Config) -> Vec<(Job, Duration)> {
    let probe_period = target.period_or(config.probe_period);
    let scheme = target.address.scheme();
    let kinds = match (target.quantities.is_empty(), detected) {
        (false, _) => target.kinds(),
        // A URL with a path is a page of a server, not a station: nothing to detect.
        (true, None) if scheme != Scheme::Address && target.address.path() != "/" => {
            ExperimentKind::usual(TargetKind::Server, scheme).to_vec()
        }
        (true, None) => return vec![(Job::Detect(target.name.clone()), probe_period)],
        (true, Some(kind)) => ExperimentKind::usual(kind, scheme).to_vec(),
    };
    let period = |kind: ExperimentKind| if kind.is_bulk() { config.goodput_period } else { probe_period };
    let mut jobs: Vec<(Job, Duration)> =
        kinds.into_iter().map(|kind| (Job::Probe(target.name.clone(), kind), period(kind))).collect();
    if target.quantities.is_empty() && detected == Some(TargetKind::Server) {
        jobs.push((Job::DetectAgain(target.name.clone()), DETECT_AGAIN));
    }
    jobs
}

fn target_of(job: &Job) -> Option<&Name> {
    match job {
        Job::Detect(name) | Job::DetectAgain(name) | Job::Probe(name, _) => Some(name),
        Job::Cpu | Job::Memory => None,
    }
}

fn error_detail(error: &ProbeError) -> String {
    crate::detail::message(&error.message)
}

/// Longest time that the loop waits for a command.
const IDLE: Duration = Duration::from_secs(60);
/// Period for detecting again what a server is: a station may have been started there.
const DETECT_AGAIN: Duration = Duration::from_hours(1);
/// Longest wait for running experiments when the prober stops.
const DRAIN: Duration = Duration::from_secs(1);
/// Length of the first interval of `cpu_available`: the page shows a value after 1 s instead of
/// after a period of 10 s.
const FIRST_CPU_INTERVAL: Duration = Duration::from_secs(1);
/// Stack size of a worker thread: enough for a TLS handshake. Pages of the stack that are not
/// touched take no memory.
const STACK_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn target(address: &str, quantities: &[&str]) -> Target {
        let words: Vec<String> = quantities.iter().map(ToString::to_string).collect();
        Target::parse(address, &words, None, Provenance::Config).unwrap()
    }

    fn kinds(target: &Target, detected: Option<TargetKind>) -> Vec<Option<ExperimentKind>> {
        let jobs = jobs_of(target, detected, &Config::default());
        let kind = |job| match job {
            Job::Probe(_, kind) => Some(kind),
            _ => None,
        };
        jobs.into_iter().map(|(job, _)| kind(job)).collect()
    }

    #[test]
    fn the_target_kind_is_detected_unless_quantities_are_configured() {
        assert_eq!(kinds(&target("a:1", &[]), None), [None]);
        assert_eq!(
            kinds(&target("a:1", &[]), Some(TargetKind::Server)),
            [Some(ExperimentKind::Connect), None]
        );
        assert_eq!(
            kinds(&target("a:1", &[]), Some(TargetKind::Station)),
            [Some(ExperimentKind::Rtt), Some(ExperimentKind::Loss)]
        );
        assert_eq!(
            kinds(&target("http://a/b", &[]), None),
            [Some(ExperimentKind::Connect), Some(ExperimentKind::ResponseTime)]
        );
        assert_eq!(kinds(&target("http://a/", &[]), None), [None]);
        assert_eq!(kinds(&target("a:1", &["connect"]), None), [Some(ExperimentKind::Connect)]);
    }

    #[test]
    fn bulk_tests_have_their_own_period() {
        let target = target("a:1", &["rtt", "goodput"]);
        let config = Config::default();
        let periods: Vec<Duration> = jobs_of(&target, None, &config).into_iter().map(|(_, p)| p).collect();
        assert_eq!(periods, [config.probe_period, config.goodput_period]);
    }

    #[test]
    fn a_mesh_target_is_never_probed_faster_than_the_configured_period() {
        let config = Config::default();
        for (given_s, period_s) in [(1, 10), (100, 100)] {
            let period = Some(Duration::from_secs(given_s));
            let words = ["rtt", "loss"].map(String::from);
            for (from, expected) in [(Provenance::Mesh, period_s), (Provenance::Config, given_s)] {
                let target = Target::parse("a:1", &words, period, from).unwrap();
                let periods = jobs_of(&target, None, &config).into_iter().map(|(_, period)| period);
                assert_eq!(periods.collect::<Vec<_>>(), [Duration::from_secs(expected); 2]);
            }
        }
    }
}
