//! Detects requests that may be old: this process stood still, or its connection did.
//!
//! A station may have been withdrawn since it sent such a request, so the archive must not execute
//! the request. The time cannot be part of the request, because the sender would choose it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep};

use super::super::connection::NatsConnection;

/// Bounds the age of the requests that arrive on subscriptions.
///
/// The archive regularly sends a message to itself. A server delivers messages of one connection in
/// order, so requests that arrive after this message were not sent long before it. If this message
/// arrives late, or the archive does not send it in time, requests that wait may be older.
pub(super) struct Freshness {
    connection: Arc<NatsConnection>,
    /// When the subscriptions began, or when the newest message that arrived was sent.
    sent: Moment,
    next: Pin<Box<dyn Future<Output = Moment> + Send>>,
}

impl Freshness {
    /// Begins; call this before the subscriptions begin.
    pub(super) fn new(connection: &Arc<NatsConnection>) -> Self {
        let connection = Arc::clone(connection);
        Self { sent: Moment::now(), next: Box::pin(message(Arc::clone(&connection))), connection }
    }

    /// Returns whether a request that arrives now is new.
    pub(super) fn is_fresh(&self) -> bool {
        self.sent.age() <= self.connection.config.deadline * DEADLINES
    }

    /// Waits for the next message of the archive to itself. Returns whether requests that arrived
    /// before this message are new. The wait may be dropped and started again.
    pub(super) async fn confirm(&mut self) -> bool {
        let sent = self.next.as_mut().await;
        let is_fresh = self.is_fresh();
        self.sent = sent;
        self.next = Box::pin(message(Arc::clone(&self.connection)));
        is_fresh
    }
}

/// Sends messages to this archive, after a pause, until one arrives. Returns when that message was
/// sent.
async fn message(connection: Arc<NatsConnection>) -> Moment {
    loop {
        sleep(connection.config.deadline / 5).await;
        let sent = Moment::now();
        // Servers with an older configuration deny this message. With that configuration, stations
        // write by themselves.
        if connection.has_outdated_responses() || connection.reach_itself().await {
            return sent;
        }
    }
}

/// A time on two clocks. One is never set, and does not count the time in which the computer is
/// suspended; the other counts it.
#[derive(Clone, Copy, Debug)]
struct Moment {
    monotonic: Instant,
    wall: SystemTime,
}

impl Moment {
    fn now() -> Self {
        Self { monotonic: Instant::now(), wall: SystemTime::now() }
    }

    fn age(self) -> Duration {
        self.monotonic.elapsed().max(self.wall.elapsed().unwrap_or_default())
    }
}

/// Largest age of a request that is executed, in deadlines of a request: stations wait for one
/// deadline, and a loaded computer may need as long again for the archive's own message.
const DEADLINES: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_counts_the_time_of_a_suspended_computer() {
        let hour = Duration::from_secs(3600);
        let now = Moment::now();
        assert!(now.age() < hour);
        assert!(hour <= Moment { wall: now.wall - hour, ..now }.age(), "the computer was suspended");
        assert!(Moment { wall: now.wall + hour, ..now }.age() < hour, "the clock was set back");
    }
}
