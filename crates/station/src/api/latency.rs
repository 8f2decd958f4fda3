//! `GET /v1/latency`: distribution of latencies to peers, idle and loaded (docs/spec/mesh.md §1).

use axum::http::{StatusCode, Uri};
use axum::response::Response;
use barograph_api::{Latency, LatencyList};
use serde::Deserialize;

use super::{Refusal, State, json, query, selector};
use crate::mesh::Spread;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    target: Option<String>,
    quantity: Option<String>,
}

pub(super) async fn latency(axum::extract::State(shared): State, uri: Uri) -> Result<Response, Refusal> {
    let which: Which = query(&uri)?;
    let selector = selector(None, which.target.as_deref(), which.quantity.as_deref())?;
    let spreads = shared.mesh_state.spreads(&shared.host);
    let selected = spreads.iter().filter(|spread| selector.matches(&spread.series));
    let latencies = selected.map(shape).collect();
    Ok(json(StatusCode::OK, &LatencyList { latencies }))
}

fn shape(spread: &Spread) -> Latency<'_> {
    let [p50_s, p90_s, p99_s, p99_9_s] = spread.quantiles_s;
    Latency {
        source: spread.series.source.as_str().into(),
        target: spread.series.target.as_str().into(),
        quantity: spread.series.quantity.as_str().into(),
        count: spread.count,
        missed: spread.missed,
        mean_s: (0 < spread.count).then(|| spread.sum_s / spread.count as f64),
        max_s: spread.max_s,
        p50_s,
        p90_s,
        p99_s,
        p99_9_s,
    }
}
