//! A seeded link emulator over network namespaces and TUN devices, for tests and the lab.
//!
//! Kernels often lack `netem`. This crate joins two network namespaces, the hosts, with an emulated
//! link. The link is one of three kinds: a relay in user space, which passes each packet through a
//! seeded [`LinkDirection`] of delay, rate, queue, loss and reordering, optionally behind a
//! [`QueueChain`] of queues with their own disciplines; a plain `veth` pair for rates that are too
//! high for the relay, without delay or loss, and with a `tbf` if the rate is limited; or a
//! [`Switch`] of the kernel.
//!
//! Three types matter:
//!
//! - [`Network`]: two hosts and their link. A network needs root. Dropping the network removes the
//!   hosts and the link.
//! - [`LinkDirection`]: one direction of a link in virtual time. This model is pure (no clock, no
//!   device), so the fate of every packet can be computed without a network.
//! - [`RelayReport`]: the cost of a relay. The relay shares the machine with the measured programs.
//!   If [`RelayReport::invalid_reason`] returns a reason, the emulator was the bottleneck, and the
//!   run is no evidence.
//!
//! ```no_run
//! use barograph_sim::{Link, LinkSpec, Network};
//! use std::{net::UdpSocket, time::Duration};
//!
//! let network = Network::new(Link::symmetric(LinkSpec {
//!     delay: Duration::from_millis(10),
//!     rate_bps: Some(50_000_000),
//!     ..LinkSpec::default()
//! }))?;
//! // A socket stays in the namespace where it was made, whichever thread uses it afterwards.
//! let server = network.b.run(|| UdpSocket::bind((barograph_sim::B_V4, 0)))??;
//! let client = network.a.run(|| UdpSocket::bind((barograph_sim::A_V4, 0)))??;
//! client.send_to(b"hello", server.local_addr()?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`LinkSimulation`] simulates the links of a [`Scenario`] in virtual time without packets: how
//! long each attempt of a distributed program takes. The feature `stream` adds `stream`:
//! connections in virtual time for code written for tokio.
//!
//! The crate emulates one link between two hosts. The crate does not emulate topologies, routers or
//! cross traffic; callers send any cross traffic themselves.

mod discipline;
mod disk;
mod error;
mod link_simulation;
mod model;
mod queue_chain;
mod replay;
mod rng;
mod skip;
mod spec;
#[cfg(any(feature = "stream", target_os = "linux"))]
mod sync;

pub mod fuzzing;
pub mod scenario;

#[cfg(feature = "stream")]
pub mod stream;

#[cfg(target_os = "linux")]
mod failing_disk;
#[cfg(target_os = "linux")]
mod namespace;
#[cfg(target_os = "linux")]
mod network;
#[cfg(target_os = "linux")]
mod relay;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod tun;

pub use discipline::{CodelParameters, Discipline, RedParameters};
pub use disk::SmallDisk;
pub use error::Error;
pub use link_simulation::{LinkSimulation, SimulatedAttempt, SimulatedResponse};
pub use model::{LinkDirection, PacketFate};
pub use queue_chain::{Hop, QueueChain};
pub use replay::{delays_from_file, delays_from_text};
pub use rng::SeededRng;
pub use scenario::Scenario;
pub use skip::{MUST_RUN, report_missing, report_skipped};
pub use spec::{Jitter, LinkChange, LinkSpec, PacketLoss, Queue, Reorder};

#[cfg(target_os = "linux")]
pub use failing_disk::FailingDisk;
#[cfg(target_os = "linux")]
pub use network::{A_V4, A_V6, B_V4, B_V6, Host, Link, Network, RelayOptions, Switch, SwitchPort};
#[cfg(target_os = "linux")]
pub use report::{DirectionCounts, InvalidRun, RelayReport};
#[cfg(target_os = "linux")]
pub use skip::network_or_report;

// The examples of README.md are doctests.
#[cfg(all(doctest, target_os = "linux"))]
#[doc = include_str!("../README.md")]
mod readme {}
