//! Connections in virtual time, whose every exchange takes as long as a law says.
//!
//! [`path`] gives the two ends of a path: a [`Connector`] and an [`Acceptor`], whose streams are tokio's
//! `AsyncRead` and `AsyncWrite`. What a client writes up to a flush is an *attempt*; the law – a closure –
//! is asked for its [`Fate`]: when it arrives as a whole, and what becomes of the answer. Everything waits
//! on tokio's timers, so a runtime whose time is paused runs hours in milliseconds. Those timers are exact
//! to 1 ms: a path of microseconds is to be simulated a thousand times slower. A delay beyond what the clock
//! can tell is for ever.
//!
//! The law hears how many copies that were given up are still under way, so it can let them weigh.

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

use self::pipe::{Pipe, Reader};
use crate::sync::lock;

/// One attempt, as the law is asked about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptInfo {
    /// What the client sent, in bytes, framing included.
    pub bytes: usize,
    /// When it was sent, from the making of the path.
    pub started: Duration,
    /// The connection, counted from 0.
    pub connection: u64,
    /// Copies on this path that were given up – their connection was closed – and have not arrived yet.
    pub in_flight: usize,
}

/// What becomes of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// The request arrives after so long; `None`: never.
    pub arrives: Option<Duration>,
    /// And then?
    pub answer: Answer,
}

/// What becomes of the answer to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It takes so long on its way back.
    After(Duration),
    /// It never comes.
    Lost,
    /// The connection is reset so long after the attempt began, if the answer is not there by then.
    Reset(Duration),
}

impl Fate {
    /// The request arrives after `delay`, and the answer takes no time.
    #[must_use]
    pub fn after(delay: Duration) -> Self {
        Self { arrives: Some(delay), answer: Answer::After(Duration::ZERO) }
    }

    /// Neither end hears anything again on this connection.
    #[must_use]
    pub fn lost() -> Self {
        Self { arrives: None, answer: Answer::Lost }
    }

    /// The connection is reset after `delay`, and the request does not arrive.
    #[must_use]
    pub fn reset(delay: Duration) -> Self {
        Self { arrives: None, answer: Answer::Reset(delay) }
    }
}

/// How long setting up a connection takes, or after how long it is refused.
pub type SetUp = Result<Duration, Duration>;

/// What a path does besides its laws.
#[derive(Clone, Copy, Debug)]
pub struct PathConfig {
    /// So many exchanges at the start of each connection are greetings: they take no time, and the law is
    /// not asked. What they take belongs to the setting up.
    pub greetings: u32,
    /// Whether what is under way when the client closes still arrives, as it does with TCP when it had left
    /// the host.
    pub delivers_late: bool,
}

/// The client's end of a path.
#[derive(Clone)]
pub struct Connector(Arc<Path>);

/// The server's end of a path.
pub struct Acceptor(tokio::sync::Mutex<mpsc::UnboundedReceiver<Server>>);

type Law = Box<dyn FnMut(&AttemptInfo) -> Fate + Send>;
type SetUpLaw = Box<dyn FnMut(Duration) -> SetUp + Send>;

struct Path {
    config: PathConfig,
    epoch: Instant,
    law: Mutex<Law>,
    set_up: Mutex<SetUpLaw>,
    connections: Mutex<u64>,
    /// When the copies that were given up arrive.
    given_up: Mutex<Vec<Instant>>,
    servers: mpsc::UnboundedSender<Server>,
}

/// A path whose attempts fare by `law`, and whose connections take what `set_up` says of the time that has
/// passed since the path was made.
pub fn path(
    config: PathConfig,
    law: impl FnMut(&AttemptInfo) -> Fate + Send + 'static,
    set_up: impl FnMut(Duration) -> SetUp + Send + 'static,
) -> (Connector, Acceptor) {
    let (servers, accepted) = mpsc::unbounded_channel();
    let path = Path {
        config,
        epoch: Instant::now(),
        law: Mutex::new(Box::new(law)),
        set_up: Mutex::new(Box::new(set_up)),
        connections: Mutex::default(),
        given_up: Mutex::default(),
        servers,
    };
    (Connector(Arc::new(path)), Acceptor(tokio::sync::Mutex::new(accepted)))
}

impl Connector {
    /// Sets up a connection.
    ///
    /// # Errors
    /// `ConnectionRefused` where the law of setting up says so, or the acceptor is gone.
    pub fn connect(&self) -> impl Future<Output = io::Result<Client>> + Send + use<> {
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
            let (up, down) = (Arc::new(Pipe::default()), Arc::new(Pipe::default()));
            let answer = Arc::new(Mutex::new(Answer::After(Duration::ZERO)));
            let server = Server { from: Reader::new(up.clone()), to: down.clone(), answer: answer.clone() };
            path.servers.send(server).map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
            let greetings = path.config.greetings;
            Ok(Client {
                path,
                connection,
                greetings,
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
    /// The next connection. Dropping the future loses none.
    ///
    /// # Errors
    /// `BrokenPipe` when the connector is gone and will make none.
    pub async fn accept(&self) -> io::Result<Server> {
        self.0.lock().await.recv().await.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

/// The client's stream. What is written leaves with a flush, as one attempt.
pub struct Client {
    path: Arc<Path>,
    connection: u64,
    greetings: u32,
    written: Vec<u8>,
    /// When the last attempt arrives.
    arrives: Option<Instant>,
    to: Arc<Pipe>,
    from: Reader,
    answer: Arc<Mutex<Answer>>,
}

impl Client {
    fn leave(&mut self, bytes: Vec<u8>) {
        let now = Instant::now();
        let fate = if 0 < self.greetings {
            self.greetings -= 1;
            Fate::after(Duration::ZERO)
        } else {
            let in_flight = {
                let mut given_up = lock(&self.path.given_up);
                given_up.retain(|&arrives| now < arrives);
                given_up.len()
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

impl AsyncWrite for Client {
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
            self.leave(bytes);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.from.poll_read(context, buffer)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(arrives) = self.arrives.filter(|&arrives| Instant::now() < arrives) {
            lock(&self.path.given_up).push(arrives);
        }
        self.to.close(self.path.config.delivers_late);
    }
}

/// The server's stream. Its answers fare as the law has said for the last attempt of the client.
pub struct Server {
    from: Reader,
    to: Arc<Pipe>,
    answer: Arc<Mutex<Answer>>,
}

impl AsyncWrite for Server {
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

impl AsyncRead for Server {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.from.poll_read(context, buffer)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.to.close(true);
    }
}
