//! `/v1/best`: ranks hosts by the time that a transfer of a given number of bytes takes
//! (docs/spec/best.md).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::Extension;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use barograph_api::{HostForecast, HostRanking, QuantityForecast, UnknownHost};
use barograph_forecast::{Interval, Name, Quantity, SeriesId};
use barograph_mesh::LOCAL;
use serde::Deserialize;

use super::guard::RemoteEnd;
use super::heavy::{self, ReadSource, run_blocking};
use super::query::{query, transfer_bytes};
use super::{ApiRefusal, ApiState, ApiStateExtractor, json_text};
use crate::forecast::best::{
    self, Age, Basis, BestRequest, MeshMembers, Models, Pairs, QuantityEstimate, RankedHost, Ranking,
};
use crate::mesh::{EngineLocation, PeerState};
use crate::sync::lock;
use crate::time::now_unix_ns;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BestQuery {
    from: Option<String>,
    to: String,
    bytes: u64,
}

pub(super) async fn best(
    axum::extract::State(shared): ApiStateExtractor,
    Extension(remote): Extension<RemoteEnd>,
    uri: Uri,
) -> Result<Response, ApiRefusal> {
    let asked: BestQuery = query(&uri)?;
    transfer_bytes(asked.bytes)?;
    let from = asked.from.as_deref().map_or(Ok(shared.host.clone()), |text| name("from", text))?;
    let (members, models) = shared.snapshot.latest().await;
    let (asked, from) = (Arc::new(asked), Arc::new(from));
    let made = async |members: &Arc<MeshMembers>| {
        // A request with too many names in `to` is refused quickly, so it needs no permit for a
        // heavy read.
        let is_large =
            asked.to.matches(',').count() < HOSTS_MAX && most_hosts(members, &asked.to) > HOSTS_FEW;
        let (station, members, models) = (Arc::clone(&shared), Arc::clone(members), Arc::clone(&models));
        let (asked, from) = (Arc::clone(&asked), Arc::clone(&from));
        let make = async { run_blocking(move || text(&station, &members, &models, &from, &asked)).await? };
        match is_large {
            true => heavy::text(&shared, &remote, ReadSource::SeriesTable, None, make).await,
            false => make.await,
        }
    };
    let mut answer = made(&members).await;
    // Read the directory while this request has no permit for a heavy read, because the directory
    // may respond slowly.
    if answer.as_ref().is_err_and(ApiRefusal::is_not_found)
        && let Some(newer) = shared.snapshot.members_newer_than(&members).await
    {
        answer = made(&newer).await;
    }
    Ok(json_text(StatusCode::OK, answer?))
}

/// Upper bound of the number of hosts in `to`.
fn most_hosts(members: &MeshMembers, to: &str) -> usize {
    let hosts = |word: &str| Name::new(word.trim()).map_or(0, |word| members.hosts_of(&word).count());
    to.split(',').map(|word| hosts(word).max(1)).sum()
}

/// Makes the text of the response. This takes some tens of microseconds for each host.
fn text(
    shared: &ApiState,
    members: &MeshMembers,
    models: &Models,
    from: &Name,
    asked: &BestQuery,
) -> Result<Bytes, ApiRefusal> {
    check_has_measurements(shared, members, from)?;
    let hosts = hosts(shared, members, from, &asked.to)?;
    let lost = lost(shared, members, &hosts);
    let forecasts = Pairs::new(&shared.series_table, now_unix_ns(), Duration::ZERO);
    let other_source = other_source(shared);
    let request = BestRequest { from, hosts: &hosts, lost: &lost, bytes: asked.bytes, other_source };
    let ranking = best::best(&request, members, models, &forecasts);
    let text = serde_json::to_vec(&shape(&request, &ranking));
    // This conversion cannot fail: the keys of `barograph_api` types are texts, and their
    // serializers return no errors.
    Ok(text.unwrap_or_default().into())
}

/// Checks that this station has measurements made by `from`, or that `from` is a member of a mesh
/// and this station keeps the measurements of the whole mesh.
fn check_has_measurements(shared: &ApiState, members: &MeshMembers, from: &Name) -> Result<(), ApiRefusal> {
    if *from == shared.host || lock(&shared.series_table).has_source(from) {
        return Ok(());
    }
    let not_found = |error| Err(ApiRefusal::new(StatusCode::NOT_FOUND, error));
    if !members.contains(from) {
        return not_found(format!("`from`: no host {from} is known here"));
    }
    match other_source(shared) {
        None => Ok(()),
        Some(other) => not_found(format!(
            "`from`: this station has no measurements made by {from}; ask {from} itself, or {other}"
        )),
    }
}

/// URL or description of the station that has the measurements of other stations; `None` if this
/// station has them.
fn other_source(shared: &ApiState) -> Option<&str> {
    match &shared.mesh_state.location {
        EngineLocation::Local | EngineLocation::Nats { archive: true } => None,
        EngineLocation::Remote(url) => Some(url),
        EngineLocation::Nats { archive: false } => Some("a station with the capability archive"),
    }
}

/// The hosts in `to`, and the members of the groups in `to` except `from`; each host once.
fn hosts(shared: &ApiState, members: &MeshMembers, from: &Name, to: &str) -> Result<Vec<Name>, ApiRefusal> {
    let mut hosts = Vec::new();
    if to.matches(',').count() >= HOSTS_MAX {
        return Err(ApiRefusal::bad(format!("`to`: expected at most {HOSTS_MAX} names, found more")));
    }
    for word in to.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let word = name("to", word)?;
        // Look for a host before a group. A station chooses the names of its groups, and a group
        // with the name of a host must not replace the host.
        if word == *from {
            return Err(ApiRefusal::bad(format!("`to`: {word} is also `from`; name another host")));
        }
        let known = hosts.len();
        if members.contains(&word) || is_measured(shared, from, &word) {
            hosts.push(word.clone());
        } else {
            hosts.extend(members.hosts_of(&word).filter(|host| *host != from).cloned());
        }
        if hosts.len() == known {
            let site = Name::new(&format!("{LOCAL}{word}")).ok();
            let hint = match site.filter(|site| members.hosts_of(site).any(|host| host != from)) {
                Some(site) => format!("; there is a group {site}"),
                None => String::new(),
            };
            let error = format!(
                "`to`: there is no host or group {word}, and {from} has not measured such a target{hint}"
            );
            return Err(ApiRefusal::new(StatusCode::NOT_FOUND, error));
        }
        if hosts.len() > HOSTS_MAX {
            return Err(ApiRefusal::bad(format!("`to`: expected at most {HOSTS_MAX} hosts, found more")));
        }
    }
    hosts.sort();
    hosts.dedup();
    if hosts.is_empty() {
        return Err(ApiRefusal::bad("`to`: expected a group, or hosts separated by commas, found none"));
    }
    Ok(hosts)
}

/// Returns the hosts that are lost. This station's own state decides for a peer; the last read of
/// the directory decides for any other host.
fn lost(shared: &ApiState, members: &MeshMembers, hosts: &[Name]) -> BTreeSet<Name> {
    let peers = shared.mesh_state.peers();
    let is_lost = |host: &&Name| match peers.get(host) {
        Some(peer) => peer.state == PeerState::Lost,
        None => members.is_lost(host),
    };
    hosts.iter().filter(is_lost).cloned().collect()
}

/// Whether this station has a series of the round-trip time or the goodput from `from` to `to`.
/// `to` may be outside the mesh.
fn is_measured(shared: &ApiState, from: &Name, to: &Name) -> bool {
    let series_table = lock(&shared.series_table);
    [Quantity::RTT, Quantity::GOODPUT].into_iter().any(|quantity| {
        series_table.get(&SeriesId { source: from.clone(), target: to.clone(), quantity }).is_some()
    })
}

fn name(key: &str, text: &str) -> Result<Name, ApiRefusal> {
    Name::new(text).map_err(|error| ApiRefusal::bad(format!("`{key}`: {error}")))
}

fn shape(request: &BestRequest<'_>, ranking: &Ranking) -> HostRanking {
    let close: Vec<String> =
        ranking.ranked.iter().filter(|one| one.is_close).map(|one| one.host.to_string()).collect();
    // `close` always contains the first host. If `close` contains no other host, the first host is
    // the best.
    let is_called = close.len() == 1;
    HostRanking {
        from: request.from.to_string(),
        bytes: request.bytes,
        level: Interval::DEFAULT_LEVEL,
        best: close.first().filter(|_| is_called).cloned(),
        too_close_to_call: if is_called { Vec::new() } else { close },
        hosts: ranking.ranked.iter().map(host).collect(),
        unknown: ranking
            .unknown
            .iter()
            .map(|(host, reason)| UnknownHost { host: host.to_string(), reason: reason.to_string() })
            .collect(),
    }
}

fn host(found: &RankedHost) -> HostForecast {
    let parts = || [Some(&found.rtt), found.goodput.as_ref()].into_iter().flatten();
    let is_composed = parts().any(|part| matches!(part.basis, Basis::Composed { .. }));
    HostForecast {
        host: found.host.to_string(),
        forecast: found.time_s.value,
        lower: found.time_s.lower,
        upper: found.time_s.upper,
        is_calibrating: parts().any(|part| !part.is_calibrated),
        is_close: found.is_close,
        basis: if is_composed { COMPOSED } else { MEASURED }.into(),
        rtt: part(&found.rtt),
        goodput: found.goodput.as_ref().map(part),
        loss: found.loss.as_ref().map(part),
    }
}

fn part(part: &QuantityEstimate) -> QuantityForecast {
    let (basis, age, via) = match &part.basis {
        Basis::Measured(age) => (MEASURED, *age, None),
        Basis::Composed { via } => {
            (COMPOSED, Age { age_s: None, ahead_s: None }, Some(via.iter().map(Name::to_string).collect()))
        }
    };
    QuantityForecast {
        forecast: part.estimate.value,
        lower: part.estimate.lower,
        upper: part.estimate.upper,
        basis: basis.into(),
        age_s: age.age_s,
        ahead_s: age.ahead_s,
        via,
    }
}

/// Values of `basis` in the response.
const MEASURED: &str = "measured";
const COMPOSED: &str = "composed";

/// Number of hosts that are ranked in about a millisecond. A request with more hosts waits for a
/// permit, like other heavy reads.
const HOSTS_FEW: usize = 16;
/// Maximum number of hosts in one request. It equals the maximum number of peers of a station.
const HOSTS_MAX: usize = crate::mesh::PEERS_MAX;
