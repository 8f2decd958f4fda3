//! Round-trip time over TCP: exchanges of two bytes with a station.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::time::Instant;

use barograph_forecast::Failure;

use super::connect::{self, Session};
use super::context::ProbeContext;
use crate::io::connection::Connection;
use crate::io::deadline::Deadline;
use crate::io::kernel;
use crate::quantity_result::MeasuredValue;
use crate::wire::{EXCHANGE_BYTES, Request};
use crate::{ProbeError, Target};

/// Round-trip time from `n` exchanges of two bytes over plain TCP (JavaNws §2.1.1), with Nagle's
/// algorithm off.
pub(super) fn rtt(
    target: &Target,
    n: u32,
    context: &ProbeContext,
    deadline: &Deadline,
) -> Result<MeasuredValue, ProbeError> {
    exchanges(connect::open_plain(target, context, deadline)?, n, deadline)
}

/// Measures the round-trip time as [`rtt`] does, but through TLS.
pub(super) fn rtt_tls(
    target: &Target,
    n: u32,
    context: &ProbeContext,
    deadline: &Deadline,
) -> Result<MeasuredValue, ProbeError> {
    exchanges(connect::open_tls(target, context, deadline)?, n, deadline)
}

fn exchanges(mut session: Session, n: u32, deadline: &Deadline) -> Result<MeasuredValue, ProbeError> {
    session.request(Request::Rtt { n }, deadline)?;
    let connection = &mut session.connection;
    let samples: io::Result<Vec<f64>> = (0..n).map(|i| exchange(connection, i, at_once)).collect();
    let samples = samples.map_err(|error| deadline.io("exchanging two bytes", &error))?;
    median_of(samples, connection, deadline)
}

/// Round-trip time from `n` exchanges with two writes and one read each, with Nagle's algorithm on.
/// One more exchange goes first and is discarded.
///
/// The second byte waits for the acknowledgement of the first byte (RFC 896). The peer delays this
/// acknowledgement, so that an answer can carry it (RFC 1122 §4.2.3.2). So each exchange stalls for
/// about 40 ms.
pub(super) fn rtt_nagle(
    target: &Target,
    n: u32,
    context: &ProbeContext,
    deadline: &Deadline,
) -> Result<MeasuredValue, ProbeError> {
    let mut session = connect::open_plain(target, context, deadline)?;
    let failed = |error: io::Error| deadline.io("exchanging two bytes in two writes", &error);
    session.request(Request::RttNagle { n: n.saturating_add(1) }, deadline)?;
    let connection = &mut session.connection;
    connection.tcp().set_nodelay(false).map_err(failed)?;
    let in_two = |connection: &mut Connection, [first, second]: [u8; EXCHANGE_BYTES]| {
        connection.write_all(&[first])?;
        connection.write_all(&[second])
    };
    let samples = (0..=n).map(|i| exchange(connection, i, in_two)).skip(1);
    let samples = samples.collect::<io::Result<Vec<f64>>>().map_err(failed)?;
    median_of(samples, connection, deadline)
}

/// Makes one more exchange to check that the station is alive and reachable. Returns whether the
/// station runs a bulk transfer.
pub(super) fn check_alive(session: &mut Session, deadline: &Deadline) -> Result<bool, ProbeError> {
    let load = session.request(Request::Rtt { n: 1 }, deadline)?;
    let exchanged = exchange(&mut session.connection, 0, at_once);
    exchanged
        .map(|_| load != 0)
        .map_err(|error| deadline.io("checking that the station is still alive", &error))
}

/// Makes one exchange and returns its time in seconds; the answer must equal the question.
fn exchange(
    connection: &mut Connection,
    sequence: u32,
    write: impl Fn(&mut Connection, [u8; EXCHANGE_BYTES]) -> io::Result<()>,
) -> io::Result<f64> {
    let question = question(&RandomState::new(), sequence);
    let began = Instant::now();
    write(connection, question)?;
    let answer = connection.read_frame()?;
    let elapsed_s = began.elapsed().as_secs_f64();
    if answer == question { Ok(elapsed_s) } else { Err(wrong_answer()) }
}

fn at_once(connection: &mut Connection, question: [u8; EXCHANGE_BYTES]) -> io::Result<()> {
    connection.write_all(&question)
}

/// Two bytes that no peer can predict, because the system's random keys produce them.
pub(super) fn question(keys: &RandomState, number: u32) -> [u8; EXCHANGE_BYTES] {
    let [.., high, low] = keys.hash_one(number).to_be_bytes();
    [high, low]
}

pub(super) fn wrong_answer() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the answer differs from the question")
}

pub(super) fn median_of(
    samples: Vec<f64>,
    connection: &Connection,
    deadline: &Deadline,
) -> Result<MeasuredValue, ProbeError> {
    let tcp_info = kernel::tcp_info(connection.tcp(), samples.iter().sum());
    let median = MeasuredValue::median_of(samples, tcp_info);
    median.ok_or_else(|| deadline.fail(Failure::Local, "the number of exchanges is 0; set at least 1"))
}
