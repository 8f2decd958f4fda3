//! Costly responses: connects [`HeavyReads`](crate::limits::heavy::HeavyReads) to requests.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::body::Bytes;
use axum::http::StatusCode;
use barograph_forecast::Series;
use serde::Serialize;
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use super::choice::Choice;
use super::guard::Peer;
use super::{Refusal, Shared};
use crate::forecast::bank::{Account, Bank, in_order};
use crate::limits::Limit;
use crate::limits::heavy::{Common, From, Kept, TURN_WITHIN, Turn, visit};
use crate::limits::unread::Reader;
use crate::sync::lock;

/// Returns the text of a response: the shared text if `what` names one, otherwise a text made for
/// this caller only.
///
/// Making the text continues if the caller leaves; otherwise a caller could get a further permit by
/// disconnecting.
pub(super) async fn text<F>(
    shared: &Arc<Shared>,
    peer: &Peer,
    from: From,
    what: Option<Common>,
    make: F,
) -> Result<Bytes, Refusal>
where
    F: Future<Output = Result<Bytes, Refusal>> + Send + 'static,
{
    let making = match what {
        Some(what) => {
            let kept_or_turn = async {
                match shared.heavy.kept(what, Instant::now()).await {
                    Ok(text) => Ok::<_, Refusal>(Shown::Kept(text)),
                    Err(place) => Ok(Shown::New(place, turn(shared, peer, from, true).await?)),
                }
            };
            // The request that makes the text may wait for an archive; the other requests wait for
            // the text at most as long as for a permit.
            let kept = timeout(TURN_WITHIN, kept_or_turn).await.map_err(|_| shared.too_much_unread())?;
            let (mut place, turn) = match kept? {
                Shown::Kept(text) => return Ok(text),
                Shown::New(place, turn) => (place, turn),
            };
            let shared = Arc::clone(shared);
            tokio::spawn(async move {
                let began = Instant::now();
                let text = make.await?;
                *place = Some(Kept::new(text.clone(), began));
                drop((place, turn));
                tokio::spawn(async move { shared.heavy.forget_old(what).await });
                Ok(text)
            })
        }
        None => {
            let turn = turn(shared, peer, from, false).await?;
            tokio::spawn(async move {
                let text = make.await;
                drop(turn);
                text
            })
        }
    };
    making.await.map_err(|error| Refusal::ended(&error))?
}

/// State of a shared response, for a caller.
enum Shown {
    Kept(Bytes),
    /// The lock of the shared text, and the permit to make a new one.
    New(OwnedMutexGuard<Option<Kept>>, Turn),
}

/// Waits for the permit to make a response: with the limits of this caller, or without them if the
/// response is for all callers.
async fn turn(shared: &Shared, peer: &Peer, from: From, is_for_all: bool) -> Result<Turn, Refusal> {
    let reader = shared.reader(peer);
    if !shared.unread.has_room(&reader) {
        return Err(shared.too_much_unread());
    }
    let turn = shared.heavy.turn(from, if is_for_all { Reader::Here } else { reader }).await;
    turn.ok_or_else(|| shared.too_much_unread())
}

impl Shared {
    /// Counts and returns the refusal of a read that found no room in memory or got no permit in
    /// time.
    pub(super) fn too_much_unread(&self) -> Refusal {
        self.health.refused(Limit::UnreadAnswers, 1);
        Refusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many answers wait to be read or to be made (unread_answer_bytes in /healthz)",
        )
    }
}

/// Runs work outside the HTTP thread.
pub(super) async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Refusal::ended(&error))
}

/// Makes a list with a row for each chosen series, `{"key": [row, …]}`.
pub(super) fn list(
    bank: &Mutex<Bank>,
    choice: &Choice,
    key: &str,
    row: impl Fn(&mut Rows, &Series, &Account),
) -> Bytes {
    let mut names = lock(bank).names(&choice.selector);
    names.retain(|series| choice.has_end(series));
    names.sort_unstable_by(in_order);
    let mut rows = Rows { text: format!("{{\"{key}\":[").into_bytes(), is_first: true };
    visit(bank, &names, |series, account| row(&mut rows, series, account));
    rows.text.extend_from_slice(b"]}");
    rows.text.into()
}

/// The rows of a list that are written so far.
pub(super) struct Rows {
    text: Vec<u8>,
    is_first: bool,
}

impl Rows {
    pub(super) fn push<T: Serialize>(&mut self, row: &T) {
        if !std::mem::take(&mut self.is_first) {
            self.text.push(b',');
        }
        // Types of `barograph_api` have text keys and no failing serializers, and writing to a
        // vector cannot fail.
        let _ = serde_json::to_writer(&mut self.text, row);
    }
}
