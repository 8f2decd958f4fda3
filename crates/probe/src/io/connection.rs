//! Byte stream of a session or a response: TCP, or TLS over TCP, with a deadline.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustls::{ClientConnection, ServerConnection, StreamOwned};

use super::deadline::{Deadline, POLL_INTERVAL};

/// The raw stream of a connection after its Upgrade to `barograph-probe/1`.
#[derive(Debug)]
pub enum Upgraded {
    /// A connection without TLS.
    Plain(TcpStream),
    /// TLS after its handshake: the connection's state and its socket.
    Tls(Box<ServerConnection>, TcpStream),
}

/// TCP or TLS over TCP. The deadline applies to the TCP stream, so TLS cannot block past it.
#[derive(Debug)]
pub(super) enum Connection {
    Plain(DeadlineStream),
    Client(Box<StreamOwned<ClientConnection, DeadlineStream>>),
    Server(Box<StreamOwned<ServerConnection, DeadlineStream>>),
}

impl Connection {
    pub(super) fn plain(tcp: TcpStream, deadline: &Deadline) -> io::Result<Self> {
        Ok(Self::Plain(DeadlineStream::new(tcp, deadline.clone(), None)?))
    }

    /// Connects as a TLS client; the handshake is complete when this function returns.
    pub(super) fn client(
        tcp: TcpStream,
        connection: ClientConnection,
        deadline: &Deadline,
    ) -> io::Result<Self> {
        let mut stream = StreamOwned::new(connection, DeadlineStream::new(tcp, deadline.clone(), None)?);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self::Client(Box::new(stream)))
    }

    pub(super) fn server(upgraded: Upgraded, deadline: &Deadline, idle: Duration) -> io::Result<Self> {
        Ok(match upgraded {
            Upgraded::Plain(tcp) => Self::Plain(DeadlineStream::new(tcp, deadline.clone(), Some(idle))?),
            Upgraded::Tls(connection, tcp) => {
                let stream = DeadlineStream::new(tcp, deadline.clone(), Some(idle))?;
                Self::Server(Box::new(StreamOwned::new(*connection, stream)))
            }
        })
    }

    /// The TCP stream, for socket options and `TCP_INFO`.
    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => &stream.tcp,
            Self::Client(stream) => &stream.sock.tcp,
            Self::Server(stream) => &stream.sock.tcp,
        }
    }

    /// Sets how long the peer may be silent from now on. A TLS session keeps its earlier limit.
    pub(super) fn set_idle(&mut self, idle: Duration) {
        if let Self::Plain(stream) = self {
            stream.set_idle(idle);
        }
    }

    pub(super) fn is_tls(&self) -> bool {
        !matches!(self, Self::Plain(_))
    }

    /// Reads a frame of exactly `N` bytes.
    pub(super) fn read_frame<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut frame = [0; N];
        self.read_exact(&mut frame)?;
        Ok(frame)
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Client(stream) => stream.read(buffer),
            Self::Server(stream) => stream.read(buffer),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Client(stream) => stream.write(bytes),
            Self::Server(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Client(stream) => stream.flush(),
            Self::Server(stream) => stream.flush(),
        }
    }
}

/// A TCP stream on which every call ends at the deadline, and after `idle` without a byte.
#[derive(Debug)]
pub(super) struct DeadlineStream {
    tcp: TcpStream,
    deadline: Deadline,
    idle: Option<Duration>,
}

impl DeadlineStream {
    /// Wraps the stream: blocking, with Nagle's algorithm off.
    fn new(tcp: TcpStream, deadline: Deadline, idle: Option<Duration>) -> io::Result<Self> {
        tcp.set_nonblocking(false)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(POLL_INTERVAL))?;
        tcp.set_write_timeout(Some(POLL_INTERVAL))?;
        Ok(Self { tcp, deadline, idle })
    }

    /// Changes the maximum time of silence.
    fn set_idle(&mut self, idle: Duration) {
        self.idle = Some(idle);
    }

    /// Repeats `call` while it would block or is interrupted; returns any other result. The
    /// function checks the deadline before every call, so that a peer that sends single bytes
    /// forever is stopped too.
    fn until_done(&mut self, mut call: impl FnMut(&mut TcpStream) -> io::Result<usize>) -> io::Result<usize> {
        let mut waited = Duration::ZERO;
        loop {
            self.deadline.left()?;
            match call(&mut self.tcp) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    waited += POLL_INTERVAL;
                    if self.idle.is_some_and(|idle| idle <= waited) {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    self.shorten_last_wait()?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// Shortens the last wait before the deadline to the remaining time.
    fn shorten_last_wait(&self) -> io::Result<()> {
        let wait = self.deadline.poll_timeout()?;
        if wait < POLL_INTERVAL {
            self.tcp.set_read_timeout(Some(wait))?;
            self.tcp.set_write_timeout(Some(wait))?;
        }
        Ok(())
    }
}

impl Read for DeadlineStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.until_done(|tcp| tcp.read(buffer))
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.until_done(|tcp| tcp.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
