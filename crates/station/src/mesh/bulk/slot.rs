//! The host's single slot for bulk transfers, shared by tests of the mesh, the prober, and
//! transfers for callers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::sync::lock;

/// Records which bulk transfers run on this host. A test runs alone, because two tests at once
/// would distort each other's results.
#[derive(Debug, Default)]
pub(crate) struct BulkSlot {
    taken: Mutex<Taken>,
    begun: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    test: bool,
    prober: bool,
    served: u32,
}

/// Purpose for which the slot is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BulkUse {
    /// A test with a peer, as source or target; runs alone.
    Test,
    /// A transfer of the prober, to or from a target that the owner added.
    Prober,
    /// A transfer that the responder serves to a caller on this host or to a caller with the
    /// owner's token; or a transfer of files. The caller may be this host's prober.
    Served,
}

/// Permission to use the slot; releases the slot when dropped.
#[derive(Debug)]
pub(crate) struct BulkSlotGuard {
    slot: Arc<BulkSlot>,
    what: BulkUse,
}

impl BulkSlot {
    /// Takes the slot if it is free for this purpose.
    pub(crate) fn take(self: &Arc<Self>, what: BulkUse) -> Option<BulkSlotGuard> {
        let mut taken = lock(&self.taken);
        let is_free = match what {
            BulkUse::Test => !taken.test && !taken.prober && taken.served == 0,
            BulkUse::Prober => !taken.test && !taken.prober,
            BulkUse::Served => !taken.test,
        };
        if !is_free {
            return None;
        }
        match what {
            BulkUse::Test => taken.test = true,
            BulkUse::Prober => taken.prober = true,
            BulkUse::Served => taken.served += 1,
        }
        self.begun.fetch_add(1, Ordering::SeqCst);
        Some(BulkSlotGuard { slot: Arc::clone(self), what })
    }

    /// Whether a bulk transfer runs. While a bulk transfer runs, measurements of this host are
    /// *loaded*.
    pub(crate) fn is_taken(&self) -> bool {
        let taken = lock(&self.taken);
        taken.test || taken.prober || taken.served > 0
    }

    /// Number of transfers started so far.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }
}

impl Drop for BulkSlotGuard {
    fn drop(&mut self) {
        let mut taken = lock(&self.slot.taken);
        match self.what {
            BulkUse::Test => taken.test = false,
            BulkUse::Prober => taken.prober = false,
            BulkUse::Served => taken.served -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_test_runs_alone_and_a_served_transfer_may_run_beside_the_prober() {
        let slot = Arc::new(BulkSlot::default());
        let prober = slot.take(BulkUse::Prober).unwrap();
        assert!(slot.take(BulkUse::Prober).is_none() && slot.take(BulkUse::Test).is_none());
        let served = slot.take(BulkUse::Served).unwrap();
        drop(prober);
        assert!(slot.take(BulkUse::Test).is_none(), "the served transfer still runs");
        drop(served);
        let test = slot.take(BulkUse::Test).unwrap();
        for what in [BulkUse::Test, BulkUse::Prober, BulkUse::Served] {
            assert!(slot.take(what).is_none(), "{what:?} beside a test");
        }
        assert!(slot.is_taken());
        drop(test);
        assert!(!slot.is_taken());
        assert_eq!(slot.begun(), 3);
    }
}
