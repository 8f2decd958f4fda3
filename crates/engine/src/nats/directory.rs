//! Registrations: each station has one key, and the servers drop an entry that is not renewed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::{HeaderMap, HeaderName};
use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::connection::{NatsConnection, RequestError};
use super::directory_writes::DirectoryWrites;
use super::key_write::{self, KeyWrite, WriteResult};
use super::publish::Acknowledgement;
use super::stream_read::{self, Stored};
use super::streams::{self, ENTRY_BYTES_MAX};
use super::{subject, write_request};
use crate::{EngineError, Entry, HostId, Lease, LeaseState, wire};

/// Writes the entry, and starts a task that renews it.
pub(super) async fn register(
    connection: Arc<NatsConnection>,
    entry: &Entry,
    ttl: Duration,
) -> Result<Box<dyn Lease>, EngineError> {
    let text = entry_text(entry, ttl)?;
    let ttl_s = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    let mut registration = Registration {
        host: entry.host.clone(),
        id: new_id(&connection),
        text,
        ttl_s,
        seq: 0,
        renewed_at: Arc::new(Mutex::new(Some(Instant::now()))),
        connection,
    };
    registration.begin().await?;
    let (stop, stopped) = oneshot::channel();
    let (connection, renewed_at) =
        (Arc::clone(&registration.connection), Arc::clone(&registration.renewed_at));
    let task = Arc::clone(&connection.renewal);
    let renewed = Renewed::new(&connection);
    connection.spawn(async move {
        let _renewed = renewed;
        task.watch_until_done(registration.renew(stopped)).await;
    });
    Ok(Box::new(NatsLease { ttl: Duration::from_secs(ttl_s), renewed_at, _stop: stop }))
}

/// Checks an entry and its lease, and returns the entry as JSON.
pub(super) fn entry_text(entry: &Entry, ttl: Duration) -> Result<Bytes, EngineError> {
    entry.check()?;
    if !(TTL_MIN..=LEASE_MAX).contains(&ttl) {
        return Err(EngineError::Invalid(format!("a lease lasts {TTL_MIN:?} to {LEASE_MAX:?}, not {ttl:?}")));
    }
    let text = wire::entry_text(entry);
    if text.len() > ENTRY_BYTES_MAX {
        let bytes = text.len();
        return Err(EngineError::Invalid(format!(
            "the entry has {bytes} bytes as JSON, more than {ENTRY_BYTES_MAX}"
        )));
    }
    Ok(text.into())
}

/// Writes the removal of `host` to a key that only archives may write, then the mark of this
/// removal over the entry of `host`. If the station still renews its registration, that
/// registration ends.
///
/// A station is removed while its own key has the mark of its removal. The mark alone proves
/// nothing, because with lists of older versions the station can write it. The removal alone proves
/// nothing either: when the station registers again, its entry replaces the mark. So if this
/// function ends after the first write, the station is not removed, and the caller must repeat the
/// removal.
///
/// Two archives may remove a station at the same time. The keys may then have the removal of one
/// archive and the mark of the other archive, so readers do not compare the identifiers of the two
/// messages. Readers of earlier versions require that the identifiers are equal.
pub(super) async fn remove(connection: &NatsConnection, host: &HostId) -> Result<(), EngineError> {
    streams::ensure(connection).await?;
    let mut headers = HeaderMap::new();
    headers.insert(REGISTRATION, new_id(connection).as_str());
    headers.insert(OPERATION, PURGED);
    headers.insert(TTL, format!("{}s", TTL_MAX.as_secs()));
    for key in [removal_key(host), key(host)] {
        let answer = connection.request(key, Some(headers.clone()), Bytes::new()).await?;
        let Acknowledgement { error, .. } = Acknowledgement::read(&answer)?;
        if let Some(error) = error {
            return Err(EngineError::Unavailable(error.description));
        }
    }
    Ok(())
}

pub(super) fn key(host: &HostId) -> String {
    format!("{}.{}", subject::ENTRIES, subject::token(host.as_str()))
}

/// Key of the removal of `host`. This key differs from the key of the entry: with lists of older
/// versions a station may write to the key of its entry, so the station itself could have written a
/// removal there. No station has a token that begins like this key.
fn removal_key(host: &HostId) -> String {
    format!("{}.{REMOVALS}{}", subject::ENTRIES, subject::token(host.as_str()))
}

fn new_id(connection: &NatsConnection) -> String {
    connection.client.new_inbox().rsplit('.').next().unwrap_or_default().to_owned()
}

/// Registration of a station under its key.
struct Registration {
    connection: Arc<NatsConnection>,
    host: HostId,
    /// Distinguishes this registration from others of the same host.
    id: String,
    text: Bytes,
    ttl_s: u64,
    /// Sequence number of the entry in the bucket. A write by another registration changes this
    /// number.
    seq: u64,
    renewed_at: RenewedAt,
}

/// Guard that counts one registration of this engine while that registration is renewed.
struct Renewed(Arc<NatsConnection>);

impl Renewed {
    fn new(connection: &Arc<NatsConnection>) -> Self {
        connection.writes.send_modify(DirectoryWrites::begun);
        Self(Arc::clone(connection))
    }
}

impl Drop for Renewed {
    fn drop(&mut self) {
        self.0.writes.send_modify(DirectoryWrites::ended);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Condition {
    /// Sequence number of the message to replace; `None` to replace any message
    /// ([`KeyWrite::over`]).
    over: Option<u64>,
    /// Number of consecutive writes that were refused because of the condition while the key had
    /// this registration.
    refusals: u32,
}

impl Condition {
    fn over(seq: u64) -> Self {
        Self { over: Some(seq), refusals: 0 }
    }

    /// Records that the condition was refused although the key has this registration, at sequence
    /// number `seq`.
    ///
    /// Replicas also refuse a conditional write while any other write of this key is pending.
    /// So after [`REFUSALS_MAX`] refusals, the condition is omitted. A write of an archive's own
    /// entry is then never refused for this reason. For a member, an archive then uses the number
    /// that the archive itself reads.
    fn refused(&mut self, seq: u64) {
        self.refusals += 1;
        self.over = (self.refusals < REFUSALS_MAX).then_some(seq);
    }
}

/// When the newest stored renewal began; `None` if another registration replaced this registration.
type RenewedAt = Arc<Mutex<Option<Instant>>>;

/// Content of a key.
enum KeyContent {
    /// The entry expired while no server could be reached.
    Empty,
    /// The entry of this registration, at this sequence number.
    Own(u64),
    /// The deletion of this registration, at this sequence number.
    OwnDeletion(u64),
    /// A message that is not a registration. No client with permission for this key wrote this
    /// message, so it is overwritten. If a different registration is written just before, the write
    /// of an archive's own registration overwrites it, and its holder detects the loss at its next
    /// renewal. An archive refuses that write for a member.
    Invalid,
    /// A different registration, or its deletion.
    Other,
}

impl Registration {
    /// Writes the entry over any content of the key. The first writes have a condition: an archive
    /// that was suspended may execute a write late, and must not replace a later registration.
    async fn begin(&mut self) -> Result<(), EngineError> {
        let began = Instant::now();
        if let Err(error) = streams::ensure(&self.connection).await {
            self.failed(began, &error);
            return Err(error);
        }
        let mut refusals = 0;
        loop {
            let over = if refusals < REFUSALS_MAX { Some(self.newest_seq().await) } else { None };
            match self.put(over).await? {
                WriteResult::Stored(seq) => {
                    self.seq = seq;
                    return Ok(());
                }
                WriteResult::Conflict if over.is_some() => refusals += 1,
                WriteResult::Conflict => {
                    return Err(EngineError::Unavailable("the bucket refused a registration".into()));
                }
            }
            sleep(RETRY_SOON).await;
        }
    }

    /// Sequence number of the newest message at the key; 0 if there is none, or if the key cannot
    /// be read. A write that requires an empty key is then refused if the key has a message.
    async fn newest_seq(&self) -> u64 {
        let newest = timeout(NEWEST_WITHIN, key_write::newest(&self.connection, &self.host)).await;
        newest.ok().and_then(Result::ok).unwrap_or(0)
    }

    /// Renews the registration until the registration is stopped or replaced. When the registration
    /// is stopped, deletes the entry.
    async fn renew(mut self, mut stopped: oneshot::Receiver<()>) {
        let third = (Duration::from_secs(self.ttl_s) / 3).min(RENEWED_AFTER);
        let mut wait = third;
        let mut condition = Condition::over(self.seq);
        let connection = Arc::clone(&self.connection);
        loop {
            tokio::select! {
                // Dropping the lease drops the sender, which also ends this wait.
                _ = &mut stopped => return self.deregister().await,
                () = sleep(wait) => {}
                () = connection.renew_now.notified() => {}
            }
            wait = match self.put(condition.over).await {
                Ok(WriteResult::Stored(seq)) => {
                    self.seq = seq;
                    condition = Condition::over(seq);
                    third
                }
                Ok(WriteResult::Conflict) => match self.read_key().await {
                    Ok(KeyContent::Empty) => {
                        condition.over = Some(0);
                        RETRY_SOON
                    }
                    Ok(KeyContent::Own(seq) | KeyContent::OwnDeletion(seq)) => {
                        condition.refused(seq);
                        RETRY_SOON
                    }
                    // Write without a condition: the station that wrote this message could write so
                    // fast that the condition never has the newest number. For a member, an archive
                    // uses the number that it reads.
                    Ok(KeyContent::Invalid) => {
                        condition.over = None;
                        RETRY_SOON
                    }
                    Ok(KeyContent::Other) => {
                        self.set_renewed_at(None);
                        return tracing::info!(host = %self.host, "another registration replaced this one");
                    }
                    Err(_) => RETRY.min(third),
                },
                Err(_) => {
                    // If the bucket is gone, creates it again, provided that this engine has the
                    // permission. Sends nothing if the bucket is known to exist.
                    let _ = streams::ensure(&self.connection).await;
                    // Read the key first: an unconditional write would end a different registration
                    // that was written meanwhile.
                    condition = Condition::over(condition.over.unwrap_or(self.seq));
                    RETRY.min(third)
                }
            };
        }
    }

    fn set_renewed_at(&self, since: Option<Instant>) {
        *self.renewed_at.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// Reads the content of the key after a conditional write was refused.
    async fn read_key(&self) -> Result<KeyContent, RequestError> {
        let range = stream_read::read_key(&self.connection, &key(&self.host)).await?;
        Ok(match range.messages.into_iter().next() {
            None if range.lost.is_empty() => KeyContent::Empty,
            None => KeyContent::Invalid,
            Some(stored) => match Registered::read(&stored) {
                None => KeyContent::Invalid,
                Some(Registered { id, content, .. }) if id == self.id => match content {
                    Content::Entry(_) => KeyContent::Own(stored.seq),
                    Content::Operation(_) => KeyContent::OwnDeletion(stored.seq),
                },
                Some(_) => KeyContent::Other,
            },
        })
    }

    /// Deletes the entry. If the deletion fails, the entry expires by itself.
    async fn deregister(&self) {
        let mut condition = Condition::over(self.seq);
        while let Ok(WriteResult::Conflict) = self.write(None, TOMBSTONE_S, condition.over).await {
            // The refusal may be due to a different write with a condition on this key, as in
            // `renew`, or to an earlier attempt of this deletion.
            match self.read_key().await {
                Ok(KeyContent::Own(seq)) if condition.over.is_some() => condition.refused(seq),
                _ => return,
            }
        }
    }

    /// Writes the entry, and records whether the directory accepted it.
    async fn put(&self, over: Option<u64>) -> Result<WriteResult, EngineError> {
        let began = Instant::now();
        let put = self.write(Some(&self.text), self.ttl_s, over).await;
        match &put {
            Ok(WriteResult::Stored(_)) => {
                self.set_renewed_at(Some(began));
                let ttl = Duration::from_secs(self.ttl_s);
                self.connection.writes.send_modify(|writes| writes.stored(began, ttl));
            }
            Ok(WriteResult::Conflict) => {}
            Err(error) => self.failed(began, error),
        }
        put
    }

    /// Records that a write failed. A refusal of this station means nothing for other stations.
    fn failed(&self, began: Instant, error: &EngineError) {
        if let EngineError::Unavailable(why) | EngineError::Unknown(why) = error {
            self.connection.writes.send_modify(|writes| writes.failed(began, why.clone()));
        }
    }

    /// Writes the entry `text`, or deletes the entry. A member writes through an archive.
    async fn write(
        &self,
        text: Option<&Bytes>,
        ttl_s: u64,
        over: Option<u64>,
    ) -> Result<WriteResult, EngineError> {
        let connection = &*self.connection;
        let write = KeyWrite { id: &self.id, ttl_s, over, text: text.cloned() };
        if !connection.is_member.load(Ordering::Relaxed) {
            match key_write::write(connection, &self.host, &write).await {
                Err(RequestError::Denied(_)) if streams::became_member(connection).await => {}
                written => return Ok(written?),
            }
        }
        if self.host != connection.config.host {
            let (host, own) = (&self.host, &connection.config.host);
            return Err(EngineError::Denied(format!("{own} may not register {host}")));
        }
        match write_request::register(connection, &write).await? {
            Some(written) => Ok(written),
            // A denial means that the archive and this station are connected to servers with
            // different configurations.
            None => match key_write::write(connection, &self.host, &write).await {
                Err(RequestError::Denied(why)) => Err(EngineError::Unknown(why)),
                written => Ok(written?),
            },
        }
    }
}

/// A message about a station, from the station's own key or from the key of its removal.
#[derive(Clone, Debug)]
pub(super) struct Registered {
    pub(super) host: HostId,
    /// Identifier of the registration or the removal.
    pub(super) id: String,
    /// Time for which the server keeps the message unless it is renewed.
    pub(super) ttl: Duration,
    pub(super) content: Content,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    Entry(Entry),
    Operation(Operation),
}

/// Meaning of a message without an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// The station left the directory.
    Deletion,
    /// An archive removed the station.
    Removal,
    /// The mark of a removal, at the station's own key ([`remove`]).
    RemovalMark,
}

impl Registered {
    /// Reads a stored message as a registration; `None` if it must be ignored.
    ///
    /// A registration was published under its key, has an identifier, lasts no longer than a lease
    /// may, and has the host of the key. A server's response that was sent to the key is not a
    /// registration ([`Stored::is_publication`]).
    pub(super) fn read(stored: &Stored) -> Option<Self> {
        let RegistrationHeader { host, id, ttl, operation } = RegistrationHeader::read(stored)?;
        let content = match operation {
            Some(operation) => Content::Operation(operation),
            None => {
                let entry = wire::read_entry(&stored.payload).ok().filter(|entry| entry.host == host)?;
                Content::Entry(entry)
            }
        };
        Some(Self { host, id: id.to_owned(), ttl, content })
    }
}

/// A registration without its entry. Parsing the entry would take most of the time of a read.
pub(super) struct RegistrationHeader<'a> {
    pub(super) host: HostId,
    pub(super) id: &'a str,
    pub(super) ttl: Duration,
    /// `None` = the message has an entry.
    pub(super) operation: Option<Operation>,
}

impl<'a> RegistrationHeader<'a> {
    /// Like [`Registered::read`], without the entry.
    pub(super) fn read(stored: &'a Stored) -> Option<Self> {
        // Over a route, a server delivers a message with a trace with other headers than it stored.
        // So the lifetime may differ from the one for which the servers keep the message.
        // Servers do not distinguish the case of this header.
        let is_trace = |(name, _): (&HeaderName, _)| AsRef::<str>::as_ref(name).eq_ignore_ascii_case(TRACE);
        if !stored.is_publication() || stored.headers.iter().any(is_trace) {
            return None;
        }
        let (host, is_removal_key) = parse_key(stored)?;
        let id = stored.headers.get(REGISTRATION)?.as_str();
        let ttl_s = stored.headers.get(TTL)?.as_str().strip_suffix('s')?.parse().ok()?;
        let ttl = Duration::from_secs(ttl_s);
        let operation = match stored.headers.get(OPERATION).map(|operation| operation.as_str()) {
            Some(PURGED) if is_removal_key => Some(Operation::Removal),
            _ if is_removal_key => return None,
            Some(PURGED) => Some(Operation::RemovalMark),
            Some(_) => Some(Operation::Deletion),
            None => None,
        };
        let ttl_max = if operation.is_some() { TTL_MAX } else { LEASE_MAX };
        (TTL_MIN..=ttl_max).contains(&ttl).then_some(Self { host, id, ttl, operation })
    }
}

/// Station to which the message's key belongs; `None` if the key is not valid or is the key of a
/// removal.
pub(super) fn host(stored: &Stored) -> Option<HostId> {
    parse_key(stored).filter(|(_, is_removal_key)| !is_removal_key).map(|(host, _)| host)
}

/// Returns the host of a key, and whether the key is that of the host's removal.
fn parse_key(stored: &Stored) -> Option<(HostId, bool)> {
    let key = stored.subject.strip_prefix(subject::ENTRIES)?.strip_prefix('.')?;
    let removal = key.strip_prefix(REMOVALS);
    Some((subject::name(removal.unwrap_or(key))?, removal.is_some()))
}

struct NatsLease {
    ttl: Duration,
    renewed_at: RenewedAt,
    /// The sender is dropped with the lease. Then the task that renews the registration deletes the
    /// entry.
    _stop: oneshot::Sender<()>,
}

impl Lease for NatsLease {
    fn ttl(&self) -> Duration {
        self.ttl
    }

    fn state(&self) -> LeaseState {
        match *self.renewed_at.lock().unwrap_or_else(PoisonError::into_inner) {
            None => LeaseState::Displaced,
            Some(renewed) if self.ttl < renewed.elapsed() => LeaseState::Lapsed,
            Some(_) => LeaseState::Held,
        }
    }
}

/// Header with the identifier of the registration that wrote an entry.
pub(super) const REGISTRATION: &str = "Barograph-Registration";

/// Header with the time for which the server keeps a message (ADR-43 of NATS).
pub(super) const TTL: &str = "Nats-TTL";

/// Header that requests traces of a message (ADR-41 of NATS). No station writes it.
const TRACE: &str = "Nats-Trace-Dest";

/// Prefix of the keys of removals. A token has no `/` ([`subject::token`]).
const REMOVALS: &str = "removed/";

/// Header that marks a deleted or purged key in a bucket, and its two values (ADR-8 of NATS). At
/// the key of a removal, the marker means that the station was removed. At the key of an entry,
/// both values mean that the station left, because with lists of older versions a station can write
/// both values at the key of its own entry.
pub(super) const OPERATION: &str = "KV-Operation";
pub(super) const DELETED: &str = "DEL";
const PURGED: &str = "PURGE";

/// Time in seconds for which the marker of a station that left is kept: long enough for every watch
/// to read the marker. After an outage, watches read the whole bucket again.
pub(super) const TOMBSTONE_S: u64 = 60;

/// Shortest lease: the servers count in seconds.
const TTL_MIN: Duration = Duration::from_secs(1);

/// Time for which a removal is reported; the bucket keeps no message for a longer time.
pub(super) const TTL_MAX: Duration = Duration::from_hours(1);

/// The longest `mesh.lease_s`.
const LEASE_MAX: Duration = Duration::from_mins(5);

/// Longest read of the newest message before a registration. Servers under load need up to 4 s for
/// a response; three such reads and writes take less than the caller waits (30 s).
const NEWEST_WITHIN: Duration = Duration::from_secs(4);

/// The longest time between two renewals: a full bucket drops its oldest entries, and members can
/// make servers fill the bucket within a minute (lab/results/nats-costs.md, "Keys of the
/// directory").
pub(super) const RENEWED_AFTER: Duration = Duration::from_secs(10);

/// Wait after unexpected content of the key: a twentieth of the shortest lease, so that the task
/// neither loses the lease nor keeps a processor busy.
const RETRY_SOON: Duration = Duration::from_millis(50);

/// Number of consecutive refusals, while the key has this registration, after which the condition
/// is omitted. One refusal may be due to an earlier write of this station that was stored and not
/// acknowledged.
const REFUSALS_MAX: u32 = 3;

/// Wait after a failed renewal: several attempts fit before the shortest usual lease expires.
const RETRY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_drops_its_condition_after_three_refusals() {
        let mut condition = Condition::over(7);
        let asked: Vec<Option<u64>> = (8..=11)
            .map(|seq| {
                condition.refused(seq);
                condition.over
            })
            .collect();
        assert_eq!(asked, [Some(8), Some(9), None, None]);
        assert_eq!(Condition::over(12), Condition { over: Some(12), refusals: 0 });
    }
}
