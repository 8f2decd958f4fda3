//! A node of the tree: sends maxima up, and the result down, over links of its own.

use anyhow::{Context, bail, ensure};
use barograph_sim::{Scenario, Weather};
use barograph_timeout::Timeout;
use barograph_timeout::link::{
    Link, LinkConfig, ListenConfig, ListenCounters, Listener, Message, SendError, SenderId,
};
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::path::{Copies, Dial, Door, Patient, Sending, Shared, ends, lock};

/// One send, for the statistics.
pub(super) struct Sent {
    pub(super) bytes: u64,
    pub(super) attempts: u32,
    pub(super) took: Duration,
    pub(super) gave_up: bool,
    /// Whether an earlier copy had arrived.
    pub(super) duplicate: bool,
}

/// A node and its ends of the paths to its parent and children.
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

/// All nodes, and the listeners at the ends of their paths.
pub(super) fn tree(
    scenario: &Scenario,
    weather: &Shared<Weather<'static>>,
    timeouts: Vec<Box<dyn Timeout + Send>>,
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
        let (dial, door) = ends(index, weather, &sending, copies);
        let outgoing = Outgoing::new(index, scenario.tries, dial, timeout, sending, weather.clone());
        let incoming = servers.serve(door);
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
    /// Its part in a reduction; the node comes back with what it sent.
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

/// The sending end of a path.
struct Outgoing {
    index: usize,
    link: Link<Dial, Patient>,
    sending: Shared<Sending>,
    weather: Shared<Weather<'static>>,
}

impl Outgoing {
    fn new(
        index: usize,
        tries: u32,
        dial: Dial,
        inner: Box<dyn Timeout + Send>,
        sending: Shared<Sending>,
        weather: Shared<Weather<'static>>,
    ) -> Self {
        let config = LinkConfig {
            tries,
            // To connect anew takes what the scenario says, and no more.
            backoff_min: Duration::ZERO,
            backoff_max: Duration::ZERO,
            sender: Some(SenderId((index as u128).to_be_bytes())),
            ..LinkConfig::default()
        };
        let link = Link::new(dial, config, Patient { inner, waits: false });
        Self { index, link, sending, weather }
    }

    /// Sends until it is acknowledged; once the tries are used up, without a timeout.
    async fn send(&mut self, reduction: usize, maxima: &[i32]) -> anyhow::Result<Sent> {
        let began = Instant::now();
        let bytes = lock(&self.weather).bytes(self.index, reduction);
        *lock(&self.sending) = Sending::of(reduction, bytes);
        let message = encode(reduction, maxima, bytes);
        let mut gave_up = false;
        let duplicate = loop {
            match self.link.send(&message).await {
                Ok(receipt) => break receipt.duplicate,
                Err(SendError::Unacknowledged { .. }) => gave_up = true,
                Err(error) => return Err(error).context("a link does not send"),
            }
            self.link.estimator_mut().waits = true;
        };
        self.link.estimator_mut().waits = false;
        let attempts = lock(&self.sending).attempts;
        Ok(Sent { bytes, attempts, took: began.elapsed(), gave_up, duplicate })
    }
}

/// The listeners, each of which serves one path.
pub(super) struct Servers {
    tasks: JoinSet<ListenCounters>,
    stop: watch::Sender<bool>,
    /// Messages that were handled again.
    again: Arc<AtomicU64>,
}

impl Servers {
    fn new() -> Self {
        Self { tasks: JoinSet::new(), stop: watch::Sender::new(false), again: Arc::default() }
    }

    /// Hands on what arrives at `door`.
    fn serve(&mut self, door: Door) -> Incoming {
        // A node may pause for longer than TCP trusts a silent connection; here there is nothing to doubt.
        let config = ListenConfig {
            idle_max: Duration::MAX,
            stall_max: Duration::MAX,
            grace: Duration::ZERO,
            ..ListenConfig::default()
        };
        let listener = Listener::new(door, config);
        let (hand_on, incoming) = mpsc::unbounded_channel();
        let (last, again) = (Mutex::new(0), self.again.clone());
        let handler = move |message: Message| {
            let before = std::mem::replace(&mut *lock(&last), message.id);
            again.fetch_add(u64::from(message.id <= before), Relaxed);
            // Who has heard enough has gone.
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

    /// Stops them all, and checks that each message was handled exactly once.
    pub(super) async fn stop(mut self, messages: u64, all_acknowledged: bool) -> anyhow::Result<()> {
        let _ = self.stop.send(true);
        let again = self.again.load(Relaxed);
        ensure!(again == 0, "{again} messages were handled twice");
        while let Some(ended) = self.tasks.join_next().await {
            let counters = ended?;
            // What was given up may have been handled as well.
            let is_right = counters.handled == messages || !all_acknowledged && messages < counters.handled;
            ensure!(is_right, "{counters:?} of {messages} messages");
            ensure!(counters.protocol_errors + counters.rejected + counters.declined == 0, "{counters:?}");
        }
        Ok(())
    }
}

/// The least and the greatest size of a message.
pub(super) fn sizes(scenario: &Scenario) -> (u64, u64) {
    let all = &scenario.message_bytes;
    match scenario.message_bytes_range {
        // Rounded to whole bytes when drawn.
        Some(range) => (range.min.floor() as u64, range.max.ceil() as u64),
        None => (all.iter().copied().min().unwrap_or(0), all.iter().copied().max().unwrap_or(0)),
    }
}

/// The maxima of this reduction; those of an earlier one are a copy of a message that was given up.
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

/// The reduction's number and the maxima, filled up to `bytes`.
fn encode(reduction: usize, maxima: &[i32], bytes: u64) -> Vec<u8> {
    let mut message = (reduction as u64).to_be_bytes().to_vec();
    maxima.iter().for_each(|maximum| message.extend(maximum.to_be_bytes()));
    message.resize(bytes as usize, 0);
    message
}

/// A node's own integers: one of all nodes has the peak, and the others less.
fn own(node: usize, nodes: usize, reduction: usize, i: usize) -> i32 {
    peak(reduction, i) - ((node + reduction + i) % nodes) as i32
}

/// What the maximum must be: different in every reduction, far from what an integer cannot hold.
fn peak(reduction: usize, i: usize) -> i32 {
    (reduction * 31 + i * 17) as i32 % 1_000_000
}

/// A message has the reduction's number and one integer at least.
pub(super) const BYTES_MIN: u64 = HEADER_BYTES + 4;

const HEADER_BYTES: u64 = 8;

/// The paper's: 16 k integers a node. In 64 kB, two fewer and the header.
const INTEGERS_MAX: usize = 16 * 1024;
