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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::pin::pin;

    use barograph_forecast::Name;
    use barograph_testkit::nats::NatsServer;
    use futures_util::FutureExt as _;
    use serde_json::Value;

    use super::super::super::{Nats, NatsConfig};
    use super::super::{Archiver, NONCE_PERIOD_MAX};
    use super::*;
    use crate::{Local, LocalConfig};

    /// An archive that executes only the writes of a test.
    struct Site {
        archiver: Archiver,
        _server: NatsServer,
        _directory: tempfile::TempDir,
    }

    impl Site {
        /// `None` if `nats-server` is missing.
        async fn new() -> Option<Self> {
            let directory = tempfile::tempdir().unwrap();
            let server = NatsServer::start(directory.path())?;
            let config = NatsConfig::new(vec![server.url.clone()], Name::new("archive").unwrap());
            // Longer than the longest time for which a nonce is issued.
            let deadline = Duration::from_mins(1);
            let nats = Arc::new(Nats::new(NatsConfig { keep_bytes: 1 << 20, deadline, ..config }).unwrap());
            let local = Arc::new(Local::open(LocalConfig::new(directory.path())).unwrap());
            let archiver = Archiver::prepare(&nats, local, directory.path()).unwrap();
            streams::ensure(&archiver.shared.connection).await.unwrap();
            Some(Self { archiver, _server: server, _directory: directory })
        }

        /// Executes a request of the north, which waits for `lock` for this time. Returns the
        /// response.
        async fn write(&self, request: ArchiveRequest, (lock, time): (impl Sized, Duration)) -> Value {
            let shared = &self.archiver.shared;
            let request = request.with_nonce(Some(shared.nonces.current()));
            let mut write = pin!(write(shared, "north", request.kind, &request));
            assert!(write.as_mut().now_or_never().is_none(), "the write does not wait");
            tokio::time::pause();
            tokio::time::advance(time).await;
            tokio::time::resume();
            drop(lock);
            serde_json::from_slice(&write.await.unwrap()).unwrap()
        }
    }

    /// Times for which a request waits in the archive, and whether it is executed then.
    const WAITS: [(Duration, bool); 2] =
        [(Duration::ZERO, true), (NONCE_PERIOD_MAX.saturating_mul(2), false)];

    #[track_caller]
    fn check(answer: &Value, is_stored: bool) {
        let found = (answer["number"].is_number(), answer["error"]["kind"] == "stale");
        assert_eq!(found, (is_stored, !is_stored), "{answer}");
    }

    #[tokio::test]
    async fn records_become_too_old_while_an_archive_waits_for_an_inbox() {
        let Some(site) = Site::new().await else { return };
        let inboxes = &site.archiver.shared.connection.inboxes;
        let count = u32::try_from(inboxes.available_permits()).unwrap();
        let record = Record::skip_marker(&Name::new("north").unwrap(), 1, 1);
        let request = ArchiveRequest::append(wire::record_text(&record).into());
        for (time, is_stored) in WAITS {
            let lock = inboxes.acquire_many(count).await.unwrap();
            check(&site.write(request.clone(), (lock, time)).await, is_stored);
        }
    }

    #[tokio::test]
    async fn a_registration_becomes_too_old_while_an_archive_reads_the_key() {
        let Some(site) = Site::new().await else { return };
        let registration = RegistrationJson { id: "a1".into(), ttl_s: 10, over: None };
        let entry = r#"{"host":"north","addresses":[],"version":"1","groups":[],"capabilities":[]}"#;
        let request = ArchiveRequest::register(registration, entry.into());
        let reads = &site.archiver.shared.connection.key_inboxes;
        let count = u32::try_from(reads.available_permits()).unwrap();
        for (time, is_stored) in WAITS {
            let lock = reads.acquire_many(count).await.unwrap();
            check(&site.write(request.clone(), (lock, time)).await, is_stored);
        }
    }
}
