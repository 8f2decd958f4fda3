//! Where connections come from: TCP, or whatever a closure makes.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::string::String;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::vec::Vec;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs, lookup_host};

/// Makes connections to one target. Closures that return a future of a stream do, too.
pub trait Connect: Send + Sync {
    /// A connection: bytes in order, both ways.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send;

    /// Connects once. Dropping the future gives up; there is no need for a timer in it.
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

/// Takes connections. Closures that return a future of a stream do, too.
pub trait Accept: Send + Sync {
    /// A connection: bytes in order, both ways.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection. Dropping the future loses none.
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

/// Connects to `host:port` over TCP, without delay of small segments (TCP_NODELAY) and with SO_KEEPALIVE at
/// the system's defaults. All addresses of the host are tried in turn, and the next connection begins with
/// the one that worked, or after the one that was given up.
#[derive(Debug)]
pub struct Tcp {
    target: String,
    next: AtomicUsize,
}

impl Tcp {
    /// `target` is `host:port`; an IPv6 address stands in brackets.
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
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for turn in 0..addresses.len() {
            let index = first.wrapping_add(turn) % addresses.len();
            // Whoever is given up while connecting must not be the first to be tried again.
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
            // A peer that is gone already is no fault of the listener: on to the next.
            if prepare(&stream).is_ok() {
                return Ok(stream);
            }
        }
    }
}

/// Listens on the first of `addresses` that can be had.
pub(super) async fn listen(addresses: impl ToSocketAddrs) -> io::Result<TcpListener> {
    TcpListener::bind(addresses).await
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_keepalive(true)
}

/// A name with more addresses than anyone can wait for is cut short.
const ADDRESSES_MAX: usize = 16;
