//! `/v1/tests`: bulk tests between this station and its peers, with their budget (docs/spec/mesh.md
//! §5).

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use barograph_api::{NewTest, TestBudget, TestCost, TestList, TestRefused, TestSpent};
use barograph_forecast::Name;
use barograph_mesh::{Cost, Spent};

use super::{Nothing, Refusal, State, feed, json, query};
use crate::mesh::Verdict;

fn shape(cost: Cost) -> TestCost {
    TestCost { seconds: cost.duration.as_secs_f64(), bytes: cost.bytes }
}

pub(super) async fn list(axum::extract::State(shared): State, uri: Uri) -> Result<Response, Refusal> {
    let Nothing {} = query(&uri)?;
    let bulk = &shared.bulk;
    let (figures, per_hour) = (bulk.figures(), bulk.plan.budget.per_hour());
    let Spent { source, target, .. } = figures.spent;
    let left = Cost {
        duration: per_hour.duration.saturating_sub(source.duration).saturating_sub(target.duration),
        bytes: per_hour.bytes.saturating_sub(source.bytes).saturating_sub(target.bytes),
    };
    let answer = TestList {
        bulk: bulk.consents,
        budget: TestBudget {
            per_hour: shape(per_hour),
            per_test: shape(bulk.plan.budget.test_cap()),
            spent: TestSpent { source: shape(source), target: shape(target) },
            left: shape(left),
        },
        next_turn_s: figures.next_turn_s,
        turns_skipped: figures.skipped,
        turns_deferred: figures.deferred,
        tests: bulk.tests(),
    };
    Ok(json(StatusCode::OK, &answer))
}

/// Runs a test and responds when it has ended: after its length and a few seconds.
pub(super) async fn begin(
    axum::extract::State(shared): State,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let asked: NewTest = feed::json_body(&headers, body).await?;
    let peer = Name::new(&asked.to).map_err(|error| Refusal::bad(format!("`to`: {error}")))?;
    let most = shared.bulk.plan.budget.test_max.as_secs_f64();
    let length = match asked.seconds {
        Some(seconds) if (SECONDS_MIN..=most).contains(&seconds) => Some(Duration::from_secs_f64(seconds)),
        Some(seconds) => {
            return Err(Refusal::bad(format!(
                "`seconds`: expected {SECONDS_MIN} to {most}, found {seconds}"
            )));
        }
        None => None,
    };
    if !shared.bulk.consents {
        let error = "this station makes no bulk tests (mesh.bulk = false)";
        return Err(Refusal::new(StatusCode::FORBIDDEN, error));
    }
    let (bulk, to) = (Arc::clone(&shared.bulk), peer.clone());
    let verdict = tokio::task::spawn_blocking(move || bulk.on_demand(&to, length)).await;
    match verdict {
        Ok(None) => {
            let error = format!("no peer that takes part in bulk tests is called `{peer}` now");
            Err(Refusal::new(StatusCode::NOT_FOUND, error))
        }
        Ok(Some(Verdict::Made { row, .. })) => Ok(json(StatusCode::OK, &row)),
        Ok(Some(Verdict::Refused { why, retry_after })) => Ok(refused(format!("{peer}: {why}"), retry_after)),
        Ok(Some(Verdict::Deferred { why, retry_after })) => {
            Ok(refused(format!("this station: {why}"), retry_after))
        }
        Ok(Some(Verdict::Stopped)) => {
            Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the station is stopping"))
        }
        Err(error) => Err(Refusal::ended(&error)),
    }
}

/// A 429 response with the time until the next try.
fn refused(error: String, retry_after: Duration) -> Response {
    let retry_after = retry_after.max(RETRY_MIN);
    let refused = TestRefused { error, retry_after_s: retry_after.as_secs_f64() };
    let mut response = json(StatusCode::TOO_MANY_REQUESTS, &refused);
    // `Retry-After` has whole seconds (RFC 9110 §10.2.3).
    let seconds = HeaderValue::from(retry_after.as_secs_f64().ceil() as u64);
    response.headers_mut().insert(header::RETRY_AFTER, seconds);
    response
}

/// Shortest test (s); a shorter one does not contain slow start.
const SECONDS_MIN: f64 = 0.1;
/// Shortest delay before the next try, also if the peer names none.
const RETRY_MIN: Duration = Duration::from_secs(1);
