//! `/v1/sites`: sites formed by forecasts, and the site of this station (docs/spec/mesh.md).

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use barograph_api::{Acceptance, NextHost, PendingPosition, SiteOrigin, Sites};
use barograph_forecast::Interval;
use barograph_mesh::{Estimate, Position, Site, Stand};

use super::{Nothing, Refusal, Shared, State, feed, json, query};
use crate::mesh::sites::{SitesError, View};

pub(super) async fn show(axum::extract::State(shared): State, uri: Uri) -> Result<Response, Refusal> {
    let Nothing {} = query(&uri)?;
    Ok(answer(&shared).await)
}

pub(super) async fn accept(
    axum::extract::State(shared): State,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let asked: Acceptance = feed::json_body(&headers, body).await?;
    shared.sites.accept(asked.site.as_deref()).await.map_err(refusal)?;
    Ok(answer(&shared).await)
}

pub(super) async fn forget(axum::extract::State(shared): State, uri: Uri) -> Result<Response, Refusal> {
    let Nothing {} = query(&uri)?;
    shared.sites.forget().await.map_err(refusal)?;
    Ok(answer(&shared).await)
}

async fn answer(shared: &Shared) -> Response {
    let view = shared.sites.view().await;
    let standing = shared.mesh_state.standing();
    let config = &shared.initial.mesh;
    let answer = Sites {
        host: shared.host.to_string(),
        mode: if config.sites_auto { "auto" } else { "propose" }.into(),
        hold_s: config.sites_hold.as_secs_f64(),
        now: SiteOrigin {
            site: standing.site.to_string(),
            represents: standing.represents,
            from: standing.from.as_str().into(),
        },
        proposed: shared
            .sites
            .proposed(&view)
            .map(|Position { site, represents }| barograph_api::Position { site, represents }),
        pending: shared.sites.pending().map(|(Position { site, represents }, left)| PendingPosition {
            site,
            represents,
            in_s: left.as_secs_f64(),
        }),
        sees: if shared.sites.sees_all() { "all" } else { "own" }.into(),
        level: Interval::DEFAULT_LEVEL,
        sites: view.sites.iter().map(|one| site(one, &view)).collect(),
        unknown: view.unknown.iter().map(|host| view.hosts[*host].host.to_string()).collect(),
        left_out: view.left_out,
    };
    json(StatusCode::OK, &answer)
}

fn site(site: &Site, view: &View) -> barograph_api::Site {
    let name = |host: usize| view.hosts.get(host).map_or("?", |stand: &Stand| stand.host.as_str());
    let names = |hosts: &[usize]| hosts.iter().map(|host| name(*host).to_string()).collect();
    let within = |Estimate { value, lower, upper }| barograph_api::Estimate { forecast: value, lower, upper };
    let next = |((host, _), rtt): ((usize, _), Estimate)| NextHost {
        host: name(host).to_string(),
        forecast: rtt.value,
        lower: rtt.lower,
        upper: rtt.upper,
    };
    barograph_api::Site {
        site: site.name.to_string(),
        hosts: names(&site.proposal.hosts),
        representative: site.representative.map(|host| name(host).to_string()),
        reason: site.proposal.reason(name).to_string(),
        within: site.within_s.map(within),
        next: site.proposal.next.zip(site.next_s).map(next),
        too_close_to_call: names(&site.close),
    }
}

fn refusal(error: SitesError) -> Refusal {
    let status = match &error {
        SitesError::Configured(_)
        | SitesError::Auto
        | SitesError::Nothing
        | SitesError::Other(..)
        | SitesError::Unusable(_) => StatusCode::CONFLICT,
        SitesError::Store { .. } | SitesError::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        SitesError::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Refusal::new(status, error.to_string())
}
