//! `/v1/tests`: bulk tests between this station and its peers, with their budget (docs/spec/mesh.md
//! §5).

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use barograph_api::{
    BulkTestBudget, BulkTestCost, BulkTestList, BulkTestRefused, BulkTestSpent, NewBulkTest,
};
use barograph_forecast::Name;
use barograph_mesh::{BudgetUsage, Cost};

use super::query::{NoParameters, query};
use super::{ApiRefusal, ApiStateExtractor, feed, json};
use crate::mesh::TestAttempt;

fn shape(cost: Cost) -> BulkTestCost {
    BulkTestCost { seconds: cost.duration.as_secs_f64(), bytes: cost.bytes }
}

pub(super) async fn list(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
) -> Result<Response, ApiRefusal> {
    let NoParameters {} = query(&uri)?;
    let bulk = &shared.bulk;
    let (figures, per_hour) = (bulk.figures(), bulk.plan.budget.per_hour());
    let BudgetUsage { source, target, .. } = figures.spent;
    let left = Cost {
        duration: per_hour.duration.saturating_sub(source.duration).saturating_sub(target.duration),
        bytes: per_hour.bytes.saturating_sub(source.bytes).saturating_sub(target.bytes),
    };
    let answer = BulkTestList {
        bulk: bulk.consents,
        budget: BulkTestBudget {
            per_hour: shape(per_hour),
            per_test: shape(bulk.plan.budget.test_cap()),
            spent: BulkTestSpent { source: shape(source), target: shape(target) },
            left: shape(left),
        },
        next_turn_s: figures.next_turn_s,
        turns_skipped: figures.skipped,
        turns_deferred: figures.deferred,
        tests: bulk.tests(),
    };
    Ok(json(StatusCode::OK, &answer))
}

/// Runs a test, and responds after the test. The response arrives a few seconds after the end of
/// the test.
pub(super) async fn begin(
    axum::extract::State(shared): ApiStateExtractor,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiRefusal> {
    let asked: NewBulkTest = feed::json_body(&headers, body).await?;
    let peer = Name::new(&asked.to).map_err(|error| ApiRefusal::bad(format!("`to`: {error}")))?;
    let most = shared.bulk.plan.budget.test_max.as_secs_f64();
    let length = match asked.seconds {
        Some(seconds) if (SECONDS_MIN..=most).contains(&seconds) => Some(Duration::from_secs_f64(seconds)),
        Some(seconds) => {
            return Err(ApiRefusal::bad(format!(
                "`seconds`: expected {SECONDS_MIN} to {most}, found {seconds}"
            )));
        }
        None => None,
    };
    if !shared.bulk.consents {
        let error = "bulk tests are disabled at this station (mesh.bulk = false)";
        return Err(ApiRefusal::new(StatusCode::FORBIDDEN, error));
    }
    let (bulk, to) = (Arc::clone(&shared.bulk), peer.clone());
    let attempt = tokio::task::spawn_blocking(move || bulk.on_demand(&to, length)).await;
    match attempt {
        Ok(None) => {
            let error = format!("there is no peer `{peer}` with bulk tests enabled; see /v1/peers");
            Err(ApiRefusal::new(StatusCode::NOT_FOUND, error))
        }
        Ok(Some(TestAttempt::Ran { row, .. })) => Ok(json(StatusCode::OK, &row)),
        Ok(Some(TestAttempt::Refused { reason, retry_after })) => {
            Ok(refused(format!("{peer}: {reason}"), retry_after))
        }
        Ok(Some(TestAttempt::Deferred { reason, retry_after })) => {
            Ok(refused(format!("this station: {reason}"), retry_after))
        }
        Ok(Some(TestAttempt::Stopped)) => {
            Err(ApiRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "the station is stopping"))
        }
        Err(error) => Err(ApiRefusal::ended(&error)),
    }
}

/// A 429 response with the time until the next try.
fn refused(error: String, retry_after: Duration) -> Response {
    let retry_after = retry_after.max(RETRY_MIN);
    let refused = BulkTestRefused { error, retry_after_s: retry_after.as_secs_f64() };
    let mut response = json(StatusCode::TOO_MANY_REQUESTS, &refused);
    // `Retry-After` has whole seconds (RFC 9110 §10.2.3).
    let seconds = HeaderValue::from(retry_after.as_secs_f64().ceil() as u64);
    response.headers_mut().insert(header::RETRY_AFTER, seconds);
    response
}

/// Shortest test (s); a shorter test does not contain slow start.
const SECONDS_MIN: f64 = 0.1;
/// Shortest delay before the next try. A shorter delay from the peer is raised to this time.
const RETRY_MIN: Duration = Duration::from_secs(1);
