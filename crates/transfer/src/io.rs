//! Transfers over real sockets (feature `io`, Unix).
//!
//! ```text
//! send() ─ control connection (TCP, TLS 1.3): Hello, Offer ⇄ Accept, Digests, Done ─ ReceiveServer
//!   │                                                                                       │
//! Source → SendFlow: Sender, Sealer, Socket                                                 │
//!          ══ datagrams ══►  ReceiveFlow: Socket, Opener, Receiver → Destination ───────────┘
//! ```
//!
//! - `socket` sends and receives trains of datagrams as fast as the system can, with what the
//!   kernel reports about each train.
//! - `seal` seals and opens datagrams.
//! - `flow` transfers one object: the loops around the two halves of the protocol.
//! - `control` is the control connection, on which both ends agree; [`identity`] is how each end
//!   authenticates the other end.
//! - `session` is a transfer of files from end to end: [`send`] and [`ReceiveServer`].

#[allow(missing_docs, reason = "only `testkit` shows it")]
pub(crate) mod control;
#[allow(missing_docs, reason = "only `testkit` shows it")]
pub(crate) mod flow;
pub mod identity;
#[allow(missing_docs, reason = "only `testkit` shows it")]
pub(crate) mod seal;
mod session;
#[allow(missing_docs, reason = "only `testkit` shows it")]
pub(crate) mod socket;

pub use control::{ControlError, FrameError, RefuseReason};
pub use flow::{FlowError, FlowProgress};
pub use session::{
    ReceiveConfig, ReceiveEvent, ReceiveServer, ReceiverEndpoint, SendConfig, SessionError, TransferEvent,
    TransferSummary, send,
};
