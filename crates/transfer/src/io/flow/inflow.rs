//! The receiving end.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::{Course, FlowError, SHOW_EACH, Seen, Sink, Watch};
use crate::io::seal::{Opener, Sealer};
use crate::io::socket::{Inbox, Socket, Train};
use crate::wire::{DataHead, Header, Kind};
use crate::{Arrival, Fresh, Receiver};

/// The receiving end.
pub struct Inflow {
    /// Bound.
    pub socket: Socket,
    /// Of data.
    pub opener: Opener,
    /// Of feedback.
    pub sealer: Sealer,
    /// As the receiver chose.
    pub transfer: u32,
    /// What decides.
    pub receiver: Receiver,
    /// Whither.
    pub sink: Box<dyn Sink>,
    /// Datagrams come from this address, which the control connection validated (RFC 9000 §8.1); the port may be any, and change.
    pub from: IpAddr,
    /// Gives up when nothing was heard for so long.
    pub silence_max: Duration,
}

impl Inflow {
    /// Receives until all is there and written, answers for as long as the sender may still ask, and gives the sink back.
    ///
    /// # Errors
    /// What ended the flow before.
    pub fn run(mut self, watch: &Watch) -> Result<Box<dyn Sink>, FlowError> {
        let mut course = Course::new(watch);
        let mut inbox = Inbox::new(64);
        let (mut refused, mut number, mut peer) = (0, 0, None);
        let mut heard = Duration::ZERO;
        let mut synced = false;
        let mut out = Vec::new();
        loop {
            let is_complete = self.receiver.is_complete();
            if is_complete && !synced {
                self.sink.sync()?;
                synced = true;
            }
            let now = course.now();
            course.show(now, || Seen { refused_datagrams: refused, ..Seen::default() });
            match course.check_stop() {
                Err(_) if is_complete => return Ok(self.sink),
                checked => checked?,
            }
            match self.socket.receive(&mut inbox) {
                Ok(_) => {
                    let now = course.now();
                    for received in inbox.received() {
                        for datagram in received.bytes.chunks_mut(received.segment.max(1)) {
                            let opened = (received.from.ip() == self.from)
                                .then(|| self.opener.open(datagram))
                                .flatten()
                                .filter(|(header, _)| {
                                    header.kind == Kind::Data && header.transfer == self.transfer
                                });
                            let Some((header, body)) = opened else {
                                refused += 1;
                                continue;
                            };
                            let Ok((head, bytes)) = DataHead::decode(body) else {
                                refused += 1;
                                continue;
                            };
                            let range = head.offset..head.offset + bytes.len() as u64;
                            let arrival = Arrival {
                                number: header.number,
                                sent_us: head.sent_us,
                                range,
                                note: head.note,
                                at: now,
                                is_marked: received.is_marked,
                                drops: received.drops,
                            };
                            heard = now;
                            match self.receiver.handle_data(&arrival) {
                                Ok(fresh) => {
                                    peer = Some(received.from);
                                    match fresh {
                                        Fresh::Nothing => {}
                                        Fresh::All => self.sink.write(head.offset, bytes)?,
                                        Fresh::Parts(parts) => {
                                            for part in parts {
                                                let at = (part.start - head.offset) as usize;
                                                let to = (part.end - head.offset) as usize;
                                                self.sink.write(
                                                    part.start,
                                                    bytes.get(at..to).unwrap_or_default(),
                                                )?;
                                            }
                                        }
                                    }
                                }
                                Err(_) => refused += 1,
                            }
                        }
                    }
                }
                Err(error) if is_passing(error.kind()) => {}
                Err(error) => return Err(error.into()),
            }
            let now = course.now();
            while let Some(feedback) = self.receiver.poll_feedback(now) {
                let Some(to) = peer else { continue };
                self.answer(&feedback, &mut number, to, &mut out)?;
            }
            let due = self.receiver.poll_timeout();
            if due.is_none() && is_complete {
                return Ok(self.sink);
            }
            if heard + self.silence_max < now {
                let port = self.socket.local_addr()?.port();
                return Err(FlowError::Silent(self.silence_max, port));
            }
            let wait = due.map_or(SHOW_EACH, |due| due.saturating_sub(course.now()).min(SHOW_EACH));
            if wait > Duration::ZERO {
                self.socket.wait(false, wait)?;
            }
        }
    }

    fn answer(
        &mut self,
        feedback: &crate::Feedback,
        number: &mut u64,
        to: SocketAddr,
        out: &mut Vec<u8>,
    ) -> Result<(), FlowError> {
        out.clear();
        out.extend(Header { kind: Kind::Feedback, transfer: self.transfer, number: *number }.encode());
        feedback.encode(out, usize::MAX);
        out.resize(out.len() + self.sealer.seal_bytes(), 0);
        if self.sealer.seal(*number, out) {
            match self.socket.send(&[Train { bytes: out, segment: out.len() }], Some(to)) {
                Ok(_) => {}
                Err(error) if is_passing(error.kind()) => {}
                Err(error) => return Err(error.into()),
            }
        }
        *number += 1;
        Ok(())
    }
}

fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::ConnectionRefused | ErrorKind::Interrupted)
}
