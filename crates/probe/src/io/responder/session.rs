//! The responder's end of a session.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::consent::{BulkPermit, BulkRequest};
use super::grants::SessionGrant;
use super::iperf3;
use super::limits::ResponderLimits;
use super::shared::{AdmittedBulk, Shared, SignedCaller};
use crate::io::connection::Connection;
use crate::io::{kernel, payload};
use crate::plan::Direction;
use crate::wire::{BulkSummary, DeclineReason, EXCHANGE_BYTES, REQUEST_BYTES, Reply, Request};

/// Serves requests of `peer` until the client closes, a request is declined, or a limit is reached.
pub(super) fn serve(
    connection: &mut Connection,
    peer: IpAddr,
    caller: Option<&SignedCaller>,
    shared: &Shared,
) -> io::Result<()> {
    let name = caller.map(|caller| caller.name.as_str());
    let grant = SessionGrant::new(peer, &shared.grants);
    let mut bytes_left = shared.limits.session_bytes_max;
    loop {
        let frame = connection.read_frame::<REQUEST_BYTES>()?;
        let request = Request::decode(&frame).map_err(|_| DeclineReason::Malformed);
        let served = request
            .and_then(|request| check(request, connection.is_tls(), bytes_left, shared).map(|()| request));
        // The caller may have been removed from the mesh since it signed.
        let served = served.and_then(|request| match shared.still_serves(caller) {
            true => Ok(request),
            false => Err(DeclineReason::NotServed),
        });
        let request = match served {
            Ok(request) => request,
            Err(declined) => return decline(connection, declined, shared),
        };
        match request {
            Request::Rtt { n } => {
                ready(connection, shared.is_loaded().into())?;
                let still_serves = || shared.still_serves(caller);
                echo(connection, n, &shared.limits, still_serves)?;
            }
            Request::RttNagle { n } => {
                ready(connection, 0)?;
                let still_serves = || shared.still_serves(caller);
                echo_late(connection, n, &shared.limits, still_serves)?;
            }
            Request::Goodput { direction, bytes } => {
                let slot = match AdmittedBulk::take(&BulkRequest { caller: name, request }, shared) {
                    Ok(slot) => slot,
                    Err(declined) => return decline(connection, declined, shared),
                };
                ready(connection, 0)?;
                bytes_left -= bytes;
                let done = transfer(connection, direction, bytes, &shared.limits)?;
                // Free the slot first: the client may start its next transfer as soon as it has
                // read this frame.
                slot.end(bytes);
                connection.write_all(&done.encode())?;
            }
            Request::Datagrams { n } => {
                ready(connection, grant.issue(n))?;
            }
            Request::Iperf3 { ms, .. } => {
                let slot = match AdmittedBulk::take(&BulkRequest { caller: name, request }, shared) {
                    Ok(slot) => slot,
                    Err(declined) => return decline(connection, declined, shared),
                };
                return iperf3::serve(connection, ms, slot, shared);
            }
            Request::Stream { ms, bytes_max } => {
                let mut slot = match AdmittedBulk::take(&BulkRequest { caller: name, request }, shared) {
                    Ok(slot) => slot,
                    Err(declined) => return decline(connection, declined, shared),
                };
                ready(connection, 0)?;
                // A silent peer would block the slot for all others.
                connection.set_idle(shared.limits.idle.min(slot.permit.grace));
                let bytes = receive_to_end(connection, ms, bytes_max, &shared.limits, &mut slot.permit)?;
                slot.end(bytes);
                // The client has closed its side, so no further request follows.
                return connection.write_all(&BulkSummary { bytes, tcp_info: None }.encode());
            }
        }
    }
}

/// Declines a request, which ends the session.
fn decline(connection: &mut Connection, declined: DeclineReason, shared: &Shared) -> io::Result<()> {
    shared.record_declined(declined);
    connection.write_all(&Reply::Declined(declined).encode())
}

/// Checks whether a request is within the limits.
fn check(request: Request, tls: bool, bytes_left: u64, shared: &Shared) -> Result<(), DeclineReason> {
    let limits = &shared.limits;
    match request {
        _ if shared.stop.is_cancelled() => Err(DeclineReason::Stopping),
        // Over TLS only the round-trip time is measured.
        Request::RttNagle { .. }
        | Request::Goodput { .. }
        | Request::Datagrams { .. }
        | Request::Stream { .. }
        | Request::Iperf3 { .. }
            if tls =>
        {
            Err(DeclineReason::NotServed)
        }
        Request::Rtt { n } | Request::RttNagle { n } | Request::Datagrams { n } if n > limits.count_max => {
            Err(DeclineReason::TooLarge { limit: limits.count_max.into() })
        }
        Request::Goodput { bytes, .. }
        | Request::Stream { bytes_max: bytes, .. }
        | Request::Iperf3 { bytes_max: bytes, .. }
            if bytes > limits.transfer_bytes_max =>
        {
            Err(DeclineReason::TooLarge { limit: limits.transfer_bytes_max })
        }
        Request::Stream { ms, .. } | Request::Iperf3 { ms, .. } if limits.stream.as_millis() < ms.into() => {
            Err(DeclineReason::TooLarge {
                limit: u64::try_from(limits.stream.as_millis()).unwrap_or(u64::MAX),
            })
        }
        Request::Goodput { bytes, .. }
        | Request::Stream { bytes_max: bytes, .. }
        | Request::Iperf3 { bytes_max: bytes, .. }
            if bytes_left < bytes =>
        {
            Err(DeclineReason::Spent)
        }
        Request::Datagrams { .. } if !shared.serves_datagrams => Err(DeclineReason::NotServed),
        _ => Ok(()),
    }
}

fn ready(connection: &mut Connection, nonce: u64) -> io::Result<()> {
    connection.write_all(&Reply::Ready { nonce }.encode())
}

fn echo(
    connection: &mut Connection,
    n: u32,
    limits: &ResponderLimits,
    still_serves: impl Fn() -> bool,
) -> io::Result<()> {
    let minimum = MinimumProgress::of_exchanges(limits);
    let mut checked = Instant::now();
    for made in 0..n {
        end_if_withdrawn(made, &mut checked, &still_serves)?;
        let exchange = connection.read_frame::<EXCHANGE_BYTES>()?;
        connection.write_all(&exchange)?;
        minimum.check(made.into())?;
    }
    Ok(())
}

/// Answers after both bytes have arrived. The kernel delays its acknowledgements until that answer,
/// as it does for a connection that it has classified as interactive.
fn echo_late(
    connection: &mut Connection,
    n: u32,
    limits: &ResponderLimits,
    still_serves: impl Fn() -> bool,
) -> io::Result<()> {
    let minimum = MinimumProgress::of_exchanges(limits);
    let mut checked = Instant::now();
    for made in 0..n {
        end_if_withdrawn(made, &mut checked, &still_serves)?;
        delay_acknowledgements(connection)?;
        let exchange = connection.read_frame::<EXCHANGE_BYTES>()?;
        connection.write_all(&exchange)?;
        minimum.check(made.into())?;
    }
    Ok(())
}

/// Ends a run of exchanges if its caller was removed from the mesh. Checks again after some
/// exchanges, or after some time.
fn end_if_withdrawn(made: u32, checked: &mut Instant, still_serves: impl Fn() -> bool) -> io::Result<()> {
    if !made.is_multiple_of(CHECK_EVERY) && checked.elapsed() < CHECK_AFTER {
        return Ok(());
    }
    *checked = Instant::now();
    if still_serves() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "the caller was removed from the mesh"))
}

/// Makes the kernel delay acknowledgements. Linux itself enters this mode after each
/// acknowledgement that it had to send without data (tcp(7), `TCP_QUICKACK`).
#[cfg(target_os = "linux")]
fn delay_acknowledgements(connection: &Connection) -> io::Result<()> {
    socket2::SockRef::from(connection.tcp()).set_tcp_quickack(false)
}

#[cfg(not(target_os = "linux"))]
fn delay_acknowledgements(_connection: &Connection) -> io::Result<()> {
    Ok(())
}

/// Runs one transfer. The receiver counts the bytes; the sender's kernel reports what limited the
/// sender.
fn transfer(
    connection: &mut Connection,
    direction: Direction,
    bytes: u64,
    limits: &ResponderLimits,
) -> io::Result<BulkSummary> {
    let minimum = &MinimumProgress::of_bytes(limits);
    match direction {
        Direction::Up => {
            receive(connection, bytes, limits.receive_block_bytes, minimum)?;
            Ok(BulkSummary { bytes, tcp_info: None })
        }
        Direction::Down => {
            let _begin = connection.read_frame::<EXCHANGE_BYTES>()?;
            let began = Instant::now();
            send(connection, bytes, minimum)?;
            Ok(BulkSummary {
                bytes,
                tcp_info: kernel::bulk_tcp_info(connection.tcp(), began.elapsed().as_secs_f64()),
            })
        }
    }
}

fn receive(
    connection: &mut Connection,
    bytes: u64,
    block_bytes: usize,
    minimum: &MinimumProgress,
) -> io::Result<()> {
    let mut buffer = vec![0; block_bytes.clamp(1, payload::BLOCK_BYTES)];
    let mut left = bytes;
    while left > 0 {
        let most = payload::at_most(buffer.len(), left);
        match connection.read(&mut buffer[..most])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => left -= read as u64,
        }
        minimum.check(bytes - left)?;
    }
    Ok(())
}

/// Receives until the client closes its side; returns the number of bytes.
///
/// # Errors
/// `TimedOut` if the client does not close within the requested time and the grace; `InvalidData`
/// if it sends more bytes than requested.
fn receive_to_end(
    connection: &mut Connection,
    ms: u32,
    bytes_max: u64,
    limits: &ResponderLimits,
    permit: &mut BulkPermit,
) -> io::Result<u64> {
    let mut buffer = vec![0; limits.receive_block_bytes.clamp(1, payload::BLOCK_BYTES)];
    let grace = limits.transfer_grace.min(permit.grace);
    let ends = Instant::now() + Duration::from_millis(ms.into()) + grace;
    let mut received = 0;
    loop {
        match connection.read(&mut buffer)? {
            0 => return Ok(received),
            read => received += read as u64,
        }
        permit.set_bytes(received);
        if received > bytes_max {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if ends < Instant::now() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

fn send(connection: &mut Connection, bytes: u64, minimum: &MinimumProgress) -> io::Result<()> {
    let block = payload::block();
    let mut left = bytes;
    while left > 0 {
        left -= connection.write(payload::next(&block, left))? as u64;
        minimum.check(bytes - left)?;
    }
    Ok(())
}

/// Number of exchanges between two checks of whether the caller is still a member. This number of
/// exchanges takes some milliseconds, so that the checks lock shared state only rarely.
const CHECK_EVERY: u32 = 32;

/// Maximum time between two checks of whether the caller is still a member, for slow exchanges and
/// for granted datagrams.
const CHECK_AFTER: Duration = Duration::from_secs(1);

/// Minimum speed of a peer. A slow peer would block the single slot for transfers, or one of the
/// few session slots.
struct MinimumProgress {
    began: Instant,
    grace_s: f64,
    /// Time in seconds that each byte or exchange may take beyond the grace.
    each_s: f64,
}

impl MinimumProgress {
    fn of_bytes(limits: &ResponderLimits) -> Self {
        Self::begin(limits, 8.0 / limits.transfer_bit_s_min as f64)
    }

    fn of_exchanges(limits: &ResponderLimits) -> Self {
        Self::begin(limits, limits.exchange.as_secs_f64())
    }

    fn begin(limits: &ResponderLimits, each_s: f64) -> Self {
        Self { began: Instant::now(), grace_s: limits.transfer_grace.as_secs_f64(), each_s }
    }

    /// Checks the progress after `moved` bytes or exchanges.
    ///
    /// # Errors
    /// `TimedOut` if the bytes or exchanges took longer than allowed.
    fn check(&self, moved: u64) -> io::Result<()> {
        let allowed_s = self.grace_s + moved as f64 * self.each_s;
        if allowed_s < self.began.elapsed().as_secs_f64() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Fast exchanges are checked by their number, slow exchanges by time.
    #[test]
    fn exchanges_end_soon_after_their_caller_was_removed() {
        let is_ended = |made: u32, age: Duration| {
            let mut checked = Instant::now().checked_sub(age).unwrap();
            end_if_withdrawn(made, &mut checked, || false).is_err()
        };
        assert!(!is_ended(1, Duration::ZERO), "checked just before");
        assert!(is_ended(2 * CHECK_EVERY, Duration::ZERO));
        assert!(is_ended(1, CHECK_AFTER));
        let mut checked = Instant::now().checked_sub(CHECK_AFTER).unwrap();
        end_if_withdrawn(1, &mut checked, || true).unwrap();
        assert!(checked.elapsed() < CHECK_AFTER, "the next check is due later");
    }
}
