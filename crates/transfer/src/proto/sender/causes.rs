//! Causes of losses, and which losses the controller is called with.

use std::time::Duration;

use barograph_loss::Cause;

use crate::proto::controller::Loss;
use crate::proto::{Ear, Heard, Missing, Moment};

/// Counts losses by the cause that the [`Ear`] finds.
#[derive(Debug)]
pub(super) struct Causes {
    /// `None` if all losses count as network losses.
    ear: Option<Box<Ear>>,
    /// Runs of lost packets with a cause that became known just now.
    heard: Vec<Heard>,
    /// Losses not yet reported to the controller, and host losses since its last call.
    losses: Vec<Loss>,
    host_untold: u64,
    /// Packets settled so far, without host losses.
    settled: u64,
    /// Host losses so far: those that did not arrive later, and all that were reported. It is below
    /// 0 only within `listen`, where a claim may be taken back before it is counted.
    host: i64,
    host_told: i64,
    /// End of the last reported run of losses, in the count of
    /// [`Seen::settled_packets`](crate::proto::controller::Seen).
    losses_end: u64,
    pub(super) network: u64,
    pub(super) unknown: u64,
}

impl Causes {
    pub(super) fn new(has_ear: bool) -> Self {
        Self {
            ear: has_ear.then(Box::default),
            heard: Vec::new(),
            losses: Vec::new(),
            host_untold: 0,
            settled: 0,
            host: 0,
            host_told: 0,
            losses_end: 0,
            network: 0,
            unknown: 0,
        }
    }

    /// Counts an acknowledged packet that was not declared lost before.
    pub(super) fn ack(&mut self) {
        self.settled += 1;
    }

    pub(super) fn lose(&mut self, moment: Moment, missing: Missing) {
        match &mut self.ear {
            Some(ear) => ear.lose(moment, missing, &mut self.heard),
            None => self.heard.push(Heard { missing, cause: Cause::Network, is_taken_back: false }),
        }
    }

    /// Counts an acknowledged packet of `bytes` that was declared lost before.
    pub(super) fn find(&mut self, index: u64, bytes: u64) {
        let told = match &mut self.ear {
            Some(ear) => ear.find(index, bytes),
            None => Some(Cause::Network),
        };
        // A network loss was counted already; any other packet is counted now.
        match told {
            Some(Cause::Network | Cause::Unknown) => {}
            Some(Cause::Host) => {
                self.settled += 1;
                self.host = self.host.saturating_sub(1).max(0);
            }
            None => self.settled += 1,
        }
    }

    /// Counts the losses with a cause that is known by now. Packets below `decided` arrived or were
    /// declared lost.
    pub(super) fn listen(&mut self, moment: Moment, decided: u64) {
        if let Some(ear) = &mut self.ear {
            ear.listen(moment, decided, &mut self.heard);
        }
        let mut heard = std::mem::take(&mut self.heard);
        heard.sort_unstable_by_key(|heard| heard.missing.index);
        heard.drain(..).for_each(|heard| self.count(&heard));
        self.heard = heard;
        self.host = self.host.max(0);
    }

    fn count(&mut self, heard: &Heard) {
        let (missing, packets) = (&heard.missing, u64::from(heard.missing.packets));
        if heard.is_taken_back {
            self.host_told -= i64::from(missing.packets);
            self.host -= i64::from(missing.packets);
        }
        match heard.cause {
            Cause::Host => {
                self.host_told += i64::from(missing.packets);
                self.host += i64::from(missing.packets);
                self.host_untold += packets;
                return;
            }
            Cause::Network => self.network += packets,
            Cause::Unknown => self.unknown += packets,
        }
        self.settled += packets;
        // The position is the index minus the host losses before it; not before the end of the last
        // reported run, and not after what is settled.
        let at = missing.index.saturating_sub(u64::try_from(self.host).unwrap_or(0));
        let at = at.min(self.settled.saturating_sub(packets)).max(self.losses_end);
        self.losses_end = at + packets;
        self.losses.push(Loss {
            at,
            packets: missing.packets,
            bytes: missing.bytes,
            sent: missing.sent,
            in_flight_bytes: missing.in_flight_bytes,
        });
    }

    /// Packets settled so far, without host losses.
    pub(super) fn settled(&self) -> u64 {
        self.settled
    }

    /// Host losses reported so far.
    pub(super) fn host(&self) -> u64 {
        u64::try_from(self.host_told).unwrap_or(0)
    }

    /// What to report to the controller: losses, and the number of host losses.
    pub(super) fn untold(&self) -> (&[Loss], u64) {
        (&self.losses, self.host_untold)
    }

    /// Clears what was reported to the controller.
    pub(super) fn told(&mut self) {
        self.losses.clear();
        self.host_untold = 0;
    }

    pub(super) fn due(&self) -> Option<Duration> {
        self.ear.as_ref()?.due()
    }

    pub(super) fn looks(&self) -> u64 {
        self.ear.as_ref().map_or(0, |ear| ear.looks())
    }
}
