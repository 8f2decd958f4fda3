//! Exchanges of two bytes on a fixed timer: the latency between stations.

use std::hash::RandomState;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use barograph_forecast::Failure;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::connect::{self, Session};
use super::context::Context;
use super::exchange;
use crate::io::clock::{Clock, TICK};
use crate::pace::Pace;
use crate::reading::Measured;
use crate::wire::{self, Request};
use crate::{ProbeError, Target};

/// Result of exchanges on a fixed timer.
#[derive(Clone, Debug)]
pub struct Paced {
    /// Latencies of the answered exchanges in seconds; a late exchange is timed from when it was
    /// due.
    pub answered_s: Vec<f64>,
    /// Number of requested exchanges that were not answered, or not sent, before the end.
    pub missed: u32,
    /// Whether a bulk transfer ran at the station when the exchanges began, or after they had
    /// ended.
    pub loaded_there: bool,
    /// Time until the first exchange could be sent.
    pub opened_after: Duration,
    /// Median of all latencies, if all exchanges were answered.
    pub result: Result<Measured, ProbeError>,
}

/// Makes `n` exchanges of two bytes with a station, one every `every`, without waiting for answers
/// (docs/spec/probe.md §2.1). Blocks for at most the deadline of `context`.
///
/// The timer starts when the session is open; [`crate::pace::since_due`] adds the time before that.
#[must_use]
pub fn paced(target: &Target, n: u32, every: Duration, context: &Context) -> Paced {
    let clock = Clock::start(context.deadline, &context.cancel);
    let mut paced = Paced {
        answered_s: Vec::new(),
        missed: n,
        loaded_there: false,
        opened_after: Duration::ZERO,
        result: Err(clock.fail(Failure::Local, "no exchange was asked for")),
    };
    let asked_at = Instant::now();
    let opened = connect::open_plain(target, context, &clock).and_then(|mut session| {
        let load = session.request(Request::Rtt { n: n.max(1) }, &clock)?;
        Ok((session, load != 0))
    });
    paced.opened_after = asked_at.elapsed();
    let mut session = match opened {
        Ok((session, loaded_there)) => {
            paced.loaded_there = loaded_there;
            session
        }
        Err(error) => return Paced { result: Err(error), ..paced },
    };
    let mut pace = Pace::new(n, every);
    let done = exchanges(session.connection.tcp(), &mut pace, &mut paced.answered_s, &clock);
    paced.missed = pace.missed();
    paced.result = match done {
        Ok(()) => {
            let measured = exchange::median_of(paced.answered_s.clone(), &session.connection, &clock);
            paced.loaded_there |= is_loaded_now(&mut session, &clock);
            measured
        }
        Err(error) => Err(clock.io("exchanging two bytes on a timer", &error)),
    };
    paced
}

/// Sends one more request to detect a transfer that began meanwhile. A station that does not reply
/// counts as idle.
fn is_loaded_now(session: &mut Session, clock: &Clock) -> bool {
    let asked = session.connection.tcp().set_nonblocking(false).is_ok();
    asked && session.request(Request::Rtt { n: 1 }, clock).is_ok_and(|load| load != 0)
}

fn exchanges(
    mut tcp: &TcpStream,
    pace: &mut Pace,
    answered_s: &mut Vec<f64>,
    clock: &Clock,
) -> io::Result<()> {
    tcp.set_nonblocking(true)?;
    let (mut frame, mut filled) = ([0; wire::EXCHANGE_BYTES], 0);
    let keys = RandomState::new();
    let began = Instant::now();
    while 0 < pace.missed() {
        let left = clock.left()?;
        let now = began.elapsed();
        let due = pace.due().map(|due| due.saturating_sub(now));
        if due == Some(Duration::ZERO) {
            let question = exchange::question(&keys, pace.next());
            // An exchange is timed from before the write.
            pace.sent(now);
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
                wait(tcp, due.unwrap_or(TICK).min(left).min(TICK));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if filled == frame.len() {
            filled = 0;
            let now = began.elapsed();
            let is_awaited = pace.awaited().is_some_and(|number| exchange::question(&keys, number) == frame);
            let latency = pace.answered(now).filter(|_| is_awaited);
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
