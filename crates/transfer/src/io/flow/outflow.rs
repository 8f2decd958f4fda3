//! The sending end.

use std::io::ErrorKind;
use std::time::Duration;

use super::{Course, FlowError, Origin, SHOW_EACH, Seen, Watch};
use crate::io::seal::{Opener, Sealer};
use crate::io::socket::{Inbox, Socket, Train};
use crate::wire::{DataHead, Feedback, Header, Kind};
use crate::{Packet, Sender, Stats};

/// The sending end.
pub struct Outflow {
    /// Connected to the receiver.
    pub socket: Socket,
    /// Of data.
    pub sealer: Sealer,
    /// Of feedback.
    pub opener: Opener,
    /// As the receiver chose.
    pub transfer: u32,
    /// What decides.
    pub sender: Sender,
    /// Whence.
    pub origin: Box<dyn Origin>,
    /// Gives up when nothing was heard for so long.
    pub silence_max: Duration,
}

impl Outflow {
    /// Sends until all is acknowledged; the origin comes back to be asked for digests.
    ///
    /// # Errors
    /// What ended the flow before.
    pub fn run(mut self, watch: &Watch) -> Result<(Stats, Box<dyn Origin>), FlowError> {
        let mut course = Course::new(watch);
        let mut inbox = Inbox::new(INBOX_TRAINS);
        let mut outbox = Outbox::default();
        let mut refused = 0;
        let port = self.socket.local_addr()?.port();
        while !self.sender.is_done() {
            course.check_stop()?;
            self.hear(&course, &mut inbox, &mut refused)?;
            let now = course.now();
            self.sender.handle_timeout(now);
            if self.silence_max < self.sender.silence(now) {
                return Err(FlowError::Silent(self.silence_max, port));
            }
            course.show(now, || self.seen(refused));
            if outbox.trains.is_empty() {
                outbox.bytes.clear();
                while outbox.bytes.len() < BURST_BYTES
                    && let Some(packet) = self.sender.poll_packet(now)
                {
                    self.push(&mut outbox, &packet)?;
                }
            }
            let is_stuck = !outbox.send(&mut self.socket)?;
            let due = self.sender.poll_timeout().unwrap_or(now);
            let wait = if is_stuck { SHOW_EACH } else { due.saturating_sub(course.now()).min(SHOW_EACH) };
            if wait > Duration::ZERO {
                self.socket.wait(is_stuck, wait)?;
            }
        }
        course.show_now(self.seen(refused));
        Ok((self.sender.stats(), self.origin))
    }

    fn hear(&mut self, course: &Course<'_>, inbox: &mut Inbox, refused: &mut u64) -> Result<(), FlowError> {
        match self.socket.receive(inbox) {
            Ok(_) => {}
            Err(error) if is_passing(error.kind()) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let now = course.now();
        for received in inbox.received() {
            for datagram in received.bytes.chunks_mut(received.segment.max(1)) {
                let opened = self.opener.open(datagram);
                let ours = opened
                    .filter(|(header, _)| header.kind == Kind::Feedback && header.transfer == self.transfer);
                let read =
                    ours.and_then(|(header, body)| Some((header.number, Feedback::decode(body).ok()?)));
                match read {
                    Some((number, feedback)) => self.sender.handle_feedback(now, number, &feedback)?,
                    None => *refused += 1,
                }
            }
        }
        Ok(())
    }

    fn push(&mut self, outbox: &mut Outbox, packet: &Packet) -> Result<(), FlowError> {
        let head = DataHead { sent_us: packet.sent_us, offset: packet.range.start, note: packet.note };
        let header = Header { kind: Kind::Data, transfer: self.transfer, number: packet.number };
        let from = outbox.bytes.len();
        outbox.bytes.extend(header.encode());
        head.encode(&mut outbox.bytes);
        let body = outbox.bytes.len();
        let len = (packet.range.end - packet.range.start) as usize;
        outbox.bytes.resize(body + len + self.sealer.seal_bytes(), 0);
        if let Some(out) = outbox.bytes.get_mut(body..body + len) {
            self.origin.read(packet.range.start, out)?;
        }
        if let Some(datagram) = outbox.bytes.get_mut(from..) {
            let _ = self.sealer.seal(packet.number, datagram);
        }
        outbox.trains.push_back(from..outbox.bytes.len());
        Ok(())
    }

    fn seen(&self, refused_datagrams: u64) -> Seen {
        let stats = self.sender.stats();
        Seen {
            held_bytes: stats.acked_bytes,
            stats,
            rate_bytes_s: self.sender.rate_bytes_s(),
            rtt: self.sender.rtt().latest.map(|_| self.sender.rtt().smoothed),
            limit: Some(self.sender.limit()),
            refused_datagrams,
            ..Seen::default()
        }
    }
}

/// What is sealed and not sent.
#[derive(Debug, Default)]
struct Outbox {
    bytes: Vec<u8>,
    trains: std::collections::VecDeque<std::ops::Range<usize>>,
}

impl Outbox {
    /// Whether all went.
    fn send(&mut self, socket: &mut Socket) -> Result<bool, FlowError> {
        while let Some(train) = self.trains.front().cloned() {
            let bytes = self.bytes.get(train.clone()).unwrap_or_default();
            match socket.send(&[Train { bytes, segment: train.len() }], None) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if is_passing(error.kind()) => {}
                Err(error) => return Err(error.into()),
            }
            self.trains.pop_front();
        }
        Ok(true)
    }
}

/// What an ICMP message that anyone may have sent makes of a socket for one call, and a signal.
fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::ConnectionRefused | ErrorKind::Interrupted)
}

const INBOX_TRAINS: usize = 8;
const BURST_BYTES: usize = 65_536;
