//! Connections in virtual time with simulated response times.
//!
//! [`path`] creates the two ends of a path: a [`Connector`] and an [`Acceptor`]. The streams of
//! both ends implement tokio's `AsyncRead` and `AsyncWrite`. The bytes that a client writes up to a
//! flush are one *attempt*. For each attempt, a closure, the law, returns an [`AttemptFate`]: when
//! the attempt arrives as a whole, and what happens to the answer. All waits use tokio's timers, so
//! a runtime with paused time simulates hours in milliseconds. These timers have a resolution of 1
//! ms: to simulate delays of microseconds, multiply all times by 1000. A delay that the clock
//! cannot represent never ends.
//!
//! The law receives the number of cancelled copies in flight, so it can simulate their load.

mod pipe;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use self::pipe::{Reader, SimPipe};
use crate::sync::lock;

/// Argument of the law: one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptInfo {
    /// Bytes that the client sent, including framing.
    pub bytes: usize,
    /// Time from the creation of the path to the sending of the attempt.
    pub started: Duration,
    /// Number of the connection, from 0.
    pub connection: u64,
    /// Number of copies on this path that were cancelled (their connection was closed) and have not
    /// arrived yet.
    pub in_flight: usize,
}

/// What happens to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptFate {
    /// Time until the request arrives; `None` if it never arrives.
    pub arrives: Option<Duration>,
    /// What happens to the answer.
    pub answer: Answer,
}

/// What happens to the answer to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The answer takes this time.
    After(Duration),
    /// The answer never arrives.
    Lost,
    /// The connection is reset this long after the attempt began, unless the answer arrives before.
    Reset(Duration),
}

impl AttemptFate {
    /// Returns the fate of an attempt with a request that arrives after `delay` and an answer that
    /// takes no time.
    #[must_use]
    pub fn after(delay: Duration) -> Self {
        Self { arrives: Some(delay), answer: Answer::After(Duration::ZERO) }
    }

    /// Returns the fate of an attempt on a connection on which neither end receives anything more.
    #[must_use]
    pub fn lost() -> Self {
        Self { arrives: None, answer: Answer::Lost }
    }

    /// Returns the fate of an attempt on a connection that is reset after `delay`. The request does
    /// not arrive.
    #[must_use]
    pub fn reset(delay: Duration) -> Self {
        Self { arrives: None, answer: Answer::Reset(delay) }
    }
}

/// Time to set up a connection, or to refuse it.
pub type SetUpDelay = Result<Duration, Duration>;

/// Configuration of a path, except its laws.
#[derive(Clone, Copy, Debug)]
pub struct PathConfig {
    /// Number of exchanges at the start of each connection that are handshakes: they take no time,
    /// and the law is not called. The time of the handshakes belongs to the set-up.
    pub handshake_exchanges: u32,
    /// Whether data in flight still arrive after the client has closed, as TCP delivers data that
    /// have already left the host.
    pub delivers_late: bool,
}

/// The client's end of a path.
#[derive(Clone)]
pub struct Connector(Arc<PathState>);

/// The server's end of a path.
pub struct Acceptor(tokio::sync::Mutex<mpsc::UnboundedReceiver<ServerStream>>);

type AttemptLaw = Box<dyn FnMut(&AttemptInfo) -> AttemptFate + Send>;
type SetUpDelayLaw = Box<dyn FnMut(Duration) -> SetUpDelay + Send>;

struct PathState {
    config: PathConfig,
    epoch: Instant,
    law: Mutex<AttemptLaw>,
    set_up: Mutex<SetUpDelayLaw>,
    connections: Mutex<u64>,
    /// Arrival times of the cancelled copies.
    cancelled: Mutex<Vec<Instant>>,
    servers: mpsc::UnboundedSender<ServerStream>,
}

/// Creates a path. `law` decides what happens to each attempt; `set_up` returns the set-up time of
/// a connection, given the time since the creation of the path.
pub fn path(
    config: PathConfig,
    law: impl FnMut(&AttemptInfo) -> AttemptFate + Send + 'static,
    set_up: impl FnMut(Duration) -> SetUpDelay + Send + 'static,
) -> (Connector, Acceptor) {
    let (servers, accepted) = mpsc::unbounded_channel();
    let path = PathState {
        config,
        epoch: Instant::now(),
        law: Mutex::new(Box::new(law)),
        set_up: Mutex::new(Box::new(set_up)),
        connections: Mutex::default(),
        cancelled: Mutex::default(),
        servers,
    };
    (Connector(Arc::new(path)), Acceptor(tokio::sync::Mutex::new(accepted)))
}

impl Connector {
    /// Opens a connection after its simulated set-up time.
    ///
    /// # Errors
    /// `ConnectionRefused` if `set_up` returns an error, or the acceptor is gone.
    pub fn connect(&self) -> impl Future<Output = io::Result<ClientStream>> + Send + use<> {
        let path = self.0.clone();
        async move {
            let set_up = lock(&path.set_up)(path.epoch.elapsed());
            sleep(set_up.unwrap_or_else(|refused_after| refused_after)).await;
            if set_up.is_err() {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let connection = {
                let mut connections = lock(&path.connections);
                *connections += 1;
                *connections - 1
            };
            let (up, down) = (Arc::new(SimPipe::default()), Arc::new(SimPipe::default()));
            let answer = Arc::new(Mutex::new(Answer::After(Duration::ZERO)));
            let server =
                ServerStream { from: Reader::new(up.clone()), to: down.clone(), answer: answer.clone() };
            path.servers.send(server).map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
            let handshake_exchanges = path.config.handshake_exchanges;
            Ok(ClientStream {
                path,
                connection,
                handshake_exchanges,
                written: Vec::new(),
                arrives: None,
                to: up,
                from: Reader::new(down),
                answer,
            })
        }
    }
}

impl Acceptor {
    /// Waits for the next connection. Dropping the future loses no connection.
    ///
    /// # Errors
    /// `BrokenPipe` if all connectors are gone.
    pub async fn accept(&self) -> io::Result<ServerStream> {
        self.0.lock().await.recv().await.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

/// The client's stream. A flush sends the written bytes as one attempt.
pub struct ClientStream {
    path: Arc<PathState>,
    connection: u64,
    handshake_exchanges: u32,
    written: Vec<u8>,
    /// Arrival time of the last attempt.
    arrives: Option<Instant>,
    to: Arc<SimPipe>,
    from: Reader,
    answer: Arc<Mutex<Answer>>,
}

impl ClientStream {
    fn send_attempt(&mut self, bytes: Vec<u8>) {
        let now = Instant::now();
        let fate = if self.handshake_exchanges > 0 {
            self.handshake_exchanges -= 1;
            AttemptFate::after(Duration::ZERO)
        } else {
            let in_flight = {
                let mut cancelled = lock(&self.path.cancelled);
                cancelled.retain(|&arrives| now < arrives);
                cancelled.len()
            };
            let started = now.duration_since(self.path.epoch);
            let info = AttemptInfo { bytes: bytes.len(), started, connection: self.connection, in_flight };
            lock(&self.path.law)(&info)
        };
        *lock(&self.answer) = fate.answer;
        self.arrives = fate.arrives.and_then(|delay| now.checked_add(delay));
        if let Some(arrives) = self.arrives {
            self.to.push(bytes, arrives);
        }
        if let Answer::Reset(delay) = fate.answer
            && let Some(at) = now.checked_add(delay)
        {
            self.to.reset(at);
            self.from.pipe().reset(at);
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.to.is_abandoned() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.written.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let bytes = std::mem::take(&mut self.written);
        if !bytes.is_empty() {
            self.send_attempt(bytes);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.from.poll_read(context, buffer)
    }
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        if let Some(arrives) = self.arrives.filter(|&arrives| Instant::now() < arrives) {
            lock(&self.path.cancelled).push(arrives);
        }
        self.to.close(self.path.config.delivers_late);
    }
}

/// The server's stream. The server's answers follow the [`AttemptFate`] of the client's last
/// attempt.
pub struct ServerStream {
    from: Reader,
    to: Arc<SimPipe>,
    answer: Arc<Mutex<Answer>>,
}

impl AsyncWrite for ServerStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.to.is_abandoned() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        match *lock(&self.answer) {
            Answer::After(delay) => {
                if let Some(at) = Instant::now().checked_add(delay) {
                    self.to.push(bytes.to_vec(), at);
                }
            }
            Answer::Reset(_) | Answer::Lost => {}
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for ServerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.from.poll_read(context, buffer)
    }
}

impl Drop for ServerStream {
    fn drop(&mut self) {
        self.to.close(true);
    }
}
