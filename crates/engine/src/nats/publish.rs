//! Appends: publishes records in order, with a limited number of pending acknowledgements, and
//! waits for all of them.

use std::sync::atomic::Ordering;

use async_nats::{HeaderMap, StatusCode};
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Deserialize;
use tokio::time::timeout;

use super::archive_request::ArchiveRequest;
use super::connection::{NatsConnection, RequestError, read};
use super::stream_read::{self, MESSAGE_ID, message_id};
use super::streams::{self, RECORD_BYTES_MAX};
use super::{request_archive, subject};
use crate::{EngineError, HostId, Record, wire};

/// A record to be published.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    subject: String,
    id: String,
    payload: Bytes,
    origin: HostId,
    /// Highest sequence number of the record, or of the numbers that a marker skips.
    last: u64,
}

impl Outgoing {
    /// Returns whether a denial of `subject` concerns this record. The server may have mapped the
    /// record's subject to a different subject.
    fn is_denied_as(&self, subject: &str) -> bool {
        self.subject.eq_ignore_ascii_case(subject)
            || subject::kept(&self.origin).eq_ignore_ascii_case(subject)
    }
}

/// Acknowledgement of a publication by the server.
#[derive(Deserialize)]
pub(super) struct Acknowledgement {
    #[serde(default)]
    pub(super) seq: u64,
    #[serde(default)]
    duplicate: bool,
    pub(super) error: Option<streams::ApiError>,
}

/// Converts the batch to messages.
///
/// # Errors
/// Nothing was sent. [`EngineError::Invalid`] if a record breaks a limit, [`EngineError::Denied`]
/// if another station measured it.
pub(super) fn messages(batch: &[Record]) -> Result<Vec<Outgoing>, EngineError> {
    if batch.len() > Record::BATCH_MAX {
        let (max, count) = (Record::BATCH_MAX, batch.len());
        return Err(EngineError::Invalid(format!("a batch has at most {max} records, not {count}")));
    }
    let message = |record: &Record| {
        record.check()?;
        // Markers of skipped numbers are for the archive, and are never stored.
        if !record.is_own() && record.skipped_range().is_none() {
            let (seq, origin, source) = (record.seq, &record.origin, &record.series.source);
            return Err(EngineError::Denied(format!(
                "record {seq} of {origin} is a measurement of {source}"
            )));
        }
        let payload = wire::record_text(record);
        if payload.len() > RECORD_BYTES_MAX {
            let (seq, bytes) = (record.seq, payload.len());
            let error = format!("record {seq} has {bytes} bytes as JSON, more than {RECORD_BYTES_MAX}");
            return Err(EngineError::Invalid(error));
        }
        Ok(Outgoing {
            subject: subject::record(&record.series, &record.origin),
            id: message_id(record),
            payload: payload.into(),
            origin: record.origin.clone(),
            last: record.skipped_range().map_or(record.seq, |(_, last)| last),
        })
    };
    batch.iter().map(message).collect()
}

/// Publishes the messages, and waits for all acknowledgements.
pub(super) async fn append(connection: &NatsConnection, messages: Vec<Outgoing>) -> Result<(), EngineError> {
    if messages.is_empty() {
        return Ok(());
    }
    let mut starting = connection.starting.subscribe();
    // Continue after a timeout: a subscription that cannot begin must not delay measurements.
    let _ = timeout(connection.config.deadline, starting.wait_for(|count| *count == 0)).await;
    streams::ensure(connection).await?;
    let repeated = publish(connection, &messages).await?;
    let suppressed = suppressed(connection, &messages, repeated).await?;
    let renamed = suppressed.into_iter().map(|message| Outgoing {
        id: format!(
            "{}:{}",
            message.id,
            connection.client.new_inbox().rsplit('.').next().unwrap_or_default()
        ),
        ..message
    });
    publish(connection, &renamed.collect::<Vec<_>>()).await.map(drop)
}

/// Returns the messages in `repeated` that the server may have dropped although they are no
/// repetitions. Publishers choose message identifiers, so a different station may have used the
/// same identifier.
///
/// A member may not read the stream. So a member assumes that a record was dropped if no archive
/// has the record yet, and sends the record again. Sending a record again is safe, because an
/// archive stores each record once.
async fn suppressed(
    connection: &NatsConnection,
    messages: &[Outgoing],
    repeated: Vec<(usize, u64)>,
) -> Result<Vec<Outgoing>, EngineError> {
    let Some(&(first, _)) = repeated.first() else { return Ok(Vec::new()) };
    if connection.is_member.load(Ordering::Relaxed) {
        let origin = &messages[first].origin;
        let asked = request_archive::request(connection, &ArchiveRequest::watermark(origin)).await;
        let watermark = asked.and_then(request_archive::ArchiveResponse::into_number).unwrap_or(0);
        let is_kept = |message: &Outgoing| message.origin == *origin && message.last <= watermark;
        let repeated = repeated.iter().map(|&(index, _)| &messages[index]);
        return Ok(repeated.filter(|message| !is_kept(message)).cloned().collect());
    }
    stream::iter(repeated)
        .map(|(index, seq)| {
            let message = &messages[index];
            async move {
                Ok::<_, EngineError>((!is_same(connection, message, seq).await?).then(|| message.clone()))
            }
        })
        .buffered(WINDOW)
        .try_filter_map(async |message| Ok(message))
        .try_collect()
        .await
}

/// Returns whether the message stored at `seq` is the same record as `message`, so that `message`
/// was a real repetition.
async fn is_same(connection: &NatsConnection, message: &Outgoing, seq: u64) -> Result<bool, EngineError> {
    match stream_read::at(connection, streams::RECORDS, seq).await {
        Ok(stored) => {
            Ok(stored.is_some_and(|stored| stored.subject == message.subject && stored.record().is_ok()))
        }
        Err(RequestError::Denied(what)) => {
            // The engine had the rights of an archive, and now has the rights of a member. The next
            // append detects this change.
            connection.is_ready.store(false, Ordering::Relaxed);
            Err(EngineError::Denied(what))
        }
        Err(RequestError::NotSent(why) | RequestError::NoAnswer(why)) => Err(EngineError::Unknown(why)),
    }
}

/// Publishes in order. Returns the messages that the server reports as repetitions, with their
/// sequence numbers.
async fn publish(
    connection: &NatsConnection,
    messages: &[Outgoing],
) -> Result<Vec<(usize, u64)>, EngineError> {
    if messages.is_empty() {
        return Ok(Vec::new());
    }
    connection.connect().await?;
    let mut errors = connection.errors();
    let inbox = connection.client.new_inbox();
    let nothing_sent = |error: &dyn std::fmt::Display| EngineError::Unavailable(error.to_string());
    let _inbox = connection.inboxes.acquire().await;
    let mut answers =
        connection.client.subscribe(format!("{inbox}.*")).await.map_err(|error| nothing_sent(&error))?;
    let mut repeated = Vec::new();
    let (mut sent, mut done) = (0, 0);
    while done < messages.len() {
        while sent < messages.len() && sent - done < WINDOW {
            let Outgoing { subject, id, payload, .. } = messages[sent].clone();
            let mut headers = HeaderMap::new();
            headers.insert(MESSAGE_ID, id);
            let reply = format!("{inbox}.{sent}");
            let published =
                connection.client.publish_with_reply_and_headers(subject, reply, headers, payload).await;
            match published {
                Ok(()) => sent += 1,
                Err(error) if sent == 0 => return Err(nothing_sent(&error)),
                Err(error) => return Err(EngineError::Unknown(error.to_string())),
            }
        }
        let answer = tokio::select! {
            answer = timeout(connection.config.deadline, answers.next()) => answer,
            error = errors.next_matching(|denied| messages[..sent].iter().any(|message| message.is_denied_as(denied))) => {
                return Err(failed(error));
            }
        };
        let Ok(Some(answer)) = answer else {
            let why = format!(
                "{done} of {} records were acknowledged, then none within {:?}",
                messages.len(),
                connection.config.deadline
            );
            return Err(EngineError::Unknown(why));
        };
        let index =
            answer.subject.rsplit('.').next().and_then(|index| index.parse().ok()).unwrap_or(usize::MAX);
        if answer.status == Some(StatusCode::NO_RESPONDERS) {
            connection.is_ready.store(false, Ordering::Relaxed);
            return Err(refused("no server takes records for the stream".into(), messages.len()));
        }
        let Acknowledgement { seq, duplicate, error } = read(&answer).map_err(failed)?;
        if let Some(error) = error {
            return Err(refused(error.description, messages.len()));
        }
        if duplicate && index < messages.len() {
            repeated.push((index, seq));
        }
        connection.acknowledge(seq);
        done += 1;
    }
    Ok(repeated)
}

/// Returns the error for a batch of `count` records that the server refused because of `why`. A
/// single record was not stored. Of a longer batch, some records may have been stored.
fn refused(why: String, count: usize) -> EngineError {
    if count == 1 { EngineError::Unavailable(why) } else { EngineError::Unknown(why) }
}

fn failed(error: RequestError) -> EngineError {
    match error {
        RequestError::Denied(what) => EngineError::Denied(what),
        RequestError::NotSent(why) | RequestError::NoAnswer(why) => EngineError::Unknown(why),
    }
}

/// Largest number of unacknowledged publications. This number keeps a cluster busy even if the
/// cluster syncs every write. The number is small enough that all these publications can be sent
/// again.
const WINDOW: usize = 256;
