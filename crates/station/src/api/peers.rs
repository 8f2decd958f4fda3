//! `/v1/mesh`, `/v1/peers`, `/v1/peers/events`: state of the mesh (docs/spec/mesh.md).

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::Extension;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use barograph_api::{Directory, DroppedAddress, Lag, Mesh, PeerCounts, PeerEvent, PeerList, Spool, Word};
use futures_util::stream::unfold;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::sync::watch;

use super::{Nothing, Refusal, State, json, query};
use crate::api::Peer;
use crate::limits::connections::Open;
use crate::measure::targets::Targets;
use crate::mesh::{Kind, Known, Standing};

pub(super) async fn mesh(axum::extract::State(shared): State, uri: Uri) -> Result<Response, Refusal> {
    let Nothing {} = query(&uri)?;
    let config = &shared.initial.mesh;
    let mesh_state = &shared.mesh_state;
    let (directory, standing) = (mesh_state.directory(), mesh_state.standing());
    let [(_, up), (_, lost), (_, ignored)] = mesh_state.counts();
    let spool = mesh_state.spool().map(|spool| Spool {
        // Until the mesh has reported which numbers this station has used, records wait in memory.
        records: spool.records + shared.health.spool_records.load(Ordering::Relaxed),
        records_max: config.spool_records_max,
        is_full: spool.is_full,
        turned_away: spool.turned_away,
        forwarded: spool.forwarded,
        refused: spool.refused,
        overtaken: spool.overtaken,
        is_paced: spool.is_paced,
        watermark: spool.watermark,
        error: spool.last_error,
    });
    let answer = Mesh {
        host: shared.host.to_string(),
        role: mesh_state.kind.role().into(),
        engine: mesh_state.kind.as_str().into(),
        joined: match &mesh_state.kind {
            Kind::Remote(url) => Some(url.clone()),
            Kind::Local | Kind::Nats { .. } => None,
        },
        site: standing.site.to_string(),
        groups: standing.groups.iter().map(ToString::to_string).collect(),
        lease_s: config.lease.as_secs_f64(),
        directory: Directory {
            connected: directory.is_connected(),
            error: directory.why().map(str::to_string),
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

pub(super) async fn peers(axum::extract::State(shared): State, uri: Uri) -> Result<Response, Refusal> {
    let Nothing {} = query(&uri)?;
    let lease_s = shared.initial.mesh.lease.as_secs_f64();
    let peers = shared.mesh_state.peers();
    let peers = peers.all().map(|peer| shape(peer, &shared.targets, lease_s)).collect();
    Ok(json(StatusCode::OK, &PeerList { peers }))
}

fn shape(peer: &Known, targets: &Targets, lease_s: f64) -> barograph_api::Peer {
    let entry = &peer.entry;
    let can = entry.capabilities;
    let words =
        [(can.responder, "responder"), (can.bulk, "bulk"), (can.archive, "archive"), (can.iperf3, "iperf3")];
    let reason = match &peer.standing {
        Standing::Ignored(reason) => Some(reason.clone()),
        Standing::Up => targets
            .overrides_mesh(entry.host.as_str())
            .map(|from| format!("a target of this name is measured instead (from {})", from.as_str()))
            .or_else(|| peer.trouble.clone()),
        Standing::Lost => None,
    };
    let dropped = |(address, reason): &(std::net::SocketAddr, &'static str)| DroppedAddress {
        address: address.to_string(),
        reason: Word::from(*reason),
    };
    barograph_api::Peer {
        host: entry.host.to_string(),
        state: peer.standing.as_str().into(),
        reason,
        since_s: peer.since_s,
        addresses: entry.addresses.iter().map(ToString::to_string).collect(),
        dropped: peer.dropped.iter().map(dropped).collect(),
        address: peer.in_use.map(|address| address.to_string()),
        version: entry.version.clone(),
        groups: entry.groups.iter().map(ToString::to_string).collect(),
        capabilities: words.iter().filter(|(can, _)| *can).map(|(_, word)| Word::from(*word)).collect(),
        lease_s,
    }
}

/// A subscriber of the events: first the kept events, then new ones.
struct Watcher {
    kept: VecDeque<Arc<PeerEvent>>,
    live: Receiver<Arc<PeerEvent>>,
    stopping: watch::Receiver<bool>,
    _seat: Arc<Open>,
}

pub(super) async fn events(
    axum::extract::State(shared): State,
    Extension(peer): Extension<Peer>,
    Extension(open): Extension<Arc<Open>>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Refusal> {
    let Nothing {} = query(&uri)?;
    let after = last_event_id(&headers)?;
    let seat = shared.stream(&peer, &open)?;
    let (kept, live) = shared.mesh_state.events.watch(after);
    let watcher = Watcher { kept, live, stopping: shared.stopping.clone(), _seat: seat };
    let events = unfold(watcher, |mut watcher| async move {
        let event = watcher.next().await?;
        Some((Ok::<sse::Event, Infallible>(event), watcher))
    });
    let keep_alive = KeepAlive::new().interval(super::stream::KEEP_ALIVE);
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    // Reverse proxies must pass events on without buffering.
    response.headers_mut().insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
    Ok(response)
}

/// Id of the last event that a browser received before it reconnected (WHATWG HTML §9.2.4).
fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Refusal> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let id = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    id.map(Some).ok_or_else(|| Refusal::bad("`Last-Event-ID`: expected the number of an event"))
}

impl Watcher {
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
                let data = serde_json::to_string(&Lag { missed }).ok()?;
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
