//! Where measurements are handed in, and what is answered.

use std::sync::Arc;
use std::time::Duration;

use barograph_engine::Record;
use barograph_forecast::Name;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::ORIGINS_MAX;
use crate::forecast::bank::Measured;
use crate::health::Health;
use crate::limits::Limit;

/// Where measurements are handed in; clones share the recorder.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    sender: mpsc::Sender<Message>,
    health: Arc<Health>,
}

/// A record that somebody handed in; without an identity it is this station's own.
#[derive(Clone, Debug)]
pub(crate) struct Fed {
    pub(crate) measured: Measured,
    pub(crate) identity: Option<(Name, u64)>,
    /// The time was given; else it is when the record came in, and says nothing of its content.
    pub(crate) time_given: bool,
}

/// Why records that were handed in were not stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FeedError {
    #[error("the archive takes no records now: {0}")]
    Unavailable(String),
    #[error("the station is stopping")]
    Stopping,
    #[error("{0}")]
    Invalid(String),
    #[error("record {seq} of `{origin}` is there already with another content")]
    Conflict { origin: Name, seq: u64 },
    #[error("more than {ORIGINS_MAX} origins have handed in records")]
    TooManyOrigins,
    #[error("it is not known whether they were stored")]
    Unknown,
}

pub(super) enum Message {
    Own(Measured),
    Feed { records: Vec<Fed>, answer: oneshot::Sender<Result<usize, FeedError>> },
    Forwarded { records: Vec<Record>, answer: oneshot::Sender<Result<usize, FeedError>> },
    Stop { deadline: Instant },
}

impl Message {
    /// How many records it carries.
    fn records(&self) -> u64 {
        match self {
            Self::Own(_) => 1,
            Self::Feed { records, .. } => records.len() as u64,
            Self::Forwarded { records, .. } => records.len() as u64,
            Self::Stop { .. } => 0,
        }
    }
}

impl Inbox {
    /// An inbox and what the recorder reads from it.
    pub(crate) fn new(health: Arc<Health>) -> (Self, Outbox) {
        let (sender, receiver) = mpsc::channel(INBOX_MESSAGES);
        (Self { sender, health }, Outbox(receiver))
    }

    /// Hands a measurement in without waiting; when the recorder is far behind it is dropped and counted.
    pub(crate) fn offer(&self, measured: Measured) {
        self.health.measured();
        if self.sender.try_send(Message::Own(measured)).is_err() {
            self.health.dropped_at_inbox();
        }
    }

    /// As [`Inbox::offer`] for what the station can do without: it takes no room that its own
    /// measurements may need, and is no sign of its health. False = it is dropped.
    pub(crate) fn offer_spare(&self, measured: Measured) -> bool {
        self.sender.max_capacity() / 2 < self.sender.capacity()
            && self.sender.try_send(Message::Own(measured)).is_ok()
    }

    /// Hands records in and waits until all are durable; gives how many there were.
    pub(crate) async fn feed(&self, records: Vec<Fed>) -> Result<usize, FeedError> {
        let (answer, stored) = oneshot::channel();
        self.hand_in(Message::Feed { records, answer }, stored).await.map_err(|error| match error {
            FeedError::Unknown => FeedError::Unavailable(error.to_string()),
            error => error,
        })
    }

    /// Hands in what a member of the mesh has measured and waits until it is durable or counted as seen.
    ///
    /// After [`FeedError::Unknown`] the same records must be handed in again.
    pub(crate) async fn forward(&self, records: Vec<Record>) -> Result<usize, FeedError> {
        let (answer, stored) = oneshot::channel();
        self.hand_in(Message::Forwarded { records, answer }, stored).await
    }

    async fn hand_in(
        &self,
        message: Message,
        stored: oneshot::Receiver<Result<usize, FeedError>>,
    ) -> Result<usize, FeedError> {
        self.sender.try_send(message).map_err(|error| match error {
            mpsc::error::TrySendError::Full(message) => {
                self.health.refused(Limit::InboxCallers, message.records());
                FeedError::Unavailable("too much is waiting".into())
            }
            mpsc::error::TrySendError::Closed(_) => FeedError::Stopping,
        })?;
        match tokio::time::timeout(FEED_TIMEOUT, stored).await {
            Ok(Ok(result)) => result,
            // It has ended with its spool, or with an append on its way.
            Ok(Err(_)) => Err(FeedError::Unknown),
            Err(_) => Err(FeedError::Unknown),
        }
    }

    /// Asks the recorder to store what it has, until `limit` has passed, and to end.
    pub(crate) fn stop(&self, limit: Duration) {
        let mut message = Message::Stop { deadline: Instant::now() + limit };
        // A full inbox is emptied all the time; the loop ends with the recorder.
        while let Err(mpsc::error::TrySendError::Full(back)) = self.sender.try_send(message) {
            message = back;
            std::thread::yield_now();
        }
    }
}

/// The recorder's end of the inbox.
pub(crate) struct Outbox(pub(super) mpsc::Receiver<Message>);

/// Messages that wait for the recorder; it handles one in microseconds, so this is seconds of a flood.
const INBOX_MESSAGES: usize = 4096;
/// Whoever hands records in is told after this long that their fate is not known.
const FEED_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use barograph_forecast::{Outcome, Quantity, Series};

    use super::*;

    #[tokio::test]
    async fn what_callers_hand_in_beyond_the_inbox_is_counted() {
        let health = Arc::new(Health::new());
        let (inbox, _outbox) = Inbox::new(Arc::clone(&health));
        let here = Name::new("here").unwrap();
        let series = Series { source: here.clone(), target: here, quantity: Quantity::RTT };
        let (time_unix_ns, outcome) = (1, Outcome::Value(1.0));
        let measured = Measured { series, time_unix_ns, outcome, detail: String::new() };
        (0..INBOX_MESSAGES).for_each(|_| inbox.offer(measured.clone()));
        let fed = Fed { measured, identity: None, time_given: false };
        let full = inbox.feed(vec![fed.clone(), fed]).await;
        assert!(matches!(full, Err(FeedError::Unavailable(_))), "{full:?}");
        assert_eq!(health.refusals().of(Limit::InboxCallers).count, 2);
        assert_eq!(health.refusals().of(Limit::Inbox).count, 0);
    }
}
