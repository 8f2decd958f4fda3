//! Streams of a member: changes of the directory, and records as they are stored.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use barograph_engine::{BoxStream, Cursor, EngineError, Event, Record, StartAt, wire};
use futures_util::stream::unfold;
use futures_util::{FutureExt as _, StreamExt as _};
use serde::Deserialize;
use tokio::sync::watch;

use super::{EngineRefusal, in_lines, invalid, member, name, query};
use crate::api::ApiStateExtractor;
use crate::api::query::selector;
use crate::limits::member_quota::QuotaPermit;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WatchQuery {
    group: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubscribeQuery {
    source: Option<String>,
    target: Option<String>,
    quantity: Option<String>,
    from: Option<String>,
}

pub(super) async fn watch(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, EngineRefusal> {
    let (_, member) = member(&shared, &headers)?;
    let share = member.quota.stream().map_err(|why| EngineRefusal::too_much(&shared, why))?;
    let asked: WatchQuery = query(&uri)?;
    let items = shared.engine.watch(&name("group", &asked.group)?);
    let line: fn(Event) -> String = match reads_removed(&headers) {
        true => |event| wire::event_text(&event),
        false => |event| wire::event_text(&without_removed(event)),
    };
    let (removal, stopping) = (member.removal(), shared.stopping.clone());
    Ok(MemberStream {
        items,
        line,
        goes_on: |_| false,
        removal,
        stopping,
        ended: false,
        _shares: vec![share],
    }
    .answer())
}

/// Whether the caller can read [`Event::Removed`]. Older stations treat this event as an error.
fn reads_removed(headers: &HeaderMap) -> bool {
    let (header, events) = wire::REMOVED_EVENTS_HEADER;
    let mut given = headers.get_all(header).iter().filter_map(|value| value.to_str().ok());
    given.any(|words| words.split(',').any(|word| word.trim() == events))
}

fn without_removed(event: Event) -> Event {
    if let Event::Removed(host) = event { Event::Down(host) } else { event }
}

pub(super) async fn subscribe(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, EngineRefusal> {
    let (_, member) = member(&shared, &headers)?;
    let too_much = |why| EngineRefusal::too_much(&shared, why);
    let stream = member.quota.stream().map_err(too_much)?;
    let subscription = member.quota.subscription().map_err(too_much)?;
    let asked: SubscribeQuery = query(&uri)?;
    let selector = selector(asked.source.as_deref(), asked.target.as_deref(), asked.quantity.as_deref());
    let from = match asked.from.as_deref() {
        None | Some("now") => StartAt::Now,
        Some("oldest") => StartAt::Oldest,
        Some(cursor) => StartAt::After(Cursor(
            cursor.parse().map_err(|_| EngineRefusal::invalid("`from`: expected now, oldest or a cursor"))?,
        )),
    };
    let items = shared.engine.subscribe(&selector.map_err(invalid)?, from);
    let line: fn((Cursor, Record)) -> String = |(cursor, record)| wire::subscription_line(cursor, &record);
    let goes_on = |error: &EngineError| matches!(error, EngineError::Lagged { .. });
    let (removal, stopping) = (member.removal(), shared.stopping.clone());
    Ok(MemberStream {
        items,
        line,
        goes_on,
        removal,
        stopping,
        ended: false,
        _shares: vec![stream, subscription],
    }
    .answer())
}

struct MemberStream<T> {
    items: BoxStream<T>,
    line: fn(T) -> String,
    /// Whether the stream continues after an error.
    goes_on: fn(&EngineError) -> bool,
    removal: watch::Receiver<bool>,
    stopping: watch::Receiver<bool>,
    ended: bool,
    _shares: Vec<QuotaPermit>,
}

impl<T: Send + 'static> MemberStream<T> {
    fn answer(self) -> Response {
        let pieces = unfold(self, |mut stream| async {
            let piece = stream.next().await?;
            Some((Ok::<String, Infallible>(piece), stream))
        });
        in_lines(Body::from_stream(pieces))
    }

    /// Returns some whole lines. The server calls this function only while the member reads, so
    /// that no lines accumulate.
    async fn next(&mut self) -> Option<String> {
        if self.ended {
            return None;
        }
        let item = tokio::select! {
            // A withdrawn member gets no further items, even if some are ready.
            biased;
            _ = self.removal.wait_for(|removed| *removed) => {
                self.ended = true;
                Err(EngineError::Denied("the invitation was withdrawn".into()))
            }
            _ = self.stopping.wait_for(|stopping| *stopping) => return None,
            item = self.items.next() => item?,
            () = tokio::time::sleep(HEARTBEAT) => return Some("\n".into()),
        };
        let mut piece = String::new();
        self.push(&mut piece, item);
        // Add the items that are ready.
        while piece.len() < PIECE_BYTES
            && !self.ended
            && let Some(Some(item)) = self.items.next().now_or_never()
        {
            self.push(&mut piece, item);
        }
        Some(piece)
    }

    fn push(&mut self, piece: &mut String, item: Result<T, EngineError>) {
        match item {
            Ok(item) => *piece += &(self.line)(item),
            Err(error) => {
                self.ended = self.ended || !(self.goes_on)(&error);
                *piece += &wire::error_text(&error);
            }
        }
        piece.push('\n');
    }
}

/// Time without items after which an empty line is sent. This time is much shorter than a usual
/// lease, so the client detects a dead connection long before the lease ends.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// Number of bytes of collected lines after which no further line is added: about one write to the
/// socket.
const PIECE_BYTES: usize = 16 << 10;
