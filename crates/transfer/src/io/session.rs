//! Transfers of files from end to end.
//!
//! Each end has one thread that always reads the control connection, and other threads for the flow
//! and the files. So neither a slow disk nor a slow peer delays a message.
//!
//! An interrupted transfer resumes when either end is started again. The sender computes the
//! transfer's identifier from the files. The receiver stores the partial files by this identifier
//! and the sender's certificate.

mod control_task;
mod disk;
mod error;
mod failover;
mod incoming;
mod outgoing;
mod overload;
mod receive_server;
mod receivers;
mod window_keeper;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub use self::error::SessionError;
pub use self::receive_server::{ReceiveConfig, ReceiveEvent, ReceiveServer};
use super::flow::FlowProgress;
use super::identity::{Identity, ReceiverAddress, Trust};
use super::socket::{Socket, SocketConfig};
use crate::files::{SkippedPath, WalkConfig, WindowLogError};
use crate::proto::{LossClassification, controller};

/// What to send, to which receiver and how.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use barograph_transfer::controller::ControllerKind;
/// use barograph_transfer::io::{ReceiverEndpoint, SendConfig};
///
/// # let address = format!("brg://receiver.example:4433/{}", "A".repeat(64));
/// // The receiver address, as `barograph recv` prints it.
/// let receiver = ReceiverEndpoint::Address(address.parse()?);
/// let mut config = SendConfig::new(vec!["data".into()], receiver);
/// config.controller = ControllerKind::Tfrc;
/// config.walk.links = true;
/// assert_eq!(config.classification.name(), "default");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SendConfig {
    /// Files and directories to send.
    pub paths: Vec<PathBuf>,
    /// Options of the walk over the paths.
    pub walk: WalkConfig,
    /// Receiver of the transfer.
    pub receiver: ReceiverEndpoint,
    /// Other receivers with the same directory, on storage that they share with the first receiver.
    /// If a receiver cannot be reached, dies or is stopped, or if its host loses packets for ten
    /// seconds, the rest is sent to the next receiver. Each receiver is authenticated like the
    /// first one: by its receiver address, or by a trusted certificate.
    pub fallback_receivers: Vec<ReceiverEndpoint>,
    /// Certificate for receivers that request one.
    pub identity: Option<Identity>,
    /// The congestion controller of the flow.
    pub controller: controller::ControllerKind,
    /// Rate of [`controller::ControllerKind::Fixed`], and initial rate of the other controllers, in
    /// bytes a second.
    pub rate_bytes_s: Option<f64>,
    /// How the causes of losses are found.
    pub classification: LossClassification,
    /// Directory in which labelled windows are kept for `barograph classify fit`; `None` keeps
    /// none. The directory is created if it does not exist. The label of a window is the claim of
    /// the receiver's counter.
    pub window_directory: Option<PathBuf>,
    /// Whether datagrams are sent without a seal, if the receiver agrees.
    pub allow_unencrypted: bool,
    /// Maximum size of an IP packet, in bytes; `None` means the maximum size that the route
    /// accepts, but at most 9000.
    pub mtu: Option<usize>,
    /// Directory in which the sender keeps hashes of an unfinished transfer, so that the next try
    /// need not read those files again.
    pub hash_cache_directory: Option<PathBuf>,
    /// Whether to use the sockets that all systems have ([`Socket::bind_portable`]).
    #[doc(hidden)]
    pub portable: bool,
}

impl SendConfig {
    /// Seals datagrams, classifies losses, and sends no symbolic links. Uses the default controller
    /// and its initial rate.
    pub fn new(paths: Vec<PathBuf>, receiver: ReceiverEndpoint) -> Self {
        Self {
            paths,
            walk: WalkConfig::default(),
            receiver,
            fallback_receivers: vec![],
            identity: None,
            controller: controller::ControllerKind::DEFAULT,
            rate_bytes_s: None,
            classification: LossClassification::Default,
            window_directory: None,
            allow_unencrypted: false,
            mtu: None,
            hash_cache_directory: None,
            portable: false,
        }
    }
}

/// The receiver of a transfer.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use barograph_transfer::io::ReceiverEndpoint;
/// use barograph_transfer::io::identity::Trust;
///
/// // As `openssl x509 -fingerprint -sha256` prints it, or without colons.
/// # let fingerprint = "5F".repeat(32);
/// let trust = Trust::Pinned(vec![fingerprint.parse()?]);
/// let receiver = ReceiverEndpoint::Trusted { host: "receiver.example".into(), port: 4433, trust };
/// assert_eq!(receiver.host_and_port(), ("receiver.example", 4433));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub enum ReceiverEndpoint {
    /// The receiver with this receiver address.
    Address(ReceiverAddress),
    /// A trusted receiver at a host and port.
    Trusted {
        /// Host name or IP address.
        host: String,
        /// TCP port of the receiver.
        port: u16,
        /// Which certificates the receiver may have.
        trust: Trust,
    },
}

impl ReceiverEndpoint {
    /// Name or address, and TCP port.
    pub fn host_and_port(&self) -> (&str, u16) {
        match self {
            Self::Address(address) => (&address.host, address.port),
            Self::Trusted { host, port, .. } => (host, *port),
        }
    }
}

/// An event during a transfer.
#[derive(Debug)]
#[non_exhaustive]
pub enum TransferEvent {
    /// A path was left out.
    Notice(SkippedPath),
    /// The other end is authenticated.
    Connected {
        /// Address of the other end.
        peer: SocketAddr,
        /// Name and version of the other end's program.
        software: String,
    },
    /// Both ends agreed; data is sent from now on.
    Begun {
        /// Number of files to send.
        files: u64,
        /// Length of the object, in bytes.
        bytes: u64,
        /// Bytes of the object that the receiver has from earlier sessions.
        held_bytes: u64,
    },
    /// Progress of the flow, about ten times a second.
    Progress(FlowProgress),
    /// Windows for [`SendConfig::window_directory`] cannot be written. The transfer continues, and
    /// this session keeps no more windows.
    WindowsNotKept(WindowLogError),
    /// The rest is sent to a different receiver of [`SendConfig::fallback_receivers`] or to the
    /// first one again, in a new session: the session has its own connection, and its events begin
    /// again with [`Connected`](Self::Connected).
    Failover {
        /// Why the session with the previous receiver ended.
        why: SessionError,
        /// Host of the next receiver.
        host: String,
        /// TCP port of the next receiver.
        port: u16,
    },
    /// All bytes arrived. Now the sender hashes the bytes that the receiver had before, the
    /// receiver compares the digests, and the files get their names.
    Verifying,
}

/// Result of a finished transfer.
#[derive(Clone, Debug)]
pub struct TransferSummary {
    /// Address of the other end. If there were several receivers, the address of the last receiver.
    pub peer: SocketAddr,
    /// Number of files in the transfer.
    pub files: u64,
    /// Length of the object, in bytes.
    pub bytes: u64,
    /// Bytes of the object that the receiver had before.
    pub held_bytes: u64,
    /// Time from the first datagram to the last acknowledgement, without the time between two
    /// receivers.
    pub lasted: Duration,
    /// Time that the transfer took. At a sender, this is the time of the whole call. At a receiver,
    /// the time begins when the sender was accepted.
    pub lasted_all: Duration,
    /// Last progress of the flow. At a sender, the counters include the losses by cause, summed
    /// over all receivers.
    pub progress: FlowProgress,
}

/// Sends files; returns when the receiver has verified all of them. `on_event` is called from this
/// thread.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::atomic::AtomicBool;
///
/// use barograph_transfer::io::{ReceiverEndpoint, SendConfig, TransferEvent, send};
///
/// # let address = String::new();
/// let receiver = ReceiverEndpoint::Address(address.parse()?);
/// let config = SendConfig::new(vec!["data".into()], receiver);
/// // Another thread may set this.
/// let stop = AtomicBool::new(false);
/// let summary = send(config, &stop, &mut |event| match event {
///     TransferEvent::Begun { files, bytes, .. } => println!("{files} files, {bytes} bytes"),
///     TransferEvent::Progress(progress) => println!("{} bytes arrived", progress.held_bytes),
///     _ => {}
/// })?;
/// println!("{} packets lost by the host", summary.progress.stats.lost_host);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The reason why the transfer ended early. The receiver keeps the received bytes. The same call
/// made again resumes the transfer.
///
/// `stop` ends the call with [`FlowError::Stopped`](super::flow::FlowError::Stopped), within a
/// second unless a disk is busy for longer.
pub fn send(
    config: SendConfig,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(TransferEvent),
) -> Result<TransferSummary, SessionError> {
    failover::send(&config, stop, on_event)
}

/// Name and version, for people at the other end.
const SOFTWARE: &str = concat!("barograph ", env!("CARGO_PKG_VERSION"));

/// Maximum size of a feedback datagram, in bytes. Every path on which QUIC works accepts this size
/// (RFC 9000 §14.1). The size is not larger because the path of feedback is not measured.
const FEEDBACK_DATAGRAM_BYTES: u32 = 1200;

/// Number of bytes of the IP header and the UDP header together (RFC 791, RFC 8200, RFC 768).
fn headers_bytes(peer: SocketAddr) -> u32 {
    if peer.ip().to_canonical().is_ipv4() { 28 } else { 48 }
}

/// Options of all sockets of a session. The reading thread may not be scheduled for some
/// milliseconds. At 10 Gbit/s, a buffer of 8 MiB is enough for 6 ms. Systems usually allow only a
/// smaller buffer.
const SOCKET: SocketConfig = SocketConfig { buffer_bytes: 8 << 20, trains: true, ecn: true };

fn bind(at: SocketAddr, config: SocketConfig, portable: bool) -> io::Result<Socket> {
    if portable { Socket::bind_portable(at, config) } else { Socket::bind(at, config) }
}

/// Time between two reports of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

fn ranges_bytes<'a>(ranges: impl IntoIterator<Item = &'a std::ops::Range<u64>>) -> u64 {
    ranges.into_iter().map(|range| range.end - range.start).sum()
}
