//! The sending end of a flow.

use std::io::{self, ErrorKind};
use std::iter;
use std::time::Duration;

use nix::errno::Errno;

use super::datagram_queue::DatagramQueue;
use super::loop_context::{LoopContext, WAIT_MAX, cpu};
use super::origin_reader::OriginReader;
use super::{FlowError, FlowMonitor, FlowProgress, Origin};
use crate::io::seal::{Opener, Sealer};
use crate::io::socket::{Inbox, Socket, is_too_large};
use crate::proto::wire::{DATA_HEAD_BYTES, DataHead, Feedback, HEADER_BYTES, Header, PacketKind};
use crate::proto::{Packet, Sender, SenderStats};

pub struct SendFlow {
    /// Socket that is connected to the receiver.
    pub socket: Socket,
    pub sealer: Sealer,
    pub opener: Opener,
    /// Identifier of the transfer, which the receiver chose.
    pub transfer: u32,
    pub sender: Sender,
    pub origin: Box<dyn Origin>,
    /// Time without feedback after which the flow ends.
    pub silence_max: Duration,
}

impl SendFlow {
    /// Sends until all bytes are acknowledged. Returns the origin, because the caller still needs
    /// its digests. Errors: the reason why the flow ended early.
    pub fn run(self, monitor: &FlowMonitor) -> Result<(SenderStats, Box<dyn Origin>), FlowError> {
        let mut context = LoopContext::new(monitor);
        let queue = DatagramQueue::new();
        let mut sending = SendLoop {
            socket: self.socket,
            sealer: self.sealer,
            opener: self.opener,
            transfer: self.transfer,
            sender: self.sender,
            reader: OriginReader::new(self.origin)?,
            queue,
            pending: None,
            head: Vec::with_capacity(HEADER_BYTES + DataHead::BYTES_MAX),
            refused: 0,
            cpu_classifier: Duration::ZERO,
            read_wait: Duration::ZERO,
        };
        let mut inbox = Inbox::new(INBOX_TRAINS);
        let ended = sending.run(&mut context, &mut inbox, self.silence_max);
        monitor.add_windows(iter::from_fn(|| sending.sender.poll_window()));
        context.show(context.now(), sending.progress());
        ended?;
        Ok((sending.sender.stats(), sending.reader.end()?))
    }
}

/// State of a running sending end.
struct SendLoop {
    socket: Socket,
    sealer: Sealer,
    opener: Opener,
    transfer: u32,
    sender: Sender,
    reader: OriginReader,
    queue: DatagramQueue,
    /// A packet that waits because its bytes are not available yet. The packet was polled from the
    /// sender, so it must be sent.
    pending: Option<Packet>,
    head: Vec<u8>,
    refused: u64,
    cpu_classifier: Duration,
    /// Time spent waiting for bytes to send.
    read_wait: Duration,
}

/// Reason why a sender cannot send more packets now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SendBlocked {
    /// The rate or the window does not allow a packet now, or there is nothing to send.
    RateOrWindow,
    /// There is no room in the socket.
    SocketFull,
    NotRead,
    No,
}

impl SendLoop {
    fn run(
        &mut self,
        context: &mut LoopContext<'_>,
        inbox: &mut Inbox,
        silence_max: Duration,
    ) -> Result<(), FlowError> {
        while !self.sender.is_done() {
            if context.is_stopped() {
                return Err(FlowError::Stopped);
            }
            self.read_feedback(context, inbox)?;
            let now = context.now();
            self.call_sender(now, |sender| sender.handle_timeout(now));
            let silence = self.sender.silence(now);
            if silence > silence_max {
                let port = self.socket.peer_addr().map_or(0, |peer| peer.port());
                return Err(FlowError::NoFeedback(silence_max, port));
            }
            self.shrink_without_feedback(silence);
            if context.is_show_due(now) {
                context.add_windows(iter::from_fn(|| self.sender.poll_window()));
                context.show(now, self.progress());
            }
            self.reader.order(&self.sender)?;
            let blocked = self.send(context.now())?;
            self.wait(context, blocked)?;
        }
        Ok(())
    }

    /// Reads and processes received feedback.
    fn read_feedback(&mut self, context: &LoopContext<'_>, inbox: &mut Inbox) -> Result<(), FlowError> {
        match self.socket.receive(inbox) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let now = context.now();
        for received in inbox.received() {
            for datagram in received.bytes.chunks_mut(received.segment.max(1)) {
                let opened = self.opener.open(datagram);
                let ours = opened.filter(|(header, _)| {
                    header.kind == PacketKind::Feedback && header.transfer == self.transfer
                });
                let read =
                    ours.and_then(|(header, body)| Some((header.number, Feedback::decode(body).ok()?)));
                match read {
                    Some((number, feedback)) => {
                        self.call_sender(now, |sender| sender.handle_feedback(now, number, &feedback))?;
                    }
                    None => self.refused += 1,
                }
            }
        }
        Ok(())
    }

    /// Calls the sender. If the loss classifier runs during the call, adds the CPU time of the call
    /// to `cpu_classifier`.
    fn call_sender<T>(&mut self, now: Duration, call: impl FnOnce(&mut Sender) -> T) -> T {
        let runs = self.sender.classifier_runs();
        let before = self.sender.classifier_due().filter(|at| *at <= now).map(|_| cpu());
        let result = call(&mut self.sender);
        if let Some(before) = before.filter(|_| runs < self.sender.classifier_runs()) {
            self.cpu_classifier += cpu().saturating_sub(before);
        }
        result
    }

    /// Seals and sends a burst.
    fn send(&mut self, now: Duration) -> Result<SendBlocked, FlowError> {
        let mut blocked = SendBlocked::No;
        if self.queue.is_empty() {
            blocked = self.gather(now)?;
        }
        loop {
            match self.queue.send(&mut self.socket) {
                Ok(true) => return Ok(blocked),
                Ok(false) => return Ok(SendBlocked::SocketFull),
                Err(error) if is_too_large(&error) => {
                    // Read the path's limit again, because the kernel has updated it. The packets
                    // of the first train are lost.
                    let bytes = self.socket.datagram_bytes_max().unwrap_or(DATAGRAM_BYTES_MIN);
                    self.queue.skip();
                    self.shrink(bytes);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Fills the outbox with the packets that may be sent now.
    fn gather(&mut self, now: Duration) -> Result<SendBlocked, FlowError> {
        while self.queue.has_room() {
            let packet = match self.pending.take() {
                Some(packet) => packet,
                None => {
                    // If the origin never waits, packets need no check whether their bytes are
                    // available.
                    if !self.reader.is_direct()
                        && let Some(next) = self.sender.next_range()
                        && !self.is_at_hand(next)
                    {
                        self.sender.hold_back();
                        return Ok(SendBlocked::NotRead);
                    }
                    match self.sender.poll_packet(now) {
                        Some(packet) => packet,
                        None => return Ok(SendBlocked::RateOrWindow),
                    }
                }
            };
            if !self.seal(&packet)? {
                // The packet is a probe, and its bytes are no longer in memory: request them.
                let payload = packet.range.end - packet.range.start;
                let unsent = self.sender.unsent(0).start;
                self.reader.has(&packet.range, payload, unsent);
                self.pending = Some(packet);
                return Ok(SendBlocked::NotRead);
            }
        }
        Ok(SendBlocked::No)
    }

    fn is_at_hand(&mut self, next: std::ops::Range<u64>) -> bool {
        let unsent = self.sender.unsent(0).start;
        self.reader.has(&next, u64::from(self.sender.payload_bytes()), unsent)
    }

    /// Writes the datagram of a packet; returns whether its bytes were available.
    fn seal(&mut self, packet: &Packet) -> Result<bool, FlowError> {
        let header = Header { kind: PacketKind::Data, transfer: self.transfer, number: packet.number };
        let head = DataHead { sent_us: packet.sent_us, offset: packet.range.start, note: packet.note };
        self.head.clear();
        self.head.extend(header.encode());
        head.encode(&mut self.head);
        // The length of a payload has 32 bits.
        let len = (packet.range.end - packet.range.start) as usize;
        let body = self.head.len();
        let bytes = body + len + self.sealer.seal_bytes();
        let Some(datagram) = self.queue.room(bytes) else {
            return Err(io::Error::from(Errno::EMSGSIZE).into());
        };
        let (out, rest) = datagram.split_at_mut(body);
        out.copy_from_slice(&self.head);
        let (out, _) = rest.split_at_mut(len);
        if !self.reader.read(packet.range.start, out)? {
            return Ok(false);
        }
        if self.sealer.seal(packet.number, datagram) {
            self.queue.push(bytes);
        }
        Ok(true)
    }

    fn wait(&mut self, context: &LoopContext<'_>, blocked: SendBlocked) -> Result<(), FlowError> {
        let Some(due) = self.sender.poll_timeout() else { return Ok(()) };
        let left = due.saturating_sub(context.now()).min(WAIT_MAX);
        match blocked {
            SendBlocked::No => {}
            SendBlocked::RateOrWindow if left < WAIT_MIN => {}
            SendBlocked::RateOrWindow => self.socket.wait(false, left)?,
            SendBlocked::SocketFull => self.socket.wait(true, WAIT_MAX)?,
            SendBlocked::NotRead => {
                let began = context.now();
                self.reader.wait(READ_WAIT)?;
                self.read_wait += context.now().saturating_sub(began);
            }
        }
        Ok(())
    }

    /// Shortens datagrams if no feedback ever came, or if feedback stopped: the path may drop
    /// packets of the present length without a report.
    fn shrink_without_feedback(&mut self, silence: Duration) {
        let shrink_after =
            if self.sender.stats().acked_bytes == 0 { SHRINK_AFTER_FIRST } else { SHRINK_AFTER_LATER };
        if silence > shrink_after {
            self.shrink(DATAGRAM_BYTES_MIN);
        }
    }

    /// Shortens datagrams to `datagram_bytes` bytes. If `datagram_bytes` is not shorter than the
    /// present length, shortens datagrams to [`DATAGRAM_BYTES_MIN`]. Never makes datagrams longer.
    fn shrink(&mut self, datagram_bytes: usize) {
        let beside = HEADER_BYTES + DATA_HEAD_BYTES + self.sealer.seal_bytes();
        let now = self.sender.payload_bytes();
        let fitting =
            |bytes: usize| u32::try_from(bytes.saturating_sub(beside)).ok().filter(|fits| *fits < now);
        // If the kernel refused a length that it reported as possible, use the minimum.
        if let Some(payload) = fitting(datagram_bytes).or_else(|| fitting(DATAGRAM_BYTES_MIN)) {
            self.sender.set_payload_bytes(payload.max(1));
        }
    }

    fn progress(&self) -> FlowProgress {
        let stats = self.sender.stats();
        FlowProgress {
            held_bytes: self.sender.held_bytes(),
            stats,
            rate_bytes_s: self.sender.rate_bytes_s(),
            rtt: self.sender.rtt().latest.map(|_| self.sender.rtt().smoothed),
            limit: Some(self.sender.limit()),
            drain_bytes_s: self.sender.drain_bytes_s(),
            cpu_classifier: self.cpu_classifier,
            busy_reader: self.reader.busy(),
            read_wait: self.read_wait,
            refused_datagrams: self.refused,
            ..FlowProgress::default()
        }
    }
}

/// Maximum number of trains in one read. Feedback arrives in single datagrams, a few in each round
/// trip.
const INBOX_TRAINS: usize = 16;
/// Size of a datagram, in bytes, that every path accepts on which QUIC works (RFC 9000 §14.1).
/// Every IPv6 path accepts this size as well, because the IP packet has at most 1280 bytes (RFC
/// 8200 §5).
const DATAGRAM_BYTES_MIN: usize = 1200;
/// Time after which datagrams are shortened if no packet was ever acknowledged. This time is longer
/// than any round trip on Earth, also by geostationary satellite.
const SHRINK_AFTER_FIRST: Duration = Duration::from_secs(1);
/// Time without new feedback after which datagrams are shortened. A change of route or the repair
/// of a link takes some seconds. If there is no feedback for longer, the length of datagrams may be
/// the reason.
const SHRINK_AFTER_LATER: Duration = Duration::from_secs(8);
/// Minimum time of a wait. A shorter wait is skipped, because to sleep and to wake up takes longer.
const WAIT_MIN: Duration = Duration::from_micros(5);
/// Longest wait for a disk. The wait ends at once when bytes were read. Such a wait can delay the
/// processing of feedback by up to this time.
const READ_WAIT: Duration = Duration::from_micros(200);
