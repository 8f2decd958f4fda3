//! Streams from another station, until their connection is lost.

use std::sync::Arc;
use std::time::Duration;

use barograph_api::client::Ask;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::Instant;

use super::client::{Client, Trouble};
use crate::Error;
use crate::wire::EVENT_BYTES_MAX;

/// An item of a stream, and the room that its line took until it is read.
pub(super) type Item<T> = (Result<T, Error>, Option<OwnedSemaphorePermit>);

/// What a stream asks for, and how its lines are read.
pub(super) struct Follower<T> {
    pub(super) path: String,
    pub(super) bytes_max: usize,
    pub(super) read: fn(&[u8]) -> Result<T, Error>,
    /// It goes on after [`Error::Lagged`].
    pub(super) is_subscription: bool,
}

impl<T> Follower<T> {
    /// Passes lines on until the connection is lost or says an error that ends it, which is the answer.
    pub(super) async fn run(
        self,
        client: &Client,
        opening: Option<Opening>,
        items: &mpsc::Sender<Item<T>>,
    ) -> Result<(), Error> {
        let ask = Ask { path: &self.path, ..Ask::default() };
        let answer = client.ask(&ask, Instant::now() + client.deadline()).await.map_err(Trouble::of_read)?;
        drop(opening);
        let mut body = answer.lines(self.bytes_max);
        let room = Arc::new(Semaphore::new(WAITING_BYTES));
        loop {
            let Some(line) = body.next_within(SILENCE_MAX).await? else {
                return Err(Error::Unavailable("the stream was ended".into()));
            };
            if line.is_empty() {
                continue;
            }
            let item = match (self.read)(&line) {
                Err(error) if !(self.is_subscription && matches!(error, Error::Lagged { .. })) => {
                    return Err(error);
                }
                item => item,
            };
            let bytes = u32::try_from(line.len().min(WAITING_BYTES)).unwrap_or(u32::MAX);
            let held = Arc::clone(&room).acquire_many_owned(bytes).await.ok();
            if items.send((item, held)).await.is_err() {
                return Ok(());
            }
        }
    }
}

/// A subscription that is not open yet, counted.
pub(super) struct Opening(watch::Sender<usize>);

impl Opening {
    pub(super) fn begin(opening: &watch::Sender<usize>) -> Self {
        opening.send_modify(|count| *count += 1);
        Self(opening.clone())
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Three empty lines of the other station's (one every 2 s), and a second for the way.
const SILENCE_MAX: Duration = Duration::from_secs(7);

/// Items of a stream that wait for their reader; beyond, the connection waits, and then the station.
pub(super) const ITEMS: usize = 64;

/// Bytes of lines that wait likewise: two of the longest, so that a host cannot fill 64 streams with 64 of them each.
const WAITING_BYTES: usize = 2 * EVENT_BYTES_MAX;
