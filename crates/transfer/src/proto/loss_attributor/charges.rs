//! Losses that were charged to the controller, and that a later verdict may take back.

use std::collections::VecDeque;

use super::UnattributedLoss;
use crate::proto::controller::DetectedLossRun;

/// A run of losses that was charged to the controller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    /// Index of the run's first packet.
    pub(super) index: u64,
    /// The run as the controller received it, moved by all runs before it that were taken back.
    pub(super) run: DetectedLossRun,
}

impl Charge {
    fn end(&self) -> u64 {
        self.index + u64::from(self.run.packets)
    }

    fn contains(&self, index: u64) -> bool {
        self.index <= index && index < self.end()
    }

    /// The part of the run that begins after `skipped` packets and has `packets` packets.
    fn part(&self, skipped: u32, packets: u32) -> Self {
        let bytes = self.run.bytes * u64::from(packets) / u64::from(self.run.packets.max(1));
        let at = self.run.at + u64::from(skipped);
        Self {
            index: self.index + u64::from(skipped),
            run: DetectedLossRun { at, packets, bytes, ..self.run },
        }
    }
}

/// Charged runs, in the order of their positions.
#[derive(Debug, Default)]
pub(super) struct Charges {
    charges: VecDeque<Charge>,
}

impl Charges {
    pub(super) fn push(&mut self, charge: Charge) {
        self.charges.push_back(charge);
    }

    /// Whether the packet at this index is charged.
    pub(super) fn contains(&self, index: u64) -> bool {
        self.charges.iter().rev().any(|charge| charge.contains(index))
    }

    /// Forgets the first runs, as far as they lie below this index.
    pub(super) fn forget_below(&mut self, index: u64) {
        while self.charges.front().is_some_and(|charge| charge.end() <= index) {
            self.charges.pop_front();
        }
    }

    /// Removes the packets of `missing` from their charged run, and moves all later runs. Returns
    /// what was removed; `None` if these packets were not charged.
    pub(super) fn take_back(&mut self, missing: &UnattributedLoss) -> Option<Charge> {
        let position = self.charges.iter().rposition(|charge| charge.contains(missing.index))?;
        let charge = self.charges.remove(position)?;
        // The cast loses nothing: the index lies within a run, and lengths of runs fit 32 bits.
        let before = (missing.index - charge.index) as u32;
        let packets = missing.packets.min(charge.run.packets - before);
        let after = charge.run.packets - before - packets;
        let taken = charge.part(before, packets);
        if after > 0 {
            self.charges.insert(position, charge.part(before + packets, after));
        }
        for later in self.charges.range_mut(position..) {
            later.run.at -= u64::from(packets);
        }
        if before > 0 {
            self.charges.insert(position, charge.part(0, before));
        }
        Some(taken)
    }
}
