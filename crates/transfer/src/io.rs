//! Transfers over real sockets (feature `io`, Unix).
//!
//! ```text
//! send()  ── Control (TCP, TLS 1.3): Hello, Offer ⇄ Accept, Digests, Done ──  Host
//!   │ Source → Outflow: Sender, Sealer, Socket ═══ datagrams ═══ Socket, Opener, Receiver: Inflow → Destination │
//! ```
//!
//! - `socket` sends and receives trains of datagrams, as fast as the system can, with what the kernel knows of each.
//! - `seal` seals and opens datagrams.
//! - `flow` is one object on its way: the loops around the protocol's two halves.
//! - `control` is what both ends agree on beside it, and [`identity`] how each knows the other.
//! - `session` is a transfer of files from end to end: [`send`] and [`Host`].

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

pub use control::{ControlError, FrameError, Reason};
pub use flow::{FlowError, Seen};
pub use session::{Event, Host, HostConfig, HostEvent, SendConfig, SessionError, Summary, To, send};
