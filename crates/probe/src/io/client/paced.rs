//! Exchanges of two bytes on a fixed timer: the latency between stations.

use std::hash::RandomState;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use barograph_forecast::Failure;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::connect::{self, Session};
use super::context::ProbeContext;
use super::exchange;
use crate::exchange_schedule::ExchangeSchedule;
use crate::io::deadline::{Deadline, POLL_INTERVAL};
use crate::quantity_result::MeasuredValue;
use crate::wire::{self, Request};
use crate::{ProbeError, Target};

/// Result of exchanges on a fixed timer.
#[derive(Clone, Debug)]
pub struct PacedResult {
    /// Latencies of the answered exchanges in seconds; the latency of a late exchange counts from
    /// the time at which the exchange was due.
    pub answered_s: Vec<f64>,
    /// Number of requested exchanges that were not sent or not answered before the experiment
    /// ended.
    pub missed: u32,
    /// Whether the station reported a running bulk transfer, either before the first exchange or
    /// after the last.
    pub loaded_there: bool,
    /// Time from the call until the session was open, so that the first exchange could be sent.
    pub opened_after: Duration,
    /// Median of all latencies, if all exchanges were answered.
    pub result: Result<MeasuredValue, ProbeError>,
}

/// Makes `n` exchanges of two bytes with a station, at intervals of `every`, without waiting for
/// answers (docs/spec/probe.md §2.1). Blocks for at most the deadline of `context`.
///
/// The timer starts when the session is open; [`crate::exchange_schedule::since_due`] adds the time
/// before the session was open.
#[must_use]
pub fn exchange_on_timer(target: &Target, n: u32, every: Duration, context: &ProbeContext) -> PacedResult {
    let deadline = Deadline::start(context.deadline, &context.cancel);
    let mut paced = PacedResult {
        answered_s: Vec::new(),
        missed: n,
        loaded_there: false,
        opened_after: Duration::ZERO,
        result: Err(deadline.fail(Failure::Local, "the number of exchanges is 0; set at least 1")),
    };
    let requested_at = Instant::now();
    let opened = connect::open_plain(target, context, &deadline).and_then(|mut session| {
        let load = session.request(Request::Rtt { n: n.max(1) }, &deadline)?;
        Ok((session, load != 0))
    });
    paced.opened_after = requested_at.elapsed();
    let mut session = match opened {
        Ok((session, loaded_there)) => {
            paced.loaded_there = loaded_there;
            session
        }
        Err(error) => return PacedResult { result: Err(error), ..paced },
    };
    let mut schedule = ExchangeSchedule::new(n, every);
    let done = exchanges(session.connection.tcp(), &mut schedule, &mut paced.answered_s, &deadline);
    paced.missed = schedule.missed();
    paced.result = match done {
        Ok(()) => {
            let measured = exchange::median_of(paced.answered_s.clone(), &session.connection, &deadline);
            paced.loaded_there |= is_loaded_now(&mut session, &deadline);
            measured
        }
        Err(error) => Err(deadline.io("exchanging two bytes on a timer", &error)),
    };
    paced
}

/// Sends one more request, after the exchanges, to detect a transfer that began during the
/// exchanges. A station that does not reply counts as idle.
fn is_loaded_now(session: &mut Session, deadline: &Deadline) -> bool {
    let is_ready = session.connection.tcp().set_nonblocking(false).is_ok();
    is_ready && session.request(Request::Rtt { n: 1 }, deadline).is_ok_and(|load| load != 0)
}

fn exchanges(
    mut tcp: &TcpStream,
    schedule: &mut ExchangeSchedule,
    answered_s: &mut Vec<f64>,
    deadline: &Deadline,
) -> io::Result<()> {
    tcp.set_nonblocking(true)?;
    let (mut frame, mut filled) = ([0; wire::EXCHANGE_BYTES], 0);
    let keys = RandomState::new();
    let began = Instant::now();
    while schedule.missed() > 0 {
        let left = deadline.left()?;
        let now = began.elapsed();
        let due = schedule.due().map(|due| due.saturating_sub(now));
        if due == Some(Duration::ZERO) {
            let question = exchange::question(&keys, schedule.next());
            // The latency of an exchange counts from the time just before the write.
            schedule.sent(now);
            // At most 200 kB are in flight, and no buffer is so small that it splits two bytes.
            if tcp.write(&question)? != question.len() {
                return Err(io::ErrorKind::WriteZero.into());
            }
            continue;
        }
        match tcp.read(&mut frame[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(tcp, due.unwrap_or(POLL_INTERVAL).min(left).min(POLL_INTERVAL));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if filled == frame.len() {
            filled = 0;
            let now = began.elapsed();
            let is_awaited =
                schedule.awaited().is_some_and(|number| exchange::question(&keys, number) == frame);
            let latency = schedule.answered(now).filter(|_| is_awaited);
            answered_s.push(latency.ok_or_else(exchange::wrong_answer)?.as_secs_f64());
        }
    }
    Ok(())
}

/// Waits at most `time`, in whole milliseconds, until the socket is readable.
fn wait(tcp: &TcpStream, time: Duration) {
    let ms = u16::try_from(time.as_millis()).unwrap_or(u16::MAX).saturating_add(1);
    // Ignore the result of `poll`: the next read reports any error.
    let _ = poll(&mut [PollFd::new(tcp.as_fd(), PollFlags::POLLIN)], PollTimeout::from(ms));
}
