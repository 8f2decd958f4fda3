//! Slots for transfers, in the order of requests. Each address and each network may use only a
//! share of the slots.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::sync::lock;
use barograph_limits::caller_group::{CallerGroup, limit_address, network};

/// The transfer slots of a station. Each address gets at most an eighth of the slots, and each
/// network (/24, /48) at most half. An eighth of the slots is reserved for callers on this host.
/// These callers are limited only by the total number of slots.
#[derive(Debug)]
pub(super) struct TransferSlots {
    all: Arc<Semaphore>,
    elsewhere: Arc<Semaphore>,
    address_max: usize,
    network_max: usize,
    /// Semaphores of the addresses and networks that use a slot or wait for a slot.
    each: Mutex<HashMap<CallerGroup, Weak<Semaphore>>>,
}

/// A transfer slot; released when dropped.
#[derive(Debug)]
pub(super) struct TransferSlot {
    /// Permits for the caller's address, its network, and all callers on other hosts; `None` if the
    /// caller is on this host.
    _elsewhere: Option<[OwnedSemaphorePermit; 3]>,
    _all: OwnedSemaphorePermit,
}

impl TransferSlots {
    pub(super) fn new(max: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(max)),
            elsewhere: Arc::new(Semaphore::new(max - max / SHARE)),
            address_max: usize::max(1, max / SHARE),
            network_max: usize::max(1, max / 2),
            each: Mutex::default(),
        }
    }

    /// Waits for a slot for a caller; `None` if no slot became free in time.
    pub(super) async fn take(&self, ip: IpAddr, is_local: bool) -> Option<TransferSlot> {
        // Semaphores of tokio are fair: they grant permits in the order in which callers began to
        // wait.
        let slot = async {
            let elsewhere = match is_local {
                true => None,
                false => {
                    let holder = limit_address(ip);
                    let own = self.of(CallerGroup::Address(holder)).acquire_owned().await.ok()?;
                    let network =
                        self.of(CallerGroup::Network(network(holder))).acquire_owned().await.ok()?;
                    Some([own, network, Arc::clone(&self.elsewhere).acquire_owned().await.ok()?])
                }
            };
            let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
            Some(TransferSlot { _elsewhere: elsewhere, _all: all })
        };
        tokio::time::timeout(WAIT, slot).await.ok()?
    }

    fn of(&self, callers: CallerGroup) -> Arc<Semaphore> {
        let mut each = lock(&self.each);
        if let Some(semaphore) = each.get(&callers).and_then(Weak::upgrade) {
            return semaphore;
        }
        // Drop unused semaphores, so that there are no more than sessions need.
        each.retain(|_, semaphore| semaphore.strong_count() > 0);
        let max = match callers {
            CallerGroup::Address(_) => self.address_max,
            _ => self.network_max,
        };
        let semaphore = Arc::new(Semaphore::new(max));
        each.insert(callers, Arc::downgrade(&semaphore));
        semaphore
    }
}

/// How long a transfer waits for its slot: long enough that each page gets a slot if it measures
/// every second. Clients expect this wait (docs/spec/echo.md §2).
const WAIT: Duration = Duration::from_secs(2);
/// Divisor of the slots for the share of one address. By default the share is two slots, for a
/// page's two sessions. Seven hostile addresses in two networks could take all slots for callers on
/// other hosts; an eighth of the slots is reserved for this host.
pub(crate) const SHARE: usize = 8;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn peer(i: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, i])
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_gets_half_of_the_slots() {
        let slots = TransferSlots::new(16);
        let mut held = Vec::new();
        for i in 0..20 {
            held.extend(slots.take(peer(i), false).await);
        }
        assert_eq!(held.len(), 8);
        assert!(slots.take([192, 0, 3, 1].into(), false).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_gets_an_eighth_of_the_slots_and_a_released_slot_is_free() {
        let slots = TransferSlots::new(16);
        let held = [slots.take(peer(1), false).await.unwrap(), slots.take(peer(1), false).await.unwrap()];
        assert!(slots.take(peer(1), false).await.is_none());
        assert!(slots.take(peer(2), false).await.is_some());
        drop(held);
        assert!(slots.take(peer(1), false).await.is_some());
        drop(slots.take(peer(3), false).await);
        assert_eq!(lock(&slots.each).len(), 2, "the semaphores of callers that are gone were dropped");
    }

    #[tokio::test(start_paused = true)]
    async fn other_hosts_leave_an_eighth_of_the_slots_to_this_host() {
        let slots = TransferSlots::new(16);
        let mut held = Vec::new();
        for i in 0..20 {
            held.extend(slots.take([192, 0, i, 1].into(), false).await);
        }
        assert_eq!(held.len(), 14);
        let here = IpAddr::from([127, 0, 0, 1]);
        held.extend([slots.take(here, true).await.unwrap(), slots.take(here, true).await.unwrap()]);
        assert!(slots.take(here, true).await.is_none(), "all are taken");
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_slot_is_available_to_any_caller() {
        let slots = TransferSlots::new(1);
        drop(slots.take(peer(1), false).await.unwrap());
        assert!(slots.take(peer(1), true).await.is_some());
    }
}
