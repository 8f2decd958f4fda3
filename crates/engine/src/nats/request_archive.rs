//! Sends requests to an archive.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::archive_request::{ArchiveRequest, ArchiveResponseJson, parts};
use super::connection::{NatsConnection, RequestError};
use crate::{EngineError, Page, Record};

#[derive(Debug)]
pub(super) struct ArchiveResponse {
    pub(super) number: Option<u64>,
    bucket: Option<String>,
    page: Page<Record>,
    /// Whether nothing was written because of the condition of the write.
    pub(super) is_conflict: bool,
    /// Whether nothing was written because the servers deny the archive this write; see
    /// [`ArchiveResponseJson::direct`].
    pub(super) is_direct: bool,
}

impl ArchiveResponse {
    pub(super) fn into_page(self) -> Page<Record> {
        self.page
    }

    pub(super) fn into_bucket(self) -> Option<String> {
        self.bucket
    }

    pub(super) fn into_number(self) -> Result<u64, EngineError> {
        self.number.ok_or_else(|| EngineError::Unavailable("an archive responded without a number".into()))
    }
}

/// Sends the request to the archive that made the cursor. Without a cursor, sends the request to
/// the archive that responded last, and to any archive if that archive does not respond.
pub(super) async fn request(
    connection: &NatsConnection,
    request: &ArchiveRequest,
) -> Result<ArchiveResponse, EngineError> {
    let result = request_once(connection, request).await;
    let Err(ArchiveRequestError::OtherStream(stream, _)) = &result else {
        return result.map_err(EngineError::from);
    };
    // The stream was recreated, and either this engine or the archive has not detected that yet.
    connection.found_other(stream);
    request_once(connection, request).await.map_err(EngineError::from)
}

/// Reason why there is no response.
enum ArchiveRequestError {
    /// The archive reads the stream that was created at this time.
    OtherStream(String, EngineError),
    Other(EngineError),
}

impl From<EngineError> for ArchiveRequestError {
    fn from(error: EngineError) -> Self {
        Self::Other(error)
    }
}

impl From<ArchiveRequestError> for EngineError {
    fn from(error: ArchiveRequestError) -> Self {
        match error {
            ArchiveRequestError::OtherStream(_, error) | ArchiveRequestError::Other(error) => error,
        }
    }
}

async fn request_once(
    connection: &NatsConnection,
    request: &ArchiveRequest,
) -> Result<ArchiveResponse, ArchiveRequestError> {
    let mut request = request.clone();
    (request.stream, request.after_place) = connection.acknowledged();
    let by_cursor = request.cursor.map(|cursor| parts(cursor).0);
    let archive = by_cursor.unwrap_or_else(|| connection.archive.load(Ordering::Relaxed));
    let mut answer = Err(RequestError::NotSent(String::new()));
    if archive != 0 {
        answer = connection.request_archive(&request, Some(archive)).await;
    }
    if by_cursor.is_none() && matches!(answer, Err(RequestError::NotSent(_) | RequestError::NoAnswer(_))) {
        answer = connection.request_archive(&request, None).await;
    }
    match answer {
        Ok(message) => read(connection, &message.payload),
        Err(RequestError::NotSent(_)) if by_cursor.is_some() && connection.connected().is_ok() => {
            let why = "the archive that made this cursor does not respond; start again with the first page";
            Err(EngineError::TooOld(why.into()).into())
        }
        Err(RequestError::NotSent(why)) if connection.connected().is_ok() => {
            Err(EngineError::Unavailable(format!("no archive responds ({why}); start the archive")).into())
        }
        Err(error) => Err(EngineError::from(error).into()),
    }
}

/// Sends the next request to any archive, because the archive `number` does not respond or fails.
pub(super) fn forget(connection: &NatsConnection, number: u16) {
    // An error means that another archive has responded meanwhile.
    let _ = connection.archive.compare_exchange(number, 0, Ordering::Relaxed, Ordering::Relaxed);
}

/// Sends a request to write, and sends it again if the archive requires a newer nonce. Both take at
/// most one deadline.
pub(super) async fn write(
    connection: &NatsConnection,
    request: &ArchiveRequest,
    archive: Option<u16>,
) -> Result<async_nats::Message, RequestError> {
    let deadline = connection.config.deadline;
    let until = Instant::now() + deadline;
    let nonce = connection.nonce.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let request_by = async |nonce, archive| {
        let request = request.clone().with_nonce(nonce);
        let answer = timeout_at(until, connection.request_archive(&request, archive)).await;
        answer.unwrap_or_else(|_| {
            Err(RequestError::NoAnswer(format!("no archive responds within {deadline:?}")))
        })
    };
    let answer = request_by(nonce, archive).await?;
    let parsed: Option<ArchiveResponseJson<'_>> = serde_json::from_slice(&answer.payload).ok();
    let Some(stale) = parsed.filter(ArchiveResponseJson::is_stale) else { return Ok(answer) };
    // Keep the nonce for the next request: this request may have no answer in time.
    connection.nonce.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&stale.nonce);
    request_by(stale.nonce, Some(stale.archive)).await
}

/// Reads the response to a request to write.
pub(super) fn read_written(
    connection: &NatsConnection,
    payload: &Bytes,
) -> Result<ArchiveResponse, EngineError> {
    read(connection, payload).map_err(EngineError::from)
}

fn read(connection: &NatsConnection, payload: &Bytes) -> Result<ArchiveResponse, ArchiveRequestError> {
    let answer: ArchiveResponseJson<'_> = serde_json::from_slice(payload).map_err(|error| {
        EngineError::Unavailable(format!("cannot read the response of an archive: {error}"))
    })?;
    let other = answer.stream.clone().filter(|_| answer.other_stream);
    let archive = answer.archive;
    if let Some(nonce) = &answer.nonce {
        *connection.nonce.lock().unwrap_or_else(PoisonError::into_inner) = Some(nonce.clone());
    }
    if let Some(stream) = answer.stream.as_ref().filter(|_| !answer.other_stream) {
        connection.found(stream);
    }
    let bucket = answer.bucket.clone();
    let (is_conflict, is_direct) = (answer.conflict, answer.direct);
    let result = answer.read();
    match &result {
        // Another archive may succeed.
        Ok(_) if is_direct => forget(connection, archive),
        Err(EngineError::Unavailable(_) | EngineError::Unknown(_)) if other.is_none() => {
            forget(connection, archive);
        }
        // This response does not show whether the archive can write.
        Err(EngineError::Throttled { .. }) => {}
        _ => connection.archive.store(archive, Ordering::Relaxed),
    }
    let (number, page) = result.map_err(|error| match other {
        Some(stream) => ArchiveRequestError::OtherStream(stream, error),
        None => ArchiveRequestError::Other(error),
    })?;
    Ok(ArchiveResponse { number, bucket, page, is_conflict, is_direct })
}
