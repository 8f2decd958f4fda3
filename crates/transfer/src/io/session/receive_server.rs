//! The receiving end: waits for senders.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Builder;
use std::time::Duration;

use super::incoming::IncomingSession;
use super::{SOFTWARE, SessionError, TransferEvent, TransferSummary};
use crate::files::{DestinationConfig, Manifest};
use crate::io::control::{AcceptedSender, ControlError, Listener, ListenerConfig};
use crate::io::identity::{AuthToken, Identity, ReceiverAddress, Trust};

/// What a receiver accepts, and from which senders.
///
/// ```
/// use barograph_transfer::io::ReceiveConfig;
///
/// let mut config = ReceiveConfig::new("incoming".into());
/// config.udp_ports = Some(50_000..=50_007);
/// config.destination.bytes_max = 1 << 40;
/// config.destination.links = true;
/// assert_eq!(config.transfers_max, 8);
/// ```
#[derive(Debug)]
pub struct ReceiveConfig {
    /// TCP address to listen at.
    pub at: SocketAddr,
    /// UDP ports for transfers, one for each simultaneous transfer: ports that a firewall lets
    /// through. `None` means any port.
    pub udp_ports: Option<RangeInclusive<u16>>,
    /// Directory that files are received into.
    pub directory: PathBuf,
    /// Limits and options for the files that are received into `directory`.
    pub destination: DestinationConfig,
    /// Certificate of the receiver. `None` means that a new certificate is created.
    pub identity: Option<Identity>,
    /// Token of the receiver address. `None` means a random token. A receiver with the same
    /// identity and token has the same receiver address.
    pub token: Option<AuthToken>,
    /// Certificates of senders that need no token.
    pub trust: Option<Trust>,
    /// Whether datagrams may be sent without a seal.
    pub allow_unencrypted: bool,
    /// Maximum number of simultaneous transfers.
    pub transfers_max: usize,
    /// Whether to use the sockets that all systems have
    /// ([`Socket::bind_portable`](crate::io::socket::Socket::bind_portable)).
    #[doc(hidden)]
    pub portable: bool,
}

impl ReceiveConfig {
    /// Configuration that receives all that fits into `directory`, from senders that have the
    /// receiver address, on any free port of all local addresses.
    pub fn new(directory: PathBuf) -> Self {
        Self {
            at: SocketAddr::from(([0; 16], 0)),
            udp_ports: None,
            directory,
            destination: DestinationConfig::default(),
            identity: None,
            token: None,
            trust: None,
            allow_unencrypted: false,
            transfers_max: 8,
            portable: false,
        }
    }
}

/// The receiving end: waits for senders.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::atomic::AtomicBool;
///
/// use barograph_transfer::io::{ReceiveConfig, ReceiveServer};
///
/// let server = ReceiveServer::bind(ReceiveConfig::new("incoming".into()))?;
/// println!("{}", server.receiver_address("receiver.example"));
/// // `run` returns after one successful transfer, or when another thread sets `stop`.
/// let (once, stop) = (true, AtomicBool::new(false));
/// server.run(once, &stop, &|number, event| println!("{number}: {event:?}"))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ReceiveServer {
    listener: Listener,
    config: ReceiveConfig,
}

/// An event at a host.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReceiveEvent {
    /// An event during a transfer. The sender's callback gets the same kinds of events.
    Transfer(TransferEvent),
    /// A transfer succeeded, with its result.
    Done(TransferSummary),
    /// A transfer failed; received bytes are kept for the next try.
    Failed(SessionError),
}

impl ReceiveServer {
    /// Starts to listen for senders.
    ///
    /// # Errors
    /// The address cannot be used; a certificate cannot be created or used.
    pub fn bind(mut config: ReceiveConfig) -> Result<Self, SessionError> {
        let identity = match config.identity.take() {
            Some(identity) => identity,
            None => Identity::fresh()?,
        };
        let token = match config.token {
            Some(token) => token,
            None => AuthToken::random().map_err(ControlError::from)?,
        };
        let listener = Listener::bind(
            config.at,
            ListenerConfig {
                identity,
                token,
                trust: config.trust.clone(),
                software: SOFTWARE.into(),
                // Limit the size, so that a manifest with too many entries is refused before it is
                // received.
                manifest_bytes_max: Manifest::encoded_bytes_max(config.destination.entries_max),
            },
        )?;
        Ok(Self { listener, config })
    }

    /// TCP address of the listening socket.
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// The receiver address for a sender that reaches this host by the name or address `host`.
    pub fn receiver_address(&self, host: &str) -> ReceiverAddress {
        self.listener.receiver_address(host)
    }

    /// Serves until `stop` is set. If `once` is set, serves only until one transfer succeeded, and
    /// runs only one transfer at a time, whatever the configuration.
    ///
    /// `on_event` is called from the threads of transfers. Its first argument is the number of the
    /// transfer.
    ///
    /// # Errors
    /// The host can no longer listen. Running transfers are ended before this function returns.
    pub fn run(
        &self,
        once: bool,
        stop: &AtomicBool,
        on_event: &(dyn Fn(u64, ReceiveEvent) + Sync),
    ) -> Result<(), SessionError> {
        let transfers_max = if once { 1 } else { self.config.transfers_max };
        let (under_way, rejecting, is_over) =
            (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) && !is_over.load(Ordering::Relaxed) {
                let Some(sender) = self.listener.accept(ACCEPT_FOR)? else { continue };
                if under_way.load(Ordering::SeqCst) >= transfers_max || is_over.load(Ordering::SeqCst) {
                    // Send a rejection in a separate thread. If too many rejections are running,
                    // drop the connection without a reply.
                    if rejecting.load(Ordering::Relaxed) < REJECTING_MAX {
                        rejecting.fetch_add(1, Ordering::Relaxed);
                        let rejecting = &rejecting;
                        let rejected = Builder::new().spawn_scoped(scope, move || {
                            reject(sender, transfers_max);
                            rejecting.fetch_sub(1, Ordering::Relaxed);
                        });
                        if rejected.is_err() {
                            rejecting.fetch_sub(1, Ordering::Relaxed);
                        }
                    }
                    continue;
                }
                under_way.fetch_add(1, Ordering::Relaxed);
                let (under_way, is_over, config) = (&under_way, &is_over, &self.config);
                let session = move || {
                    let on_event = &|event| on_event(number, event);
                    let ended = IncomingSession::new(config, stop, on_event, &sender).run(sender);
                    // Set `is_over` before the count falls, so that no other sender is accepted in
                    // between.
                    is_over.fetch_or(once && ended.is_ok(), Ordering::SeqCst);
                    under_way.fetch_sub(1, Ordering::SeqCst);
                    on_event(match ended {
                        Ok(summary) => ReceiveEvent::Done(summary),
                        Err(error) => ReceiveEvent::Failed(error),
                    });
                };
                if let Err(error) = Builder::new().name("session".into()).spawn_scoped(scope, session) {
                    under_way.fetch_sub(1, Ordering::Relaxed);
                    on_event(number, ReceiveEvent::Failed(SessionError::system("a thread")(error)));
                }
                number += 1;
            }
            Ok(())
        })
    }
}

fn reject(sender: AcceptedSender, transfers_max: usize) {
    if let Some((reason, text)) = SessionError::TooManyTransfers(transfers_max).refusal() {
        sender.channel.refuse(reason, &text);
    }
}

/// Longest time until a stop is detected.
const ACCEPT_FOR: Duration = Duration::from_millis(100);

/// Maximum number of simultaneous rejections; see [`ReceiveServer::run`].
const REJECTING_MAX: usize = 16;
