//! Who lost the packets that were lost, and which losses the controller is told of.

use std::time::Duration;

use barograph_loss::Cause;

use crate::proto::controller::Loss;
use crate::proto::{Ear, Heard, Missing, Moment};

/// Counts whose the losses were, as the [`Ear`] says.
#[derive(Debug)]
pub(super) struct Causes {
    /// `None` where all losses count as the network's.
    ear: Option<Box<Ear>>,
    /// Runs of lost packets whose cause became known just now.
    heard: Vec<Heard>,
    /// Losses that the controller was not told of yet, and how many packets the host lost since it was told last.
    losses: Vec<Loss>,
    host_untold: u64,
    /// Packets settled that are not the host's, so far.
    settled: u64,
    /// Packets lost by the host, so far: those that did not come after all, and all that were told. Below 0 amid what the ear says, where a
    /// claim is taken back before it is read.
    host: i64,
    host_told: i64,
    /// Where the last run of losses that was told ends, in the count of [`Seen::settled_packets`](crate::proto::controller::Seen).
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

    /// A packet was acknowledged that had not been taken for lost.
    pub(super) fn ack(&mut self) {
        self.settled += 1;
    }

    /// A run of packets was taken for lost.
    pub(super) fn lose(&mut self, moment: Moment, missing: Missing) {
        match &mut self.ear {
            Some(ear) => ear.lose(moment, missing, &mut self.heard),
            None => self.heard.push(Heard { missing, cause: Cause::Network, is_taken_back: false }),
        }
    }

    /// A packet of so many bytes was acknowledged that had been taken for lost.
    pub(super) fn find(&mut self, index: u64, bytes: u64) {
        let told = match &mut self.ear {
            Some(ear) => ear.find(index, bytes),
            None => Some(Cause::Network),
        };
        // A loss of the network's was counted already; otherwise it is now.
        match told {
            Some(Cause::Network | Cause::Unknown) => {}
            Some(Cause::Host) => {
                self.settled += 1;
                self.host = self.host.saturating_sub(1).max(0);
            }
            None => self.settled += 1,
        }
    }

    /// Counts the losses whose cause is known by now; packets below `decided` came or were lost.
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
        // By its index, less what the host lost before it; never before the run that was told last, nor after what is settled.
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

    /// Packets settled that are not the host's, so far.
    pub(super) fn settled(&self) -> u64 {
        self.settled
    }

    /// Packets lost by the host, so far.
    pub(super) fn host(&self) -> u64 {
        u64::try_from(self.host_told).unwrap_or(0)
    }

    /// What the controller is to be told: losses, and how many packets the host lost beside them.
    pub(super) fn untold(&self) -> (&[Loss], u64) {
        (&self.losses, self.host_untold)
    }

    /// The controller was told.
    pub(super) fn told(&mut self) {
        self.losses.clear();
        self.host_untold = 0;
    }

    /// When the classifier looks at the window next, if it has a reason to.
    pub(super) fn due(&self) -> Option<Duration> {
        self.ear.as_ref()?.due()
    }

    /// How often the classifier looked at the window.
    pub(super) fn looks(&self) -> u64 {
        self.ear.as_ref().map_or(0, |ear| ear.looks())
    }
}
