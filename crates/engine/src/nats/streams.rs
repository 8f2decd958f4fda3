//! The stream of records and the bucket of registrations: how they are made, and what they say of themselves.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use super::directory::TTL_MAX;
use super::link::{Link, Trouble, json, read};
use super::question::Question;
use super::{answers, subject};
use crate::Error;

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

/// Sees to it that the stream and the bucket are there. A member cannot, and finds out when it writes.
pub(super) async fn ensure(link: &Link) -> Result<(), Error> {
    if link.is_ready.load(Ordering::Relaxed) || link.is_member.load(Ordering::Relaxed) {
        return Ok(());
    }
    for (name, config) in [(RECORDS, records(link)), (ENTRIES, entries(link))] {
        let found = match call::<Extent>(link, &format!("$JS.API.STREAM.INFO.{name}"), Bytes::new()).await {
            Err(Trouble::Denied(_)) => {
                link.is_member.store(true, Ordering::Relaxed);
                return Ok(());
            }
            found => found?,
        };
        match found {
            Ok(extent) => {
                let (has, wanted) = (extent.config.num_replicas, link.config.replicas);
                if has < wanted && !link.is_told.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "the stream {name} has {has} replica(s), not the {wanted} that are configured: it was made \
                         with so many, and has to be made anew for more (docs/nats.md, step 5)"
                    );
                }
                if name == RECORDS {
                    link.found(&extent.created);
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
                link.found(&extent.created);
            }
            Ok(())
        }
    }
}

/// Gives the streams that an older version made the bounds that they are made with now. Only an archive may do this.
pub(super) async fn update(link: &Link) -> Result<(), Error> {
    for (name, wanted) in [(RECORDS, records(link)), (ENTRIES, entries(link))] {
        let Ok(Configured { mut config }) =
            call(link, &format!("$JS.API.STREAM.INFO.{name}"), Bytes::new()).await?
        else {
            continue;
        };
        let changed = bound(&mut config, &wanted);
        if changed.is_empty() {
            continue;
        }
        let request = format!("$JS.API.STREAM.UPDATE.{name}");
        if let Err(error) = call::<Configured>(link, &request, json(&config)).await? {
            return Err(Error::Unavailable(format!("the stream {name}: {}", error.description)));
        }
        tracing::info!("the stream {name} has new bounds: {}", changed.join(", "));
    }
    Ok(())
}

/// Gives a stream's configuration the subjects of `wanted`, and its bounds where they are tighter; returns
/// the names of the settings that changed.
///
/// It republishes nothing: nats-server (2.15.2) panics when it republishes a message whose header block is shorter than its
/// first line.
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
        // -1 = no bound.
        let has = config.get(key).and_then(serde_json::Value::as_u64).unwrap_or(u64::MAX);
        if wanted[key].as_u64().is_some_and(|most| most < has) {
            config.insert(key.into(), wanted[key].clone());
            changed.push(key);
        }
    }
    changed
}

/// What the servers' configuration allows this engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grants {
    /// Nothing of the streams' interface.
    Current,
    /// The streams' extent, as in versions that also allowed unbounded reads.
    Older,
    /// The account of the streams: the server obeys commands of its members, past every permission.
    Shared,
}

/// What this engine may do; an archive is in the account of the streams. In an account apart the records' extent went by
/// a name of its own.
pub(super) async fn grants(link: &Link) -> Result<Grants, Error> {
    ensure(link).await?;
    if link.is_member.load(Ordering::Relaxed) {
        return Ok(Grants::Current);
    }
    match link.request(format!("{}.{RECORDS}", subject::EXTENTS), None, Bytes::new()).await {
        Ok(_) => Ok(Grants::Older),
        Err(Trouble::Denied(_)) => Ok(Grants::Shared),
        Err(Trouble::NotSent(_)) if link.connected().is_ok() => Ok(Grants::Shared),
        Err(trouble) => Err(trouble.into()),
    }
}

/// What is read from now on includes all that the stream holds now. For a member an archive sees to that; one of an older
/// version does not, and with that the servers still let this engine ask.
pub(super) async fn note_end(link: &Link) -> Result<(), Error> {
    ensure(link).await?;
    if link.is_member.load(Ordering::Relaxed) {
        return Ok(());
    }
    match extent(link, RECORDS).await {
        Ok(extent) => {
            link.found(&extent.created);
            link.acknowledge(extent.state.last_seq);
            Ok(())
        }
        // It has become a member.
        Err(Trouble::Denied(_)) => Ok(()),
        Err(trouble) => Err(trouble.into()),
    }
}

/// When the bucket was made: by an archive for a member, else by the servers. `None` = not known now.
pub(super) async fn bucket(link: &Link) -> Option<String> {
    let found = async {
        if link.is_member.load(Ordering::Relaxed) {
            answers::ask(link, &Question::bucket()).await.ok().and_then(answers::Answer::into_bucket)
        } else {
            extent(link, ENTRIES).await.ok().map(|extent| extent.created)
        }
    };
    // Who watches goes on with what it knows.
    timeout(BUCKET_WAIT, found).await.ok().flatten()
}

/// Where the stream `name` begins and ends now, as its leader knows it.
pub(super) async fn extent(link: &Link, name: &str) -> Result<Extent, Trouble> {
    let found = call(link, &format!("$JS.API.STREAM.INFO.{name}"), Bytes::new()).await;
    // The servers' configuration may have changed.
    link.is_member.store(matches!(found, Err(Trouble::Denied(_))), Ordering::Relaxed);
    found?.map_err(|error| {
        if error.code == NOT_FOUND {
            link.is_ready.store(false, Ordering::Relaxed);
        }
        Trouble::NoAnswer(format!("the stream {name}: {}", error.description))
    })
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
        // What is stored leaves by age and size alone, whoever asks.
        "deny_delete": true,
        "deny_purge": true,
        "allow_rollup_hdrs": false,
    })
}

fn entries(link: &Link) -> serde_json::Value {
    json!({
        "name": ENTRIES,
        // Not `$KV.barograph_dir.*`: the import permissions of routes deny every key, and would deny that
        // subscription too (deploy/nats/n1.conf).
        "subjects": [ENTRIES_SUBJECT],
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
        "duplicate_window": nanoseconds(NO_DUPLICATE_WINDOW),
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

/// What the bucket's stream takes: stations may publish one key each, and archives all of the bucket's.
const ENTRIES_SUBJECT: &str = "$KV.>";

/// Several times the stations of the largest mesh thought of, so that those that left and tombstones fit too.
const STATIONS_MAX: u64 = 1 << 16;

/// A kibibyte for each of them: entries are shorter.
const DIRECTORY_BYTES_MAX: u64 = STATIONS_MAX << 10;

const NOT_FOUND: u16 = 404;

/// The stream is there with other settings (`JSStreamNameExistErr`).
const NAME_IN_USE: u32 = 10058;

/// The longest text of a record in the stream, in bytes: a detail of 4 KiB and three names of 255 bytes, if every byte of
/// them is escaped as two. Only control characters take more, and no station writes those.
pub(super) const RECORD_BYTES_MAX: usize = 12 << 10;

/// The longest text of an entry in the bucket, in bytes: those of stations have some hundreds, or 1 KiB with 16 addresses.
/// Members can have servers store traces of messages in the bucket, of up to 15 KiB: 1400 of those a second would push
/// out entries before they are renewed (nats-server 2.12.15).
pub(super) const ENTRY_BYTES_MAX: usize = 2 << 10;

/// A message's identity: a name of 255 bytes as a token, a number and 22 letters; or a registration.
const HEADERS_BYTES_MAX: usize = 1 << 10;

/// The shortest that a server takes. It keeps every message id in memory for so long, and an entry has none.
const NO_DUPLICATE_WINDOW: Duration = Duration::from_millis(100);

/// Shorter than the shortest lease, and longer than an answer takes.
const BUCKET_WAIT: Duration = Duration::from_millis(500);

/// The server's own default. A longer one costs it memory; repetitions that come later are recognised by
/// the archive.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);
