//! The stream of records and the bucket of registrations: how they are made, and what they say of themselves.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use super::directory::TTL_MAX;
use super::link::{Link, Trouble, json, read};
use super::subject;
use crate::Error;
use crate::wire::{ENTRY_BYTES_MAX, RECORD_BYTES_MAX};

/// Where a stream begins and ends.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Extent {
    /// When it was made: the same name made anew counts from 1 again.
    pub(super) created: String,
    pub(super) state: State,
    config: Made,
}

/// How a stream was made.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
struct Made {
    num_replicas: u8,
}

/// A stream's configuration, as the server has it.
#[derive(Deserialize)]
struct Configured {
    config: serde_json::Map<String, serde_json::Value>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct State {
    pub(super) first_seq: u64,
    pub(super) last_seq: u64,
}

/// An answer of the JetStream API: what was asked for, or an error.
#[derive(Deserialize)]
#[serde(untagged)]
enum Reply<T> {
    Error { error: ApiError },
    Answer(T),
}

/// An error of the JetStream API.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ApiError {
    pub(super) code: u16,
    #[serde(default)]
    pub(super) err_code: u32,
    #[serde(default)]
    pub(super) description: String,
}

/// Sees to it that the stream and the bucket are there.
pub(super) async fn ensure(link: &Link) -> Result<(), Error> {
    if link.is_ready.load(Ordering::Relaxed) {
        return Ok(());
    }
    for (name, config) in [(RECORDS, records(link)), (ENTRIES, entries(link))] {
        match call::<Extent>(link, &format!("$JS.API.STREAM.INFO.{name}"), Bytes::new()).await? {
            Ok(extent) => {
                let (has, wanted) = (extent.config.num_replicas, link.config.replicas);
                if has < wanted && !link.is_told.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "the stream {name} has {has} replica(s), not the {wanted} that are configured: it was made \
                         with so many, and has to be made anew for more (docs/nats.md, step 5)"
                    );
                }
                if name == RECORDS {
                    link.found(&extent.created, 0);
                }
            }
            Err(error) if error.code == NOT_FOUND => create(link, name, &config).await?,
            Err(error) => {
                return Err(Error::Unavailable(format!("the stream {name}: {}", error.description)));
            }
        }
    }
    link.is_ready.store(true, Ordering::Relaxed);
    Ok(())
}

async fn create(link: &Link, name: &str, config: &serde_json::Value) -> Result<(), Error> {
    match call::<Extent>(link, &format!("$JS.API.STREAM.CREATE.{name}"), json(config)).await {
        // Another one made it in between, with settings of its own.
        Ok(Err(error)) if error.err_code == NAME_IN_USE => Ok(()),
        Ok(Err(error)) => Err(Error::Unavailable(format!("the stream {name}: {}", error.description))),
        Err(Trouble::Denied(_)) => Err(Error::Unavailable(format!(
            "there is no stream {name} yet, and this station may not make it: start the archive first"
        ))),
        Err(trouble) => Err(trouble.into()),
        Ok(Ok(extent)) => {
            if name == RECORDS {
                link.found(&extent.created, 0);
            }
            Ok(())
        }
    }
}

/// Has the servers republish nothing of what is stored, as older versions had it: nats-server (2.15.2) panics when it
/// republishes a message whose header block is shorter than its first line. Only an archive may do this.
pub(super) async fn stop_republishing(link: &Link) -> Result<(), Error> {
    for name in [RECORDS, ENTRIES] {
        let Ok(Configured { mut config }) =
            call(link, &format!("$JS.API.STREAM.INFO.{name}"), Bytes::new()).await?
        else {
            continue;
        };
        if config.remove("republish").is_none() {
            continue;
        }
        let request = format!("$JS.API.STREAM.UPDATE.{name}");
        if let Err(error) = call::<Configured>(link, &request, json(&config)).await? {
            return Err(Error::Unavailable(format!("the stream {name}: {}", error.description)));
        }
        tracing::info!("the stream {name} republishes nothing any more");
    }
    Ok(())
}

/// Whether this station's account has JetStream: whoever is in such a one can have the server obey its commands, past every
/// permission. In an account apart the records' extent goes by a name of its own (`deploy/nats/shared.txt`).
pub(super) async fn shares_account(link: &Link) -> Result<bool, Error> {
    ensure(link).await?;
    match link.request(format!("{}.{RECORDS}", subject::EXTENTS), None, Bytes::new()).await {
        Ok(_) => Ok(false),
        Err(Trouble::Denied(_)) => Ok(true),
        Err(Trouble::NotSent(_)) if link.connected().is_ok() => Ok(true),
        Err(trouble) => Err(trouble.into()),
    }
}

/// Where the stream `name` begins and ends now, as its leader knows it.
pub(super) async fn extent(link: &Link, name: &str) -> Result<Extent, Trouble> {
    call(link, &format!("$JS.API.STREAM.INFO.{name}"), Bytes::new()).await?.map_err(|error| {
        if error.code == NOT_FOUND {
            link.is_ready.store(false, Ordering::Relaxed);
        }
        Trouble::NoAnswer(format!("the stream {name}: {}", error.description))
    })
}

/// What is read from now on includes all that the stream holds now.
pub(super) async fn note_end(link: &Link) -> Result<(), Error> {
    ensure(link).await?;
    let extent = extent(link, RECORDS).await?;
    link.found(&extent.created, extent.state.last_seq);
    Ok(())
}

async fn call<T: serde::de::DeserializeOwned>(
    link: &Link,
    subject: &str,
    payload: Bytes,
) -> Result<Result<T, ApiError>, Trouble> {
    let message = link.request(subject.into(), None, payload).await?;
    Ok(match read(&message)? {
        Reply::Answer(answer) => Ok(answer),
        Reply::Error { error } => Err(error),
    })
}

fn records(link: &Link) -> serde_json::Value {
    let config = &link.config;
    json!({
        "name": RECORDS,
        "subjects": [format!("{}.*.*.*", subject::RECORDS)],
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
        // What is stored leaves by age and size alone, whoever asks.
        "deny_delete": true,
        "deny_purge": true,
        "allow_rollup_hdrs": false,
    })
}

fn entries(link: &Link) -> serde_json::Value {
    json!({
        "name": ENTRIES,
        "subjects": [format!("{}.*", subject::ENTRIES)],
        "retention": "limits",
        "storage": "file",
        // Whatever fills it is pushed out by those that are renewed.
        "discard": "old",
        "num_replicas": link.config.replicas,
        "max_msgs_per_subject": 1,
        "max_msgs": STATIONS_MAX,
        "max_bytes": DIRECTORY_BYTES_MAX,
        "max_age": nanoseconds(TTL_MAX),
        "max_consumers": -1,
        "max_msg_size": ENTRY_BYTES_MAX + HEADERS_BYTES_MAX,
        "allow_direct": true,
        "allow_msg_ttl": true,
        // Markers of expiry would need roll-ups, and with those any station could empty the bucket.
        "allow_rollup_hdrs": false,
        "deny_delete": true,
        "deny_purge": true,
    })
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(i64::MAX.cast_unsigned())
}

/// The stream of records.
pub(super) const RECORDS: &str = "BAROGRAPH";

/// The stream behind the bucket `barograph_dir`.
pub(super) const ENTRIES: &str = "KV_barograph_dir";

/// Several times the stations of the largest mesh thought of, so that those that left and tombstones fit too.
const STATIONS_MAX: u64 = 1 << 16;

/// A kibibyte for each of them: entries are shorter.
const DIRECTORY_BYTES_MAX: u64 = STATIONS_MAX << 10;

/// No such stream.
const NOT_FOUND: u16 = 404;

/// The stream is there with other settings (`JSStreamNameExistErr`).
const NAME_IN_USE: u32 = 10058;

/// Headers are a message's identity and what a reader may add.
const HEADERS_BYTES_MAX: usize = 4 << 10;

/// The server's own default. A longer one costs it memory; repetitions that come later are recognised by
/// the archive.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);
