//! The receiver: accepts connections, within limits, and serves each in a task.

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

use super::buffer_limit::BufferLimit;
use super::connect::{Accept, listen};
use super::sender_table::SenderTable;
use super::serve::{Shared, send_and_close, serve};
use super::wire::{HEADER_BYTES, SenderId, Welcome};

/// Limits of a [`Listener`]. These limits bound the memory and the time that peers can use.
#[derive(Clone, Debug)]
pub struct ListenConfig {
    /// Maximum number of connections at a time; further connections are declined.
    pub connections_max: usize,
    /// Length of the longest message, in bytes. Such a message must also fit into
    /// `buffered_bytes_max`.
    pub message_bytes_max: u32,
    /// Maximum number of bytes of the messages of all connections together, from the first byte of
    /// a message until the handler has returned. A connection that would need more is closed, and
    /// its sender tries again.
    pub buffered_bytes_max: usize,
    /// Maximum number of senders for which the last message is remembered, so that no message is
    /// handled twice. The sender that has been idle longest is forgotten first; a connected sender
    /// is never forgotten.
    pub senders_max: usize,
    /// Longest wait for the hello of a new connection.
    pub hello_max: Duration,
    /// Longest silence of a connection between messages.
    pub idle_max: Duration,
    /// Longest silence of a connection within a message. The limit also applies between messages
    /// after the sender has sent hello on a newer connection. If `stall_max` is greater than
    /// `idle_max`, `idle_max` applies instead. The limit bounds how long a sender that disappeared
    /// occupies memory.
    pub stall_max: Duration,
    /// Longest time that a shut-down waits for running handlers.
    pub grace: Duration,
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            message_bytes_max: 64 * 1024 * 1024,
            // Memory for four of the longest messages, or for 256 kB on each connection.
            buffered_bytes_max: 4 * (64 * 1024 * 1024 + HEADER_BYTES),
            // Each sender takes about 200 bytes, so all senders take 13 MB.
            senders_max: 65_536,
            // A hello fits into one segment: TCP has time to resend it three times (RFC 6298: after
            // 1, 2 and 4 s).
            hello_max: Duration::from_secs(10),
            // The idle time after which TCP keepalive probes the connection (RFC 9293 §3.8.4).
            idle_max: crate::MAX_TIMEOUT,
            // TCP has time to resend lost data five times (RFC 6298: after 1, 2, 4, 8 and 16 s).
            stall_max: Duration::from_secs(60),
            // Service managers mostly allow more time for stopping (systemd: 90 s).
            grace: Duration::from_secs(30),
        }
    }
}

/// A message, as the handler receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Identity that the sender claims; the protocol does not authenticate it.
    pub from: SenderId,
    /// Identifier of the message. The identifiers of a sender increase from message to message.
    pub id: u64,
    /// Content of the message.
    pub bytes: Vec<u8>,
}

/// Counters of a [`Listener`] since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenCounters {
    /// Number of accepted connections, including connections that were declined afterwards.
    pub connections: u64,
    /// Number of connections declined because there was no room for them or for their messages.
    pub declined: u64,
    /// Number of connections on which no valid hello of this version arrived in time.
    pub handshake_failures: u64,
    /// Number of messages that the handler accepted.
    pub handled: u64,
    /// Number of messages that the handler rejected, or on which the handler panicked.
    pub rejected: u64,
    /// Number of copies that were acknowledged and not handled again.
    pub duplicates: u64,
    /// Number of copies that arrived after a later message of their sender.
    pub stale: u64,
    /// Number of connections closed because the sender broke the protocol.
    pub protocol_errors: u64,
    /// Number of errors in accepting connections, for example because there are no free file
    /// descriptors.
    pub accept_errors: u64,
}

#[derive(Debug, Default)]
pub(super) struct AtomicCounters {
    pub(super) connections: AtomicU64,
    pub(super) declined: AtomicU64,
    pub(super) handshake_failures: AtomicU64,
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

/// Receives messages from any number of links and passes each to a handler once
/// (`docs/spec/link.md`).
#[derive(Debug)]
pub struct Listener<A> {
    accept: A,
    config: Arc<ListenConfig>,
    senders: Arc<SenderTable>,
    buffer_limit: Arc<BufferLimit>,
    counts: Arc<AtomicCounters>,
}

impl Listener<TcpListener> {
    /// Listens on the first of `addresses` that is available; for port 0 the system chooses a port.
    ///
    /// # Errors
    /// If none of the addresses can be used.
    pub async fn bind(addresses: impl ToSocketAddrs, config: ListenConfig) -> io::Result<Self> {
        Ok(Self::new(listen(addresses).await?, config))
    }

    /// The address on which the listener accepts connections.
    ///
    /// # Errors
    /// If the system cannot report the address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.accept.local_addr()
    }
}

impl<A: Accept> Listener<A> {
    /// Creates a listener for the connections that `accept` returns.
    #[must_use]
    pub fn new(accept: A, mut config: ListenConfig) -> Self {
        // Limit the length of messages to the buffer, so that a sender of a longer message gets an
        // error at once. Without this limit, the sender would try again and again.
        let room = u32::try_from(config.buffered_bytes_max.saturating_sub(HEADER_BYTES)).unwrap_or(u32::MAX);
        config.message_bytes_max = config.message_bytes_max.min(room);
        Self {
            accept,
            senders: Arc::new(SenderTable::new(config.senders_max)),
            buffer_limit: Arc::new(BufferLimit::new(config.buffered_bytes_max)),
            counts: Arc::default(),
            config: Arc::new(config),
        }
    }

    /// Serves until `shutdown` is ready. Then the listener begins no further message, running
    /// handlers have [`ListenConfig::grace`] to end, and messages that they accept are still
    /// acknowledged.
    ///
    /// `handler` is called once for each message: for one message of a sender at a time, in the
    /// order of their identifiers. `Ok` accepts the message, which is then acknowledged. `Err` or a
    /// panic closes the connection without acknowledgement, so that the sender sends the message
    /// again and the handler is called again. While the handler runs, nothing more is read from its
    /// connection, so a slow handler slows its senders down.
    ///
    /// Dropping this future drops running handlers, too; their messages count as not handled.
    pub async fn serve<H, R, E>(&self, handler: H, shutdown: impl Future<Output = ()>)
    where
        H: Fn(Message) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: Send + 'static,
    {
        let shared = Arc::new(Shared {
            handler,
            config: self.config.clone(),
            senders: self.senders.clone(),
            buffer_limit: self.buffer_limit.clone(),
            counts: self.counts.clone(),
        });
        let mut tasks = JoinSet::new();
        let mut stops: HashMap<Id, oneshot::Sender<()>> = HashMap::new();
        let mut declining = JoinSet::new();
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                Some(ended) = tasks.join_next_with_id() => drop(stops.remove(&self.ended(ended))),
                Some(_) = declining.join_next() => {}
                accepted = self.accept.accept() => match accepted {
                    Ok(stream) if tasks.len() < self.config.connections_max => {
                        count(&self.counts.connections);
                        let (stop, stopping) = oneshot::channel();
                        stops.insert(tasks.spawn(serve(stream, shared.clone(), stopping)).id(), stop);
                    }
                    Ok(stream) => self.decline(stream, &mut declining),
                    Err(error) => {
                        count(&self.counts.accept_errors);
                        if !is_of_one_connection(&error) {
                            sleep(ACCEPT_PAUSE).await;
                        }
                    }
                },
            }
        }
        // When these channel senders are dropped, each connection is notified to stop.
        drop(stops);
        let all = async {
            while let Some(ended) = tasks.join_next_with_id().await {
                self.ended(ended);
            }
            while declining.join_next().await.is_some() {}
        };
        let _ = timeout(self.config.grace, all).await;
        tasks.shutdown().await;
        declining.shutdown().await;
    }

    /// Counters since the listener was created.
    #[must_use]
    pub fn counters(&self) -> ListenCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ListenCounters {
            connections: read(&self.counts.connections),
            declined: read(&self.counts.declined),
            handshake_failures: read(&self.counts.handshake_failures),
            handled: read(&self.counts.handled),
            rejected: read(&self.counts.rejected),
            duplicates: read(&self.counts.duplicates),
            stale: read(&self.counts.stale),
            protocol_errors: read(&self.counts.protocol_errors),
            accept_errors: read(&self.counts.accept_errors),
        }
    }

    /// Number of senders remembered now.
    #[must_use]
    pub fn senders(&self) -> usize {
        self.senders.len()
    }

    /// Declines a connection with a reply, unless too many replies are in progress.
    fn decline(&self, mut stream: A::Stream, declining: &mut JoinSet<()>) {
        count(&self.counts.connections);
        count(&self.counts.declined);
        if declining.len() < DECLINES_MAX {
            declining.spawn(async move { send_and_close(&mut stream, &Welcome::Full.encode()).await });
        }
    }

    /// Returns the task that ended, and counts a panic.
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

/// Whether the error concerns only the connection that was to be accepted, so that the next
/// connection may be accepted at once.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Maximum number of replies to declined connections at a time. Each reply takes at most a second.
const DECLINES_MAX: usize = 64;

/// Pause after an error that concerns the listener, not one connection. For example, a lack of file
/// descriptors or memory lasts for a while, so the loop must not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
