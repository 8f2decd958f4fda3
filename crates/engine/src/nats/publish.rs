//! Appends: publishes records in order, with a limited number of pending acknowledgements, and
//! waits for all of them.

use std::sync::atomic::Ordering;

use async_nats::{HeaderMap, Message, StatusCode};
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Deserialize;
use tokio::time::timeout;

use super::connection::{NatsConnection, RequestError, read};
use super::stream_read::{self, MESSAGE_ID, message_id};
use super::streams::{self, RECORD_BYTES_MAX};
use super::{subject, write_request};
use crate::{EngineError, HostId, Record, wire};

/// A record to be published.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    subject: String,
    id: String,
    pub(super) payload: Bytes,
    pub(super) origin: HostId,
}

impl Outgoing {
    /// The same record under the subject for records that an archive stores for a station.
    pub(super) fn kept(self) -> Self {
        Self { subject: subject::kept(&self.origin), ..self }
    }

    /// Returns whether a denial of `subject` concerns this record. The server may have mapped the
    /// record's subject to a different subject.
    fn is_denied_as(&self, subject: &str) -> bool {
        self.subject.eq_ignore_ascii_case(subject)
            || subject::kept(&self.origin).eq_ignore_ascii_case(subject)
    }
}

/// Acknowledgement of a publication by the server.
#[derive(Debug, Deserialize)]
pub(super) struct Acknowledgement {
    /// Sequence number of the message; 0 if the server refused the message.
    #[serde(default)]
    pub(super) seq: u64,
    #[serde(default)]
    duplicate: bool,
    pub(super) error: Option<streams::ApiError>,
}

impl Acknowledgement {
    /// Reads the server's response to a publication. A response without a sequence number and
    /// without an error does not show whether the message was stored.
    pub(super) fn read(answer: &Message) -> Result<Self, RequestError> {
        read::<Self>(answer)?.checked()
    }

    fn checked(self) -> Result<Self, RequestError> {
        if self.seq == 0 && self.error.is_none() {
            return Err(RequestError::NoAnswer("an acknowledgement has no sequence number".into()));
        }
        Ok(self)
    }
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
        // Markers of skipped numbers are in the stream only: archives store no record for them.
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
        })
    };
    batch.iter().map(message).collect()
}

/// Stores the messages, and waits until all are stored. A member stores them through an archive.
pub(super) async fn append(connection: &NatsConnection, messages: Vec<Outgoing>) -> Result<(), EngineError> {
    if messages.is_empty() {
        return Ok(());
    }
    let mut starting = connection.starting.subscribe();
    // Continue after a timeout: a subscription that cannot begin must not delay measurements.
    let _ = timeout(connection.config.deadline, starting.wait_for(|count| *count == 0)).await;
    streams::ensure(connection).await?;
    if !connection.is_member.load(Ordering::Relaxed) {
        match store(connection, &messages, || true).await {
            Err(EngineError::Denied(_)) if streams::became_member(connection).await => {}
            stored => return stored.map(|last| connection.acknowledge(last)),
        }
    }
    match write_request::append(connection, &messages).await? {
        write_request::Written::Stored => Ok(()),
        // The archive may have stored some records before. A denial means that the archive and this
        // station are connected to servers with different configurations.
        write_request::Written::Direct => store(connection, &messages, || true)
            .await
            .map_err(partly_stored)
            .map(|last| connection.acknowledge(last)),
    }
}

/// Publishes the messages, and waits for all acknowledgements. Returns the highest sequence number
/// of the messages in the stream. After the first publication, some messages are stored, so later
/// errors are [`EngineError::Unknown`].
///
/// `may_send` is called when the messages can be sent without further waits. If it returns `false`,
/// they are not sent, and the error is [`EngineError::Unavailable`] if none was stored.
pub(super) async fn store(
    connection: &NatsConnection,
    messages: &[Outgoing],
    may_send: impl Fn() -> bool,
) -> Result<u64, EngineError> {
    let Published { last, repeated } = publish(connection, messages, &may_send).await?;
    let suppressed = suppressed(connection, messages, repeated).await.map_err(partly_stored)?;
    let renamed = suppressed.into_iter().map(|message| Outgoing {
        id: format!(
            "{}:{}",
            message.id,
            connection.client.new_inbox().rsplit('.').next().unwrap_or_default()
        ),
        ..message
    });
    let again = publish(connection, &renamed.collect::<Vec<_>>(), &may_send).await.map_err(partly_stored)?;
    Ok(last.max(again.last))
}

/// Error of a write that may be stored, or stored in part.
pub(super) fn partly_stored(error: EngineError) -> EngineError {
    match error {
        EngineError::Unknown(why) => EngineError::Unknown(why),
        error => EngineError::Unknown(error.to_string()),
    }
}

/// Returns the messages in `repeated` that the server may have dropped although they are no
/// repetitions. Publishers choose message identifiers, so a different station may have used the
/// same identifier.
///
/// A member that writes by itself may not read the stream, so all its repeated messages are
/// returned. Storing a record again is safe, because an archive stores each record once.
async fn suppressed(
    connection: &NatsConnection,
    messages: &[Outgoing],
    repeated: Vec<(usize, u64)>,
) -> Result<Vec<Outgoing>, EngineError> {
    if connection.is_member.load(Ordering::Relaxed) {
        return Ok(repeated.into_iter().map(|(index, _)| messages[index].clone()).collect());
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

/// Result of a publication.
#[derive(Default)]
struct Published {
    /// Highest sequence number of the messages in the stream.
    last: u64,
    /// Messages that the server reports as repetitions, with their sequence numbers.
    repeated: Vec<(usize, u64)>,
}

/// Publishes in order, and waits for all acknowledgements.
async fn publish(
    connection: &NatsConnection,
    messages: &[Outgoing],
    may_send: &impl Fn() -> bool,
) -> Result<Published, EngineError> {
    let mut published = Published::default();
    if messages.is_empty() {
        return Ok(published);
    }
    let _inbox = connection.inboxes.acquire().await;
    connection.connect().await?;
    if !may_send() {
        return Err(EngineError::Unavailable("the request is too old".into()));
    }
    let mut errors = connection.errors();
    let inbox = connection.client.new_inbox();
    let nothing_sent = |error: &dyn std::fmt::Display| EngineError::Unavailable(error.to_string());
    let mut answers =
        connection.client.subscribe(format!("{inbox}.*")).await.map_err(|error| nothing_sent(&error))?;
    let (mut sent, mut done) = (0, 0);
    while done < messages.len() {
        while sent < messages.len() && sent - done < WINDOW {
            let Outgoing { subject, id, payload, .. } = messages[sent].clone();
            let mut headers = HeaderMap::new();
            headers.insert(MESSAGE_ID, id);
            let reply = format!("{inbox}.{sent}");
            let result =
                connection.client.publish_with_reply_and_headers(subject, reply, headers, payload).await;
            match result {
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
        let Acknowledgement { seq, duplicate, error } = Acknowledgement::read(&answer).map_err(failed)?;
        if let Some(error) = error {
            return Err(refused(error.description, messages.len()));
        }
        if duplicate && index < messages.len() {
            published.repeated.push((index, seq));
        }
        published.last = published.last.max(seq);
        done += 1;
    }
    Ok(published)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_acknowledgement_has_a_number_or_an_error() {
        let checked = |text| serde_json::from_str::<Acknowledgement>(text).unwrap().checked();
        for text in ["{}", r#"{"stream":"BAROGRAPH","seq":0}"#] {
            assert!(matches!(checked(text), Err(RequestError::NoAnswer(_))), "{text}");
        }
        assert_eq!(checked(r#"{"seq":7}"#).unwrap().seq, 7);
        assert!(checked(r#"{"error":{"code":503}}"#).unwrap().error.is_some());
    }
}
