//! `/v1/invitations` and `/v1/members`: the stations that may use this station's engine.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use barograph_api::{Invitation, Member, MemberList, NewInvitation, RemovedName};
use barograph_forecast::Name;
use serde::Deserialize;

use super::engine::MemberService;
use super::query::{NoParameters, query};
use super::{ApiRefusal, ApiState, ApiStateExtractor, feed, json};
use crate::limits::Limit;
use crate::mesh::members::MembersError;
use crate::mesh::{EngineLocation, PeerState};
use crate::sync::lock;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RemoveQuery {
    name: String,
}

pub(super) async fn invite(
    axum::extract::State(shared): ApiStateExtractor,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiRefusal> {
    let asked: NewInvitation = feed::json_body(&headers, body).await?;
    let name = asked.name.as_deref().map(Name::new).transpose();
    let name = name.map_err(|error| ApiRefusal::bad(format!("`name`: {error}")))?;
    if let Some(name) = &name {
        name.check_visible().map_err(|error| ApiRefusal::bad(format!("`name`: {error}")))?;
    }
    let (shown, host, address) =
        (name.as_ref().map(Name::to_string), shared.host.to_string(), shared.address);
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let (token, id) = with_served(&shared, move |served| {
        let token = served.members.invite(name, now_s)?;
        let id = served.members.of_token(&token).map(|member| member.info().id);
        Ok((token, id.unwrap_or_default()))
    })
    .await?;
    let addresses = shared.mesh_state.directory().addresses().iter().map(ToString::to_string).collect();
    let invitation = Invitation { token, id, name: shown, host, address: address.to_string(), addresses };
    Ok(json(StatusCode::CREATED, &invitation))
}

pub(super) async fn list(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
) -> Result<Response, ApiRefusal> {
    let NoParameters {} = query(&uri)?;
    let all = shared.served.as_ref().map(|served| (served, served.members.all()));
    let members = all.into_iter().flat_map(|(served, all)| {
        all.into_iter().map(|known| Member {
            registered: known.name.as_ref().is_some_and(|name| served.leases.holds(name)),
            name: known.name.map(|name| name.to_string()),
            id: known.id,
            created_s: known.created_s,
        })
    });
    Ok(json(StatusCode::OK, &MemberList { members: members.collect() }))
}

pub(super) async fn remove(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
) -> Result<Response, ApiRefusal> {
    let asked: RemoveQuery = query(&uri)?;
    let removed = asked.name.clone();
    // Remove the member in a task, so that the removal completes even if the caller disconnects.
    let removing = tokio::spawn(async move {
        match shared.mesh_state.location {
            EngineLocation::Nats { .. } => remove_on_nats(&shared, &asked.name).await,
            _ => remove_member(&shared, asked.name).await,
        }
    });
    removing.await.map_err(|error| ApiRefusal::ended(&error))??;
    Ok(json(StatusCode::OK, &RemovedName { removed }))
}

/// Removes a station from the directory of a mesh on NATS.
async fn remove_on_nats(shared: &Arc<ApiState>, name: &str) -> Result<(), ApiRefusal> {
    // The NATS servers decide which stations are members; the directory has only registrations.
    let name = Name::new(name).map_err(|error| ApiRefusal::bad(format!("`name`: {error}")))?;
    if name == shared.host {
        return Err(refusal(MembersError::Own(name)));
    }
    let state = shared.mesh_state.peers().get(&name).map(|peer| peer.state.clone());
    match state {
        Some(PeerState::Lost) => {}
        // `name` was removed before. Repeat the removal for stations that were not connected for a
        // long time.
        None if shared.mesh_state.removed.contains(&name) => {}
        // `name` was lost before this station was started, and this station still has the series of
        // `name`.
        None if lock(&shared.series_table).count_of(&name) > 0 => {}
        None => return Err(refusal(MembersError::Unknown(name.to_string()))),
        Some(_) => {
            let error = format!(
                "`{name}` is registered: withdraw its right to connect at the NATS servers first, and wait until \
                 it is lost; it would register again"
            );
            return Err(ApiRefusal::new(StatusCode::CONFLICT, error));
        }
    }
    shared.engine.remove(&name).await?;
    wait_until_written(shared, &name).await;
    Ok(())
}

/// Withdraws the invitation, and removes the station that has used it.
async fn remove_member(shared: &Arc<ApiState>, name_or_id: String) -> Result<(), ApiRefusal> {
    let station = Name::new(&name_or_id).ok();
    let withdrawn = with_served(shared, move |served| {
        let member = served.members.remove(&name_or_id)?;
        Ok((member.name(), member.is_used()))
    })
    .await;
    let (name, is_used) = match (withdrawn, station) {
        (Ok((name, is_used)), _) => (name, is_used),
        // This station may have stopped after it had withdrawn the invitation and before it had
        // written the removal.
        (Err(refusal), Some(name)) if refusal.status == StatusCode::NOT_FOUND => {
            if !is_station(shared, &name).await? {
                return Err(refusal);
            }
            (Some(name), true)
        }
        (Err(refusal), _) => return Err(refusal),
    };
    let (Some(name), Some(served)) = (name, &shared.served) else { return Ok(()) };
    shared.authenticated.with(|authenticated| authenticated.forget(&name));
    if !is_used && !is_station(shared, &name).await? {
        return Ok(());
    }
    let is_held = || served.members.has(&name);
    let is_removed = served.leases.remove(shared.engine.as_ref(), &name, is_held).await?;
    shared.reserve_series();
    if is_removed {
        wait_until_written(shared, &name).await;
    }
    Ok(())
}

/// Waits until the removal of a station is in the file, so that a crash after the answer does not
/// undo the removal.
async fn wait_until_written(shared: &ApiState, name: &Name) {
    let is_removed = || lock(&shared.series_table).is_removed(name);
    let written = shared.mesh_state.removed.wait_until_written(name, is_removed);
    let _ = tokio::time::timeout(WRITE_TIMEOUT, written).await;
}

/// Whether a station of this name was in the mesh that this station serves, although it is no
/// member now.
async fn is_station(shared: &ApiState, name: &Name) -> Result<bool, ApiRefusal> {
    let Some(served) = &shared.served else { return Ok(false) };
    if *name == shared.host || served.members.has(name) {
        return Ok(false);
    }
    let is_known = served.leases.holds(name) || shared.mesh_state.peers().get(name).is_some();
    Ok(is_known || shared.mesh_state.has_forwarded(name).await?)
}

/// Changes the list of members on disk, outside the HTTP thread.
async fn with_served<T: Send + 'static>(
    shared: &Arc<ApiState>,
    change: impl FnOnce(&MemberService) -> Result<T, MembersError> + Send + 'static,
) -> Result<T, ApiRefusal> {
    if shared.served.is_none() {
        let error =
            "this station is a member of another mesh; run `barograph invite` at the station that serves it";
        return Err(ApiRefusal::new(StatusCode::CONFLICT, error));
    }
    let (shared, health) = (Arc::clone(shared), Arc::clone(&shared.health));
    let changed = tokio::task::spawn_blocking(move || shared.served.as_ref().map(change)).await;
    match changed {
        Ok(Some(result)) => result.map_err(|error| {
            if let MembersError::TooMany = error {
                health.refused(Limit::Members, 1);
            }
            refusal(error)
        }),
        // `served` was `Some` at the check above.
        Ok(None) => Err(ApiRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "the station is stopping")),
        Err(error) => Err(ApiRefusal::ended(&error)),
    }
}

fn refusal(error: MembersError) -> ApiRefusal {
    let status = match &error {
        MembersError::Own(_)
        | MembersError::Taken(_)
        | MembersError::Bound { .. }
        | MembersError::Removed => StatusCode::CONFLICT,
        MembersError::Unknown(_) => StatusCode::NOT_FOUND,
        MembersError::TooMany => StatusCode::TOO_MANY_REQUESTS,
        MembersError::Store { .. } => StatusCode::SERVICE_UNAVAILABLE,
    };
    ApiRefusal::new(status, error.to_string())
}

/// Longest time that an answer waits until a removal is written: a busy disk takes seconds. After
/// this time the answer is sent without the write. The removal itself has taken effect, except on
/// NATS if the station has registered again meanwhile.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
