//! Places for transfers, in the order of asking, of which one address gets half.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::health::lock;
use crate::seats::holder;

/// The places of a station.
#[derive(Debug)]
pub(super) struct Places {
    all: Arc<Semaphore>,
    each_max: usize,
    /// Of addresses that hold a place or wait for one.
    each: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Places {
    pub(super) fn new(max: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(max)),
            each_max: usize::max(1, max.div_ceil(2)),
            each: Mutex::default(),
        }
    }

    /// A place; `None` = none became free in time.
    pub(super) async fn take(&self, ip: IpAddr) -> Option<Place> {
        let own = self.of(holder(ip));
        // Semaphores of tokio are fair: who waits first is served first.
        let both = async {
            let own = own.acquire_owned().await.ok()?;
            let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
            Some(Place { _own: own, _all: all })
        };
        tokio::time::timeout(WAIT, both).await.ok()?
    }

    fn of(&self, key: IpAddr) -> Arc<Semaphore> {
        let mut each = lock(&self.each);
        if let Some(semaphore) = each.get(&key).and_then(Weak::upgrade) {
            return semaphore;
        }
        // No more of them live than there are sessions.
        each.retain(|_, semaphore| 0 < semaphore.strong_count());
        let semaphore = Arc::new(Semaphore::new(self.each_max));
        each.insert(key, Arc::downgrade(&semaphore));
        semaphore
    }
}

/// How long a transfer waits for its place: pages that measure every second come round in that time,
/// and a client knows of it (echo.md §2).
const WAIT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_gets_half_and_a_place_comes_back() {
        let places = Places::new(4);
        let peer = |i| IpAddr::from([192, 0, 2, i]);
        let held = [places.take(peer(1)).await.unwrap(), places.take(peer(1)).await.unwrap()];
        assert!(places.take(peer(1)).await.is_none());
        let other = [places.take(peer(2)).await.unwrap(), places.take(peer(2)).await.unwrap()];
        assert!(places.take(peer(3)).await.is_none(), "all are taken");
        drop(held);
        assert!(places.take(peer(1)).await.is_some());
        drop(other);
        assert!(places.take(peer(3)).await.is_some());
        assert_eq!(lock(&places.each).len(), 1, "nothing is kept of who is gone");
    }
}
