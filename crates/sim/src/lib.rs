//! A seeded link emulator over network namespaces and TUN, for tests and the lab.
//!
//! Kernels often lack `netem`. Here two network namespaces, the hosts, are joined by an emulated link:
//! a relay in user space that moves each packet through a seeded [`Model`] of delay, rate, queue,
//! loss and reordering, if wanted behind a [`Line`] of queues with disciplines of their own; a plain `veth` pair, with
//! a `tbf` where only a rate is wanted and the rate is higher than a relay can carry; or a [`Switch`] of the kernel's.
//!
//! The model is pure: it reads no clock and opens no device, so the fate of every packet can be worked out
//! in virtual time. The [`Network`] is the shell around it. It needs root, and is torn down when dropped.
//!
//! The relay shares the machine with what it measures. Its [`Report`] says what it cost, and
//! [`Report::void`] tells when the emulator itself was the bottleneck: such a run is no evidence.
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
//! The feature `stream` adds `stream`: connections in virtual time, for code written against tokio.
//!
//! It is one link between two hosts: there is no cross traffic but what the caller sends.

mod chance;
mod discipline;
mod disk;
mod error;
mod line;
mod model;
mod replay;
mod skip;
mod spec;
#[cfg(any(feature = "stream", target_os = "linux"))]
mod sync;
mod weather;

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

pub use chance::Chance;
pub use discipline::{CodelParameters, Discipline, RedParameters};
pub use disk::SmallDisk;
pub use error::Error;
pub use line::{Hop, Line};
pub use model::{Fate, Model};
pub use replay::{delays_from_file, delays_from_text};
pub use scenario::Scenario;
pub use skip::{MUST_RUN, say_missing, say_skipped};
pub use spec::{Jitter, LinkSpec, Loss, Queue, Reorder};
pub use weather::{Response, Try, Weather};

#[cfg(target_os = "linux")]
pub use failing_disk::FailingDisk;
#[cfg(target_os = "linux")]
pub use network::{A_V4, A_V6, B_V4, B_V6, Host, Link, Network, Port, RelayOptions, Switch};
#[cfg(target_os = "linux")]
pub use report::{Counts, Report, Void};
#[cfg(target_os = "linux")]
pub use skip::network_or_say;
