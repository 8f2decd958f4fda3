//! Records that the archive receives from the mesh's NATS stream instead of from the recorder.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use barograph_engine::{BoxStream, Cursor, Engine as _, EngineError, Local, Record, Selector, StartAt};
use barograph_forecast::Name;
use futures_util::StreamExt as _;
use tokio::time::{Instant, sleep_until};

/// Subscription to records of other stations that the archive stores from now on.
pub(crate) struct ArchiveSubscription {
    archive: Option<Arc<Local>>,
    host: Name,
    records: Option<BoxStream<(Cursor, Record)>>,
    /// Time of the next subscription; `None` while the current one runs.
    again_at: Option<Instant>,
}

impl ArchiveSubscription {
    /// Subscribes to `archive`, from this call on; without an archive there are no records.
    pub(crate) fn new(archive: Option<Arc<Local>>, host: Name) -> Self {
        let records = archive.as_deref().map(subscribe);
        Self { archive, host, records, again_at: None }
    }

    /// The next record. Cancel-safe: a caller that drops the future loses no record.
    pub(super) async fn next(&mut self) -> Record {
        let (Some(archive), Some(records)) = (&self.archive, &mut self.records) else {
            return pending().await;
        };
        loop {
            // The time is stored in `self.again_at`, because the caller may drop the future during
            // the wait.
            if let Some(at) = self.again_at {
                sleep_until(at).await;
                self.again_at = None;
                *records = subscribe(archive);
            }
            match records.next().await {
                Some(Ok((_, record))) if record.origin != self.host => return record,
                // The archive stores faster than the recorder learns: forecasts skip some records.
                Some(Ok(_) | Err(EngineError::Lagged { .. })) => {}
                Some(Err(error)) => {
                    tracing::warn!(%error, "cannot read records of other stations: their forecasts are not updated")
                }
                None => self.again_at = Some(Instant::now() + RESUBSCRIBE_DELAY),
            }
        }
    }
}

fn subscribe(archive: &Local) -> BoxStream<(Cursor, Record)> {
    archive.subscribe(&Selector::default(), StartAt::Now)
}

/// Delay before the next subscription if the archive's disk does not respond.
const RESUBSCRIBE_DELAY: Duration = Duration::from_secs(1);
