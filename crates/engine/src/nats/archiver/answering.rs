//! Answers requests of stations: questions from the archive, and writes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_nats::Message;
use futures_util::StreamExt as _;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::super::archive_request::{self, ArchiveRequest, ArchiveResponseJson};
use super::super::connection::{RequestError, json};
use super::super::progress::{Progress, Readiness};
use super::super::request_limits::{PendingRequest, RequestCost};
use super::super::write_limits::{self, PendingWrite, WriteKind};
use super::{RETRY_MAX, RETRY_MIN, Shared, writing};
use crate::wire::RecordJson;
use crate::{Cursor, Engine as _, EngineError, Page, Record};

pub(super) async fn answer(shared: Arc<Shared>) {
    let mut wait = RETRY_MIN;
    // Only once, and not after each retry: an archive that is denied the requests would otherwise
    // never report a loss.
    shared.connection.writes.send_modify(|writes| writes.archive_began(Instant::now()));
    loop {
        if let Err(why) = serve(&shared).await {
            tracing::warn!(%why, "the archive cannot receive requests; retrying");
        }
        sleep(wait).await;
        wait = (2 * wait).min(RETRY_MAX);
    }
}

async fn serve(shared: &Arc<Shared>) -> Result<(), String> {
    let client = &shared.connection.client;
    let said = |error: async_nats::SubscribeError| error.to_string();
    let mut errors = shared.connection.errors();
    let [any, own] = [None, Some(shared.number)].map(archive_request::subjects);
    let mut requests = Vec::new();
    for subject in &any {
        requests.push(client.queue_subscribe(subject.clone(), "archives".into()).await.map_err(said)?);
    }
    for subject in &own {
        requests.push(client.subscribe(subject.clone()).await.map_err(said)?);
    }
    let mut requests = futures_util::stream::select_all(requests);
    let all = [any, own].concat();
    loop {
        let request = tokio::select! {
            request = requests.next() => request,
            error = errors.next_matching(|denied| all.iter().any(|one| one.eq_ignore_ascii_case(denied))) => match error {
                RequestError::Denied(what) => return Err(what),
                // The client subscribes again when it reconnects.
                _ => continue,
            },
        };
        let Some(request) = request else { return Err("the subscription ended".into()) };
        process(shared, request).await;
    }
}

/// Answers a request in a task of its own, so that this request does not delay later requests.
async fn process(shared: &Arc<Shared>, message: Message) {
    let is_outdated = shared.connection.has_outdated_responses();
    let is_write = archive_request::is_write(archive_request::of_subject(&message.subject).1);
    if !archive_request::is_request(message.headers.as_ref(), is_outdated && !is_write) {
        return;
    }
    if is_write {
        return process_write(shared, &message, is_outdated).await;
    }
    // A JetStream acknowledgement that was published to this subject does not parse. Such a message
    // does not count towards the limits of the station that the subject names.
    let Ok(received) = ReceivedRequest::read(&message) else { return };
    let is_admitted = if received.requester.is_empty() {
        is_outdated
    } else {
        shared.request_limits.admits(&received.requester)
    };
    let Some(reply) = reply(&message, &received, is_outdated).filter(|_| is_admitted) else { return };
    match shared.request_limits.register(&received.requester) {
        Ok(pending) => {
            tokio::spawn(respond(Arc::clone(shared), received, pending, reply));
        }
        Err(why) => send(shared, reply, Err(EngineError::Unavailable(why.into()))).await,
    }
}

/// Executes a request to write in a task of its own.
async fn process_write(shared: &Arc<Shared>, message: &Message, is_outdated: bool) {
    let (requester, kind) = archive_request::of_subject(&message.subject);
    if requester.is_empty() || !shared.write_limits.admits(requester) {
        return;
    }
    let kind = if kind == archive_request::APPEND { WriteKind::Append } else { WriteKind::Registration };
    let Ok(received) = ReceivedRequest::read(message) else { return };
    let Some(reply) = reply(message, &received, is_outdated) else { return };
    if !shared.accepts(&received.request) {
        return send(shared, reply, Ok(shared.stale())).await;
    }
    match shared.write_limits.reserve(requester, kind, message.payload.len()) {
        Ok(pending) => {
            tokio::spawn(respond_to_write(Arc::clone(shared), received, (kind, pending), reply));
        }
        Err(error) => send(shared, reply, Err(error)).await,
    }
}

/// Executes a request to write, and answers it before the requester's deadline. A write may wait
/// for room for half of this time. The other half is for its execution: if the servers do not
/// respond in time, the station does not know whether its records are stored, and repeats them.
async fn respond_to_write(
    shared: Arc<Shared>,
    received: ReceivedRequest,
    (kind, pending): (WriteKind, PendingWrite),
    reply: async_nats::Subject,
) {
    let deadline = shared.connection.config.deadline;
    let (room_until, until) = (received.came + deadline * 2 / 5, received.came + deadline * 4 / 5);
    let permit = async {
        match kind {
            WriteKind::Append => shared.write_limits.permit(&pending).await.map(Some),
            WriteKind::Registration => Some(None),
        }
    };
    let answer = match timeout_at(room_until, permit).await {
        Ok(Some(_permit)) => {
            let (requester, kind) = (&received.requester, &received.kind);
            let written = writing::write(&shared, requester, kind, &received.request);
            timeout_at(until, written).await.unwrap_or_else(|_| {
                Err(EngineError::Unknown("the NATS servers did not respond to the archive in time".into()))
            })
        }
        Ok(None) => return,
        Err(_) => Err(write_limits::no_room("the archive has many records to store".into())),
    };
    send(&shared, reply, answer).await;
}

/// Returns the subject of the response; `None` if the request must not be answered.
///
/// A requester may choose only the last two tokens of the subject: the servers execute all that an
/// archive publishes to JetStream's interface, so a free choice would be dangerous. Two kinds of
/// reply subjects of older configurations are safe. A subject that begins with `_R_.` is safe,
/// because the server chose the subject and clients cannot use it. An inbox is safe if stations
/// share the archive's account.
fn reply(message: &Message, received: &ReceivedRequest, is_outdated: bool) -> Option<async_nats::Subject> {
    let is_of_server = |reply: &str| reply.starts_with("_R_.") || is_outdated && reply.starts_with("_INBOX_");
    if let Some(reply) = message.reply.clone().filter(|reply| is_of_server(reply)) {
        return Some(reply);
    }
    archive_request::response_subject(&received.requester, received.request.answer.as_deref()?)
        .map(async_nats::Subject::from)
}

/// Answers a request, unless the deadline of the request has passed.
async fn respond(
    shared: Arc<Shared>,
    received: ReceivedRequest,
    pending: PendingRequest,
    reply: async_nats::Subject,
) {
    let mut readiness = received.readiness(&shared.progress.borrow());
    if readiness == Readiness::Behind {
        readiness = wait(&shared, &received).await;
    }
    let deadline = shared.connection.config.deadline;
    let Ok(Some(_permit)) =
        timeout_at(received.came + deadline, shared.request_limits.permit(&pending, received.cost())).await
    else {
        return;
    };
    send(&shared, reply, find(&shared, &received, readiness).await).await;
}

/// A request with its sender and time of arrival.
struct ReceivedRequest {
    /// Token of the requesting station; empty for a station of an older version, because the
    /// requests of such a station do not name the station.
    requester: String,
    kind: String,
    request: ArchiveRequest,
    came: Instant,
}

impl ReceivedRequest {
    fn read(message: &Message) -> serde_json::Result<Self> {
        let (requester, kind) = archive_request::of_subject(&message.subject);
        let request = if archive_request::is_write(kind) {
            ArchiveRequest::read_write(&message.payload)?
        } else {
            serde_json::from_slice(&message.payload)?
        };
        Ok(Self { requester: requester.to_owned(), kind: kind.to_owned(), request, came: Instant::now() })
    }

    fn cost(&self) -> RequestCost {
        match self.kind.as_str() {
            archive_request::HISTORY | archive_request::LATEST => RequestCost::Page,
            _ => RequestCost::Number,
        }
    }

    fn readiness(&self, progress: &Progress) -> Readiness {
        progress.readiness(&self.kind, &self.request, self.came)
    }
}

async fn send(shared: &Shared, reply: async_nats::Subject, answer: Result<bytes::Bytes, EngineError>) {
    let answer = answer.unwrap_or_else(|error| json(&shared.answer().with_error(error)));
    shared.answered.fetch_add(1, Ordering::Relaxed);
    // Ignore an error: a requester that gets no response repeats its request.
    let _ = shared.connection.client.publish(reply, answer).await;
}

/// Waits until the archive has read the records that the request needs, or until the stream is
/// known to end before these records.
async fn wait(shared: &Shared, received: &ReceivedRequest) -> Readiness {
    // There is one receiver for each waiting request; the task that reads the stream counts the
    // receivers.
    let mut progress = shared.progress.subscribe();
    shared.wanted.notify_one();
    let ready = progress.wait_for(|now| received.readiness(now) != Readiness::Behind);
    match timeout(shared.connection.config.deadline / 2, ready).await {
        Ok(Ok(now)) => received.readiness(&now),
        _ => Readiness::Behind,
    }
}

async fn find(
    shared: &Shared,
    received: &ReceivedRequest,
    readiness: Readiness,
) -> Result<bytes::Bytes, EngineError> {
    let (kind, request) = (received.kind.as_str(), &received.request);
    match readiness {
        Readiness::Ready => {}
        Readiness::OtherStream => {
            let error = "the archive reads a stream different from this station's; retry later";
            let answer = ArchiveResponseJson { other_stream: true, ..shared.answer() };
            return Ok(json(&answer.with_error(EngineError::Unavailable(error.into()))));
        }
        Readiness::BeyondEnd(end) => {
            let wanted = request.after_place;
            let error = format!("the stream ends at {end}, before the requested position {wanted}");
            // If the request names no stream, its position may belong to a different stream.
            let answer = ArchiveResponseJson { other_stream: request.stream.is_none(), ..shared.answer() };
            return Ok(json(&answer.with_error(EngineError::Unavailable(error))));
        }
        Readiness::Behind => {
            let now = shared.progress.borrow();
            let (wanted, read) = (now.wanted(kind, request), now.seq);
            let wanted = wanted.map_or_else(|| "its end".into(), |wanted| wanted.to_string());
            return Err(EngineError::Unavailable(format!(
                "the archive has read the stream up to {read}, not yet to {wanted}"
            )));
        }
    }
    let is_own = |origin: &crate::HostId| *origin == shared.connection.config.host;
    let number = |number| json(&ArchiveResponseJson { number: Some(number), ..shared.answer() });
    match kind {
        archive_request::WATERMARK if is_own(&request.origin()?) => Ok(number(shared.progress.borrow().own)),
        archive_request::WATERMARK => shared.local.watermark(&request.origin()?).await.map(number),
        archive_request::NEXT_SEQ => shared.local.next_seq(&request.origin()?).await.map(number),
        archive_request::HISTORY | archive_request::LATEST => page(shared, kind, request).await,
        archive_request::BUCKET => {
            Ok(json(&ArchiveResponseJson { bucket: shared.bucket(), ..shared.answer() }))
        }
        _ => Err(EngineError::Invalid("unknown kind of request; update the archive".into())),
    }
}

/// Builds a page that fits in one message.
async fn page(shared: &Shared, kind: &str, request: &ArchiveRequest) -> Result<bytes::Bytes, EngineError> {
    let after = match request.cursor.map(archive_request::parts) {
        None => None,
        Some((archive, position)) if archive == shared.number => Some(position),
        Some(_) => {
            let why = "another archive made this cursor; start again with the first page";
            return Err(EngineError::TooOld(why.into()));
        }
    };
    let bytes_max =
        shared.connection.client.server_info().max_payload.saturating_sub(ENVELOPE_BYTES).max(ENVELOPE_BYTES);
    let mut limit = request.limit;
    loop {
        let page = read_page(shared, kind, request, (limit, bytes_max), after).await?;
        let items: Vec<RecordJson<'_>> = page.items.iter().map(RecordJson::from).collect();
        let next = page.next.map(|position| archive_request::cursor(shared.number, position));
        let answer = json(&ArchiveResponseJson { items: Some(items), next, ..shared.answer() });
        if answer.len() <= bytes_max || page.items.len() <= 1 {
            return Ok(answer);
        }
        // Reduce the number of records in proportion to the excess, and a little more. The
        // requester sends a further request for the remaining records.
        limit = (page.items.len() * bytes_max / answer.len() * 9 / 10).max(1);
    }
}

async fn read_page(
    shared: &Shared,
    kind: &str,
    request: &ArchiveRequest,
    (limit, bytes_max): (usize, usize),
    after: Option<Cursor>,
) -> Result<Page<Record>, EngineError> {
    if kind == archive_request::HISTORY {
        let range = request.range(limit, after);
        shared.local.history_within(&request.series()?, &range, bytes_max).await
    } else {
        shared.local.latest_within(&request.selector()?, after, limit, bytes_max).await
    }
}

/// Number of bytes that a response may have in addition to its records; also the smallest size
/// limit of a page, for servers that accept only short messages.
const ENVELOPE_BYTES: usize = 64 << 10;
