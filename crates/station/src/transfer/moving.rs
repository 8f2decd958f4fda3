//! Detects whether a transfer moves bytes: only while bytes move, it needs the host's slot for bulk
//! transfers. Pure.

use std::time::{Duration, Instant};

use barograph_transfer::io::Event;

/// Progress of one transfer, from its events.
#[derive(Debug, Default)]
pub(super) struct Moving {
    /// Bytes of the object that the receiver has.
    there_bytes: u64,
    /// When the transfer began or `there_bytes` last grew; `None` while no bytes are expected.
    grew: Option<Instant>,
}

impl Moving {
    /// Applies an event that arrives at `now`.
    pub(super) fn on_event(&mut self, event: &Event, now: Instant) {
        match event {
            Event::Begun { bytes, held_bytes, .. } => {
                self.there_bytes = *held_bytes;
                self.grew = (held_bytes < bytes).then_some(now);
            }
            Event::Progress(seen) if self.there_bytes < seen.held_bytes => {
                self.there_bytes = seen.held_bytes;
                self.grew = Some(now);
            }
            // All bytes have arrived. Both ends now read their disks, for as long as that takes.
            Event::Verifying => self.grew = None,
            _ => {}
        }
    }

    pub(super) fn is_moving(&self, now: Instant) -> bool {
        self.grew.is_some_and(|at| now.saturating_duration_since(at) < STILL_MAX)
    }
}

/// Time without progress after which a transfer does not load the host. It covers two probes after
/// an outage (RFC 9002 §6.2.4: the timeout doubles, from about 1 s without a measured round trip).
const STILL_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use barograph_transfer::io::FlowProgress;

    use super::*;

    fn begun(bytes: u64, held_bytes: u64) -> Event {
        Event::Begun { files: 1, bytes, held_bytes }
    }

    fn progress(held_bytes: u64) -> Event {
        Event::Progress(FlowProgress { held_bytes, ..FlowProgress::default() })
    }

    #[test]
    fn a_transfer_needs_the_place_while_its_bytes_grow() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let mut moving = Moving::default();
        assert!(!moving.is_moving(began), "it has not begun");
        moving.on_event(&begun(100, 0), began);
        assert!(moving.is_moving(after(4)) && !moving.is_moving(after(5)));
        moving.on_event(&progress(0), after(6));
        assert!(!moving.is_moving(after(6)), "the other end says nothing but that it is there");
        moving.on_event(&progress(40), after(7));
        moving.on_event(&progress(40), after(11));
        assert!(moving.is_moving(after(11)) && !moving.is_moving(after(12)));
        moving.on_event(&progress(100), after(20));
        assert!(moving.is_moving(after(20)));
        moving.on_event(&Event::Verifying, after(20));
        assert!(!moving.is_moving(after(20)), "nothing is on its way any more");
    }

    #[test]
    fn a_transfer_whose_bytes_are_all_there_needs_no_place() {
        let mut moving = Moving::default();
        let now = Instant::now();
        moving.on_event(&begun(100, 100), now);
        assert!(!moving.is_moving(now));
        moving.on_event(&progress(100), now);
        assert!(!moving.is_moving(now));
    }
}
