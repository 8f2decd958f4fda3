//! The HTTP API (docs/spec/api.md): one file for each group of requests.

mod best;
mod bulk;
mod echo;
mod engine;
mod feed;
mod file;
mod guard;
mod health;
pub(crate) mod heavy;
mod horizons;
mod json;
mod latency;
mod members;
mod name_reservations;
mod page;
mod peers;
mod probe;
mod query;
mod read;
mod series_page;
mod sites;
mod stream;
mod targets;
mod transfers;
mod upgrade;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, RwLock};
use std::time::SystemTime;

use axum::Router;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use barograph_api::ErrorBody;
use barograph_engine::Engine;
use barograph_forecast::Name;
use barograph_probe::io::Responder;
use serde::Serialize;
use tokio::sync::watch;

use crate::config::Config;
use crate::echo::Echo;
use crate::forecast::hub::PointHub;
use crate::forecast::series::SeriesTable;
use crate::health::Health;
use crate::limits::authenticated::AuthenticatedCallers;
use crate::limits::connections::{ConnectionGuard, Connections};
use crate::limits::unread::{CallerClass, UnreadResponses};
use crate::limits::{Limit, reserved};
use crate::measure::targets::Targets;
use crate::mesh::sites::Sites;
use crate::mesh::snapshot::MeshSnapshot;
use crate::mesh::{Bulk, EngineLocation, MeshState};
use crate::record::recorder::Inbox;
use crate::state::StateFiles;
use crate::sync::lock;
use crate::transfer::Transfers;

pub(crate) use engine::MemberService;
use guard::RemoteEnd;
use heavy::HeavyReads;
pub(crate) use name_reservations::NameReservations;

/// State shared by all request handlers.
pub(crate) struct ApiState {
    pub(crate) host: Name,
    pub(crate) config: Arc<RwLock<Arc<Config>>>,
    /// Configuration at the start, for settings that need a restart.
    pub(crate) initial: Arc<Config>,
    pub(crate) series_table: Arc<Mutex<SeriesTable>>,
    pub(crate) hub: PointHub,
    pub(crate) engine: Arc<dyn Engine>,
    /// Members and their leases; `None` if this station does not serve its own engine.
    pub(crate) served: Option<MemberService>,
    /// Address on which the station listens.
    pub(crate) address: SocketAddr,
    pub(crate) inbox: Inbox,
    pub(crate) health: Arc<Health>,
    /// Small files of the state directory. A failed write is retried later.
    pub(crate) files: StateFiles,
    pub(crate) targets: Targets,
    pub(crate) mesh_state: Arc<MeshState>,
    pub(crate) snapshot: MeshSnapshot,
    pub(crate) sites: Arc<Sites>,
    pub(crate) bulk: Arc<Bulk>,
    pub(crate) transfers: Arc<Transfers>,
    pub(crate) token: String,
    pub(crate) responder: Arc<Responder>,
    pub(crate) echo: Arc<Echo>,
    pub(crate) started: SystemTime,
    /// Slots of live streams.
    pub(crate) streams: Connections,
    pub(crate) connections: Connections,
    /// Callers that were authorised recently.
    pub(crate) authenticated: AuthenticatedCallers,
    /// Becomes true when the station stops; streams then end.
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) unread: UnreadResponses,
    pub(crate) heavy: HeavyReads,
    pub(crate) name_reservations: NameReservations,
}

type ApiStateExtractor = axum::extract::State<Arc<ApiState>>;

impl ApiState {
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Copies into `health` the numbers of refusals that other parts of the station count.
    fn report_refusals(&self) {
        self.mesh_state.report_refusals(&self.health);
        self.health.refused_in_all(Limit::BulkTests, self.bulk.refused_tests());
        self.health.refused_in_all(Limit::ProbeRequests, self.responder.declined_count());
        let pages = self.echo.counters();
        self.health.refused_in_all(Limit::EchoRequests, pages.declined_by_a_limit());
        self.health.refused_in_all(Limit::EchoReports, self.echo.reports_crowded_out());
    }

    /// Takes a slot for the live stream of a connection.
    fn stream(
        &self,
        remote: &RemoteEnd,
        connection: &ConnectionGuard,
    ) -> Result<Arc<ConnectionGuard>, ApiRefusal> {
        let (slot, has_shed) =
            connection.take_slot(&self.streams, remote.is_same_host()).map_err(|full| {
                self.health.refused(Limit::from_full(full, Limit::Streams), 1);
                ApiRefusal::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "too many streams are open (limits.streams_max)",
                )
            })?;
        self.health.refused(Limit::Streams, has_shed.into());
        Ok(slot)
    }

    /// Groups of each other station that stores its series here, including stations that are not up
    /// now.
    fn groups_of_others(&self) -> HashMap<Name, Vec<Name>> {
        match &self.served {
            Some(served) => served.groups(),
            None if self.mesh_state.location == (EngineLocation::Nats { archive: true }) => {
                let peers = self.mesh_state.peers();
                peers.all().map(|peer| (peer.entry.host.clone(), peer.entry.groups.clone())).collect()
            }
            None => HashMap::new(),
        }
    }

    /// Reserves room for the series of each station of the current mesh.
    pub(crate) fn reserve_series(&self) {
        let reserved =
            reserved(self.groups_of_others(), &self.host, &self.mesh_state.site_assignment().groups);
        lock(&self.series_table).reserve(reserved);
    }

    /// Shows the series of a removed station again, because the station is back.
    pub(crate) fn readmit(&self, host: &Name) {
        self.mesh_state.readmit(host);
        lock(&self.series_table).admit_station(host);
    }

    /// Class of the caller, for the budget of unread bytes.
    fn caller_class(&self, remote: &RemoteEnd) -> CallerClass {
        match remote.address.ip() {
            _ if remote.is_same_host() => CallerClass::Local,
            ip => match self.authenticated.credential_owner(ip) {
                Some(owner) => CallerClass::Authenticated(ip, owner),
                None => CallerClass::Anonymous(ip),
            },
        }
    }
}

/// All routes with their methods, for the router and for the test against `openapi.json`.
fn routes() -> Vec<(&'static str, MethodRouter<Arc<ApiState>>)> {
    let mut routes = vec![
        ("/v1/station", get(read::station)),
        ("/v1/series", get(read::series)),
        ("/v1/latest", get(read::latest)),
        ("/v1/history", get(read::history)),
        ("/v1/recent", get(read::recent)),
        ("/v1/forecast", get(read::forecast)),
        ("/v1/best", get(best::best)),
        ("/v1/stream", get(stream::stream)),
        ("/v1/measurements", post(feed::measurements)),
        ("/v1/targets", get(targets::list).post(targets::add).delete(targets::remove)),
        ("/v1/mesh", get(peers::mesh)),
        ("/v1/peers", get(peers::peers)),
        ("/v1/peers/events", get(peers::events)),
        ("/v1/latency", get(latency::latency)),
        ("/v1/sites", get(sites::show).post(sites::accept).delete(sites::forget)),
        ("/v1/tests", get(bulk::list).post(bulk::begin)),
        ("/v1/invitations", post(members::invite)),
        ("/v1/members", get(members::list).delete(members::remove)),
        ("/v1/openapi.json", get(page::openapi)),
        ("/v1/probe", get(probe::probe)),
        ("/v1/echo", get(echo::echo)),
        ("/metrics", get(read::metrics)),
        ("/healthz", get(health::health)),
    ];
    routes.extend([
        ("/v1/transfers", get(transfers::list).post(transfers::send).delete(transfers::cancel)),
        ("/v1/transfers/lines", post(transfers::receive)),
    ]);
    routes.extend(engine::routes());
    routes
}

/// Makes the router. Every request passes the guard first.
pub(crate) fn router(shared: Arc<ApiState>) -> Router {
    let api = routes().into_iter().fold(Router::new(), |router, (path, methods)| router.route(path, methods));
    page::routes(api)
        .fallback(|uri: Uri| async move {
            ApiRefusal::new(
                StatusCode::NOT_FOUND,
                format!("there is nothing at {}; see /v1/openapi.json for the API", uri.path()),
            )
        })
        .method_not_allowed_fallback(|| async {
            ApiRefusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "this address does not support the method; see /v1/openapi.json",
            )
        })
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&shared), guard::guard))
        .with_state(shared)
}

/// An error response: a status and one sentence.
#[derive(Debug)]
pub(crate) struct ApiRefusal {
    status: StatusCode,
    error: String,
}

impl ApiRefusal {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into() }
    }

    /// Refusal for blocking work that returned no result, because it panicked or the station is
    /// stopping.
    fn ended(error: &tokio::task::JoinError) -> Self {
        if error.is_panic() {
            tracing::error!("a request handler panicked: {error}");
            return Self::new(StatusCode::INTERNAL_SERVER_ERROR, INTERNAL);
        }
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the station is stopping")
    }

    fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    fn bad(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }
}

impl IntoResponse for ApiRefusal {
    fn into_response(self) -> Response {
        let mut response = json(self.status, &ErrorBody { error: self.error.as_str().into() });
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("5"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            // A 401 response must name the scheme (RFC 9110 §11.6.1).
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<barograph_engine::EngineError> for ApiRefusal {
    fn from(error: barograph_engine::EngineError) -> Self {
        use barograph_engine::EngineError;
        let status = match &error {
            EngineError::Invalid(_) => StatusCode::BAD_REQUEST,
            EngineError::TooOld(_) => StatusCode::GONE,
            EngineError::Denied(_) => StatusCode::FORBIDDEN,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

/// Text of the response after a panic.
const INTERNAL: &str = "internal error: the request handler panicked, see the log";

/// A JSON response with `Cache-Control: no-store`.
fn json<T: Serialize>(status: StatusCode, value: &T) -> Response {
    // This conversion cannot fail: the keys of `barograph_api` types are texts, and their
    // serializers return no errors.
    let text = serde_json::to_string(value).unwrap_or_else(|_| r#"{"error":"not JSON"}"#.into());
    json_text(status, text)
}

/// A response as from [`json`], made from a text that is JSON already.
fn json_text(status: StatusCode, text: impl IntoResponse) -> Response {
    (status, JSON_HEADERS, text).into_response()
}

/// Headers of a JSON response.
const JSON_HEADERS: [(&str, &str); 2] = [("content-type", "application/json"), ("cache-control", "no-store")];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{ApiRefusal, StatusCode};

    #[tokio::test]
    async fn a_panic_is_an_internal_error_and_a_cancelled_task_is_unavailable() {
        let panicked = tokio::task::spawn_blocking(|| -> u8 { panic!("bad") }).await;
        let status = panicked.map_err(|error| ApiRefusal::ended(&error).status);
        assert_eq!(status, Err(StatusCode::INTERNAL_SERVER_ERROR));
        let waiting = tokio::spawn(std::future::pending::<u8>());
        waiting.abort();
        let status = waiting.await.map_err(|error| ApiRefusal::ended(&error).status);
        assert_eq!(status, Err(StatusCode::SERVICE_UNAVAILABLE));
    }

    #[test]
    fn the_openapi_document_lists_exactly_the_routes() {
        let document: serde_json::Value = serde_json::from_str(barograph_api::OPENAPI).unwrap();
        let mut documented: Vec<&str> =
            document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
        let mut routed: Vec<&str> = super::routes().iter().map(|(path, _)| *path).collect();
        documented.sort_unstable();
        routed.sort_unstable();
        assert_eq!(documented, routed);
    }
}
