//! Writes of a member: requests to an archive, which writes to the streams for the member. The
//! servers deny members every subject of a stream, because servers execute headers of a message
//! that they did not check.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt as _, stream};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout};

use super::archive_request::{ArchiveRequest, RegistrationJson};
use super::connection::{NatsConnection, RequestError};
use super::key_write::{KeyWrite, WriteResult};
use super::publish::{self, Outgoing};
use super::request_archive::{self, ArchiveResponse};
use super::write_limits::APPENDS_EACH;
use crate::EngineError;

/// Result of an append through an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Stored,
    /// Nothing was stored: the servers have an older configuration, with which stations write by
    /// themselves.
    Direct,
}

/// Stores the messages through an archive. The first request has an answer before others are sent,
/// so its error is exact. If a later request fails, some records are stored.
pub(super) async fn append(
    connection: &NatsConnection,
    messages: &[Outgoing],
) -> Result<Written, EngineError> {
    if let Some(foreign) = messages.iter().find(|message| message.origin != connection.config.host) {
        let (origin, host) = (&foreign.origin, &connection.config.host);
        return Err(EngineError::Denied(format!("{host} may not append records of {origin}")));
    }
    let mut requests = bodies(messages).into_iter().map(ArchiveRequest::append);
    let Some(first) = requests.next() else { return Ok(Written::Stored) };
    let pacing = Pacing::default();
    if append_part(connection, &first, &pacing, connection.config.deadline).await?.is_direct {
        return Ok(Written::Direct);
    }
    let mut others = stream::iter(requests.collect::<Vec<_>>())
        .map(async |request| append_part(connection, &request, &pacing, LATER_WAIT_MAX).await)
        .buffered(APPENDS_EACH);
    while let Some(answer) = others.next().await {
        match answer {
            Ok(response) if response.is_direct => return Ok(Written::Direct),
            Ok(_) => {}
            Err(error) => return Err(publish::partly_stored(error)),
        }
    }
    Ok(Written::Stored)
}

/// Decides when the requests of one batch are sent: several at a time, and one at a time after the
/// first refusal because of a rate limit.
#[derive(Default)]
struct Pacing {
    is_limited: AtomicBool,
    turn: Mutex<()>,
}

/// Sends one request to append, and again after each wait for a rate limit of at most `wait_max`.
async fn append_part(
    connection: &NatsConnection,
    request: &ArchiveRequest,
    pacing: &Pacing,
    wait_max: Duration,
) -> Result<ArchiveResponse, EngineError> {
    let mut turn = None;
    loop {
        if turn.is_none() && pacing.is_limited.load(Ordering::Relaxed) {
            turn = Some(pacing.turn.lock().await);
        }
        let slot = connection.appends.acquire().await;
        let answer = append_once(connection, request).await;
        drop(slot);
        match answer {
            Err(EngineError::Throttled { wait, .. }) if wait <= wait_max => {
                let until = Instant::now() + wait;
                pacing.is_limited.store(true, Ordering::Relaxed);
                if turn.is_none() {
                    turn = Some(pacing.turn.lock().await);
                }
                sleep_until(until).await;
            }
            Ok(response) if response.is_direct => return Ok(response),
            Ok(response) => {
                let number = response.number.ok_or_else(without_number)?;
                connection.acknowledge(number);
                return Ok(response);
            }
            error => return error,
        }
    }
}

/// Sends a request to append to the archive that responded last, and to any archive if that archive
/// does not respond. An archive may store the records twice; a reader counts them once.
async fn append_once(
    connection: &NatsConnection,
    request: &ArchiveRequest,
) -> Result<ArchiveResponse, EngineError> {
    let known = connection.archive.load(Ordering::Relaxed);
    let mut may_be_stored = false;
    if known != 0 {
        match connection.request_archive(request, Some(known)).await {
            Ok(answer) => return request_archive::read_written(connection, &answer.payload),
            Err(RequestError::Denied(what)) => return Err(EngineError::Denied(what)),
            Err(error) => {
                may_be_stored = matches!(error, RequestError::NoAnswer(_));
                forget(connection, known);
            }
        }
    }
    match connection.request_archive(request, None).await {
        Ok(answer) => request_archive::read_written(connection, &answer.payload),
        Err(RequestError::Denied(what)) => Err(EngineError::Denied(what)),
        Err(RequestError::NoAnswer(why)) => Err(EngineError::Unknown(why)),
        Err(RequestError::NotSent(why)) if may_be_stored => Err(EngineError::Unknown(why)),
        Err(RequestError::NotSent(why)) => Err(no_archive(connection, why)),
    }
}

/// Writes or deletes the registration of this station through an archive; `None` as
/// [`Written::Direct`].
///
/// The write is repeated while it has no answer, because one of several archives may be gone
/// without a sign. The first answer counts. A repeated write can only be refused, or replace the
/// same entry of the same registration.
pub(super) async fn register(
    connection: &NatsConnection,
    write: &KeyWrite<'_>,
) -> Result<Option<WriteResult>, EngineError> {
    let registration = RegistrationJson { id: write.id.into(), ttl_s: write.ttl_s, over: write.over };
    let request = ArchiveRequest::register(registration, write.text.clone().unwrap_or_default());
    let deadline = connection.config.deadline;
    let Ok(answer) = timeout(deadline, first_answer(connection, &request)).await else {
        return Err(EngineError::Unknown(format!("no archive responds within {deadline:?}")));
    };
    let answer = answer?;
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

async fn first_answer(
    connection: &NatsConnection,
    request: &ArchiveRequest,
) -> Result<ArchiveResponse, EngineError> {
    let known = connection.archive.load(Ordering::Relaxed);
    let mut attempts = FuturesUnordered::new();
    attempts.push(attempt(connection, request, (known != 0).then_some(known)));
    let every = connection.config.deadline / ATTEMPTS;
    let mut next_at = Instant::now() + every;
    loop {
        tokio::select! {
            Some((archive, answer)) = attempts.next() => match answer {
                Ok(answer) => match request_archive::read_written(connection, &answer.payload) {
                    // A repetition is beyond a limit; the earlier write has no answer yet.
                    Err(EngineError::Throttled { .. } | EngineError::Unavailable(_)) if !attempts.is_empty() => {}
                    answer => return answer,
                },
                Err(RequestError::NotSent(_)) if archive.is_some() => {
                    forget(connection, known);
                    attempts.push(attempt(connection, request, None));
                }
                Err(RequestError::NotSent(why)) => return Err(no_archive(connection, why)),
                Err(RequestError::NoAnswer(why)) => return Err(EngineError::Unknown(why)),
                Err(RequestError::Denied(what)) => return Err(EngineError::Denied(what)),
            },
            () = sleep_until(next_at) => {
                forget(connection, known);
                next_at += every;
                attempts.push(attempt(connection, request, None));
            }
        }
    }
}

async fn attempt(
    connection: &NatsConnection,
    request: &ArchiveRequest,
    archive: Option<u16>,
) -> (Option<u16>, Result<async_nats::Message, RequestError>) {
    (archive, connection.request_archive(request, archive).await)
}

/// Sends the next request to any archive, because the archive `known` does not respond.
fn forget(connection: &NatsConnection, known: u16) {
    // An error means that another archive has responded meanwhile.
    let _ = connection.archive.compare_exchange(known, 0, Ordering::Relaxed, Ordering::Relaxed);
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

/// Longest wait for a rate limit after a part of the batch was stored. After a longer wait, the
/// caller sends the whole batch again, and its stored part counts towards the rate limit again.
const LATER_WAIT_MAX: Duration = Duration::from_secs(20);

/// Number of times that a write of a registration is sent within its deadline. The servers choose
/// an archive at random for all but the first, so if one of two archives is gone, one of 128
/// stations does not reach the other archive within this time.
const ATTEMPTS: u32 = 8;
