//! The responder's end of a bulk test that another program (iperf3) receives.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::consent::{ExternalReceiver, InvalidTest};
use super::shared::{AdmittedBulk, Shared};
use crate::io::connection::Connection;
use crate::wire::{BulkSummary, DeclineReason, Reply};

/// Starts the agreed program for a test of `ms` milliseconds, waits until the program has ended,
/// and reports the received bytes.
pub(super) fn serve(
    connection: &mut Connection,
    ms: u32,
    mut slot: AdmittedBulk<'_>,
    shared: &Shared,
) -> io::Result<()> {
    let declined = |connection: &mut Connection| {
        connection.write_all(&Reply::Declined(DeclineReason::NotServed).encode())
    };
    let Some(mut program) = slot.permit.receiver.take() else { return declined(connection) };
    let port = match program.start(connection.tcp().local_addr()?.ip()) {
        Ok(port) => port,
        Err(error) => {
            slot.permit.set_failure(format!("the program could not be started: {error}"));
            return declined(connection);
        }
    };
    let grace = shared.limits.transfer_grace.min(slot.permit.grace);
    let ended = connection
        .write_all(&Reply::Ready { nonce: port.into() }.encode())
        .and_then(|()| wait_for(&mut *program, connection, Duration::from_millis(ms.into()) + grace, shared));
    let bytes = match ended {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(broken)) => {
            slot.permit.set_failure(broken.why);
            broken.bytes
        }
        Err(error) => {
            slot.permit.set_failure(format!("the program was stopped before its end: {error}"));
            let most = program.bytes_max();
            drop(program);
            slot.end(most);
            return Err(error);
        }
    };
    drop(program);
    // Free the slot first: the client may start its next test as soon as it has read this frame.
    slot.end(bytes);
    connection.write_all(&BulkSummary { bytes, tcp_info: None }.encode())
}

/// Waits until `program` has ended and returns its result.
///
/// # Errors
/// `TimedOut` if the program has not ended in time or the responder stops; other errors if the
/// client closes the connection or sends data.
fn wait_for(
    program: &mut dyn ExternalReceiver,
    connection: &Connection,
    ends: Duration,
    shared: &Shared,
) -> io::Result<Result<u64, InvalidTest>> {
    let began = Instant::now();
    loop {
        if let Some(ended) = program.poll_result() {
            return Ok(ended);
        }
        if ends < began.elapsed() || shared.stop.is_cancelled() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // `peek` blocks for at most the read timeout of the connection.
        match connection.tcp().peek(&mut [0]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
}
