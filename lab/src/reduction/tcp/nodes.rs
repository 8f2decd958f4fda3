//! A tree of nodes as tasks, each with a listener and a link to each of its neighbours.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use barograph_timeout::link::{Link, LinkConfig, ListenConfig, Listener, Message, SenderId, Tcp};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::hosts::Hosts;
use super::round::{Round, decode, encode, raise};
use super::timeouts::Patient;

/// The nodes of one strategy.
pub(crate) struct Tree {
    nodes: Vec<Node>,
    listeners: Vec<Arc<Listener<TcpListener>>>,
    serving: Vec<JoinHandle<()>>,
}

/// What came of a reduction, its result checked at every node.
#[derive(Debug, Clone)]
pub(crate) struct Reduced {
    /// The longest, over all nodes, from sending to the parent until the result arrived.
    pub(crate) time_s: f64,
    pub(crate) sent: Vec<Sent>,
}

/// A message that was acknowledged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// From the start of its first attempt to its acknowledgement.
    pub(crate) took_s: f64,
    pub(crate) attempts: u32,
    /// Its tries were used up, and it was then waited for.
    pub(crate) abandoned: bool,
    /// The copy that was acknowledged came after one that had been cut off, so the retry was in vain.
    pub(crate) duplicate: bool,
}

/// A message as it came in.
struct Arrival {
    /// Which direction of which edge it came on: 2 · (child − 1) upwards, one more downwards.
    path: usize,
    at: Instant,
    bytes: Vec<u8>,
}

struct Node {
    index: usize,
    inbox: Receiver<Arrival>,
    /// None at the root.
    up: Option<Way>,
    /// None at the leaves.
    down: Vec<Way>,
}

/// A link to a neighbour.
struct Way {
    link: Link<Tcp, Patient>,
    tries: u32,
}

impl Tree {
    /// A binary tree with an estimator for each path, and so many tries a message.
    pub(crate) fn plant(
        hosts: &Hosts,
        nodes: usize,
        estimators: Vec<Patient>,
        tries: u32,
    ) -> anyhow::Result<Self> {
        let (mut addresses, mut inboxes, mut listeners, mut serving) = (vec![], vec![], vec![], vec![]);
        for node in 0..nodes {
            let (host, address) = hosts.of_node(node);
            let bound = host.spawn(Listener::bind((address, 0), ListenConfig::default()));
            let listener = Arc::new(host.block_on(bound)?.context("a node cannot listen")?);
            // A node has three neighbours at most; whoever sends more waits until it is read.
            let (hand_on, inbox) = channel(4);
            let handler = move |message: Message| {
                let hand_on = hand_on.clone();
                let path = u128::from_be_bytes(message.from.0) as usize;
                async move { hand_on.send(Arrival { path, at: Instant::now(), bytes: message.bytes }).await }
            };
            addresses.push(listener.local_addr()?);
            let served = Arc::clone(&listener);
            serving.push(host.spawn(async move { served.serve(handler, pending()).await }));
            listeners.push(listener);
            inboxes.push(inbox);
        }
        let mut ways = estimators.into_iter().enumerate().map(|(path, estimator)| {
            let child = path / 2 + 1;
            let to = if path.is_multiple_of(2) { (child - 1) / 2 } else { child };
            let sender = Some(SenderId((path as u128).to_be_bytes()));
            let config = LinkConfig { tries: Patient::link_tries(tries), sender, ..LinkConfig::default() };
            Way { link: Link::tcp(addresses[to].to_string(), config, estimator), tries }
        });
        let bare = |(index, inbox)| Node { index, inbox, up: None, down: Vec::new() };
        let mut planted: Vec<Node> = inboxes.into_iter().enumerate().map(bare).collect();
        for child in 1..nodes {
            planted[child].up = ways.next();
            planted[(child - 1) / 2].down.extend(ways.next());
        }
        Ok(Self { nodes: planted, listeners, serving })
    }

    /// One reduction.
    ///
    /// # Errors
    /// When a node computed or received anything but the right maxima, once, or the network does not
    /// deliver at all.
    pub(crate) fn reduce(&mut self, hosts: &Hosts, round: &Arc<Round>) -> anyhow::Result<Reduced> {
        let mut tasks = Vec::new();
        for mut node in self.nodes.drain(..) {
            let round = Arc::clone(round);
            let task = async move { node.reduce(&round).await.map(|part| (node, part)) };
            let (host, _) = hosts.of_node(tasks.len());
            tasks.push(host.spawn(task));
        }
        let (waiting, _) = hosts.of_node(0);
        let all = async {
            let mut parts = Vec::new();
            for task in tasks {
                parts.push(task.await.context("a node panicked")??);
            }
            anyhow::Ok(parts)
        };
        let parts = waiting.block_on(async { timeout(REDUCTION_MAX, all).await });
        let parts = parts.context("a reduction did not end")??;
        let mut reduced = Reduced { time_s: 0.0, sent: Vec::new() };
        for (node, (time_s, sent)) in parts {
            ensure!(node.inbox.is_empty(), "node {} was handed a message twice", node.index);
            reduced.time_s = reduced.time_s.max(time_s);
            reduced.sent.extend(sent);
            self.nodes.push(node);
        }
        Ok(reduced)
    }

    /// Messages that were handled, and copies that were not handled again.
    pub(crate) fn handled_and_duplicates(&self) -> (u64, u64) {
        let counters = self.listeners.iter().map(|listener| listener.counters());
        counters.fold((0, 0), |(handled, spare), of| (handled + of.handled, spare + of.duplicates + of.stale))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.serving.iter().for_each(JoinHandle::abort);
    }
}

impl Node {
    /// Gathers from the children, sends to the parent, and hands the result on; the time from sending to the
    /// result, and what was sent.
    async fn reduce(&mut self, round: &Round) -> anyhow::Result<(f64, Vec<Sent>)> {
        let maxima = self.gather(round).await?;
        let began = Instant::now();
        let Self { index, inbox, up, down } = self;
        let Some(up) = up else {
            return Ok((0.0, hand_on(down, &maxima).await?));
        };
        // The result may be there before the acknowledgement: it may have been lost, and the parent has what
        // it needs.
        let message = encode(&maxima);
        let result = async {
            let arrival = inbox.recv().await.context("the listener is gone")?;
            ensure!(arrival.path == 2 * (*index - 1) + 1, "node {index} heard path {}", arrival.path);
            let result = decode(&arrival.bytes, maxima.len())?;
            ensure!(result == round.expected[0], "node {index} was sent a wrong result");
            Ok((arrival.at, hand_on(down, &result).await?))
        };
        let (sent, result) = tokio::join!(up.send(&message), result);
        let (arrived, mut all) = result?;
        all.push(sent?);
        Ok((arrived.saturating_duration_since(began).as_secs_f64(), all))
    }

    /// The maxima of this node's subtree.
    async fn gather(&mut self, round: &Round) -> anyhow::Result<Vec<u32>> {
        let index = self.index;
        let mut maxima = round.own[index].clone();
        let mut heard = Vec::new();
        while heard.len() < self.down.len() {
            let arrival = self.inbox.recv().await.context("the listener is gone")?;
            let child = arrival.path / 2 + 1;
            let is_child = arrival.path.is_multiple_of(2) && (child - 1) / 2 == index;
            ensure!(is_child && !heard.contains(&child), "node {index} heard path {}", arrival.path);
            let theirs = decode(&arrival.bytes, maxima.len())?;
            ensure!(theirs == round.expected[child], "node {index} was sent wrong maxima by {child}");
            raise(&mut maxima, &theirs);
            heard.push(child);
        }
        ensure!(maxima == round.expected[index], "node {index} computed wrong maxima");
        Ok(maxima)
    }
}

/// Sends the result to all children at once.
async fn hand_on(down: &mut [Way], result: &[u32]) -> anyhow::Result<Vec<Sent>> {
    let message = encode(result);
    Ok(match down {
        [] => Vec::new(),
        [one] => vec![one.send(&message).await?],
        [left, right, ..] => {
            let (left, right) = tokio::join!(left.send(&message), right.send(&message));
            vec![left?, right?]
        }
    })
}

impl Way {
    async fn send(&mut self, message: &[u8]) -> anyhow::Result<Sent> {
        let receipt = self.link.send(message).await?;
        let abandoned = self.tries < receipt.attempts;
        let (took_s, attempts, duplicate) = (receipt.took.as_secs_f64(), receipt.attempts, receipt.duplicate);
        Ok(Sent { took_s, attempts, abandoned, duplicate })
    }
}

/// Many times what the longest may take: TCP gives up no sooner, but who looks on does.
const REDUCTION_MAX: Duration = Duration::from_secs(180);
