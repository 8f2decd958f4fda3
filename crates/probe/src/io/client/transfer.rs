//! Goodput: one acknowledged transfer between this host and a station, in either direction.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use barograph_forecast::Failure;

use super::connect;
use super::context::{ProbeContext, ProbeProgress};
use crate::io::connection::Connection;
use crate::io::deadline::Deadline;
use crate::io::{kernel, payload};
use crate::plan::Direction;
use crate::quantity_result::MeasuredValue;
use crate::wire::{BulkSummary, DONE_BYTES, EXCHANGE_BYTES, Request};
use crate::{Experiment, ProbeError, Target, reduce};

/// Goodput of one acknowledged transfer of `bytes` (JavaNws §2.1.1), in either direction.
pub(super) fn goodput(
    target: &Target,
    direction: Direction,
    bytes: u64,
    context: &ProbeContext,
    deadline: &Deadline,
) -> Result<MeasuredValue, ProbeError> {
    let mut session = connect::open_plain(target, context, deadline)?;
    session.request(Request::Goodput { direction, bytes }, deadline)?;
    let connection = &mut session.connection;
    let mut reporter = ProgressReporter::new(Experiment::Goodput { direction, bytes }, bytes, context);
    let transfer = match direction {
        Direction::Up => upload(connection, bytes, context.write_bytes, &mut reporter),
        Direction::Down => download(connection, bytes, &mut reporter),
    };
    let (elapsed_s, done) = transfer.map_err(|error| deadline.io("transferring", &error))?;
    let done = done_of(&done, bytes, deadline)?;
    // The `TCP_INFO` of the end that sent the bytes shows what limited the transfer.
    let own = kernel::bulk_tcp_info(connection.tcp(), elapsed_s);
    let tcp_info = match direction {
        Direction::Up => own,
        Direction::Down => done.tcp_info.or(own),
    };
    let least_s = tcp_info.as_ref().and_then(|info| info.min_rtt_s);
    let round_trip = reduce::RoundTrip { forecast_s: context.rtt_forecast_s, least_s };
    let rate = reduce::goodput(bytes, elapsed_s, round_trip)
        .ok_or_else(|| deadline.fail(Failure::Local, "the measured time is 0; send more bytes"))?;
    Ok(MeasuredValue {
        raw: Some(rate.raw),
        bytes: Some(bytes),
        ..MeasuredValue::one(rate.corrected, tcp_info)
    })
}

/// Uploads. The measured time runs from the write of the first byte to the acknowledgement of the
/// last byte.
fn upload(
    connection: &mut Connection,
    bytes: u64,
    write_bytes: usize,
    reporter: &mut ProgressReporter,
) -> io::Result<(f64, [u8; DONE_BYTES])> {
    let block = payload::block();
    let block = &block[..write_bytes.clamp(1, block.len())];
    let began = Instant::now();
    let mut sent = 0;
    while sent < bytes {
        sent += connection.write(payload::next(block, bytes - sent))? as u64;
        reporter.advance(sent);
    }
    let done = connection.read_frame()?;
    Ok((began.elapsed().as_secs_f64(), done))
}

/// Downloads. The measured time runs from the start request until the last byte is read.
fn download(
    connection: &mut Connection,
    bytes: u64,
    reporter: &mut ProgressReporter,
) -> io::Result<(f64, [u8; DONE_BYTES])> {
    let mut buffer = vec![0; payload::BLOCK_BYTES];
    let began = Instant::now();
    connection.write_all(&[0; EXCHANGE_BYTES])?;
    let mut received = 0;
    while received < bytes {
        let most = payload::at_most(buffer.len(), bytes - received);
        match connection.read(&mut buffer[..most])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => received += read as u64,
        }
        reporter.advance(received);
    }
    let elapsed_s = began.elapsed().as_secs_f64();
    Ok((elapsed_s, connection.read_frame()?))
}

/// Decodes the station's report at the end of a transfer. The byte count in the report must equal
/// `bytes`.
pub(super) fn done_of(
    frame: &[u8; DONE_BYTES],
    bytes: u64,
    deadline: &Deadline,
) -> Result<BulkSummary, ProbeError> {
    let done = BulkSummary::decode(frame)
        .map_err(|error| deadline.fail(Failure::InvalidResponse, error.to_string()))?;
    if done.bytes == bytes {
        return Ok(done);
    }
    let message = format!("the station acknowledged {} of {bytes} bytes", done.bytes);
    Err(deadline.fail(Failure::InvalidResponse, message))
}

/// Reports a transfer's progress, at most once every [`ProgressReporter::EVERY`].
struct ProgressReporter<'a> {
    context: &'a ProbeContext,
    progress: ProbeProgress,
    reported: Instant,
}

impl<'a> ProgressReporter<'a> {
    /// Minimum time between two reports: short enough for a smooth progress display, and long
    /// enough that reports cost little compared with the transfer.
    const EVERY: Duration = Duration::from_millis(100);

    fn new(experiment: Experiment, bytes_total: u64, context: &'a ProbeContext) -> Self {
        Self {
            context,
            progress: ProbeProgress { experiment, bytes: 0, bytes_total },
            reported: Instant::now(),
        }
    }

    fn advance(&mut self, bytes: u64) {
        let Some(report) = &self.context.progress else { return };
        self.progress.bytes = bytes;
        if bytes == self.progress.bytes_total || self.reported.elapsed() >= Self::EVERY {
            self.reported = Instant::now();
            report(self.progress);
        }
    }
}
