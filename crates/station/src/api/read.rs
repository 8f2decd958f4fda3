//! Reads: the station, its series, history, forecasts, health, metrics.

use std::time::UNIX_EPOCH;

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::Extension;
use axum::http::{HeaderMap, StatusCode, Uri, Version, header};
use axum::response::{IntoResponse, Response};
use barograph_api::{Echo, HistoryPage, LatestPage, RecentPoints, Station};
use barograph_engine::{Cursor, Page, Range, Record};
use barograph_forecast::{Interval, SeriesId};
use serde::{Deserialize, Serialize};

use super::guard::RemoteEnd;
use super::heavy::{self, ReadSource, SharedResponseKind, run_blocking};
use super::horizons::HorizonRequest;
use super::query::{
    LIMIT_DEFAULT, NoParameters, SeriesSelection, forecast_level, page_limit, query, query_with_lists,
    selector,
};
use super::series_page::SeriesPage;
use super::{ApiRefusal, ApiStateExtractor, json, json_text};
use crate::forecast::series::{LEVELS, level_index};
use crate::metrics::{Format, SeriesTableSamples};
use crate::sync::lock;

pub(super) async fn station(
    axum::extract::State(shared): ApiStateExtractor,
    Extension(remote): Extension<RemoteEnd>,
    version: Version,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, ApiRefusal> {
    let NoParameters {} = query(&uri)?;
    let config = shared.config();
    let started = shared.started.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (series, series_max) = {
        let series_table = lock(&shared.series_table);
        (series_table.len(), series_table.series_max())
    };
    shared.report_refusals();
    let answer = Station {
        host: shared.host.to_string(),
        version: env!("CARGO_PKG_VERSION").into(),
        uptime_s: shared.health.uptime().as_secs_f64(),
        started_s: started.as_secs_f64(),
        page_period_s: PAGE_PERIOD_S,
        series,
        series_max,
        refusing: shared.health.refusing(),
        from_this_host: remote.is_local(version, &headers, &config),
        echo: config.echo.enabled.then(|| Echo {
            path: "v1/echo".into(),
            transfer_bytes_max: shared.echo.transfer_bytes_max(),
            keeps: shared.echo.reports_enabled(),
        }),
    };
    Ok(json(StatusCode::OK, &answer))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SeriesQuery {
    source: Option<String>,
    target: Option<String>,
    quantity: Option<String>,
    group: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

pub(super) async fn series(
    axum::extract::State(shared): ApiStateExtractor,
    Extension(remote): Extension<RemoteEnd>,
    uri: Uri,
) -> Result<Response, ApiRefusal> {
    let asked: SeriesQuery = query(&uri)?;
    let selector = selector(asked.source.as_deref(), asked.target.as_deref(), asked.quantity.as_deref())?;
    let page = SeriesPage::parse(asked.limit, asked.after.as_deref())?;
    let selection = SeriesSelection::new(&shared, selector, asked.group.as_deref()).await?;
    if let Some(page) = page {
        return page.respond(&shared, &remote, selection).await;
    }
    let common = selection.is_all().then_some(SharedResponseKind::Series);
    heavy::list(&shared, &remote, common, selection, "series", json::push_series).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LatestQuery {
    source: Option<String>,
    target: Option<String>,
    quantity: Option<String>,
    group: Option<String>,
    after: Option<u64>,
}

pub(super) async fn latest(
    axum::extract::State(shared): ApiStateExtractor,
    Extension(remote): Extension<RemoteEnd>,
    uri: Uri,
) -> Result<Response, ApiRefusal> {
    let asked: LatestQuery = query(&uri)?;
    let selector = selector(asked.source.as_deref(), asked.target.as_deref(), asked.quantity.as_deref())?;
    let selection = SeriesSelection::new(&shared, selector, asked.group.as_deref()).await?;
    let common = (selection.is_all() && asked.after.is_none()).then_some(SharedResponseKind::Latest);
    let station = Arc::clone(&shared);
    let make = async move {
        let page = station.engine.latest(&selection.selector, asked.after.map(Cursor), LIMIT_DEFAULT).await;
        let mut page = page.inspect_err(|error| station.health.read_failed(error))?;
        page.items.retain(|record| selection.has_end(&record.series));
        {
            let series_table = lock(&station.series_table);
            page.items.retain(|record| !series_table.hides(&record.series, record.time_unix_ns));
        }
        run_blocking(move || {
            let (latest, next) = shown(&page);
            json_bytes(&LatestPage { latest, next })
        })
        .await
    };
    let text = heavy::text(&shared, &remote, ReadSource::Archive, common, make).await?;
    Ok(json_text(StatusCode::OK, text))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryQuery {
    source: Option<String>,
    target: Option<String>,
    quantity: Option<String>,
    from_s: Option<f64>,
    until_s: Option<f64>,
    limit: Option<usize>,
    after: Option<u64>,
}

pub(super) async fn history(
    axum::extract::State(shared): ApiStateExtractor,
    Extension(remote): Extension<RemoteEnd>,
    uri: Uri,
) -> Result<Response, ApiRefusal> {
    let asked: HistoryQuery = query(&uri)?;
    let series = one(asked.source.as_deref(), asked.target.as_deref(), asked.quantity.as_deref())?;
    let limit = page_limit(asked.limit)?;
    let range = Range {
        from_unix_ns: asked.from_s.map_or(Ok(i64::MIN), |s| nanoseconds("from_s", s))?,
        until_unix_ns: asked.until_s.map_or(Ok(i64::MAX), |s| nanoseconds("until_s", s))?,
        limit,
        after: asked.after.map(Cursor),
    };
    let station = Arc::clone(&shared);
    let make = async move {
        let page = station.engine.history(&series, &range).await;
        let page = page.inspect_err(|error| station.health.read_failed(error))?;
        if page.items.is_empty() && lock(&station.series_table).get(&series).is_none() {
            return Err(unknown(&series));
        }
        run_blocking(move || {
            let (records, next) = shown(&page);
            json_bytes(&HistoryPage { records, next })
        })
        .await
    };
    let text = heavy::text(&shared, &remote, ReadSource::Archive, None, make).await?;
    Ok(json_text(StatusCode::OK, text))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LevelQuery {
    pub(super) source: Option<String>,
    pub(super) target: Option<String>,
    pub(super) quantity: Option<String>,
    pub(super) level: Option<f64>,
}

pub(super) async fn recent(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
) -> Result<Response, ApiRefusal> {
    let asked: LevelQuery = query(&uri)?;
    let series = one(asked.source.as_deref(), asked.target.as_deref(), asked.quantity.as_deref())?;
    let level = kept_level(asked.level)?;
    let series_table = lock(&shared.series_table);
    let state = series_table.get(&series).ok_or_else(|| unknown(&series))?;
    let (source, target, quantity, unit) = json::id(&series);
    let answer = RecentPoints {
        source,
        target,
        quantity,
        unit,
        level: LEVELS[level],
        points: state.points().map(|point| json::point(&point, level)).collect(),
        next: json::forecasts_of(&series, state, LEVELS[level]),
    };
    Ok(json(StatusCode::OK, &answer))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForecastQuery {
    source: Option<String>,
    target: Option<String>,
    quantity: Option<String>,
    group: Option<String>,
    level: Option<f64>,
    horizon: Option<String>,
    of: Option<String>,
    quantile: Option<String>,
    bytes: Option<u64>,
}

pub(super) async fn forecast(
    axum::extract::State(shared): ApiStateExtractor,
    Extension(remote): Extension<RemoteEnd>,
    uri: Uri,
) -> Result<Response, ApiRefusal> {
    let asked: ForecastQuery = query_with_lists(&uri, &["horizon", "quantile"])?;
    let selector = selector(asked.source.as_deref(), asked.target.as_deref(), asked.quantity.as_deref())?;
    let level = forecast_level(asked.level)?;
    let (horizon, of, quantile) = (asked.horizon.as_deref(), asked.of.as_deref(), asked.quantile.as_deref());
    let horizons = HorizonRequest::parse(horizon, of, quantile, asked.bytes)?;
    let selection = SeriesSelection::new(&shared, selector, asked.group.as_deref()).await?;
    if let Some(horizons) = horizons {
        return horizons.respond(&shared, &remote, selection, level).await;
    }
    let common = (selection.is_all() && asked.level.is_none()).then_some(SharedResponseKind::Forecasts);
    heavy::list(&shared, &remote, common, selection, "forecasts", json::push_forecasts(level)).await
}

pub(super) async fn metrics(
    axum::extract::State(shared): ApiStateExtractor,
    Extension(remote): Extension<RemoteEnd>,
    headers: HeaderMap,
) -> Result<Response, ApiRefusal> {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = Format::preferred(accept);
    let common = match format {
        Format::Prometheus => SharedResponseKind::Prometheus,
        Format::OpenMetrics => SharedResponseKind::OpenMetrics,
    };
    let station = Arc::clone(&shared);
    let make = run_blocking(move || {
        station.report_refusals();
        let samples = SeriesTableSamples::of(&station.series_table, &station.host);
        let mesh = station.mesh_state.figures(&station.host);
        let (echo, tests) = (station.echo.counters(), station.bulk.figures());
        Bytes::from(crate::metrics::exposition(format, &samples, &station.health, echo, &mesh, &tests))
    });
    let text = heavy::text(&shared, &remote, ReadSource::SeriesTable, Some(common), make).await?;
    Ok(([(header::CONTENT_TYPE, format.content_type()), (header::VARY, "Accept")], text).into_response())
}

/// Index in [`LEVELS`] of the requested level, or of the default level.
pub(super) fn kept_level(level: Option<f64>) -> Result<usize, ApiRefusal> {
    let level = level.unwrap_or(Interval::DEFAULT_LEVEL);
    level_index(level)
        .ok_or_else(|| ApiRefusal::bad(format!("`level`: expected one of {LEVELS:?}, found {level}")))
}

/// Identifies one series by its source, target and quantity; all three are required.
fn one(source: Option<&str>, target: Option<&str>, quantity: Option<&str>) -> Result<SeriesId, ApiRefusal> {
    let selector = selector(source, target, quantity)?;
    match (selector.source, selector.target, selector.quantity) {
        (Some(source), Some(target), Some(quantity)) => Ok(SeriesId { source, target, quantity }),
        _ => Err(ApiRefusal::bad("one series is needed: give source, target and quantity")),
    }
}

fn unknown(series: &SeriesId) -> ApiRefusal {
    ApiRefusal::new(StatusCode::NOT_FOUND, format!("there is no series {series}"))
}

fn shown(page: &Page<Record>) -> (Vec<barograph_api::Record<'_>>, Option<String>) {
    let records = page.items.iter().map(json::record).collect();
    (records, page.next.map(|cursor| cursor.0.to_string()))
}

fn json_bytes<T: Serialize>(value: &T) -> Bytes {
    // This conversion cannot fail: the keys of `barograph_api` types are texts, and their
    // serializers return no errors.
    serde_json::to_vec(value).unwrap_or_default().into()
}

/// Converts seconds to nanoseconds, limited to the range of an `i64`.
fn nanoseconds(key: &str, seconds: f64) -> Result<i64, ApiRefusal> {
    if seconds.is_finite() {
        Ok((seconds * 1e9) as i64)
    } else {
        Err(ApiRefusal::bad(format!("`{key}`: expected a time, found {seconds}")))
    }
}

/// Period (s) at which a page requests data if it cannot receive a stream: half of the default
/// period of measurements.
const PAGE_PERIOD_S: f64 = 5.0;
