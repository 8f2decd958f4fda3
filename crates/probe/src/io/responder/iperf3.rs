//! The responder's end of a test that another program receives.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::super::connection::Wire;
use super::Shared;
use super::consent::{NoTest, Program};
use super::session::{Place, ready};
use crate::wire::{Declined, Done, Reply};

/// Starts the program agreed to for a test of `ms`, waits for its end, and says how many bytes came.
pub(super) fn serve(wire: &mut Wire, ms: u32, mut place: Place<'_>, shared: &Shared) -> io::Result<()> {
    let declined = |wire: &mut Wire| wire.write_all(&Reply::Declined(Declined::NotServed).encode());
    let Some(mut program) = place.agreement.program.take() else { return declined(wire) };
    let port = match program.start(wire.tcp().local_addr()?.ip()) {
        Ok(port) => port,
        Err(error) => {
            place.agreement.failed(format!("it could not be started: {error}"));
            return declined(wire);
        }
    };
    let grace = shared.limits.transfer_grace.min(place.agreement.grace);
    let ended = ready(wire, port.into())
        .and_then(|()| wait_for(&mut *program, wire, Duration::from_millis(ms.into()) + grace, shared));
    let bytes = match ended {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(broken)) => {
            place.agreement.failed(broken.why);
            broken.bytes
        }
        Err(error) => {
            place.agreement.failed(format!("it was ended before it had ended: {error}"));
            let most = program.most();
            drop(program);
            place.give_back(most);
            return Err(error);
        }
    };
    drop(program);
    // Given back first: the client may begin its next test as soon as it has read this.
    place.give_back(bytes);
    wire.write_all(&Done { bytes, tcp_info: None }.encode())
}

/// Waits until `program` has ended; what it says of itself.
///
/// # Errors
/// `TimedOut` when it has not by then; and when the client is gone or speaks, or the responder stops.
fn wait_for(
    program: &mut dyn Program,
    wire: &Wire,
    ends: Duration,
    shared: &Shared,
) -> io::Result<Result<u64, NoTest>> {
    let began = Instant::now();
    loop {
        if let Some(ended) = program.received() {
            return Ok(ended);
        }
        if ends < began.elapsed() || shared.stop.is_cancelled() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // Blocks for a tick at most.
        match wire.tcp().peek(&mut [0]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
}
