//! A minimal page: opens sessions and speaks the protocol, with a limit for every wait.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use barograph_probe::wire::{BulkSummary, DeclineReason, Reply, Request};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Request as Handshake;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{Error, Message, WebSocket, client};

use crate::LIMIT;
use crate::http::connect;

/// The client end of a session, as in a page.
pub(crate) struct Page<S = TcpStream> {
    pub(crate) socket: WebSocket<S>,
}

/// The handshake that a browser sends for a page.
pub(crate) fn handshake(address: SocketAddr, origin: Option<&str>) -> Handshake {
    let mut request = format!("ws://{address}/v1/echo").into_client_request().unwrap();
    let headers = request.headers_mut();
    headers.insert("sec-websocket-protocol", HeaderValue::from_static("barograph-probe.1"));
    if let Some(origin) = origin {
        headers.insert("origin", HeaderValue::from_str(origin).unwrap());
    }
    request
}

/// Connects from another address of this host.
fn connect_from(address: SocketAddr, own: Ipv4Addr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((own, 0)).into()).unwrap();
    socket.connect_timeout(&address.into(), LIMIT).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket.into()
}

impl Page {
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::try_open(address, None).unwrap()
    }

    /// Opens a session, or returns the status of the refusal.
    pub(crate) fn try_open(address: SocketAddr, origin: Option<&str>) -> Result<Self, u16> {
        Self::over(connect(address), address, origin)
    }

    /// Opens a session from another address of this host.
    pub(crate) fn open_from(address: SocketAddr, own: Ipv4Addr) -> Result<Self, u16> {
        Self::over(connect_from(address, own), address, None)
    }

    /// Opens a session from another address of this host, with a header that proxies add.
    pub(crate) fn open_forwarded(address: SocketAddr, own: Ipv4Addr) -> Self {
        let mut request = handshake(address, None);
        request.headers_mut().insert("x-forwarded-for", HeaderValue::from_static("192.0.2.1"));
        let stream = connect_from(address, own);
        stream.set_nodelay(true).unwrap();
        Self { socket: client(request, stream).unwrap().0 }
    }

    fn over(stream: TcpStream, address: SocketAddr, origin: Option<&str>) -> Result<Self, u16> {
        stream.set_nodelay(true).unwrap();
        Self::through(stream, address, origin)
    }
}

impl<S: Read + Write> Page<S> {
    /// Makes the handshake on any stream.
    pub(crate) fn through(stream: S, address: SocketAddr, origin: Option<&str>) -> Result<Self, u16> {
        match client(handshake(address, origin), stream) {
            Ok((socket, answer)) => {
                assert_eq!(answer.headers()["sec-websocket-protocol"], "barograph-probe.1");
                assert!(!answer.headers().contains_key("sec-websocket-extensions"), "nothing is compressed");
                Ok(Self { socket })
            }
            Err(tokio_tungstenite::tungstenite::HandshakeError::Failure(Error::Http(answer))) => {
                Err(answer.status().as_u16())
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.socket.send(Message::binary(bytes.to_vec())).unwrap();
    }

    /// Returns the next binary message.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        loop {
            match self.socket.read().unwrap() {
                Message::Binary(bytes) => return bytes.to_vec(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Reads until the station closes; returns the code of its close frame.
    pub(crate) fn closed(&mut self) -> Option<u16> {
        let mut code = None;
        loop {
            match self.socket.read() {
                Ok(Message::Close(frame)) => code = frame.map(|frame| frame.code.into()),
                Ok(_) => {}
                Err(_) => return code,
            }
        }
    }

    pub(crate) fn request(&mut self, request: Request) -> Result<(), DeclineReason> {
        self.send(&request.encode());
        match Reply::decode(&self.take()).unwrap() {
            Reply::Ready { nonce } => {
                assert_eq!(nonce, 0);
                Ok(())
            }
            Reply::Declined(declined) => Err(declined),
        }
    }

    /// Makes `n` round-trip exchanges.
    pub(crate) fn rtt(&mut self, n: u32) -> Result<(), DeclineReason> {
        self.request(Request::Rtt { n })?;
        for i in 0..n {
            let exchange = u16::try_from(i).unwrap().to_be_bytes();
            self.send(&exchange);
            assert_eq!(self.take(), exchange);
        }
        Ok(())
    }

    pub(crate) fn up(&mut self, bytes: usize) -> Result<BulkSummary, DeclineReason> {
        self.request(Request::Goodput { direction: barograph_probe::Direction::Up, bytes: bytes as u64 })?;
        let block = vec![0x5A; 64 * 1024];
        let mut left = bytes;
        while left > 0 {
            let length = left.min(block.len());
            self.socket.write(Message::binary(block[..length].to_vec())).unwrap();
            left -= length;
        }
        self.socket.flush().unwrap();
        Ok(BulkSummary::decode(&self.take()).unwrap())
    }

    /// Receives a transfer; returns the received bytes and the station's report.
    pub(crate) fn down(&mut self, bytes: usize) -> Result<(usize, BulkSummary), DeclineReason> {
        self.request(Request::Goodput { direction: barograph_probe::Direction::Down, bytes: bytes as u64 })?;
        self.send(&[0, 0]);
        let mut came = 0;
        while came < bytes {
            came += self.take().len();
        }
        Ok((came, BulkSummary::decode(&self.take()).unwrap()))
    }
}
