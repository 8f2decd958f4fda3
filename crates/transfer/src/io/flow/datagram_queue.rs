//! Sealed datagrams that wait for the socket.

use std::io::{self, ErrorKind};
use std::ops::Range;

use crate::io::socket::{Socket, Train};

/// Trains of sealed datagrams that wait for the socket. All datagrams of a train have the same
/// length, except that the last may be shorter. The socket splits trains that are too long.
/// Datagrams are sent in the order of their numbers.
pub(super) struct DatagramQueue {
    bytes: Vec<u8>,
    trains: Vec<Waiting>,
    /// Number of trains that the socket accepted completely.
    sent: usize,
}

#[derive(Clone)]
struct Waiting {
    bytes: Range<usize>,
    segment: usize,
    /// Whether the last datagram of the train is shorter, so that no datagram can be added.
    is_closed: bool,
}

impl DatagramQueue {
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

    /// Space for the next datagram; `None` if there is no space. The caller writes the datagram
    /// there, and then calls [`DatagramQueue::push`].
    pub(super) fn room(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let from = self.len();
        self.bytes.get_mut(from..from.checked_add(bytes)?)
    }

    /// Adds a datagram of `bytes` bytes, which was written into the space that
    /// [`DatagramQueue::room`] returned.
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

    /// Sends as many trains as the socket accepts. Returns whether all trains were sent. Errors: of
    /// the socket, for the first train that was not sent; [`DatagramQueue::skip`] drops that train.
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

    /// Drops the first train. The receiver sees a loss.
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

/// Maximum size of a datagram, in bytes: the limit of UDP over IPv6 (RFC 8200 §3 without
/// jumbograms).
const DATAGRAM_MAX: usize = 65_527;
/// Size of the queue's buffer, in bytes: two trains of 64 KiB, and one datagram of any length after
/// them.
const BYTES_MAX: usize = 2 * 65_536 + DATAGRAM_MAX;
/// Maximum number of trains: three of full length, and some for retransmissions of other lengths.
const TRAINS_MAX: usize = 16;
