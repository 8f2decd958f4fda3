//! Datagrams that are sealed and wait for the socket.

use std::io::{self, ErrorKind};
use std::ops::Range;

use crate::io::socket::{Socket, Train};

/// Datagrams, in trains of equal length of which the last may be shorter, and which the socket cuts where they are too long; all that is in it is sent, in the order of numbers.
pub(super) struct Outbox {
    bytes: Vec<u8>,
    trains: Vec<Waiting>,
    /// Trains of which the socket took all.
    sent: usize,
}

#[derive(Clone)]
struct Waiting {
    bytes: Range<usize>,
    segment: usize,
    /// Its last datagram is shorter.
    is_closed: bool,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; BYTES_MAX], trains: Vec::with_capacity(TRAINS_MAX), sent: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.trains.is_empty()
    }

    /// Whether there is room for another datagram.
    pub(super) fn has_room(&self) -> bool {
        self.trains.len() < TRAINS_MAX && self.len() + DATAGRAM_MAX <= BYTES_MAX
    }

    fn len(&self) -> usize {
        self.trains.last().map_or(0, |train| train.bytes.end)
    }

    /// Room for the next datagram, to be written and then [`Outbox::push`]ed; `None` where there is none.
    pub(super) fn room(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let from = self.len();
        self.bytes.get_mut(from..from.checked_add(bytes)?)
    }

    /// What was written into the room is a datagram of so many bytes.
    pub(super) fn push(&mut self, bytes: usize) {
        let from = self.len();
        match self.trains.last_mut() {
            Some(last) if bytes <= last.segment && !last.is_closed => {
                last.bytes.end += bytes;
                last.is_closed = bytes < last.segment;
            }
            _ => self.trains.push(Waiting { bytes: from..from + bytes, segment: bytes, is_closed: false }),
        }
    }

    /// Sends what the socket takes; whether that was all.
    /// Errors: what the socket said of the first train that is left. [`Outbox::skip`] gives it up.
    pub(super) fn send(&mut self, socket: &mut Socket) -> io::Result<bool> {
        while self.sent < self.trains.len() {
            let mut trains = [Train { bytes: &[], segment: 1 }; TRAINS_MAX];
            let waiting = self.trains.iter().skip(self.sent);
            let mut count = 0;
            for (train, waiting) in trains.iter_mut().zip(waiting) {
                let bytes = self.bytes.get(waiting.bytes.clone()).unwrap_or_default();
                *train = Train { bytes, segment: waiting.segment };
                count += 1;
            }
            match socket.send(trains.get(..count).unwrap_or_default(), None) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.clear();
        Ok(true)
    }

    /// Gives the first train up, as if it had been lost.
    pub(super) fn skip(&mut self) {
        self.sent += 1;
        if self.trains.len() <= self.sent {
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.trains.clear();
        self.sent = 0;
    }
}

/// The most that a datagram may have: UDP's over IPv6 (RFC 8200 §3 without jumbograms).
const DATAGRAM_MAX: usize = 65_527;
/// Two trains of 64 KiB at once; one datagram of any length fits behind them.
const BYTES_MAX: usize = 2 * 65_536 + DATAGRAM_MAX;
/// That is three trains, and retransmissions of odd lengths make some more.
const TRAINS_MAX: usize = 16;
