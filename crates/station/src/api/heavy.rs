//! Costly reads and their limits. Their responses are made outside the HTTP thread, a few at a
//! time, and the series table is locked only for short times.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use barograph_forecast::SeriesId;
use serde::Serialize;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::guard::RemoteEnd;
use super::query::SeriesSelection;
use super::{ApiRefusal, ApiState, JSON_HEADERS};
use crate::forecast::series::SeriesState;
use crate::forecast::series_reader::for_each_state;
use crate::limits::Limit;
use crate::limits::unread::CallerClass;
use crate::sync::lock;
use barograph_limits::caller_group::{CallerGroup, limit_address, network};

/// State shared by all heavy reads.
#[derive(Debug)]
pub(crate) struct HeavyReads {
    series_table: ReadQueue,
    archive: ReadQueue,
    shared: [Arc<SharedResponseSlot>; KINDS],
}

/// Permits for one kind of read.
#[derive(Debug)]
struct ReadQueue {
    all: Arc<Semaphore>,
    /// Permits for callers on other hosts: one fewer than all permits. The remaining permit is for
    /// callers on this host and for shared texts.
    elsewhere: Arc<Semaphore>,
    /// Permits for anonymous callers: one fewer than for all callers on other hosts. The remaining
    /// permit is for authenticated callers.
    anonymous: Arc<Semaphore>,
    /// One permit for each address of another host, for the anonymous callers of each network, for
    /// the authenticated callers of each network, and for all addresses that one station
    /// authenticated. Contains only callers with a read that runs or waits.
    callers: Mutex<HashMap<CallerGroup, Arc<Semaphore>>>,
}

/// Source of a heavy read. The archive may be that of a mesh and may not respond, so reads of the
/// series table do not wait for reads of the archive.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReadSource {
    SeriesTable,
    Archive,
}

/// Responses that are the same for every caller.
#[derive(Clone, Copy, Debug)]
pub(super) enum SharedResponseKind {
    Prometheus,
    OpenMetrics,
    Series,
    Forecasts,
    Latest,
}

/// Newest text of a [`SharedResponseKind`] response. The task that makes the text locks the slot,
/// and other tasks wait.
type SharedResponseSlot = tokio::sync::Mutex<Option<SharedResponse>>;

#[derive(Debug)]
struct SharedResponse {
    text: Bytes,
    /// Times at which making the text started and ended.
    began: Instant,
    made: Instant,
}

/// Permission for a heavy read. Dropping this value ends the permission.
#[derive(Debug)]
struct ReadPermit {
    _of_all: OwnedSemaphorePermit,
    /// Permits of the address, of its network or station, of anonymous callers and of other hosts;
    /// empty for this host, and for shared texts.
    _elsewhere: Vec<OwnedSemaphorePermit>,
}

/// Returns the text of a response: the shared text if `what` names a shared response, otherwise a
/// text made for this caller only.
///
/// If the caller disconnects, the text is still completed. Otherwise a caller could get another
/// permit by disconnecting.
pub(super) async fn text<F>(
    shared: &Arc<ApiState>,
    remote: &RemoteEnd,
    from: ReadSource,
    what: Option<SharedResponseKind>,
    make: F,
) -> Result<Bytes, ApiRefusal>
where
    F: Future<Output = Result<Bytes, ApiRefusal>> + Send + 'static,
{
    let making = match what {
        Some(what) => {
            let text_or_permit = async {
                match shared.heavy.shared(what, Instant::now()).await {
                    Ok(text) => Ok::<_, ApiRefusal>(SharedResponseState::Kept(text)),
                    Err(slot) => {
                        Ok(SharedResponseState::New(slot, acquire(shared, remote, from, true).await?))
                    }
                }
            };
            // The request that makes the text may wait for an archive; the other requests wait for
            // the text at most as long as for a permit.
            let found =
                timeout(PERMIT_TIMEOUT, text_or_permit).await.map_err(|_| shared.too_much_unread())?;
            let (mut slot, permit) = match found? {
                SharedResponseState::Kept(text) => return Ok(text),
                SharedResponseState::New(slot, permit) => (slot, permit),
            };
            let shared = Arc::clone(shared);
            tokio::spawn(async move {
                let began = Instant::now();
                let text = make.await?;
                *slot = Some(SharedResponse::new(text.clone(), began));
                drop((slot, permit));
                tokio::spawn(async move { shared.heavy.forget_old(what).await });
                Ok(text)
            })
        }
        None => {
            let permit = acquire(shared, remote, from, false).await?;
            tokio::spawn(async move {
                let text = make.await;
                drop(permit);
                text
            })
        }
    };
    making.await.map_err(|error| ApiRefusal::ended(&error))?
}

/// Responds with a list that has a row for each chosen series, `{"key": [row, …]}`; the response is
/// `what` if it is shared.
pub(super) async fn list(
    shared: &Arc<ApiState>,
    remote: &RemoteEnd,
    what: Option<SharedResponseKind>,
    selection: SeriesSelection,
    key: &'static str,
    row: impl Fn(&mut Rows, &SeriesId, &SeriesState) + Send + 'static,
) -> Result<Response, ApiRefusal> {
    let series_table = Arc::clone(&shared.series_table);
    let make = run_blocking(move || {
        let mut rows = Rows::new(key);
        let names = selection.series(&series_table);
        for_each_state(&series_table, &names, |series, state| row(&mut rows, series, state));
        rows.finish()
    });
    let text = text(shared, remote, ReadSource::SeriesTable, what, make).await?;
    Ok((JSON_HEADERS, text).into_response())
}

/// The rows of a list that have been written so far.
pub(super) struct Rows {
    text: Vec<u8>,
    is_first: bool,
}

impl Rows {
    /// Begins a list under `key`, without rows.
    pub(super) fn new(key: &str) -> Self {
        Self { text: format!("{{\"{key}\":[").into_bytes(), is_first: true }
    }

    /// Ends the list, and returns its text.
    pub(super) fn finish(mut self) -> Bytes {
        self.text.extend_from_slice(b"]}");
        self.text.into()
    }

    /// Ends a page of a list. `next` is where the next page begins; `None` = this is the last page.
    pub(super) fn finish_page(mut self, next: Option<&str>) -> Bytes {
        self.text.extend_from_slice(b"],\"next\":");
        // Cannot fail, as in `push`.
        let _ = serde_json::to_writer(&mut self.text, &next);
        self.text.push(b'}');
        self.text.into()
    }

    /// Number of bytes so far.
    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Adds one row to the answer.
    pub(super) fn push<T: Serialize>(&mut self, row: &T) {
        if !std::mem::take(&mut self.is_first) {
            self.text.push(b',');
        }
        // This write cannot fail: the keys of `barograph_api` types are texts, their serializers
        // return no errors, and a vector accepts all bytes.
        let _ = serde_json::to_writer(&mut self.text, row);
    }
}

/// Runs work outside the HTTP thread.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiRefusal> {
    tokio::task::spawn_blocking(work).await.map_err(|error| ApiRefusal::ended(&error))
}

/// What a caller gets for a shared response: the kept text, or the permission to make a new text.
enum SharedResponseState {
    Kept(Bytes),
    /// The lock of the shared text, and the permit to make a new text.
    New(OwnedMutexGuard<Option<SharedResponse>>, ReadPermit),
}

/// Waits for the permit to make a response. The limit of this caller's unread responses always
/// applies. The caller's other limits apply unless the response is for all callers (`is_for_all`).
async fn acquire(
    shared: &ApiState,
    remote: &RemoteEnd,
    from: ReadSource,
    is_for_all: bool,
) -> Result<ReadPermit, ApiRefusal> {
    let class = if is_for_all && shared.unread.has_room_for_all() {
        CallerClass::Local
    } else {
        let class = shared.caller_class(remote);
        if !shared.unread.has_room(&class) {
            return Err(shared.too_much_unread());
        }
        if is_for_all { CallerClass::Local } else { class }
    };
    shared.heavy.acquire(from, class).await.ok_or_else(|| shared.too_much_unread())
}

impl ApiState {
    /// Counts a read that found no room in memory or got no permit in time, and returns its
    /// refusal.
    pub(super) fn too_much_unread(&self) -> ApiRefusal {
        self.health.refused(Limit::UnreadAnswers, 1);
        ApiRefusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many large responses are in progress (unread_answer_bytes in /healthz); try again in 5 s",
        )
    }
}

impl HeavyReads {
    pub(crate) fn new() -> Self {
        Self {
            series_table: ReadQueue::new(),
            archive: ReadQueue::new(),
            shared: std::array::from_fn(|_| Arc::default()),
        }
    }

    /// Waits until a caller gets a permit. Texts for all callers use [`CallerClass::Local`].
    /// Returns `None` after [`PERMIT_TIMEOUT`].
    async fn acquire(&self, from: ReadSource, class: CallerClass) -> Option<ReadPermit> {
        let queue = match from {
            ReadSource::SeriesTable => &self.series_table,
            ReadSource::Archive => &self.archive,
        };
        let permit = async {
            let mut elsewhere = Vec::new();
            for waited_for in queue.of(&class) {
                elsewhere.push(waited_for.acquire_owned().await.ok()?);
            }
            Some(ReadPermit {
                _of_all: Arc::clone(&queue.all).acquire_owned().await.ok()?,
                _elsewhere: elsewhere,
            })
        };
        timeout(PERMIT_TIMEOUT, permit).await.ok().flatten()
    }

    /// The shared text, if a caller that arrived at `arrived` may have it; otherwise the lock for a
    /// new text.
    async fn shared(
        &self,
        what: SharedResponseKind,
        arrived: Instant,
    ) -> Result<Bytes, OwnedMutexGuard<Option<SharedResponse>>> {
        let slot = Arc::clone(&self.shared[what as usize]).lock_owned().await;
        match &*slot {
            Some(response) if response.is_for(arrived, Instant::now()) => Ok(response.text.clone()),
            _ => Err(slot),
        }
    }

    /// Frees the memory of a text that is too old for every caller.
    async fn forget_old(&self, what: SharedResponseKind) {
        tokio::time::sleep(KEPT_FOR).await;
        let mut slot = self.shared[what as usize].lock().await;
        if slot.as_ref().is_some_and(|response| response.made.elapsed() >= KEPT_FOR) {
            *slot = None;
        }
    }
}

impl ReadQueue {
    fn new() -> Self {
        let [all, elsewhere, anonymous] =
            [AT_ONCE, AT_ONCE - 1, AT_ONCE - 2].map(|permits| Arc::new(Semaphore::new(permits)));
        Self { all, elsewhere, anonymous, callers: Mutex::default() }
    }

    /// Semaphores that a caller acquires, in this order, before it gets a permit.
    fn of(&self, class: &CallerClass) -> Vec<Arc<Semaphore>> {
        let elsewhere = || Arc::clone(&self.elsewhere);
        // An address has one position in the queue of its network, however many connections it has.
        // All addresses that one station authenticated also have one position together. Each host
        // of an IPv6 /64 counts separately; otherwise an anonymous caller in the same LAN would
        // delay a member.
        let address = |ip: IpAddr| self.one(CallerGroup::Address(ip.to_canonical()));
        let network = |ip: IpAddr| network(limit_address(ip));
        match class {
            CallerClass::Local => Vec::new(),
            CallerClass::Authenticated(ip, owner) => {
                let owner = CallerGroup::authenticated_by(owner).map(|owner| self.one(owner));
                let of_network = [self.one(CallerGroup::AuthenticatedOfNetwork(network(*ip))), elsewhere()];
                [address(*ip)].into_iter().chain(owner).chain(of_network).collect()
            }
            CallerClass::Anonymous(ip) => {
                let anonymous = Arc::clone(&self.anonymous);
                vec![address(*ip), self.one(CallerGroup::Network(network(*ip))), anonymous, elsewhere()]
            }
        }
    }

    fn one(&self, callers: CallerGroup) -> Arc<Semaphore> {
        let mut semaphores = lock(&self.callers);
        // Keep only semaphores in use: each read that waits or runs holds one.
        semaphores.retain(|_, semaphores| Arc::strong_count(semaphores) > 1);
        Arc::clone(semaphores.entry(callers).or_insert_with(|| Arc::new(Semaphore::new(1))))
    }
}

impl SharedResponse {
    fn new(text: Bytes, began: Instant) -> Self {
        Self { text, began, made: Instant::now() }
    }

    /// Whether a caller that arrived at `arrived` may have the text. A small text must be newer
    /// than the request, so that the caller sees its own writes.
    fn is_for(&self, arrived: Instant, now: Instant) -> bool {
        let is_large = self.text.len() >= KEPT_BYTES_MIN;
        arrived <= self.began || (is_large && now.saturating_duration_since(self.made) < KEPT_FOR)
    }
}

const KINDS: usize = SharedResponseKind::Latest as usize + 1;
/// Number of heavy reads of each kind that may run at the same time, in addition to the HTTP thread
/// and to measuring.
pub(crate) const AT_ONCE: usize = 3;
/// Longest wait for a permit; after this time clients have given up.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a large text is used again; shorter than any scrape interval.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// Minimum number of bytes of a text that is used again. Such a text has some hundred series; a
/// smaller text is made in about a millisecond.
const KEPT_BYTES_MIN: usize = 256 * 1024;
#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use barograph_forecast::Name;
    use barograph_limits::authenticated::CredentialOwner;
    use futures_util::FutureExt as _;

    use super::*;

    fn station(number: u8) -> CredentialOwner {
        CredentialOwner::Station(Name::new(&format!("station-{number}")).unwrap())
    }

    #[tokio::test]
    async fn anonymous_callers_share_one_permit_and_do_not_delay_other_callers() {
        let heavy = HeavyReads::new();
        let ip = |network, host| IpAddr::from([192, 0, network, host]);
        let acquire = |class| heavy.acquire(ReadSource::SeriesTable, class);
        let first = acquire(CallerClass::Anonymous(ip(1, 1))).await.unwrap();
        let mut waiting: Vec<_> =
            (2..60).map(|network| Box::pin(acquire(CallerClass::Anonymous(ip(network, 1))))).collect();
        for wait in &mut waiting {
            assert!(wait.now_or_never().is_none(), "one is made for anonymous callers");
        }
        let member =
            acquire(CallerClass::Authenticated(ip(100, 1), CredentialOwner::Operator)).await.unwrap();
        let mut second =
            std::pin::pin!(acquire(CallerClass::Authenticated(ip(101, 1), CredentialOwner::Operator)));
        assert!(second.as_mut().now_or_never().is_none(), "two are made for elsewhere");
        let local = acquire(CallerClass::Local).await.unwrap();
        let mut third = std::pin::pin!(acquire(CallerClass::Local));
        assert!(third.as_mut().now_or_never().is_none(), "three are made");
        drop(local);
        drop(third.await.unwrap());
        drop(member);
        drop(second.await.unwrap());
        let archive = heavy
            .acquire(ReadSource::Archive, CallerClass::Authenticated(ip(1, 2), CredentialOwner::Operator))
            .await
            .unwrap();
        let mut neighbour =
            std::pin::pin!(heavy.acquire(
                ReadSource::Archive,
                CallerClass::Authenticated(ip(1, 3), CredentialOwner::Operator)
            ));
        assert!(neighbour.as_mut().now_or_never().is_none(), "the permit of its network is still in use");
        drop(archive);
        assert!(neighbour.await.is_some());
        drop((first, waiting));
        acquire(CallerClass::Anonymous(ip(3, 1))).await.unwrap();
        heavy.series_table.one(CallerGroup::AuthenticatedOfNetwork(ip(4, 4)));
        assert_eq!(lock(&heavy.series_table.callers).len(), 1, "nothing is kept of a network that is gone");
    }

    #[tokio::test]
    async fn many_requests_of_one_address_take_one_queue_position_in_its_network() {
        let heavy = HeavyReads::new();
        let ip = |host| IpAddr::from([192, 0, 2, host]);
        let acquire = |class| heavy.acquire(ReadSource::SeriesTable, class);
        let first = acquire(CallerClass::Anonymous(ip(1))).await.unwrap();
        let mut crowd: Vec<_> = (0..50).map(|_| Box::pin(acquire(CallerClass::Anonymous(ip(1))))).collect();
        for wait in &mut crowd {
            assert!(wait.now_or_never().is_none());
        }
        let mut neighbour = std::pin::pin!(acquire(CallerClass::Anonymous(ip(2))));
        assert!(neighbour.as_mut().now_or_never().is_none());
        drop(acquire(CallerClass::Authenticated(ip(3), CredentialOwner::Operator)).await.unwrap());
        let authenticated = acquire(CallerClass::Authenticated(ip(4), station(1))).await.unwrap();
        let mut crowd_of_one: Vec<_> =
            (5..50).map(|host| Box::pin(acquire(CallerClass::Authenticated(ip(host), station(1))))).collect();
        for wait in &mut crowd_of_one {
            assert!(wait.now_or_never().is_none());
        }
        let mut other = std::pin::pin!(acquire(CallerClass::Authenticated(ip(60), station(2))));
        assert!(other.as_mut().now_or_never().is_none());
        drop(authenticated);
        assert!(other.await.is_some(), "one station with many addresses is one in the queue");
        drop(first);
        assert!(neighbour.await.is_some());
    }

    #[test]
    fn large_responses_are_shared_for_a_second_and_small_ones_with_waiting_callers() {
        let began = Instant::now();
        let later = |ms| began + Duration::from_millis(ms);
        let kept = |bytes| SharedResponse { text: vec![0; bytes].into(), began, made: later(100) };
        let (small, large) = (kept(10), kept(KEPT_BYTES_MIN));
        assert!(small.is_for(began, later(5000)) && !small.is_for(later(1), later(101)));
        assert!(large.is_for(later(1), later(1099)) && !large.is_for(later(1), later(1100)));
    }
}
