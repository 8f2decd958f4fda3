//! `/v1/engine/entry`: registration of a member in the directory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use barograph_api::{EngineRegistered, EngineRenewed, EngineUnregistered};
use barograph_engine::{EngineError, Entry, Group, wire};
use serde::Deserialize;

use super::leases::LeaseError;
use super::{EngineRefusal, bind_member, change, count_throttled, done, expect_type, member, query, whole};
use crate::api::{ApiState, ApiStateExtractor};
use crate::limits::{Limit, series_of_mesh, too_many_series};
use crate::mesh::members::Member;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegisterQuery {
    ttl_s: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegistrationQuery {
    registration: String,
}

pub(super) async fn register(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, EngineRefusal> {
    let (served, member) = member(&shared, &headers)?;
    let _request = member.quota.request().map_err(|why| EngineRefusal::too_much(&shared, why))?;
    let RegisterQuery { ttl_s } = query(&uri)?;
    if !(TTL_S_MIN..=TTL_S_MAX).contains(&ttl_s) {
        return Err(EngineRefusal::invalid(format!(
            "`ttl_s`: expected {TTL_S_MIN} to {TTL_S_MAX}, found {ttl_s}"
        )));
    }
    expect_type(&headers, "application/json")?;
    // Read the body first, so that a refusal need not close the connection.
    let text = whole(&headers, body, wire::ENTRY_BYTES_MAX).await?;
    member.quota.take_registration(Instant::now()).inspect_err(|_| count_throttled(&shared))?;
    let entry = wire::read_entry(&text)?;
    // A member of an earlier version may already be in a group with invisible characters in its
    // name. An earlier version of this station did not always store the groups of its members.
    let known_groups = member.groups();
    let may_be_old = member.has_registered() && known_groups.is_none();
    let known_groups = known_groups.unwrap_or_default();
    for group in entry.groups.iter().filter(|group| !may_be_old && !known_groups.contains(group)) {
        group.check_visible().map_err(|error| EngineRefusal::invalid(format!("group `{group}`: {error}")))?;
    }
    // Check here, so that a refused station takes no name. `register` checks a second time, while
    // no other registration can intervene.
    has_room_for(&shared, &member, &entry)?;
    bind_member(&shared, &member, &entry.host).await?;
    let ttl = Duration::from_secs_f64(ttl_s);
    let registration = served
        .leases
        .register(shared.engine.as_ref(), &entry, ttl, || has_room_for(&shared, &member, &entry))
        .await?;
    if member.is_removed() {
        // The member was removed during the registration, so the removal found no lease. A
        // different member may have the name by now.
        let _ = served.leases.deregister(&entry.host, &registration);
        let is_held = || served.members.has(&entry.host);
        served.leases.remove(shared.engine.as_ref(), &entry.host, is_held).await?;
        return Err(EngineError::Denied("the invitation was withdrawn".into()).into());
    }
    // The directory watch covers only this station's own groups, so readmit the host here. There is
    // no await since the check above, so this call reverts no removal.
    shared.readmit(&entry.host);
    if member.groups().as_ref() != Some(&entry.groups) {
        let was_admitted = member.has_registered();
        let kept = change(&shared, move |members| members.registered(&member, &entry.groups)).await;
        match kept {
            Err(refused) if !was_admitted => return Err(refused),
            // If the disk is full, a member that was admitted before must still be able to
            // register.
            Err(_) => tracing::warn!("the groups of a member could not be written"),
            Ok(_) => {}
        }
        shared.reserve_series();
    }
    Ok(done(&EngineRegistered { registration, ttl_s }))
}

/// Checks that this station has room for the series of the host of `entry`, in addition to the
/// series of all members, including members that are not up now. The check always succeeds for a
/// member in the groups with which it was admitted, or in groups that need no more series.
fn has_room_for(shared: &ApiState, member: &Member, entry: &Entry) -> Result<(), EngineRefusal> {
    let admitted = member.groups();
    if member.has_registered() && admitted.as_ref().is_none_or(|groups| *groups == entry.groups) {
        return Ok(());
    }
    let mut others = shared.groups_of_others();
    others.remove(&entry.host);
    let mut groups: Vec<Vec<Group>> = others.into_values().collect();
    groups.push(shared.mesh_state.site_assignment().groups);
    let with = |own: Vec<Group>| [groups.as_slice(), &[own]].concat();
    let all = with(entry.groups.clone());
    let Some(why) = too_many_series(&all, shared.initial.series_max) else { return Ok(()) };
    if admitted.is_some_and(|admitted| series_of_mesh(&all) <= series_of_mesh(&with(admitted))) {
        return Ok(());
    }
    shared.health.refused(Limit::MeshSeries, 1);
    let Entry { host: new, .. } = entry;
    let why = format!("the mesh of {0} has no room for the series of {new}: at {0}, {why}", shared.host);
    Err(EngineError::Denied(why).into())
}

pub(super) async fn renew(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, EngineRefusal> {
    let ttl = with_registration(&shared, &uri, &headers, |leases, name, registration| {
        leases.renew(name, registration)
    })?;
    Ok(done(&EngineRenewed { ttl_s: ttl.as_secs_f64() }))
}

pub(super) async fn deregister(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, EngineRefusal> {
    with_registration(&shared, &uri, &headers, |leases, name, registration| {
        leases.deregister(name, registration)
    })?;
    Ok(done(&EngineUnregistered {}))
}

/// Calls `act` for the registration of the caller. A caller cannot change the registration of
/// another member.
fn with_registration<T>(
    shared: &Arc<ApiState>,
    uri: &Uri,
    headers: &HeaderMap,
    act: impl FnOnce(&super::Leases, &barograph_forecast::Name, &str) -> Result<T, LeaseError>,
) -> Result<T, EngineRefusal> {
    let (served, member) = member(shared, headers)?;
    let asked: RegistrationQuery = query(uri)?;
    let missing = |missing| match missing {
        LeaseError::Unregistered => EngineRefusal::word(
            StatusCode::NOT_FOUND,
            "unregistered",
            "this station is not registered; register again",
        ),
        LeaseError::Displaced => {
            EngineRefusal::word(StatusCode::CONFLICT, "displaced", "a newer registration has this name")
        }
    };
    let name = member.name().ok_or(LeaseError::Unregistered).map_err(missing)?;
    act(&served.leases, &name, &asked.registration).map_err(missing)
}

/// Shortest lease (s); with a shorter lease, the loss of one packet would make a station count as
/// lost.
const TTL_S_MIN: f64 = 1.0;
/// Longest lease (s); with a longer lease, an entry would not show that the station is up.
const TTL_S_MAX: f64 = 300.0;
