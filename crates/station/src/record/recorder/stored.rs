//! What the station's own archive gets from elsewhere than the recorder: from the stream of a mesh on NATS.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use barograph_engine::{BoxStream, Cursor, Engine as _, Error, From, Local, Record, Selector};
use barograph_forecast::Name;
use futures_util::StreamExt as _;
use tokio::time::{Instant, sleep_until};

/// Records of other stations, from now on, as the archive stores them.
pub(crate) struct Stored {
    archive: Option<Arc<Local>>,
    host: Name,
    records: Option<BoxStream<(Cursor, Record)>>,
    /// When to subscribe again; `None` = the subscription goes on.
    again_at: Option<Instant>,
}

impl Stored {
    /// `None` = there are none. What is stored from this call on is given.
    pub(crate) fn new(archive: Option<Arc<Local>>, host: Name) -> Self {
        let records = archive.as_deref().map(subscribe);
        Self { archive, host, records, again_at: None }
    }

    /// The next one; a caller that drops the future loses none.
    pub(super) async fn next(&mut self) -> Record {
        let (Some(archive), Some(records)) = (&self.archive, &mut self.records) else {
            return pending().await;
        };
        loop {
            // Kept here, as a caller may drop the future while it waits.
            if let Some(at) = self.again_at {
                sleep_until(at).await;
                self.again_at = None;
                *records = subscribe(archive);
            }
            match records.next().await {
                Some(Ok((_, record))) if record.origin != self.host => return record,
                // Where more is stored than can be learnt, forecasts do without some.
                Some(Ok(_) | Err(Error::Lagged { .. })) => {}
                Some(Err(error)) => tracing::warn!(%error, "forecasts get nothing of other stations"),
                None => self.again_at = Some(Instant::now() + AGAIN_AFTER),
            }
        }
    }
}

fn subscribe(archive: &Local) -> BoxStream<(Cursor, Record)> {
    archive.subscribe(&Selector::default(), From::Now)
}

/// An archive whose disk does not answer is asked no more often.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
