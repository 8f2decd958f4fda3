//! Losses by the receiving host, for quinn endpoints.
//!
//! A receiver that gets too little processor time leaves its socket full, and the kernel drops
//! packets there. QUIC takes that for congestion and slows down far below what the host reads. With
//! this crate, the receiver reports what its socket dropped, and the sender's congestion controller
//! undoes its reaction. It limits the rate to what the host reads instead.
//!
//! Both ends need the crate; each end works with a peer that does not have it.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use barograph_quinn::{DropCountingRuntime, HostLossConfig, LossReports};
//! use quinn::congestion::CubicConfig;
//! use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig};
//! use quinn::{TokioRuntime, TransportConfig};
//!
//! # type Done = Result<(), Box<dyn std::error::Error>>;
//! # async fn example(config: ServerConfig, mut client: ClientConfig) -> Done {
//! // The receiver of data.
//! let runtime = DropCountingRuntime::new(Arc::new(TokioRuntime));
//! let drops = runtime.drops();
//! let socket = std::net::UdpSocket::bind("[::]:4433")?;
//! let runtime = Arc::new(runtime);
//! let server = Endpoint::new(EndpointConfig::default(), Some(config), socket, runtime)?;
//! let connection = server.accept().await.ok_or("the endpoint is closed")?.await?;
//! tokio::spawn(LossReports::new(connection.clone(), Some(drops)).serve());
//!
//! // The sender of data.
//! let mut transport = TransportConfig::default();
//! let cubic = Arc::new(CubicConfig::default());
//! transport.congestion_controller_factory(Arc::new(HostLossConfig::new(cubic)));
//! client.transport_config(Arc::new(transport));
//! let endpoint = Endpoint::client("[::]:0".parse()?)?;
//! let connection = endpoint.connect_with(client, "[::1]:4433".parse()?, "localhost")?.await?;
//! tokio::spawn(LossReports::new(connection.clone(), None).serve());
//! # Ok(())
//! # }
//! ```
//!
//! # The three types that matter
//!
//! - [`DropCountingRuntime`]: a runtime that follows the drop counter of its sockets.
//! - [`LossReports`]: offers and sends the reports, and passes them to the controller.
//! - [`HostLossConfig`]: a factory of congestion controllers, around any other factory.
//!
//! # What it does not do
//!
//! - It does not find causes from the pattern of losses: quinn does not show which packets were
//!   lost. Without reports, every loss is the network's.
//! - Only Linux counts drops. Other systems can send data, and receive without reports.
//! - It needs tokio.
#![forbid(unsafe_code)]

mod cap;
mod controller;
mod drops;
pub mod fuzzing;
mod inbox;
mod ledger;
mod pauses;
mod reports;
mod socket;
pub mod wire;

pub use controller::{HostLossConfig, HostLossController, loss_counts};
pub use inbox::LossCounts;
pub use reports::LossReports;
pub use socket::{DropCountingRuntime, SocketDrops};

// The examples of README.md are doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests {
    use std::time::Instant;

    /// A time to count from: `Instant` has no other origin than the clock.
    #[expect(clippy::disallowed_methods, reason = "`Instant` has no other constructor")]
    pub(crate) fn epoch() -> Instant {
        Instant::now()
    }
}
