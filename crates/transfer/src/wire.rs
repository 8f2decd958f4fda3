//! What travels: datagrams, byte for byte, as `docs/spec/transfer.md` has them.

/// Version of the protocol: the first nibble of each datagram.
pub const VERSION: u8 = 1;

/// What every datagram begins with, in clear, authenticated where datagrams are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What follows.
    pub kind: Kind,
    /// Which transfer it belongs to, as its receiver chose.
    pub transfer: u32,
    /// Its number: counted from 0 in each direction, never used twice; it is the nonce.
    pub number: u64,
}

/// What a datagram carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A part of the object, from the sender.
    Data,
    /// What came, from the receiver.
    Feedback,
}

/// What a data packet says before its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHead {
    /// When it was sent (µs of the sender's clock, wrapping).
    pub sent_us: u32,
    /// Where its bytes belong in the object.
    pub offset: u64,
    /// What the sender tells from time to time, at least once a round trip.
    pub note: Option<Note>,
}

/// What a sender tells its receiver beside data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// Packets below this number need no report any more.
    pub floor: u64,
    /// The round trip (µs), which paces the feedback; 0 while it is not known.
    pub rtt_us: u32,
}

/// Which packets came, and what is known of the gaps between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Feedback {
    /// The first packet that the runs speak of.
    pub start: u64,
    /// From `start` on, in turns.
    pub runs: Vec<Run>,
    /// The packet that came last, and what a round trip is computed from.
    pub echo: Option<Echo>,
    /// So far, in all.
    pub totals: Totals,
}

/// Packets that came, and those missing behind them. Only the first may have none received, only the last none missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Packets that came.
    pub received: u32,
    /// Packets that did not, or not yet.
    pub missing: u32,
    /// What is known of the missing.
    pub evidence: Evidence,
}

/// What a receiver knows of one gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Whether the kernel's counter of the socket's drops rose over it; `None` where there is no such counter.
    pub host_drops: Option<bool>,
    /// Whether the packet before or after it was marked as congested; `None` where marks are not seen.
    pub is_marked: Option<bool>,
    /// One-way delay of the packet before it, above the path's minimum (µs); `None` where it is not known.
    pub delay_us: Option<u32>,
}

/// The packet that came last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Its number.
    pub number: u64,
    /// What it said of when it was sent (µs, wrapping).
    pub sent_us: u32,
    /// How long ago it came (µs).
    pub held_us: u32,
}

/// What a receiver counted since the start of the transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets read, duplicates among them.
    pub packets: u64,
    /// Their bytes of the object.
    pub bytes: u64,
    /// Packets marked as congested.
    pub marked: u64,
    /// Rate at which it can take packets (bytes of the object a second), as measured where it was the limit; 0 while it never was.
    pub drain_bytes_s: u64,
}
