//! The connection to a server, through this process: bytes from the server pass the [`Sanitizer`].
//!
//! ```text
//! client ◄─ 127.0.0.1, without TLS ─► SanitizingProxy ◄─ TLS ─► a server
//! ```
//!
//! The client decides when to connect; each attempt reaches the next server of the list. Other
//! users of the machine can connect, too. A connection without the secret in its `CONNECT` is
//! closed before any of its bytes reach a server.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use async_nats::ServerAddr;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::connection_errors::ConnectionErrors;
use super::sanitize::{LINE_BYTES_MAX, Sanitizer};
use super::{NatsConfig, NatsTls};

/// A listener on the loopback interface for the client of this process.
pub(super) struct SanitizingProxy {
    listener: TcpListener,
    shared: Arc<Shared>,
}

struct Shared {
    config: NatsConfig,
    secret: String,
    servers: Mutex<Servers>,
    errors: ConnectionErrors,
}

/// Servers from the configuration, and servers that other servers reported.
struct Servers {
    known: Vec<ServerAddr>,
    /// Index in `known` of the server that was used last.
    turn: usize,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl SanitizingProxy {
    /// Starts to listen.
    ///
    /// # Errors
    /// No free port on the loopback interface, or no source of randomness.
    pub(super) async fn new(
        config: &NatsConfig,
        servers: Vec<ServerAddr>,
        errors: ConnectionErrors,
    ) -> io::Result<Self> {
        let listener = match TcpListener::bind("127.0.0.1:0").await {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind("[::1]:0").await?,
        };
        let mut random = [0; 24];
        let provider = rustls::crypto::ring::default_provider();
        provider.secure_random.fill(&mut random).map_err(|_| io::Error::other("no randomness"))?;
        let secret: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let turn = usize::from(random[0]) % servers.len().max(1);
        let servers = Mutex::new(Servers { known: servers, turn });
        let shared = Shared { config: config.clone(), secret, servers, errors };
        Ok(Self { listener, shared: Arc::new(shared) })
    }

    /// Address of the listener, and the token that the client must send.
    pub(super) fn access(&self) -> io::Result<(String, String)> {
        Ok((self.listener.local_addr()?.to_string(), self.shared.secret.clone()))
    }

    pub(super) async fn run(self) {
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            // The semaphore is never closed. `accept` fails while the process has no free
            // descriptors.
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            let Ok((local, _)) = self.listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move {
                shared.serve(local).await;
                drop(slot);
            });
        }
    }
}

impl Shared {
    /// Connects the client with the next server, until the client or the server closes its
    /// connection.
    async fn serve(&self, mut local: TcpStream) {
        let Some(server) = self.next() else { return };
        let name = format!("{}:{}", server.host(), server.port());
        let reached = timeout(self.config.deadline, self.reach(&server)).await;
        let was_reached = matches!(reached, Ok(Ok(_)));
        let ended = match reached {
            Ok(Ok((remote, info))) => {
                let remote = self.admit(&mut local, remote, &info).await;
                match remote {
                    Ok(Some((remote, sanitizer))) => self.pass(&mut local, remote, sanitizer).await,
                    Ok(None) => return tracing::debug!("a connection to the proxy was not ours"),
                    Err(error) => Err(error),
                }
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::other(format!("no response within {:?}", self.config.deadline))),
        };
        match ended {
            // Do not report that the server closed the connection: the client has already received
            // earlier messages of the server that contain the reason.
            Err(error) if is_closed(&error) && was_reached => {}
            Err(error) => self.errors.unreachable(format!("{name}: {error}")),
            Ok(()) => {}
        }
    }

    fn next(&self) -> Option<ServerAddr> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.turn = (servers.turn + 1) % servers.known.len().max(1);
        servers.known.get(servers.turn).cloned()
    }

    fn discover(&self, urls: &mut Vec<String>) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        for server in urls.drain(..).filter_map(|url| url.parse::<ServerAddr>().ok()) {
            let is_known =
                |known: &ServerAddr| (known.host(), known.port()) == (server.host(), server.port());
            if servers.known.len() < SERVERS_MAX && !servers.known.iter().any(is_known) {
                servers.known.push(server);
            }
        }
    }

    /// Connects to a server. Uses TLS if the server or the configuration requires TLS. Returns the
    /// stream and the server's INFO.
    async fn reach(&self, server: &ServerAddr) -> io::Result<(Box<dyn Stream>, Vec<u8>)> {
        let mut stream = TcpStream::connect((server.host(), server.port())).await?;
        stream.set_nodelay(true)?;
        let (info, rest) = line(&mut stream).await?;
        let said: serde_json::Value = serde_json::from_slice(info.strip_prefix(b"INFO ").unwrap_or_default())
            .map_err(|_| io::Error::other("not a NATS server"))?;
        let wants_tls = said["tls_required"] == true || server.tls_required() || self.config.tls.is_some();
        if !wants_tls {
            return Ok((Box::new(stream), [info, rest].concat()));
        }
        if !rest.is_empty() {
            return Err(io::Error::other("the server sent data before TLS"));
        }
        let config = self.config.tls.clone().unwrap_or_default();
        // Files are read again for each connection, so that renewed files are used.
        let config = tokio::task::spawn_blocking(move || tls(&config)).await.map_err(io::Error::other)??;
        let name = ServerName::try_from(server.host().to_owned()).map_err(io::Error::other)?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        Ok((Box::new(connector.connect(name, stream).await?), info))
    }

    /// Passes the server's INFO to the client, and the client's CONNECT to the server; `None` if
    /// the connection is not from the client of this process.
    async fn admit(
        &self,
        local: &mut TcpStream,
        mut remote: Box<dyn Stream>,
        info: &[u8],
    ) -> io::Result<Option<(Box<dyn Stream>, Sanitizer)>> {
        local.set_nodelay(true)?;
        let (mut sanitizer, mut out) = (Sanitizer::default(), Vec::new());
        sanitizer.push(info, &mut out).map_err(|broken| io::Error::other(broken.0))?;
        self.discover(&mut sanitizer.discovered);
        local.write_all(&out).await?;
        let Ok(Ok((connect, rest))) = timeout(self.config.deadline, line(local)).await else {
            return Ok(None);
        };
        let text = connect.strip_prefix(b"CONNECT ").unwrap_or_default();
        let Ok(mut connect) = serde_json::from_slice::<serde_json::Map<_, _>>(text) else { return Ok(None) };
        if connect.remove("auth_token").as_ref().and_then(|token| token.as_str()) != Some(&self.secret) {
            return Ok(None);
        }
        remote.write_all(format!("CONNECT {}\r\n", serde_json::Value::Object(connect)).as_bytes()).await?;
        remote.write_all(&rest).await?;
        remote.flush().await?;
        Ok(Some((remote, sanitizer)))
    }

    /// Copies bytes in both directions. In each direction, the copy is no faster than the receiver
    /// reads.
    async fn pass(
        &self,
        local: &mut TcpStream,
        remote: Box<dyn Stream>,
        mut sanitizer: Sanitizer,
    ) -> io::Result<()> {
        let (mut local_in, mut local_out) = local.split();
        let (mut remote_in, mut remote_out) = tokio::io::split(remote);
        let up = async {
            tokio::io::copy(&mut local_in, &mut remote_out).await?;
            remote_out.shutdown().await
        };
        let down = async {
            let (mut bytes, mut out) = (vec![0; READ_BYTES], Vec::new());
            loop {
                let count = remote_in.read(&mut bytes).await?;
                if count == 0 {
                    return local_out.shutdown().await;
                }
                sanitizer.push(&bytes[..count], &mut out).map_err(|broken| io::Error::other(broken.0))?;
                self.discover(&mut sanitizer.discovered);
                local_out.write_all(&out).await?;
                out.clear();
            }
        };
        tokio::pin!(up, down);
        // If one direction has ended, pending bytes of the other direction may still arrive, such
        // as the reason why the server closes the connection.
        tokio::select! {
            ended = &mut up => match ended {
                Ok(()) => Ok(()),
                Err(error) => timeout(FAREWELL, down).await.unwrap_or(Err(error)),
            },
            ended = &mut down => {
                ended?;
                let _ = timeout(FAREWELL, up).await;
                Ok(())
            }
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Reads a line. Returns the line, and the bytes that were read after the line.
async fn line(stream: &mut TcpStream) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut held = Vec::new();
    loop {
        if let Some(end) = held.iter().position(|byte| *byte == b'\n') {
            let rest = held.split_off(end + 1);
            return Ok((held, rest));
        }
        if held.len() > LINE_BYTES_MAX {
            return Err(io::Error::other("a line longer than any of NATS"));
        }
        if stream.read_buf(&mut held).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Makes the TLS configuration from the current content of the files.
fn tls(config: &NatsTls) -> io::Result<ClientConfig> {
    let failed = |path: &std::path::Path| {
        let path = path.display().to_string();
        move |error: rustls::pki_types::pem::Error| io::Error::other(format!("{path}: {error}"))
    };
    let certificates = |path: &std::path::Path| {
        let read = CertificateDer::pem_file_iter(path).map_err(failed(path))?;
        read.collect::<Result<Vec<_>, _>>().map_err(failed(path))
    };
    let mut roots = RootCertStore::empty();
    match &config.ca {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(io::Error::other)?;
            }
        }
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots);
    match (&config.certificate, &config.key) {
        (Some(certificate), Some(key)) => {
            let key = PrivateKeyDer::from_pem_file(key).map_err(failed(key))?;
            builder.with_client_auth_cert(certificates(certificate)?, key).map_err(io::Error::other)
        }
        _ => Ok(builder.with_no_client_auth()),
    }
}

/// Largest number of connections to the listener. The client has one connection and may start a
/// further one. Connections of other programs are closed within the deadline.
const CONNECTIONS_MAX: usize = 16;

/// Largest number of servers of a cluster. If servers report further servers, these are ignored.
const SERVERS_MAX: usize = 64;

/// Largest number of bytes in one read of a connection.
const READ_BYTES: usize = 64 << 10;

/// Pause after `accept` failed for lack of descriptors; without a pause it would fail again at
/// once.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Longest wait for pending bytes. A client on the loopback interface closes within a millisecond.
const FAREWELL: std::time::Duration = std::time::Duration::from_secs(1);
