//! Measuring: one thread with a timetable, and a bounded number of short-lived threads that experiment.
//!
//! Nothing here waits for HTTP or storage (invariant 12), and no target waits for another: every
//! experiment blocks a thread of its own until its deadline. Of one target at most one experiment runs
//! at a time, and at most one bulk test on this host.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use barograph_engine::TaskStatus;
use barograph_forecast::{Failure, Name, Outcome, Quantity, Series};
use barograph_probe::io::{Cancel, Context, Paced, Peer, Responder, detect, paced, run_one};
use barograph_probe::pace::since_due;
use barograph_probe::target::Scheme;
use barograph_probe::{Plan, ProbeError, Reading};

use crate::config::Config;
use crate::forecast::bank::{Bank, Measured};
use crate::health::Health;
use crate::measure::sensor::Sensors;
use crate::measure::timetable::Timetable;
use crate::mesh::{Board, EVERY, Held, Place, Use, delay};
use crate::quantity::loaded_form;
use crate::record::recorder::Inbox;
use crate::sync::lock;
use crate::target::{Kind, Provenance, Target};
use crate::time::now_unix_ns;

#[derive(Debug)]
pub(crate) struct Prober {
    commands: Sender<Command>,
    cancel: Cancel,
    thread: JoinHandle<()>,
}

/// What the prober works with.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) host: Name,
    pub(crate) inbox: Inbox,
    pub(crate) bank: Arc<Mutex<Bank>>,
    pub(crate) health: Arc<Health>,
    pub(crate) responder: Arc<Responder>,
    pub(crate) workers_max: usize,
    /// Signs for peers of the mesh, and is told whether they answer.
    pub(crate) board: Arc<Board>,
    /// For one bulk transfer at a time, its own or a test of the mesh.
    pub(crate) place: Arc<Place>,
}

enum Command {
    Plan { config: Arc<Config>, targets: Vec<Target> },
    Finished(Finished),
    Stop,
}

/// What a worker tells when it is done.
struct Finished {
    job: Job,
    /// What a target turned out to be.
    peer: Option<Peer>,
    /// The target did not answer as it did when it was found out what it is.
    mistaken: bool,
}

/// What the timetable is made of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Job {
    Cpu,
    Memory,
    Detect(Name),
    /// What was no station may have become one.
    DetectAgain(Name),
    Probe(Name, Kind),
}

impl Prober {
    /// Starts measuring as soon as it is given a plan.
    pub(crate) fn start(parts: Parts) -> std::io::Result<Self> {
        let (commands, receiver) = channel();
        let cancel = Cancel::default();
        let state = State {
            parts,
            cancel: cancel.clone(),
            finished: commands.clone(),
            config: Arc::new(Config::default()),
            targets: BTreeMap::new(),
            peers: BTreeMap::new(),
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

    /// Measures `targets` from now on, and nothing else.
    pub(crate) fn plan(&self, config: Arc<Config>, targets: Vec<Target>) {
        // The thread ends only by `stop`.
        let _ = self.commands.send(Command::Plan { config, targets });
    }

    /// Stops all experiments; what they had not finished is not recorded.
    pub(crate) fn stop(self) {
        self.cancel.cancel();
        let _ = self.commands.send(Command::Stop);
        let _ = self.thread.join();
    }
}

struct State {
    parts: Parts,
    cancel: Cancel,
    finished: Sender<Command>,
    config: Arc<Config>,
    targets: BTreeMap<Name, Target>,
    /// What targets without quantities turned out to be.
    peers: BTreeMap<Name, Peer>,
    timetable: Timetable<Job>,
    sensors: Sensors,
    /// Targets of which an experiment runs.
    busy: BTreeSet<Name>,
    /// Due, but its target is busy or a bulk test runs; and since when.
    waiting: Vec<(Job, Instant)>,
    began: Instant,
}

impl State {
    fn run(mut self, commands: &Receiver<Command>, task: &TaskStatus) {
        loop {
            task.turn();
            let now = self.began.elapsed();
            let next = self.timetable.next_due().map_or(IDLE, |due| due.saturating_sub(now));
            match commands.recv_timeout(Duration::min(next, IDLE)) {
                Ok(Command::Plan { config, targets }) => self.set_plan(config, targets),
                Ok(Command::Finished(finished)) => self.finish(finished),
                Ok(Command::Stop) => break,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            for job in self.timetable.take_due(self.began.elapsed()) {
                self.begin(job, Instant::now());
            }
        }
        self.drain(commands);
    }

    /// Waits for the workers, which notice the switch within a tenth of a second, but not for ever.
    fn drain(&mut self, commands: &Receiver<Command>) {
        let limit = Instant::now() + DRAIN;
        while !self.busy.is_empty() {
            match commands.recv_timeout(limit.saturating_duration_since(Instant::now())) {
                Ok(Command::Finished(finished)) => {
                    self.busy.remove(target_of(&finished.job).unwrap_or(&self.parts.host));
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }

    fn set_plan(&mut self, config: Arc<Config>, targets: Vec<Target>) {
        self.config = config;
        self.targets = targets.into_iter().map(|target| (target.name.clone(), target)).collect();
        self.peers.retain(|name, _| self.targets.contains_key(name));
        let now = self.began.elapsed();
        let mut jobs = vec![(Job::Cpu, self.config.sensor_period), (Job::Memory, self.config.sensor_period)];
        for target in self.targets.values() {
            jobs.extend(jobs_of(target, self.peers.get(&target.name).copied(), &self.config));
        }
        let wanted: BTreeSet<&Job> = jobs.iter().map(|(job, _)| job).collect();
        self.timetable.retain(|job| wanted.contains(job));
        self.waiting.retain(|(job, _)| wanted.contains(job));
        for (job, period) in jobs {
            let name = format!("{} {job:?}", self.parts.host);
            let patient = match &job {
                // Many peers at once would be a storm, here and at each newcomer.
                Job::Probe(name, kind) => {
                    let is_slowed = self.config.probe_period < period;
                    kind.is_bulk() || (is_slowed && self.is_peer(name))
                }
                Job::DetectAgain(_) => true,
                _ => false,
            };
            if patient {
                self.timetable.set_patient(job, &name, period, now);
            } else {
                self.timetable.set(job, &name, period, now);
            }
        }
    }

    fn is_peer(&self, name: &Name) -> bool {
        self.targets.get(name).is_some_and(|target| target.from == Provenance::Mesh)
    }

    fn finish(&mut self, finished: Finished) {
        if let Some(name) = target_of(&finished.job) {
            self.busy.remove(name);
            let undecided = self.targets.get(name).is_some_and(|target| target.quantities.is_empty());
            let changed = match finished.peer {
                Some(peer) => self.peers.insert(name.clone(), peer) != Some(peer),
                None => finished.mistaken && self.peers.remove(name).is_some(),
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
                    // The first reading begins the interval; the first value follows soon.
                    self.timetable.postpone(&job, self.began.elapsed() + FIRST_CPU_INTERVAL);
                }
            }
            Job::Memory => self.record_own(Quantity::MEMORY_FREE, self.sensors.memory_free()),
            Job::Detect(name) | Job::DetectAgain(name) | Job::Probe(name, _) => {
                let Some(target) = self.targets.get(name).cloned() else { return };
                let is_bulk = matches!(&job, Job::Probe(_, kind) if kind.is_bulk());
                if self.busy.contains(name) {
                    self.wait(job, due);
                } else if self.parts.workers_max <= self.busy.len() {
                    self.parts.health.skipped();
                    self.missed(&job);
                } else if !is_bulk {
                    self.spawn(job, due, target, None);
                } else if let Some(held) = self.parts.place.take(Use::Own) {
                    self.spawn(job, due, target, Some(held));
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

    /// A latency test with a peer was due and is not made: its exchanges have no answer.
    fn missed(&self, job: &Job) {
        if let Job::Probe(name, Kind::Rtt) = job
            && self.is_peer(name)
        {
            let is_loaded = self.parts.responder.bulk_running();
            self.parts.board.latencies.add(name, is_loaded, &[], Plan::RTT_EXCHANGES.into(), Instant::now());
        }
    }

    /// `held` is the place for a bulk transfer.
    fn spawn(&mut self, job: Job, due: Instant, target: Target, held: Option<Held>) {
        let name = target.name.clone();
        let worker = Worker {
            parts: self.parts.clone(),
            context: self.context(&target),
            bytes: self.config.goodput_bytes,
            waited: due.elapsed(),
            target,
        };
        let finished = self.finished.clone();
        let work = {
            let job = job.clone();
            move || {
                let done =
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| worker.work(job.clone())));
                drop(held);
                // A panicking experiment is a defect, but must not make its target busy for ever.
                let done = done.unwrap_or(Finished { job, peer: None, mistaken: false });
                let _ = finished.send(Command::Finished(done));
            }
        };
        match std::thread::Builder::new().name("probe".into()).stack_size(STACK_BYTES).spawn(work) {
            Ok(_) => {
                self.busy.insert(name);
            }
            Err(error) => {
                tracing::warn!("no thread for an experiment with {name}: {error}");
                self.parts.health.skipped();
                self.missed(&job);
            }
        }
    }

    fn context(&self, target: &Target) -> Context {
        Context {
            deadline: self.config.probe_timeout,
            // Its own or none: whoever adds a target must not be shown the token of another.
            token: target.token.as_ref().map(|token| token.reveal().to_string()),
            // A peer knows this station by its key.
            sign: (target.from == Provenance::Mesh)
                .then(|| self.parts.board.identity.signer(target.name.clone())),
            cancel: self.cancel.clone(),
            ..Context::default()
        }
    }

    fn record_own(&self, quantity: Quantity, outcome: Outcome) {
        let host = self.parts.host.clone();
        let series = Series { source: host.clone(), target: host, quantity };
        self.parts.inbox.offer(Measured {
            series,
            time_unix_ns: now_unix_ns(),
            outcome,
            detail: String::new(),
        });
    }
}

/// What an experiment says of its target.
struct Measurement {
    /// The answer shows that the target is not what it was.
    mistaken: bool,
    /// Something was measured.
    answered: bool,
    /// The port refused the connection.
    refused: bool,
}

/// One experiment on its own thread.
struct Worker {
    parts: Parts,
    context: Context,
    bytes: u64,
    /// How long it was due before it began.
    waited: Duration,
    target: Target,
}

impl Worker {
    fn work(&self, job: Job) -> Finished {
        match job {
            Job::Probe(_, kind) => {
                let Measurement { mistaken, .. } = self.measure(kind);
                Finished { job, peer: None, mistaken }
            }
            _ => {
                let peer = self.detect();
                Finished { job, peer, mistaken: false }
            }
        }
    }

    /// Finds out what the target is; when it cannot be reached, that is a failed `connect`, and a
    /// station that declines is a failed `rtt`.
    fn detect(&self) -> Option<Peer> {
        match detect(&self.target.address, &self.context) {
            Ok(peer) => Some(peer),
            Err(error) if error.stopped => None,
            Err(error) if error.failure == Failure::Declined => {
                let outcome = Outcome::Failed { failure: error.failure, after_s: error.after_s };
                self.record(Quantity::RTT, outcome, error_detail(&error));
                None
            }
            Err(_) => self.connect(),
        }
    }

    /// Measures the `connect` of a target that answers no question, and finds out what the target is by it.
    ///
    /// A server that hangs at a GET is still a server. A host that refuses the connection answers, too, but what
    /// it is shows only when something listens there: until then it is asked again each period, and what needs the
    /// service is measured as failed.
    fn connect(&self) -> Option<Peer> {
        let Measurement { answered, refused, .. } = self.measure(Kind::Connect);
        if !refused {
            return answered.then_some(Peer::Plain);
        }
        let is_url = self.target.address.scheme() != Scheme::Address;
        for kind in Kind::usual(self.was_station(), is_url).iter().filter(|kind| **kind != Kind::Connect) {
            self.measure(*kind);
        }
        None
    }

    /// Whether the target was a station when it was measured before.
    fn was_station(&self) -> bool {
        let (source, target) = (self.parts.host.clone(), self.target.name.clone());
        let series = Series { source, target, quantity: Quantity::RTT };
        lock(&self.parts.bank).account(&series).is_some()
    }

    fn measure(&self, kind: Kind) -> Measurement {
        let bulk_before = self.bulk_begun();
        let loaded_before = self.parts.responder.bulk_running();
        // The bank's lock is taken here, on the experiment's own thread: the timetable waits for nobody.
        let rtt_forecast_s = if kind.is_bulk() { self.rtt_forecast_s() } else { None };
        let context = Context { rtt_forecast_s, ..self.context.clone() };
        let is_latency = self.target.from == Provenance::Mesh && kind == Kind::Rtt;
        let (readings, latencies) = if is_latency {
            let latencies = self.latencies(&context);
            let result = latencies.result.clone();
            (vec![Reading { quantity: Quantity::RTT, result }], Some(latencies))
        } else {
            (run_one(&self.target.address, kind.experiment(self.bytes), &context), None)
        };
        let loaded = loaded_before
            || self.parts.responder.bulk_running()
            || bulk_before != self.bulk_begun()
            || latencies.as_ref().is_some_and(|latencies| latencies.loaded_there);
        if let Some(latencies) = latencies {
            let (peer, answered_s) = (&self.target.name, &latencies.answered_s);
            self.parts.board.latencies.add(peer, loaded, answered_s, latencies.missed.into(), Instant::now());
        }
        let (mut mistaken, mut answered, mut refused, mut stopped) = (false, false, false, false);
        for reading in readings {
            let Reading { quantity, result } = &reading;
            let detail = match result {
                Err(error) if error.stopped => {
                    stopped = true;
                    continue;
                }
                Err(error) => {
                    mistaken |= error.failure == Failure::Garbage;
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
        if self.target.from == Provenance::Mesh && !stopped {
            self.parts.board.measured(&self.target.name, answered);
        }
        Measurement { mistaken, answered, refused }
    }

    /// A latency test of a peer, each exchange from when it would have been due.
    fn latencies(&self, context: &Context) -> Paced {
        let n = Plan::RTT_EXCHANGES;
        // Half of the deadline is left to open the session and to answer.
        let every = EVERY.min(context.deadline / (2 * n));
        let paced = paced(&self.target.address, n, every, context);
        // What stopped it is this host: no word about the peer.
        let missed = if stopped(&paced.result) { 0 } else { paced.missed };
        let late = delay(self.waited, paced.opened_after, &paced.answered_s);
        let answered_s = since_due(&paced.answered_s, every, late);
        Paced { missed, answered_s, ..paced }
    }

    /// The forecast of the idle round-trip time, which a transfer's time is corrected by (JavaNws §2.1.1).
    fn rtt_forecast_s(&self) -> Option<f64> {
        let (source, target) = (self.parts.host.clone(), self.target.name.clone());
        let series = Series { source, target, quantity: Quantity::RTT };
        let next = lock(&self.parts.bank).account(&series).and_then(crate::forecast::bank::Account::next);
        next.map(|next| next.median.value)
    }

    /// Transfers begun so far, ours and those that the responder serves: one may begin and end meanwhile.
    fn bulk_begun(&self) -> (u64, u64) {
        (self.parts.place.begun(), self.parts.responder.bulk_begun())
    }

    fn record(&self, quantity: Quantity, outcome: Outcome, detail: String) {
        let series = Series { source: self.parts.host.clone(), target: self.target.name.clone(), quantity };
        self.parts.inbox.offer(Measured { series, time_unix_ns: now_unix_ns(), outcome, detail });
    }
}

/// Whether an experiment was stopped from outside.
fn stopped<T>(result: &Result<T, ProbeError>) -> bool {
    result.as_ref().is_err_and(|error| error.stopped)
}

/// The jobs that measure a target, with their periods.
fn jobs_of(target: &Target, peer: Option<Peer>, config: &Config) -> Vec<(Job, Duration)> {
    let probe_period = target.period_or(config.probe_period);
    let is_url = target.address.scheme() != Scheme::Address;
    let kinds = match (target.quantities.is_empty(), peer) {
        (false, _) => target.kinds(),
        // A page somewhere on a server is no station, and need not be asked.
        (true, None) if is_url && target.address.path() != "/" => Kind::usual(false, true).to_vec(),
        (true, None) => return vec![(Job::Detect(target.name.clone()), probe_period)],
        (true, Some(peer)) => Kind::usual(peer == Peer::Station, is_url).to_vec(),
    };
    let period = |kind: Kind| if kind.is_bulk() { config.goodput_period } else { probe_period };
    let mut jobs: Vec<(Job, Duration)> =
        kinds.into_iter().map(|kind| (Job::Probe(target.name.clone(), kind), period(kind))).collect();
    if target.quantities.is_empty() && peer == Some(Peer::Plain) {
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

/// The loop looks around at least so often.
const IDLE: Duration = Duration::from_secs(60);
/// A target that was no station is asked again so often: somebody may have started one there.
const DETECT_AGAIN: Duration = Duration::from_hours(1);
/// How long stopping waits for experiments that were told to stop.
const DRAIN: Duration = Duration::from_secs(1);
/// The first share of the processor is measured over one second, so that a page is not empty for ten.
const FIRST_CPU_INTERVAL: Duration = Duration::from_secs(1);
/// A TLS handshake fits; the pages that are not touched cost nothing.
const STACK_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn target(address: &str, quantities: &[&str]) -> Target {
        let words: Vec<String> = quantities.iter().map(ToString::to_string).collect();
        Target::parse(address, &words, None, Provenance::Config).unwrap()
    }

    fn kinds(target: &Target, peer: Option<Peer>) -> Vec<Option<Kind>> {
        let jobs = jobs_of(target, peer, &Config::default());
        let kind = |job| match job {
            Job::Probe(_, kind) => Some(kind),
            _ => None,
        };
        jobs.into_iter().map(|(job, _)| kind(job)).collect()
    }

    #[test]
    fn a_target_is_asked_what_it_is_unless_quantities_say() {
        assert_eq!(kinds(&target("a:1", &[]), None), [None]);
        assert_eq!(kinds(&target("a:1", &[]), Some(Peer::Plain)), [Some(Kind::Connect), None]);
        assert_eq!(kinds(&target("a:1", &[]), Some(Peer::Station)), [Some(Kind::Rtt), Some(Kind::Loss)]);
        assert_eq!(kinds(&target("http://a/b", &[]), None), [Some(Kind::Connect), Some(Kind::Response)]);
        assert_eq!(kinds(&target("http://a/", &[]), None), [None]);
        assert_eq!(kinds(&target("a:1", &["connect"]), None), [Some(Kind::Connect)]);
    }

    #[test]
    fn bulk_tests_have_their_own_period() {
        let target = target("a:1", &["rtt", "goodput"]);
        let config = Config::default();
        let periods: Vec<Duration> = jobs_of(&target, None, &config).into_iter().map(|(_, p)| p).collect();
        assert_eq!(periods, [config.probe_period, config.goodput_period]);
    }

    #[test]
    fn a_mesh_slows_the_timer_down_and_never_speeds_it_up() {
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
