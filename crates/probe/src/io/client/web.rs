//! Experiments with servers that are not stations: `connect` and `response_time`.

use std::io::{self, Read, Write};
use std::time::Instant;

use barograph_forecast::Failure;

use super::connect::{self, resolve, syn, syn_any};
use super::context::ProbeContext;
use crate::io::connection::Connection;
use crate::io::deadline::Deadline;
use crate::io::http::{self, ResponseHead};
use crate::io::kernel;
use crate::quantity_result::MeasuredValue;
use crate::{ProbeError, Target};

/// Sends `n` SYNs, one after the other, and measures the time from each SYN to its response. All
/// SYNs go to the first of the target's addresses that accepts a connection. If no address accepts
/// a connection, the SYNs go to the first address that refuses a connection.
///
/// A refusal counts as a sample and sets [`MeasuredValue::refused`]. SYN-ACK and RST take the same
/// path, and the kernel sends either packet without a program. The times of the two packets differ
/// only by some microseconds of work in the far kernel. A firewall that refuses on behalf of a host
/// may be nearer than the host. Then the values of the series change when the port is opened or
/// closed. Forecasts follow this change as any other change, and `refused` explains the change.
pub(super) fn handshakes(target: &Target, n: u32, deadline: &Deadline) -> Result<MeasuredValue, ProbeError> {
    let first = syn_any(&resolve(target, deadline)?, deadline)?;
    let tcp_info = first.open.as_ref().and_then(|tcp| kernel::tcp_info(tcp, first.after_s));
    let mut samples = vec![first.after_s];
    let mut refused = first.open.is_none();
    for _ in 1..n {
        let next = syn(first.address, deadline);
        let next = next.map_err(|error| deadline.io(&format!("connecting to {}", first.address), &error))?;
        samples.push(next.after_s);
        refused |= next.open.is_none();
    }
    let median = MeasuredValue::median_of(samples, tcp_info.clone());
    Ok(MeasuredValue { refused, ..median.unwrap_or_else(|| MeasuredValue::one(first.after_s, tcp_info)) })
}

/// Sends one GET and measures the times from the request to the first and to the last byte of its
/// response.
///
/// Name resolution and the TCP and TLS handshakes are complete before the time starts. Redirects
/// are not followed: the redirect is the response.
pub(super) fn response_time(
    target: &Target,
    context: &ProbeContext,
    deadline: &Deadline,
) -> [Result<MeasuredValue, ProbeError>; 2] {
    let mut connection = match connect::open_web(target, context, deadline) {
        Ok(connection) => connection,
        Err(error) => return [Err(error.clone()), Err(error)],
    };
    let began = Instant::now();
    let mut first_byte_s = None;
    let first_byte = || first_byte_s = Some(began.elapsed().as_secs_f64());
    let last_byte = get(&mut connection, target, context, deadline, first_byte);
    let elapsed_s = began.elapsed().as_secs_f64();
    let tcp_info = kernel::tcp_info(connection.tcp(), elapsed_s);
    let one = |value| MeasuredValue::one(value, tcp_info.clone());
    match (last_byte, first_byte_s) {
        (Ok(()), first) => [Ok(one(first.unwrap_or(elapsed_s))), Ok(one(elapsed_s))],
        (Err(error), first) => {
            // If the response is not HTTP, its first byte is not the first byte of a response.
            let first = first.filter(|_| error.failure != Failure::InvalidResponse);
            [first.map(one).ok_or_else(|| error.clone()), Err(error)]
        }
    }
}

/// Sends the request and reads its response to the end.
fn get(
    connection: &mut Connection,
    target: &Target,
    context: &ProbeContext,
    deadline: &Deadline,
    first_byte: impl FnMut(),
) -> Result<(), ProbeError> {
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: barograph/{}\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        target.path(),
        target.authority(),
        env!("CARGO_PKG_VERSION"),
    );
    let head = connection
        .write_all(request.as_bytes())
        .and_then(|()| http::read_head(connection, http::parse_response, first_byte));
    let (head, rest) = head.map_err(|error| deadline.io(WAITING, &error))?;
    read_body(connection, &head, rest.len() as u64, context.body_bytes_max, deadline)
}

fn read_body(
    connection: &mut Connection,
    head: &ResponseHead,
    mut received: u64,
    most: u64,
    deadline: &Deadline,
) -> Result<(), ProbeError> {
    let length = if head.has_no_body() { Some(0) } else { head.content_length };
    let mut buffer = vec![0; 64 * 1024];
    while length.is_none_or(|length| received < length) {
        if most < received.max(length.unwrap_or(0)) {
            // A body above the limit is not a fault of the server, so the failure is `Local`.
            let message = format!("the response body is longer than the limit of {most} bytes");
            return Err(deadline.fail(Failure::Local, message));
        }
        match connection.read(&mut buffer) {
            Ok(0) if length.is_some() => {
                return Err(deadline.io(WAITING, &io::ErrorKind::UnexpectedEof.into()));
            }
            Ok(0) => return Ok(()),
            Ok(read) => received += read as u64,
            // Many servers end TLS without `close_notify`. If the server announced no length, the
            // end of the connection is the end of the body.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && length.is_none() => return Ok(()),
            Err(error) => return Err(deadline.io(WAITING, &error)),
        }
    }
    Ok(())
}

const WAITING: &str = "waiting for the response";
