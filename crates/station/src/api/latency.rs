//! `GET /v1/latency`: how latencies to peers are spread, idle and loaded (docs/spec/mesh.md §1).

use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::{Refusal, State, json, query, selector};
use crate::mesh::Spread;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    target: Option<String>,
    quantity: Option<String>,
}

#[derive(Serialize)]
struct LatenciesJson<'a> {
    latencies: Vec<LatencyJson<'a>>,
}

#[derive(Serialize)]
struct LatencyJson<'a> {
    source: &'a str,
    target: &'a str,
    quantity: &'a str,
    count: u64,
    missed: u64,
    /// `None` = nothing was answered.
    mean_s: Option<f64>,
    max_s: Option<f64>,
    /// `None` = so many were missed that it is beyond all answers.
    p50_s: Option<f64>,
    p90_s: Option<f64>,
    p99_s: Option<f64>,
    p99_9_s: Option<f64>,
}

pub(super) async fn latency(axum::extract::State(shared): State, uri: Uri) -> Result<Response, Refusal> {
    let which: Which = query(&uri)?;
    let selector = selector(None, which.target.as_deref(), which.quantity.as_deref())?;
    let spreads = shared.board.spreads(&shared.host);
    let selected = spreads.iter().filter(|spread| selector.matches(&spread.series));
    let latencies = selected.map(LatencyJson::new).collect();
    Ok(json(StatusCode::OK, &LatenciesJson { latencies }))
}

impl<'a> LatencyJson<'a> {
    fn new(spread: &'a Spread) -> Self {
        let [p50_s, p90_s, p99_s, p99_9_s] = spread.quantiles_s;
        Self {
            source: spread.series.source.as_str(),
            target: spread.series.target.as_str(),
            quantity: spread.series.quantity.as_str(),
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
}
