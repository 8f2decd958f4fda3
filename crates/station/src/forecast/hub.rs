//! Live points, from the recorder to all subscribers; a slow subscriber receives the number of
//! points that it missed.

use std::sync::Arc;

use barograph_forecast::Series;
use tokio::sync::broadcast;

use crate::forecast::bank::{Account, LEVELS, Next, Point};

/// A new point of a series, with the forecast of the next value.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Series of the point.
    pub series: Series,
    /// The point, with the forecast issued for it.
    pub point: Point,
    /// Forecasts of the next value.
    pub next: Option<Next>,
    /// Interval of the next value at each of [`LEVELS`].
    pub intervals: [Option<(f64, f64)>; LEVELS.len()],
}

impl Event {
    /// Creates the event for `point`, which was just added to the account of `series`.
    #[must_use]
    pub fn new(series: &Series, account: &Account, point: Point) -> Self {
        let intervals = LEVELS.map(|level| account.interval(level));
        Self { series: series.clone(), point, next: account.next(), intervals }
    }
}

/// Publishes points to subscribers. Publishing never waits.
#[derive(Clone, Debug)]
pub struct Hub {
    sender: broadcast::Sender<Arc<Event>>,
}

impl Hub {
    /// Creates a hub without subscribers.
    #[must_use]
    pub fn new() -> Self {
        Self { sender: broadcast::channel(EVENTS_KEPT).0 }
    }

    /// Sends `event` to every subscriber; without subscribers it is dropped.
    pub fn publish(&self, event: Event) {
        // An error only means that there are no subscribers.
        let _ = self.sender.send(Arc::new(event));
    }

    /// Whether there is a subscriber.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        0 < self.sender.receiver_count()
    }

    /// Subscribes to all events from now on.
    #[must_use]
    pub fn watch(&self) -> broadcast::Receiver<Arc<Event>> {
        self.sender.subscribe()
    }
}

impl Default for Hub {
    fn default() -> Self {
        Self::new()
    }
}

/// Events that a subscriber may lag behind before it misses some: more than a posted batch of 1000.
const EVENTS_KEPT: usize = 1024;
