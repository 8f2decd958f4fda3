//! How long a line is good for. Pure.

use std::time::{Duration, Instant};

use barograph_api::{Transfer, TransferState};

/// When a line that nobody uses ends: it is no open door for ever.
#[derive(Debug)]
pub(super) struct Expiry {
    /// `None` while a sender is at work.
    at: Option<Instant>,
}

impl Expiry {
    /// Of a line that is given out at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self { at: Some(now + WAITS) }
    }

    pub(super) fn on_begun(&mut self) {
        self.at = None;
    }

    /// It failed, and may come again.
    pub(super) fn on_failed(&mut self, now: Instant) {
        self.at = Some(now + WAITS);
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.at.is_some_and(|at| at <= now)
    }
}

/// Says so of a transfer, and what went wrong before.
pub(super) fn expire(row: &mut Transfer) {
    let before = row.why.take().map(|why| format!("; before: {why}"));
    row.state = TransferState::Expired;
    row.why = Some(format!("nobody came in {} min{}", WAITS.as_secs() / 60, before.unwrap_or_default()));
}

/// If nobody comes, or comes again after a failure: two people and a paste.
const WAITS: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_ten_minutes_after_somebody_might_have_used_it() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let mut expiry = Expiry::new(began);
        assert!(!expiry.is_over(began) && !expiry.is_over(after(599)) && expiry.is_over(after(600)));
        // As long as a transfer takes.
        expiry.on_begun();
        assert!(!expiry.is_over(after(90_000)));
        expiry.on_failed(after(90_000));
        assert!(!expiry.is_over(after(90_599)) && expiry.is_over(after(90_600)));
    }

    #[test]
    fn what_expired_says_so_and_what_went_wrong_before() {
        let mut row = super::super::log::begun("1".into(), "receiver", 0.0, None);
        expire(&mut row);
        assert_eq!((row.state, row.why.as_deref()), (TransferState::Expired, Some("nobody came in 10 min")));
        assert!(row.state.is_ended());
        row.why = Some("the sender is gone".into());
        expire(&mut row);
        assert_eq!(row.why.as_deref(), Some("nobody came in 10 min; before: the sender is gone"));
    }
}
