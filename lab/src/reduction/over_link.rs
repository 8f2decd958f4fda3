//! The reduction over the real link code: each path has its own link and listener, joined by a
//! simulated path in tokio's paused time.
//!
//! It differs from [`super::engine`] in what a scenario cannot express:
//! - Timers have a resolution of 1 ms, so each wait may be up to 1 ms longer, and events within the
//!   same millisecond may change their order. A scenario with times of milliseconds is coarse here.
//! - Each path is connected before the first reduction: its first set-up takes no time, every later
//!   one takes the scenario's. The link times set-ups with a timer of their own (RFC 6298, at least
//!   3 s): a set-up that takes longer fails and counts as a try.
//! - A link normally waits before it retries after a failure such as a reset. Here it does not, as
//!   in the engine.
//! - The links of a node learn concurrently, in the order of time; the engine computes one send
//!   after another. So what the default shares among the links of a host arrives in another order,
//!   and its timeouts differ a little.
//! - The acknowledgement takes no time: a scenario's response time is that of the message's way and
//!   its handling. So sender and receiver continue at the same time.
//! - A message that used up its tries is sent once more under another identifier, so a late copy
//!   may also reach the application; the application recognises it by the number of its reduction.

use std::convert::Infallible;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use barograph_sim::stream::{
    Acceptor, AttemptFate, AttemptInfo, ClientStream, Connector, PathConfig, ServerStream, path,
};
use barograph_sim::{LinkSimulation, Scenario, SimulatedAttempt};
use barograph_timeout::link::{
    Accept, Connect, Link, LinkConfig, ListenConfig, ListenCounters, Listener, Message, SendError, SenderId,
};
use barograph_timeout::{Attempt, AttemptOutcome, TimeoutDecision, TimeoutEstimator};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep_until};

use super::engine::{Run, next_start, owners};
use super::strategy::Strategy;

/// Runs the scenario's reductions once, over real links.
///
/// # Errors
/// The scenario is one that links cannot carry, a message was handled twice, or a maximum is wrong.
pub(crate) fn run(scenario: &Scenario, strategy: Strategy, copies: Copies) -> anyhow::Result<Run> {
    run_owned(scenario, strategy, copies, &owners(scenario.nodes))
}

fn run_owned(
    scenario: &Scenario,
    strategy: Strategy,
    copies: Copies,
    owners: &[usize],
) -> anyhow::Result<Run> {
    ensure!(!strategy.is_hedged(), "{}: a link sends no copy beside the first", strategy.name());
    let (least, most) = sizes(scenario);
    if least < BYTES_MIN || most > BYTES_MAX {
        bail!("over links a message must have {} to {BYTES_MAX} bytes, not {least} to {most}", BYTES_MIN);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.context("cannot start a runtime")?;
    LocalSet::new().block_on(&runtime, all(scenario, strategy, copies, owners))
}

async fn all(
    scenario: &Scenario,
    strategy: Strategy,
    copies: Copies,
    owners: &[usize],
) -> anyhow::Result<Run> {
    let simulation = Arc::new(Mutex::new(LinkSimulation::owned(scenario.clone(), scenario.nodes - 1)));
    let timeouts = strategy.timeouts(owners, 1.0);
    let (mut nodes, servers) = node_tree(scenario, &simulation, timeouts, copies);
    let epoch = Instant::now();
    let (mut run, mut start) = (Run::default(), 0.0);
    for reduction in 0..scenario.reductions {
        sleep_until(epoch + Duration::try_from_secs_f64(start)?).await;
        let began = Instant::now();
        let mut gave_up = false;
        nodes = reduce(nodes, reduction, |sent| {
            run.count(sent.bytes, sent.attempts, sent.took.as_secs_f64());
            run.duplicates += u64::from(sent.duplicate);
            gave_up |= sent.gave_up;
        })
        .await?;
        run.times.push(began.elapsed().as_secs_f64());
        run.gave_up.push(gave_up);
        start = next_start(scenario, reduction, epoch.elapsed().as_secs_f64());
    }
    drop(nodes);
    servers.stop(scenario.reductions as u64, run.abandoned() == 0).await?;
    Ok(run)
}

async fn reduce(
    nodes: Vec<Node>,
    reduction: usize,
    mut look_on: impl FnMut(Sent),
) -> anyhow::Result<Vec<Node>> {
    let mut tasks = JoinSet::new();
    for node in nodes {
        tasks.spawn_local(node.reduce(reduction));
    }
    let mut back = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        let (node, sent) = ended??;
        sent.into_iter().for_each(&mut look_on);
        back.push(node);
    }
    Ok(back)
}

/// Default limit of a link and of a listener.
const BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests;

pub(super) struct Sent {
    pub(super) bytes: u64,
    pub(super) attempts: u32,
    pub(super) took: Duration,
    pub(super) gave_up: bool,
    /// Whether an earlier copy had arrived.
    pub(super) duplicate: bool,
}

pub(super) struct Node {
    index: usize,
    nodes: usize,
    integers: usize,
    up: Option<Outgoing>,
    down: Vec<Outgoing>,
    from_parent: Option<Incoming>,
    from_children: Vec<Incoming>,
}

type Incoming = mpsc::UnboundedReceiver<Vec<u8>>;

/// Makes all nodes, and the listeners at the ends of their paths.
fn node_tree(
    scenario: &Scenario,
    simulation: &Shared<LinkSimulation<'static>>,
    timeouts: Vec<Box<dyn TimeoutEstimator + Send>>,
    copies: Copies,
) -> (Vec<Node>, Servers) {
    let nodes = scenario.nodes;
    let integers = INTEGERS_MAX.min(((sizes(scenario).0 - HEADER_BYTES) / 4) as usize);
    let node = |index| Node {
        index,
        nodes,
        integers,
        up: None,
        down: Vec::new(),
        from_parent: None,
        from_children: Vec::new(),
    };
    let mut all: Vec<Node> = (0..nodes).map(node).collect();
    let mut servers = Servers::new();
    for (index, timeout) in timeouts.into_iter().enumerate() {
        let (child, parent) = (index / 2 + 1, index / 2 / 2);
        let sending = Arc::default();
        let (dial, acceptor) = ends(index, simulation, &sending, copies);
        let outgoing = Outgoing::new(index, scenario.tries, dial, timeout, sending, simulation.clone());
        let incoming = servers.serve(acceptor);
        if index.is_multiple_of(2) {
            all[child].up = Some(outgoing);
            all[parent].from_children.push(incoming);
        } else {
            all[parent].down.push(outgoing);
            all[child].from_parent = Some(incoming);
        }
    }
    (all, servers)
}

impl Node {
    /// Takes the node's part in a reduction; returns the node with what it sent.
    pub(super) async fn reduce(mut self, reduction: usize) -> anyhow::Result<(Self, Vec<Sent>)> {
        let mut sent = Vec::new();
        let mut maxima: Vec<i32> =
            (0..self.integers).map(|i| own(self.index, self.nodes, reduction, i)).collect();
        for incoming in &mut self.from_children {
            for (maximum, other) in maxima.iter_mut().zip(receive(incoming, reduction).await?) {
                *maximum = (*maximum).max(other);
            }
        }
        if let (Some(up), Some(incoming)) = (&mut self.up, &mut self.from_parent) {
            sent.push(up.send(reduction, &maxima).await?);
            maxima = receive(incoming, reduction).await?;
        }
        let wrong = maxima.iter().enumerate().find(|(i, maximum)| **maximum != peak(reduction, *i));
        if let Some((i, maximum)) = wrong {
            bail!("node {}, reduction {reduction}: maximum {i} is {maximum}", self.index);
        }
        match &mut self.down[..] {
            [left, right] => {
                let both = tokio::join!(left.send(reduction, &maxima), right.send(reduction, &maxima));
                sent.extend([both.0?, both.1?]);
            }
            [only] => sent.push(only.send(reduction, &maxima).await?),
            _ => {}
        }
        Ok((self, sent))
    }
}

struct Outgoing {
    index: usize,
    link: Link<Dial, UnlimitedLastTry>,
    sending: Shared<Sending>,
    simulation: Shared<LinkSimulation<'static>>,
}

impl Outgoing {
    fn new(
        index: usize,
        tries: u32,
        dial: Dial,
        inner: Box<dyn TimeoutEstimator + Send>,
        sending: Shared<Sending>,
        simulation: Shared<LinkSimulation<'static>>,
    ) -> Self {
        let config = LinkConfig {
            max_attempts: tries,
            // A new connection takes the scenario's time and no longer.
            backoff_min: Duration::ZERO,
            backoff_max: Duration::ZERO,
            sender: Some(SenderId((index as u128).to_be_bytes())),
            ..LinkConfig::default()
        };
        let link = Link::new(dial, config, UnlimitedLastTry { inner, waits: false });
        Self { index, link, sending, simulation }
    }

    /// Sends until the message is acknowledged; after its tries are used up, without a timeout.
    async fn send(&mut self, reduction: usize, maxima: &[i32]) -> anyhow::Result<Sent> {
        let began = Instant::now();
        let bytes = lock(&self.simulation).bytes(self.index, reduction);
        *lock(&self.sending) = Sending::of(reduction, bytes);
        let message = encode(reduction, maxima, bytes);
        let mut gave_up = false;
        let duplicate = loop {
            match self.link.send(&message).await {
                Ok(receipt) => break receipt.duplicate,
                Err(SendError::Unacknowledged { .. }) => gave_up = true,
                Err(error) => return Err(error).context("a link cannot send"),
            }
            self.link.estimator_mut().waits = true;
        };
        self.link.estimator_mut().waits = false;
        let attempts = lock(&self.sending).attempts;
        Ok(Sent { bytes, attempts, took: began.elapsed(), gave_up, duplicate })
    }
}

/// The listeners; each serves one path.
pub(super) struct Servers {
    tasks: JoinSet<ListenCounters>,
    stop: watch::Sender<bool>,
    again: Arc<AtomicU64>,
}

impl Servers {
    fn new() -> Self {
        Self { tasks: JoinSet::new(), stop: watch::Sender::new(false), again: Arc::default() }
    }

    fn serve(&mut self, acceptor: SimAcceptor) -> Incoming {
        // A node may pause for longer than the default limit for a silent connection; here no
        // connection dies silently.
        let config = ListenConfig {
            idle_max: Duration::MAX,
            stall_max: Duration::MAX,
            grace: Duration::ZERO,
            ..ListenConfig::default()
        };
        let listener = Listener::new(acceptor, config);
        let (hand_on, incoming) = mpsc::unbounded_channel();
        let (last, again) = (Mutex::new(0), self.again.clone());
        let handler = move |message: Message| {
            let before = std::mem::replace(&mut *lock(&last), message.id);
            again.fetch_add(u64::from(message.id <= before), Relaxed);
            // The receiver may have ended already.
            let _ = hand_on.send(message.bytes);
            async { Ok::<(), Infallible>(()) }
        };
        let mut stopped = self.stop.subscribe();
        self.tasks.spawn(async move {
            listener.serve(handler, async { _ = stopped.wait_for(|stop| *stop).await }).await;
            listener.counters()
        });
        incoming
    }

    pub(super) async fn stop(mut self, messages: u64, all_acknowledged: bool) -> anyhow::Result<()> {
        let _ = self.stop.send(true);
        let again = self.again.load(Relaxed);
        ensure!(again == 0, "{again} messages were handled twice");
        while let Some(ended) = self.tasks.join_next().await {
            let counters = ended?;
            // A message that was given up may have been handled as well.
            let is_right = counters.handled == messages || !all_acknowledged && messages < counters.handled;
            ensure!(is_right, "{counters:?} of {messages} messages");
            ensure!(counters.protocol_errors + counters.rejected + counters.declined == 0, "{counters:?}");
        }
        Ok(())
    }
}

pub(super) fn sizes(scenario: &Scenario) -> (u64, u64) {
    let all = &scenario.message_bytes;
    match scenario.message_bytes_range {
        // Sizes are rounded to whole bytes when drawn.
        Some(range) => (range.min.floor() as u64, range.max.ceil() as u64),
        None => (all.iter().copied().min().unwrap_or(0), all.iter().copied().max().unwrap_or(0)),
    }
}

/// Receives the maxima of this reduction. Those of an earlier one are a copy of a message that was
/// given up, and are dropped.
async fn receive(incoming: &mut Incoming, reduction: usize) -> anyhow::Result<Vec<i32>> {
    loop {
        let message = incoming.recv().await.context("a listener ended")?;
        let (header, integers) = message.split_first_chunk().context("a message is too short")?;
        let of = u64::from_be_bytes(*header);
        if of == reduction as u64 {
            return Ok(integers.as_chunks().0.iter().map(|bytes| i32::from_be_bytes(*bytes)).collect());
        }
        ensure!(of < reduction as u64, "a message of reduction {of} in {reduction}");
    }
}

fn encode(reduction: usize, maxima: &[i32], bytes: u64) -> Vec<u8> {
    let mut message = (reduction as u64).to_be_bytes().to_vec();
    maxima.iter().for_each(|maximum| message.extend(maximum.to_be_bytes()));
    message.resize(bytes as usize, 0);
    message
}

/// A node's own integers: one of the nodes has the peak, the others have less.
fn own(node: usize, nodes: usize, reduction: usize, i: usize) -> i32 {
    peak(reduction, i) - ((node + reduction + i) % nodes) as i32
}

/// The correct maximum: different in every reduction, and far from the limit of an integer.
fn peak(reduction: usize, i: usize) -> i32 {
    (reduction * 31 + i * 17) as i32 % 1_000_000
}

/// A message has the reduction's number and at least one integer.
pub(super) const BYTES_MIN: u64 = HEADER_BYTES + 4;
const HEADER_BYTES: u64 = 8;

/// The paper's 16 k integers of a node; in 64 kB they are two fewer, for the header.
const INTEGERS_MAX: usize = 16 * 1024;

/// Fate of a copy after its connection was closed because it took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copies {
    /// The copy does not arrive, as in the engine.
    Vanish,
    /// The copy arrives when it would have, as data that has left the host does with TCP.
    ArriveLate,
}

/// What is being sent on a path. The simulation needs it, and the link does not report it.
#[derive(Debug, Default)]
pub(super) struct Sending {
    pub(super) reduction: usize,
    pub(super) bytes: u64,
    pub(super) attempts: u32,
    /// Start of the last attempt and its end if nothing breaks it.
    last: Option<(f64, f64)>,
}

impl Sending {
    pub(super) fn of(reduction: usize, bytes: u64) -> Self {
        Self { reduction, bytes, ..Self::default() }
    }

    /// Draws the fate of the next attempt. The attempt before it was cut off; otherwise there would
    /// be no other.
    fn attempt(
        &mut self,
        index: usize,
        simulation: &mut LinkSimulation<'_>,
        info: &AttemptInfo,
    ) -> AttemptFate {
        if let Some((began, ends)) = self.last.take() {
            simulation.cancelled(index, began, ends);
        }
        let at = info.started.as_secs_f64();
        let Self { reduction, bytes, attempts: number, .. } = *self;
        let response = simulation.respond(&SimulatedAttempt { path: index, reduction, number, at, bytes });
        self.attempts += 1;
        let takes = Duration::from_secs_f64(response.takes_s);
        if response.broken {
            return AttemptFate::reset(takes);
        }
        self.last = Some((at, at + response.takes_s));
        AttemptFate::after(takes)
    }
}

pub(super) type Shared<T> = Arc<Mutex<T>>;

/// The two ends of path `index`.
pub(super) fn ends(
    index: usize,
    simulation: &Shared<LinkSimulation<'static>>,
    sending: &Shared<Sending>,
    copies: Copies,
) -> (Dial, SimAcceptor) {
    let reconnect = Duration::from_secs_f64(lock(simulation).reconnect_s(index));
    let (simulation, sending) = (simulation.clone(), sending.clone());
    let law = move |info: &AttemptInfo| lock(&sending).attempt(index, &mut lock(&simulation), info);
    let mut next = Duration::ZERO;
    let set_up = move |_| Ok(std::mem::replace(&mut next, reconnect));
    // The hello and the welcome are part of setting up a connection.
    let config = PathConfig { handshake_exchanges: 1, delivers_late: copies == Copies::ArriveLate };
    let (connector, acceptor) = path(config, law, set_up);
    (Dial(connector), SimAcceptor(acceptor))
}

pub(super) struct Dial(Connector);

impl Connect for Dial {
    type Stream = ClientStream;

    fn connect(&self) -> impl Future<Output = io::Result<ClientStream>> + Send {
        self.0.connect()
    }
}

pub(super) struct SimAcceptor(Acceptor);

impl Accept for SimAcceptor {
    type Stream = ServerStream;

    fn accept(&self) -> impl Future<Output = io::Result<ServerStream>> + Send {
        self.0.accept()
    }
}

/// A timeout that waits without limit for a message that has used up its tries and learns nothing
/// from it, as the engine does.
pub(super) struct UnlimitedLastTry {
    pub(super) inner: Box<dyn TimeoutEstimator + Send>,
    pub(super) waits: bool,
}

impl TimeoutEstimator for UnlimitedLastTry {
    fn decide(&self, attempt: &Attempt) -> TimeoutDecision {
        let decision = self.inner.decide(attempt);
        if self.waits { TimeoutDecision { timeout: Duration::MAX, ..decision } } else { decision }
    }

    fn record(&mut self, attempt: &Attempt, ended: AttemptOutcome) {
        if !self.waits {
            self.inner.record(attempt, ended);
        }
    }

    fn record_connect(&mut self, took: Duration) {
        self.inner.record_connect(took);
    }
}

/// Locks also after a panic of another holder, which has failed the run already.
pub(super) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
