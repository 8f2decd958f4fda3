//! Live points, from the recorder to all subscribers; a slow subscriber receives the number of
//! points that it missed.

use std::sync::Arc;

use barograph_forecast::SeriesId;
use tokio::sync::broadcast;

use crate::forecast::series::{LEVELS, NextForecasts, SeriesPoint, SeriesState};

/// A new point of a series, with the forecast of the next value.
#[derive(Clone, Debug, PartialEq)]
pub struct PointEvent {
    /// Series of the point.
    pub series: SeriesId,
    /// The point, with the forecast issued for it.
    pub point: SeriesPoint,
    /// Forecasts of the next value.
    pub next: Option<NextForecasts>,
    /// Interval of the next value at each of [`LEVELS`].
    pub intervals: [Option<(f64, f64)>; LEVELS.len()],
}

impl PointEvent {
    /// Creates the event for `point`, which was just added to the state of `series`.
    #[must_use]
    pub fn new(series: &SeriesId, state: &SeriesState, point: SeriesPoint) -> Self {
        let intervals = LEVELS.map(|level| state.interval(level));
        Self { series: series.clone(), point, next: state.forecasts(), intervals }
    }
}

/// Publishes points to subscribers. Publishing never waits.
#[derive(Clone, Debug)]
pub struct PointHub {
    sender: broadcast::Sender<Arc<PointEvent>>,
}

impl PointHub {
    /// Creates a hub without subscribers.
    #[must_use]
    pub fn new() -> Self {
        Self { sender: broadcast::channel(EVENTS_KEPT).0 }
    }

    /// Sends `event` to every subscriber; without subscribers it is dropped.
    pub fn publish(&self, event: PointEvent) {
        // An error only means that there are no subscribers.
        let _ = self.sender.send(Arc::new(event));
    }

    /// Whether there is a subscriber.
    #[must_use]
    pub fn has_subscribers(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    /// Subscribes to all events from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<PointEvent>> {
        self.sender.subscribe()
    }
}

impl Default for PointHub {
    fn default() -> Self {
        Self::new()
    }
}

/// Maximum number of events by which a subscriber may lag before it misses events: more than a
/// posted batch of 1000.
const EVENTS_KEPT: usize = 1024;
