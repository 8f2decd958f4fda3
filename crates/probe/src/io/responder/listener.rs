//! A responder with its own minimal HTTP server.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Responder, ResponderLimits};
use crate::io::connection::{Connection, Upgraded};
use crate::io::deadline::{CancellationToken, POLL_INTERVAL};
use crate::io::http;
use crate::wire;

/// A responder with its own minimal HTTP server, for tests, benchmarks and a far end without a
/// station. The listener admits every client within the limits, and answers only the Upgrade.
///
/// Dropping the listener ends its sessions and joins its threads.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    responder: Arc<Responder>,
    stop: CancellationToken,
    accepting: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens on `address`, with TCP and UDP on the same port. With port 0, the system chooses the
    /// port.
    ///
    /// # Errors
    /// If the port is in use or the threads cannot be started.
    pub fn start(address: SocketAddr, limits: ResponderLimits) -> io::Result<Self> {
        let (tcp, udp) = bind(address)?;
        let address = tcp.local_addr()?;
        tcp.set_nonblocking(true)?;
        let responder = Arc::new(Responder::start(limits, Some(udp))?);
        let stop = CancellationToken::default();
        let accepting = thread::Builder::new().name("probe-accept".to_string()).spawn({
            let (responder, stop) = (Arc::clone(&responder), stop.clone());
            move || accept(&tcp, &responder, &stop)
        })?;
        Ok(Self { address, responder, stop, accepting: Some(accepting) })
    }

    /// Address and port on which the listener listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The responder that serves the sessions.
    #[must_use]
    pub fn responder(&self) -> &Responder {
        &self.responder
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(accepting) = self.accepting.take() {
            // After this join, the field `responder` is the last `Arc`, so dropping the field joins
            // the responder's own threads.
            let _ = accepting.join();
        }
    }
}

/// Binds TCP and UDP to the same port. If the port that the system chose for TCP is in use for UDP,
/// the function tries again with a different port.
fn bind(address: SocketAddr) -> io::Result<(TcpListener, UdpSocket)> {
    const ATTEMPTS: u32 = 16;
    let mut attempt = 1;
    loop {
        let tcp = TcpListener::bind(address)?;
        match UdpSocket::bind(tcp.local_addr()?) {
            Ok(udp) => return Ok((tcp, udp)),
            Err(error) if address.port() != 0 || attempt == ATTEMPTS => return Err(error),
            Err(_) => attempt += 1,
        }
    }
}

fn accept(tcp: &TcpListener, responder: &Responder, stop: &CancellationToken) {
    let timeout = PollTimeout::try_from(POLL_INTERVAL).unwrap_or(PollTimeout::MAX);
    while !stop.is_cancelled() {
        // Ignore errors of `poll`: `accept` reports them.
        let _ = poll(&mut [PollFd::new(tcp.as_fd(), PollFlags::POLLIN)], timeout);
        match tcp.accept() {
            Ok((stream, peer)) => {
                // Above the limits, close the connection without a reply, so that the connection
                // costs nothing.
                if let Ok(slot) = responder.admit(peer.ip()) {
                    let _ = slot.serve_after(Upgraded::Plain(stream), upgrade);
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            // No descriptor is free; wait until open connections have ended.
            Err(_) => thread::sleep(POLL_INTERVAL),
        }
    }
}

/// Reads the request and answers it; returns whether the connection is a probe session now.
fn upgrade(connection: &mut Connection) -> io::Result<bool> {
    let (head, rest) = http::read_head(connection, http::parse_request, || ())?;
    let is_upgrade = head.path == wire::PATH && head.upgrade.as_deref().is_some_and(http::names_probe);
    let answer = if is_upgrade && rest.is_empty() {
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {}\r\n\r\n",
            wire::UPGRADE
        )
    } else {
        "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_string()
    };
    connection.write_all(answer.as_bytes())?;
    Ok(is_upgrade && rest.is_empty())
}
