//! Writes of one station's key in the bucket of registrations.

use async_nats::HeaderMap;
use bytes::Bytes;

use super::connection::{NatsConnection, RequestError};
use super::directory::{self, DELETED, OPERATION, REGISTRATION, TTL};
use super::publish::Acknowledgement;
use super::stream_read;
use crate::HostId;

/// A write of a registration, or its deletion.
#[derive(Clone, Debug)]
pub(super) struct KeyWrite<'a> {
    /// Identifier of the registration.
    pub(super) id: &'a str,
    /// Time in seconds for which the servers keep the message.
    pub(super) ttl_s: u64,
    /// Sequence number of the message to replace; `None` to replace any message. For a member, an
    /// archive then replaces the message that the archive reads at the key.
    pub(super) over: Option<u64>,
    /// The entry as JSON; `None` to delete the entry.
    pub(super) text: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteResult {
    /// Sequence number of the message.
    Stored(u64),
    /// The key does not have the expected sequence number.
    Conflict,
}

/// Writes the key of `host`.
pub(super) async fn write(
    connection: &NatsConnection,
    host: &HostId,
    write: &KeyWrite<'_>,
) -> Result<WriteResult, RequestError> {
    let mut headers = HeaderMap::new();
    headers.insert(REGISTRATION, write.id);
    headers.insert(TTL, format!("{}s", write.ttl_s));
    if write.text.is_none() {
        headers.insert(OPERATION, DELETED);
    }
    if let Some(seq) = write.over {
        headers.insert(EXPECTED, seq.to_string());
    }
    let text = write.text.clone().unwrap_or_default();
    let answer = connection.request(directory::key(host), Some(headers), text).await?;
    let Acknowledgement { seq, error, .. } = Acknowledgement::read(&answer)?;
    match error {
        None => Ok(WriteResult::Stored(seq)),
        Some(error) if WRONG_SEQ.contains(&error.err_code) => Ok(WriteResult::Conflict),
        Some(error) => Err(RequestError::NoAnswer(error.description)),
    }
}

/// Sequence number of the newest message at the key of `host`; 0 if there is none.
pub(super) async fn newest(connection: &NatsConnection, host: &HostId) -> Result<u64, RequestError> {
    // `read_key` reports also the number of a message that the server does not deliver.
    let range = stream_read::read_key(connection, &directory::key(host)).await?;
    Ok(range.last().unwrap_or(0))
}

/// Header with the condition of a write: the server accepts the write only if the key's newest
/// message has this sequence number.
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";

/// The two codes of the server's error "wrong last sequence".
const WRONG_SEQ: [u32; 2] = [10071, 10164];
