//! Limits for the questions of each station to an archive: a station that asks much delays its own
//! answers, and not those of other stations.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barograph_limits::bucket::{Bucket, Rate};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// What the questions of all stations share.
#[derive(Debug)]
pub(super) struct Askers {
    /// By the token in a question's subject, where permissions hold it; those with a question that is
    /// not answered yet.
    each: Mutex<HashMap<String, Asker>>,
    /// By the same token; times are those since `began`.
    paces: Mutex<HashMap<String, Bucket>>,
    began: Instant,
    questions: Arc<Semaphore>,
    pages: Arc<Semaphore>,
    numbers: Arc<Semaphore>,
}

/// Clones are the same one.
#[derive(Clone, Debug)]
struct Asker {
    questions: Arc<Semaphore>,
    page: Arc<Semaphore>,
}

/// A question that is not answered yet, until this is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    asker: Asker,
    _of_all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

/// What a question costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cost {
    /// A page of records: up to a message full of them.
    Page,
    /// A number or two.
    Number,
}

/// Leave to look for an answer, until this is dropped.
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

    /// Whether a question of `asker` is taken now: a server may copy the answer, whatever it says, to many
    /// subscriptions of the asker, and does so in the archive's own connection.
    pub(super) fn is_heard(&self, asker: &str) -> bool {
        let now = self.began.elapsed();
        let mut paces = self.paces.lock().unwrap_or_else(PoisonError::into_inner);
        if PACES_KEPT <= paces.len() {
            paces.retain(|_, pace| !pace.is_full(now));
        }
        let full = || Bucket::new(Rate::per_s(QUESTIONS_PER_S), QUESTIONS_SAVED_UP);
        paces.entry(asker.to_owned()).or_insert_with(full).take(1, now).is_ok()
    }

    /// A place for a question of `asker`.
    pub(super) fn slot(&self, asker: &str) -> Result<Slot, &'static str> {
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        // A question under way has its asker as well.
        each.retain(|_, asker| 1 < Arc::strong_count(&asker.questions));
        let asker = each.entry(asker.to_owned()).or_insert_with_key(|name| Asker::new(name)).clone();
        drop(each);
        let own = Arc::clone(&asker.questions).try_acquire_owned();
        let own = own.map_err(|_| "too many questions of this asker wait for their answers")?;
        let of_all = Arc::clone(&self.questions).try_acquire_owned();
        let of_all = of_all.map_err(|_| "too many questions wait for their answers")?;
        Ok(Slot { asker, _of_all: of_all, _own: own })
    }

    /// Waits for leave to look for the answer: pages are looked for one at a time for an asker, so that
    /// each has its turn however much another one asks. `None` = never, the archive stops.
    pub(super) async fn turn(&self, slot: &Slot, cost: Cost) -> Option<Turn> {
        let (own, all) = match cost {
            Cost::Page => (Some(Arc::clone(&slot.asker.page).acquire_owned().await.ok()?), &self.pages),
            Cost::Number => (None, &self.numbers),
        };
        Some(Turn { _own: own, _of_all: Arc::clone(all).acquire_owned().await.ok()? })
    }
}

impl Asker {
    /// All stations of older versions share the empty name. Together they get a quarter of the questions and
    /// half of the pages, so that newer stations find room.
    fn new(name: &str) -> Self {
        let (questions, pages) =
            if name.is_empty() { (QUESTIONS_MAX / 4, PAGES_AT_ONCE / 2) } else { (QUESTIONS_EACH, 1) };
        Self { questions: Arc::new(Semaphore::new(questions)), page: Arc::new(Semaphore::new(pages)) }
    }
}

/// Questions that are not answered yet: several for each station of the largest mesh measured, of 4 KiB
/// at most.
const QUESTIONS_MAX: usize = 4096;
/// Of one station: for itself it asks one or two at a time, and the rest are for callers of its API.
const QUESTIONS_EACH: usize = 64;
/// Of one station, in the long run: several times what a page with a hundred graphs asks for.
const QUESTIONS_PER_S: u64 = 200;
/// A page's graphs ask at once.
const QUESTIONS_SAVED_UP: Duration = Duration::from_secs(5);
/// Full ones are forgotten beyond so many: some hundred kilobytes.
const PACES_KEPT: usize = 1024;
/// Pages looked for at a time, each of some megabytes while that lasts.
const PAGES_AT_ONCE: usize = 4;
/// The archive's reads take turns in any case.
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
        // In turns, where all are taken.
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
