//! The receiving end of one transfer, at a host that can serve several transfers.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::control_task::{
    POLL_INTERVAL, PollInterval, check_stop, name, result, send_message, spawn, wait_for_work,
};
use super::disk::{ReceivedFiles, SharedDestination};
use super::{
    FEEDBACK_DATAGRAM_BYTES, PROGRESS_EVERY, ReceiveConfig, ReceiveEvent, SOCKET, SessionError,
    TransferEvent, TransferSummary, ranges_bytes,
};
use crate::files::{Destination, DestinationConfig, ExistingFiles, FileError, Manifest, TransferId};
use crate::io::control::{AcceptedSender, Channel, ControlError, Message, RefuseReason};
use crate::io::flow::{FlowError, FlowMonitor, ReceiveFlow};
use crate::io::identity::{Fingerprint, random};
use crate::io::seal::{Opener, Sealer, Suite};
use crate::io::socket::{Socket, SocketConfig};
use crate::proto::wire::HEADER_BYTES;
use crate::proto::{Feedback, Receiver, ReceiverConfig};

/// One sender at a host, and its transfer.
pub(super) struct IncomingSession<'a> {
    config: &'a ReceiveConfig,
    stop: &'a AtomicBool,
    on_event: &'a dyn Fn(ReceiveEvent),
    began: Instant,
    peer: SocketAddr,
    monitor: Arc<FlowMonitor>,
}

/// What a sender wants to send.
struct Offer {
    id: [u8; 16],
    manifest: Vec<u8>,
    suites: Vec<Suite>,
    datagram_bytes_max: u32,
}

/// What both ends agreed on.
struct Agreed {
    writing: SharedDestination,
    files: u64,
    bytes: u64,
    held_bytes: u64,
    receive_flow: ReceiveFlow,
}

impl<'a> IncomingSession<'a> {
    pub(super) fn new(
        config: &'a ReceiveConfig,
        stop: &'a AtomicBool,
        on_event: &'a dyn Fn(ReceiveEvent),
        sender: &AcceptedSender,
    ) -> Self {
        let peer = sender.channel.peer();
        Self { config, stop, on_event, began: Instant::now(), peer, monitor: Arc::default() }
    }

    pub(super) fn run(&self, sender: AcceptedSender) -> Result<TransferSummary, SessionError> {
        let AcceptedSender { mut channel, software, .. } = sender;
        self.report(TransferEvent::Connected { peer: self.peer, software });
        let ended = self.run_transfer(&mut channel);
        match ended.as_ref().err().map(SessionError::refusal) {
            Some(Some((reason, text))) => channel.refuse(reason, &text),
            _ => channel.close(),
        }
        ended
    }

    fn report(&self, event: TransferEvent) {
        (self.on_event)(ReceiveEvent::Transfer(event));
    }

    fn run_transfer(&self, channel: &mut Channel) -> Result<TransferSummary, SessionError> {
        let offer = self.offer(channel)?;
        let Agreed { writing, files, bytes, held_bytes, receive_flow } = self.agree(channel, offer)?;
        self.report(TransferEvent::Begun { files, bytes, held_bytes });
        let begun = Instant::now();
        let received = self.receive(channel, receive_flow, bytes);
        let files_here = writing.close();
        let (digests, files_here) = match (received, files_here) {
            (Ok(digests), Some(files_here)) => (digests, files_here),
            (received, files_here) => {
                let error = received.err().unwrap_or_else(SessionError::broken);
                let is_changed = matches!(error, SessionError::Refused { reason: RefuseReason::Changed, .. });
                // Do not let one sender discard bytes of a different sender by offering the same
                // files.
                let is_own =
                    channel.peer_fingerprint().is_some() || held_bytes < self.monitor.progress().held_bytes;
                // The flow has made received bytes durable. If a file failed, sync what is
                // possible. If files changed at the sender, discard the received bytes: the changed
                // files are a new transfer, so the bytes would never be used or removed.
                if let Some(ReceivedFiles::Written(mut destination)) = files_here {
                    let _ = if is_changed && (is_own || held_bytes == 0) {
                        destination.discard()
                    } else {
                        destination.sync()
                    };
                }
                return Err(error);
            }
        };
        let lasted = begun.elapsed();
        self.report(TransferEvent::Verifying);
        let is_over = Arc::new(AtomicBool::new(false));
        let finishing = spawn("files", {
            let is_over = Arc::clone(&is_over);
            move || Ok(files_here.finish(&digests, &is_over)?)
        })?;
        // If the connection ends meanwhile, the sender can connect again: the journal records that
        // the transfer is complete.
        let renamed = wait_for_work(channel, finishing, self.stop, &is_over)?;
        if self.send_done(channel)
            && let Some(renamed) = renamed
        {
            // Ignore an error: a remaining journal does no harm, because it is compared with the
            // files before it is used.
            let _ = renamed.remove_journal();
        }
        let lasted_all = self.began.elapsed();
        let (peer, progress) = (self.peer, self.monitor.progress());
        Ok(TransferSummary { peer, files, bytes, held_bytes, lasted, lasted_all, progress })
    }

    /// Sends Done. Returns whether the sender received this message: if so, the sender closes the
    /// connection in order.
    fn send_done(&self, channel: &mut Channel) -> bool {
        let until = Instant::now() + DONE_WAIT;
        if channel.send(&Message::Done).is_err() {
            return false;
        }
        while Instant::now() < until && !self.stop.load(Ordering::Relaxed) {
            match channel.receive(POLL_INTERVAL) {
                Ok(_) => {}
                Err(error) => return matches!(error, ControlError::Closed),
            }
        }
        false
    }

    fn offer(&self, channel: &mut Channel) -> Result<Offer, SessionError> {
        match channel.wait(self.stop).map_err(SessionError::connection_lost)? {
            Message::Offer { id, manifest, suites, datagram_bytes_max } => {
                Ok(Offer { id, manifest, suites, datagram_bytes_max })
            }
            other => Err(SessionError::Protocol(format!("{} is not expected here", name(&other)))),
        }
    }

    fn agree(&self, channel: &mut Channel, offer: Offer) -> Result<Agreed, SessionError> {
        let mut sealed =
            offer.suites.into_iter().filter(|suite| *suite != Suite::Clear || self.config.allow_unencrypted);
        let suite = sealed.next().ok_or(SessionError::Incompatible(
            "this receiver requires encryption, and the sender offers none",
        ))?;
        let (root, id) = (
            self.config.directory.clone(),
            partial_files_id(channel.peer_fingerprint(), offer.id, &offer.manifest),
        );
        let mut config = self.config.destination;
        config.files_open = config.files_open.min((FILES_OPEN_MAX / self.config.transfers_max.max(1)).max(1));
        let is_over = Arc::new(AtomicBool::new(false));
        let opening = spawn("files", {
            let is_over = Arc::clone(&is_over);
            move || open(&root, id, &offer.manifest, config, &is_over)
        })?;
        let received = wait_for_work(channel, opening, self.stop, &is_over)?;

        let (files, bytes) = (received.manifest().files().count() as u64, received.manifest().bytes());
        let all_held = received.held();
        let held: Vec<Range<u64>> = all_held.iter().cloned().collect();
        let held_bytes = ranges_bytes(&held);
        let socket = self.socket(channel.local())?;
        let port = socket.local_addr().map_err(SessionError::system("a UDP port"))?.port();
        let transfer = u32::from_be_bytes(random().map_err(ControlError::from)?);

        let secrets = channel.secrets(transfer)?;
        let sealer = Sealer::new(suite, &secrets.feedback);
        let datagram = offer.datagram_bytes_max.min(FEEDBACK_DATAGRAM_BYTES) as usize;
        let feedback_bytes_max = datagram
            .checked_sub(HEADER_BYTES + sealer.seal_bytes())
            .filter(|bytes| *bytes >= Feedback::BYTES_MIN)
            .ok_or(SessionError::Incompatible(
                "the sender reads only datagrams that are too short for feedback",
            ))?;
        let receiver = Receiver::new(ReceiverConfig { feedback_bytes_max }, bytes, all_held)
            .map_err(|error| SessionError::Protocol(error.to_string()))?;
        let writing = SharedDestination::new(received);
        let receive_flow = ReceiveFlow {
            socket,
            opener: Opener::new(suite, &secrets.data),
            sealer,
            transfer,
            receiver,
            sink: Box::new(writing.clone()),
            from: self.peer.ip(),
            silence_max: SILENCE_MAX,
        };
        let accept = Message::Accept { transfer, port, suite, datagram_bytes_max: DATAGRAM_BYTES_MAX, held };
        send_message(channel, &accept)?;
        Ok(Agreed { writing, files, bytes, held_bytes, receive_flow })
    }

    /// Binds a socket to the address that the sender connected to, so that feedback has this source
    /// address.
    fn socket(&self, local: SocketAddr) -> Result<Socket, SessionError> {
        let mut at = local;
        at.set_ip(local.ip().to_canonical());
        let any = || 0..=0;
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for port in self.config.udp_ports.clone().unwrap_or_else(any) {
            at.set_port(port);
            match super::bind(at, FEEDBACK_SOCKET, self.config.portable) {
                Ok(socket) => return Ok(socket),
                Err(error) => last = error,
            }
        }
        Err(SessionError::system("a UDP port")(last))
    }

    /// Receives the object and the digests of its files.
    fn receive(
        &self,
        channel: &mut Channel,
        receive_flow: ReceiveFlow,
        bytes: u64,
    ) -> Result<Vec<[u8; 32]>, SessionError> {
        let monitor = Arc::clone(&self.monitor);
        let work = spawn("flow", move || {
            receive_flow.run(&monitor)?;
            Ok(())
        })?;
        let mut work = Some(work);
        let digests = self.watch_control(channel, &mut work, bytes);
        self.monitor.stop.store(true, Ordering::Relaxed);
        if let Some(work) = work {
            // Wait until the flow has made received bytes durable. Ignore its error, because the
            // reason for the end is already in `digests`.
            let _ = result(work);
        }
        digests
    }

    fn watch_control(
        &self,
        channel: &mut Channel,
        work: &mut Option<JoinHandle<Result<(), SessionError>>>,
        bytes: u64,
    ) -> Result<Vec<[u8; 32]>, SessionError> {
        let (mut digests, mut durable_bytes, mut all_came) = (None, 0, None);
        let hashing_max = SILENCE_MAX + Duration::from_secs(bytes / HASHED_BYTES_S);
        let (mut shown, mut said, mut interval) = (Instant::now(), Instant::now(), PollInterval::default());
        loop {
            check_stop(self.stop)?;
            // The end is near if the digests have come or the flow has ended.
            let is_soon = digests.is_some() || work.is_none();
            match channel.receive(interval.every(is_soon)).map_err(SessionError::connection_lost)? {
                Some(Message::Digests(all)) => {
                    // Stop the flow: the sender needs no more feedback.
                    digests = Some(all);
                    self.monitor.stop.store(true, Ordering::Relaxed);
                }
                Some(other) => {
                    return Err(SessionError::Protocol(format!("{} is not expected here", name(&other))));
                }
                None => {}
            }
            let progress = self.monitor.progress();
            if shown.elapsed() >= PROGRESS_EVERY && work.is_some() {
                shown = Instant::now();
                self.report(TransferEvent::Progress(progress));
            }
            if said.elapsed() >= DURABLE_EVERY && durable_bytes < progress.durable_bytes {
                (said, durable_bytes) = (Instant::now(), progress.durable_bytes);
                send_message(channel, &Message::Durable(durable_bytes))?;
            }
            if work.as_ref().is_some_and(JoinHandle::is_finished)
                && let Some(ended) = work.take()
            {
                match result(ended) {
                    Err(SessionError::Flow(FlowError::Stopped)) if digests.is_some() => {
                        let early = "the sender sent the digests before all bytes arrived".into();
                        return Err(SessionError::Protocol(early));
                    }
                    ended => ended?,
                }
                all_came = Some(Instant::now());
            }
            if all_came.is_some_and(|at: Instant| at.elapsed() > hashing_max) {
                return Err(SessionError::Protocol("the sender did not send the digests in time".into()));
            }
            if work.is_none()
                && let Some(digests) = digests.take()
            {
                return Ok(digests);
            }
        }
    }
}

/// Identifier of a transfer's partial files. The identifier depends on the sender's certificate, so
/// no other sender can use it, and on the manifest, so different files never share it. The
/// identifier does not depend on the receiver address: a restarted receiver may have a new address,
/// and the transfer must still resume.
fn partial_files_id(peer: Option<Fingerprint>, id: [u8; 16], manifest: &[u8]) -> TransferId {
    let mut hasher = blake3::Hasher::new_derive_key("barograph-transfer 2 partial files");
    hasher.update(&[u8::from(peer.is_some())]).update(peer.as_ref().map_or(&[], |peer| &peer.0[..]));
    hasher.update(&id).update(manifest);
    TransferId(hasher.finalize().as_bytes().first_chunk().copied().unwrap_or_default())
}

fn open(
    root: &Path,
    id: TransferId,
    manifest: &[u8],
    config: DestinationConfig,
    is_over: &AtomicBool,
) -> Result<ReceivedFiles, SessionError> {
    let until = Instant::now() + BUSY_FOR;
    let decoded = || Manifest::decode(manifest).map_err(FileError::from);
    loop {
        match Destination::open(root, id, decoded()?, config) {
            // Retry: an earlier session of the same transfer may be about to end.
            Err(FileError::Busy(_)) if Instant::now() < until => {
                if is_over.load(Ordering::Relaxed) {
                    return Err(FileError::Stopped.into());
                }
                std::thread::sleep(BUSY_EVERY);
            }
            // The same files may have been received before. If so, the sender's digests are equal
            // to those of the existing files.
            Err(error @ FileError::Exists(_)) => {
                let existing = ExistingFiles::find(root, decoded()?, &config, is_over)?;
                return existing
                    .map(|existing| ReceivedFiles::Existing(Box::new(existing)))
                    .ok_or(error.into());
            }
            opened => return Ok(ReceivedFiles::Written(Box::new(opened?))),
        }
    }
}

/// Feedback is not sent as ECN-capable, because no end would respond to its marks
/// (`docs/spec/transfer.md` §11.2). Marks of data packets are still read.
const FEEDBACK_SOCKET: SocketConfig = SocketConfig { ecn: false, ..SOCKET };

/// Maximum number of open files of all transfers together: half of Linux's usual limit for a
/// process (`RLIMIT_NOFILE` of 1024).
const FILES_OPEN_MAX: usize = 512;

/// Maximum size of a datagram that is read, in bytes: the maximum of UDP over IPv6 (RFC 768, RFC
/// 8200 §4.5 without jumbograms).
const DATAGRAM_BYTES_MAX: u32 = 65_527;

/// Time without data after which a transfer ends. The control connection detects a dead sender much
/// earlier. This limit is for a sender that sends pings but no data.
const SILENCE_MAX: Duration = Duration::from_secs(600);

/// Longest time to wait until the sender ends the connection. The sender ends the connection as
/// soon as Done arrives. The time is enough for three retransmissions of TCP (RFC 6298 §2).
const DONE_WAIT: Duration = Duration::from_secs(10);

/// Assumed read rate of the slowest disks, in bytes a second. Before a sender sends the digests, it
/// hashes the bytes that the receiver had before.
pub(super) const HASHED_BYTES_S: u64 = 10_000_000;

/// Time between two Durable messages, the same as the time between two syncs of the data.
const DURABLE_EVERY: Duration = Duration::from_secs(1);

/// Longest time to wait for the end of an earlier session of the same transfer. The session of a
/// killed sender ends when the sender's system has closed the connection and the received bytes are
/// durable.
const BUSY_FOR: Duration = Duration::from_secs(3);
/// Time between two tries to open the destination. People do not notice so short a time.
const BUSY_EVERY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_partial_files_differ_between_senders() {
        let names = [
            partial_files_id(None, [1; 16], b"a"),
            partial_files_id(None, [1; 16], b"b"),
            partial_files_id(None, [2; 16], b"a"),
            partial_files_id(Some(Fingerprint([1; 32])), [1; 16], b"a"),
            partial_files_id(Some(Fingerprint([2; 32])), [1; 16], b"a"),
        ];
        for (at, one) in names.iter().enumerate() {
            assert!(names.iter().skip(at + 1).all(|other| other.0 != one.0));
        }
        assert_eq!(partial_files_id(None, [1; 16], b"a").0, names[0].0);
    }
}
