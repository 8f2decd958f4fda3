//! What the station's own archive gets from elsewhere than the recorder: from the stream of a mesh on NATS.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use barograph_engine::{BoxStream, Cursor, Engine as _, Error, From, Local, Record, Selector};
use barograph_forecast::Name;
use futures_util::StreamExt as _;

/// Records of other stations, from now on, as the archive stores them.
pub(super) struct Stored {
    archive: Option<Arc<Local>>,
    host: Name,
    records: Option<BoxStream<(Cursor, Record)>>,
}

impl Stored {
    /// `None` = there are none.
    pub(super) fn new(archive: Option<Arc<Local>>, host: Name) -> Self {
        let records = archive.as_deref().map(subscribe);
        Self { archive, host, records }
    }

    /// The next one; a caller that drops the future loses none.
    pub(super) async fn next(&mut self) -> Record {
        let (Some(archive), Some(records)) = (&self.archive, &mut self.records) else {
            return pending().await;
        };
        loop {
            match records.next().await {
                Some(Ok((_, record))) if record.origin != self.host => return record,
                // Where more is stored than can be learnt, forecasts do without some.
                Some(Ok(_) | Err(Error::Lagged { .. })) => {}
                Some(Err(error)) => tracing::warn!(%error, "forecasts get nothing of other stations"),
                None => {
                    *records = subscribe(archive);
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
            }
        }
    }
}

fn subscribe(archive: &Local) -> BoxStream<(Cursor, Record)> {
    archive.subscribe(&Selector::default(), From::Now)
}

/// An archive whose disk does not answer is asked no more often.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
