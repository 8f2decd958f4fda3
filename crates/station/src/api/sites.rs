//! `/v1/sites`: which stations form a site by their forecasts, and this station's place (docs/spec/mesh.md).

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use barograph_mesh::{Position, Site, Stand};
use serde::{Deserialize, Serialize};

use super::best::EstimateJson;
use super::{Nothing, Refusal, Shared, State, feed, json, query};
use crate::forecast::best::LEVEL;
use crate::mesh::sites::{SitesError, View};

#[derive(Serialize)]
struct SitesJson<'a> {
    host: &'a str,
    mode: &'static str,
    hold_s: f64,
    now: NowJson<'a>,
    /// What can be accepted.
    proposed: Option<PositionJson>,
    /// What the station is about to do.
    pending: Option<PendingJson>,
    /// Whose forecasts these are from: those of all stations, or of this one alone.
    sees: &'static str,
    level: f64,
    sites: Vec<SiteJson<'a>>,
    unknown: Vec<&'a str>,
    left_out: usize,
}

#[derive(Serialize)]
struct NowJson<'a> {
    site: &'a str,
    represents: bool,
    from: &'static str,
}

#[derive(Serialize)]
struct PositionJson {
    site: String,
    represents: bool,
}

#[derive(Serialize)]
struct PendingJson {
    #[serde(flatten)]
    position: PositionJson,
    in_s: f64,
}

#[derive(Serialize)]
struct SiteJson<'a> {
    site: &'a str,
    hosts: Vec<&'a str>,
    /// `null` where round trips between its hosts are not known.
    representative: Option<&'a str>,
    reason: String,
    /// Seconds.
    within: Option<EstimateJson>,
    next: Option<NextJson<'a>>,
    too_close_to_call: Vec<&'a str>,
}

#[derive(Serialize)]
struct NextJson<'a> {
    host: &'a str,
    #[serde(flatten)]
    rtt: EstimateJson,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Acceptance {
    /// Accept nothing else.
    site: Option<String>,
}

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
    let standing = shared.board.standing();
    let config = &shared.initial.mesh;
    let answer = SitesJson {
        host: shared.host.as_str(),
        mode: if config.sites_auto { "auto" } else { "propose" },
        hold_s: config.sites_hold.as_secs_f64(),
        now: NowJson {
            site: standing.site.as_str(),
            represents: standing.represents,
            from: standing.from.as_str(),
        },
        proposed: shared.sites.proposed(&view).map(PositionJson::from),
        pending: shared
            .sites
            .pending()
            .map(|(position, left)| PendingJson { position: position.into(), in_s: left.as_secs_f64() }),
        sees: if shared.sites.sees_all() { "all" } else { "own" },
        level: LEVEL,
        sites: view.sites.iter().map(|site| SiteJson::new(site, &view)).collect(),
        unknown: view.unknown.iter().map(|host| view.hosts[*host].host.as_str()).collect(),
        left_out: view.left_out,
    };
    json(StatusCode::OK, &answer)
}

impl<'a> SiteJson<'a> {
    fn new(site: &'a Site, view: &'a View) -> Self {
        let name = |host: usize| view.hosts.get(host).map_or("?", |stand: &Stand| stand.host.as_str());
        Self {
            site: &site.name,
            hosts: site.proposal.hosts.iter().map(|host| name(*host)).collect(),
            representative: site.representative.map(name),
            reason: site.proposal.reason(name).to_string(),
            within: site.within_s.map(EstimateJson::from),
            next: site
                .proposal
                .next
                .zip(site.next_s)
                .map(|((host, _), rtt)| NextJson { host: name(host), rtt: rtt.into() }),
            too_close_to_call: site.close.iter().map(|host| name(*host)).collect(),
        }
    }
}

impl From<Position> for PositionJson {
    fn from(position: Position) -> Self {
        Self { site: position.site, represents: position.represents }
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
