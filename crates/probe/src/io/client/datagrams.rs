//! Loss and round-trip time of datagrams.

use std::io;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use barograph_forecast::Failure;

use super::connect::{self, Session};
use super::context::ProbeContext;
use super::exchange;
use crate::io::deadline::{Deadline, POLL_INTERVAL};
use crate::io::payload;
use crate::quantity_result::MeasuredValue;
use crate::wire::{DATAGRAM_BYTES, Datagram, DatagramKind, Request};
use crate::{ProbeError, Target};

/// Share of `n` datagrams that a station did not return, and the round-trip time of the others.
pub(super) fn loss(
    target: &Target,
    n: u32,
    context: &ProbeContext,
    deadline: &Deadline,
) -> [Result<MeasuredValue, ProbeError>; 2] {
    let samples = match exchange_datagrams(target, n, context, deadline) {
        Ok(samples) => samples,
        Err(error) => return [Err(error.clone()), Err(error)],
    };
    let lost = f64::from(n) - samples.len() as f64;
    let loss = MeasuredValue { n, samples: Vec::new(), ..MeasuredValue::one(lost / f64::from(n), None) };
    let none = || deadline.fail(Failure::TimedOut, format!("none of {n} datagrams was answered"));
    [Ok(loss), MeasuredValue::median_of(samples, None).ok_or_else(none)]
}

/// Round-trip times in seconds of the datagrams that came back. Sends `n` datagrams at intervals of
/// [`PACE`], or at shorter intervals if the deadline is near. Then waits at most
/// [`ANSWER_WAIT_MAX`] for the last answer. The session stays open meanwhile, because the grant
/// ends with the session.
fn exchange_datagrams(
    target: &Target,
    n: u32,
    context: &ProbeContext,
    deadline: &Deadline,
) -> Result<Vec<f64>, ProbeError> {
    let mut session = connect::open_plain(target, context, deadline)?;
    let left = deadline.left().map_err(|error| deadline.io("requesting permission for datagrams", &error))?;
    let pace = pace(n, left).map_err(|needed| {
        let message = format!(
            "{n} datagrams need at least {:.1} s, but only {:.1} s are left; send fewer or extend \
             the deadline",
            needed.as_secs_f64(),
            sending_time(left).as_secs_f64()
        );
        deadline.fail(Failure::Local, message)
    })?;
    let nonce = session.request(Request::Datagrams { n }, deadline)?;
    let plan = Burst { n, pace, ..Burst::default() };
    let burst = DatagramBurst::send_all(&session, nonce, plan, deadline)
        .map_err(|error| deadline.io("exchanging datagrams", &error))?;
    let samples = burst.round_trips_s();
    if samples.is_empty() && burst.refused {
        let port = session.address.port();
        let message = format!("no program listens on UDP port {port} of the station; check its firewall");
        return Err(deadline.fail(Failure::Refused, message));
    }
    if samples.is_empty() {
        // If the station died, missing answers are not packet loss.
        exchange::check_alive(&mut session, deadline)?;
    }
    Ok(samples)
}

/// Interval between `n` datagrams if `left` is the time until the deadline. If the interval would
/// be too short, the error is the minimum time that the datagrams need.
fn pace(n: u32, left: Duration) -> Result<Duration, Duration> {
    let pace = PACE.min(sending_time(left) / n.max(1));
    if pace >= PACE_MIN { Ok(pace) } else { Err(PACE_MIN * n) }
}

/// Time for sending: `left` without the wait for the last datagram, and at most [`SENDING_MAX`].
fn sending_time(left: Duration) -> Duration {
    (left - ANSWER_WAIT_MAX.min(left / 2)).min(SENDING_MAX)
}

/// Number, size and pace of the datagrams of one burst.
pub(super) struct Burst {
    pub(super) n: u32,
    /// Interval from one datagram to the next.
    pub(super) pace: Duration,
    /// Size of each datagram. Bytes after the first [`DATAGRAM_BYTES`] are padding.
    pub(super) bytes: usize,
}

impl Default for Burst {
    /// Returns a burst of one datagram without padding.
    fn default() -> Self {
        Self { n: 1, pace: Duration::ZERO, bytes: DATAGRAM_BYTES }
    }
}

/// Datagrams that were sent, and their answers.
pub(super) struct DatagramBurst {
    socket: UdpSocket,
    nonce: u64,
    /// For each datagram, the time at which it was sent and, if it came back, its round-trip time.
    sent: Vec<(Instant, Option<Duration>)>,
    /// Whether the host reported that no program listens on the port.
    refused: bool,
}

impl DatagramBurst {
    /// Sends all datagrams of `plan`, and waits at most [`ANSWER_WAIT_MAX`] for the last answer.
    pub(super) fn send_all(
        session: &Session,
        nonce: u64,
        plan: Burst,
        deadline: &Deadline,
    ) -> io::Result<Self> {
        // Use the session's own address: the responder answers no other address.
        let mut own = session.connection.tcp().local_addr()?;
        own.set_port(0);
        let socket = UdpSocket::bind(own)?;
        // A connected socket drops datagrams from other addresses and reports a closed port.
        socket.connect(session.address)?;
        let mut packet = payload::bytes(plan.bytes.max(DATAGRAM_BYTES));
        let mut burst = Self { socket, nonce, sent: Vec::new(), refused: false };
        let began = Instant::now();
        for sequence in 0..plan.n {
            let due = began + plan.pace * sequence;
            burst.receive_while(deadline, |_| due.saturating_duration_since(Instant::now()))?;
            burst.send(sequence, &mut packet)?;
        }
        // The wait for the last answer ends early if all answers have arrived or the deadline has
        // passed.
        let due = Instant::now() + ANSWER_WAIT_MAX.min(deadline.left()?.mul_f64(0.9));
        burst.receive_while(deadline, |burst| match burst.all_back() {
            true => Duration::ZERO,
            false => due.saturating_duration_since(Instant::now()),
        })?;
        Ok(burst)
    }

    /// Sends the question `sequence` as the first bytes of `packet`.
    fn send(&mut self, sequence: u32, packet: &mut [u8]) -> io::Result<()> {
        let question = Datagram { kind: DatagramKind::Question, nonce: self.nonce, sequence };
        packet[..DATAGRAM_BYTES].copy_from_slice(&question.encode());
        self.sent.push((Instant::now(), None));
        self.ignore_loss(|socket| socket.send(packet).map(|_| ()))
    }

    /// Receives answers as long as `wait` returns a time above zero. Calls `wait` again after each
    /// datagram.
    fn receive_while(&mut self, deadline: &Deadline, wait: impl Fn(&Self) -> Duration) -> io::Result<()> {
        let mut bytes = [0; DATAGRAM_BYTES + 1];
        loop {
            let wait = wait(self);
            if wait.is_zero() {
                return Ok(());
            }
            let left = deadline.left()?;
            self.socket
                .set_read_timeout(Some(wait.min(left).clamp(Duration::from_micros(1), POLL_INTERVAL)))?;
            let mut read = None;
            self.ignore_loss(|socket| {
                read = Some(socket.recv(&mut bytes)?);
                Ok(())
            })?;
            let now = Instant::now();
            if let Some(answer) = read.and_then(|read| Datagram::decode(&bytes[..read]).ok()) {
                self.record_answer(answer, now);
            }
        }
    }

    fn all_back(&self) -> bool {
        self.sent.iter().all(|(_, back)| back.is_some())
    }

    /// Records the first answer to one of our datagrams; ignores further answers to the same
    /// datagram.
    fn record_answer(&mut self, answer: Datagram, now: Instant) {
        if answer.kind != DatagramKind::Answer || answer.nonce != self.nonce {
            return;
        }
        let datagram = usize::try_from(answer.sequence).ok().and_then(|at| self.sent.get_mut(at));
        if let Some((sent, back @ None)) = datagram {
            *back = Some(now.duration_since(*sent));
        }
    }

    /// Treats a datagram that the network or the peer did not accept as lost, not as an error.
    fn ignore_loss(&mut self, call: impl FnOnce(&UdpSocket) -> io::Result<()>) -> io::Result<()> {
        use io::ErrorKind as Kind;
        match call(&self.socket) {
            Err(error) if error.kind() == Kind::ConnectionRefused => {
                self.refused = true;
                Ok(())
            }
            Err(error) if matches!(error.kind(), Kind::WouldBlock | Kind::TimedOut | Kind::Interrupted) => {
                Ok(())
            }
            Err(error) if matches!(error.kind(), Kind::HostUnreachable | Kind::NetworkUnreachable) => Ok(()),
            done => done,
        }
    }

    /// Times at which answers arrived, since the first datagram was sent, in ascending order.
    pub(super) fn arrivals(&self) -> Vec<Duration> {
        let Some((first, _)) = self.sent.first() else { return Vec::new() };
        let arrival =
            |(sent, back): &(Instant, Option<Duration>)| Some(sent.duration_since(*first) + (*back)?);
        let mut arrivals: Vec<Duration> = self.sent.iter().filter_map(arrival).collect();
        arrivals.sort_unstable();
        arrivals
    }

    fn round_trips_s(&self) -> Vec<f64> {
        self.sent.iter().filter_map(|(_, back)| back.map(|back| back.as_secs_f64())).collect()
    }
}

/// Interval between datagrams. The interval is long enough that one burst of loss does not hit all
/// datagrams, and short enough that ten datagrams take a fifth of a second.
const PACE: Duration = Duration::from_millis(20);
/// Minimum interval between datagrams. At a shorter interval, the datagrams would form a queue and
/// measure the delay of that queue.
const PACE_MIN: Duration = Duration::from_millis(1);
/// Maximum time for sending. A responder ends a session and its grant after 10 s of silence. The
/// session is also silent during the wait for the last answer.
const SENDING_MAX: Duration = Duration::from_secs(8);
/// Maximum time to wait for the last answer. A datagram with a later answer counts as lost. TCP's
/// own initial timeout is 1 s (RFC 6298 §2.1).
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagram_pace_depends_on_count_and_deadline() {
        let s = Duration::from_secs_f64;
        for (n, left_s, pace_s) in [
            (10, 10.0, Ok(0.02)),
            (400, 10.0, Ok(0.02)),
            (1000, 10.0, Ok(0.008)),
            (1000, 3600.0, Ok(0.008)),
            (1000, 5.0, Ok(0.004)),
            (10, 0.1, Ok(0.005)),
            (10_000, 10.0, Err(10.0)),
            (1000, 1.5, Err(1.0)),
        ] {
            assert_eq!(pace(n, s(left_s)), pace_s.map(s).map_err(s), "{n} in {left_s} s");
        }
    }
}
