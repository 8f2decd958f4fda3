//! The receiving end: takes connections, within bounds, and serves each in a task.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::vec::Vec;

use tokio::net::{TcpListener, ToSocketAddrs};
use tokio::sync::oneshot;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{sleep, timeout};

use super::connect::{Accept, listen};
use super::memory::Memory;
use super::room::Room;
use super::serve::{Shared, part, serve};
use super::wire::{HEADER_BYTES, SenderId, Welcome};

/// What a [`Listener`] allows. Each bound is on what peers can make it hold.
#[derive(Clone, Debug)]
pub struct ListenConfig {
    /// Connections at a time; more are declined.
    pub connections_max: usize,
    /// The longest message, in bytes; it must fit into `buffered_bytes_max`, too.
    pub message_bytes_max: u32,
    /// What the messages of all connections may take together, in bytes, from their first byte until the
    /// handler has returned; a connection that would need more is closed, and its sender tries again.
    pub buffered_bytes_max: usize,
    /// How many senders are remembered, so that none of their messages is handled twice. Whom it has not
    /// heard of for longest is forgotten first, and never who is connected.
    pub senders_max: usize,
    /// How long a new connection may take to say hello.
    pub hello_max: Duration,
    /// How long a connection may stay silent between messages.
    pub idle_max: Duration,
    /// How long a connection may stay silent within a message, and between messages once its sender has
    /// said hello on another; at most `idle_max`. It bounds how long a sender that vanished holds memory.
    pub stall_max: Duration,
    /// How long a shut-down waits for handlers that are at work.
    pub grace: Duration,
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            message_bytes_max: 64 * 1024 * 1024,
            // Four of the longest messages, or 256 kB for each connection.
            buffered_bytes_max: 4 * (64 * 1024 * 1024 + HEADER_BYTES),
            // Some 200 bytes each: 13 MB when full.
            senders_max: 65_536,
            // A hello fits one segment: time for TCP to resend it three times (RFC 6298: after 1, 2 and 4 s).
            hello_max: Duration::from_secs(10),
            // When TCP's keepalive starts to doubt the connection (RFC 9293 §3.8.4).
            idle_max: crate::LIMIT,
            // By then TCP has resent what is lost five times (RFC 6298: after 1, 2, 4, 8 and 16 s).
            stall_max: Duration::from_secs(60),
            // What service managers allow for stopping is mostly longer (systemd: 90 s).
            grace: Duration::from_secs(30),
        }
    }
}

/// A message, as it is handed to the handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who sent it. Nothing proves that: the protocol does not authenticate.
    pub from: SenderId,
    /// Its identifier, which rises from message to message of a sender.
    pub id: u64,
    /// What it says.
    pub bytes: Vec<u8>,
}

/// What a [`Listener`] has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenCounters {
    /// Connections that were accepted, those included that were then declined.
    pub connections: u64,
    /// Connections that were declined because there was no room, for them or their messages.
    pub declined: u64,
    /// Connections that did not say hello, or not in time, or not in this version.
    pub strangers: u64,
    /// Messages the handler has accepted.
    pub handled: u64,
    /// Messages the handler has not accepted, or in which it panicked.
    pub rejected: u64,
    /// Copies that were acknowledged and not handled again.
    pub duplicates: u64,
    /// Copies that came after a later message of their sender.
    pub stale: u64,
    /// Connections that were closed for a breach of the protocol.
    pub protocol_errors: u64,
    /// Times that no connection could be accepted, such as for want of descriptors.
    pub accept_errors: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) connections: AtomicU64,
    pub(super) declined: AtomicU64,
    pub(super) strangers: AtomicU64,
    pub(super) handled: AtomicU64,
    pub(super) rejected: AtomicU64,
    pub(super) duplicates: AtomicU64,
    pub(super) stale: AtomicU64,
    pub(super) protocol_errors: AtomicU64,
    pub(super) accept_errors: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Takes messages from any number of links and hands each to a handler once (`docs/spec/link.md`).
#[derive(Debug)]
pub struct Listener<A> {
    accept: A,
    config: Arc<ListenConfig>,
    memory: Arc<Memory>,
    room: Arc<Room>,
    counts: Arc<Counts>,
}

impl Listener<TcpListener> {
    /// Listens on the first of `addresses` that can be had; port 0 asks the system for one.
    ///
    /// # Errors
    /// When there is no such address, it is taken, or not allowed.
    pub async fn bind(addresses: impl ToSocketAddrs, config: ListenConfig) -> io::Result<Self> {
        Ok(Self::new(listen(addresses).await?, config))
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.accept.local_addr()
    }
}

impl<A: Accept> Listener<A> {
    /// Takes the connections that `accept` gives.
    #[must_use]
    pub fn new(accept: A, mut config: ListenConfig) -> Self {
        // What could never be buffered is better refused beforehand than again and again.
        let room = u32::try_from(config.buffered_bytes_max.saturating_sub(HEADER_BYTES)).unwrap_or(u32::MAX);
        config.message_bytes_max = config.message_bytes_max.min(room);
        Self {
            accept,
            memory: Arc::new(Memory::new(config.senders_max)),
            room: Arc::new(Room::new(config.buffered_bytes_max)),
            counts: Arc::default(),
            config: Arc::new(config),
        }
    }

    /// Serves until `shutdown` is ready. Then no message is begun, handlers at work have
    /// [`ListenConfig::grace`] to end, and what they accept is still acknowledged.
    ///
    /// `handler` is called once for each message, for one message of a sender at a time and in their order.
    /// `Ok` accepts it: only then it is acknowledged. `Err` – and a panic – closes the connection without
    /// acknowledgement, so that the sender tries again, and the message is handled again. While it is at
    /// work, nothing more is read from that connection: a slow handler slows its senders down.
    ///
    /// Who drops this future drops the handlers at work as well; their messages count as not handled.
    pub async fn serve<H, R, E>(&self, handler: H, shutdown: impl Future<Output = ()>)
    where
        H: Fn(Message) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: Send + 'static,
    {
        let shared = Arc::new(Shared {
            handler,
            config: self.config.clone(),
            memory: self.memory.clone(),
            room: self.room.clone(),
            counts: self.counts.clone(),
        });
        let mut tasks = JoinSet::new();
        let mut stops: HashMap<Id, oneshot::Sender<()>> = HashMap::new();
        let mut parting = JoinSet::new();
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                Some(ended) = tasks.join_next_with_id() => drop(stops.remove(&self.ended(ended))),
                Some(_) = parting.join_next() => {}
                accepted = self.accept.accept() => match accepted {
                    Ok(stream) if tasks.len() < self.config.connections_max => {
                        count(&self.counts.connections);
                        let (stop, stopping) = oneshot::channel();
                        stops.insert(tasks.spawn(serve(stream, shared.clone(), stopping)).id(), stop);
                    }
                    Ok(stream) => self.decline(stream, &mut parting),
                    Err(error) => {
                        count(&self.counts.accept_errors);
                        if !is_of_one_connection(&error) {
                            sleep(ACCEPT_PAUSE).await;
                        }
                    }
                },
            }
        }
        // Each connection hears that its other half is gone.
        drop(stops);
        let all = async {
            while let Some(ended) = tasks.join_next_with_id().await {
                self.ended(ended);
            }
            while parting.join_next().await.is_some() {}
        };
        let _ = timeout(self.config.grace, all).await;
        tasks.shutdown().await;
        parting.shutdown().await;
    }

    /// What was counted so far.
    #[must_use]
    pub fn counters(&self) -> ListenCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ListenCounters {
            connections: read(&self.counts.connections),
            declined: read(&self.counts.declined),
            strangers: read(&self.counts.strangers),
            handled: read(&self.counts.handled),
            rejected: read(&self.counts.rejected),
            duplicates: read(&self.counts.duplicates),
            stale: read(&self.counts.stale),
            protocol_errors: read(&self.counts.protocol_errors),
            accept_errors: read(&self.counts.accept_errors),
        }
    }

    /// How many senders are remembered now.
    #[must_use]
    pub fn senders(&self) -> usize {
        self.memory.len()
    }

    /// Says that there is no room, unless too many are being told.
    fn decline(&self, mut stream: A::Stream, parting: &mut JoinSet<()>) {
        count(&self.counts.connections);
        count(&self.counts.declined);
        if parting.len() < PARTING_MAX {
            parting.spawn(async move { part(&mut stream, &Welcome::Full.encode()).await });
        }
    }

    /// Which task has ended.
    fn ended(&self, ended: Result<(Id, ()), JoinError>) -> Id {
        match ended {
            Ok((id, ())) => id,
            Err(error) => {
                if error.is_panic() {
                    count(&self.counts.rejected);
                }
                error.id()
            }
        }
    }
}

/// Whether accepting failed for a fault of the connection that was to be accepted, so that the next one may
/// fare better at once.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Connections that are told at a time that there is no room for them, each for a second at most.
const PARTING_MAX: usize = 64;

/// What accepting fails for otherwise – descriptors, memory – is not mended at once: do not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
