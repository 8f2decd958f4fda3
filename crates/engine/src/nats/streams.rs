//! The stream of records and the bucket of registrations: their creation, configuration and state.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use super::archive_request::ArchiveRequest;
use super::connection::{NatsConnection, RequestError, json, read};
use super::directory::TTL_MAX;
use super::{request_archive, subject};
use crate::EngineError;

/// Creation, extent and configuration of a stream.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Extent {
    /// When the stream was created. The numbers of a recreated stream start from 1 again.
    pub(super) created: String,
    pub(super) state: State,
    config: StreamSettings,
}

/// Settings with which a stream was created.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
struct StreamSettings {
    num_replicas: u8,
}

#[derive(Deserialize)]
struct Configured {
    config: serde_json::Map<String, serde_json::Value>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct State {
    pub(super) first_seq: u64,
    pub(super) last_seq: u64,
}

/// A response of the JetStream API: the result, or an error.
#[derive(Deserialize)]
#[serde(untagged)]
enum Reply<T> {
    Error { error: ApiError },
    Answer(T),
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct ApiError {
    pub(super) code: u16,
    #[serde(default)]
    pub(super) err_code: u32,
    #[serde(default)]
    pub(super) description: String,
}

/// Creates the stream and the bucket if they are missing. A member has no permission for this: it
/// detects at its next write that the stream is missing.
pub(super) async fn ensure(connection: &NatsConnection) -> Result<(), EngineError> {
    if connection.is_ready.load(Ordering::Relaxed) || connection.is_member.load(Ordering::Relaxed) {
        return Ok(());
    }
    for (name, config) in [(RECORDS, records(connection)), (ENTRIES, entries(connection))] {
        let found =
            match call::<Extent>(connection, &format!("$JS.API.STREAM.INFO.{name}"), Bytes::new()).await {
                Err(RequestError::Denied(_)) => {
                    connection.is_member.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                found => found?,
            };
        match found {
            Ok(extent) => {
                let (has, wanted) = (extent.config.num_replicas, connection.config.replicas);
                if has < wanted && !connection.has_warned_of_replicas.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "the stream {name} has {has} replica(s), not the {wanted} configured; recreate it to change \
                         that (docs/guide/nats.md, \"Three servers\")"
                    );
                }
                if name == RECORDS {
                    connection.found(&extent.created);
                }
            }
            Err(error) if error.code == NOT_FOUND => create(connection, name, &config).await?,
            Err(error) => {
                return Err(EngineError::Unavailable(format!("the stream {name}: {}", error.description)));
            }
        }
    }
    connection.is_ready.store(true, Ordering::Relaxed);
    Ok(())
}

/// Checks the rights of this engine again after the servers denied a write. Returns whether the
/// engine has the rights of a member now: the servers' configuration may have changed.
pub(super) async fn became_member(connection: &NatsConnection) -> bool {
    connection.is_ready.store(false, Ordering::Relaxed);
    ensure(connection).await.is_ok() && connection.is_member.load(Ordering::Relaxed)
}

async fn create(
    connection: &NatsConnection,
    name: &str,
    config: &serde_json::Value,
) -> Result<(), EngineError> {
    match call::<Extent>(connection, &format!("$JS.API.STREAM.CREATE.{name}"), json(config)).await {
        // A different client created the stream in the meantime, with different settings.
        Ok(Err(error)) if error.err_code == NAME_IN_USE => Ok(()),
        Ok(Err(error)) => Err(EngineError::Unavailable(format!("the stream {name}: {}", error.description))),
        Err(RequestError::Denied(_)) => Err(EngineError::Unavailable(format!(
            "the stream {name} does not exist, and this station may not create it; start the archive first"
        ))),
        Err(error) => Err(error.into()),
        Ok(Ok(extent)) => {
            if name == RECORDS {
                connection.found(&extent.created);
            }
            Ok(())
        }
    }
}

/// Applies the current bounds to streams that an older version created. Only an archive may do
/// this.
///
/// # Errors
/// [`EngineError::Denied`] if a stream has other bounds, and the servers refuse the change or do
/// not permit it; otherwise why the bounds could not be read.
pub(super) async fn update(connection: &NatsConnection) -> Result<(), EngineError> {
    for (name, wanted) in [(RECORDS, records(connection)), (ENTRIES, entries(connection))] {
        let Ok(Configured { mut config }) =
            call(connection, &format!("$JS.API.STREAM.INFO.{name}"), Bytes::new()).await?
        else {
            continue;
        };
        let changed = bound(&mut config, &wanted);
        if changed.is_empty() {
            continue;
        }
        let request = format!("$JS.API.STREAM.UPDATE.{name}");
        if let Err(error) = call::<Configured>(connection, &request, json(&config)).await? {
            return Err(EngineError::Denied(format!("the stream {name}: {}", error.description)));
        }
        tracing::info!("the stream {name} has new limits: {}", changed.join(", "));
    }
    Ok(())
}

/// Sets the subjects of a stream's configuration to those of `wanted`, and each bound to the bound
/// in `wanted` if the bound in `wanted` is tighter. Returns the names of the changed settings.
///
/// This function also removes republishing: nats-server (2.15.2) panics when it republishes a
/// message with a header block shorter than its first line.
fn bound(
    config: &mut serde_json::Map<String, serde_json::Value>,
    wanted: &serde_json::Value,
) -> Vec<&'static str> {
    let mut changed = Vec::new();
    if config.remove("republish").is_some() {
        changed.push("republish");
    }
    if config.get("subjects") != wanted.get("subjects") {
        config.insert("subjects".into(), wanted["subjects"].clone());
        changed.push("subjects");
    }
    for key in ["max_msg_size", "duplicate_window"] {
        // -1 means no bound.
        let has = config.get(key).and_then(serde_json::Value::as_u64).unwrap_or(u64::MAX);
        if wanted[key].as_u64().is_some_and(|most| most < has) {
            config.insert(key.into(), wanted[key].clone());
            changed.push(key);
        }
    }
    changed
}

/// Rights of this engine in the servers' configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grants {
    /// No access to the streams' interface.
    Current,
    /// Access to the streams' extent, as in versions that also permitted unlimited reads.
    Older,
    /// The engine belongs to the account of the streams. A server executes JetStream commands
    /// within this account without regard to permissions.
    Shared,
}

/// Returns the rights of this engine. An archive is in the account of the streams. In an older
/// configuration, members have a separate account, with a special subject to read the extent of the
/// stream of records.
pub(super) async fn grants(connection: &NatsConnection) -> Result<Grants, EngineError> {
    ensure(connection).await?;
    if connection.is_member.load(Ordering::Relaxed) {
        return Ok(Grants::Current);
    }
    match connection.request(format!("{}.{RECORDS}", subject::EXTENTS), None, Bytes::new()).await {
        Ok(_) => Ok(Grants::Older),
        Err(RequestError::Denied(_)) => Ok(Grants::Shared),
        Err(RequestError::NotSent(_)) if connection.connected().is_ok() => Ok(Grants::Shared),
        Err(error) => Err(error.into()),
    }
}

/// Makes later reads include all records that the stream has now. A member does nothing here,
/// because the archive ensures this for its requests. An archive of an older version does not
/// ensure this; then servers with an older configuration permit the engine to read the extent.
pub(super) async fn acknowledge_end(connection: &NatsConnection) -> Result<(), EngineError> {
    ensure(connection).await?;
    if connection.is_member.load(Ordering::Relaxed) {
        return Ok(());
    }
    match extent(connection, RECORDS).await {
        Ok(extent) => {
            connection.found(&extent.created);
            connection.acknowledge(extent.state.last_seq);
            Ok(())
        }
        // The engine had the rights of an archive, and now has the rights of a member.
        Err(RequestError::Denied(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the time of the bucket's creation. A member requests this time from an archive, and an
/// archive from the servers. `None` if no response arrives.
pub(super) async fn bucket(connection: &NatsConnection) -> Option<String> {
    let found = async {
        if connection.is_member.load(Ordering::Relaxed) {
            request_archive::request(connection, &ArchiveRequest::bucket())
                .await
                .ok()
                .and_then(request_archive::ArchiveResponse::into_bucket)
        } else {
            extent(connection, ENTRIES).await.ok().map(|extent| extent.created)
        }
    };
    // Without a response, a watch continues with what it has read.
    timeout(BUCKET_WAIT, found).await.ok().flatten()
}

/// Extent of the stream `name` now, as its leader reports it.
pub(super) async fn extent(connection: &NatsConnection, name: &str) -> Result<Extent, RequestError> {
    let found = call(connection, &format!("$JS.API.STREAM.INFO.{name}"), Bytes::new()).await;
    // The servers' configuration may have changed.
    connection.is_member.store(matches!(found, Err(RequestError::Denied(_))), Ordering::Relaxed);
    found?.map_err(|error| {
        if error.code == NOT_FOUND {
            connection.is_ready.store(false, Ordering::Relaxed);
        }
        RequestError::NoAnswer(format!("the stream {name}: {}", error.description))
    })
}

async fn call<T: serde::de::DeserializeOwned>(
    connection: &NatsConnection,
    subject: &str,
    payload: Bytes,
) -> Result<Result<T, ApiError>, RequestError> {
    let message = connection.request(subject.into(), None, payload).await?;
    Ok(match read(&message)? {
        Reply::Answer(answer) => Ok(answer),
        Reply::Error { error } => Err(error),
    })
}

fn records(connection: &NatsConnection) -> serde_json::Value {
    let config = &connection.config;
    json!({
        "name": RECORDS,
        "subjects": [format!("{}.*.*.*", subject::RECORDS), format!("{}.*", subject::KEPT)],
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "num_replicas": config.replicas,
        "max_age": nanoseconds(config.keep),
        "max_bytes": config.keep_bytes,
        "max_consumers": -1,
        "max_msg_size": RECORD_BYTES_MAX + HEADERS_BYTES_MAX,
        "duplicate_window": nanoseconds(DUPLICATE_WINDOW),
        "allow_direct": true,
        // Stored messages leave only by age and size, not at the request of a client.
        "deny_delete": true,
        "deny_purge": true,
        "allow_rollup_hdrs": false,
    })
}

fn entries(connection: &NatsConnection) -> serde_json::Value {
    json!({
        "name": ENTRIES,
        // Do not use the subject `$KV.barograph_dir.*`: the import permissions of routes deny every
        // key, so they would also deny a subscription to that subject (deploy/nats/n1.conf).
        "subjects": [ENTRIES_SUBJECT],
        "retention": "limits",
        "storage": "file",
        // If foreign messages fill the bucket, renewals still succeed: the oldest messages are
        // removed.
        "discard": "old",
        "num_replicas": connection.config.replicas,
        "max_msgs_per_subject": 1,
        "max_msgs": STATIONS_MAX,
        "max_bytes": DIRECTORY_BYTES_MAX,
        "max_age": nanoseconds(TTL_MAX),
        "max_consumers": -1,
        "max_msg_size": ENTRY_BYTES_MAX + HEADERS_BYTES_MAX,
        "duplicate_window": nanoseconds(NO_DUPLICATE_WINDOW),
        "allow_direct": true,
        "allow_msg_ttl": true,
        // Do not enable markers of expiry: the markers need roll-ups, and with roll-ups any station
        // could empty the bucket.
        "allow_rollup_hdrs": false,
        "deny_delete": true,
        "deny_purge": true,
    })
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(i64::MAX.cast_unsigned())
}

/// Name of the stream of records.
pub(super) const RECORDS: &str = "BAROGRAPH";

/// Name of the stream behind the bucket `barograph_dir`.
pub(super) const ENTRIES: &str = "KV_barograph_dir";

/// Subjects of the bucket's stream. Permissions let only archives publish to the bucket's keys.
const ENTRIES_SUBJECT: &str = "$KV.>";

/// Largest number of keys: several times the number of stations in the largest intended mesh, so
/// that tombstones fit, too.
const STATIONS_MAX: u64 = 1 << 16;

/// Largest size of the bucket, in bytes: 1 KiB for each key. A usual entry is shorter.
const DIRECTORY_BYTES_MAX: u64 = STATIONS_MAX << 10;

const NOT_FOUND: u16 = 404;

/// Code of the error that the stream exists with different settings (`JSStreamNameExistErr`).
const NAME_IN_USE: u32 = 10058;

/// Longest text of a record in the stream, in bytes: a detail of 4 KiB and three names of 255
/// bytes, each byte escaped as two. Control characters take more bytes, and no station writes
/// control characters.
pub(super) const RECORD_BYTES_MAX: usize = 12 << 10;

/// Longest text of an entry in the bucket, in bytes. The entry of a station has some hundred bytes,
/// or 1 KiB with 16 addresses. Without this limit, members could make servers store traces of
/// messages, of up to 15 KiB each, in the bucket. About 4500 traces fill the bucket. At 400 traces
/// a second, entries of other stations disappeared before their renewal (nats-server 2.12.15).
pub(super) const ENTRY_BYTES_MAX: usize = 2 << 10;

/// Largest size of the headers of a message, in bytes. The headers are a message identifier (a name
/// of 255 bytes as a token, a number and 22 letters), or the identifier of a registration.
const HEADERS_BYTES_MAX: usize = 1 << 10;

/// Duplicate window of the bucket: the shortest that a server accepts. A server keeps message
/// identifiers in memory for this time, and entries have no identifiers.
const NO_DUPLICATE_WINDOW: Duration = Duration::from_millis(100);

/// Longest wait for the creation time of the bucket: shorter than the shortest lease, and longer
/// than a response takes.
const BUCKET_WAIT: Duration = Duration::from_millis(500);

/// Duplicate window of the stream of records: the server's default. A longer window would cost the
/// server memory; the archive detects later repetitions.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);
