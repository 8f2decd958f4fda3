//! Reads: the station, its series, history, forecasts, health, metrics.

use std::time::UNIX_EPOCH;

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::Extension;
use axum::http::{HeaderMap, StatusCode, Uri, Version, header};
use axum::response::{IntoResponse, Response};
use barograph_api::{Echo, History, Latest, Recent, Station};
use barograph_engine::{Cursor, Page, Range, Record};
use barograph_forecast::{Interval, Series};
use serde::{Deserialize, Serialize};

use super::choice::Choice;
use super::guard::Peer;
use super::heavy::{self, beside, list};
use super::{Nothing, Refusal, State, json, json_text, query, selector};
use crate::forecast::bank::{LEVELS, level_index};
use crate::limits::heavy::{Common, From};
use crate::metrics::{Format, Snapshot};
use crate::sync::lock;

pub(super) async fn station(
    axum::extract::State(shared): State,
    Extension(peer): Extension<Peer>,
    version: Version,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Refusal> {
    let Nothing {} = query(&uri)?;
    let config = shared.config();
    let started = shared.started.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (series, series_max) = {
        let bank = lock(&shared.bank);
        (bank.len(), bank.series_max())
    };
    shared.note_refusals();
    let answer = Station {
        host: shared.host.to_string(),
        version: env!("CARGO_PKG_VERSION").into(),
        uptime_s: shared.health.uptime().as_secs_f64(),
        started_s: started.as_secs_f64(),
        page_period_s: PAGE_PERIOD_S,
        series,
        series_max,
        refusing: shared.health.refusing(),
        from_this_host: peer.is_local(version, &headers, &config),
        echo: config.echo.enabled.then(|| Echo {
            path: "v1/echo".into(),
            transfer_bytes_max: shared.echo.transfer_bytes_max(),
            keeps: shared.echo.keeps(),
        }),
    };
    Ok(json(StatusCode::OK, &answer))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    source: Option<String>,
    target: Option<String>,
    quantity: Option<String>,
    group: Option<String>,
}

pub(super) async fn series(
    axum::extract::State(shared): State,
    Extension(peer): Extension<Peer>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let which: Which = query(&uri)?;
    let selector = selector(which.source.as_deref(), which.target.as_deref(), which.quantity.as_deref())?;
    let choice = Choice::new(&shared, selector, which.group.as_deref()).await?;
    let common = choice.is_all().then_some(Common::Series);
    let bank = Arc::clone(&shared.bank);
    let make = beside(move || {
        list(&bank, &choice, "series", |rows, series, account| rows.push(&json::series(series, account)))
    });
    let text = heavy::text(&shared, &peer, From::Bank, common, make).await?;
    Ok(json_text(StatusCode::OK, text))
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
    axum::extract::State(shared): State,
    Extension(peer): Extension<Peer>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let asked: LatestQuery = query(&uri)?;
    let selector = selector(asked.source.as_deref(), asked.target.as_deref(), asked.quantity.as_deref())?;
    let choice = Choice::new(&shared, selector, asked.group.as_deref()).await?;
    let common = (choice.is_all() && asked.after.is_none()).then_some(Common::Latest);
    let station = Arc::clone(&shared);
    let make = async move {
        let page = station.engine.latest(&choice.selector, asked.after.map(Cursor), LIMIT_DEFAULT).await;
        let mut page = page.inspect_err(|error| station.health.read_failed(error))?;
        page.items.retain(|record| choice.has_end(&record.series));
        {
            let bank = lock(&station.bank);
            page.items.retain(|record| !bank.excludes(&record.series, record.time_unix_ns));
        }
        beside(move || {
            let (latest, next) = shown(&page);
            json_bytes(&Latest { latest, next })
        })
        .await
    };
    let text = heavy::text(&shared, &peer, From::Archive, common, make).await?;
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
    axum::extract::State(shared): State,
    Extension(peer): Extension<Peer>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let asked: HistoryQuery = query(&uri)?;
    let series = one(asked.source.as_deref(), asked.target.as_deref(), asked.quantity.as_deref())?;
    let limit = asked.limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=Range::LIMIT_MAX).contains(&limit) {
        return Err(Refusal::bad(format!("`limit`: expected 1 to {}, found {limit}", Range::LIMIT_MAX)));
    }
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
        if page.items.is_empty() && lock(&station.bank).account(&series).is_none() {
            return Err(unknown(&series));
        }
        beside(move || {
            let (records, next) = shown(&page);
            json_bytes(&History { records, next })
        })
        .await
    };
    let text = heavy::text(&shared, &peer, From::Archive, None, make).await?;
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

pub(super) async fn recent(axum::extract::State(shared): State, uri: Uri) -> Result<Response, Refusal> {
    let asked: LevelQuery = query(&uri)?;
    let series = one(asked.source.as_deref(), asked.target.as_deref(), asked.quantity.as_deref())?;
    let level = kept_level(asked.level)?;
    let bank = lock(&shared.bank);
    let account = bank.account(&series).ok_or_else(|| unknown(&series))?;
    let (source, target, quantity, unit) = json::id(&series);
    let answer = Recent {
        source,
        target,
        quantity,
        unit,
        level: LEVELS[level],
        points: account.points().map(|point| json::point(&point, level)).collect(),
        next: json::forecasts_of(&series, account, LEVELS[level]),
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
}

pub(super) async fn forecast(
    axum::extract::State(shared): State,
    Extension(peer): Extension<Peer>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let asked: ForecastQuery = query(&uri)?;
    let selector = selector(asked.source.as_deref(), asked.target.as_deref(), asked.quantity.as_deref())?;
    let level = asked.level.unwrap_or(Interval::DEFAULT_LEVEL);
    if !(0.01..=0.999).contains(&level) {
        return Err(Refusal::bad(format!("`level`: expected 0.01 to 0.999, found {level}")));
    }
    let choice = Choice::new(&shared, selector, asked.group.as_deref()).await?;
    let common = (choice.is_all() && asked.level.is_none()).then_some(Common::Forecasts);
    let bank = Arc::clone(&shared.bank);
    let make = beside(move || {
        list(&bank, &choice, "forecasts", |rows, series, account| {
            if let Some(forecasts) = json::forecasts_of(series, account, level) {
                rows.push(&forecasts);
            }
        })
    });
    let text = heavy::text(&shared, &peer, From::Bank, common, make).await?;
    Ok(json_text(StatusCode::OK, text))
}

pub(super) async fn metrics(
    axum::extract::State(shared): State,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = Format::preferred(accept);
    let common = match format {
        Format::Prometheus => Common::Prometheus,
        Format::OpenMetrics => Common::OpenMetrics,
    };
    let station = Arc::clone(&shared);
    let make = beside(move || {
        station.note_refusals();
        let bank = Snapshot::of(&station.bank);
        let mesh = station.mesh_state.figures(&station.host);
        let (echo, tests) = (station.echo.counters(), station.bulk.figures());
        Bytes::from(crate::metrics::exposition(format, &bank, &station.health, echo, &mesh, &tests))
    });
    let text = heavy::text(&shared, &peer, From::Bank, Some(common), make).await?;
    Ok(([(header::CONTENT_TYPE, format.content_type()), (header::VARY, "Accept")], text).into_response())
}

/// Index of a level among those with kept intervals.
pub(super) fn kept_level(level: Option<f64>) -> Result<usize, Refusal> {
    let level = level.unwrap_or(Interval::DEFAULT_LEVEL);
    level_index(level)
        .ok_or_else(|| Refusal::bad(format!("`level`: expected one of {LEVELS:?}, found {level}")))
}

/// Identifies one series by its source, target and quantity; all three are required.
fn one(source: Option<&str>, target: Option<&str>, quantity: Option<&str>) -> Result<Series, Refusal> {
    let selector = selector(source, target, quantity)?;
    match (selector.source, selector.target, selector.quantity) {
        (Some(source), Some(target), Some(quantity)) => Ok(Series { source, target, quantity }),
        _ => Err(Refusal::bad("one series is needed: give source, target and quantity")),
    }
}

fn unknown(series: &Series) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, format!("there is no series {series}"))
}

fn shown(page: &Page<Record>) -> (Vec<barograph_api::Record<'_>>, Option<String>) {
    let records = page.items.iter().map(json::record).collect();
    (records, page.next.map(|cursor| cursor.0.to_string()))
}

fn json_bytes<T: Serialize>(value: &T) -> Bytes {
    // Types of `barograph_api` have text keys and no failing serializers.
    serde_json::to_vec(value).unwrap_or_default().into()
}

/// Seconds in nanoseconds; limited to the range of nanoseconds.
fn nanoseconds(key: &str, seconds: f64) -> Result<i64, Refusal> {
    if seconds.is_finite() {
        Ok((seconds * 1e9) as i64)
    } else {
        Err(Refusal::bad(format!("`{key}`: expected a time, found {seconds}")))
    }
}

/// Default number of records in a page: some hundred kilobytes.
const LIMIT_DEFAULT: usize = 1000;

/// Period (s) at which a page that cannot stream reads: half of the default period of measurements.
const PAGE_PERIOD_S: f64 = 5.0;
