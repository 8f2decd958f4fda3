//! Sources of connections: TCP, or closures.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::string::String;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::vec::Vec;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs, lookup_host};

/// Makes connections to one target. A closure that returns a future of a stream implements this
/// trait, too.
///
/// ```
/// use barograph_timeout::Adaptive;
/// use barograph_timeout::link::{Link, LinkConfig};
/// use tokio::net::TcpStream;
///
/// let connect = || TcpStream::connect("127.0.0.1:7000");
/// let link = Link::new(connect, LinkConfig::default(), Adaptive::default());
/// assert!(!link.is_connected(), "it connects with the first message");
/// ```
pub trait Connect: Send + Sync {
    /// Stream of a connection: ordered bytes in both directions.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send;

    /// Connects once. If the future is dropped, the connection attempt is cancelled. The caller
    /// limits the time.
    fn connect(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl<F, R, S> Connect for F
where
    F: Fn() -> R + Send + Sync,
    R: Future<Output = io::Result<S>> + Send,
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    type Stream = S;

    fn connect(&self) -> impl Future<Output = io::Result<S>> + Send {
        self()
    }
}

/// Accepts connections. A closure that returns a future of a stream implements this trait, too.
///
/// ```
/// use barograph_timeout::link::{ListenConfig, Listener};
/// # use barograph_timeout::Adaptive;
/// # use barograph_timeout::link::{Link, LinkConfig, Message};
/// # use std::io;
/// # use std::sync::Arc;
/// # use tokio::sync::{Mutex, mpsc};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (hand_over, streams) = mpsc::channel::<tokio::io::DuplexStream>(1);
/// # let streams = Arc::new(Mutex::new(streams));
/// # let connect = move || {
/// #     let hand_over = hand_over.clone();
/// #     async move {
/// #         let (ours, theirs) = tokio::io::duplex(4096);
/// #         hand_over.send(theirs).await.map_err(io::Error::other)?;
/// #         Ok::<_, io::Error>(ours)
/// #     }
/// # };
/// # let mut link = Link::new(connect, LinkConfig::default(), Adaptive::default());
///
/// // `streams` is a channel of streams in memory.
/// let accept = move || {
///     let streams = streams.clone();
///     async move {
///         let stream = streams.lock().await.recv().await;
///         stream.ok_or_else(|| io::Error::other("the channel is closed"))
///     }
/// };
/// let listener = Listener::new(accept, ListenConfig::default());
/// # let handler = |_: Message| async { Ok::<_, std::convert::Infallible>(()) };
/// # tokio::select! {
/// #     () = listener.serve(handler, std::future::pending()) => {}
/// #     receipt = link.send(b"hello") => assert_eq!(receipt?.attempts, 1),
/// # }
/// assert_eq!(listener.counters().connections, 1);
/// # Ok(())
/// # }
/// ```
pub trait Accept: Send + Sync {
    /// Stream of a connection: ordered bytes in both directions.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Returns the next connection. Dropping the future loses no connection.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl<F, R, S> Accept for F
where
    F: Fn() -> R + Send + Sync,
    R: Future<Output = io::Result<S>> + Send,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = S;

    fn accept(&self) -> impl Future<Output = io::Result<S>> + Send {
        self()
    }
}

/// Connects to `host:port` over TCP, with TCP_NODELAY, and with SO_KEEPALIVE at the system's
/// defaults.
///
/// All addresses of the host are tried one after another. The next connection first tries the
/// address that was successful, or, if connecting was abandoned, the address after the abandoned
/// address.
///
/// ```
/// use barograph_timeout::Adaptive;
/// use barograph_timeout::link::{Link, LinkConfig, Tcp};
///
/// let link = Link::new(Tcp::new("[::1]:7000"), LinkConfig::default(), Adaptive::default());
/// assert!(!link.is_connected(), "it connects with the first message");
/// ```
#[derive(Debug)]
pub struct Tcp {
    target: String,
    next: AtomicUsize,
}

impl Tcp {
    /// Creates a connector to `target`, which is `host:port`. An IPv6 address has brackets.
    #[must_use]
    pub fn new(target: impl Into<String>) -> Self {
        Self { target: target.into(), next: AtomicUsize::new(0) }
    }
}

impl Connect for Tcp {
    type Stream = TcpStream;

    async fn connect(&self) -> io::Result<TcpStream> {
        let addresses: Vec<SocketAddr> = lookup_host(&self.target).await?.take(ADDRESSES_MAX).collect();
        let first = self.next.load(Ordering::Relaxed);
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
        for turn in 0..addresses.len() {
            let index = first.wrapping_add(turn) % addresses.len();
            // An address that is abandoned while connecting must not be tried first again.
            self.next.store(index + 1, Ordering::Relaxed);
            match TcpStream::connect(addresses[index]).await {
                Ok(stream) => {
                    self.next.store(index, Ordering::Relaxed);
                    prepare(&stream)?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<TcpStream> {
        loop {
            let (stream, _) = TcpListener::accept(self).await?;
            // This error means that the peer has already closed the connection. The listener works,
            // so accept the next connection.
            if prepare(&stream).is_ok() {
                return Ok(stream);
            }
        }
    }
}

/// Listens on the first of `addresses` that is available.
pub(super) async fn listen(addresses: impl ToSocketAddrs) -> io::Result<TcpListener> {
    TcpListener::bind(addresses).await
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_keepalive(true)
}

/// Maximum number of addresses of a host name that are tried.
const ADDRESSES_MAX: usize = 16;
