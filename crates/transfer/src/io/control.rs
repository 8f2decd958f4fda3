//! The control connection over TLS 1.3. On this connection both ends agree on a transfer. The
//! module has the messages and their encoding (`docs/spec/transfer.md`, second part).
//!
//! ```text
//! sender                              receiver
//! Hello(token)            →
//!                         ←           Welcome | Refuse
//! Offer(manifest)         →
//!                         ←           Accept(ranges that are there already) | Refuse
//! ═══════════════ datagrams ═══════════════
//! Ping                    ⇄           Durable(bytes)
//! Digests                 →
//!                         ←           Done | Refuse
//! ```

mod channel;
mod codec;
mod connect;
mod error;
mod handshake;
mod listener;
mod order;
mod pipe;
#[cfg(test)]
mod tests;

use std::ops::Range;

use super::identity::AuthToken;
use super::seal::Suite;

pub use channel::Channel;
pub(crate) use codec::fuzz;
pub use codec::{FrameError, MANIFEST_BYTES_MAX, MessageKind, VERSION};
pub use connect::{Connected, Connector};
pub use error::ControlError;
pub use listener::{AcceptedSender, Listener, ListenerConfig, RejectedConnections};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The first message, from the sender.
    Hello {
        /// The token of the receiver address, if the receiver requires it.
        token: Option<AuthToken>,
        /// Name and version of the program, for people.
        software: String,
    },
    /// The receiver accepts the sender's identity.
    Welcome {
        /// Name and version of the program, for people.
        software: String,
        /// Maximum size of a manifest that the receiver reads, in bytes.
        manifest_bytes_max: u64,
    },
    /// What the sender wants to send.
    Offer {
        /// Identifier of the transfer: the same for the same files, so that a transfer can resume.
        id: [u8; 16],
        /// The encoded manifest (see [`Manifest`](crate::files::Manifest)).
        manifest: Vec<u8>,
        /// Cipher suites that the sender supports, each once, with the preferred suite first.
        suites: Vec<Suite>,
        /// Maximum size of a feedback datagram that the sender reads, in bytes.
        datagram_bytes_max: u32,
    },
    Accept {
        /// Identifier of the transfer in datagrams.
        transfer: u32,
        port: u16,
        /// Cipher suite of the datagrams.
        suite: Suite,
        /// Maximum size of a datagram that the receiver reads, in bytes.
        datagram_bytes_max: u32,
        /// Ranges of the object that the receiver has already, in ascending order. No two of them
        /// touch.
        held: Vec<Range<u64>>,
    },
    /// Reports the number of bytes of the object that are durable at the receiver.
    Durable(u64),
    /// Shows that this end is alive. Each end sends a Ping when it has sent no other message for 5
    /// s.
    Ping,
    /// BLAKE3 of each file, in the manifest's order.
    Digests(Vec<[u8; 32]>),
    /// All files are verified and have their names.
    Done,
    /// Ends the transfer, with the reason for programs and for people.
    Refuse { reason: RefuseReason, text: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefuseReason {
    /// The other end is not trusted: its certificate or its token is wrong or missing.
    NotAllowed,
    /// The other end uses a different version of the protocol, or a different protocol.
    Protocol,
    /// The object is too large, there are too many entries, or links are not accepted.
    Quota,
    /// A file exists already.
    Exists,
    /// No space on the disk.
    Full,
    /// Files changed while they were sent.
    Changed,
    /// A received file differs from the sent file. The file is received again in the next session.
    Digest,
    /// The limit of transfers is reached, or this transfer is running already.
    Busy,
    Stopped,
    Failed,
}
