//! `GET /v1/latency`: distribution of latencies to peers, idle and loaded (docs/spec/mesh.md §1).

use axum::http::{StatusCode, Uri};
use axum::response::Response;
use barograph_api::{Latency, LatencyList};
use serde::Deserialize;

use super::query::{query, selector};
use super::{ApiRefusal, ApiStateExtractor, json};
use crate::mesh::LatencyDistribution;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LatencyQuery {
    target: Option<String>,
    quantity: Option<String>,
}

pub(super) async fn latency(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
) -> Result<Response, ApiRefusal> {
    let asked: LatencyQuery = query(&uri)?;
    let selector = selector(None, asked.target.as_deref(), asked.quantity.as_deref())?;
    let distributions = shared.mesh_state.distributions(&shared.host);
    let selected = distributions.iter().filter(|distribution| selector.matches(&distribution.series));
    let latencies = selected.map(shape).collect();
    Ok(json(StatusCode::OK, &LatencyList { latencies }))
}

fn shape(distribution: &LatencyDistribution) -> Latency<'_> {
    let [p50_s, p90_s, p99_s, p99_9_s] = distribution.quantiles_s;
    Latency {
        source: distribution.series.source.as_str().into(),
        target: distribution.series.target.as_str().into(),
        quantity: distribution.series.quantity.as_str().into(),
        count: distribution.count,
        missed: distribution.missed,
        mean_s: (distribution.count > 0).then(|| distribution.sum_s / distribution.count as f64),
        max_s: distribution.max_s,
        p50_s,
        p90_s,
        p99_s,
        p99_9_s,
    }
}
