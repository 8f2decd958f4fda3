//! The client's end of a bulk test that another program (iperf3) runs on its own connections.

use std::net::SocketAddr;
use std::time::Duration;

use barograph_forecast::Failure;

use super::connect;
use super::context::ProbeContext;
use crate::io::deadline::Deadline;
use crate::wire::{self, BulkSummary, Request};
use crate::{ProbeError, Target};

/// Requests permission for an iperf3 test of `ms` milliseconds and at most `bytes_max` bytes. Then
/// calls `run` with the address of the station's iperf3 server and the remaining time. The session
/// stays open meanwhile. The call blocks for at most `ms` milliseconds plus the deadline of
/// `context`, if `run` returns within the remaining time.
///
/// # Errors
/// [`ProbeError`] if the target cannot be reached, is not a station, declines (`Failure::Declined`)
/// or does not report the end of the test. If `run` fails, returns the error of `run`.
pub fn iperf3_session<T>(
    target: &Target,
    ms: u32,
    bytes_max: u64,
    context: &ProbeContext,
    run: impl FnOnce(SocketAddr, Duration) -> Result<T, ProbeError>,
) -> Result<T, ProbeError> {
    let length = Duration::from_millis(ms.into());
    let context = ProbeContext { deadline: context.deadline.saturating_add(length), ..context.clone() };
    let deadline = Deadline::start(context.deadline, &context.cancel);
    let mut session = connect::open_plain(target, &context, &deadline)?;
    let number = session.request(Request::Iperf3 { ms, bytes_max: bytes_max.max(1) }, &deadline)?;
    let port = u16::try_from(number).ok().filter(|port| *port > 0);
    let port = port.ok_or_else(|| {
        deadline.fail(Failure::InvalidResponse, format!("the station returned an invalid port: {number}"))
    })?;
    let left = deadline.left().map_err(|error| deadline.io("beginning the test", &error))?;
    let result = run(SocketAddr::new(session.address.ip(), port), left)?;
    let done = session.connection.read_frame::<{ wire::DONE_BYTES }>();
    let done = done.map_err(|error| deadline.io("waiting for the end of the test", &error))?;
    BulkSummary::decode(&done).map_err(|error| deadline.fail(Failure::InvalidResponse, error.to_string()))?;
    Ok(result)
}
