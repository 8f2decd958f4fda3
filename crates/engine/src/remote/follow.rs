//! Streams from another station, until their connection is lost.

use std::sync::Arc;
use std::time::Duration;

use barograph_api::client::ApiRequest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::Instant;

use super::client::{Client, HttpRequestError};
use crate::EngineError;
use crate::wire::EVENT_BYTES_MAX;

/// An item of a stream, and the permit for the bytes of the item's line. The permit is released
/// when the item is read.
pub(super) type Item<T> = (Result<T, EngineError>, Option<OwnedSemaphorePermit>);

/// Request of a stream, and the parser of its lines.
pub(super) struct Follower<T> {
    pub(super) path: String,
    pub(super) bytes_max: usize,
    pub(super) read: fn(&[u8]) -> Result<T, EngineError>,
    /// Whether the stream continues after [`EngineError::Lagged`].
    pub(super) is_subscription: bool,
}

impl<T> Follower<T> {
    /// Forwards items until the connection is lost or an error ends the stream. Returns the error.
    pub(super) async fn run(
        self,
        client: &Client,
        opening: Option<OpeningGuard>,
        items: &mpsc::Sender<Item<T>>,
    ) -> Result<(), EngineError> {
        let request = ApiRequest { path: &self.path, ..ApiRequest::default() };
        let answer = client
            .request(&request, Instant::now() + client.deadline())
            .await
            .map_err(HttpRequestError::of_read)?;
        drop(opening);
        let mut body = answer.lines(self.bytes_max);
        let room = Arc::new(Semaphore::new(WAITING_BYTES));
        loop {
            let Some(line) = body.next_within(SILENCE_MAX).await? else {
                return Err(EngineError::Unavailable("the station ended the stream".into()));
            };
            if line.is_empty() {
                continue;
            }
            let item = match (self.read)(&line) {
                Err(error) if !(self.is_subscription && matches!(error, EngineError::Lagged { .. })) => {
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

/// Guard that counts one subscription until the subscription is open or has failed.
pub(super) struct OpeningGuard(watch::Sender<usize>);

impl OpeningGuard {
    pub(super) fn begin(opening: &watch::Sender<usize>) -> Self {
        opening.send_modify(|count| *count += 1);
        Self(opening.clone())
    }
}

impl Drop for OpeningGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Longest time without bytes on a live connection: the other station sends an empty line every 2
/// s, so this time allows for three lines and one second of delay in the network.
const SILENCE_MAX: Duration = Duration::from_secs(7);

/// Largest number of items of a stream that wait for their reader. If this number is reached, the
/// connection is not read, and then the station stops sending.
pub(super) const ITEMS: usize = 64;

/// Largest number of bytes in the waiting lines of one stream: twice the longest line. So a host
/// cannot fill a stream with [`ITEMS`] of the longest lines.
const WAITING_BYTES: usize = 2 * EVENT_BYTES_MAX;
