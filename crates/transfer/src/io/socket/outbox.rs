//! Sends each train in one piece if the path accepts trains. Otherwise sends datagrams one by one.

#[cfg(test)]
mod tests;

use std::io::{self, IoSlice};

use nix::errno::Errno;

use super::{SocketCapabilities, SocketCounters, passes};

/// Datagrams of equal length, except that the last datagram may be shorter.
#[derive(Clone, Copy, Debug)]
pub struct Train<'a> {
    /// The datagrams, one after the other.
    pub bytes: &'a [u8],
    /// Length of each datagram in bytes; 0 means that the train has only one datagram.
    pub segment: usize,
}

/// State of sending between calls.
#[derive(Debug, Default)]
pub(super) struct TrainSender {
    /// A train that was sent in part, and the number of its bytes that were sent.
    begun: Option<(TrainId, usize)>,
}

impl TrainSender {
    /// Sends trains by calls of `call`. Each call returns how many messages of its batch were sent,
    /// at least one.
    pub(super) fn send(
        &mut self,
        trains: &[Train<'_>],
        capabilities: &mut SocketCapabilities,
        counters: &mut SocketCounters,
        mut call: impl FnMut(&Batch<'_>) -> nix::Result<usize>,
    ) -> io::Result<usize> {
        let mut cursor = Cursor { train: 0, offset: self.offset_of(trains) };
        // Whether the same call failed before. The kernel returns an error of an earlier datagram
        // only once, so the call is retried after its first error.
        let mut has_failed = false;
        // Whether a train was refused. If so, the first datagram of the train is sent alone to find
        // the reason: the path accepts no trains, or it accepts no datagrams of this length.
        let mut is_alone = false;
        let ended = loop {
            let batch = Batch::of(trains, cursor, *capabilities, is_alone);
            if batch.count == 0 {
                break None;
            }
            match call(&batch) {
                Ok(sent) => {
                    if is_alone {
                        capabilities.train_max = 1;
                    }
                    (has_failed, is_alone) = (false, false);
                    cursor = cursor.past(trains, batch.bytes_of(sent));
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break Some(Errno::EAGAIN),
                Err(error) if !has_failed => {
                    has_failed = true;
                    if passes(error) {
                        counters.passing(error);
                    }
                }
                Err(error) if batch.segment.is_some() && refuses_trains(error) => {
                    (has_failed, is_alone) = (false, true);
                }
                Err(error) if passes(error) => {
                    has_failed = false;
                    counters.passing(error);
                    counters.lost += batch.datagrams_of_first();
                    cursor = cursor.past(trains, batch.bytes_of(1));
                }
                Err(error) => break Some(error),
            }
        };
        let begun = trains.get(cursor.train).filter(|_| cursor.offset > 0);
        self.begun = begun.map(|train| (TrainId::of(train), cursor.offset));
        match ended {
            Some(error) if cursor.train == 0 => Err(error.into()),
            _ => Ok(cursor.train),
        }
    }

    /// Number of bytes of the first train that an earlier call sent.
    fn offset_of(&mut self, trains: &[Train<'_>]) -> usize {
        match (self.begun.take(), trains.first()) {
            (Some((id, offset)), Some(train)) if id == TrainId::of(train) => offset,
            _ => 0,
        }
    }
}

/// Whether the kernel refuses to cut a train: there is no checksum offload (EIO), a card or a
/// tunnel cannot cut trains (EOPNOTSUPP), or the path does not accept a segment of this length
/// (EINVAL or EMSGSIZE, depending on the kernel). Source: `udp_send_skb` of `net/ipv4/udp.c`.
fn refuses_trains(error: Errno) -> bool {
    matches!(error, Errno::EIO | Errno::EINVAL | Errno::EMSGSIZE | Errno::EOPNOTSUPP)
}

/// Position in a list of trains. All bytes before the position were sent.
#[derive(Clone, Copy)]
struct Cursor {
    train: usize,
    offset: usize,
}

impl Cursor {
    fn rest<'a>(self, trains: &[Train<'a>]) -> Option<&'a [u8]> {
        trains.get(self.train).and_then(|train| train.bytes.get(self.offset..))
    }

    /// Advances by `bytes` bytes, and then past each train that was sent completely.
    fn past(mut self, trains: &[Train<'_>], mut bytes: usize) -> Self {
        while let Some(rest) = self.rest(trains) {
            if bytes < rest.len() {
                self.offset += bytes;
                break;
            }
            bytes -= rest.len();
            self = Self { train: self.train + 1, offset: 0 };
        }
        self
    }
}

/// Identifies a train by its lengths and first bytes, which differ because sealed datagrams begin
/// with their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TrainId {
    bytes: usize,
    segment: usize,
    head: [u8; 32],
}

impl TrainId {
    fn of(train: &Train<'_>) -> Self {
        let mut head = [0; 32];
        head.iter_mut().zip(train.bytes).for_each(|(to, &byte)| *to = byte);
        Self { bytes: train.bytes.len(), segment: train.segment, head }
    }
}

/// The messages of one call.
pub(super) struct Batch<'a> {
    pub(super) messages: [[IoSlice<'a>; 1]; MESSAGES],
    count: usize,
    /// Length of the segments into which the kernel splits the messages; `None` if it splits none.
    pub(super) segment: Option<u16>,
}

impl<'a> Batch<'a> {
    fn of(trains: &[Train<'a>], mut cursor: Cursor, capabilities: SocketCapabilities, alone: bool) -> Self {
        let mut batch = Self { messages: [[IoSlice::new(&[])]; MESSAGES], count: 0, segment: None };
        cursor = cursor.past(trains, 0);
        let most = if alone { 1 } else { MESSAGES };
        for message in batch.messages.iter_mut().take(most) {
            let (Some(train), Some(rest)) = (trains.get(cursor.train), cursor.rest(trains)) else { break };
            let segment = if train.segment == 0 { rest.len() } else { train.segment };
            let datagrams = if alone {
                1
            } else {
                capabilities.train_max.min(capabilities.train_bytes_max / segment).max(1)
            };
            let bytes = segment.saturating_mul(datagrams).min(rest.len());
            let cut = if bytes > segment { u16::try_from(segment).ok() } else { None };
            // The kernel does not cut a single datagram, so it may be in one batch with trains of
            // longer datagrams.
            let fits = match (batch.segment, cut) {
                (before, Some(_)) => batch.count == 0 || before == cut,
                (Some(before), None) => bytes <= usize::from(before),
                (None, None) => true,
            };
            if !fits {
                break;
            }
            *message = [IoSlice::new(rest.get(..bytes).unwrap_or(rest))];
            batch.count += 1;
            batch.segment = batch.segment.or(cut);
            cursor = cursor.past(trains, bytes);
        }
        batch
    }

    pub(super) fn messages(&self) -> &[[IoSlice<'a>; 1]] {
        self.messages.get(..self.count).unwrap_or(&self.messages)
    }

    fn bytes_of(&self, messages: usize) -> usize {
        self.messages().iter().take(messages).flatten().map(|slice| slice.len()).sum()
    }

    fn datagrams_of_first(&self) -> u64 {
        let segment = self.segment.map_or(usize::MAX, usize::from);
        self.bytes_of(1).div_ceil(segment) as u64
    }
}

/// Maximum number of messages in one call. The number is the maximum number of datagrams in a
/// train, so that one call can send the datagrams of a train one by one.
pub(super) const MESSAGES: usize = 64;
