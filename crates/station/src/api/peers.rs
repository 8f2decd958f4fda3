//! `/v1/mesh`, `/v1/peers`, `/v1/peers/events`: state of the mesh (docs/spec/mesh.md).

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::Extension;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use barograph_api::{
    Directory, DroppedAddress, Keyword, Mesh, MissedEvents, PeerCounts, PeerEvent, PeerList, Spool,
};
use futures_util::stream::unfold;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::sync::watch;

use super::query::{NoParameters, query};
use super::{ApiRefusal, ApiStateExtractor, json};
use crate::api::RemoteEnd;
use crate::limits::connections::ConnectionGuard;
use crate::measure::targets::Targets;
use crate::mesh::{EngineLocation, PeerState};

pub(super) async fn mesh(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
) -> Result<Response, ApiRefusal> {
    let NoParameters {} = query(&uri)?;
    let config = &shared.initial.mesh;
    let mesh_state = &shared.mesh_state;
    let (directory, assignment) = (mesh_state.directory(), mesh_state.site_assignment());
    let [(_, up), (_, lost), (_, ignored)] = mesh_state.counts();
    let spool = mesh_state.spool().map(|spool| Spool {
        // Also count the records in memory. These records wait in memory until the mesh has
        // reported which sequence numbers this station has used.
        records: spool.records + shared.health.spool_records.load(Ordering::Relaxed),
        records_max: config.spool_records_max,
        is_full: spool.is_full,
        turned_away: spool.refused_full,
        forwarded: spool.forwarded,
        refused: spool.refused,
        overtaken: spool.conflicting,
        is_paced: spool.is_throttled,
        watermark: spool.watermark,
        error: spool.last_error,
    });
    let answer = Mesh {
        host: shared.host.to_string(),
        role: mesh_state.location.role().into(),
        engine: mesh_state.location.as_str().into(),
        joined: match &mesh_state.location {
            EngineLocation::Remote(url) => Some(url.clone()),
            EngineLocation::Local | EngineLocation::Nats { .. } => None,
        },
        site: assignment.site.to_string(),
        groups: assignment.groups.iter().map(ToString::to_string).collect(),
        lease_s: config.lease.as_secs_f64(),
        directory: Directory {
            connected: directory.is_connected(),
            error: directory.reason().map(str::to_string),
            away_s: directory.away_s(),
            read_only_s: directory.read_only_s(),
            conflict: directory.conflict().map(str::to_string),
        },
        peers: PeerCounts { up, lost, ignored },
        spool,
        hooks_dropped: mesh_state.hooks_dropped(),
    };
    Ok(json(StatusCode::OK, &answer))
}

pub(super) async fn peers(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
) -> Result<Response, ApiRefusal> {
    let NoParameters {} = query(&uri)?;
    let lease_s = shared.initial.mesh.lease.as_secs_f64();
    let peers = shared.mesh_state.peers();
    let peers = peers.all().map(|peer| shape(peer, &shared.targets, lease_s)).collect();
    Ok(json(StatusCode::OK, &PeerList { peers }))
}

fn shape(peer: &crate::mesh::Peer, targets: &Targets, lease_s: f64) -> barograph_api::Peer {
    let entry = &peer.entry;
    let can = entry.capabilities;
    let words = [
        (can.responder, "responder"),
        (can.bulk, "bulk"),
        (can.archive, "archive"),
        (can.iperf3, "iperf3"),
        (can.trains, "trains"),
    ];
    let reason = match &peer.state {
        PeerState::Ignored(reason) => Some(reason.clone()),
        PeerState::Up => targets
            .overrides_mesh(entry.host.as_str())
            .map(|from| format!("a target of this name is measured instead (from {})", from.as_str()))
            .or_else(|| peer.trouble.clone()),
        PeerState::Lost => None,
    };
    let dropped = |(address, reason): &(std::net::SocketAddr, &'static str)| DroppedAddress {
        address: address.to_string(),
        reason: Keyword::from(*reason),
    };
    barograph_api::Peer {
        host: entry.host.to_string(),
        state: peer.state.as_str().into(),
        reason,
        since_s: peer.since_s,
        addresses: entry.addresses.iter().map(ToString::to_string).collect(),
        dropped: peer.dropped.iter().map(dropped).collect(),
        address: peer.in_use.map(|address| address.to_string()),
        version: entry.version.clone(),
        groups: entry.groups.iter().map(ToString::to_string).collect(),
        capabilities: words.iter().filter(|(can, _)| *can).map(|(_, word)| Keyword::from(*word)).collect(),
        lease_s,
    }
}

/// A subscriber of the events. It receives the kept events first, then new events.
struct PeerEventStream {
    kept: VecDeque<Arc<PeerEvent>>,
    live: Receiver<Arc<PeerEvent>>,
    stopping: watch::Receiver<bool>,
    _slot: Arc<ConnectionGuard>,
}

pub(super) async fn events(
    axum::extract::State(shared): ApiStateExtractor,
    Extension(remote): Extension<RemoteEnd>,
    Extension(connection): Extension<Arc<ConnectionGuard>>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, ApiRefusal> {
    let NoParameters {} = query(&uri)?;
    let after = last_event_id(&headers)?;
    let slot = shared.stream(&remote, &connection)?;
    let (kept, live) = shared.mesh_state.events.watch(after);
    let stream = PeerEventStream { kept, live, stopping: shared.stopping.clone(), _slot: slot };
    let events = unfold(stream, |mut stream| async move {
        let event = stream.next().await?;
        Some((Ok::<sse::Event, Infallible>(event), stream))
    });
    let keep_alive = KeepAlive::new().interval(super::stream::KEEP_ALIVE);
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    // Reverse proxies must pass events on without buffering.
    response.headers_mut().insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
    Ok(response)
}

/// Id of the last event that a browser received before it reconnected (WHATWG HTML §9.2.4).
fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, ApiRefusal> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let id = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    id.map(Some).ok_or_else(|| ApiRefusal::bad("`Last-Event-ID`: expected the number of an event"))
}

impl PeerEventStream {
    /// The next event; `None` when the station stops.
    async fn next(&mut self) -> Option<sse::Event> {
        if let Some(event) = self.kept.pop_front() {
            return sent(&event);
        }
        let received = tokio::select! {
            received = self.live.recv() => received,
            _ = self.stopping.wait_for(|stopping| *stopping) => return None,
        };
        match received {
            Ok(event) => sent(&event),
            Err(RecvError::Lagged(missed)) => {
                let data = serde_json::to_string(&MissedEvents { missed }).ok()?;
                Some(sse::Event::default().event("lag").data(data))
            }
            Err(RecvError::Closed) => None,
        }
    }
}

fn sent(event: &PeerEvent) -> Option<sse::Event> {
    let data = serde_json::to_string(event).ok()?;
    Some(sse::Event::default().event(event.event.as_str()).id(event.id.to_string()).data(data))
}
