//! Read requests of a member. A member may read everything.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use barograph_api::{EngineNextSeq, EngineWatermark};
use barograph_engine::{Cursor, Page, Range, Record, wire};
use barograph_forecast::SeriesId;
use futures_util::stream;
use serde::Deserialize;

use super::{EngineRefusal, done, in_lines, invalid, member, name, query};
use crate::api::ApiStateExtractor;
use crate::api::query::selector;
use crate::limits::member_quota::QuotaPermit;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryQuery {
    source: String,
    target: String,
    quantity: String,
    from_ns: Option<i64>,
    until_ns: Option<i64>,
    limit: Option<usize>,
    after: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LatestQuery {
    source: Option<String>,
    target: Option<String>,
    quantity: Option<String>,
    limit: Option<usize>,
    after: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OriginQuery {
    origin: String,
}

pub(super) async fn history(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, EngineRefusal> {
    let (_, member) = member(&shared, &headers)?;
    let request = member.quota.request().map_err(|why| EngineRefusal::too_much(&shared, why))?;
    let asked: HistoryQuery = query(&uri)?;
    let series =
        selector(Some(&asked.source), Some(&asked.target), Some(&asked.quantity)).map_err(invalid)?;
    let (Some(source), Some(target), Some(quantity)) = (series.source, series.target, series.quantity) else {
        return Err(EngineRefusal::invalid("one series is needed"));
    };
    let range = Range {
        from_unix_ns: asked.from_ns.unwrap_or(i64::MIN),
        until_unix_ns: asked.until_ns.unwrap_or(i64::MAX),
        limit: asked.limit.unwrap_or(LIMIT),
        after: asked.after.map(Cursor),
    };
    let page = {
        let _read = member.quota.read().await;
        shared.engine.history(&SeriesId { source, target, quantity }, &range).await
    };
    let page = page.inspect_err(|error| shared.health.read_failed(error))?;
    Ok(sent(page, request))
}

pub(super) async fn latest(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, EngineRefusal> {
    let (_, member) = member(&shared, &headers)?;
    let request = member.quota.request().map_err(|why| EngineRefusal::too_much(&shared, why))?;
    let asked: LatestQuery = query(&uri)?;
    let selector = selector(asked.source.as_deref(), asked.target.as_deref(), asked.quantity.as_deref());
    let selector = selector.map_err(invalid)?;
    let (after, limit) = (asked.after.map(Cursor), asked.limit.unwrap_or(LIMIT));
    let page = {
        let _read = member.quota.read().await;
        shared.engine.latest(&selector, after, limit).await
    };
    let page = page.inspect_err(|error| shared.health.read_failed(error))?;
    Ok(sent(page, request))
}

pub(super) async fn watermark(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, EngineRefusal> {
    let (_, member) = member(&shared, &headers)?;
    let _request = member.quota.request().map_err(|why| EngineRefusal::too_much(&shared, why))?;
    let asked: OriginQuery = query(&uri)?;
    let watermark = shared.engine.watermark(&name("origin", &asked.origin)?).await?;
    Ok(done(&EngineWatermark { watermark }))
}

pub(super) async fn next_seq(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, EngineRefusal> {
    let (_, member) = member(&shared, &headers)?;
    let _request = member.quota.request().map_err(|why| EngineRefusal::too_much(&shared, why))?;
    let asked: OriginQuery = query(&uri)?;
    let next_seq = shared.engine.next_seq(&name("origin", &asked.origin)?).await?;
    Ok(done(&EngineNextSeq { next_seq }))
}

/// Response with the records of a page, one on each line. The response uses one of the member's
/// permits for requests until all lines are sent.
fn sent(page: Page<Record>, request: QuotaPermit) -> Response {
    let last = wire::next_text(page.next);
    let lines = page.items.into_iter().map(|record| wire::record_text(&record)).chain([last]);
    let lines = lines.map(move |mut line| {
        let _held = &request;
        line.push('\n');
        Ok::<String, Infallible>(line)
    });
    in_lines(Body::from_stream(stream::iter(lines)))
}

/// Default number of records, as for `/v1/history`.
const LIMIT: usize = 1000;
