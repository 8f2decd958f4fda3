//! Limits of costly reads. Their responses are made outside the HTTP thread, a few at a time, and
//! the bank is locked only for short times.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use barograph_forecast::Series;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::forecast::bank::{Account, Bank};
use crate::limits::unread::Reader;
use crate::sync::lock;
use barograph_limits::callers::{Callers, holder, network};

/// State shared by all heavy reads.
#[derive(Debug)]
pub(crate) struct HeavyReads {
    bank: Turns,
    archive: Turns,
    kept: [Arc<KeptText>; KEPT],
}

/// Permits for one kind of read.
#[derive(Debug)]
struct Turns {
    all: Arc<Semaphore>,
    /// Permits for callers on other hosts: one fewer than all permits, which is left to this host
    /// and to shared texts.
    elsewhere: Arc<Semaphore>,
    /// Permits for strangers: one fewer than for all callers on other hosts, which is left to
    /// proved callers.
    strangers: Arc<Semaphore>,
    /// One permit for each address of another host, for the strangers of each network, and for the
    /// proved callers of each network. Contains only those that have a read or wait for one.
    callers: Mutex<HashMap<Callers, Arc<Semaphore>>>,
}

/// Source of a heavy read. The archive may be that of a mesh and may not respond, so reads of the
/// bank do not wait for reads of the archive.
#[derive(Clone, Copy, Debug)]
pub(crate) enum From {
    Bank,
    Archive,
}

/// Responses that are the same for every caller.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Common {
    Prometheus,
    OpenMetrics,
    Series,
    Forecasts,
    Latest,
}

/// Newest text of a [`Common`] response. The task that makes it holds the lock, and others wait.
type KeptText = tokio::sync::Mutex<Option<Kept>>;

#[derive(Debug)]
pub(crate) struct Kept {
    text: Bytes,
    /// Start and end of making the text.
    began: Instant,
    made: Instant,
}

/// Permission for a heavy read, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _of_all: OwnedSemaphorePermit,
    /// Permits of the address, of its network or station, of strangers and of other hosts; empty
    /// for this host, and for shared texts.
    _elsewhere: Vec<OwnedSemaphorePermit>,
}

impl HeavyReads {
    pub(crate) fn new() -> Self {
        Self { bank: Turns::new(), archive: Turns::new(), kept: std::array::from_fn(|_| Arc::default()) }
    }

    /// Waits until a caller gets a permit. Texts for all callers use [`Reader::Here`]. Returns
    /// `None` after [`TURN_WITHIN`].
    pub(crate) async fn turn(&self, from: From, reader: Reader) -> Option<Turn> {
        let turns = match from {
            From::Bank => &self.bank,
            From::Archive => &self.archive,
        };
        let turn = async {
            let mut elsewhere = Vec::new();
            for waited_for in turns.of(&reader) {
                elsewhere.push(waited_for.acquire_owned().await.ok()?);
            }
            Some(Turn { _of_all: Arc::clone(&turns.all).acquire_owned().await.ok()?, _elsewhere: elsewhere })
        };
        tokio::time::timeout(TURN_WITHIN, turn).await.ok().flatten()
    }

    /// The kept text, if a caller that arrived at `arrived` may have it; otherwise the lock for a
    /// new text.
    pub(crate) async fn kept(
        &self,
        what: Common,
        arrived: Instant,
    ) -> Result<Bytes, tokio::sync::OwnedMutexGuard<Option<Kept>>> {
        let place = Arc::clone(&self.kept[what as usize]).lock_owned().await;
        match &*place {
            Some(kept) if kept.is_for(arrived, Instant::now()) => Ok(kept.text.clone()),
            _ => Err(place),
        }
    }

    /// Frees the memory of a text that is too old for every caller.
    pub(crate) async fn forget_old(&self, what: Common) {
        tokio::time::sleep(KEPT_FOR).await;
        let mut place = self.kept[what as usize].lock().await;
        if place.as_ref().is_some_and(|kept| KEPT_FOR <= kept.made.elapsed()) {
            *place = None;
        }
    }
}

impl Turns {
    fn new() -> Self {
        let [all, elsewhere, strangers] =
            [AT_ONCE, AT_ONCE - 1, AT_ONCE - 2].map(|turns| Arc::new(Semaphore::new(turns)));
        Self { all, elsewhere, strangers, callers: Mutex::default() }
    }

    /// Semaphores that a caller acquires, in this order, before it gets a permit.
    fn of(&self, reader: &Reader) -> Vec<Arc<Semaphore>> {
        let elsewhere = || Arc::clone(&self.elsewhere);
        // An address has one position in the queue of its network, however many connections it has.
        // All addresses that one station proved also have one position together. Each host of an
        // IPv6 /64 counts separately; otherwise a stranger in the same LAN would delay a member.
        let address = |ip: IpAddr| self.one(Callers::Address(ip.to_canonical()));
        let network = |ip: IpAddr| network(holder(ip));
        match reader {
            Reader::Here => Vec::new(),
            Reader::Proved(ip, prover) => {
                let prover = Callers::proved_by(prover).map(|prover| self.one(prover));
                let of_network = [self.one(Callers::ProvedOfNetwork(network(*ip))), elsewhere()];
                [address(*ip)].into_iter().chain(prover).chain(of_network).collect()
            }
            Reader::Stranger(ip) => {
                let strangers = Arc::clone(&self.strangers);
                vec![address(*ip), self.one(Callers::Network(network(*ip))), strangers, elsewhere()]
            }
        }
    }

    fn one(&self, callers: Callers) -> Arc<Semaphore> {
        let mut turns = lock(&self.callers);
        // Keep only semaphores in use: each read that waits or runs holds one.
        turns.retain(|_, turns| 1 < Arc::strong_count(turns));
        Arc::clone(turns.entry(callers).or_insert_with(|| Arc::new(Semaphore::new(1))))
    }
}

impl Kept {
    pub(crate) fn new(text: Bytes, began: Instant) -> Self {
        Self { text, began, made: Instant::now() }
    }

    /// Whether a caller that arrived at `arrived` may have the text. A small text must be newer
    /// than the request, so that the caller sees its own writes.
    fn is_for(&self, arrived: Instant, now: Instant) -> bool {
        let is_large = KEPT_BYTES_MIN <= self.text.len();
        arrived <= self.began || (is_large && now.saturating_duration_since(self.made) < KEPT_FOR)
    }
}

/// Calls `each` for the accounts of `series` that still exist, with the bank locked for some of
/// them at a time.
pub(crate) fn visit(bank: &Mutex<Bank>, series: &[Series], mut each: impl FnMut(&Series, &Account)) {
    for (at, some) in series.chunks(HELD_FOR).enumerate() {
        if 0 < at {
            // The lock is not fair: without a pause waiting threads would not get it.
            std::thread::sleep(PAUSE);
        }
        let bank = lock(bank);
        for series in some {
            if let Some(account) = bank.account(series) {
                each(series, account);
            }
        }
    }
}

const KEPT: usize = Common::Latest as usize + 1;
/// Number of heavy reads of each kind that may run at the same time, in addition to the HTTP thread
/// and to measuring.
pub(crate) const AT_ONCE: usize = 3;
/// Longest wait for a permit; after this time clients have given up.
pub(crate) const TURN_WITHIN: Duration = Duration::from_secs(10);
/// Time for which a large text is used again; shorter than any scrape interval.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// Minimum size of a text that is used again, which is that of some hundred series: a smaller one
/// is made in about a millisecond.
const KEPT_BYTES_MIN: usize = 256 * 1024;
/// Number of accounts to read under one lock of the bank; each account takes some microseconds.
const HELD_FOR: usize = 64;
/// Pause between two locks of the bank; several times the time to wake a thread.
const PAUSE: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use barograph_forecast::Name;
    use barograph_limits::proved::Prover;
    use futures_util::FutureExt as _;

    use super::*;

    fn station(number: u8) -> Prover {
        Prover::Station(Name::new(&format!("station-{number}")).unwrap())
    }

    #[tokio::test]
    async fn strangers_have_one_turn_and_neither_members_nor_this_host_wait_for_them() {
        let heavy = HeavyReads::new();
        let ip = |network, host| IpAddr::from([192, 0, network, host]);
        let turn = |reader| heavy.turn(From::Bank, reader);
        let first = turn(Reader::Stranger(ip(1, 1))).await.unwrap();
        let mut waiting: Vec<_> =
            (2..60).map(|network| Box::pin(turn(Reader::Stranger(ip(network, 1))))).collect();
        for wait in &mut waiting {
            assert!(wait.now_or_never().is_none(), "one is made for strangers");
        }
        let member = turn(Reader::Proved(ip(100, 1), Prover::Operator)).await.unwrap();
        let mut second = std::pin::pin!(turn(Reader::Proved(ip(101, 1), Prover::Operator)));
        assert!(second.as_mut().now_or_never().is_none(), "two are made for elsewhere");
        let here = turn(Reader::Here).await.unwrap();
        let mut third = std::pin::pin!(turn(Reader::Here));
        assert!(third.as_mut().now_or_never().is_none(), "three are made");
        drop(here);
        drop(third.await.unwrap());
        drop(member);
        drop(second.await.unwrap());
        let archive = heavy.turn(From::Archive, Reader::Proved(ip(1, 2), Prover::Operator)).await.unwrap();
        let mut neighbour =
            std::pin::pin!(heavy.turn(From::Archive, Reader::Proved(ip(1, 3), Prover::Operator)));
        assert!(neighbour.as_mut().now_or_never().is_none(), "the turn of its network is not over");
        drop(archive);
        assert!(neighbour.await.is_some());
        drop((first, waiting));
        turn(Reader::Stranger(ip(3, 1))).await.unwrap();
        heavy.bank.one(Callers::ProvedOfNetwork(ip(4, 4)));
        assert_eq!(lock(&heavy.bank.callers).len(), 1, "nothing is kept of a network that is gone");
    }

    #[tokio::test]
    async fn one_address_with_many_requests_is_one_in_the_queue_of_its_network() {
        let heavy = HeavyReads::new();
        let ip = |host| IpAddr::from([192, 0, 2, host]);
        let turn = |reader| heavy.turn(From::Bank, reader);
        let first = turn(Reader::Stranger(ip(1))).await.unwrap();
        let mut crowd: Vec<_> = (0..50).map(|_| Box::pin(turn(Reader::Stranger(ip(1))))).collect();
        for wait in &mut crowd {
            assert!(wait.now_or_never().is_none());
        }
        let mut neighbour = std::pin::pin!(turn(Reader::Stranger(ip(2))));
        assert!(neighbour.as_mut().now_or_never().is_none());
        drop(turn(Reader::Proved(ip(3), Prover::Operator)).await.unwrap());
        let proved = turn(Reader::Proved(ip(4), station(1))).await.unwrap();
        let mut crowd_of_one: Vec<_> =
            (5..50).map(|host| Box::pin(turn(Reader::Proved(ip(host), station(1))))).collect();
        for wait in &mut crowd_of_one {
            assert!(wait.now_or_never().is_none());
        }
        let mut other = std::pin::pin!(turn(Reader::Proved(ip(60), station(2))));
        assert!(other.as_mut().now_or_never().is_none());
        drop(proved);
        assert!(other.await.is_some(), "one station with many addresses is one in the queue");
        drop(first);
        assert!(neighbour.await.is_some());
    }

    #[test]
    fn a_large_text_is_for_all_within_a_second_and_a_small_one_for_those_who_waited() {
        let began = Instant::now();
        let later = |ms| began + Duration::from_millis(ms);
        let kept = |bytes| Kept { text: vec![0; bytes].into(), began, made: later(100) };
        let (small, large) = (kept(10), kept(KEPT_BYTES_MIN));
        assert!(small.is_for(began, later(5000)) && !small.is_for(later(1), later(101)));
        assert!(large.is_for(later(1), later(1099)) && !large.is_for(later(1), later(1100)));
    }
}
