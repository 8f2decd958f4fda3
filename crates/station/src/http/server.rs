//! Accepts connections and serves HTTP on them, within limits; one port for everything.

use std::net::{IpAddr, SocketAddr, TcpListener as StdListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::{Extension, Router};
use barograph_engine::TaskStatus;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::Backlog;
#[cfg(target_os = "linux")]
use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use super::peer::{Channel, Peer};
use crate::config::Config;
use crate::echo::Echo;
use crate::health::Health;
use crate::limits::Limit;
use crate::limits::connections::{Connections, Open, Progress};

/// A TCP listener, and a UDP socket of the same number where there is one.
pub(crate) struct Ports {
    pub(crate) tcp: StdListener,
    pub(crate) udp: Option<UdpSocket>,
    pub(crate) address: SocketAddr,
}

/// Binds TCP, then UDP on the same number; port 0 is tried again until both are free.
pub(crate) fn bind(listen: SocketAddr) -> std::io::Result<Ports> {
    allow_descriptors();
    for _ in 0..PORT_TRIES {
        let tcp = match StdListener::bind(listen) {
            // A host whose kernel has no IPv6: all its addresses are IPv4.
            Err(error) if listen.is_ipv6() && listen.ip().is_unspecified() && has_no_v6(&error) => {
                tracing::info!("this host has no IPv6; listening on 0.0.0.0:{}", listen.port());
                return bind(SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, listen.port())));
            }
            bound => bound?,
        };
        let address = tcp.local_addr()?;
        // In a burst of connections those that find no place in the queue come a second later.
        if let Ok(backlog) = Backlog::new(BACKLOG) {
            let _ = nix::sys::socket::listen(&tcp, backlog);
        }
        match UdpSocket::bind(address) {
            Ok(udp) => return Ok(Ports { tcp, udp: Some(udp), address }),
            Err(_) if listen.port() == 0 => {}
            Err(error) => {
                tracing::warn!("no UDP port {address}: {error}; datagram probes are declined");
                return Ok(Ports { tcp, udp: None, address });
            }
        }
    }
    Err(std::io::Error::other("no port is free for both TCP and UDP"))
}

/// Takes as many file descriptors as the system allows without asking: usual are 1024, of which each connection
/// needs one.
fn allow_descriptors() {
    if let Ok((now, most)) = getrlimit(Resource::RLIMIT_NOFILE)
        && now < most
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, most, most)
    {
        tracing::debug!("no more than {now} file descriptors: {error}");
    }
}

/// File descriptors that this process may have; `None` = the system does not say.
pub(crate) fn descriptors_max() -> Option<usize> {
    getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(now, _)| usize::try_from(now).unwrap_or(usize::MAX))
}

/// How many connections are admitted: as many as is set, if the file descriptors for them and for
/// all else are there.
pub(crate) fn connections_max(config: &Config) -> usize {
    let wanted = config.connections_max;
    let Some(descriptors) = descriptors_max() else { return wanted };
    let max = wanted.min(affordable(descriptors, config.echo.sessions_max + 2 * config.workers_max));
    if max < wanted {
        tracing::warn!(
            "{max} connections are admitted, not {wanted} (limits.connections_max): this process may have \
             {descriptors} file descriptors (ulimit -n, LimitNOFILE of systemd)"
        );
    }
    max
}

/// Connections for which there are descriptors beside `others` and those that a station needs in
/// any case.
fn affordable(descriptors: usize, others: usize) -> usize {
    // Where there are very few, some of everything is better than no page.
    let at_least = usize::max(1, descriptors / 4);
    descriptors.saturating_sub(DESCRIPTORS_KEPT + others).max(at_least)
}

fn has_no_v6(error: &std::io::Error) -> bool {
    use nix::errno::Errno;
    let of = |errno: Errno| error.raw_os_error() == Some(errno as i32);
    of(Errno::EAFNOSUPPORT) || of(Errno::EADDRNOTAVAIL)
}

/// What a server works with.
pub(crate) struct Server {
    pub(crate) router: Router,
    pub(crate) health: Arc<Health>,
    /// Of the loop that accepts connections.
    pub(crate) task: Arc<TaskStatus>,
    pub(crate) connections: Connections,
    /// Its sessions are waited for too.
    pub(crate) echo: Arc<Echo>,
    /// Where the certificates are found at each connection; `None` = plain HTTP.
    pub(crate) tls: Option<watch::Receiver<Arc<rustls::ServerConfig>>>,
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Server {
    /// Serves until told to stop, then gives running answers a moment to end.
    pub(crate) async fn run(self, listener: TcpListener) {
        self.task.restart(|| self.accept(&listener)).await;
        let ended = async {
            self.connections.ended().await;
            self.echo.ended().await;
        };
        let _ = tokio::time::timeout(LINGER, ended).await;
    }

    /// Accepts connections until told to stop.
    async fn accept(&self, listener: &TcpListener) {
        let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
        let mut stopping = self.stopping.clone();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stopping.wait_for(|stopping| *stopping) => break,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, or the peer is gone already; do not spin.
                    tracing::debug!("a connection was not accepted: {error}");
                    if is_out_of_descriptors(&error) {
                        self.health.refused(Limit::Descriptors, 1);
                        if self.connections.shed_one() {
                            self.health.shed();
                        }
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Ok(own) = stream.local_addr() else { continue };
            let peer = Peer { address, own: own.ip(), channel: Channel::Plain };
            match self.connections.accept(address.ip(), peer.is_here()) {
                Ok((open, has_shed)) => {
                    if has_shed {
                        self.health.shed();
                    }
                    let connection = Connection {
                        router: self.router.clone(),
                        peer,
                        tls: self.tls.as_ref().map(|tls| Arc::clone(&tls.borrow())),
                        stopping: self.stopping.clone(),
                        open: Arc::clone(&open),
                    };
                    tokio::spawn(async move {
                        tokio::select! {
                            () = connection.serve(stream) => {}
                            () = open.says_nothing() => {}
                            () = open.is_shed() => {}
                            () = open.reads_too_slowly() => {
                                tracing::debug!("{address} reads its answer too slowly");
                            }
                        }
                    });
                }
                Err(full) => {
                    self.health.connections_refused.fetch_add(1, Ordering::Relaxed);
                    self.health.refused(Limit::of_seats(full, Limit::Connections), 1);
                    // Beyond, or with TLS, closing must do: telling costs a descriptor for a moment.
                    if let (Ok(turn), None) = (Arc::clone(&refusals).try_acquire_owned(), &self.tls) {
                        tokio::spawn(async move {
                            let _ = tokio::time::timeout(REFUSAL_TIMEOUT, refuse(stream)).await;
                            drop(turn);
                        });
                    }
                }
            }
        }
    }
}

fn is_out_of_descriptors(error: &std::io::Error) -> bool {
    use nix::errno::Errno;
    [Errno::EMFILE, Errno::ENFILE].iter().any(|errno| error.raw_os_error() == Some(*errno as i32))
}

struct Connection {
    router: Router,
    peer: Peer,
    tls: Option<Arc<rustls::ServerConfig>>,
    stopping: watch::Receiver<bool>,
    open: Arc<Open>,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let peer = |channel| Peer { channel, ..self.peer };
        // A peer that takes nothing is cut off, also in the middle of an answer (RFC 5482).
        #[cfg(target_os = "linux")]
        let _ = setsockopt(&stream, sockopt::TcpUserTimeout, &USER_TIMEOUT_MS);
        let Some(tls) = self.tls.clone() else {
            let peer = peer(Channel::Plain);
            return self.serve_http(stream, peer).await;
        };
        match tokio::time::timeout(HEADER_TIMEOUT, first_byte(&stream)).await {
            Ok(Some(TLS_HANDSHAKE)) => {
                let handshake = TlsAcceptor::from(tls).accept(stream);
                if let Ok(Ok(stream)) = tokio::time::timeout(HEADER_TIMEOUT, handshake).await {
                    let peer = peer(Channel::Tls);
                    self.serve_http(stream, peer).await;
                }
            }
            Ok(Some(_)) => {
                let peer = peer(Channel::PlainBesideTls);
                self.serve_http(stream, peer).await;
            }
            Ok(None) | Err(_) => {}
        }
    }

    async fn serve_http<S>(mut self, stream: S, peer: Peer)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = TowerToHyperService::new(
            self.router.layer(Extension(peer)).layer(Extension(Arc::clone(&self.open))),
        );
        let mut connection = std::pin::pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .max_headers(HEADERS_MAX)
                .max_buf_size(HEAD_BYTES_MAX)
                .serve_connection(TokioIo::new(Progress::new(stream, Arc::clone(&self.open))), service)
                .with_upgrades()
        );
        let finished = tokio::select! {
            result = connection.as_mut() => Some(result),
            // The guard that `wait_for` gives must not live on: it is bound to this thread.
            () = async { drop(self.stopping.wait_for(|stopping| *stopping).await) } => None,
        };
        let result = match finished {
            Some(result) => result,
            None => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = result {
            tracing::debug!("connection of {} ended: {error}", peer.address);
        }
    }
}

/// Looks at the first byte without taking it.
async fn first_byte(stream: &TcpStream) -> Option<u8> {
    let mut byte = [0];
    match stream.peek(&mut byte).await {
        Ok(1) => Some(byte[0]),
        _ => None,
    }
}

/// One sentence for the peer. What it sends is taken until it closes: closing first would make the system
/// answer with a reset, which takes the sentence away from it (RFC 9112 §9.6).
async fn refuse(mut stream: TcpStream) {
    const BODY: &str = "{\"error\":\"too many connections are open (limits.connections_max)\"}";
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Retry-After: 5\r\nConnection: close\r\n\r\n{BODY}",
        BODY.len()
    );
    if stream.write_all(answer.as_bytes()).await.is_err() || stream.shutdown().await.is_err() {
        return;
    }
    let mut rest = [0; 4096];
    while let Ok(1..) = stream.read(&mut rest).await {}
}

/// Where a client on this host reaches a listener.
pub(crate) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        // Where IPv6 is switched off, `[::]` may be had and `[::1]` not.
        IpAddr::V6(ip) if ip.is_unspecified() && UdpSocket::bind((LOOPBACK_V6, 0)).is_ok() => {
            LOOPBACK_V6.into()
        }
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

const LOOPBACK_V6: std::net::Ipv6Addr = std::net::Ipv6Addr::LOCALHOST;
/// The first byte of a TLS connection: content type handshake (RFC 8446 §5.1).
const TLS_HANDSHAKE: u8 = 0x16;
/// A request's head must arrive within this time, and the next one on an idle connection too.
const HEADER_TIMEOUT: Duration = Duration::from_secs(20);
/// Many times what a browser sends.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;
/// Data that a peer does not take for so long ends the connection.
#[cfg(target_os = "linux")]
const USER_TIMEOUT_MS: u32 = 30_000;
/// How long running answers may take when the station stops.
const LINGER: Duration = Duration::from_secs(1);
/// Refused connections that are told why at once, and how long each may take.
const REFUSALS_MAX: usize = 64;
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// After a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// For the archive, listeners, refusals that are told, probe sessions of others, and connections of
/// a member to its mesh.
const DESCRIPTORS_KEPT: usize = 64 + REFUSALS_MAX + 64;
/// Connections that wait for being accepted; the system may allow fewer.
const BACKLOG: i32 = 1024;
/// Tries to find a number that is free for TCP and UDP.
const PORT_TRIES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_all_else() {
        assert_eq!(affordable(524_288, 320), 524_288 - 512);
        assert_eq!(affordable(1024, 320), 512);
        assert_eq!(affordable(256, 320), 64, "a quarter at least");
        assert_eq!(affordable(2, 320), 1);
    }
}
