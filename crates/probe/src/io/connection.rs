//! The byte stream of a session or a response: plain TCP or TLS on it, under one clock.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustls::{ClientConnection, ServerConnection, StreamOwned};

use super::clock::{Clock, TICK};

/// The raw stream of a connection that was upgraded to `barograph-probe/1`.
#[derive(Debug)]
pub enum Upgraded {
    /// A plain connection.
    Plain(TcpStream),
    /// TLS, after its handshake: the connection's state and the socket beneath.
    Tls(Box<ServerConnection>, TcpStream),
}

/// Either, with its deadline beneath: TLS cannot wait past the clock either.
#[derive(Debug)]
pub(super) enum Connection {
    Plain(Clocked),
    Client(Box<StreamOwned<ClientConnection, Clocked>>),
    Server(Box<StreamOwned<ServerConnection, Clocked>>),
}

impl Connection {
    pub(super) fn plain(tcp: TcpStream, clock: &Clock) -> io::Result<Self> {
        Ok(Self::Plain(Clocked::new(tcp, clock.clone(), None)?))
    }

    /// TLS to the server that `connection` was made for; the handshake is done when this returns.
    pub(super) fn client(tcp: TcpStream, connection: ClientConnection, clock: &Clock) -> io::Result<Self> {
        let mut stream = StreamOwned::new(connection, Clocked::new(tcp, clock.clone(), None)?);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self::Client(Box::new(stream)))
    }

    pub(super) fn server(upgraded: Upgraded, clock: &Clock, idle: Duration) -> io::Result<Self> {
        Ok(match upgraded {
            Upgraded::Plain(tcp) => Self::Plain(Clocked::new(tcp, clock.clone(), Some(idle))?),
            Upgraded::Tls(connection, tcp) => {
                let clocked = Clocked::new(tcp, clock.clone(), Some(idle))?;
                Self::Server(Box::new(StreamOwned::new(*connection, clocked)))
            }
        })
    }

    /// The connection beneath, for its options and its `TCP_INFO`.
    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(clocked) => &clocked.tcp,
            Self::Client(stream) => &stream.sock.tcp,
            Self::Server(stream) => &stream.sock.tcp,
        }
    }

    /// How long the peer may be silent from now on; a session through TLS keeps what it has.
    pub(super) fn set_idle(&mut self, idle: Duration) {
        if let Self::Plain(clocked) = self {
            clocked.set_idle(idle);
        }
    }

    pub(super) fn is_tls(&self) -> bool {
        !matches!(self, Self::Plain(_))
    }

    /// Reads one frame of `N` bytes.
    pub(super) fn read_frame<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut frame = [0; N];
        self.read_exact(&mut frame)?;
        Ok(frame)
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(clocked) => clocked.read(buffer),
            Self::Client(stream) => stream.read(buffer),
            Self::Server(stream) => stream.read(buffer),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(clocked) => clocked.write(bytes),
            Self::Client(stream) => stream.write(bytes),
            Self::Server(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(clocked) => clocked.flush(),
            Self::Client(stream) => stream.flush(),
            Self::Server(stream) => stream.flush(),
        }
    }
}

/// A TCP stream whose every call ends with the clock, and at the latest after `idle` without a byte.
#[derive(Debug)]
pub(super) struct Clocked {
    tcp: TcpStream,
    clock: Clock,
    idle: Option<Duration>,
}

impl Clocked {
    /// Takes the stream over: blocking, with Nagle's algorithm off.
    fn new(tcp: TcpStream, clock: Clock, idle: Option<Duration>) -> io::Result<Self> {
        tcp.set_nonblocking(false)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(TICK))?;
        tcp.set_write_timeout(Some(TICK))?;
        Ok(Self { tcp, clock, idle })
    }

    /// Allows another silence from now on.
    fn set_idle(&mut self, idle: Duration) {
        self.idle = Some(idle);
    }

    /// Repeats `call` until it does something. The clock is looked at before every call, so that
    /// a peer that sends byte by byte for ever is ended too.
    fn until_done(&mut self, mut call: impl FnMut(&mut TcpStream) -> io::Result<usize>) -> io::Result<usize> {
        let mut waited = Duration::ZERO;
        loop {
            self.clock.left()?;
            match call(&mut self.tcp) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    waited += TICK;
                    if self.idle.is_some_and(|idle| idle <= waited) {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    self.shorten_last_tick()?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// The last wait before the deadline is as short as what is left.
    fn shorten_last_tick(&self) -> io::Result<()> {
        let tick = self.clock.tick()?;
        if tick < TICK {
            self.tcp.set_read_timeout(Some(tick))?;
            self.tcp.set_write_timeout(Some(tick))?;
        }
        Ok(())
    }
}

impl Read for Clocked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.until_done(|tcp| tcp.read(buffer))
    }
}

impl Write for Clocked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.until_done(|tcp| tcp.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
