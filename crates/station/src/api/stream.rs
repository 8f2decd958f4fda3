//! `GET /v1/stream`: new points as server-sent events (WHATWG HTML, §9.2).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Extension;
use axum::http::Uri;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use barograph_api::MissedEvents;
use barograph_engine::Selector;
use futures_util::stream::unfold;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::sync::watch;

use super::query::{query, selector};
use super::read::{LevelQuery, kept_level};
use super::{ApiRefusal, ApiStateExtractor, RemoteEnd, json};
use crate::forecast::hub;
use crate::limits::connections::ConnectionGuard;

struct PointStream {
    points: Receiver<Arc<hub::PointEvent>>,
    stopping: watch::Receiver<bool>,
    selector: Selector,
    level: usize,
    _slot: Arc<ConnectionGuard>,
}

pub(super) async fn stream(
    axum::extract::State(shared): ApiStateExtractor,
    Extension(remote): Extension<RemoteEnd>,
    Extension(connection): Extension<Arc<ConnectionGuard>>,
    uri: Uri,
) -> Result<Response, ApiRefusal> {
    let asked: LevelQuery = query(&uri)?;
    let selector = selector(asked.source.as_deref(), asked.target.as_deref(), asked.quantity.as_deref())?;
    let level = kept_level(asked.level)?;
    let slot = shared.stream(&remote, &connection)?;
    let stream = PointStream {
        points: shared.hub.subscribe(),
        stopping: shared.stopping.clone(),
        selector,
        level,
        _slot: slot,
    };
    let events = unfold(stream, |mut stream| async move {
        let event = stream.next().await?;
        Some((Ok::<Event, Infallible>(event), stream))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    // Reverse proxies must pass points on without buffering.
    response.headers_mut().insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
    Ok(response)
}

impl PointStream {
    /// The next selected event; `None` when the station stops.
    async fn next(&mut self) -> Option<Event> {
        loop {
            let received = tokio::select! {
                received = self.points.recv() => received,
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
            };
            match received {
                Ok(event) if self.selector.matches(&event.series) => {
                    let data = serde_json::to_string(&json::event(&event, self.level)).ok()?;
                    return Some(Event::default().event("point").data(data));
                }
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => {
                    let data = serde_json::to_string(&MissedEvents { missed }).ok()?;
                    return Some(Event::default().event("lag").data(data));
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// Period of comments that keep the connection open. Proxies usually close a connection after 60 s
/// of silence.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
