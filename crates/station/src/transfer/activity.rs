//! Detects whether a transfer moves bytes: a transfer needs the host's slot for bulk transfers only
//! while bytes move. Pure.

use std::time::{Duration, Instant};

use barograph_transfer::io::TransferEvent;

/// Progress of one transfer, from its events.
#[derive(Debug, Default)]
pub(super) struct TransferActivity {
    /// Bytes of the object that the receiver has.
    held_bytes: u64,
    /// Time at which the transfer began or `held_bytes` last increased; `None` while no bytes are
    /// expected.
    last_growth: Option<Instant>,
}

impl TransferActivity {
    /// Applies an event that arrives at `now`.
    pub(super) fn on_event(&mut self, event: &TransferEvent, now: Instant) {
        match event {
            TransferEvent::Begun { bytes, held_bytes, .. } => {
                self.held_bytes = *held_bytes;
                self.last_growth = (held_bytes < bytes).then_some(now);
            }
            TransferEvent::Progress(seen) if self.held_bytes < seen.held_bytes => {
                self.held_bytes = seen.held_bytes;
                self.last_growth = Some(now);
            }
            // All bytes have arrived. Both ends now read their disks, for as long as that takes.
            TransferEvent::Verifying => self.last_growth = None,
            _ => {}
        }
    }

    pub(super) fn is_moving(&self, now: Instant) -> bool {
        self.last_growth.is_some_and(|at| now.saturating_duration_since(at) < STILL_MAX)
    }
}

/// Time without progress after which a transfer counts as not loading the host. After an outage,
/// two probe timeouts fit into this time. The first timeout is about 1 s without a measured round
/// trip, and each further timeout is twice as long (RFC 9002 §6.2.4).
const STILL_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use barograph_transfer::io::FlowProgress;

    use super::*;

    fn begun(bytes: u64, held_bytes: u64) -> TransferEvent {
        TransferEvent::Begun { files: 1, bytes, held_bytes }
    }

    fn progress(held_bytes: u64) -> TransferEvent {
        TransferEvent::Progress(FlowProgress { held_bytes, ..FlowProgress::default() })
    }

    #[test]
    fn a_transfer_needs_the_slot_while_its_bytes_grow() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let mut activity = TransferActivity::default();
        assert!(!activity.is_moving(began), "it has not begun");
        activity.on_event(&begun(100, 0), began);
        assert!(activity.is_moving(after(4)) && !activity.is_moving(after(5)));
        activity.on_event(&progress(0), after(6));
        assert!(!activity.is_moving(after(6)), "the other end says nothing but that it is there");
        activity.on_event(&progress(40), after(7));
        activity.on_event(&progress(40), after(11));
        assert!(activity.is_moving(after(11)) && !activity.is_moving(after(12)));
        activity.on_event(&progress(100), after(20));
        assert!(activity.is_moving(after(20)));
        activity.on_event(&TransferEvent::Verifying, after(20));
        assert!(!activity.is_moving(after(20)), "nothing is on its way any more");
    }

    #[test]
    fn a_transfer_whose_bytes_have_all_arrived_needs_no_slot() {
        let mut activity = TransferActivity::default();
        let now = Instant::now();
        activity.on_event(&begun(100, 100), now);
        assert!(!activity.is_moving(now));
        activity.on_event(&progress(100), now);
        assert!(!activity.is_moving(now));
    }
}
