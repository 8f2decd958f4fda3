//! Writes records and registrations of stations to the streams. Every message gets its subject,
//! headers and text from the archive; a station chooses only the values of its records and entry.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::super::archive_request::{self, ArchiveRequest, ArchiveResponseJson, RegistrationJson};
use super::super::connection::{RequestError, json};
use super::super::directory::{self, TOMBSTONE_S};
use super::super::directory_writes::RENEWED_WITHIN;
use super::super::key_write::{self, KeyWrite, WriteResult};
use super::super::publish::{self, Outgoing};
use super::super::{streams, subject};
use super::Shared;
use crate::{EngineError, HostId, Record, wire};

/// Executes a request of `requester` to write.
pub(super) async fn write(
    shared: &Shared,
    requester: &str,
    kind: &str,
    request: &ArchiveRequest,
) -> Result<Bytes, EngineError> {
    let host = subject::name(requester)
        .ok_or_else(|| EngineError::Denied(format!("{requester} is no token of a station")))?;
    match kind {
        archive_request::APPEND => {
            let messages = records(&host, &request.body)?;
            shared.write_limits.charge_records(requester, messages.len());
            append(shared, request, &messages).await
        }
        _ => register(shared, &host, request).await,
    }
}

/// Reads the records of a request. Every record must be a measurement of the requester `host`.
fn records(host: &HostId, body: &[u8]) -> Result<Vec<Outgoing>, EngineError> {
    let lines = body.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let records = lines.map(wire::read_stored_record).collect::<Result<Vec<Record>, _>>()?;
    if let Some(Record { seq, origin, .. }) = records.iter().find(|record| record.origin != *host) {
        return Err(EngineError::Denied(format!("{host} may not append record {seq} of {origin}")));
    }
    Ok(publish::messages(&records)?.into_iter().map(Outgoing::kept).collect())
}

async fn append(
    shared: &Shared,
    request: &ArchiveRequest,
    messages: &[Outgoing],
) -> Result<Bytes, EngineError> {
    if shared.is_denied() {
        return Ok(direct(shared));
    }
    ensure_streams(shared).await?;
    match publish::store(&shared.connection, messages, || shared.accepts(request)).await {
        Ok(last) => Ok(json(&ArchiveResponseJson { number: Some(last), ..shared.answer() })),
        Err(EngineError::Denied(_)) => {
            shared.record_denial();
            Ok(direct(shared))
        }
        // Nothing was stored, and the station can repeat the request at once.
        Err(EngineError::Unavailable(_)) if !shared.accepts(request) => Ok(shared.stale()),
        Err(error) => Err(error),
    }
}

async fn register(shared: &Shared, host: &HostId, request: &ArchiveRequest) -> Result<Bytes, EngineError> {
    let invalid = |what: &str| EngineError::Invalid(format!("not a registration: {what}"));
    let Some(RegistrationJson { id, ttl_s, over }) = &request.registration else {
        return Err(invalid("it has no identifier"));
    };
    if !(1..=ID_BYTES_MAX).contains(&id.len()) || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(invalid("an identifier has 1 to 32 letters and digits"));
    }
    let (text, mut ttl_s) = if request.body.is_empty() {
        (None, TOMBSTONE_S)
    } else {
        let entry = wire::read_entry(&request.body)?;
        if entry.host != *host {
            return Err(EngineError::Denied(format!("{host} may not register {}", entry.host)));
        }
        (Some(directory::entry_text(&entry, Duration::from_secs(*ttl_s))?), *ttl_s)
    };
    ensure_streams(shared).await?;
    let conflict = || json(&ArchiveResponseJson { conflict: true, ..shared.answer() });
    let newest = newest(shared, host, *over).await?;
    if over.is_some_and(|over| over != newest) {
        return Ok(conflict());
    }
    if newest == 0 && text.is_some() {
        ttl_s = ttl_s.min(FIRST_TTL_S_MAX);
    }
    shared.connection.connect().await?;
    if !shared.accepts(request) {
        return Ok(shared.stale());
    }
    // Always with a condition: the network may hold the write while the station is withdrawn and
    // removed.
    let written = KeyWrite { id, ttl_s, over: Some(newest), text };
    match key_write::write(&shared.connection, host, &written).await {
        Ok(WriteResult::Stored(seq)) => {
            // A lower number than before shows a new bucket.
            shared.newest.store(seq, Ordering::Relaxed);
            Ok(json(&ArchiveResponseJson { number: Some(seq), ..shared.answer() }))
        }
        Ok(WriteResult::Conflict) => Ok(conflict()),
        Err(RequestError::NotSent(why)) => Err(EngineError::Unavailable(why)),
        Err(RequestError::NoAnswer(why)) => Err(EngineError::Unknown(why)),
        Err(RequestError::Denied(_)) => Ok(direct(shared)),
    }
}

/// Sequence number that the newest message at the key of `host` must have. This is `over` if the
/// bucket has had this number: a later message, such as the mark of a removal, has a higher number,
/// so a requester cannot guess the number of that message. Otherwise the archive reads the key. A
/// replica that is late may answer the read, so the archive avoids the read for renewals.
async fn newest(shared: &Shared, host: &HostId, over: Option<u64>) -> Result<u64, EngineError> {
    let seen = shared.newest.load(Ordering::Relaxed);
    if let Some(over) = over.filter(|over| (1..=seen).contains(over)) {
        return Ok(over);
    }
    match key_write::newest(&shared.connection, host).await {
        Ok(newest) => {
            shared.newest.fetch_max(newest, Ordering::Relaxed);
            Ok(newest)
        }
        // Nothing is written. `Denied` would mean that the station may not register.
        Err(RequestError::NotSent(why) | RequestError::NoAnswer(why) | RequestError::Denied(why)) => {
            Err(EngineError::Unavailable(why))
        }
    }
}

/// Creates the streams if they are missing, for one write at a time. [`streams::ensure`] sends
/// nothing if an earlier write has found or created the streams. It runs in a task, because it may
/// take longer than the write has time.
async fn ensure_streams(shared: &Shared) -> Result<(), EngineError> {
    if shared.connection.is_ready.load(Ordering::Relaxed) {
        return Ok(());
    }
    let guard = Arc::clone(&shared.ensuring).lock_owned().await;
    let connection = Arc::clone(&shared.connection);
    let ensured = tokio::spawn(async move {
        let _guard = guard;
        streams::ensure(&connection).await
    });
    ensured.await.unwrap_or_else(|error| Err(EngineError::Unavailable(error.to_string())))
}

/// Response to a write that the servers deny this archive.
fn direct(shared: &Shared) -> Bytes {
    json(&ArchiveResponseJson { direct: true, ..shared.answer() })
}

impl Shared {
    /// Returns whether this archive issued the nonce of the request a short time ago. A write is
    /// checked when it arrives, and again when the connection stands and nothing else is waited
    /// for: this process may stand still meanwhile.
    pub(super) fn accepts(&self, request: &ArchiveRequest) -> bool {
        request.nonce.as_deref().is_some_and(|nonce| self.nonces.accepts(nonce))
    }

    /// Response to a write with an old nonce, or without a nonce.
    pub(super) fn stale(&self) -> Bytes {
        json(&self.answer().stale())
    }

    /// Returns whether the servers recently denied this archive records of a station. A server
    /// logs each denial.
    fn is_denied(&self) -> bool {
        let denied_at = *self.denied_at.lock().unwrap_or_else(PoisonError::into_inner);
        denied_at.is_some_and(|at| at.elapsed() < DENIED_FOR)
    }

    fn record_denial(&self) {
        let before = self.denied_at.lock().unwrap_or_else(PoisonError::into_inner).replace(Instant::now());
        if before.is_none() {
            tracing::warn!(
                "the NATS servers have an outdated configuration: any member can delete records and registrations. \
                 Generate it again (docs/nats-operations.md, \"From an older mesh\")"
            );
        }
    }
}

/// Longest identifier of a registration, in bytes.
const ID_BYTES_MAX: usize = 32;

/// Longest lease in seconds of an entry at an empty key. The network may hold this write while the
/// station is withdrawn, and no message at the key refuses it then. The first renewal has the lease
/// of the request.
const FIRST_TTL_S_MAX: u64 = RENEWED_WITHIN.as_secs();

/// Time after a denial in which the archive tries to store no records of stations.
const DENIED_FOR: Duration = Duration::from_secs(10);
