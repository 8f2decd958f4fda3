//! Which losses were the network's: the classifier beside the transfer.

mod window;

use std::sync::OnceLock;
use std::time::Duration;

use barograph_loss::{Cause, Classifier};

use self::window::{Gap, Told, Window};
use crate::proto::wire::Evidence;

/// Listens to what became of packets and tells the cause of losses.
///
/// Packets are counted by index: how many were sent before. What the receiver's kernel counted is used at once. Other losses wait for a look at the
/// window of the last [`Ear::WINDOW_PACKETS`] packets, half a round trip and at most one after the last, so that a pattern is seen in them; a run of
/// them that came after all by then is told to nobody. One look takes 4 to 40 µs, by how many runs there are, and there is one in a round trip, or in a window where more
/// than that travel in a round trip, and none without losses. Nothing is allocated once the window has been as lossy as it gets.
#[derive(Clone, Debug)]
pub struct Ear {
    classifier: Classifier,
    window: Window,
    /// The receiver's claims are used at once: the last look did not contradict them.
    trusts: bool,
    /// When a look is due, if something waits for it.
    due: Option<Duration>,
    looked: Option<Duration>,
    /// Nothing below waits for a cause.
    waits_from: Option<u64>,
    looks: u64,
}

/// A run of packets that was taken for lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Missing {
    pub index: u64,
    pub packets: u32,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// When the first was sent.
    pub sent: Duration,
    /// Bytes under way then.
    pub in_flight_bytes: u64,
    /// What the receiver knows of it.
    pub evidence: Evidence,
}

/// Who lost a run of packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heard {
    pub missing: Missing,
    pub cause: Cause,
    /// They were told to be the host's, by a claim that is not believed any more.
    pub is_taken_back: bool,
}

/// What the time and the path are when an ear listens.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub now: Duration,
    pub rtt: Duration,
    /// Packets that are sent at once.
    pub burst: u32,
}

impl Default for Ear {
    fn default() -> Self {
        // Reading the model takes longer than to send a small object.
        static SHIPPED: OnceLock<Classifier> = OnceLock::new();
        Self::new(SHIPPED.get_or_init(Classifier::shipped).clone())
    }
}

impl Ear {
    /// The longest window that the classifier was fitted on and that a transfer fills soon: 20 000 packets (`docs/spec/classify.md`).
    pub const WINDOW_PACKETS: u64 = 20_000;

    pub fn new(classifier: Classifier) -> Self {
        Self {
            classifier,
            window: Window::default(),
            trusts: true,
            due: None,
            looked: None,
            waits_from: None,
            looks: 0,
        }
    }

    /// A run of packets was taken for lost; those before it are decided, and it is not below any told before.
    ///
    /// `heard` gets those whose cause is known now.
    pub fn lose(&mut self, moment: Moment, missing: Missing, heard: &mut Vec<Heard>) {
        if self.waits_from.is_some_and(|index| index + Self::WINDOW_PACKETS < missing.index) {
            // It would leave the window unheard.
            self.look(moment, missing.index, heard);
        }
        self.window.trim(missing.index.saturating_sub(Self::WINDOW_PACKETS), heard);
        let (told, cause) = match missing.evidence.host_drops {
            Some(false) => (Told::Network, Some(Cause::Network)),
            Some(true) if self.trusts => (Told::Claimed, Some(Cause::Host)),
            Some(true) | None => (Told::Nothing, None),
        };
        self.window.push(Gap { missing, told });
        if told == Told::Nothing {
            self.waits_from = self.waits_from.or(Some(missing.index));
        }
        heard.extend(cause.map(|cause| Heard { missing, cause, is_taken_back: false }));
        if told != Told::Network {
            let soonest = moment.now + moment.rtt / 2;
            let at = self.looked.map_or(soonest, |looked| soonest.max(looked + moment.rtt));
            self.due = Some(self.due.map_or(at, |due| due.min(at)));
        }
    }

    /// A packet of `bytes` came that had been taken for lost: whose its loss was said to be, if it was told; unknown where that is forgotten.
    pub fn find(&mut self, index: u64, bytes: u64) -> Option<Cause> {
        self.window.find(index, bytes)
    }

    /// Looks at the window if it is time to; packets below `decided` came or were lost.
    pub fn listen(&mut self, moment: Moment, decided: u64, heard: &mut Vec<Heard>) {
        if self.due.is_some_and(|due| due <= moment.now) {
            self.look(moment, decided, heard);
        }
    }

    /// When it wants to listen next.
    pub fn due(&self) -> Option<Duration> {
        self.due
    }

    /// How often it looked.
    pub fn looks(&self) -> u64 {
        self.looks
    }

    fn look(&mut self, moment: Moment, decided: u64, heard: &mut Vec<Heard>) {
        (self.due, self.looked, self.waits_from) = (None, Some(moment.now), None);
        self.window.trim(decided.saturating_sub(Self::WINDOW_PACKETS), heard);
        if self.window.is_settled() {
            return;
        }
        self.looks += 1;
        if let Some(is_disbelieved) = self.window.judge(&self.classifier, decided, moment.burst, heard) {
            self.trusts = !is_disbelieved;
        }
    }
}

#[cfg(test)]
mod tests;
