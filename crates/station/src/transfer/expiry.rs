//! Expiry of a receiver address. Pure.

use std::time::{Duration, Instant};

use barograph_api::{Transfer, TransferState};

/// Expiry of an unused receiver address. An unused address must not be valid for ever.
#[derive(Debug)]
pub(super) struct Expiry {
    /// Time of expiry; `None` while a sender is connected.
    at: Option<Instant>,
}

impl Expiry {
    /// Expiry of a receiver address that was issued at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self { at: Some(now + WAITS) }
    }

    pub(super) fn on_begun(&mut self) {
        self.at = None;
    }

    /// The transfer failed, and its sender may connect again.
    pub(super) fn on_failed(&mut self, now: Instant) {
        self.at = Some(now + WAITS);
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.at.is_some_and(|at| at <= now)
    }
}

/// Marks a transfer as expired, and keeps its earlier error.
pub(super) fn expire(row: &mut Transfer) {
    let before = row.why.take().map(|why| format!("; earlier error: {why}"));
    row.state = TransferState::Expired;
    row.why = Some(format!(
        "no sender connected within {} min{}",
        WAITS.as_secs() / 60,
        before.unwrap_or_default()
    ));
}

/// Time after which a receiver address expires if no sender connects. The time begins when the
/// address is issued, and again after a failed transfer. This time is long enough for two people to
/// exchange the address.
const WAITS: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_expires_ten_minutes_after_it_was_last_usable() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let mut expiry = Expiry::new(began);
        assert!(!expiry.is_over(began) && !expiry.is_over(after(599)) && expiry.is_over(after(600)));
        // A running transfer does not expire.
        expiry.on_begun();
        assert!(!expiry.is_over(after(90_000)));
        expiry.on_failed(after(90_000));
        assert!(!expiry.is_over(after(90_599)) && expiry.is_over(after(90_600)));
    }

    #[test]
    fn an_expired_transfer_reports_the_expiry_and_the_earlier_error() {
        let mut row = super::super::log::begun("1".into(), "receiver", 0.0, None);
        expire(&mut row);
        assert_eq!(
            (row.state, row.why.as_deref()),
            (TransferState::Expired, Some("no sender connected within 10 min"))
        );
        assert!(row.state.is_ended());
        row.why = Some("the sender is gone".into());
        expire(&mut row);
        assert_eq!(
            row.why.as_deref(),
            Some("no sender connected within 10 min; earlier error: the sender is gone")
        );
    }
}
