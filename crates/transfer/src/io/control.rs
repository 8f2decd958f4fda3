//! What both ends agree on, over one TLS 1.3 connection (`docs/spec/transfer.md`, its second part): messages and their bytes.
//!
//! ```text
//! sender                              receiver
//! Hello(token)            →
//!                         ←           Welcome | Refuse
//! Offer(manifest)         →
//!                         ←           Accept(what is there already) | Refuse
//! ═══════════════ datagrams ═══════════════
//! Ping                    ⇄           Durable(bytes)
//! Digests                 →
//!                         ←           Done | Refuse
//! ```

mod channel;
mod codec;
mod connect;
mod door;
mod error;
mod listener;
mod order;
mod pipe;
#[cfg(test)]
mod tests;

use std::ops::Range;

use super::identity::Token;
use super::seal::Suite;

pub use channel::Channel;
pub(crate) use codec::fuzz;
pub use codec::{FrameError, Kind, MANIFEST_BYTES_MAX, VERSION};
pub use connect::{Connected, Connector};
pub use error::ControlError;
pub use listener::{Guest, Listener, ListenerConfig, Turned};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The first, from the sender.
    Hello {
        /// What the receiver's line says, where it asks for it.
        token: Option<Token>,
        /// Name and version of the program, for people.
        software: String,
    },
    /// The receiver takes the sender for whom it expects.
    Welcome {
        /// Name and version of the program, for people.
        software: String,
        /// The greatest manifest it reads (bytes).
        manifest_bytes_max: u64,
    },
    /// What is to be sent.
    Offer {
        /// The same for the same files: how a transfer goes on where it ended.
        id: [u8; 16],
        /// [`Manifest`](crate::files::Manifest), as bytes.
        manifest: Vec<u8>,
        /// Seals that the sender can do, the best first; each once.
        suites: Vec<Suite>,
        /// Bytes of the largest datagram of feedback that the sender reads.
        datagram_bytes_max: u32,
    },
    Accept {
        /// The transfer's name in datagrams.
        transfer: u32,
        port: u16,
        /// How they are sealed.
        suite: Suite,
        /// Bytes of the largest datagram that the receiver reads.
        datagram_bytes_max: u32,
        /// What of the object is there already, ascending, not touching.
        held: Vec<Range<u64>>,
    },
    /// So many bytes of the object are on the receiver's disk.
    Durable(u64),
    /// Nothing to say; every 5 s in both directions.
    Ping,
    /// BLAKE3 of each file, in the manifest's order.
    Digests(Vec<[u8; 32]>),
    /// All files are verified and have their names.
    Done,
    /// It ends here, and why, for programs and for people.
    Refuse { reason: Reason, text: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The other is not who it should be.
    NotAllowed,
    /// Another version of the protocol, or nothing of it.
    Protocol,
    /// Too large, too many, or links.
    Quota,
    /// Something is there already.
    Exists,
    /// No room on the disk.
    Full,
    /// Files changed while they were sent.
    Changed,
    /// A file is not what was sent, and comes anew next time.
    Digest,
    /// As many transfers as are taken are under way, or this one is.
    Busy,
    Stopped,
    Failed,
}
