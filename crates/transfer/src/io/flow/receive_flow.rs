//! The receiving end of a flow.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::loop_context::{ArrivalClock, LoopContext, WAIT_MAX};
use super::receive_sleep::ReceiveSleep;
use super::sink_writer::SinkWriter;
use super::{FlowError, FlowMonitor, FlowProgress, Sink};
use crate::io::seal::{Opener, Sealer};
use crate::io::socket::{Inbox, Received, Socket, Train, is_too_large};
use crate::proto::wire::{DataHead, HEADER_BYTES, Header, PacketKind};
use crate::proto::{Arrival, Feedback, NewBytes, Receiver, Refusal};

pub struct ReceiveFlow {
    pub socket: Socket,
    pub opener: Opener,
    pub sealer: Sealer,
    /// Identifier of the transfer, which the receiver chose.
    pub transfer: u32,
    pub receiver: Receiver,
    pub sink: Box<dyn Sink>,
    /// Source address of datagrams. The control connection validated this address (RFC 9000 §8.1).
    /// The datagrams may come from any port, and the port may change.
    pub from: IpAddr,
    /// Time without a packet after which the flow ends.
    pub silence_max: Duration,
}

impl ReceiveFlow {
    /// Receives until all bytes of the object have arrived and are durable. Sends feedback for as
    /// long as the sender may need feedback, and then returns the sink.
    ///
    /// When all bytes have arrived and the sender needs no more feedback, the caller may stop the
    /// flow. Then the sink is returned as soon as all bytes are durable. Errors: the reason why the
    /// flow ended early. What was received is written and durable, unless the sink failed or takes
    /// longer than 10 s.
    pub fn run(mut self, monitor: &FlowMonitor) -> Result<Box<dyn Sink>, FlowError> {
        let mut context = LoopContext::new(monitor);
        let held_bytes = self.receiver.held().iter().map(|range| range.end - range.start).sum();
        let capabilities = self.socket.capabilities();
        if !capabilities.has_times {
            self.receiver.omit_delays();
        }
        let mut receiving = ReceiveLoop {
            sleep: ReceiveSleep::new(capabilities.receive_buffer_bytes, capabilities.has_times),
            inbox_trains: if capabilities.receives_trains { INBOX_TRAINS } else { INBOX_DATAGRAMS },
            socket: self.socket,
            opener: self.opener,
            sealer: self.sealer,
            transfer: self.transfer,
            receiver: self.receiver,
            writer: SinkWriter::new(self.sink, held_bytes)?,
            from: self.from.to_canonical(),
            peer: None,
            highest: None,
            heard: Duration::ZERO,
            latest: Duration::ZERO,
            number: 0,
            out: Vec::new(),
            held_bytes,
            refused: 0,
        };
        let ended = receiving.run(&mut context, self.silence_max);
        context.show(context.now(), receiving.progress());
        if ended.is_err() {
            receiving.writer.abandon();
        }
        ended?;
        receiving.writer.end()
    }
}

/// State of a running receiving end.
struct ReceiveLoop {
    sleep: ReceiveSleep,
    inbox_trains: usize,
    socket: Socket,
    opener: Opener,
    sealer: Sealer,
    transfer: u32,
    receiver: Receiver,
    writer: SinkWriter,
    from: IpAddr,
    /// Destination of feedback: the source of the packet with the highest number. So a copy of an
    /// earlier packet from a different address does not redirect the feedback (RFC 9000 §9.3).
    peer: Option<SocketAddr>,
    highest: Option<u64>,
    /// When the last packet of the sender arrived. Copies of earlier packets do not count.
    heard: Duration,
    /// When the last packet arrived, from any source. Arrival times never go back, even if the
    /// clock is set.
    latest: Duration,
    /// Number of the next feedback.
    number: u64,
    out: Vec<u8>,
    held_bytes: u64,
    refused: u64,
}

impl ReceiveLoop {
    fn run(&mut self, context: &mut LoopContext<'_>, silence_max: Duration) -> Result<(), FlowError> {
        let mut inbox = Inbox::new(self.inbox_trains);
        let mut is_finishing = false;
        loop {
            let is_complete = self.receiver.is_complete();
            if is_complete && !is_finishing {
                self.writer.finish()?;
                is_finishing = true;
            }
            let now = context.now();
            if context.is_show_due(now) {
                context.show(now, self.progress());
            }
            let is_stopped = context.is_stopped();
            if !is_complete && is_stopped {
                return Err(FlowError::Stopped);
            }
            if !is_complete && self.heard + silence_max < now {
                return Err(FlowError::NoFeedback(silence_max, self.socket.local_addr()?.port()));
            }
            let has_room = self.writer.has_room()?;
            let read = if has_room { self.read(context, &mut inbox)? } else { 0 };
            let now = context.now();
            if !is_finishing {
                self.writer.flush(now, false)?;
            }
            while let Some(feedback) = self.receiver.poll_feedback(now) {
                self.answer(&feedback)?;
            }
            let due = self.receiver.poll_timeout();
            if is_finishing && (due.is_none() || is_stopped) && self.writer.is_finished()? {
                return Ok(());
            }
            // Read again: more datagrams may wait in the socket.
            if read > 0 {
                continue;
            }
            let sleep = self.sleep.next(now, has_room).filter(|_| !is_finishing);
            let left = due.map_or(WAIT_MAX, |due| due.saturating_sub(context.now()).min(WAIT_MAX));
            if !has_room {
                self.writer.wait(left)?;
            } else if let Some(sleep) = sleep {
                std::thread::sleep(sleep);
            } else if !left.is_zero() {
                self.socket.wait(false, if is_finishing { left.min(FINISH_WAIT) } else { left })?;
            }
        }
    }

    /// Reads and processes the datagrams that arrived. Returns the number of bytes that were read.
    fn read(&mut self, context: &LoopContext<'_>, inbox: &mut Inbox) -> Result<usize, FlowError> {
        match self.socket.receive(inbox) {
            // The read returned only unusable datagrams or temporary errors.
            Ok(0) => return Ok(0),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error.into()),
        }
        let now = context.now();
        let clock = ArrivalClock::new(now);
        let mut bytes = 0;
        for received in inbox.received() {
            bytes += received.bytes.len();
            self.sleep.on_read(now, clock.time(received.at), received.bytes.len(), received.segment);
            self.take(received, &clock)?;
        }
        Ok(bytes)
    }

    fn take(&mut self, received: Received<'_>, clock: &ArrivalClock) -> Result<(), FlowError> {
        let Received { bytes, segment, from, at, is_marked, drops } = received;
        // Ignore datagrams from port 0 (RFC 768: the sender expects no reply), because no feedback
        // can be sent to port 0.
        if from.ip().to_canonical() != self.from || from.port() == 0 {
            self.refused += bytes.len().div_ceil(segment.max(1)) as u64;
            return Ok(());
        }
        let at = clock.time(at).max(self.latest);
        self.latest = at;
        for datagram in bytes.chunks_mut(segment.max(1)) {
            let opened = self.opener.open(datagram);
            let ours = opened
                .filter(|(header, _)| header.kind == PacketKind::Data && header.transfer == self.transfer)
                .and_then(|(header, body)| Some((header, DataHead::decode(body).ok()?)));
            let Some((header, (head, bytes))) = ours else {
                self.refused += 1;
                continue;
            };
            let arrival = Arrival {
                number: header.number,
                sent_us: head.sent_us,
                // No overflow: both numbers are below 2^62.
                range: head.offset..head.offset + bytes.len() as u64,
                note: head.note,
                at,
                is_marked,
                drops,
            };
            let fresh = match self.receiver.handle_data(&arrival) {
                Ok(fresh) => fresh,
                Err(Refusal::TooFar(_) | Refusal::Scattered(_)) => {
                    self.heard = at;
                    continue;
                }
                Err(Refusal::Repeated(_) | Refusal::Beyond { .. }) => {
                    self.refused += 1;
                    continue;
                }
            };
            self.heard = at;
            if self.highest.is_none_or(|highest| highest < header.number) {
                (self.highest, self.peer) = (Some(header.number), Some(from));
            }
            self.write(&arrival, bytes, fresh)?;
        }
        Ok(())
    }

    fn write(&mut self, arrival: &Arrival, bytes: &[u8], fresh: NewBytes) -> Result<(), FlowError> {
        match fresh {
            NewBytes::All => {
                self.held_bytes += bytes.len() as u64;
                self.writer.put(arrival.range.start, bytes)
            }
            NewBytes::Parts(parts) => {
                for part in parts {
                    let begin = (part.start - arrival.range.start) as usize;
                    let end = (part.end - arrival.range.start) as usize;
                    let bytes = bytes.get(begin..end).unwrap_or_default();
                    self.held_bytes += bytes.len() as u64;
                    self.writer.put(part.start, bytes)?;
                }
                Ok(())
            }
            NewBytes::Nothing => Ok(()),
        }
    }

    /// Sends feedback. If the socket has no space, the feedback is dropped, like a datagram that
    /// the network loses.
    fn answer(&mut self, feedback: &Feedback) -> Result<(), FlowError> {
        let Some(to) = self.peer else { return Ok(()) };
        let number = self.number;
        self.number += 1;
        self.out.clear();
        self.out.extend(Header { kind: PacketKind::Feedback, transfer: self.transfer, number }.encode());
        // The receiver has limited the length of the feedback already.
        feedback.encode(&mut self.out, usize::MAX);
        self.out.resize(self.out.len() + self.sealer.seal_bytes(), 0);
        if !self.sealer.seal(number, &mut self.out) {
            return Ok(());
        }
        match self.socket.send(&[Train { bytes: &self.out, segment: self.out.len() }], Some(to)) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            // Drop this datagram and make the next ones shorter. The limit of the return path is
            // unknown, because a socket that is not connected does not report it.
            Err(error) if is_too_large(&error) => {
                let body = self.out.len().saturating_sub(HEADER_BYTES + self.sealer.seal_bytes());
                self.receiver.limit_feedback(body / 2);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn progress(&self) -> FlowProgress {
        FlowProgress {
            held_bytes: self.held_bytes,
            durable_bytes: self.writer.durable_bytes(),
            refused_datagrams: self.refused,
            ..FlowProgress::default()
        }
    }
}

/// Maximum number of trains in one read: 256 KiB in total. The bytes are then still in a
/// processor's cache when they are decrypted and written.
const INBOX_TRAINS: usize = 4;
/// Maximum number of datagrams in one read, on systems where each train is a single datagram.
const INBOX_DATAGRAMS: usize = 16;
/// Longest wait while the last bytes are written, so that the end of the writes is detected soon.
const FINISH_WAIT: Duration = Duration::from_millis(5);
