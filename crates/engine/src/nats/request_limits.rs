//! Limits the requests of each station to an archive: a station with many requests delays its own
//! responses, not the responses to other stations.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barograph_limits::token_bucket::{Rate, TokenBucket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Limits for all stations together, and limits for each station.
#[derive(Debug)]
pub(super) struct RequestLimits {
    /// Stations with an unanswered request, by the token in the request's subject. The servers'
    /// permissions let each station use only its own token.
    each: Mutex<HashMap<String, RequesterLimits>>,
    /// Rate limit of each station, by the token in the request's subject. Times count from `began`.
    rate_limits: Mutex<HashMap<String, TokenBucket>>,
    began: Instant,
    requests: Arc<Semaphore>,
    pages: Arc<Semaphore>,
    numbers: Arc<Semaphore>,
}

/// Limits of one station. All clones share the same limits.
#[derive(Clone, Debug)]
struct RequesterLimits {
    requests: Arc<Semaphore>,
    page: Arc<Semaphore>,
}

/// An unanswered request. The request counts as answered when this value is dropped.
#[derive(Debug)]
pub(super) struct PendingRequest {
    limits: RequesterLimits,
    _of_all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

/// Cost of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestCost {
    /// A page of records, which may fill one message.
    Page,
    /// A response of one or two numbers, such as a watermark.
    Number,
}

/// Permission to compute a response. The permission ends when this value is dropped.
#[derive(Debug)]
pub(super) struct RequestPermit {
    _own: Option<OwnedSemaphorePermit>,
    _of_all: OwnedSemaphorePermit,
}

impl RequestLimits {
    pub(super) fn new() -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self {
            each: Mutex::default(),
            rate_limits: Mutex::default(),
            began: Instant::now(),
            requests: semaphore(REQUESTS_MAX),
            pages: semaphore(PAGES_AT_ONCE),
            numbers: semaphore(NUMBERS_AT_ONCE),
        }
    }

    /// Returns whether a request of `requester` is accepted now. The rate is limited because a
    /// server copies a response to every matching subscription of the requester, and does this work
    /// in the archive's connection.
    pub(super) fn admits(&self, requester: &str) -> bool {
        let now = self.began.elapsed();
        let mut rate_limits = self.rate_limits.lock().unwrap_or_else(PoisonError::into_inner);
        if rate_limits.len() >= RATE_LIMITS_MAX {
            rate_limits.retain(|_, limit| !limit.is_full(now));
        }
        let full = || TokenBucket::new(Rate::per_s(REQUESTS_PER_S), REQUESTS_BURST_TIME);
        rate_limits.entry(requester.to_owned()).or_insert_with(full).take(1, now).is_ok()
    }

    /// Reserves a slot for a request of `requester`.
    pub(super) fn register(&self, requester: &str) -> Result<PendingRequest, &'static str> {
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        // A running request holds a clone of these limits.
        each.retain(|_, limits| Arc::strong_count(&limits.requests) > 1);
        let limits =
            each.entry(requester.to_owned()).or_insert_with_key(|name| RequesterLimits::new(name)).clone();
        drop(each);
        let own = Arc::clone(&limits.requests).try_acquire_owned();
        let own = own.map_err(|_| "too many requests of this station are pending; retry later")?;
        let of_all = Arc::clone(&self.requests).try_acquire_owned();
        let of_all = of_all.map_err(|_| "too many requests are pending; retry later")?;
        Ok(PendingRequest { limits, _of_all: of_all, _own: own })
    }

    /// Waits for permission to compute the response. Pages of one requester are computed one at a
    /// time, so that a requester with many requests does not delay other requesters. `None` if the
    /// archive stops.
    pub(super) async fn permit(&self, pending: &PendingRequest, cost: RequestCost) -> Option<RequestPermit> {
        let (own, all) = match cost {
            RequestCost::Page => {
                (Some(Arc::clone(&pending.limits.page).acquire_owned().await.ok()?), &self.pages)
            }
            RequestCost::Number => (None, &self.numbers),
        };
        Some(RequestPermit { _own: own, _of_all: Arc::clone(all).acquire_owned().await.ok()? })
    }
}

impl RequesterLimits {
    /// All stations of older versions share the empty name. Together they get a quarter of the
    /// requests and half of the pages, so that newer stations can use the other requests and pages.
    fn new(name: &str) -> Self {
        let (requests, pages) =
            if name.is_empty() { (REQUESTS_MAX / 4, PAGES_AT_ONCE / 2) } else { (REQUESTS_EACH, 1) };
        Self { requests: Arc::new(Semaphore::new(requests)), page: Arc::new(Semaphore::new(pages)) }
    }
}

/// Largest number of unanswered requests, each of at most 4 KiB. In the largest mesh measured, each
/// station can have several unanswered requests.
const REQUESTS_MAX: usize = 4096;
/// Largest number of unanswered requests of one station. The station itself needs one or two at a
/// time; the others are for callers of the station's API.
const REQUESTS_EACH: usize = 64;
/// Average number of requests that one station may send per second: several times the number that a
/// page with a hundred graphs sends.
const REQUESTS_PER_S: u64 = 200;
/// Burst of the rate limit, as a time: a station may send at once the number of requests that the
/// average rate allows in this time. A page requests all its graphs together.
const REQUESTS_BURST_TIME: Duration = Duration::from_secs(5);
/// Largest number of rate limits that are kept; they take some hundred kilobytes. If there are
/// more, unused rate limits are removed.
const RATE_LIMITS_MAX: usize = 1024;
/// Largest number of pages that are computed at the same time. Each page takes some megabytes of
/// memory during that time.
const PAGES_AT_ONCE: usize = 4;
/// Largest number of responses to `watermark` and `next_seq` that are computed at the same time. A
/// higher limit would not help, because reads of the archive run one after the other.
const NUMBERS_AT_ONCE: usize = 16;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_request_rate_of_one_requester_is_limited() {
        let limits = RequestLimits::new();
        let admitted = (0..5000).filter(|_| limits.admits("greedy")).count();
        assert_eq!(admitted, 1000);
        assert!(limits.admits("honest"));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((0..5000).filter(|_| limits.admits("greedy")).count(), 200);
        for other in 0..2 * RATE_LIMITS_MAX {
            tokio::time::advance(Duration::from_millis(10)).await;
            assert!(limits.admits(&other.to_string()));
        }
        assert!(limits.rate_limits.lock().unwrap().len() <= RATE_LIMITS_MAX);
    }

    #[tokio::test]
    async fn many_requests_of_one_requester_delay_only_that_requester() {
        let limits = RequestLimits::new();
        let greedy: Vec<PendingRequest> =
            (0..REQUESTS_EACH).map(|_| limits.register("greedy").unwrap()).collect();
        assert!(limits.register("greedy").is_err());
        let mut permits: Vec<_> =
            greedy.iter().map(|pending| Box::pin(limits.permit(pending, RequestCost::Page))).collect();
        let taken: Vec<_> = permits.iter_mut().filter_map(|permit| permit.now_or_never()).collect();
        assert_eq!(taken.len(), 1);
        let honest = limits.register("honest").unwrap();
        assert!(
            limits.permit(&honest, RequestCost::Page).now_or_never().is_some(),
            "it waits for no other requester"
        );
        assert!(limits.permit(&honest, RequestCost::Number).now_or_never().is_some());
        // If all permissions are in use, the requesters get the next free permissions in
        // alternation.
        let others = ["b", "c", "d"].map(|name| limits.register(name).unwrap());
        let held: Vec<_> = others
            .iter()
            .map(|pending| limits.permit(pending, RequestCost::Page).now_or_never().unwrap())
            .collect();
        let mut next = Box::pin(limits.permit(&honest, RequestCost::Page));
        assert!((&mut next).now_or_never().is_none(), "all {PAGES_AT_ONCE} are taken");
        drop(taken);
        let again = permits[1].as_mut().now_or_never();
        assert!(again.is_none(), "a second one of the greedy waits behind the honest");
        assert!(next.await.is_some());
        drop((held, permits));
        drop((greedy, honest, others));
        drop(limits.register("last").unwrap());
        drop(limits.register("last").unwrap());
        assert_eq!(limits.each.lock().unwrap().len(), 1, "nothing is kept of those that have their answers");
    }
}
