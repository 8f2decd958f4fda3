//! The client's end of a probe session: the Upgrade, and the experiments over TCP.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use barograph_forecast::Failure;

use super::super::clock::Clock;
use super::super::connection::Wire;
use super::super::{http, kernel, payload};
use super::connect::{Dialled, connect_any, dial};
use super::{Context, Progress, trust};
use crate::plan::Direction;
use crate::reading::Measured;
use crate::signed::Challenge;
use crate::target::Scheme;
use crate::wire::{self, Done, Reply, Request};
use crate::{Experiment, ProbeError, Target, reduce};

/// An upgraded connection to a station.
pub(super) struct Session {
    pub(super) wire: Wire,
    pub(super) address: SocketAddr,
}

/// What a server answered to the Upgrade.
pub(super) enum Answer {
    /// A station, ready; over TLS with a token for a plain connection.
    Upgraded(Session, Option<String>),
    /// A station over TLS that only authorises.
    Token(SocketAddr, String),
    /// A station that refuses, with the HTTP status and what it wants signed.
    Refused(u16, Option<Challenge>),
    /// A server that does not know the protocol, with the HTTP status.
    Plain(u16),
}

/// Opens a session whose stream is plain TCP, whatever the target's scheme.
///
/// On `https` the Upgrade over TLS only authorises; its token opens a second, plain connection to
/// the same address, so that what is measured is the network and not the cipher.
pub(super) fn open_plain(target: &Target, context: &Context, clock: &Clock) -> Result<Session, ProbeError> {
    match ask(target, context, clock)? {
        Answer::Upgraded(session, None) if !session.wire.is_tls() => Ok(session),
        Answer::Upgraded(Session { address, .. }, Some(token)) | Answer::Token(address, token) => {
            let dialled = connect_any(&[address], clock)?;
            let wire = Wire::plain(dialled.tcp, clock).map_err(|error| clock.io(UPGRADING, &error))?;
            let authorization = format!("{} {token}", wire::TOKEN_SCHEME);
            session(upgrade(wire, address, target, Some(&authorization), clock)?, clock)
        }
        Answer::Upgraded(..) => {
            Err(clock.fail(Failure::Garbage, "the station gave no token for a plain connection"))
        }
        other => session(other, clock),
    }
}

/// Opens a session whose stream is the TLS connection itself.
pub(super) fn open_tls(target: &Target, context: &Context, clock: &Clock) -> Result<Session, ProbeError> {
    if target.scheme() != Scheme::Https {
        return Err(clock.fail(Failure::Local, format!("{target} is no https:// target")));
    }
    match ask(target, context, clock)? {
        Answer::Token(..) => Err(clock.declined(wire::Declined::NotServed)),
        other => session(other, clock),
    }
}

/// Connects as the scheme says and asks for the Upgrade; shows the user's token if it is asked for.
pub(super) fn ask(target: &Target, context: &Context, clock: &Clock) -> Result<Answer, ProbeError> {
    ask_within(context.deadline, target, context, clock)
}

/// The same, but the server has only `patience` to answer once it took the connection.
///
/// The first request carries no token: a server that is no station must not see it. Only one that
/// answers `401` or `403` in the name of the protocol gets it, or the signature that it asks for, in a
/// second request.
pub(super) fn ask_within(
    patience: Duration,
    target: &Target,
    context: &Context,
    clock: &Clock,
) -> Result<Answer, ProbeError> {
    let authorization = match &context.token {
        Some(token) if http::is_header_word(token) => Some(format!("Bearer {token}")),
        Some(_) => {
            return Err(clock.fail(Failure::Local, "the token has characters that no header can carry"));
        }
        None => None,
    };
    let dialled = dial(target, clock)?;
    let clock = clock.within(patience);
    let address = dialled.address;
    // Credentials without a challenge are none (RFC 9110 §11.6.2 answers them with 401), and show nothing.
    let first = (context.signs_first && context.sign.is_some()).then_some(crate::signed::SCHEME);
    let answer = ask_on(dialled, target, context, first, &clock)?;
    let Answer::Refused(401 | 403, challenge) = &answer else { return Ok(answer) };
    let signed = context.sign.as_ref().zip(challenge.as_ref()).and_then(|(sign, challenge)| {
        sign.answer(challenge, "GET", wire::PATH).map(|credentials| credentials.header())
    });
    let Some(authorization) = signed.or(authorization) else { return Ok(answer) };
    let again = connect_any(&[address], &clock)?;
    ask_on(again, target, context, Some(&authorization), &clock)
}

/// Asks for the Upgrade on a fresh connection.
fn ask_on(
    dialled: Dialled,
    target: &Target,
    context: &Context,
    authorization: Option<&str>,
    clock: &Clock,
) -> Result<Answer, ProbeError> {
    let wire = match target.scheme() {
        Scheme::Https => trust::connect(dialled.tcp, target, context, clock)?,
        Scheme::Http | Scheme::Address => {
            Wire::plain(dialled.tcp, clock).map_err(|error| clock.io(UPGRADING, &error))?
        }
    };
    upgrade(wire, dialled.address, target, authorization, clock)
}

/// `n` exchanges of two bytes: JavaNws §2.1.1, with Nagle's algorithm off.
pub(super) fn rtt(session: Session, n: u32, clock: &Clock) -> Result<Measured, ProbeError> {
    let mut wire = session.wire;
    let doing = "exchanging two bytes";
    request(&mut wire, Request::Rtt { n }, clock)?;
    let samples = (0..n).map(|i| exchange(&mut wire, i, |wire, bytes| wire.write_all(&bytes)));
    let samples: io::Result<Vec<f64>> = samples.collect();
    let samples = samples.map_err(|error| clock.io(doing, &error))?;
    median_of(samples, &wire, clock)
}

/// `n` exchanges of write–write–read with Nagle's algorithm on; one more goes first and is discarded.
///
/// The second byte waits for the acknowledgement of the first (RFC 896), and that acknowledgement
/// waits for an answer to travel with (RFC 1122 §4.2.3.2): the stall of about 40 ms.
pub(super) fn rtt_nagle(session: Session, n: u32, clock: &Clock) -> Result<Measured, ProbeError> {
    let mut wire = session.wire;
    let doing = "exchanging two bytes in two writes";
    request(&mut wire, Request::RttNagle { n: n.saturating_add(1) }, clock)?;
    wire.tcp().set_nodelay(false).map_err(|error| clock.io(doing, &error))?;
    let in_two = |wire: &mut Wire, [first, second]: [u8; 2]| {
        wire.write_all(&[first])?;
        wire.write_all(&[second])
    };
    let samples = (0..=n).map(|i| exchange(&mut wire, i, in_two)).skip(1);
    let samples: io::Result<Vec<f64>> = samples.collect();
    let samples = samples.map_err(|error| clock.io(doing, &error))?;
    median_of(samples, &wire, clock)
}

/// One acknowledged transfer of `bytes`: JavaNws §2.1.1, either way.
pub(super) fn goodput(
    session: Session,
    direction: Direction,
    bytes: u64,
    context: &Context,
    clock: &Clock,
) -> Result<Measured, ProbeError> {
    let mut wire = session.wire;
    let experiment = Experiment::Goodput { direction, bytes };
    request(&mut wire, Request::Goodput { direction, bytes }, clock)?;
    let mut meter = Meter::new(experiment, bytes, context);
    let transfer = match direction {
        Direction::Up => upload(&mut wire, bytes, context.write_bytes, &mut meter),
        Direction::Down => download(&mut wire, bytes, &mut meter),
    };
    let (elapsed_s, done) = transfer.map_err(|error| clock.io("transferring", &error))?;
    let done = Done::decode(&done).map_err(|error| clock.fail(Failure::Garbage, error.to_string()))?;
    if done.bytes != bytes {
        let message = format!("the station acknowledged {} of {bytes} bytes", done.bytes);
        return Err(clock.fail(Failure::Garbage, message));
    }
    // The end that sent the bytes knows what held them back.
    let own = kernel::bulk_tcp_info(wire.tcp(), elapsed_s);
    let tcp_info = match direction {
        Direction::Up => own,
        Direction::Down => done.tcp_info.or(own),
    };
    let least_s = tcp_info.as_ref().and_then(|info| info.min_rtt_s);
    let round_trip = reduce::RoundTrip { forecast_s: context.rtt_forecast_s, least_s };
    let rate = reduce::goodput(bytes, elapsed_s, round_trip)
        .ok_or_else(|| clock.fail(Failure::Local, "the clock saw no time pass"))?;
    let (value, samples) = (rate.corrected, vec![rate.corrected]);
    Ok(Measured { value, n: 1, raw: Some(rate.raw), samples, tcp_info, refused: false })
}

/// Leave to send `n` datagrams: the nonce that marks them.
pub(super) fn datagram_leave(wire: &mut Wire, n: u32, clock: &Clock) -> Result<u64, ProbeError> {
    request(wire, Request::Datagrams { n }, clock)
}

/// One exchange more: the station is alive and the path to it open.
pub(super) fn still_there(wire: &mut Wire, clock: &Clock) -> Result<(), ProbeError> {
    request(wire, Request::Rtt { n: 1 }, clock)?;
    let exchanged = exchange(wire, 0, |wire, bytes| wire.write_all(&bytes));
    exchanged.map(|_| ()).map_err(|error| clock.io("asking whether the station is still there", &error))
}

/// From the first byte written to the acknowledgement of the last.
fn upload(
    wire: &mut Wire,
    bytes: u64,
    write_bytes: usize,
    meter: &mut Meter,
) -> io::Result<(f64, [u8; wire::DONE_BYTES])> {
    let block = payload::block();
    let block = &block[..write_bytes.clamp(1, block.len())];
    let began = Instant::now();
    let mut sent = 0;
    while sent < bytes {
        sent += wire.write(payload::next(block, bytes - sent))? as u64;
        meter.advance(sent);
    }
    let done = wire.read_frame()?;
    Ok((began.elapsed().as_secs_f64(), done))
}

/// From the word to begin to the last byte read.
fn download(wire: &mut Wire, bytes: u64, meter: &mut Meter) -> io::Result<(f64, [u8; wire::DONE_BYTES])> {
    let mut buffer = vec![0; payload::BLOCK_BYTES];
    let began = Instant::now();
    wire.write_all(&[0; wire::EXCHANGE_BYTES])?;
    let mut received = 0;
    while received < bytes {
        let most = payload::at_most(buffer.len(), bytes - received);
        match wire.read(&mut buffer[..most])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => received += read as u64,
        }
        meter.advance(received);
    }
    let elapsed_s = began.elapsed().as_secs_f64();
    Ok((elapsed_s, wire.read_frame()?))
}

/// Two bytes that nobody can answer before they came: keyed at random by the system.
pub(super) fn question(keys: &RandomState, number: u32) -> [u8; wire::EXCHANGE_BYTES] {
    let [.., high, low] = keys.hash_one(number).to_be_bytes();
    [high, low]
}

/// One exchange, timed: what is written comes back.
fn exchange(
    wire: &mut Wire,
    sequence: u32,
    write: impl Fn(&mut Wire, [u8; wire::EXCHANGE_BYTES]) -> io::Result<()>,
) -> io::Result<f64> {
    let question = question(&RandomState::new(), sequence);
    let began = Instant::now();
    write(wire, question)?;
    let answer = wire.read_frame()?;
    let elapsed_s = began.elapsed().as_secs_f64();
    if answer == question {
        Ok(elapsed_s)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is not what was sent"))
    }
}

/// Sends a request and waits for leave; gives the nonce.
pub(super) fn request(wire: &mut Wire, request: Request, clock: &Clock) -> Result<u64, ProbeError> {
    let mut ask = || {
        wire.write_all(&request.encode())?;
        wire.read_frame::<{ wire::REPLY_BYTES }>()
    };
    let reply = ask().map_err(|error| clock.io("asking for the experiment", &error))?;
    match Reply::decode(&reply) {
        Ok(Reply::Ready { nonce }) => Ok(nonce),
        Ok(Reply::Declined(declined)) => Err(clock.declined(declined)),
        Err(error) => Err(clock.fail(Failure::Garbage, error.to_string())),
    }
}

pub(super) fn median_of(samples: Vec<f64>, wire: &Wire, clock: &Clock) -> Result<Measured, ProbeError> {
    let value =
        reduce::median(&samples).ok_or_else(|| clock.fail(Failure::Local, "no exchange was asked for"))?;
    let n = u32::try_from(samples.len()).unwrap_or(u32::MAX);
    let tcp_info = kernel::tcp_info(wire.tcp(), samples.iter().sum());
    Ok(Measured { value, n, raw: None, samples, tcp_info, refused: false })
}

/// Asks for the Upgrade on an open connection.
fn upgrade(
    mut wire: Wire,
    address: SocketAddr,
    target: &Target,
    authorization: Option<&str>,
    clock: &Clock,
) -> Result<Answer, ProbeError> {
    let authorization = authorization.map_or_else(String::new, |value| format!("Authorization: {value}\r\n"));
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: {}\r\n{authorization}\r\n",
        wire::PATH,
        target.authority(),
        wire::UPGRADE,
    );
    let answer = wire
        .write_all(request.as_bytes())
        .and_then(|()| http::read_head(&mut wire, http::parse_response, || ()));
    let (head, rest) = answer.map_err(|error| clock.io(UPGRADING, &error))?;
    let token = head.probe_token.clone().filter(|token| crate::token::from_hex(token).is_some());
    match (head.status, token) {
        // The client speaks first: whatever follows the head is not the protocol.
        (101, token) if head.is_station() && rest.is_empty() => Ok(Answer::Upgraded(
            Session { wire, address },
            token.filter(|_| target.scheme() == Scheme::Https),
        )),
        (101, _) if head.is_station() => {
            Err(clock.fail(Failure::Garbage, "the server speaks before it is asked"))
        }
        (101, _) => Err(clock.fail(Failure::Garbage, "the server upgrades to another protocol")),
        (200..=299, Some(token)) if head.is_station() && wire.is_tls() => Ok(Answer::Token(address, token)),
        (status, _) if head.is_station() => Ok(Answer::Refused(status, head.challenge)),
        (status, _) => Ok(Answer::Plain(status)),
    }
}

/// The session, where nothing less will do.
fn session(answer: Answer, clock: &Clock) -> Result<Session, ProbeError> {
    match answer {
        Answer::Upgraded(session, _) => Ok(session),
        Answer::Refused(status, _) => Err(refused(status, clock)),
        Answer::Plain(status) => {
            Err(clock.fail(Failure::Garbage, format!("the target is no Barograph station (HTTP {status})")))
        }
        Answer::Token(..) => Err(clock.fail(Failure::Garbage, "the station gave a second token")),
    }
}

/// The failure that a station's refusal means.
pub(super) fn refused(status: u16, clock: &Clock) -> ProbeError {
    let why = match status {
        401 | 403 => "a token (barograph probe --token) or a signature is needed, or the one given is wrong",
        429 | 503 => "it has no place for another probe session",
        _ => "it does not answer probes",
    };
    clock.fail(Failure::Declined, format!("the station declines (HTTP {status}): {why}"))
}

/// Tells of a transfer's progress, at most every [`Meter::EVERY`].
struct Meter<'a> {
    context: &'a Context,
    progress: Progress,
    told: Instant,
}

impl<'a> Meter<'a> {
    /// Smooth for the eye, and nothing beside the transfer.
    const EVERY: Duration = Duration::from_millis(100);

    fn new(experiment: Experiment, bytes_total: u64, context: &'a Context) -> Self {
        Self { context, progress: Progress { experiment, bytes: 0, bytes_total }, told: Instant::now() }
    }

    fn advance(&mut self, bytes: u64) {
        let Some(tell) = &self.context.progress else { return };
        self.progress.bytes = bytes;
        if bytes == self.progress.bytes_total || Self::EVERY <= self.told.elapsed() {
            self.told = Instant::now();
            tell(self.progress);
        }
    }
}

const UPGRADING: &str = "asking for an Upgrade to the probe protocol";
