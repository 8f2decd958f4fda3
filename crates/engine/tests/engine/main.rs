//! The engines: the archive of a station, a spool in front of a mesh, and NATS. One test binary,
//! because the tests on NATS mostly wait, and the others mostly compute.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "local")]
mod archive;
#[cfg(all(feature = "local", feature = "conformance"))]
mod conformance;
#[cfg(all(feature = "joined", feature = "conformance"))]
mod joined;
#[cfg(all(feature = "nats", feature = "joined", feature = "conformance"))]
mod nats;
