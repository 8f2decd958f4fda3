//! Experiments that measure a network: round-trip time, goodput, loss, connect time and response
//! time.
//!
//! Without features the crate is pure: no socket, no clock, no thread. The crate plans experiments
//! ([`plan`]), defines the wire format ([`wire`], specified in `docs/spec/probe.md`; [`signed`],
//! specified in `docs/spec/mesh.md`) and reduces measured times to values ([`reduce`]). The feature
//! `io` adds the module `io`: a client that runs a plan with blocking sockets, and the responder at
//! the other end.
//!
//! Three types matter:
//!
//! - [`Target`]: what to measure, a URL or `host:port`.
//! - [`Plan`]: the experiments to run with one target, in order.
//! - [`QuantityResult`]: one measured quantity. The result is a value with samples and `TCP_INFO`,
//!   or a [`ProbeError`]. A failure is never a number.
//!
//! ```
//! use barograph_probe::{Direction, Experiment, Plan, Target, reduce};
//!
//! let target = Target::parse("192.0.2.1:8700")?;
//! assert_eq!(target.port(), 8700);
//!
//! let plan = Plan::station(256 * 1024);
//! let upload = Experiment::Goodput { direction: Direction::Up, bytes: 256 * 1024 };
//! assert!(plan.experiments.contains(&upload));
//!
//! // The value of an `rtt` is the median of its exchanges, in seconds.
//! assert_eq!(reduce::median(&[0.021, 0.020, 0.350]), Some(0.021));
//! # Ok::<(), barograph_probe::TargetError>(())
//! ```
//!
//! The crate does not schedule experiments, and does not store or forecast measurements: the
//! station does so. The crate does not measure one-way delay, because the clocks of the two ends
//! are never compared.

pub mod calibration;
pub mod exchange_schedule;
pub mod percent;
pub mod plan;
pub mod quantity_result;
pub mod reduce;
pub mod rounds;
mod samples;
pub mod signed;
pub mod stop;
pub mod stream;
pub mod target;
mod tcp_info;
pub mod token;
pub mod train;
pub mod wire;

#[doc(hidden)]
pub mod fuzzing;

#[cfg(feature = "io")]
#[expect(clippy::disallowed_methods, reason = "the io shell is where the clock is read")]
pub mod io;

pub use plan::{Direction, Experiment, Plan};
pub use quantity_result::{MeasuredValue, ProbeError, QuantityResult};
pub use stream::{StreamPlan, StreamResult};
pub use target::{Target, TargetError};
pub use tcp_info::{SenderLimit, TcpInfo};
pub use token::TokenTable;

// The examples of README.md are doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
