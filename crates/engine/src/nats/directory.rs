//! Registrations: a key a station, which the servers drop when it is not renewed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::link::{Link, Trouble, read};
use super::publish::Acknowledgement;
use super::streams::{self, ENTRIES, ENTRY_BYTES_MAX};
use super::subject;
use super::walk::{self, Stored};
use super::writes::Writes;
use crate::{Entry, Error, HostId, Lease, LeaseState, wire};

/// Writes the entry, and leaves a task that renews it.
pub(super) async fn register(link: Arc<Link>, entry: &Entry, ttl: Duration) -> Result<Box<dyn Lease>, Error> {
    entry.check()?;
    if !(TTL_MIN..=LEASE_MAX).contains(&ttl) {
        return Err(Error::Invalid(format!("a lease lasts {TTL_MIN:?} to {LEASE_MAX:?}, not {ttl:?}")));
    }
    let text = wire::entry_text(entry);
    if ENTRY_BYTES_MAX < text.len() {
        let bytes = text.len();
        return Err(Error::Invalid(format!(
            "the entry has {bytes} bytes as JSON, more than {ENTRY_BYTES_MAX}"
        )));
    }
    let ttl_s = ttl.as_secs() + u64::from(0 < ttl.subsec_nanos());
    let mut registration = Registration {
        key: key(&entry.host),
        id: new_id(&link),
        text: text.into(),
        ttl_s,
        place: 0,
        hold: Arc::new(Mutex::new(Some(Instant::now()))),
        link,
    };
    registration.begin().await?;
    let (stop, stopped) = oneshot::channel();
    let (link, hold) = (Arc::clone(&registration.link), Arc::clone(&registration.hold));
    let task = Arc::clone(&link.renewal);
    let renewed = Renewed::new(&link);
    link.spawn(async move {
        let _renewed = renewed;
        task.until_done(registration.renew(stopped)).await;
    });
    Ok(Box::new(NatsLease { ttl: Duration::from_secs(ttl_s), hold, _stop: stop }))
}

/// Writes over the key of `host` that it was removed. A registration that is still renewed then ends.
pub(super) async fn remove(link: &Link, host: &HostId) -> Result<(), Error> {
    streams::ensure(link).await?;
    let mut headers = HeaderMap::new();
    headers.insert(REGISTRATION, new_id(link).as_str());
    headers.insert(OPERATION, PURGED);
    headers.insert(TTL, format!("{}s", TTL_MAX.as_secs()));
    let answer = link.request(key(host), Some(headers), Bytes::new()).await?;
    let Acknowledgement { error, .. } = read(&answer)?;
    error.map_or(Ok(()), |error| Err(Error::Unavailable(error.description)))
}

fn key(host: &HostId) -> String {
    format!("{}.{}", subject::ENTRIES, subject::token(host.as_str()))
}

fn new_id(link: &Link) -> String {
    link.client.new_inbox().rsplit('.').next().unwrap_or_default().to_owned()
}

/// A station's hold on its key.
struct Registration {
    link: Arc<Link>,
    key: String,
    /// Tells this registration from another one of the same host.
    id: String,
    text: Bytes,
    ttl_s: u64,
    /// Where the bucket holds it: whoever writes over it moves it.
    place: u64,
    hold: Hold,
}

/// Counts a registration for as long as it is renewed.
struct Renewed(Arc<Link>);

impl Renewed {
    fn new(link: &Arc<Link>) -> Self {
        link.writes.send_modify(Writes::begun);
        Self(Arc::clone(link))
    }
}

impl Drop for Renewed {
    fn drop(&mut self) {
        self.0.writes.send_modify(Writes::ended);
    }
}

/// The condition of the next renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Condition {
    /// The number of the message that it is to replace; `None` = whatever is there.
    over: Option<u64>,
    /// How often the condition was refused in a row while the key held this registration.
    refusals: u32,
}

impl Condition {
    fn over(place: u64) -> Self {
        Self { over: Some(place), refusals: 0 }
    }

    /// The condition was refused, and the key holds this registration under the number `place`.
    ///
    /// Replicas refuse a write under a condition, too, while any other write names this key in one;
    /// without a condition none is refused.
    fn refused(&mut self, place: u64) {
        self.refusals += 1;
        self.over = (self.refusals < REFUSALS_MAX).then_some(place);
    }
}

/// When a renewal began that was stored; `None` = another registration took over.
type Hold = Arc<Mutex<Option<Instant>>>;

/// What became of a write.
enum Put {
    Stored(u64),
    /// The key is not where it was expected.
    Overtaken,
}

/// What a key holds.
enum Found {
    /// It ran out while no server could be reached.
    Nothing,
    Own(u64),
    /// What is no registration, nobody who may write this key has put there: ours is written over it. Should another
    /// registration come between, it finds ours when it renews.
    Junk,
    /// It belongs to another registration, or to nobody by the will of a later one.
    Another,
}

impl Registration {
    /// Writes the entry, whatever the key holds.
    async fn begin(&mut self) -> Result<(), Error> {
        let began = Instant::now();
        if let Err(error) = streams::ensure(&self.link).await {
            self.failed(began, &error);
            return Err(error);
        }
        match self.put(None).await? {
            Put::Stored(place) => self.place = place,
            Put::Overtaken => return Err(Error::Unavailable("the bucket refused a registration".into())),
        }
        Ok(())
    }

    /// Renews until it is stopped or overtaken; stopped, it takes the entry away.
    async fn renew(mut self, mut stopped: oneshot::Receiver<()>) {
        let third = Duration::from_secs(self.ttl_s) / 3;
        let mut wait = third;
        let mut condition = Condition::over(self.place);
        let link = Arc::clone(&self.link);
        loop {
            tokio::select! {
                // Dropping the lease drops the sender, which ends this too.
                _ = &mut stopped => return self.leave().await,
                () = sleep(wait) => {}
                () = link.renew_now.notified() => {}
            }
            let began = Instant::now();
            wait = match self.put(condition.over).await {
                Ok(Put::Stored(place)) => {
                    self.place = place;
                    condition = Condition::over(place);
                    self.holds(Some(began));
                    third
                }
                Ok(Put::Overtaken) => match self.look().await {
                    Ok(Found::Nothing) => {
                        condition.over = Some(0);
                        AGAIN
                    }
                    Ok(Found::Own(place)) => {
                        condition.refused(place);
                        AGAIN
                    }
                    // Whoever puts such there puts the next before we could say over which one to write.
                    Ok(Found::Junk) => {
                        condition.over = None;
                        AGAIN
                    }
                    Ok(Found::Another) => {
                        self.holds(None);
                        return tracing::info!(key = %self.key, "another registration took over");
                    }
                    Err(_) => RETRY.min(third),
                },
                Err(_) => {
                    // Where the bucket is gone, whoever may makes it again; otherwise this asks nothing.
                    let _ = streams::ensure(&self.link).await;
                    // Meanwhile another registration may have come, which an unconditional write would end.
                    condition = Condition::over(condition.over.unwrap_or(self.place));
                    RETRY.min(third)
                }
            };
        }
    }

    fn holds(&self, since: Option<Instant>) {
        *self.hold.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// What the key holds, after something else was found than what was written last.
    async fn look(&self) -> Result<Found, Trouble> {
        Ok(match walk::last(&self.link, ENTRIES, &self.key).await? {
            None => Found::Nothing,
            Some(stored) => match Registered::read(&stored) {
                None => Found::Junk,
                Some(registered) if registered.id == self.id => Found::Own(stored.seq),
                Some(_) => Found::Another,
            },
        })
    }

    /// Takes the entry away; what is not taken away runs out by itself.
    async fn leave(&self) {
        let mut headers = HeaderMap::new();
        headers.insert(REGISTRATION, self.id.as_str());
        headers.insert(OPERATION, DELETED);
        headers.insert(TTL, format!("{TOMBSTONE_S}s"));
        let mut conditional = headers.clone();
        conditional.insert(EXPECTED, self.place.to_string());
        let answer = self.link.request(self.key.clone(), Some(conditional), Bytes::new()).await;
        let refused = answer.is_ok_and(|answer| {
            read::<Acknowledgement>(&answer).is_ok_and(|acknowledged| acknowledged.error.is_some())
        });
        // As in `renew`: a condition of another's write may have named this key.
        if refused && matches!(self.look().await, Ok(Found::Own(_))) {
            let _ = self.link.request(self.key.clone(), Some(headers), Bytes::new()).await;
        }
    }

    /// Writes the entry, and notes whether the directory took it.
    async fn put(&self, over: Option<u64>) -> Result<Put, Trouble> {
        let began = Instant::now();
        let put = self.write(over).await;
        match &put {
            Ok(Put::Stored(_)) => {
                let ttl = Duration::from_secs(self.ttl_s);
                self.link.writes.send_modify(|writes| writes.stored(began, ttl));
            }
            Ok(Put::Overtaken) => {}
            Err(trouble) => self.failed(began, &trouble.clone().into()),
        }
        put
    }

    /// Notes that a write failed. A refusal of this station says nothing about others.
    fn failed(&self, began: Instant, error: &Error) {
        if let Error::Unavailable(why) | Error::Unknown(why) = error {
            self.link.writes.send_modify(|writes| writes.failed(began, why.clone()));
        }
    }

    async fn write(&self, over: Option<u64>) -> Result<Put, Trouble> {
        let mut headers = HeaderMap::new();
        headers.insert(REGISTRATION, self.id.as_str());
        headers.insert(TTL, format!("{}s", self.ttl_s));
        if let Some(place) = over {
            headers.insert(EXPECTED, place.to_string());
        }
        let answer = self.link.request(self.key.clone(), Some(headers), self.text.clone()).await?;
        let Acknowledgement { seq, error, .. } = read(&answer)?;
        match error {
            None => Ok(Put::Stored(seq)),
            Some(error) if WRONG_PLACE.contains(&error.err_code) => Ok(Put::Overtaken),
            Some(error) => Err(Trouble::NoAnswer(error.description)),
        }
    }
}

/// What a station said of itself under its own key.
#[derive(Clone, Debug)]
pub(super) struct Registered {
    pub(super) host: HostId,
    /// Which registration wrote it.
    pub(super) id: String,
    /// How long the server keeps it.
    pub(super) ttl: Duration,
    /// `None` = the station has left or was removed.
    pub(super) entry: Option<Entry>,
    /// An administrator removed the station.
    pub(super) is_removed: bool,
}

impl Registered {
    /// What is stored, if a station registered itself with it; `None` = it is to be ignored.
    ///
    /// It was published under its key, names its registration, lasts no longer than a lease may, and speaks
    /// for the host of the key alone. An answer of the server that was sent to the key is none
    /// ([`Stored::is_publication`]).
    pub(super) fn read(stored: &Stored) -> Option<Self> {
        let Head { host, id, ttl, is_deletion, is_removed } = Head::read(stored)?;
        let entry = match is_deletion {
            true => None,
            false => Some(wire::read_entry(&stored.payload).ok().filter(|entry| entry.host == host)?),
        };
        Some(Self { host, id: id.to_owned(), ttl, entry, is_removed })
    }
}

/// The same without the entry, which takes most of the time to read.
pub(super) struct Head<'a> {
    pub(super) host: HostId,
    pub(super) id: &'a str,
    pub(super) ttl: Duration,
    /// The station left or was removed.
    pub(super) is_deletion: bool,
    pub(super) is_removed: bool,
}

impl<'a> Head<'a> {
    /// As [`Registered::read`], but for the entry.
    pub(super) fn read(stored: &'a Stored) -> Option<Self> {
        if !stored.is_publication() {
            return None;
        }
        let host = host(stored)?;
        let id = stored.headers.get(REGISTRATION)?.as_str();
        let ttl_s = stored.headers.get(TTL)?.as_str().strip_suffix('s')?.parse().ok()?;
        let ttl = Duration::from_secs(ttl_s);
        let operation = stored.headers.get(OPERATION);
        let is_removed = operation.is_some_and(|operation| operation.as_str() == PURGED);
        let is_deletion = operation.is_some();
        let ttl_max = if is_deletion { TTL_MAX } else { LEASE_MAX };
        (TTL_MIN..=ttl_max).contains(&ttl).then_some(Self { host, id, ttl, is_deletion, is_removed })
    }
}

/// Whose key it is.
pub(super) fn host(stored: &Stored) -> Option<HostId> {
    stored.subject.strip_prefix(subject::ENTRIES)?.strip_prefix('.').and_then(subject::name)
}

struct NatsLease {
    ttl: Duration,
    hold: Hold,
    /// Dropped with the lease, it tells the renewing task to take the entry away.
    _stop: oneshot::Sender<()>,
}

impl Lease for NatsLease {
    fn ttl(&self) -> Duration {
        self.ttl
    }

    fn state(&self) -> LeaseState {
        match *self.hold.lock().unwrap_or_else(PoisonError::into_inner) {
            None => LeaseState::Displaced,
            Some(renewed) if self.ttl < renewed.elapsed() => LeaseState::Lapsed,
            Some(_) => LeaseState::Held,
        }
    }
}

/// Which registration wrote an entry.
const REGISTRATION: &str = "Barograph-Registration";

/// How long the server keeps a message (ADR-43 of NATS).
const TTL: &str = "Nats-TTL";

/// The place at which the key must be for a write to be taken.
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";

/// As buckets mark what was deleted or purged (ADR-8 of NATS): a station that left, and one that was removed.
/// An older station takes both for the first.
const OPERATION: &str = "KV-Operation";
const DELETED: &str = "DEL";
const PURGED: &str = "PURGE";

/// Long enough for every watcher to have seen that a station left; those that were away ask anew.
const TOMBSTONE_S: u64 = 60;

/// "Wrong last sequence", in its two forms.
const WRONG_PLACE: [u32; 2] = [10071, 10164];

/// The servers count in seconds.
const TTL_MIN: Duration = Duration::from_secs(1);

/// How long it is told that a station was removed; the bucket keeps nothing longer.
pub(super) const TTL_MAX: Duration = Duration::from_hours(1);

/// The longest `mesh.lease_s`. A station that was withdrawn is listed for no longer.
const LEASE_MAX: Duration = Duration::from_mins(5);

/// After something else was found: a twentieth of the shortest lease is soon enough, and no busy loop.
const AGAIN: Duration = Duration::from_millis(50);

/// Refusals of a renewal in a row while the key holds it: one may be a write of ours that was stored and
/// not acknowledged.
const REFUSALS_MAX: u32 = 3;

/// After a renewal that failed: several more before the shortest usual lease runs out.
const RETRY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_that_is_refused_three_times_asks_for_nothing_any_more() {
        let mut condition = Condition::over(7);
        let asked: Vec<Option<u64>> = (8..=11)
            .map(|place| {
                condition.refused(place);
                condition.over
            })
            .collect();
        assert_eq!(asked, [Some(8), Some(9), None, None]);
        assert_eq!(Condition::over(12), Condition { over: Some(12), refusals: 0 });
    }
}
