//! Transfers of files that callers of the API request (docs/spec/api.md, "Transfers").
//!
//! A caller requests a receiver address from one station, and then requests that a different
//! station send files to this address. The address is valid for one transfer into one directory,
//! and for nothing else. The sender's own configuration limits what it may send.

mod activity;
mod allowed_paths;
mod expiry;
mod log;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use barograph_api::{LostPackets, Transfer, TransferState};
use barograph_engine::tasks;
use barograph_forecast::{Name, Outcome, Quantity, SeriesId};
use barograph_transfer::files::{DestinationConfig, WalkConfig};
use barograph_transfer::io::identity::ReceiverAddress;
use barograph_transfer::io::{
    ReceiveConfig, ReceiveServer, SendConfig, TransferEvent, TransferSummary, send,
};
use barograph_transfer::io::{ReceiveEvent, ReceiverEndpoint};

use self::activity::TransferActivity;
use self::expiry::Expiry;
use self::log::Log;
use crate::config::TransferConfig;
use crate::detail;
use crate::forecast::series::{Measurement, RATE_MAX_BIT_S};
use crate::mesh::{Bulk, BulkSlotGuard, BulkUse, MeshState};
use crate::record::recorder::Inbox;
use crate::sync::lock;
use crate::time::now_unix_ns;

/// Transfers of one station, as sender and as receiver.
pub(crate) struct Transfers {
    host: Name,
    state: PathBuf,
    bulk: Arc<Bulk>,
    mesh_state: Arc<MeshState>,
    inbox: Inbox,
    log: Mutex<Log>,
    /// Transfers that have not ended, by id.
    open: Mutex<HashMap<String, RunningTransfer>>,
}

/// Stop flag of a transfer, and its thread.
type RunningTransfer = (Arc<AtomicBool>, JoinHandle<()>);

/// Why a request for a transfer was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransferError {
    #[error("{0}")]
    NotAllowed(String),
    #[error("{0}")]
    Bad(String),
    #[error(
        "{0} transfers are already running or waiting; wait, cancel one, or raise transfer.transfers_max"
    )]
    Busy(usize),
    #[error("{0}")]
    Failed(String),
    #[error("no running transfer has the id `{0}`")]
    Unknown(String),
}

impl Transfers {
    pub(crate) fn new(
        host: Name,
        state: &Path,
        bulk: Arc<Bulk>,
        mesh_state: Arc<MeshState>,
        inbox: Inbox,
    ) -> Arc<Self> {
        Arc::new(Self {
            host,
            state: state.into(),
            bulk,
            mesh_state,
            inbox,
            log: Mutex::default(),
            open: Mutex::default(),
        })
    }

    /// The logged transfers, newest first.
    pub(crate) fn rows(&self) -> Vec<Transfer> {
        lock(&self.log).newest()
    }

    /// Starts to wait for one sender. Returns the receiver address for this sender. The receiver
    /// address contains `host`, a name or address of this station's host.
    pub(crate) fn receive(
        self: &Arc<Self>,
        config: &TransferConfig,
        directory: &Path,
        listen: IpAddr,
        host: &str,
    ) -> Result<(Transfer, ReceiverAddress), TransferError> {
        let directory = allowed_paths::resolve_allowed(directory, &config.receive, &self.state)
            .map_err(TransferError::NotAllowed)?;
        if !directory.is_dir() {
            return Err(TransferError::Bad(format!("{} is not a directory", directory.display())));
        }
        let destination = DestinationConfig {
            bytes_max: config.bytes_max,
            replace: config.replace,
            forbid_links_in_path: true,
            ..DestinationConfig::default()
        };
        let id = self.begin(config, "receiver", None)?;
        let bound = bind(config, directory, destination, listen);
        let bound = bound.and_then(|waiting| {
            let line = waiting.receiver_address(host);
            let (of, mine) = (Arc::clone(self), id.clone());
            self.spawn(&id, move |stop| of.run_receiver(&mine, &waiting, stop)).map(|()| line)
        });
        let line = bound.inspect_err(|error| self.fail(&id, error.to_string()))?;
        Ok((self.row(&id), line))
    }

    /// Starts to send `paths` to a receiver address.
    pub(crate) fn send(
        self: &Arc<Self>,
        config: &TransferConfig,
        paths: &[PathBuf],
        to: ReceiverAddress,
    ) -> Result<Transfer, TransferError> {
        if paths.is_empty() {
            return Err(TransferError::Bad("`paths` is empty".into()));
        }
        let admit = |path: &PathBuf| allowed_paths::resolve_allowed(path, &config.send, &self.state);
        let paths = paths.iter().map(admit).collect::<Result<_, _>>().map_err(TransferError::NotAllowed)?;
        let id = self.begin(config, "sender", Some(to.host.clone()))?;
        let (of, mine) = (Arc::clone(self), id.clone());
        self.spawn(&id, move |stop| of.run_sender(&mine, paths, to, stop))
            .inspect_err(|error| self.fail(&id, error.to_string()))?;
        Ok(self.row(&id))
    }

    /// Cancels a transfer; received bytes are kept.
    pub(crate) fn cancel(&self, id: &str) -> Result<Transfer, TransferError> {
        let unknown = || TransferError::Unknown(id.chars().take(80).collect());
        let row = lock(&self.log).get(id).filter(|row| !row.state.is_ended()).cloned().ok_or_else(unknown)?;
        let open = lock(&self.open);
        let (stop, _) = open.get(id).ok_or_else(unknown)?;
        lock(&self.log).change(id, |row| row.state = TransferState::Cancelled);
        stop.store(true, Ordering::SeqCst);
        Ok(Transfer { state: TransferState::Cancelled, ..row })
    }

    /// Cancels all transfers and waits until they have ended. Waits until `deadline` at most,
    /// because a disk may be busy for longer. Received bytes are kept.
    pub(crate) fn stop(&self, deadline: Instant) {
        let open: Vec<_> = lock(&self.open).drain().collect();
        for (_, (stop, _)) in &open {
            stop.store(true, Ordering::SeqCst);
        }
        for (id, (_, thread)) in open {
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(ENDS);
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
            self.fail(&id, "this station stopped".into());
        }
    }

    fn row(&self, id: &str) -> Transfer {
        lock(&self.log).get(id).cloned().unwrap_or_else(|| log::begun(id.into(), "sender", 0.0, None))
    }

    fn begin(
        &self,
        config: &TransferConfig,
        role: &'static str,
        peer: Option<String>,
    ) -> Result<String, TransferError> {
        let mut log = lock(&self.log);
        if log.open() >= config.transfers_max {
            return Err(TransferError::Busy(log.open()));
        }
        let id = new_id()?;
        log.add(log::begun(id.clone(), role, now_unix_ns() as f64 / 1e9, peer));
        Ok(id)
    }

    /// Starts the thread of a transfer. After a panic the row of the transfer is `failed`.
    fn spawn(
        self: &Arc<Self>,
        id: &str,
        work: impl FnOnce(&AtomicBool) + Send + 'static,
    ) -> Result<(), TransferError> {
        let (of, mine) = (Arc::clone(self), id.to_string());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        // Lock the map before the thread starts, because the thread may end at once.
        let mut open = lock(&self.open);
        open.retain(|_, (_, thread)| !thread.is_finished());
        let thread = std::thread::Builder::new().name("transfer".into()).spawn(move || {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(&stopped))) {
                let why = format!("internal error: {}", tasks::panic_message(&*panic));
                tracing::error!("the transfer {mine} ended: {why}");
                of.fail(&mine, why);
            }
        });
        let thread =
            thread.map_err(|error| TransferError::Failed(format!("cannot start a thread: {error}")))?;
        open.insert(id.into(), (stop, thread));
        Ok(())
    }

    fn fail(&self, id: &str, why: String) {
        lock(&self.log).change(id, |row| (row.state, row.why) = (TransferState::Failed, Some(why)));
    }

    /// Runs the receiving end of a transfer.
    fn run_receiver(&self, id: &str, host: &ReceiveServer, stop: &AtomicBool) {
        let expiry = Mutex::new(Expiry::new(Instant::now()));
        let ended = AtomicBool::new(false);
        let bulk = Mutex::new((TransferActivity::default(), None));
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                // A receiver address that is not used must not be valid for ever.
                while !ended.load(Ordering::SeqCst) {
                    if lock(&expiry).is_over(Instant::now()) {
                        lock(&self.log).change(id, expiry::expire);
                        stop.store(true, Ordering::SeqCst);
                        return;
                    }
                    std::thread::sleep(POLL_PERIOD);
                }
            });
            let result = host.run(true, stop, &|_, event| match event {
                ReceiveEvent::Transfer(event) => {
                    if let TransferEvent::Begun { .. } = event {
                        lock(&expiry).on_begun();
                    }
                    self.update_slot(&mut lock(&bulk), &event, stop);
                    self.on_event(id, event);
                }
                ReceiveEvent::Done(summary) => self.done(id, &summary, None),
                // The sender of the failed transfer may connect again.
                ReceiveEvent::Failed(error) => {
                    *lock(&bulk) = (TransferActivity::default(), None);
                    lock(&expiry).on_failed(Instant::now());
                    lock(&self.log).change(id, |row| {
                        (row.state, row.why) = (TransferState::Waiting, Some(error.to_string()));
                    });
                }
                _ => {}
            });
            ended.store(true, Ordering::SeqCst);
            result
        });
        if let Err(error) = result {
            self.fail(id, error.to_string());
        }
    }

    /// Runs the sending end of a transfer.
    fn run_sender(&self, id: &str, paths: Vec<PathBuf>, to: ReceiverAddress, stop: &AtomicBool) {
        let target = to.host.clone();
        let hash_cache_directory = Some(self.state.join(HASHES_DIRECTORY));
        // The paths were resolved when they were admitted.
        let walk = WalkConfig { forbid_links_in_path: true, ..WalkConfig::default() };
        let config = SendConfig {
            hash_cache_directory,
            walk,
            ..SendConfig::new(paths, ReceiverEndpoint::Address(to))
        };
        let mut bulk = (TransferActivity::default(), None);
        let sent = send(config, stop, &mut |event| {
            self.update_slot(&mut bulk, &event, stop);
            self.on_event(id, event);
        });
        match sent {
            Ok(summary) => self.done(id, &summary, Some(&target)),
            Err(error) => self.fail(id, error.to_string()),
        }
    }

    /// Takes the host's slot for bulk transfers while a transfer moves bytes, and releases the slot
    /// otherwise. Bytes may not move for a long time: the other end may verify the files, or send
    /// only keep-alives.
    fn update_slot(
        &self,
        bulk: &mut (TransferActivity, Option<BulkSlotGuard>),
        event: &TransferEvent,
        stop: &AtomicBool,
    ) {
        let (activity, held) = bulk;
        let now = Instant::now();
        activity.on_event(event, now);
        if !activity.is_moving(now) {
            *held = None;
        } else if held.is_none() {
            // Bytes are already moving, so do not wait for the slot.
            *held = match event {
                TransferEvent::Begun { .. } => self.take_slot(stop),
                _ => self.bulk.slot.take(BulkUse::Served),
            };
        }
    }

    /// Takes the host's slot for bulk transfers. While the slot is taken, no test starts, and
    /// measurements count as loaded. If a test runs, waits for the end of the test, but no longer
    /// than [`SLOT_WAIT_MAX`], because the other end of the transfer also waits.
    fn take_slot(&self, stop: &AtomicBool) -> Option<BulkSlotGuard> {
        let until = Instant::now() + (self.bulk.plan.budget.test_max + POLL_PERIOD).min(SLOT_WAIT_MAX);
        loop {
            let held = self.bulk.slot.take(BulkUse::Served);
            if held.is_some() || until <= Instant::now() || stop.load(Ordering::SeqCst) {
                return held;
            }
            std::thread::sleep(POLL_PERIOD);
        }
    }

    fn on_event(&self, id: &str, event: TransferEvent) {
        let peer = match &event {
            TransferEvent::Connected { peer, .. } => {
                Some(self.peer(*peer).map_or(peer.ip().to_string(), |name| name.to_string()))
            }
            _ => None,
        };
        lock(&self.log).change(id, |row| match event {
            TransferEvent::Connected { .. } => row.peer = peer,
            TransferEvent::Begun { files, bytes, held_bytes } => {
                row.state = TransferState::Running;
                (row.files, row.bytes, row.resumed_bytes) = (Some(files), Some(bytes), Some(held_bytes));
            }
            TransferEvent::Progress(seen) => row.received_bytes = seen.held_bytes,
            TransferEvent::Verifying => row.state = TransferState::Verifying,
            _ => {}
        });
    }

    fn done(&self, id: &str, summary: &TransferSummary, target: Option<&str>) {
        let (lasted_s, fresh) =
            (summary.lasted.as_secs_f64(), summary.bytes.saturating_sub(summary.held_bytes));
        let rate = (lasted_s > 0.0).then(|| 8.0 * fresh as f64 / lasted_s);
        let stats = summary.progress.stats;
        let lost = target.map(|_| LostPackets {
            sent_packets: stats.sent_packets,
            host: stats.lost_host,
            network: stats.lost_network,
            unknown: stats.lost_unknown,
        });
        lock(&self.log).finish(id, |row| {
            row.state = TransferState::Done;
            row.why = None;
            (row.duration_s, row.goodput_bit_s, row.lost) = (Some(lasted_s), rate, lost);
            row.received_bytes = summary.bytes;
        });
        if let (Some(target), Some(rate)) = (target, rate)
            && (fresh >= MEASURED_BYTES_MIN && rate <= RATE_MAX_BIT_S)
            && let Some(target) = self.peer(summary.peer).or_else(|| Name::new(target).ok())
        {
            let series = SeriesId { source: self.host.clone(), target, quantity: Quantity::TRANSFER };
            let (time_unix_ns, outcome) = (now_unix_ns(), Outcome::Value(rate));
            let detail = detail::of_transfer(
                fresh,
                lasted_s,
                stats.lost_host,
                stats.lost_network + stats.lost_unknown,
            );
            self.inbox.offer(Measurement { series, time_unix_ns, outcome, detail });
        }
    }

    /// Name of the station of the mesh with this address; `None` if no station or several stations
    /// have this address.
    fn peer(&self, address: SocketAddr) -> Option<Name> {
        let ip = address.ip().to_canonical();
        let peers = self.mesh_state.peers();
        let mut at = peers
            .all()
            .filter(|peer| peer.entry.addresses.iter().any(|address| address.ip().to_canonical() == ip));
        // An address of several stations is ambiguous.
        let first = at.next().map(|peer| peer.entry.host.clone());
        if at.next().is_some() { None } else { first }
    }
}

/// Listens on the first free port of the configured ports.
fn bind(
    config: &TransferConfig,
    directory: PathBuf,
    destination: DestinationConfig,
    listen: IpAddr,
) -> Result<ReceiveServer, TransferError> {
    let mut result = Err(TransferError::Failed("transfer.ports allows no port".into()));
    for port in config.ports.clone().unwrap_or(0..=0) {
        let bound = ReceiveServer::bind(ReceiveConfig {
            at: SocketAddr::new(listen, port),
            udp_ports: config.ports.clone(),
            destination,
            transfers_max: 1,
            ..ReceiveConfig::new(directory.clone())
        });
        match bound {
            Ok(host) => return Ok(host),
            Err(error) => result = Err(TransferError::Failed(error.to_string())),
        }
    }
    result
}

/// A random id of 64 bits, in hexadecimal.
fn new_id() -> Result<String, TransferError> {
    use ring::rand::SecureRandom;
    let mut bytes = [0; 8];
    ring::rand::SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| TransferError::Failed("the system provides no random numbers".into()))?;
    Ok(format!("{:016x}", u64::from_be_bytes(bytes)))
}

/// Subdirectory of the state directory for the hashes of files in unfinished transfers that this
/// station sends.
const HASHES_DIRECTORY: &str = "sending";
/// Maximum time to wait for the end of a test. A sender that gets no response for 15 s reports that
/// UDP packets do not reach the receiver.
const SLOT_WAIT_MAX: Duration = Duration::from_secs(8);
/// Time between two checks whether a transfer has ended while this station stops.
const ENDS: Duration = Duration::from_millis(10);
/// Time between two checks for an expired address or a free slot.
const POLL_PERIOD: Duration = Duration::from_millis(100);
/// Minimum number of bytes of a transfer that is recorded as a measurement. Slow start from ten
/// packets (RFC 6928) takes nine or ten round trips to send so many bytes. A smaller transfer is
/// mostly slow start, and shows little about the path.
const MEASURED_BYTES_MIN: u64 = 10_000_000;
