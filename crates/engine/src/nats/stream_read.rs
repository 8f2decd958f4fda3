//! Reads a stream by sequence number: a range at a time, with a check that no message is missing.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::{HeaderMap, Message, StatusCode};
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::connection::{NatsConnection, RequestError, json};
use super::sanitize::UNREADABLE;
use super::streams::ENTRIES;
use super::subject;
use crate::{Record, wire};

/// A message as it is stored in the stream.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) seq: u64,
    pub(super) subject: String,
    pub(super) headers: HeaderMap,
    pub(super) payload: Bytes,
}

/// Consecutive messages of a stream.
#[derive(Debug, Default)]
pub(super) struct MessageRange {
    pub(super) messages: Vec<Stored>,
    /// Ranges of sequence numbers that contain messages which the server sent and this engine did
    /// not receive. A route between servers drops a trace-only message (`Nats-Trace-Only`), also in
    /// the response to a read.
    pub(super) lost: Vec<(u64, u64)>,
    /// Number of further matching messages in the stream.
    pub(super) pending: u64,
}

impl MessageRange {
    /// Sequence number of the last message, which may be a lost message; `None` if the range has no
    /// message.
    pub(super) fn last(&self) -> Option<u64> {
        self.messages.last().map(|stored| stored.seq).max(self.lost.last().map(|(_, last)| *last))
    }

    /// Merges two reads of the same range, up to the end of the shorter read. A message is lost if
    /// neither read has it.
    fn or(self, other: Self) -> Self {
        let Some(end) = self.last().min(other.last()) else { return Self::default() };
        let mut messages = BTreeMap::new();
        let mut pending = other.pending;
        for stored in self.messages.into_iter().chain(other.messages) {
            if stored.seq <= end {
                messages.insert(stored.seq, stored);
            } else {
                pending = pending.max(1);
            }
        }
        let both = |&(first, last): &(u64, u64)| {
            let overlap = move |&(from, to): &(u64, u64)| (first.max(from), last.min(to).min(end));
            other.lost.iter().map(overlap).filter(|(first, last)| first <= last)
        };
        let lost = self.lost.iter().flat_map(both).collect();
        Self { messages: messages.into_values().collect(), lost, pending }
    }
}

/// Reads at most `count` messages of `stream` from `first` on that match `filter`. Reads twice if
/// messages are lost.
pub(super) async fn read_range(
    connection: &NatsConnection,
    stream: &str,
    filter: &str,
    first: u64,
    count: usize,
) -> Result<MessageRange, RequestError> {
    read_twice(connection, &connection.inboxes, stream, (filter, first, count)).await
}

/// Reads the key `key` of the bucket of registrations, which has one message at most.
pub(super) async fn read_key(connection: &NatsConnection, key: &str) -> Result<MessageRange, RequestError> {
    read_twice(connection, &connection.key_inboxes, ENTRIES, (key, 1, 1)).await
}

async fn read_twice(
    connection: &NatsConnection,
    inboxes: &Semaphore,
    stream: &str,
    range: (&str, u64, usize),
) -> Result<MessageRange, RequestError> {
    let once = read(connection, inboxes, stream, range).await?;
    if once.lost.is_empty() {
        return Ok(once);
    }
    Ok(once.or(read(connection, inboxes, stream, range).await?))
}

async fn read(
    connection: &NatsConnection,
    inboxes: &Semaphore,
    stream: &str,
    (filter, first, count): (&str, u64, usize),
) -> Result<MessageRange, RequestError> {
    connection.connect().await?;
    let request = format!("$JS.API.DIRECT.GET.{stream}");
    let query = json!({
        "seq": first.max(1), "next_by_subj": filter, "batch": count, "max_bytes": RANGE_BYTES,
    });
    let not_sent = |error: &dyn std::fmt::Display| RequestError::NotSent(error.to_string());
    let mut errors = connection.errors();
    let inbox = connection.client.new_inbox();
    let _inbox = inboxes.acquire().await;
    let mut answers = connection.client.subscribe(inbox.clone()).await.map_err(|error| not_sent(&error))?;
    connection
        .client
        .publish_with_reply(request.clone(), inbox, json(&query))
        .await
        .map_err(|error| not_sent(&error))?;
    let until = Instant::now() + connection.config.deadline;
    let mut range = MessageRange::default();
    let mut before = 0;
    loop {
        let answer = tokio::select! {
            answer = timeout_at(until, answers.next()) => answer,
            error = errors.next_for(&request) => return Err(error),
        };
        let Ok(Some(answer)) = answer else {
            return Err(RequestError::NoAnswer(format!(
                "{request}: incomplete response before the deadline"
            )));
        };
        // Each message has a header with the number of the message sent before it; the end mark has
        // the number of the last message.
        let previous = number(answer.headers.as_ref(), LAST_SEQUENCE).filter(|previous| before < *previous);
        let lost = previous.map(|previous| (first.max(before + 1), previous));
        match status(&answer) {
            None => {
                range.lost.extend(lost);
                let stored = Stored::read(answer)?;
                before = stored.seq;
                range.messages.push(stored);
            }
            Some(status) if status.as_u16() == END_OF_BATCH => {
                range.lost.extend(lost);
                range.pending = number(answer.headers.as_ref(), NUM_PENDING).unwrap_or(0);
                return Ok(range);
            }
            Some(StatusCode::NOT_FOUND) => return Ok(range),
            Some(StatusCode::NO_RESPONDERS) => {
                connection.is_ready.store(false, Ordering::Relaxed);
                return Err(RequestError::NotSent(format!("no server has the stream {stream}")));
            }
            Some(status) => return Err(RequestError::NoAnswer(format!("{request}: {status}"))),
        }
    }
}

/// Reads the last message of one subject; `None` if there is none.
pub(super) async fn last(
    connection: &NatsConnection,
    stream: &str,
    of: &str,
) -> Result<Option<Stored>, RequestError> {
    one(connection, stream, json!({ "last_by_subj": of })).await
}

/// Reads the message with this sequence number; `None` if there is none.
pub(super) async fn at(
    connection: &NatsConnection,
    stream: &str,
    seq: u64,
) -> Result<Option<Stored>, RequestError> {
    one(connection, stream, json!({ "seq": seq })).await
}

async fn one(
    connection: &NatsConnection,
    stream: &str,
    query: serde_json::Value,
) -> Result<Option<Stored>, RequestError> {
    let answer = connection.request(format!("$JS.API.DIRECT.GET.{stream}"), None, json(&query)).await?;
    match status(&answer) {
        None => Stored::read(answer).map(Some),
        Some(StatusCode::NOT_FOUND) => Ok(None),
        Some(status) => Err(RequestError::NoAnswer(format!("the stream {stream}: {status}"))),
    }
}

impl Stored {
    /// Parses the response to a direct get. The server adds its headers after the headers of the
    /// message.
    pub(super) fn read(answer: Message) -> Result<Self, RequestError> {
        let headers = answer.headers.as_ref();
        let last = |name| headers.and_then(|headers| headers.get_last(name)).map(|value| value.as_str());
        let (Some(seq), Some(subject)) = (number(headers, SEQUENCE), last(SUBJECT)) else {
            return Err(RequestError::NoAnswer("a stored message has no sequence number".into()));
        };
        let subject = subject.to_owned();
        Ok(Self { seq, subject, headers: answer.headers.unwrap_or_default(), payload: answer.payload })
    }

    /// When the servers stored the message, in their own format; `None` if the header is missing.
    pub(super) fn stored_at(&self) -> Option<&str> {
        self.headers.get_last(TIME_STAMP).map(|value| value.as_str())
    }

    /// When the servers stored the message, in nanoseconds since 1970-01-01 UTC; `None` if the
    /// header is missing or is not a time of RFC 3339.
    pub(super) fn stored_unix_ns(&self) -> Option<i64> {
        parse_time(self.stored_at()?)
    }

    /// Returns whether the message was published to its subject, and not sent there as a response.
    ///
    /// Servers permit archives to publish to the streams, and with lists of older versions each
    /// station below its own token. But a server also sends responses to any subject that a request
    /// names, and checks no permission for that. So a stored message may be a response with content
    /// that the requester chose. The headers show a stored response: it has the server's headers
    /// twice, or it has no headers at all. So a reader must also require a header that only a
    /// publisher writes.
    pub(super) fn is_publication(&self) -> bool {
        [SUBJECT, SEQUENCE].into_iter().all(|name| self.headers.get_all(name).count() == 1)
    }

    /// Returns the record in the message. Errors: the message cannot be read, is not a publication
    /// ([`Stored::is_publication`]), or has a subject or an identifier that does not match the
    /// record.
    pub(super) fn record(&self) -> Result<Record, String> {
        if self.headers.get(UNREADABLE).is_some() {
            return Err(format!("{} holds a header that cannot be read", self.subject));
        }
        if !self.is_publication() {
            return Err(format!("{} holds an answer of the server, not a publication", self.subject));
        }
        let record =
            wire::read_stored_record(&self.payload).map_err(|error| format!("{}: {error}", self.subject))?;
        let subjects = [subject::kept(&record.origin), subject::record(&record.series, &record.origin)];
        if !subjects.contains(&self.subject) {
            return Err(format!("a record of {} was published as {}", record.origin, self.subject));
        }
        let id = self.headers.get(MESSAGE_ID).and_then(|id| id.as_str().strip_prefix(&message_id(&record)));
        match id {
            Some(rest) if rest.is_empty() || rest.starts_with(':') => Ok(record),
            _ => Err(format!("{} holds a record without its identity", self.subject)),
        }
    }
}

/// Filter for all subjects of a stream.
pub(super) const ALL: &str = ">";

/// Identifier of a record's message. The server recognises a repeated publication by this
/// identifier.
pub(super) fn message_id(record: &Record) -> String {
    format!("{}:{}", subject::token(record.origin.as_str()), record.seq)
}

/// Returns the status that the server sent instead of a message. A stored message has a sequence
/// number, so its status does not count: the stored message may be a response that was sent to the
/// subject.
fn status(answer: &Message) -> Option<StatusCode> {
    answer.status.filter(|_| number(answer.headers.as_ref(), SEQUENCE).is_none())
}

/// Number in a header that the server added.
pub(super) fn number(headers: Option<&HeaderMap>, name: &'static str) -> Option<u64> {
    headers?.get_last(name)?.as_str().parse().ok()
}

/// Headers that the server adds when it reads from a stream or republishes.
pub(super) const SEQUENCE: &str = "Nats-Sequence";
pub(super) const SUBJECT: &str = "Nats-Subject";
const TIME_STAMP: &str = "Nats-Time-Stamp";
const LAST_SEQUENCE: &str = "Nats-Last-Sequence";
const NUM_PENDING: &str = "Nats-Num-Pending";

/// Header by which the server detects a repetition.
pub(super) const MESSAGE_ID: &str = "Nats-Msg-Id";

const END_OF_BATCH: u16 = 204;

/// Largest number of bytes in one read: a few thousand ordinary records, which arrive quickly on
/// any network.
const RANGE_BYTES: usize = 1 << 20;

/// Time in nanoseconds since 1970-01-01 UTC; `None` if the text is not a time of RFC 3339.
pub(super) fn parse_time(text: &str) -> Option<i64> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    i64::try_from(time.unix_timestamp_nanos()).ok()
}

/// Time without a response after which a message counts as lost: several round trips around the
/// Earth (0.3 s each).
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn read_range(seqs: &[u64], lost: &[(u64, u64)], pending: u64) -> MessageRange {
        let stored =
            |&seq| Stored { seq, subject: String::new(), headers: HeaderMap::new(), payload: Bytes::new() };
        MessageRange { messages: seqs.iter().map(stored).collect(), lost: lost.to_vec(), pending }
    }

    fn shown(range: &MessageRange) -> (Vec<u64>, Vec<(u64, u64)>, u64) {
        (range.messages.iter().map(|stored| stored.seq).collect(), range.lost.clone(), range.pending)
    }

    #[test]
    fn the_time_of_storage_is_read_to_the_nanosecond() {
        let stored_at = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(TIME_STAMP, text);
            Stored { seq: 1, subject: String::new(), headers, payload: Bytes::new() }.stored_unix_ns()
        };
        assert_eq!(stored_at("2026-11-26T06:31:13.000000007Z"), Some(1_795_674_673_000_000_007));
        assert_eq!(stored_at("2026-11-26T06:31:13Z"), Some(1_795_674_673_000_000_000));
        for text in ["", "now", "2026-13-26T06:31:13Z"] {
            assert_eq!(stored_at(text), None, "{text}");
        }
    }

    #[test]
    fn only_messages_missing_from_both_reads_are_lost() {
        let of = |once: MessageRange, again: MessageRange| shown(&once.or(again));
        // Each of the two reads has messages that the other read does not have.
        let both =
            of(read_range(&[1, 2, 5, 6], &[(3, 4)], 0), read_range(&[1, 3, 4, 6], &[(2, 2), (5, 5)], 0));
        assert_eq!(both, (vec![1, 2, 3, 4, 5, 6], vec![], 0));
        let run = of(read_range(&[1, 2, 3, 4, 6], &[(5, 5)], 0), read_range(&[1, 6], &[(2, 5)], 0));
        assert_eq!(run, (vec![1, 2, 3, 4, 6], vec![(5, 5)], 0));
        // If a key is written constantly, its newest number differs from read to read.
        assert_eq!(
            of(read_range(&[], &[(8, 8)], 0), read_range(&[], &[(8, 9)], 0)),
            (vec![], vec![(8, 8)], 0)
        );
        assert_eq!(of(read_range(&[], &[(8, 8)], 0), read_range(&[], &[], 0)), (vec![], vec![], 0));
        // Messages that were stored between the two reads are read with the next range.
        assert_eq!(
            of(read_range(&[1], &[(2, 2)], 0), read_range(&[1, 3], &[(2, 2)], 0)),
            (vec![1], vec![(2, 2)], 1)
        );
    }
}
