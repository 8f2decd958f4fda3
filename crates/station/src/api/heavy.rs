//! Costly responses: connects [`HeavyReads`](crate::limits::heavy::HeavyReads) to requests.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::body::Bytes;
use axum::http::StatusCode;
use barograph_forecast::SeriesId;
use serde::Serialize;
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use super::guard::RemoteEnd;
use super::selection::SeriesSelection;
use super::{ApiRefusal, ApiState};
use crate::forecast::series::{SeriesState, SeriesTable, in_order};
use crate::limits::Limit;
use crate::limits::heavy::{
    PERMIT_TIMEOUT, ReadPermit, ReadSource, SharedResponse, SharedResponseKind, for_each_state,
};
use crate::limits::unread::CallerClass;
use crate::sync::lock;

/// Returns the text of a response: the shared text if `what` names a shared response, otherwise a
/// text made for this caller only.
///
/// Making the text continues if the caller leaves; otherwise a caller could get a further permit by
/// disconnecting.
pub(super) async fn text<F>(
    shared: &Arc<ApiState>,
    remote: &RemoteEnd,
    from: ReadSource,
    what: Option<SharedResponseKind>,
    make: F,
) -> Result<Bytes, ApiRefusal>
where
    F: Future<Output = Result<Bytes, ApiRefusal>> + Send + 'static,
{
    let making = match what {
        Some(what) => {
            let text_or_permit = async {
                match shared.heavy.shared(what, Instant::now()).await {
                    Ok(text) => Ok::<_, ApiRefusal>(SharedResponseState::Kept(text)),
                    Err(slot) => {
                        Ok(SharedResponseState::New(slot, acquire(shared, remote, from, true).await?))
                    }
                }
            };
            // The request that makes the text may wait for an archive; the other requests wait for
            // the text at most as long as for a permit.
            let found =
                timeout(PERMIT_TIMEOUT, text_or_permit).await.map_err(|_| shared.too_much_unread())?;
            let (mut slot, permit) = match found? {
                SharedResponseState::Kept(text) => return Ok(text),
                SharedResponseState::New(slot, permit) => (slot, permit),
            };
            let shared = Arc::clone(shared);
            tokio::spawn(async move {
                let began = Instant::now();
                let text = make.await?;
                *slot = Some(SharedResponse::new(text.clone(), began));
                drop((slot, permit));
                tokio::spawn(async move { shared.heavy.forget_old(what).await });
                Ok(text)
            })
        }
        None => {
            let permit = acquire(shared, remote, from, false).await?;
            tokio::spawn(async move {
                let text = make.await;
                drop(permit);
                text
            })
        }
    };
    making.await.map_err(|error| ApiRefusal::ended(&error))?
}

/// State of a shared response, for a caller.
enum SharedResponseState {
    Kept(Bytes),
    /// The lock of the shared text, and the permit to make a new one.
    New(OwnedMutexGuard<Option<SharedResponse>>, ReadPermit),
}

/// Waits for the permit to make a response. The limits of this caller apply, unless the response is
/// for all callers (`is_for_all`).
async fn acquire(
    shared: &ApiState,
    remote: &RemoteEnd,
    from: ReadSource,
    is_for_all: bool,
) -> Result<ReadPermit, ApiRefusal> {
    let class = shared.caller_class(remote);
    if !shared.unread.has_room(&class) {
        return Err(shared.too_much_unread());
    }
    let permit = shared.heavy.acquire(from, if is_for_all { CallerClass::Local } else { class }).await;
    permit.ok_or_else(|| shared.too_much_unread())
}

impl ApiState {
    /// Counts a read that found no room in memory or got no permit in time, and returns its
    /// refusal.
    pub(super) fn too_much_unread(&self) -> ApiRefusal {
        self.health.refused(Limit::UnreadAnswers, 1);
        ApiRefusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many large responses are in progress (unread_answer_bytes in /healthz); try again in 5 s",
        )
    }
}

/// Runs work outside the HTTP thread.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiRefusal> {
    tokio::task::spawn_blocking(work).await.map_err(|error| ApiRefusal::ended(&error))
}

/// Makes a list with a row for each chosen series, `{"key": [row, …]}`.
pub(super) fn list(
    series_table: &Mutex<SeriesTable>,
    selection: &SeriesSelection,
    key: &str,
    row: impl Fn(&mut Rows, &SeriesId, &SeriesState),
) -> Bytes {
    let mut names = lock(series_table).names(&selection.selector);
    names.retain(|series| selection.has_end(series));
    names.sort_unstable_by(in_order);
    let mut rows = Rows { text: format!("{{\"{key}\":[").into_bytes(), is_first: true };
    for_each_state(series_table, &names, |series, state| row(&mut rows, series, state));
    rows.text.extend_from_slice(b"]}");
    rows.text.into()
}

/// The rows of a list that have been written so far.
pub(super) struct Rows {
    text: Vec<u8>,
    is_first: bool,
}

impl Rows {
    pub(super) fn push<T: Serialize>(&mut self, row: &T) {
        if !std::mem::take(&mut self.is_first) {
            self.text.push(b',');
        }
        // This write cannot fail: the keys of `barograph_api` types are texts, their serializers
        // return no errors, and a vector accepts all bytes.
        let _ = serde_json::to_writer(&mut self.text, row);
    }
}
