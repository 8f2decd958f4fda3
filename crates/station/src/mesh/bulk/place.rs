//! The host's single slot for bulk transfers, shared by tests of the mesh, the prober, and
//! transfers for callers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::sync::lock;

/// Records which bulk transfers run on this host, and keeps tests apart: two at once would distort
/// each other's results.
#[derive(Debug, Default)]
pub(crate) struct Place {
    taken: Mutex<Taken>,
    begun: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    test: bool,
    own: bool,
    guests: u32,
}

/// Purpose for which the slot is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// A test with a peer, as source or target; runs alone.
    Test,
    /// A transfer of the prober, to or from a target that the owner added.
    Own,
    /// A transfer that the responder serves to a caller on this host or with the owner's token,
    /// which may be this host's prober; or a transfer of files.
    Guest,
}

/// Permission to use the slot; releases the slot when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    place: Arc<Place>,
    what: Use,
}

impl Place {
    /// Takes the slot if it is free for this purpose.
    pub(crate) fn take(self: &Arc<Self>, what: Use) -> Option<Held> {
        let mut taken = lock(&self.taken);
        let is_free = match what {
            Use::Test => !taken.test && !taken.own && taken.guests == 0,
            Use::Own => !taken.test && !taken.own,
            Use::Guest => !taken.test,
        };
        if !is_free {
            return None;
        }
        match what {
            Use::Test => taken.test = true,
            Use::Own => taken.own = true,
            Use::Guest => taken.guests += 1,
        }
        self.begun.fetch_add(1, Ordering::SeqCst);
        Some(Held { place: Arc::clone(self), what })
    }

    /// Whether a bulk transfer runs. Measurements of this host are then *loaded*.
    pub(crate) fn is_taken(&self) -> bool {
        let taken = lock(&self.taken);
        taken.test || taken.own || 0 < taken.guests
    }

    /// Number of transfers started so far.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut taken = lock(&self.place.taken);
        match self.what {
            Use::Test => taken.test = false,
            Use::Own => taken.own = false,
            Use::Guest => taken.guests -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_test_is_alone_and_a_guest_may_be_the_prober() {
        let place = Arc::new(Place::default());
        let own = place.take(Use::Own).unwrap();
        assert!(place.take(Use::Own).is_none() && place.take(Use::Test).is_none());
        let guest = place.take(Use::Guest).unwrap();
        drop(own);
        assert!(place.take(Use::Test).is_none(), "the guest is still there");
        drop(guest);
        let test = place.take(Use::Test).unwrap();
        for what in [Use::Test, Use::Own, Use::Guest] {
            assert!(place.take(what).is_none(), "{what:?} beside a test");
        }
        assert!(place.is_taken());
        drop(test);
        assert!(!place.is_taken());
        assert_eq!(place.begun(), 3);
    }
}
