//! `/v1/sites`: sites formed by forecasts, and the site of this station (docs/spec/mesh.md).

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use barograph_api::{AcceptPosition, CurrentPosition, NextHost, PendingPosition, Sites};
use barograph_forecast::Interval;
use barograph_mesh::{PathEstimate, Site, SitePosition, SiteReport};

use super::query::{NoParameters, query};
use super::{ApiRefusal, ApiState, ApiStateExtractor, feed, json};
use crate::mesh::sites::{SiteProposals, SitesError};

pub(super) async fn show(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
) -> Result<Response, ApiRefusal> {
    let NoParameters {} = query(&uri)?;
    Ok(answer(&shared).await)
}

pub(super) async fn accept(
    axum::extract::State(shared): ApiStateExtractor,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiRefusal> {
    let asked: AcceptPosition = feed::json_body(&headers, body).await?;
    shared.sites.accept(asked.site.as_deref()).await.map_err(refusal)?;
    Ok(answer(&shared).await)
}

pub(super) async fn forget(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
) -> Result<Response, ApiRefusal> {
    let NoParameters {} = query(&uri)?;
    shared.sites.reset().await.map_err(refusal)?;
    Ok(answer(&shared).await)
}

async fn answer(shared: &ApiState) -> Response {
    let proposals = shared.sites.proposals().await;
    let assignment = shared.mesh_state.site_assignment();
    let config = &shared.initial.mesh;
    let answer =
        Sites {
            host: shared.host.to_string(),
            mode: if config.sites_auto { "auto" } else { "propose" }.into(),
            hold_s: config.sites_hold.as_secs_f64(),
            now: CurrentPosition {
                site: assignment.site.to_string(),
                represents: assignment.represents,
                from: assignment.source.as_str().into(),
            },
            proposed: shared.sites.proposed(&proposals).map(|SitePosition { site, represents }| {
                barograph_api::ProposedPosition { site, represents }
            }),
            pending: shared.sites.pending().map(|(SitePosition { site, represents }, left)| {
                PendingPosition { site, represents, in_s: left.as_secs_f64() }
            }),
            forecast_origin: if shared.sites.sees_all() { "all" } else { "own" }.into(),
            level: Interval::DEFAULT_LEVEL,
            sites: proposals.sites.iter().map(|one| site(one, &proposals)).collect(),
            unknown: proposals.unknown.iter().map(|host| proposals.hosts[*host].host.to_string()).collect(),
            left_out: proposals.left_out,
        };
    json(StatusCode::OK, &answer)
}

fn site(site: &Site, proposals: &SiteProposals) -> barograph_api::Site {
    let name =
        |host: usize| proposals.hosts.get(host).map_or("?", |report: &SiteReport| report.host.as_str());
    let names = |hosts: &[usize]| hosts.iter().map(|host| name(*host).to_string()).collect();
    let within =
        |PathEstimate { value, lower, upper }| barograph_api::Estimate { forecast: value, lower, upper };
    let next = |((host, _), rtt): ((usize, _), PathEstimate)| NextHost {
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

fn refusal(error: SitesError) -> ApiRefusal {
    let status = match &error {
        SitesError::Configured(_)
        | SitesError::Auto
        | SitesError::Nothing
        | SitesError::Other(..)
        | SitesError::Unusable(_) => StatusCode::CONFLICT,
        SitesError::Store { .. } | SitesError::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        SitesError::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
    };
    ApiRefusal::new(status, error.to_string())
}
