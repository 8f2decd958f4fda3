//! Experiments that measure a network: round-trip time, goodput, loss, connect and response time, and their responder.
//!
//! Without features this crate contains no socket, no clock and no thread: it plans experiments
//! ([`plan`]), defines what goes over the wire ([`wire`], specified in `docs/spec/probe.md`; [`signed`], in
//! `docs/spec/mesh.md`),
//! and reduces what was timed to values ([`reduce`]). The feature `io` adds [`io`], which does
//! what was planned with blocking sockets, and the responder at the other end.
//!
//! What was measured is a [`Reading`]: a value with its samples and the kernel's view of the
//! connection, or a typed failure with the time after which it came, never a number in its place.

pub mod calibration;
pub mod pace;
pub mod percent;
pub mod plan;
pub mod reading;
pub mod reduce;
pub mod rounds;
mod samples;
pub mod signed;
pub mod stop;
pub mod stream;
pub mod target;
mod tcp_info;
pub mod token;
pub mod wire;

#[doc(hidden)]
pub mod fuzzing;

#[cfg(feature = "io")]
#[expect(clippy::disallowed_methods, reason = "the io shell is where the clock is read")]
pub mod io;

pub use plan::{Direction, Experiment, Plan};
pub use reading::{Measured, ProbeError, Reading};
pub use stream::{StreamPlan, Streamed};
pub use target::{Target, TargetError};
pub use tcp_info::{Limit, TcpInfo};
pub use token::TokenTable;
