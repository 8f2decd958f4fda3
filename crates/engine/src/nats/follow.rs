//! Subscriptions. Each subscription reads the stream as fast as its subscriber reads the records.
//! At the end of the stream, the subscription polls twice a second for new messages.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::connection::{NatsConnection, RequestError};
use super::stream_read;
use super::streams::{self, RECORDS};
use crate::{BoxStream, Cursor, EngineError, Record, Selector, StartAt};

type Item = Result<(Cursor, Record), EngineError>;

/// Streams the records of `selector`. A task on the connection's runtime reads the records.
pub(super) fn subscribe(
    connection: &Arc<NatsConnection>,
    selector: &Selector,
    from: StartAt,
) -> BoxStream<(Cursor, Record)> {
    let (items, receiver) = mpsc::channel(BUFFER);
    let start_guard = StartGuard::new(connection, from);
    let follower = Follower {
        connection: Arc::clone(connection),
        selector: selector.clone(),
        position: 0,
        stream: String::new(),
        has_begun: false,
        counts_gaps: from != StartAt::Oldest,
        items,
    };
    connection.spawn(follower.run(from, start_guard));
    Box::pin(stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) }))
}

/// Delays this station's own appends until a subscription with [`StartAt::Now`] has its position.
/// So the subscription gets all records that are appended later.
struct StartGuard(Option<Arc<NatsConnection>>);

impl StartGuard {
    fn new(connection: &Arc<NatsConnection>, from: StartAt) -> Self {
        let holds = from == StartAt::Now;
        if holds {
            connection.starting.send_modify(|count| *count += 1);
        }
        Self(holds.then(|| Arc::clone(connection)))
    }
}

impl Drop for StartGuard {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.starting.send_modify(|count| *count -= 1);
        }
    }
}

struct Follower {
    connection: Arc<NatsConnection>,
    selector: Selector,
    /// All messages up to this sequence number were read.
    position: u64,
    /// When the stream was created. The numbers of a recreated stream start from 1 again.
    stream: String,
    has_begun: bool,
    /// Whether to report messages that left the stream unread. It is false before the first read of
    /// a subscription that starts with the oldest record, and before the first read of a recreated
    /// stream.
    counts_gaps: bool,
    items: mpsc::Sender<Item>,
}

/// Reason why a follower stops.
enum Stop {
    NoReader,
    /// The follower cannot continue.
    Failed(EngineError),
    /// The follower may continue later.
    Waits(RequestError),
}

impl From<RequestError> for Stop {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Denied(_) => Self::Failed(error.into()),
            error => Self::Waits(error),
        }
    }
}

impl Follower {
    async fn run(mut self, from: StartAt, start_guard: StartGuard) {
        let mut wait = RETRY_MIN;
        let mut begun = self.begin(from).await;
        // Appends wait for one attempt only. If no server is connected, the appends fail anyway.
        drop(start_guard);
        loop {
            let stop = match begun {
                Ok(()) => self.follow(&mut wait).await.err(),
                Err(stop) => Some(stop),
            };
            match stop {
                None | Some(Stop::NoReader) => return,
                Some(Stop::Failed(error)) => {
                    // `send` fails if there is no reader any more; that is no error.
                    let _ = self.items.send(Err(error)).await;
                    return;
                }
                Some(Stop::Waits(error)) => {
                    tracing::debug!(?error, "a subscription cannot read the stream; retrying")
                }
            }
            tokio::select! {
                () = sleep(wait) => wait = (2 * wait).min(RETRY_MAX),
                () = self.items.closed() => return,
            }
            begun = match self.has_begun {
                true => Ok(()),
                false => self.begin(from).await,
            };
        }
    }

    /// Determines the position to start after.
    async fn begin(&mut self, from: StartAt) -> Result<(), Stop> {
        streams::ensure(&self.connection).await.map_err(|error| RequestError::NotSent(error.to_string()))?;
        let streams::Extent { created, state, .. } = streams::extent(&self.connection, RECORDS).await?;
        let end = state.last_seq;
        self.stream = created;
        self.position = match from {
            StartAt::Now => end,
            StartAt::Oldest => 0,
            StartAt::After(Cursor(position)) if end < position => {
                let error = format!("cursor {position} is beyond the end of this stream, {end}");
                return Err(Stop::Failed(EngineError::Invalid(error)));
            }
            StartAt::After(Cursor(position)) => position,
        };
        self.has_begun = true;
        Ok(())
    }

    /// Sends existing and new records until an error occurs.
    async fn follow(&mut self, wait: &mut Duration) -> Result<(), Stop> {
        let mut stored = self.connection.stored.subscribe();
        let mut checked = Instant::now();
        loop {
            stored.mark_unchanged();
            while self.step().await? {}
            *wait = RETRY_MIN;
            if checked.elapsed() >= CHECK_EVERY {
                checked = Instant::now();
                let created = streams::extent(&self.connection, RECORDS).await?.created;
                if created != self.stream {
                    (self.stream, self.position, self.counts_gaps) = (created, 0, false);
                    continue;
                }
            }
            tokio::select! {
                () = sleep(POLL_EVERY) => {}
                // `changed` cannot fail, because this task holds the connection, and the connection
                // holds the sender.
                Ok(()) = stored.changed() => {}
                () = self.items.closed() => return Err(Stop::NoReader),
            }
        }
    }

    /// Sends the records of one read; `true` if the stream has more records.
    async fn step(&mut self) -> Result<bool, Stop> {
        let range = stream_read::read_range(
            &self.connection,
            RECORDS,
            stream_read::ALL,
            self.position + 1,
            RANGE_MESSAGES,
        )
        .await?;
        let Some(last) = range.last() else { return Ok(false) };
        let first = range.messages.first().map_or(last, |stored| stored.seq);
        if self.counts_gaps && self.position + 1 < first {
            // The missing numbers may be of messages that the filter excludes. The stream drops
            // only its oldest messages, so the first number in the stream shows how many messages
            // are gone.
            let kept = streams::extent(&self.connection, RECORDS).await?.state.first_seq.min(first);
            if self.position + 1 < kept {
                self.send(Err(EngineError::Lagged { missed: kept - self.position - 1 })).await?;
            }
        }
        self.counts_gaps = true;
        for stored in range.messages {
            match stored.record() {
                Ok(record) if record.is_own() && self.selector.matches(&record.series) => {
                    self.send(Ok((Cursor(stored.seq), record))).await?;
                }
                // A record of another series, or a marker of skipped numbers.
                Ok(_) => {}
                Err(why) => tracing::debug!(%why, "skipped a message"),
            }
        }
        self.position = last;
        Ok(range.pending > 0)
    }

    async fn send(&self, item: Item) -> Result<(), Stop> {
        self.items.send(item).await.map_err(|_| Stop::NoReader)
    }
}

/// Largest number of records buffered for a slow reader.
const BUFFER: usize = 256;

/// Largest number of messages in one read.
const RANGE_MESSAGES: usize = 512;

/// Interval of polls, which is the longest delay of a different station's record. Each poll costs
/// the server and this station one short request.
const POLL_EVERY: Duration = Duration::from_millis(500);

/// Interval of checks whether the stream was recreated. At this interval, a server can answer the
/// checks of ten thousand subscriptions.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// First and longest wait after an error. The wait doubles with each further error.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);
