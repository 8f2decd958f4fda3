//! Keeps the rate from rising while the cause of losses is not known.

use std::time::Duration;

use super::{Controller, Delivery, FeedbackSample};

/// Holds a controller's rate and window while losses are without a verdict
/// ([`FeedbackSample::is_undecided`]): neither rises above its value at the first such feedback.
///
/// The controller itself learns of these losses when their cause is known. Until then, samples
/// count as limited by the sender if the hold limits the rate, so that the controller does not
/// raise a rate that is not used.
#[derive(Debug)]
pub struct UndecidedHold {
    inner: Box<dyn Controller>,
    held: Option<Held>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    rate_bytes_s: f64,
    window_bytes: u64,
}

impl UndecidedHold {
    pub fn new(inner: Box<dyn Controller>) -> Self {
        Self { inner, held: None }
    }

    fn present(&self) -> Held {
        Held { rate_bytes_s: self.inner.rate_bytes_s(), window_bytes: self.inner.window_bytes() }
    }

    fn is_holding(&self) -> bool {
        self.held.is_some_and(|held| {
            held.rate_bytes_s < self.inner.rate_bytes_s() || held.window_bytes < self.inner.window_bytes()
        })
    }
}

impl Controller for UndecidedHold {
    fn on_feedback(&mut self, now: Duration, seen: &FeedbackSample<'_>) {
        let is_holding = self.is_holding();
        let limited = |delivery: Delivery| Delivery {
            is_app_limited: delivery.is_app_limited || is_holding,
            ..delivery
        };
        self.inner.on_feedback(now, &FeedbackSample { delivery: seen.delivery.map(limited), ..*seen });
        // What was taken back may be regained.
        let before = self.held.filter(|_| seen.taken_back.is_empty());
        self.held = seen.is_undecided.then(|| before.unwrap_or_else(|| self.present()));
    }

    fn on_no_feedback(&mut self, now: Duration) {
        self.inner.on_no_feedback(now);
    }

    fn rate_bytes_s(&self) -> f64 {
        let rate = self.inner.rate_bytes_s();
        self.held.map_or(rate, |held| rate.min(held.rate_bytes_s))
    }

    fn window_bytes(&self) -> u64 {
        let window = self.inner.window_bytes();
        self.held.map_or(window, |held| window.min(held.window_bytes))
    }

    fn is_capped(&self) -> bool {
        self.inner.is_capped()
    }
}
