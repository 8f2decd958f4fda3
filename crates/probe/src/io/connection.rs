//! The byte stream of a session or a response: plain TCP or TLS on it, under one clock.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustls::{ClientConnection, ServerConnection, StreamOwned};

use super::clock::{Clock, Clocked};

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
