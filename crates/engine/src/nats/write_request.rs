//! Writes of a member: requests to an archive, which writes to the streams for the member. The
//! servers deny members every subject of a stream, because servers execute headers of a message
//! that they did not check.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt as _, stream};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::archive_request::{ArchiveRequest, RegistrationJson};
use super::connection::{NatsConnection, RequestError};
use super::key_write::{KeyWrite, WriteResult};
use super::publish::{self, Outgoing};
use super::request_archive::{self, ArchiveResponse};
use super::write_limits::{self, APPENDS_EACH};
use crate::EngineError;

/// Result of an append through an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Stored,
    /// This request stored nothing: the servers have an older configuration, with which stations
    /// write by themselves.
    Direct,
}

/// Stores the messages through an archive. The first request has an answer before others are sent.
/// An error other than [`EngineError::Unknown`] means that no record is stored.
pub(super) async fn append(
    connection: &NatsConnection,
    messages: &[Outgoing],
) -> Result<Written, EngineError> {
    if let Some(foreign) = messages.iter().find(|message| message.origin != connection.config.host) {
        let (origin, host) = (&foreign.origin, &connection.config.host);
        return Err(EngineError::Denied(format!("{host} may not append records of {origin}")));
    }
    let bytes = messages.iter().map(|message| message.payload.len() + 1).sum();
    let rest_max = (connection.config.deadline * REST_DEADLINES)
        .max(2 * write_limits::append_time(messages.len(), bytes));
    let mut requests = bodies(messages).into_iter().map(ArchiveRequest::append);
    let Some(first) = requests.next() else { return Ok(Written::Stored) };
    let (pacing, deadline) = (Pacing::default(), connection.config.deadline);
    if append_part(connection, &first, &pacing, Instant::now() + deadline).await? == Written::Direct {
        return Ok(Written::Direct);
    }
    let until = Instant::now() + rest_max;
    let mut others = stream::iter(requests.collect::<Vec<_>>())
        .map(async |request| append_part(connection, &request, &pacing, until).await)
        .buffered(APPENDS_EACH);
    let rest = async {
        while let Some(written) = others.next().await {
            if written.map_err(publish::partly_stored)? == Written::Direct {
                return Ok(Written::Direct);
            }
        }
        Ok(Written::Stored)
    };
    timeout_at(until, rest).await.unwrap_or_else(|_| {
        Err(EngineError::Unknown(format!("the archive did not store all records within {rest_max:?}")))
    })
}

/// Decides when the requests of one batch are sent: several at a time, and one at a time after an
/// archive has required the first wait.
#[derive(Default)]
struct Pacing {
    is_limited: AtomicBool,
    turn: Mutex<()>,
}

/// Sends one request to append, and again after each wait that the archive requires, if the wait
/// ends before `until`.
async fn append_part(
    connection: &NatsConnection,
    request: &ArchiveRequest,
    pacing: &Pacing,
    until: Instant,
) -> Result<Written, EngineError> {
    let mut turn = None;
    let mut may_be_stored = false;
    loop {
        if turn.is_none() && pacing.is_limited.load(Ordering::Relaxed) {
            turn = Some(pacing.turn.lock().await);
        }
        let slot = connection.appends.acquire().await;
        let answer = append_once(connection, request, &mut may_be_stored).await;
        drop(slot);
        match answer {
            Ok(response) if response.is_direct => return Ok(Written::Direct),
            Ok(response) => {
                connection.acknowledge(response.number.ok_or_else(without_number)?);
                return Ok(Written::Stored);
            }
            Err(EngineError::Throttled { wait, .. })
                if wait < until.saturating_duration_since(Instant::now()) =>
            {
                let due = Instant::now() + wait;
                pacing.is_limited.store(true, Ordering::Relaxed);
                if turn.is_none() {
                    turn = Some(pacing.turn.lock().await);
                }
                sleep_until(due).await;
            }
            Err(error) if may_be_stored => return Err(publish::partly_stored(error)),
            Err(error) => return Err(error),
        }
    }
}

/// Sends a request to append to the archive that responded last, and to any archive if that archive
/// does not respond. Sets `may_be_stored` if a request had no answer. An archive may store the
/// records twice; a reader counts them once.
async fn append_once(
    connection: &NatsConnection,
    request: &ArchiveRequest,
    may_be_stored: &mut bool,
) -> Result<ArchiveResponse, EngineError> {
    let known = connection.archive.load(Ordering::Relaxed);
    if known != 0 {
        match request_archive::write(connection, request, Some(known)).await {
            Ok(answer) => return request_archive::read_written(connection, &answer.payload),
            Err(RequestError::Denied(what)) => return Err(EngineError::Denied(what)),
            Err(error) => {
                *may_be_stored |= matches!(error, RequestError::NoAnswer(_));
                request_archive::forget(connection, known);
            }
        }
    }
    match request_archive::write(connection, request, None).await {
        Ok(answer) => request_archive::read_written(connection, &answer.payload),
        Err(RequestError::Denied(what)) => Err(EngineError::Denied(what)),
        Err(RequestError::NoAnswer(why)) => Err(EngineError::Unknown(why)),
        Err(RequestError::NotSent(why)) => Err(no_archive(connection, why)),
    }
}

/// Writes or deletes the registration of this station through an archive; `None` as
/// [`Written::Direct`].
///
/// A write with a condition is repeated while it has no answer, because one of several archives may
/// be gone without a sign. The first answer counts. If the write was executed before, its
/// repetition is refused because of the condition. A write without a condition is sent once: a
/// repetition that is executed late could replace a later registration.
pub(super) async fn register(
    connection: &NatsConnection,
    write: &KeyWrite<'_>,
) -> Result<Option<WriteResult>, EngineError> {
    let registration = RegistrationJson { id: write.id.into(), ttl_s: write.ttl_s, over: write.over };
    let request = ArchiveRequest::register(registration, write.text.clone().unwrap_or_default());
    let answer = first_answer(connection, &request, write.over.is_some()).await?;
    match answer.number {
        _ if answer.is_direct => Ok(None),
        _ if answer.is_conflict => Ok(Some(WriteResult::Conflict)),
        Some(seq) => Ok(Some(WriteResult::Stored(seq))),
        None => Err(without_number()),
    }
}

/// Error of a write if the response does not report what the archive stored.
fn without_number() -> EngineError {
    EngineError::Unknown("an archive responded without a number".into())
}

/// Sends a request to register, and, if `repeats`, sends it again while it has no answer. The error
/// is [`EngineError::Unknown`] if another attempt may have been executed, unless an archive refuses
/// this registration for good.
async fn first_answer(
    connection: &NatsConnection,
    request: &ArchiveRequest,
    repeats: bool,
) -> Result<ArchiveResponse, EngineError> {
    let known = connection.archive.load(Ordering::Relaxed);
    let deadline = connection.config.deadline;
    let until = Instant::now() + deadline;
    let mut attempts = FuturesUnordered::new();
    attempts.push(attempt(connection, request, (known != 0).then_some(known)));
    let mut next_at = Instant::now() + deadline / ATTEMPTS;
    let mut is_repeated = false;
    let mut failure = None;
    loop {
        tokio::select! {
            Some((archive, answer)) = attempts.next() => {
                let error = match answer {
                    Ok(answer) => match request_archive::read_written(connection, &answer.payload) {
                        Err(
                            error @ (EngineError::Throttled { .. }
                            | EngineError::Unavailable(_)
                            | EngineError::Unknown(_)),
                        ) => error,
                        answer => return answer,
                    },
                    Err(RequestError::NotSent(_)) if archive.is_some() => {
                        request_archive::forget(connection, known);
                        attempts.push(attempt(connection, request, None));
                        continue;
                    }
                    Err(RequestError::NotSent(why)) => no_archive(connection, why),
                    Err(RequestError::NoAnswer(why)) => {
                        request_archive::forget(connection, known);
                        failure.take().unwrap_or(EngineError::Unknown(why))
                    }
                    Err(RequestError::Denied(what)) => return Err(EngineError::Denied(what)),
                };
                if attempts.is_empty() {
                    return Err(if is_repeated { publish::partly_stored(error) } else { error });
                }
                failure = Some(error);
            }
            () = sleep_until(next_at), if repeats && next_at < until => {
                request_archive::forget(connection, known);
                is_repeated = true;
                next_at += deadline / ATTEMPTS;
                attempts.push(attempt(connection, request, None));
            }
            () = sleep_until(until) => {
                request_archive::forget(connection, known);
                let silent = || EngineError::Unknown(format!("no archive responds within {deadline:?}"));
                return Err(publish::partly_stored(failure.unwrap_or_else(silent)));
            }
        }
    }
}

async fn attempt(
    connection: &NatsConnection,
    request: &ArchiveRequest,
    archive: Option<u16>,
) -> (Option<u16>, Result<async_nats::Message, RequestError>) {
    (archive, request_archive::write(connection, request, archive).await)
}

/// Error of a write without an archive; nothing was written.
fn no_archive(connection: &NatsConnection, why: String) -> EngineError {
    EngineError::Unavailable(match connection.connected() {
        Ok(()) => format!("no archive responds ({why}); start the archive, or update it to this version"),
        Err(why) => why,
    })
}

/// Puts the records of the messages into requests, in order.
fn bodies(messages: &[Outgoing]) -> Vec<Bytes> {
    let mut bodies = Vec::new();
    let mut body = BytesMut::new();
    for message in messages {
        if !body.is_empty() && body.len() + message.payload.len() >= BODY_BYTES_MAX {
            bodies.push(body.split().freeze());
        }
        body.put_slice(&message.payload);
        body.put_u8(b'\n');
    }
    if !body.is_empty() {
        bodies.push(body.freeze());
    }
    bodies
}

/// Longest records of one request, in bytes, with the line feeds. One record has at most 12 KiB.
const BODY_BYTES_MAX: usize = 16 << 10;

/// Longest time for the requests after the first one of a batch, in deadlines of a request; larger
/// batches have twice the time that the rate limit requires. The default deadline gives 30 s: the
/// rate limit permits a batch of the forwarder in this time, and the append ends before the
/// forwarder stops it (60 s).
const REST_DEADLINES: u32 = 6;

/// Number of times that a write with a condition is sent within its deadline. The servers choose
/// an archive at random for all but the first, so if one of two archives is gone, one of 128
/// stations does not reach the other archive within this time.
const ATTEMPTS: u32 = 8;
