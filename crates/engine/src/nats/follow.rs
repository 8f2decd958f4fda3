//! Subscriptions: each reads the stream as fast as its subscriber does, and at the end of the
//! stream polls twice a second for new messages.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::link::{Link, Trouble};
use super::streams::{self, RECORDS};
use super::walk;
use crate::{BoxStream, Cursor, Error, From, Record, Selector};

type Item = Result<(Cursor, Record), Error>;

/// Streams the records of `selector`. A task of the connection reads them.
pub(super) fn subscribe(link: &Arc<Link>, selector: &Selector, from: From) -> BoxStream<(Cursor, Record)> {
    let (items, receiver) = mpsc::channel(BUFFER);
    let beginning = Beginning::new(link, from);
    let follower = Follower {
        link: Arc::clone(link),
        selector: selector.clone(),
        place: 0,
        stream: String::new(),
        has_begun: false,
        counts_gaps: from != From::Oldest,
        items,
    };
    link.spawn(follower.run(from, beginning));
    Box::pin(stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) }))
}

/// Delays this station's own appends until a subscription with [`From::Now`] has its position, so
/// that it gets all later records.
struct Beginning(Option<Arc<Link>>);

impl Beginning {
    fn new(link: &Arc<Link>, from: From) -> Self {
        let holds = from == From::Now;
        if holds {
            link.beginning.send_modify(|count| *count += 1);
        }
        Self(holds.then(|| Arc::clone(link)))
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        if let Some(link) = &self.0 {
            link.beginning.send_modify(|count| *count -= 1);
        }
    }
}

struct Follower {
    link: Arc<Link>,
    selector: Selector,
    /// All messages up to this sequence number were read.
    place: u64,
    /// When the stream was created. A recreated stream counts from 1 again.
    stream: String,
    has_begun: bool,
    /// Whether to report messages that left the stream unread; false until the first read of a
    /// subscription from the oldest record, or of a recreated stream.
    counts_gaps: bool,
    items: mpsc::Sender<Item>,
}

/// Reason why a follower stops.
enum Stop {
    Unheard,
    /// The follower cannot continue.
    Failed(Error),
    /// The follower may continue later.
    Waits(Trouble),
}

impl std::convert::From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Denied(_) => Self::Failed(trouble.into()),
            trouble => Self::Waits(trouble),
        }
    }
}

impl Follower {
    async fn run(mut self, from: From, beginning: Beginning) {
        let mut wait = RETRY_MIN;
        let mut begun = self.begin(from).await;
        // Appends wait for one attempt only. If no server is connected, the appends fail anyway.
        drop(beginning);
        loop {
            let stop = match begun {
                Ok(()) => self.follow(&mut wait).await.err(),
                Err(stop) => Some(stop),
            };
            match stop {
                None | Some(Stop::Unheard) => return,
                Some(Stop::Failed(error)) => {
                    // `send` fails if there is no reader any more; that is no error.
                    let _ = self.items.send(Err(error)).await;
                    return;
                }
                Some(Stop::Waits(trouble)) => tracing::debug!(?trouble, "a subscription waits"),
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
    async fn begin(&mut self, from: From) -> Result<(), Stop> {
        streams::ensure(&self.link).await.map_err(|error| Trouble::NotSent(error.to_string()))?;
        let streams::Extent { created, state, .. } = streams::extent(&self.link, RECORDS).await?;
        let end = state.last_seq;
        self.stream = created;
        self.place = match from {
            From::Now => end,
            From::Oldest => 0,
            From::After(Cursor(place)) if end < place => {
                let error = format!("the place {place} is not in this stream, which ends at {end}");
                return Err(Stop::Failed(Error::Invalid(error)));
            }
            From::After(Cursor(place)) => place,
        };
        self.has_begun = true;
        Ok(())
    }

    /// Sends existing and new records until an error occurs.
    async fn follow(&mut self, wait: &mut Duration) -> Result<(), Stop> {
        let mut stored = self.link.stored.subscribe();
        let mut checked = Instant::now();
        loop {
            stored.mark_unchanged();
            while self.step().await? {}
            *wait = RETRY_MIN;
            if CHECK_EVERY <= checked.elapsed() {
                checked = Instant::now();
                let created = streams::extent(&self.link, RECORDS).await?.created;
                if created != self.stream {
                    (self.stream, self.place, self.counts_gaps) = (created, 0, false);
                    continue;
                }
            }
            tokio::select! {
                () = sleep(LOOK_EVERY) => {}
                // `changed` cannot fail, because this task holds the connection, and the connection
                // holds the sender.
                Ok(()) = stored.changed() => {}
                () = self.items.closed() => return Err(Stop::Unheard),
            }
        }
    }

    /// Sends the records of one read; `true` if there are more.
    async fn step(&mut self) -> Result<bool, Stop> {
        let stretch = walk::stretch(&self.link, RECORDS, walk::ALL, self.place + 1, STRETCH).await?;
        let Some(last) = stretch.last() else { return Ok(false) };
        let first = stretch.messages.first().map_or(last, |stored| stored.seq);
        if self.counts_gaps && self.place + 1 < first {
            // The missing numbers may be of messages that the filter excludes. Messages leave the
            // stream only at its beginning, so its first number shows how many are gone.
            let kept = streams::extent(&self.link, RECORDS).await?.state.first_seq.min(first);
            if self.place + 1 < kept {
                self.give(Err(Error::Lagged { missed: kept - self.place - 1 })).await?;
            }
        }
        self.counts_gaps = true;
        for stored in stretch.messages {
            match stored.record() {
                Ok(record) if record.is_own() && self.selector.matches(&record.series) => {
                    self.give(Ok((Cursor(stored.seq), record))).await?;
                }
                // A record of another series, or a marker of skipped numbers.
                Ok(_) => {}
                Err(why) => tracing::debug!(%why, "a message was passed over"),
            }
        }
        self.place = last;
        Ok(0 < stretch.pending)
    }

    async fn give(&self, item: Item) -> Result<(), Stop> {
        self.items.send(item).await.map_err(|_| Stop::Unheard)
    }
}

/// Most records buffered for a slow reader.
const BUFFER: usize = 256;

/// Messages of one read.
const STRETCH: usize = 512;

/// Longest delay of another station's record. One poll costs the server and this station a short
/// request.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Time after which a recreated stream is detected; long enough for ten thousand subscriptions.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// First and longest wait after an error. It doubles each time.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);
