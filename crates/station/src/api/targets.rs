//! `/v1/targets`: the targets of the station.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Extension;
use axum::http::{HeaderMap, StatusCode, Uri, Version};
use axum::response::Response;
use barograph_api::{NewTarget, RemovedName, TargetList};
use serde::Deserialize;

use super::guard::RemoteEnd;
use super::query::{NoParameters, query};
use super::{ApiRefusal, ApiStateExtractor, feed, json};
use crate::limits::Limit;
use crate::measure::targets::TargetsError;
use crate::target::{Provenance, Target};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RemoveQuery {
    target: String,
}

fn shape(target: &Target, usual: Duration) -> barograph_api::Target {
    barograph_api::Target {
        target: target.name.to_string(),
        quantities: target.quantities.iter().map(ToString::to_string).collect(),
        period_s: target.period_or(usual).as_secs_f64(),
        from: target.provenance.as_str().into(),
    }
}

pub(super) async fn list(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
) -> Result<Response, ApiRefusal> {
    let NoParameters {} = query(&uri)?;
    let usual = shared.config().probe_period;
    let targets = shared.targets.all();
    let targets = targets.iter().map(|target| shape(target, usual)).collect();
    Ok(json(StatusCode::OK, &TargetList { targets }))
}

pub(super) async fn add(
    axum::extract::State(shared): ApiStateExtractor,
    Extension(remote): Extension<RemoteEnd>,
    version: Version,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiRefusal> {
    let config = shared.config();
    if !remote.is_local(version, &headers, &config) && !config.allow_remote_targets {
        let error = "only callers on this host may add targets (allow_remote_targets = false)";
        return Err(ApiRefusal::new(StatusCode::FORBIDDEN, error));
    }
    let new: NewTarget = feed::json_body(&headers, body).await?;
    let period = match new.period_s {
        Some(seconds) if (PERIOD_S_MIN..=PERIOD_S_MAX).contains(&seconds) => {
            Some(Duration::from_secs_f64(seconds))
        }
        Some(seconds) => {
            let error = format!("`period_s`: expected {PERIOD_S_MIN} to {PERIOD_S_MAX}, found {seconds}");
            return Err(ApiRefusal::bad(error));
        }
        None => None,
    };
    let target = Target::parse(&new.target, &new.quantities, period, Provenance::Added)
        .map_err(|error| ApiRefusal::bad(error.to_string()))?;
    let (list, new) = (Arc::clone(&shared), target.clone());
    on_disk(move || {
        list.targets.add(new).inspect_err(|error| {
            if let TargetsError::TooMany = error {
                list.health.refused(Limit::Targets, 1);
            }
        })
    })
    .await?;
    Ok(json(StatusCode::CREATED, &shape(&target, config.probe_period)))
}

pub(super) async fn remove(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
) -> Result<Response, ApiRefusal> {
    let asked: RemoveQuery = query(&uri)?;
    // Convert the given address to its canonical spelling, which names the target in its series.
    let spelling =
        barograph_probe::Target::parse(&asked.target).map_or(asked.target, |target| target.to_string());
    let (list, name) = (shared, spelling.clone());
    on_disk(move || list.targets.remove(&name)).await?;
    Ok(json(StatusCode::OK, &RemovedName { removed: spelling }))
}

/// Changes the list of targets on disk, outside the HTTP thread.
async fn on_disk(
    change: impl FnOnce() -> Result<(), TargetsError> + Send + 'static,
) -> Result<(), ApiRefusal> {
    match tokio::task::spawn_blocking(change).await {
        Ok(result) => result.map_err(refusal),
        Err(error) => Err(ApiRefusal::ended(&error)),
    }
}

fn refusal(error: TargetsError) -> ApiRefusal {
    let status = match &error {
        TargetsError::Exists(_) | TargetsError::NotAdded { .. } => StatusCode::CONFLICT,
        TargetsError::Unknown(_) => StatusCode::NOT_FOUND,
        TargetsError::TooMany => StatusCode::TOO_MANY_REQUESTS,
        TargetsError::Store { .. } => StatusCode::SERVICE_UNAVAILABLE,
    };
    ApiRefusal::new(status, error.to_string())
}

/// Shortest period (s). With a shorter period, the measurements would be a load test.
const PERIOD_S_MIN: f64 = 0.1;
/// Longest period (s): a day.
const PERIOD_S_MAX: f64 = 86_400.0;
