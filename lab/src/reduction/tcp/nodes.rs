//! A tree of nodes as tasks, each with a listener and a link to each of its neighbours.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use barograph_sim::SeededRng;
use barograph_timeout::link::{Link, LinkConfig, ListenConfig, Listener, Message, SenderId, Tcp};
use barograph_timeout::{
    Attempt, AttemptOutcome, MAX_TIMEOUT, TimeoutDecision, TimeoutEstimator, TimeoutReason,
};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::turns::Hosts;
use crate::reduction::strategy::Strategy;

pub(crate) struct Tree {
    nodes: Vec<Node>,
    listeners: Vec<Arc<Listener<TcpListener>>>,
    serving: Vec<JoinHandle<()>>,
}

/// Result of a reduction, checked at every node.
#[derive(Debug, Clone)]
pub(crate) struct Reduced {
    /// Longest time (s) over all nodes, from sending to the parent until the result arrived.
    pub(crate) time_s: f64,
    pub(crate) sent: Vec<Sent>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// From the start of the first attempt to the acknowledgement.
    pub(crate) took_s: f64,
    pub(crate) attempts: u32,
    /// Whether the message used up its tries, and was then waited for.
    pub(crate) abandoned: bool,
    /// Whether the acknowledged copy came after one that had been cut off, so that the retry was
    /// needless.
    pub(crate) duplicate: bool,
}

struct Arrival {
    /// Direction and edge of the message: 2 · (child − 1) upwards, one more downwards.
    path: usize,
    at: Instant,
    bytes: Vec<u8>,
}

struct Node {
    index: usize,
    inbox: Receiver<Arrival>,
    /// `None` at the root.
    up: Option<NodeLink>,
    /// Empty at the leaves.
    down: Vec<NodeLink>,
}

struct NodeLink {
    link: Link<Tcp, UnlimitedLastTry>,
    tries: u32,
}

impl Tree {
    /// A binary tree with an estimator for each path, and `tries` tries for each message.
    pub(crate) fn start(
        hosts: &Hosts,
        nodes: usize,
        estimators: Vec<UnlimitedLastTry>,
        tries: u32,
    ) -> anyhow::Result<Self> {
        let (mut addresses, mut inboxes, mut listeners, mut serving) = (vec![], vec![], vec![], vec![]);
        for node in 0..nodes {
            let (host, address) = hosts.of_node(node);
            let bound = host.spawn(Listener::bind((address, 0), ListenConfig::default()));
            let listener = Arc::new(host.block_on(bound)?.context("a node cannot listen")?);
            // A node has at most three neighbours; further senders wait until the node has read.
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
        let mut links = estimators.into_iter().enumerate().map(|(path, estimator)| {
            let child = path / 2 + 1;
            let to = if path.is_multiple_of(2) { (child - 1) / 2 } else { child };
            let sender = Some(SenderId((path as u128).to_be_bytes()));
            let config = LinkConfig {
                max_attempts: UnlimitedLastTry::link_tries(tries),
                sender,
                ..LinkConfig::default()
            };
            NodeLink { link: Link::tcp(addresses[to].to_string(), config, estimator), tries }
        });
        let bare = |(index, inbox)| Node { index, inbox, up: None, down: Vec::new() };
        let mut started: Vec<Node> = inboxes.into_iter().enumerate().map(bare).collect();
        for child in 1..nodes {
            started[child].up = links.next();
            started[(child - 1) / 2].down.extend(links.next());
        }
        Ok(Self { nodes: started, listeners, serving })
    }

    /// Runs one reduction.
    ///
    /// # Errors
    /// A node computed or received wrong maxima, or received a message twice, or the network does
    /// not deliver.
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
        let parts = parts.context("a reduction did not end in time")??;
        let mut reduced = Reduced { time_s: 0.0, sent: Vec::new() };
        for (node, (time_s, sent)) in parts {
            ensure!(node.inbox.is_empty(), "node {} received a message twice", node.index);
            reduced.time_s = reduced.time_s.max(time_s);
            reduced.sent.extend(sent);
            self.nodes.push(node);
        }
        Ok(reduced)
    }

    /// Numbers of messages that were handled, and of copies that were not handled again.
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
    /// Gathers from the children, sends to the parent, and passes the result on. Returns the time
    /// from sending to the result, and what was sent.
    async fn reduce(&mut self, round: &Round) -> anyhow::Result<(f64, Vec<Sent>)> {
        let maxima = self.gather(round).await?;
        let began = Instant::now();
        let Self { index, inbox, up, down } = self;
        let Some(up) = up else {
            return Ok((0.0, hand_on(down, &maxima).await?));
        };
        // The result may arrive before the acknowledgement, which may be lost although the parent
        // has the message.
        let message = encode(&maxima);
        let result = async {
            let arrival = inbox.recv().await.context("the listener is gone")?;
            ensure!(arrival.path == 2 * (*index - 1) + 1, "node {index} received path {}", arrival.path);
            let result = decode(&arrival.bytes, maxima.len())?;
            ensure!(result == round.expected[0], "node {index} was sent a wrong result");
            Ok((arrival.at, hand_on(down, &result).await?))
        };
        let (sent, result) = tokio::join!(up.send(&message), result);
        let (arrived, mut all) = result?;
        all.push(sent?);
        Ok((arrived.saturating_duration_since(began).as_secs_f64(), all))
    }

    /// Receives the maxima of the children; returns those of this node's subtree.
    async fn gather(&mut self, round: &Round) -> anyhow::Result<Vec<u32>> {
        let index = self.index;
        let mut maxima = round.own[index].clone();
        let mut heard = Vec::new();
        while heard.len() < self.down.len() {
            let arrival = self.inbox.recv().await.context("the listener is gone")?;
            let child = arrival.path / 2 + 1;
            let is_child = arrival.path.is_multiple_of(2) && (child - 1) / 2 == index;
            ensure!(is_child && !heard.contains(&child), "node {index} received path {}", arrival.path);
            let theirs = decode(&arrival.bytes, maxima.len())?;
            ensure!(theirs == round.expected[child], "node {index} was sent wrong maxima by {child}");
            raise(&mut maxima, &theirs);
            heard.push(child);
        }
        ensure!(maxima == round.expected[index], "node {index} computed wrong maxima");
        Ok(maxima)
    }
}

async fn hand_on(down: &mut [NodeLink], result: &[u32]) -> anyhow::Result<Vec<Sent>> {
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

impl NodeLink {
    async fn send(&mut self, message: &[u8]) -> anyhow::Result<Sent> {
        let receipt = self.link.send(message).await?;
        let abandoned = self.tries < receipt.attempts;
        let (took_s, attempts, duplicate) = (receipt.took.as_secs_f64(), receipt.attempts, receipt.duplicate);
        Ok(Sent { took_s, attempts, abandoned, duplicate })
    }
}

/// Many times the longest expected reduction. TCP alone would wait longer.
const REDUCTION_MAX: Duration = Duration::from_secs(180);

/// Each node's integers, and the maxima that it must send up.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) own: Vec<Vec<u32>>,
    /// Maxima of each node's subtree; those of node 0 are the result.
    pub(crate) expected: Vec<Vec<u32>>,
}

impl Round {
    /// Every round has other integers, so that a message of an earlier round is recognised.
    pub(crate) fn draw(nodes: usize, integers: usize, seed: u64, number: usize) -> Self {
        let of_node = |node: usize| {
            let mut draws = SeededRng::new(seed, ((number as u64) << 16) | node as u64);
            (0..integers).map(|_| (draws.next_u64() >> 32) as u32).collect()
        };
        let own: Vec<Vec<u32>> = (0..nodes).map(of_node).collect();
        let mut expected = own.clone();
        for child in (1..nodes).rev() {
            let (before, from) = expected.split_at_mut(child);
            raise(&mut before[(child - 1) / 2], &from[0]);
        }
        Self { own, expected }
    }
}

/// Raises each number to the other one where that is larger; both slices have the same length.
pub(crate) fn raise(numbers: &mut [u32], others: &[u32]) {
    for (number, other) in numbers.iter_mut().zip(others) {
        *number = (*number).max(*other);
    }
}

/// Encodes a message: four bytes for each number, little-endian.
pub(crate) fn encode(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Decodes a message, which must have `count` numbers.
pub(crate) fn decode(bytes: &[u8], count: usize) -> anyhow::Result<Vec<u32>> {
    ensure!(bytes.len() == 4 * count, "a message of {} bytes instead of {}", bytes.len(), 4 * count);
    let (fours, _) = bytes.as_chunks::<4>();
    Ok(fours.iter().map(|four| u32::from_le_bytes(*four)).collect())
}

/// An estimator for one direction of a link that waits without a timeout after its last try.
///
/// A message that has used up its tries makes its reduction an abandoned one. It is then waited for
/// without a timeout, and the estimator learns nothing from that. For the link it stays the same
/// message with the same identifier, so that all its copies are handled once.
pub(crate) struct UnlimitedLastTry {
    inner: Box<dyn TimeoutEstimator + Send>,
    tries: u32,
}

impl UnlimitedLastTry {
    /// Tries of a link for `tries` of the estimator: some more, which only attempts without a
    /// connection use up.
    pub(crate) fn link_tries(tries: u32) -> u32 {
        tries + CONNECTING_MAX
    }

    fn within(&self, attempt: &Attempt) -> Option<Attempt> {
        (attempt.number < self.tries).then_some(Attempt { max_attempts: self.tries, ..*attempt })
    }
}

impl TimeoutEstimator for UnlimitedLastTry {
    fn decide(&self, attempt: &Attempt) -> TimeoutDecision {
        match self.within(attempt) {
            Some(attempt) => self.inner.decide(&attempt),
            None => TimeoutDecision {
                timeout: MAX_TIMEOUT,
                forecast: None,
                error: None,
                timeout_probability: None,
                retry_success: None,
                reason: TimeoutReason::LastAttempt,
            },
        }
    }

    fn record(&mut self, attempt: &Attempt, ended: AttemptOutcome) {
        if let Some(attempt) = self.within(attempt) {
            self.inner.record(&attempt, ended);
        }
    }

    fn record_connect(&mut self, took: Duration) {
        self.inner.record_connect(took);
    }
}

/// A timeout for each path; see [`Strategy::timeouts`].
pub(crate) fn timeouts(
    strategy: Strategy,
    owners: &[usize],
    scale: f64,
    tries: u32,
) -> anyhow::Result<Vec<UnlimitedLastTry>> {
    if matches!(strategy, Strategy::StaticBest | Strategy::DefaultHedged) {
        bail!("{} cannot be run over TCP: a link has one attempt at a time", strategy.name());
    }
    let unlimited = |inner| UnlimitedLastTry { inner, tries };
    Ok(strategy.timeouts(owners, scale).into_iter().map(unlimited).collect())
}

/// A message that gets no connection this many times in a row has no network.
const CONNECTING_MAX: u32 = 20;

#[cfg(test)]
mod tests {
    use barograph_timeout::{INITIAL_TIMEOUT, MessageAttempts};

    use super::*;

    #[test]
    fn the_expected_result_of_a_node_is_the_maxima_of_its_subtree() {
        let round = Round::draw(7, 50, 3, 2);
        for i in 0..50 {
            let of = |nodes: &[usize]| nodes.iter().map(|node| round.own[*node][i]).max();
            assert_eq!(Some(round.expected[0][i]), of(&[0, 1, 2, 3, 4, 5, 6]));
            assert_eq!(Some(round.expected[2][i]), of(&[2, 5, 6]));
            assert_eq!(Some(round.expected[6][i]), of(&[6]));
        }
        assert_ne!(round.own, Round::draw(7, 50, 3, 3).own);
        assert_eq!(decode(&encode(&round.own[4]), 50).expect("its own"), round.own[4]);
        assert!(decode(&[0; 199], 50).is_err() && decode(&[0; 204], 50).is_err());
    }

    #[test]
    fn the_estimator_sees_its_own_attempts_only() {
        let mut paths = timeouts(Strategy::NwsEscalating, &[1], 0.1, 2).expect("a strategy for links");
        let mut message = MessageAttempts::new(65_536, UnlimitedLastTry::link_tries(2));
        let first = message.attempt(Duration::ZERO);
        assert_eq!(paths[0].timeout(&first), INITIAL_TIMEOUT.mul_f64(0.1));
        assert!(message.advance());
        let last = message.attempt(Duration::from_secs(1));
        assert!(!last.is_last(), "not to the link");
        assert_eq!(paths[0].decide(&last).reason, TimeoutReason::LastAttempt, "but to the estimator");
        assert!(message.advance());
        let uncut = message.attempt(Duration::from_secs(2));
        let before = paths[0].decide(&first);
        for _ in 0..5 {
            paths[0].record(&uncut, AttemptOutcome::Completed(Duration::from_secs(9)));
        }
        assert_eq!(
            (paths[0].timeout(&uncut), paths[0].decide(&first).timeout),
            (MAX_TIMEOUT, before.timeout)
        );
    }

    #[test]
    fn strategies_that_a_link_does_not_support_are_rejected() {
        for strategy in [Strategy::StaticBest, Strategy::DefaultHedged] {
            assert!(
                timeouts(strategy, &[0], 1.0, 5).is_err_and(|e| e.to_string().contains(&strategy.name()))
            );
        }
    }
}
