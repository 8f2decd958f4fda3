//! The sending end of one session.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rangemap::RangeSet;

use super::control_task::{PollInterval, check_stop, name, result, send_message, spawn};
use super::disk::SharedSource;
use super::incoming::HASHED_BYTES_S;
use super::overload::OverloadDetector;
use super::window_keeper::WindowKeeper;
use super::{
    FEEDBACK_DATAGRAM_BYTES, PROGRESS_EVERY, ReceiverEndpoint, SOCKET, SOFTWARE, SendConfig, SessionError,
    TransferEvent, TransferSummary, headers_bytes, ranges_bytes,
};
use crate::files::{EntryKind, FileError, Manifest, Source};
use crate::io::control::{Channel, Connected, Connector, ControlError, Message};
use crate::io::flow::{FlowError, FlowMonitor, FlowProgress, SendFlow};
use crate::io::identity::random;
use crate::io::seal::{Opener, Sealer, Suite};
use crate::proto::controller::ControllerConfig;
use crate::proto::wire::{DATA_HEAD_BYTES, HEADER_BYTES, NOTE_BYTES};
use crate::proto::{Sender, SenderConfig, TooLong};

/// What a session sends, and when it may end early.
pub(super) struct SessionRequest<'a> {
    pub(super) id: [u8; 16],
    pub(super) manifest: &'a [u8],
    /// Whether the session should end if the receiver's host loses too many packets, so that a
    /// different receiver gets the rest.
    pub(super) may_leave: bool,
}

/// Result of a session, with the state that the next session needs.
pub(super) struct SendResult {
    pub(super) source: Option<Source>,
    pub(super) progress: FlowProgress,
    /// Number of bytes that the receiver had before this session sent data, and the time for which
    /// data was sent. `None` if no data was sent.
    pub(super) begun: Option<(u64, Duration)>,
    /// Number of durable bytes that the receiver reported last.
    pub(super) durable_bytes: u64,
    pub(super) ended: Result<TransferSummary, SessionError>,
}

/// Sends to one receiver.
pub(super) fn session(
    config: &SendConfig,
    to: &ReceiverEndpoint,
    source: Source,
    request: &SessionRequest<'_>,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(TransferEvent),
) -> SendResult {
    let began = Instant::now();
    let Connected { channel, software, manifest_bytes_max } = match connect(config, to, stop) {
        Ok(connected) => connected,
        Err(error) => {
            let (source, progress, ended) = (Some(source), FlowProgress::default(), Err(error));
            return SendResult { source, progress, begun: None, durable_bytes: 0, ended };
        }
    };
    on_event(TransferEvent::Connected { peer: channel.peer(), software });
    let (files, bytes) = (source.manifest().files().count() as u64, source.manifest().bytes());
    let verifying_max = verifying_max(source.manifest());
    let reading = SharedSource::new(source);
    let windows = WindowKeeper::open(config.window_directory.as_deref(), on_event);
    let mut outgoing = Outgoing {
        config,
        stop,
        on_event,
        channel,
        reading,
        monitor: Arc::default(),
        began,
        files,
        bytes,
        begun: None,
        durable_bytes: 0,
        overload: request.may_leave.then(OverloadDetector::default),
        windows,
        verifying_max,
    };
    let ended = outgoing.run(request.id, request.manifest.to_vec(), manifest_bytes_max);
    let begun = outgoing.begun.map(|(held_bytes, at)| (held_bytes, at.elapsed()));
    let (source, progress, durable_bytes) =
        (outgoing.reading.close(), outgoing.monitor.progress(), outgoing.durable_bytes);
    match ended.as_ref().err().map(SessionError::refusal) {
        Some(Some((reason, text))) => outgoing.channel.refuse(reason, &text),
        _ => outgoing.channel.close(),
    }
    SendResult { source, progress, begun, durable_bytes, ended }
}

/// Identifier of a transfer: the same for the same files, as a manifest describes them.
pub(super) fn identifier(manifest: &[u8]) -> [u8; 16] {
    let digest = blake3::hash(blake3::hash(manifest).as_bytes());
    digest.as_bytes().first_chunk().copied().unwrap_or_default()
}

fn connect(config: &SendConfig, to: &ReceiverEndpoint, stop: &AtomicBool) -> Result<Connected, SessionError> {
    let (connector, host, port) = match to {
        ReceiverEndpoint::Address(line) => (Connector::to_address(line, SOFTWARE), &line.host, line.port),
        ReceiverEndpoint::Trusted { host, port, trust } => {
            let (trust, identity) = (trust.clone(), config.identity.clone());
            (Connector { trust, identity, token: None, software: SOFTWARE.into() }, host, *port)
        }
    };
    Ok(connector.connect(host, port, stop)?)
}

/// A session on a connection that the receiver accepted.
struct Outgoing<'a> {
    config: &'a SendConfig,
    stop: &'a AtomicBool,
    on_event: &'a mut dyn FnMut(TransferEvent),
    channel: Channel,
    reading: SharedSource,
    monitor: Arc<FlowMonitor>,
    began: Instant,
    files: u64,
    bytes: u64,
    /// Number of bytes that the receiver had before this session sent data, and the time when the
    /// sending began.
    begun: Option<(u64, Instant)>,
    durable_bytes: u64,
    overload: Option<OverloadDetector>,
    windows: WindowKeeper,
    /// Longest time for the receiver from Digests to Done.
    verifying_max: Duration,
}

/// The receiver's reply to the Offer.
struct Accepted {
    transfer: u32,
    port: u16,
    suite: Suite,
    datagram_bytes_max: u32,
    held: Vec<Range<u64>>,
}

/// How long the flow took, and the digests of the files.
struct Sent {
    lasted: Duration,
    digests: Vec<[u8; 32]>,
}

impl Outgoing<'_> {
    fn run(
        &mut self,
        id: [u8; 16],
        manifest: Vec<u8>,
        manifest_bytes_max: u64,
    ) -> Result<TransferSummary, SessionError> {
        if manifest.len() as u64 > manifest_bytes_max {
            let (asked, allowed) = (manifest.len() as u64, manifest_bytes_max);
            return Err(FileError::Quota { what: "bytes of the manifest", asked, allowed }.into());
        }
        let accepted = self.agree(id, manifest)?;
        let held_bytes = ranges_bytes(&accepted.held);
        (self.begun, self.durable_bytes) = (Some((held_bytes, Instant::now())), held_bytes);
        (self.on_event)(TransferEvent::Begun { files: self.files, bytes: self.bytes, held_bytes });
        let port = accepted.port;
        let flow_over = Arc::new(AtomicBool::new(false));
        let work = self.start(accepted, Arc::clone(&flow_over))?;
        let outcome = self.watch_control(work, &flow_over, port);
        // Stop all threads: no thread may continue after this function returns.
        self.monitor.stop.store(true, Ordering::Relaxed);
        let lasted = outcome?;
        Ok(TransferSummary {
            peer: self.channel.peer(),
            files: self.files,
            bytes: self.bytes,
            held_bytes,
            lasted,
            lasted_all: self.began.elapsed(),
            progress: self.monitor.progress(),
        })
    }

    fn agree(&mut self, id: [u8; 16], manifest: Vec<u8>) -> Result<Accepted, SessionError> {
        let suites: Vec<Suite> = self
            .config
            .allow_unencrypted
            .then_some(Suite::Clear)
            .into_iter()
            .chain(Suite::sealed())
            .collect();
        let offered = suites.clone();
        let offer = Message::Offer { id, manifest, suites, datagram_bytes_max: FEEDBACK_DATAGRAM_BYTES };
        send_message(&mut self.channel, &offer)?;
        drop(offer);
        let accepted = match self.channel.wait(self.stop).map_err(SessionError::connection_lost)? {
            Message::Accept { transfer, port, suite, datagram_bytes_max, held } => {
                Accepted { transfer, port, suite, datagram_bytes_max, held }
            }
            other => return Err(SessionError::Protocol(format!("{} is not expected here", name(&other)))),
        };
        if !offered.contains(&accepted.suite) {
            return Err(SessionError::Protocol(
                "the receiver chose a cipher suite that was not offered".into(),
            ));
        }
        if accepted.held.last().is_some_and(|last| self.bytes < last.end) {
            return Err(SessionError::Protocol("the receiver claims bytes beyond the object".into()));
        }
        Ok(accepted)
    }

    /// Starts to send, in other threads.
    fn start(
        &mut self,
        accepted: Accepted,
        flow_over: Arc<AtomicBool>,
    ) -> Result<JoinHandle<Result<Sent, SessionError>>, SessionError> {
        let send_flow = self.send_flow(&accepted)?;
        let held = accepted.held;
        let (reading, monitor) = (self.reading.clone(), Arc::clone(&self.monitor));
        let hashing = spawn("hashes", {
            let (reading, monitor) = (reading.clone(), Arc::clone(&monitor));
            move || hash(&reading, &held, &monitor.stop)
        })?;
        spawn("flow", move || {
            let began = Instant::now();
            let sent = send_flow.run(&monitor).map(drop);
            let lasted = began.elapsed();
            if sent.is_err() {
                monitor.stop.store(true, Ordering::Relaxed);
            }
            flow_over.store(true, Ordering::Release);
            let hashed = result(hashing);
            sent?;
            hashed?;
            let digests = digests(&reading, &monitor.stop)?;
            Ok(Sent { lasted, digests })
        })
    }

    fn send_flow(&mut self, accepted: &Accepted) -> Result<SendFlow, SessionError> {
        let socket = SessionError::system("a UDP socket");
        let (mut here, mut peer) = (self.channel.local(), self.channel.peer());
        here.set_port(0);
        peer.set_port(accepted.port);
        let mut udp = super::bind(here, SOCKET, self.config.portable).map_err(&socket)?;
        udp.connect(peer).map_err(&socket)?;
        let secrets = self.channel.secrets(accepted.transfer)?;
        let sealer = Sealer::new(accepted.suite, &secrets.data);
        let opener = Opener::new(accepted.suite, &secrets.feedback);

        let beside = HEADER_BYTES + DATA_HEAD_BYTES + sealer.seal_bytes();
        let headers = headers_bytes(peer);
        let mtu = self.config.mtu.unwrap_or(MTU_MAX).saturating_sub(headers as usize);
        let datagram =
            udp.datagram_bytes_max().map_err(&socket)?.min(mtu).min(accepted.datagram_bytes_max as usize);
        // A packet with a note must have room for data, too.
        let payload_bytes = datagram.checked_sub(beside).filter(|bytes| *bytes > NOTE_BYTES).ok_or(
            SessionError::Incompatible(
                "the receiver or the path accepts only datagrams that are too short for data: raise the MTU",
            ),
        )?;
        // The length of a datagram has 16 bits.
        let payload_bytes = payload_bytes as u32;
        let overhead_bytes = headers + beside as u32;

        let seed = || random().map(u64::from_be_bytes).map_err(ControlError::from);
        let usual = ControllerConfig::default();
        let controller = self.config.controller.controller(ControllerConfig {
            rate_bytes_s: self.config.rate_bytes_s.unwrap_or(usual.rate_bytes_s),
            packet_bytes: payload_bytes + overhead_bytes,
            seed: seed()?,
        });
        let classification = self.config.classification.clone();
        let sender = SenderConfig { payload_bytes, overhead_bytes, seed: seed()?, classification };
        let held: RangeSet<u64> = accepted.held.iter().cloned().collect();
        let mut sender = Sender::new(sender, self.bytes, &held, controller)
            .map_err(|error: TooLong| SessionError::Protocol(error.to_string()))?;
        if self.windows.is_open() {
            sender.record_windows();
        }
        Ok(SendFlow {
            socket: udp,
            sealer,
            opener,
            transfer: accepted.transfer,
            sender,
            origin: Box::new(self.reading.clone()),
            silence_max: SILENCE_MAX,
        })
    }

    /// Reads the receiver's messages while other threads send, until the transfer is done.
    fn watch_control(
        &mut self,
        work: JoinHandle<Result<Sent, SessionError>>,
        flow_over: &AtomicBool,
        port: u16,
    ) -> Result<Duration, SessionError> {
        let mut work = Some(work);
        let (begun, mut shown, mut lasted) = (Instant::now(), Instant::now(), None);
        let mut asked: Option<Instant> = None;
        let (mut is_verifying, mut opening, mut ending) =
            (false, PollInterval::default(), PollInterval::default());
        let outcome = loop {
            if let Err(error) = check_stop(self.stop) {
                break Err(error);
            }
            let is_ending = work.is_some() && flow_over.load(Ordering::Relaxed);
            let every = opening.every(work.is_some()).min(ending.every(is_ending));
            match self.channel.receive(every) {
                Ok(Some(Message::Durable(bytes))) => self.durable_bytes = bytes.min(self.bytes),
                Ok(Some(Message::Done)) => break Ok(()),
                Ok(Some(other)) => {
                    break Err(SessionError::Protocol(format!("{} is not expected here", name(&other))));
                }
                Ok(None) => {}
                Err(error) => break Err(SessionError::connection_lost(error)),
            }
            // If the flow failed, its thread set `stop` before `flow_over`. So `stop` must be read
            // after `flow_over`.
            let is_over = flow_over.load(Ordering::Acquire) && !self.monitor.stop.load(Ordering::Relaxed);
            if shown.elapsed() >= PROGRESS_EVERY && !is_verifying {
                let progress = FlowProgress { durable_bytes: self.durable_bytes, ..self.monitor.progress() };
                shown = Instant::now();
                self.windows.keep(self.monitor.take_windows(), self.on_event);
                let is_unheard = progress.rtt.is_none() && progress.stats.sent_packets > 0;
                (self.on_event)(TransferEvent::Progress(progress));
                if is_unheard && begun.elapsed() > UNHEARD_MAX {
                    break Err(FlowError::NoFeedback(UNHEARD_MAX, port).into());
                }
                let left_bytes = self.bytes.saturating_sub(progress.held_bytes);
                let overload = self.overload.as_mut();
                if let Some(lost) =
                    overload.and_then(|overload| overload.update(begun.elapsed(), &progress, left_bytes))
                {
                    break Err(SessionError::ReceiverOverloaded { lost });
                }
            }
            if work.as_ref().is_some_and(JoinHandle::is_finished)
                && let Some(ended) = work.take()
            {
                match result(ended) {
                    Ok(sent) => {
                        lasted = Some(sent.lasted);
                        let said = send_message(&mut self.channel, &Message::Digests(sent.digests));
                        if let Err(error) = said {
                            break Err(error);
                        }
                        asked = Some(Instant::now());
                    }
                    Err(error) => break Err(error),
                }
            }
            if asked.is_some_and(|at| at.elapsed() > self.verifying_max) {
                break Err(SessionError::Protocol(
                    "the receiver did not report the verification in time".into(),
                ));
            }
            if is_over && !is_verifying && (work.is_some() || lasted.is_some()) {
                is_verifying = true;
                (self.on_event)(TransferEvent::Verifying);
            }
        };
        self.monitor.stop.store(true, Ordering::Relaxed);
        if let Some(work) = work {
            // Ignore the flow's error: the flow was stopped for a reason that is known already.
            let _ = result(work);
        }
        self.windows.keep(self.monitor.take_windows(), self.on_event);
        outcome.map(|()| lasted.unwrap_or_default())
    }
}

/// Hashes the bytes that the receiver had before, while the flow reads the other bytes.
fn hash(reading: &SharedSource, held: &[Range<u64>], stop: &AtomicBool) -> Result<(), SessionError> {
    for range in held {
        let mut at = range.start;
        while at < range.end {
            check_stop(stop)?;
            if reading.has_waiting_read() {
                std::thread::sleep(GIVE_WAY);
                continue;
            }
            at = reading.with(|source| source.hash_at(at))?;
        }
    }
    Ok(())
}

fn digests(reading: &SharedSource, stop: &AtomicBool) -> Result<Vec<[u8; 32]>, SessionError> {
    let files: Vec<usize> =
        reading.with(|source| Ok(source.manifest().files().map(|(entry, _)| entry).collect()))?;
    let mut digests = Vec::with_capacity(files.len());
    for entry in files {
        check_stop(stop)?;
        digests.push(reading.with(|source| source.digest(entry))?);
    }
    Ok(digests)
}

/// Maximum size of an IP packet, in bytes: the largest Ethernet frames in common use. The loopback
/// interface accepts packets of 64 KiB, but then 64 KiB would be sent again after each loss.
const MTU_MAX: usize = 9000;

/// Time without feedback after which a session ends. A slow disk at the other end may delay
/// feedback for up to this time. The control connection detects a dead receiver much earlier.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Time without any feedback after which UDP counts as blocked, if the control connection works.
/// The time is enough for five probes (`docs/spec/transfer.md` §6, 5).
const UNHEARD_MAX: Duration = Duration::from_secs(15);

/// Longest time for a receiver from Digests to Done. In this time the receiver may read all files
/// with their holes, and it gives all entries their names.
fn verifying_max(manifest: &Manifest) -> Duration {
    let bytes = manifest.entries().iter().map(|entry| match &entry.kind {
        EntryKind::File { size, .. } => *size,
        _ => 0,
    });
    let reading = Duration::from_secs(bytes.fold(0, u64::saturating_add) / HASHED_BYTES_S);
    VERIFYING_MAX + reading + ENTRY_NAMED_MAX * manifest.entries().len() as u32
}

/// Minimum of the time limit for verification: a receiver with a busy disk may send only pings for
/// so long. A receiver uses the same minimum when it waits for Digests.
const VERIFYING_MAX: Duration = Duration::from_secs(600);

/// Longest time to make one entry durable and to give the entry its name. The time is enough for
/// several commits of a slow disk or of a distant file server.
const ENTRY_NAMED_MAX: Duration = Duration::from_millis(100);

/// Wait of the hashing thread while the flow needs the files: about the time of one read.
const GIVE_WAY: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::files::{ManifestEntry, Modified};

    #[test]
    fn the_time_limit_of_verification_grows_with_the_manifest() {
        let max = |size: u64, extents, entries: usize| {
            let kind = EntryKind::File { size, extents };
            let entry = |at: usize| ManifestEntry {
                path: at.to_string().into_bytes(),
                kind: kind.clone(),
                mode: 0o644,
                modified: Modified::default(),
            };
            verifying_max(&Manifest::new((0..entries).map(entry).collect()).unwrap()).as_secs()
        };
        assert_eq!(max(5, None, 1), 600);
        assert_eq!(max(10_000_000, None, 100), 600 + 100 + 10);
        // The receiver reads a hole of 15 TB at 10 MB/s.
        assert_eq!(max(15_000_000_000_000, Some(vec![]), 1), 600 + 1_500_000);
        let (most, fold) = ((1 << 62) - 1, u64::MAX / HASHED_BYTES_S);
        assert_eq!(max(most, Some(vec![]), 10), 600 + fold + 1, "no overflow");
    }
}
