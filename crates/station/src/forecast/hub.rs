//! Live points, from the recorder to everyone who watches; a slow watcher is told what it missed.

use std::sync::Arc;

use barograph_forecast::Series;
use tokio::sync::broadcast;

use crate::forecast::bank::{Account, LEVELS, Next, Point};

/// A point of some series, with the forecast of the one after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Which series.
    pub series: Series,
    /// The point and what had been expected of it.
    pub point: Point,
    /// The forecast of the next.
    pub next: Option<Next>,
    /// The next value's interval at each of [`LEVELS`].
    pub intervals: [Option<(f64, f64)>; LEVELS.len()],
}

impl Event {
    /// What watchers are told when `point` was added to the account of a series.
    #[must_use]
    pub fn new(series: &Series, account: &Account, point: Point) -> Self {
        let intervals = LEVELS.map(|level| account.interval(level));
        Self { series: series.clone(), point, next: account.next(), intervals }
    }
}

/// Where points are published. Publishing never waits.
#[derive(Clone, Debug)]
pub struct Hub {
    sender: broadcast::Sender<Arc<Event>>,
}

impl Hub {
    /// A hub that nobody watches yet.
    #[must_use]
    pub fn new() -> Self {
        Self { sender: broadcast::channel(EVENTS_KEPT).0 }
    }

    /// Gives `event` to every watcher; without watchers it costs nothing.
    pub fn publish(&self, event: Event) {
        // An error only says that nobody watches.
        let _ = self.sender.send(Arc::new(event));
    }

    /// Whether anyone watches.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        0 < self.sender.receiver_count()
    }

    /// Watches from now on.
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

/// A watcher may lag by so many points before it misses some: a full posted batch of 1000.
const EVENTS_KEPT: usize = 1024;
