//! `/v1/engine/…`: this station's engine, for the members that it invited (docs/spec/engine.md).

mod append;
mod entry;
mod leases;
mod read;
mod streams;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post, put};
use barograph_engine::{EngineError, TaskStatus, wire};
use barograph_forecast::Name;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ApiRefusal, ApiState, json};
use crate::limits::Limit;
use crate::mesh::members::{Member, Members, MembersError};
use crate::state::StateFiles;
use crate::sync::lock;
use leases::Leases;

/// Members and their leases, at a station that serves its engine.
pub(crate) struct MemberService {
    pub(super) members: Members,
    pub(super) leases: Leases,
}

impl MemberService {
    /// Reads the list of members.
    ///
    /// # Errors
    /// If the file cannot be read or is damaged.
    pub(crate) fn open(files: StateFiles, host: Name) -> std::io::Result<Self> {
        Ok(Self { members: Members::open(files, host)?, leases: Leases::default() })
    }

    /// Number of members, including open invitations.
    pub(crate) fn members(&self) -> usize {
        self.members.len()
    }

    /// Groups of each member, including members that are not up now.
    pub(crate) fn groups(&self) -> HashMap<Name, Vec<Name>> {
        let mut groups = self.members.groups();
        groups.extend(self.leases.groups());
        groups
    }

    /// Names of the members; open invitations may have none.
    pub(crate) fn names(&self) -> Vec<Name> {
        self.members.all().into_iter().filter_map(|known| known.name).collect()
    }

    /// Status of the tasks that end the leases of members.
    pub(crate) fn task(&self) -> Arc<TaskStatus> {
        self.leases.task()
    }
}

/// The routes below `/v1/engine/`.
pub(super) fn routes() -> Vec<(&'static str, MethodRouter<Arc<ApiState>>)> {
    vec![
        ("/v1/engine/entry", put(entry::register).post(entry::renew).delete(entry::deregister)),
        ("/v1/engine/watch", get(streams::watch)),
        ("/v1/engine/records", post(append::append)),
        ("/v1/engine/subscribe", get(streams::subscribe)),
        ("/v1/engine/history", get(read::history)),
        ("/v1/engine/latest", get(read::latest)),
        ("/v1/engine/watermark", get(read::watermark)),
        ("/v1/engine/next_seq", get(read::next_seq)),
    ]
}

/// Whether a request is for one of these routes. The handler of each route checks the member's
/// token.
pub(super) fn is_below(path: &str) -> bool {
    path.starts_with("/v1/engine/")
}

/// An error response: a status, and a JSON text with the error and its kind.
struct EngineRefusal {
    status: StatusCode,
    text: String,
    /// Delay before the next try, if a retry may help.
    wait: Duration,
}

#[derive(Serialize)]
struct WordJson<'a> {
    error: &'a str,
    kind: &'a str,
}

impl EngineRefusal {
    fn new(status: StatusCode, error: &EngineError) -> Self {
        let wait = if let EngineError::Throttled { wait, .. } = error { *wait } else { RETRY_DEFAULT };
        Self { status, text: wire::error_text(error), wait }
    }

    /// Refusal for blocking work that returned no result, because it panicked or the station is
    /// stopping.
    fn ended(error: &tokio::task::JoinError) -> Self {
        let ApiRefusal { status, error } = ApiRefusal::ended(error);
        Self::new(status, &EngineError::Unavailable(error))
    }

    fn invalid(why: impl Into<String>) -> Self {
        EngineError::Invalid(why.into()).into()
    }

    fn word(status: StatusCode, kind: &str, error: &str) -> Self {
        let text = serde_json::to_string(&WordJson { error, kind }).expect("two texts are JSON");
        Self { status, text, wait: RETRY_DEFAULT }
    }

    /// Refusal for a member that uses all its permits for streams or requests. A permit becomes
    /// free when a stream or request of the member ends.
    fn too_much(shared: &ApiState, why: String) -> Self {
        shared.health.refused(Limit::MemberRequests, 1);
        Self::new(StatusCode::TOO_MANY_REQUESTS, &EngineError::Unavailable(why))
    }
}

impl From<EngineError> for EngineRefusal {
    fn from(error: EngineError) -> Self {
        let status = match &error {
            EngineError::Invalid(_) => StatusCode::BAD_REQUEST,
            EngineError::Denied(_) => StatusCode::FORBIDDEN,
            EngineError::TooOld(_) => StatusCode::GONE,
            EngineError::Throttled { .. } => StatusCode::TOO_MANY_REQUESTS,
            EngineError::Corrupt(_) | EngineError::TooNew { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            EngineError::Unknown(_) | EngineError::Unavailable(_) | EngineError::Lagged { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        };
        Self::new(status, &error)
    }
}

impl From<MembersError> for EngineRefusal {
    fn from(error: MembersError) -> Self {
        match error {
            MembersError::Store { .. } => EngineError::Unavailable(error.to_string()).into(),
            _ => EngineError::Denied(error.to_string()).into(),
        }
    }
}

impl IntoResponse for EngineRefusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.text).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            // Whole seconds, rounded up.
            let seconds = self.wait.as_secs() + u64::from(self.wait.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            // A 401 response must name the scheme (RFC 9110 §11.6.1).
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Counts a request that exceeds the member's rate, so that the member has to wait.
fn count_throttled(shared: &ApiState) {
    shared.health.refused(Limit::MemberPace, 1);
}

/// The member that sent the request.
fn member<'a>(
    shared: &'a ApiState,
    headers: &HeaderMap,
) -> Result<(&'a MemberService, Arc<Member>), EngineRefusal> {
    let Some(served) = &shared.served else {
        let why = "this station has joined another mesh; join at the station that serves it";
        return Err(EngineError::Unavailable(why.into()).into());
    };
    member_of_token(shared, headers).map(|member| (served, member)).ok_or_else(|| {
        shared.health.requests_refused.fetch_add(1, Ordering::Relaxed);
        let why = match bearer(headers) {
            Some(_) => "the token is unknown or its invitation was withdrawn",
            None => "a member's token is needed: Authorization: Bearer TOKEN",
        };
        EngineRefusal::new(StatusCode::UNAUTHORIZED, &EngineError::Denied(why.into()))
    })
}

/// The member that has the token of the request.
pub(super) fn member_of_token(shared: &ApiState, headers: &HeaderMap) -> Option<Arc<Member>> {
    shared.served.as_ref()?.members.of_token(bearer(headers)?)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("Bearer").then_some(token.trim())
}

/// Ensures that `member` is bound to `name`. If `member` is not bound yet, binds it now.
async fn bind_member(shared: &Arc<ApiState>, member: &Arc<Member>, name: &Name) -> Result<(), EngineRefusal> {
    let known = member.name();
    if known.as_ref() == Some(name) && member.is_used() && !member.is_removed() {
        return Ok(());
    }
    let (member, name) = (Arc::clone(member), name.clone());
    if known.is_some() {
        return change(shared, move |members| members.bind(&member, &name)).await;
    }
    name.check_visible().map_err(|error| EngineRefusal::invalid(format!("`{name}`: {error}")))?;
    let shared = Arc::clone(shared);
    // Bind in a task, which also completes if the caller disconnects. The name stays claimed until
    // it is bound.
    let binding = tokio::spawn(async move {
        let Some(_claim) = shared.name_reservations.claim(&name) else { return Err(in_use(&shared, &name)) };
        check_name_free(&shared, &member, &name).await?;
        let (member, name) = (Arc::clone(&member), name.clone());
        change(&shared, move |members| members.bind(&member, &name)).await
    });
    binding.await.map_err(|error| EngineRefusal::ended(&error))?
}

/// Checks that an open invitation does not take a name in use here: a target of this station, the
/// source of an application or a page, or the source or target of a series that is shown. Otherwise
/// the member could add its own values to these series, and removing the member would delete the
/// series that have the member as target. A removed station may take its name again.
async fn check_name_free(shared: &ApiState, member: &Member, name: &Name) -> Result<(), EngineRefusal> {
    let Some(served) = &shared.served else { return Ok(()) };
    served.members.check_free(name)?;
    // A claim costs as much as a registration, even if the claim is then refused.
    member.quota.take_registration(Instant::now()).inspect_err(|_| count_throttled(shared))?;
    // Names of targets are HOST:PORT or URLs, and names of pages are `web:NAME`; stations have no
    // such names.
    let is_ours =
        shared.targets.overrides_mesh(name.as_str()).is_some() || name.as_str().contains([':', '/']);
    if !is_ours && is_new(shared, served, name).await? {
        return Ok(());
    }
    Err(in_use(shared, name))
}

fn in_use(shared: &ApiState, name: &Name) -> EngineRefusal {
    let why = format!(
        "`{name}` is already in use at {0}; run `barograph invite {name}` there to give it to a member",
        shared.host
    );
    EngineError::Denied(why).into()
}

/// Whether the station shows no series of this name, and its archive has no record with this
/// origin. Measurements of members do not count: otherwise one record of any member could make a
/// name unavailable to a station. The series of removed stations are not shown, and their names are
/// free again. If such a station forwarded records, all records of this origin are its own: the
/// archive refuses those of an application.
async fn is_new(shared: &ApiState, served: &MemberService, name: &Name) -> Result<bool, EngineError> {
    let members = served.members.names();
    let (is_shown, was_removed, is_full) = {
        let series_table = lock(&shared.series_table);
        let is_shown = series_table.has_end(name, |source| !members.contains(source));
        (is_shown, series_table.is_removed(name), series_table.room() == 0)
    };
    if is_full {
        // Series of the archive may be missing in the series table.
        let why =
            "the station has no room for further series (limits.series_max); invite the station by its name";
        return Err(EngineError::Unavailable(why.into()));
    }
    if is_shown {
        return Ok(false);
    }
    let is_left_over = was_removed && shared.mesh_state.has_forwarded(name).await?;
    Ok(is_left_over || shared.engine.next_seq(name).await? == 1)
}

/// Changes the file of members on disk, outside the HTTP thread.
async fn change(
    shared: &Arc<ApiState>,
    change: impl FnOnce(&Members) -> Result<(), MembersError> + Send + 'static,
) -> Result<(), EngineRefusal> {
    let shared = Arc::clone(shared);
    let change = move || match &shared.served {
        Some(served) => change(&served.members),
        None => Err(MembersError::Removed),
    };
    let done = tokio::task::spawn_blocking(change).await;
    Ok(done.map_err(|error| EngineRefusal::ended(&error))??)
}

fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, EngineRefusal> {
    super::query::query(uri).map_err(invalid)
}

fn invalid(refusal: ApiRefusal) -> EngineRefusal {
    EngineRefusal::invalid(refusal.error)
}

/// Checks the media type of a body. Pages of other sites cannot send a body of this type without a
/// preflight request.
fn expect_type(headers: &HeaderMap, expected: &str) -> Result<(), EngineRefusal> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = given.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    let error = EngineError::Invalid(format!("the body must be {expected}"));
    Err(EngineRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, &error))
}

/// Length of a body (bytes) from the header `Content-Length`; `bytes_max` without this header.
fn length(headers: &HeaderMap, bytes_max: usize) -> Result<usize, EngineRefusal> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    match length {
        Some(length) if length > bytes_max => Err(too_large(bytes_max)),
        length => Ok(length.unwrap_or(bytes_max)),
    }
}

fn too_large(bytes_max: usize) -> EngineRefusal {
    let error = EngineError::Invalid(format!("a body has at most {bytes_max} bytes"));
    EngineRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, &error)
}

/// Reads a small body as a whole.
async fn whole(headers: &HeaderMap, body: Body, bytes_max: usize) -> Result<Bytes, EngineRefusal> {
    length(headers, bytes_max)?;
    match tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, bytes_max)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(too_large(bytes_max)),
        Err(_) => Err(late()),
    }
}

fn late() -> EngineRefusal {
    let error = EngineError::Invalid("the body did not arrive in time".into());
    EngineRefusal::new(StatusCode::REQUEST_TIMEOUT, &error)
}

fn name(key: &str, text: &str) -> Result<Name, EngineRefusal> {
    Name::new(text).map_err(|error| EngineRefusal::invalid(format!("`{key}`: {error}")))
}

/// A response of lines of JSON.
fn in_lines(body: Body) -> Response {
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(LINES));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Reverse proxies must pass lines on without buffering.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn done<T: Serialize>(value: &T) -> Response {
    json(StatusCode::OK, value)
}

/// Media type: one JSON text on each line (ndjson.org).
const LINES: &str = "application/x-ndjson";

/// Default delay before the next try.
const RETRY_DEFAULT: Duration = Duration::from_secs(5);

/// Longest time until the body of an entry has arrived. A client that takes longer is broken or
/// attacks the station.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
