//! The recorder's inbox: sends measurements to the recorder and returns the recorder's answers.

use std::sync::Arc;
use std::time::Duration;

use barograph_engine::Record;
use barograph_forecast::Name;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::ORIGINS_MAX;
use crate::forecast::series::Measurement;
use crate::health::Health;
use crate::limits::Limit;

/// Sender of measurements to the recorder; clones share the recorder.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    sender: mpsc::Sender<Message>,
    health: Arc<Health>,
}

/// A record that a caller submits. A record without an identity (origin and sequence number) has
/// this station as its origin.
#[derive(Clone, Debug)]
pub(crate) struct SubmittedRecord {
    pub(crate) measurement: Measurement,
    pub(crate) identity: Option<(Name, u64)>,
    /// Whether the caller set the time. If false, the time is the arrival time, and is not part of
    /// the content.
    pub(crate) time_given: bool,
}

/// Why submitted records were not stored, or why it is unknown whether they were stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FeedError {
    #[error("the archive does not accept records: {0}")]
    Unavailable(String),
    #[error("the station is stopping")]
    Stopping,
    #[error("{0}")]
    Invalid(String),
    #[error("record {seq} of `{origin}` is already stored with other content")]
    Conflict { origin: Name, seq: u64 },
    #[error(
        "`origin` is the name of a station that is or was in the mesh; use a different origin, \
         because that station numbers its records itself"
    )]
    ForwardedOrigin,
    #[error("more than {ORIGINS_MAX} origins have submitted records")]
    TooManyOrigins,
    #[error("unknown whether the records were stored; send them again")]
    Unknown,
}

pub(super) enum Message {
    Own(Measurement),
    Feed { records: Vec<SubmittedRecord>, answer: oneshot::Sender<Result<usize, FeedError>> },
    Forwarded { records: Vec<Record>, answer: oneshot::Sender<Result<usize, FeedError>> },
    Stop { deadline: Instant },
}

impl Message {
    /// Number of records in the message.
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
    /// Creates the two ends of the inbox.
    pub(crate) fn new(health: Arc<Health>) -> (Self, InboxReceiver) {
        let (sender, receiver) = mpsc::channel(INBOX_MESSAGES);
        (Self { sender, health }, InboxReceiver(receiver))
    }

    /// Submits a measurement without waiting. If the inbox is full, drops the measurement and
    /// counts the drop.
    pub(crate) fn offer(&self, measurement: Measurement) {
        self.health.measured();
        if self.sender.try_send(Message::Own(measurement)).is_err() {
            self.health.dropped_at_inbox();
        }
    }

    /// Submits a less important measurement without waiting. Such measurements use at most half of
    /// the inbox. Returns false if the measurement was dropped; unlike with [`Inbox::offer`], the
    /// station's health does not count the drop.
    pub(crate) fn offer_optional(&self, measurement: Measurement) -> bool {
        self.sender.max_capacity() / 2 < self.sender.capacity()
            && self.sender.try_send(Message::Own(measurement)).is_ok()
    }

    /// Submits records and waits until all records are durable. Returns the number of records.
    pub(crate) async fn feed(&self, records: Vec<SubmittedRecord>) -> Result<usize, FeedError> {
        let (answer, stored) = oneshot::channel();
        self.hand_in(Message::Feed { records, answer }, stored).await.map_err(|error| match error {
            FeedError::Unknown => FeedError::Unavailable(error.to_string()),
            error => error,
        })
    }

    /// Submits records that a member of the mesh measured. Waits until each record is durable, or
    /// is acknowledged without being stored.
    ///
    /// After [`FeedError::Unknown`] the caller must submit the same records again.
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
                FeedError::Unavailable("too many records wait for the recorder; try again in 5 s".into())
            }
            mpsc::error::TrySendError::Closed(_) => FeedError::Stopping,
        })?;
        match tokio::time::timeout(FEED_TIMEOUT, stored).await {
            Ok(Ok(result)) => result,
            // The recorder ended while these records were in its spool, or while their append was
            // running.
            Ok(Err(_)) => Err(FeedError::Unknown),
            Err(_) => Err(FeedError::Unknown),
        }
    }

    /// Sends the recorder a message to stop. The recorder then stores its records within `limit`,
    /// and ends.
    pub(crate) fn stop(&self, limit: Duration) {
        let mut message = Message::Stop { deadline: Instant::now() + limit };
        // The recorder empties the inbox continuously; if it has ended, the loop ends with
        // `Closed`.
        while let Err(mpsc::error::TrySendError::Full(back)) = self.sender.try_send(message) {
            message = back;
            std::thread::yield_now();
        }
    }
}

/// Receiver of the inbox, for the recorder.
pub(crate) struct InboxReceiver(pub(super) mpsc::Receiver<Message>);

/// Maximum number of messages in the inbox. The recorder handles a message in microseconds, so the
/// inbox is full only after seconds of overload.
const INBOX_MESSAGES: usize = 4096;
/// Maximum time to wait for the recorder's answer. After this time the caller gets
/// [`FeedError::Unknown`].
const FEED_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use barograph_forecast::{Outcome, Quantity, SeriesId};

    use super::*;

    #[tokio::test]
    async fn records_from_callers_beyond_the_inbox_capacity_are_counted() {
        let health = Arc::new(Health::new());
        let (inbox, _outbox) = Inbox::new(Arc::clone(&health));
        let here = Name::new("here").unwrap();
        let series = SeriesId { source: here.clone(), target: here, quantity: Quantity::RTT };
        let (time_unix_ns, outcome) = (1, Outcome::Value(1.0));
        let measurement = Measurement { series, time_unix_ns, outcome, detail: String::new() };
        (0..INBOX_MESSAGES).for_each(|_| inbox.offer(measurement.clone()));
        let submitted = SubmittedRecord { measurement, identity: None, time_given: false };
        let full = inbox.feed(vec![submitted.clone(), submitted]).await;
        assert!(matches!(full, Err(FeedError::Unavailable(_))), "{full:?}");
        assert_eq!(health.refusals().of(Limit::InboxCallers).count, 2);
        assert_eq!(health.refusals().of(Limit::Inbox).count, 0);
    }
}
