//! The client's end of a test that another program makes, on connections of its own.

use std::net::SocketAddr;
use std::time::Duration;

use barograph_forecast::Failure;

use super::connect;
use super::context::Context;
use crate::io::clock::Clock;
use crate::wire::{self, Done, Request};
use crate::{ProbeError, Target};

/// Asks a station for leave to test it with iperf3 for `ms` and at most `bytes_max`, and `run`s that towards where its
/// server is, within the time that is left; the session stays open meanwhile. Blocks for at most the time asked for and the
/// deadline of `context`, if `run` keeps that.
///
/// # Errors
/// [`ProbeError`] when the station cannot be reached, is none, or declines (`Failure::Declined`); those of `run`; and
/// when the station does not say that the test is over.
pub fn beside<T>(
    target: &Target,
    ms: u32,
    bytes_max: u64,
    context: &Context,
    run: impl FnOnce(SocketAddr, Duration) -> Result<T, ProbeError>,
) -> Result<T, ProbeError> {
    let length = Duration::from_millis(ms.into());
    let context = Context { deadline: context.deadline.saturating_add(length), ..context.clone() };
    let clock = Clock::start(context.deadline, &context.cancel);
    let mut session = connect::open_plain(target, &context, &clock)?;
    let number = session.request(Request::Iperf3 { ms, bytes_max: bytes_max.max(1) }, &clock)?;
    let port = u16::try_from(number).ok().filter(|port| 0 < *port);
    let port = port.ok_or_else(|| clock.fail(Failure::Garbage, format!("{number} is no port")))?;
    let left = clock.left().map_err(|error| clock.io("beginning the test", &error))?;
    let result = run(SocketAddr::new(session.address.ip(), port), left)?;
    let done = session.connection.read_frame::<{ wire::DONE_BYTES }>();
    let done = done.map_err(|error| clock.io("waiting for the end of the test", &error))?;
    Done::decode(&done).map_err(|error| clock.fail(Failure::Garbage, error.to_string()))?;
    Ok(result)
}
