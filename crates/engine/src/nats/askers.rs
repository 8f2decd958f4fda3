//! Limits the requests of each station to an archive: a station with many requests delays its own
//! responses, not those of other stations.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barograph_limits::bucket::{Bucket, Rate};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Limits for all stations together, and limits for each station.
#[derive(Debug)]
pub(super) struct Askers {
    /// Stations with an unanswered request, by the token in the request's subject, which
    /// permissions enforce.
    each: Mutex<HashMap<String, Asker>>,
    /// Rate limits by the same token. Times are since `began`.
    paces: Mutex<HashMap<String, Bucket>>,
    began: Instant,
    questions: Arc<Semaphore>,
    pages: Arc<Semaphore>,
    numbers: Arc<Semaphore>,
}

/// Limits of one station. Clones share them.
#[derive(Clone, Debug)]
struct Asker {
    questions: Arc<Semaphore>,
    page: Arc<Semaphore>,
}

/// An unanswered request. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    asker: Asker,
    _of_all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

/// Cost of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cost {
    /// A page of records, which may fill one message.
    Page,
    /// A response of one or two numbers, such as a watermark.
    Number,
}

/// Permission to compute a response, until this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _own: Option<OwnedSemaphorePermit>,
    _of_all: OwnedSemaphorePermit,
}

impl Askers {
    pub(super) fn new() -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self {
            each: Mutex::default(),
            paces: Mutex::default(),
            began: Instant::now(),
            questions: semaphore(QUESTIONS_MAX),
            pages: semaphore(PAGES_AT_ONCE),
            numbers: semaphore(NUMBERS_AT_ONCE),
        }
    }

    /// Returns whether a request of `asker` is accepted now. The rate is limited because a server
    /// copies a response to every matching subscription of the requester, and does this work in the
    /// archive's connection.
    pub(super) fn is_heard(&self, asker: &str) -> bool {
        let now = self.began.elapsed();
        let mut paces = self.paces.lock().unwrap_or_else(PoisonError::into_inner);
        if PACES_KEPT <= paces.len() {
            paces.retain(|_, pace| !pace.is_full(now));
        }
        let full = || Bucket::new(Rate::per_s(QUESTIONS_PER_S), QUESTIONS_SAVED_UP);
        paces.entry(asker.to_owned()).or_insert_with(full).take(1, now).is_ok()
    }

    /// Reserves a slot for a request of `asker`.
    pub(super) fn slot(&self, asker: &str) -> Result<Slot, &'static str> {
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        // A running request holds a clone of these limits.
        each.retain(|_, asker| 1 < Arc::strong_count(&asker.questions));
        let asker = each.entry(asker.to_owned()).or_insert_with_key(|name| Asker::new(name)).clone();
        drop(each);
        let own = Arc::clone(&asker.questions).try_acquire_owned();
        let own = own.map_err(|_| "too many questions of this asker wait for their answers")?;
        let of_all = Arc::clone(&self.questions).try_acquire_owned();
        let of_all = of_all.map_err(|_| "too many questions wait for their answers")?;
        Ok(Slot { asker, _of_all: of_all, _own: own })
    }

    /// Waits for permission to compute the response. Pages of one requester are computed one at a
    /// time, so that a requester with many requests does not delay the others. `None` if the
    /// archive stops.
    pub(super) async fn turn(&self, slot: &Slot, cost: Cost) -> Option<Turn> {
        let (own, all) = match cost {
            Cost::Page => (Some(Arc::clone(&slot.asker.page).acquire_owned().await.ok()?), &self.pages),
            Cost::Number => (None, &self.numbers),
        };
        Some(Turn { _own: own, _of_all: Arc::clone(all).acquire_owned().await.ok()? })
    }
}

impl Asker {
    /// All stations of older versions share the empty name. Together they get a quarter of the
    /// requests and half of the pages, so that the rest is left for newer stations.
    fn new(name: &str) -> Self {
        let (questions, pages) =
            if name.is_empty() { (QUESTIONS_MAX / 4, PAGES_AT_ONCE / 2) } else { (QUESTIONS_EACH, 1) };
        Self { questions: Arc::new(Semaphore::new(questions)), page: Arc::new(Semaphore::new(pages)) }
    }
}

/// Most unanswered requests: several for each station of the largest mesh measured, of 4 KiB at
/// most.
const QUESTIONS_MAX: usize = 4096;
/// Most unanswered requests of one station. It needs one or two at a time; the rest are for callers
/// of its API.
const QUESTIONS_EACH: usize = 64;
/// Requests of one station a second, in the long run: several times those of a page with a hundred
/// graphs.
const QUESTIONS_PER_S: u64 = 200;
/// Burst of the rate limit: a station may send the requests that it did not use in this time at
/// once, because the graphs of a page are requested together.
const QUESTIONS_SAVED_UP: Duration = Duration::from_secs(5);
/// Most rate limits kept, some hundred kilobytes. Beyond that, unused ones are removed.
const PACES_KEPT: usize = 1024;
/// Pages computed at a time. Each needs some megabytes meanwhile.
const PAGES_AT_ONCE: usize = 4;
/// Numbers computed at a time. Further ones would wait anyway, because reads of the archive run one
/// after the other.
const NUMBERS_AT_ONCE: usize = 16;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_asks_without_a_pause_is_heard_at_the_pace() {
        let askers = Askers::new();
        let heard = (0..5000).filter(|_| askers.is_heard("greedy")).count();
        assert_eq!(heard, 1000);
        assert!(askers.is_heard("honest"));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((0..5000).filter(|_| askers.is_heard("greedy")).count(), 200);
        for other in 0..2 * PACES_KEPT {
            tokio::time::advance(Duration::from_millis(10)).await;
            assert!(askers.is_heard(&other.to_string()));
        }
        assert!(askers.paces.lock().unwrap().len() <= PACES_KEPT);
    }

    #[tokio::test]
    async fn who_asks_much_waits_behind_itself() {
        let askers = Askers::new();
        let greedy: Vec<Slot> = (0..QUESTIONS_EACH).map(|_| askers.slot("greedy").unwrap()).collect();
        assert!(askers.slot("greedy").is_err());
        let mut turns: Vec<_> = greedy.iter().map(|slot| Box::pin(askers.turn(slot, Cost::Page))).collect();
        let taken: Vec<_> = turns.iter_mut().filter_map(|turn| turn.now_or_never()).collect();
        assert_eq!(taken.len(), 1);
        let honest = askers.slot("honest").unwrap();
        assert!(askers.turn(&honest, Cost::Page).now_or_never().is_some(), "it waits for nobody else");
        assert!(askers.turn(&honest, Cost::Number).now_or_never().is_some());
        // If all permissions are in use, each requester gets the next ones alternately.
        let others = ["b", "c", "d"].map(|name| askers.slot(name).unwrap());
        let held: Vec<_> =
            others.iter().map(|slot| askers.turn(slot, Cost::Page).now_or_never().unwrap()).collect();
        let mut next = Box::pin(askers.turn(&honest, Cost::Page));
        assert!((&mut next).now_or_never().is_none(), "all {PAGES_AT_ONCE} are taken");
        drop(taken);
        let again = turns[1].as_mut().now_or_never();
        assert!(again.is_none(), "a second one of the greedy waits behind the honest");
        assert!(next.await.is_some());
        drop((held, turns));
        drop((greedy, honest, others));
        drop(askers.slot("last").unwrap());
        drop(askers.slot("last").unwrap());
        assert_eq!(askers.each.lock().unwrap().len(), 1, "nothing is kept of those that have their answers");
    }
}
