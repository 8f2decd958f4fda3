//! State of the receiver's reports so far. A report is one datagram of feedback.

use crate::proto::wire::Totals;

/// Number, totals and echo of the newest report.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reports {
    number: Option<u64>,
    totals: Totals,
    /// The packet number echoed last.
    echoed: Option<u64>,
}

impl Reports {
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// Whether a report with this number is newer than all earlier reports.
    pub(super) fn is_newer(&self, number: u64) -> bool {
        self.number.is_none_or(|newest| newest < number)
    }

    /// Whether any of the totals of a newer report is less than in the report before, which an
    /// honest receiver never sends.
    pub(super) fn are_less(&self, new: &Totals) -> bool {
        let old = &self.totals;
        new.packets < old.packets || new.bytes < old.bytes || new.marked < old.marked
    }

    /// Stores the checked totals of a newer report. Returns how many more packets were marked.
    pub(super) fn store_totals(&mut self, totals: Totals) -> u64 {
        totals.marked - std::mem::replace(&mut self.totals, totals).marked
    }

    /// Stores the number of a newer report. Returns whether this number directly follows the number
    /// of the newest report before.
    pub(super) fn store_number(&mut self, number: u64) -> bool {
        self.number.replace(number).is_some_and(|before| before.checked_add(1) == Some(number))
    }

    /// Stores the number of an echoed packet. Returns true if the last echo was for a different
    /// packet.
    pub(super) fn store_echo(&mut self, packet: u64) -> bool {
        self.echoed.replace(packet) != Some(packet)
    }
}
