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

use super::remote_end::{Encryption, RemoteEnd};
use crate::config::Config;
use crate::echo::Echo;
use crate::health::Health;
use crate::limits::Limit;
use crate::limits::connections::{ConnectionGuard, Connections, ProgressStream};

/// A TCP listener, and a UDP socket with the same port number if one could be bound.
pub(crate) struct Ports {
    pub(crate) tcp: StdListener,
    pub(crate) udp: Option<UdpSocket>,
    pub(crate) address: SocketAddr,
}

/// Binds a TCP port, then the UDP port with the same number. For port 0, retries until one number
/// is free for both.
pub(crate) fn bind(listen: SocketAddr) -> std::io::Result<Ports> {
    allow_descriptors();
    for _ in 0..PORT_TRIES {
        let tcp = match StdListener::bind(listen) {
            // If the kernel has no IPv6, listen on all IPv4 addresses instead.
            Err(error) if listen.is_ipv6() && listen.ip().is_unspecified() && has_no_v6(&error) => {
                tracing::info!("this host has no IPv6; listening on 0.0.0.0:{}", listen.port());
                return bind(SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, listen.port())));
            }
            bound => bound?,
        };
        let address = tcp.local_addr()?;
        // Use a long queue of connections to accept: if it is full during a burst, clients retry
        // only a second later.
        if let Ok(backlog) = Backlog::new(BACKLOG) {
            let _ = nix::sys::socket::listen(&tcp, backlog);
        }
        match UdpSocket::bind(address) {
            Ok(udp) => return Ok(Ports { tcp, udp: Some(udp), address }),
            Err(_) if listen.port() == 0 => {}
            Err(error) => {
                tracing::warn!("cannot bind UDP {address}: {error}; datagram probes are declined");
                return Ok(Ports { tcp, udp: None, address });
            }
        }
    }
    Err(std::io::Error::other("no port is free for both TCP and UDP"))
}

/// Raises the number of file descriptors to the hard limit. The usual soft limit is 1024, and each
/// connection needs one descriptor.
fn allow_descriptors() {
    if let Ok((now, most)) = getrlimit(Resource::RLIMIT_NOFILE)
        && now < most
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, most, most)
    {
        tracing::debug!("cannot raise the limit of file descriptors above {now}: {error}");
    }
}

/// Maximum number of file descriptors of this process; `None` if the system does not report it.
pub(crate) fn descriptors_max() -> Option<usize> {
    getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(now, _)| usize::try_from(now).unwrap_or(usize::MAX))
}

/// Maximum number of connections to admit: the configured number, or fewer if there are not enough
/// file descriptors.
pub(crate) fn connections_max(config: &Config) -> usize {
    let wanted = config.connections_max;
    let Some(descriptors) = descriptors_max() else { return wanted };
    let max = wanted.min(affordable(descriptors, config.echo.sessions_max + 2 * config.workers_max));
    if max < wanted {
        tracing::warn!(
            "only {max} of {wanted} connections (limits.connections_max) are admitted, because of {descriptors} \
             file descriptors; raise ulimit -n (systemd: LimitNOFILE)"
        );
    }
    max
}

/// Number of connections for which descriptors remain. The station always needs
/// [`DESCRIPTORS_KEPT`] descriptors, and `others` more for other uses.
fn affordable(descriptors: usize, others: usize) -> usize {
    // With very few descriptors, some connections must still be possible.
    let at_least = usize::max(1, descriptors / 4);
    descriptors.saturating_sub(DESCRIPTORS_KEPT + others).max(at_least)
}

fn has_no_v6(error: &std::io::Error) -> bool {
    use nix::errno::Errno;
    let of = |errno: Errno| error.raw_os_error() == Some(errno as i32);
    of(Errno::EAFNOSUPPORT) || of(Errno::EADDRNOTAVAIL)
}

/// Parts of the station that the server uses.
pub(crate) struct Server {
    pub(crate) router: Router,
    pub(crate) health: Arc<Health>,
    /// State of the loop that accepts connections.
    pub(crate) task: Arc<TaskStatus>,
    pub(crate) connections: Connections,
    /// Echo sessions. [`Server::run`] waits until all of them have ended.
    pub(crate) echo: Arc<Echo>,
    /// Current certificates, read at each connection; `None` for plain HTTP.
    pub(crate) tls: Option<watch::Receiver<Arc<rustls::ServerConfig>>>,
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Server {
    /// Serves until `stopping`, then waits up to [`LINGER`] for running responses.
    pub(crate) async fn run(self, listener: TcpListener) {
        self.task.restart(|| self.accept(&listener)).await;
        let ended = async {
            self.connections.wait_until_empty().await;
            self.echo.ended().await;
        };
        let _ = tokio::time::timeout(LINGER, ended).await;
    }

    /// Accepts connections until `stopping`.
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
                    // No descriptor left, or the peer has closed: wait before the next accept.
                    tracing::debug!("cannot accept a connection: {error}");
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
            let Ok(local) = stream.local_addr() else { continue };
            let remote = RemoteEnd { address, local_ip: local.ip(), encryption: Encryption::Plain };
            match self.connections.accept(address.ip(), remote.is_same_host()) {
                Ok((guard, has_shed)) => {
                    if has_shed {
                        self.health.shed();
                    }
                    let connection = Connection {
                        router: self.router.clone(),
                        remote,
                        tls: self.tls.as_ref().map(|tls| Arc::clone(&tls.borrow())),
                        stopping: self.stopping.clone(),
                        guard: Arc::clone(&guard),
                    };
                    tokio::spawn(async move {
                        tokio::select! {
                            () = connection.serve(stream) => {}
                            () = guard.head_timeout() => {}
                            () = guard.shed() => {}
                            () = guard.read_timeout() => {
                                tracing::debug!("{address} reads its response too slowly");
                            }
                        }
                    });
                }
                Err(full) => {
                    self.health.connections_refused.fetch_add(1, Ordering::Relaxed);
                    self.health.refused(Limit::from_full(full, Limit::Connections), 1);
                    // If too many refusals are in progress, or with TLS, drop the connection
                    // without a response: a response occupies a descriptor for a moment.
                    if let (Ok(permit), None) = (Arc::clone(&refusals).try_acquire_owned(), &self.tls) {
                        tokio::spawn(async move {
                            let _ = tokio::time::timeout(REFUSAL_TIMEOUT, refuse(stream)).await;
                            drop(permit);
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
    remote: RemoteEnd,
    tls: Option<Arc<rustls::ServerConfig>>,
    stopping: watch::Receiver<bool>,
    guard: Arc<ConnectionGuard>,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let remote = |encryption| RemoteEnd { encryption, ..self.remote };
        // Close the connection of a peer that does not acknowledge data, also in the middle of a
        // response (RFC 5482).
        #[cfg(target_os = "linux")]
        let _ = setsockopt(&stream, sockopt::TcpUserTimeout, &USER_TIMEOUT_MS);
        let Some(tls) = self.tls.clone() else {
            let remote = remote(Encryption::Plain);
            return self.serve_http(stream, remote).await;
        };
        match tokio::time::timeout(HEADER_TIMEOUT, first_byte(&stream)).await {
            Ok(Some(TLS_HANDSHAKE)) => {
                let handshake = TlsAcceptor::from(tls).accept(stream);
                if let Ok(Ok(stream)) = tokio::time::timeout(HEADER_TIMEOUT, handshake).await {
                    let remote = remote(Encryption::Tls);
                    self.serve_http(stream, remote).await;
                }
            }
            Ok(Some(_)) => {
                let remote = remote(Encryption::PlainWithTls);
                self.serve_http(stream, remote).await;
            }
            Ok(None) | Err(_) => {}
        }
    }

    async fn serve_http<S>(mut self, stream: S, remote: RemoteEnd)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = TowerToHyperService::new(
            self.router.layer(Extension(remote)).layer(Extension(Arc::clone(&self.guard))),
        );
        let mut connection = std::pin::pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .max_headers(HEADERS_MAX)
                .max_buf_size(HEAD_BYTES_MAX)
                .serve_connection(TokioIo::new(ProgressStream::new(stream, Arc::clone(&self.guard))), service)
                .with_upgrades()
        );
        let finished = tokio::select! {
            result = connection.as_mut() => Some(result),
            // Drop the guard that `wait_for` returns here: it is not `Send`.
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
            tracing::debug!("connection of {} ended: {error}", remote.address);
        }
    }
}

/// Reads the first byte and leaves it in the socket.
async fn first_byte(stream: &TcpStream) -> Option<u8> {
    let mut byte = [0];
    match stream.peek(&mut byte).await {
        Ok(1) => Some(byte[0]),
        _ => None,
    }
}

/// Sends one sentence to the peer, then reads and discards bytes until the peer closes the
/// connection. If the station closed first, this would make the system send a reset, which can
/// discard the response at the peer (RFC 9112 §9.6).
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

/// Address at which a client on this host reaches a listener.
pub(crate) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        // If IPv6 is disabled, binding `[::]` can succeed and `[::1]` fail.
        IpAddr::V6(ip) if ip.is_unspecified() && UdpSocket::bind((LOOPBACK_V6, 0)).is_ok() => {
            LOOPBACK_V6.into()
        }
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

const LOOPBACK_V6: std::net::Ipv6Addr = std::net::Ipv6Addr::LOCALHOST;
/// First byte of a TLS connection: content type handshake (RFC 8446 §5.1).
const TLS_HANDSHAKE: u8 = 0x16;
/// Longest time until the head of a request has arrived, also for the next request on an idle
/// connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of bytes of the head of a request, which is many times the size of a browser's
/// request.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;
/// Longest time without acknowledgement of sent data; then the connection is closed.
#[cfg(target_os = "linux")]
const USER_TIMEOUT_MS: u32 = 30_000;
/// Longest wait for running responses when the station stops.
const LINGER: Duration = Duration::from_secs(1);
/// Maximum number of refusals with a response at the same time, and the longest time of each.
const REFUSALS_MAX: usize = 64;
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Time to wait after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Number of file descriptors that are reserved for the archive, listeners, refusals with a
/// response, probe sessions of others, and connections of a member to its mesh.
const DESCRIPTORS_KEPT: usize = 64 + REFUSALS_MAX + 64;
/// Maximum number of connections that wait to be accepted; the system may allow fewer.
const BACKLOG: i32 = 1024;
/// Maximum number of tries to find a port number that is free for TCP and UDP.
const PORT_TRIES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_limit_leaves_descriptors_for_other_uses() {
        assert_eq!(affordable(524_288, 320), 524_288 - 512);
        assert_eq!(affordable(1024, 320), 512);
        assert_eq!(affordable(256, 320), 64, "a quarter at least");
        assert_eq!(affordable(2, 320), 1);
    }
}
