//! `POST /v1/measurements`: stores values of an application.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use barograph_api::{Measurements, StoredCount};
use barograph_engine::Record;
use barograph_forecast::{Battery, Name, Outcome, Quantity, SeriesId};
use serde::de::DeserializeOwned;

use super::{ApiRefusal, ApiState, ApiStateExtractor, json};
use crate::forecast::series::{Measurement, bounds};
use crate::limits::Limit;
use crate::record::recorder::{FeedError, SubmittedRecord};
use crate::sync::lock;
use crate::time::now_unix_ns;

pub(super) async fn measurements(
    axum::extract::State(shared): ApiStateExtractor,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiRefusal> {
    let feed: Measurements = json_body(&headers, body).await?;
    // Store all values in a task of their own, even if the caller disconnects: the names stay
    // reserved until the values are stored, or until the time limit for storing values has passed.
    let storing = tokio::spawn(async move { store(&shared, feed).await });
    storing.await.map_err(|error| ApiRefusal::ended(&error))?
}

async fn store(shared: &ApiState, feed: Measurements) -> Result<Response, ApiRefusal> {
    let _names = shared.name_reservations.reserve(names(&feed)).map_err(|name| {
        let error = format!("{name} is joining the mesh at this moment; send the values again");
        ApiRefusal::new(StatusCode::CONFLICT, error)
    })?;
    let records = checked(shared, feed)?;
    if records.is_empty() {
        return Ok(json(StatusCode::CREATED, &StoredCount { stored: 0 }));
    }
    let stored = shared.inbox.feed(records).await.map_err(|error| {
        let status = match error {
            FeedError::Invalid(_) => StatusCode::BAD_REQUEST,
            FeedError::Conflict { .. } | FeedError::ForwardedOrigin => StatusCode::CONFLICT,
            FeedError::TooManyOrigins => StatusCode::TOO_MANY_REQUESTS,
            FeedError::Unavailable(_) | FeedError::Stopping | FeedError::Unknown => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        };
        ApiRefusal::new(status, error.to_string())
    })?;
    Ok(json(StatusCode::CREATED, &StoredCount { stored }))
}

/// All valid names in a request; `checked` refuses invalid names later.
fn names(feed: &Measurements) -> BTreeSet<Name> {
    let of_records = feed.records.iter().flat_map(|record| [&record.source, &record.target]);
    let words = of_records.chain([&feed.origin]).flatten();
    words.filter_map(|word| Name::new(word).ok()).collect()
}

/// Reads a JSON body within its limits.
pub(super) async fn json_body<T: DeserializeOwned>(headers: &HeaderMap, body: Body) -> Result<T, ApiRefusal> {
    let content_type = headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    // A page of another site can send the CORS-safelisted types without a preflight request (Fetch,
    // §3.2.2).
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        return Err(ApiRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be application/json"));
    }
    let too_large = || {
        ApiRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("a body has at most {BODY_BYTES_MAX} bytes"))
    };
    let length = headers.get("content-length").and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > BODY_BYTES_MAX) {
        return Err(too_large());
    }
    let read = axum::body::to_bytes(body, BODY_BYTES_MAX);
    let bytes = match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => return Err(too_large()),
        Err(_) => {
            return Err(ApiRefusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"));
        }
    };
    serde_json::from_slice(&bytes).map_err(|error| ApiRefusal::bad(format!("the body: {error}")))
}

/// Checks all records, so that none is stored if one is wrong.
fn checked(shared: &ApiState, feed: Measurements) -> Result<Vec<SubmittedRecord>, ApiRefusal> {
    if feed.records.len() > RECORDS_MAX {
        return Err(ApiRefusal::bad(format!("at most {RECORDS_MAX} records, found {}", feed.records.len())));
    }
    let name = |what: &str, text: &str| {
        Name::new(text).map_err(|error| ApiRefusal::bad(format!("`{what}`: {error}")))
    };
    let origin = feed.origin.as_deref().map(|text| name("origin", text)).transpose()?;
    if origin.as_ref() == Some(&shared.host) {
        return Err(ApiRefusal::bad(
            "`origin` is this station's own name: leave it out, and the station numbers the records",
        ));
    }
    let is_member = |origin: &Name| shared.served.as_ref().is_some_and(|served| served.members.has(origin));
    if let Some(origin) = origin.as_ref().filter(|origin| is_member(origin)) {
        let error =
            format!("`origin`: {origin} is a member of the mesh; only {origin} may number its records");
        return Err(ApiRefusal::new(StatusCode::CONFLICT, error));
    }
    let mut records = Vec::with_capacity(feed.records.len());
    let mut new_series: HashSet<SeriesId> = HashSet::new();
    let mut seqs: HashSet<u64> = HashSet::new();
    let now = now_unix_ns();
    for (index, record) in feed.records.into_iter().enumerate() {
        let at = |refusal: ApiRefusal| ApiRefusal {
            error: format!("record {index}: {}", refusal.error),
            ..refusal
        };
        let identity = identity(origin.as_ref(), record.seq).map_err(at)?;
        if let Some(seq) = record.seq.filter(|seq| !seqs.insert(*seq)) {
            return Err(at(ApiRefusal::bad(format!("`seq`: {seq} appears twice in this request"))));
        }
        let time_unix_ns = time(record.time_s, now).map_err(at)?;
        let source = match &record.source {
            Some(text) => name("source", text).map_err(at)?,
            None => origin.clone().unwrap_or_else(|| shared.host.clone()),
        };
        if is_member(&source) {
            // A member's series contain only its own values. If an application also wrote to these
            // series, the source of a value would be unknown.
            let error =
                format!("`source`: {source} is a member of the mesh; only {source} may write its series");
            return Err(at(ApiRefusal::new(StatusCode::CONFLICT, error)));
        }
        let target = match &record.target {
            Some(text) => name("target", text).map_err(at)?,
            None => source.clone(),
        };
        let quantity = Quantity::new(&record.quantity)
            .map_err(|error| at(ApiRefusal::bad(format!("`quantity`: {error}"))))?;
        check_value(&quantity, record.value).map_err(at)?;
        let series = SeriesId { source, target, quantity };
        let outcome = Outcome::Value(record.value);
        let measurement =
            Measurement { series: series.clone(), time_unix_ns, outcome, detail: String::new() };
        if lock(&shared.series_table).get(&series).is_none() {
            new_series.insert(series);
        }
        records.push(SubmittedRecord { measurement, identity, time_given: record.time_s.is_some() });
    }
    if lock(&shared.series_table).room() < new_series.len() {
        shared.health.refused(Limit::Series, new_series.len() as u64);
        let error = "the station has no room for further series; raise limits.series_max";
        return Err(ApiRefusal::new(StatusCode::TOO_MANY_REQUESTS, error));
    }
    Ok(records)
}

fn identity(origin: Option<&Name>, seq: Option<u64>) -> Result<Option<(Name, u64)>, ApiRefusal> {
    match (origin, seq) {
        (None, None) => Ok(None),
        (Some(origin), Some(seq)) if (1..=Record::SEQ_MAX).contains(&seq) => Ok(Some((origin.clone(), seq))),
        (Some(_), Some(seq)) => Err(ApiRefusal::bad(format!("`seq`: expected 1 to 2^53, found {seq}"))),
        (Some(_), None) => Err(ApiRefusal::bad("`seq` is missing; with `origin` every record needs one")),
        (None, Some(_)) => Err(ApiRefusal::bad("`seq` needs an `origin`")),
    }
}

/// Checks that a forecast can be made from a value, and that the value is possible for its
/// quantity.
pub(super) fn check_value(quantity: &Quantity, value: f64) -> Result<(), ApiRefusal> {
    if !value.is_finite() || value.abs() > Battery::VALUE_MAX {
        let most = Battery::VALUE_MAX;
        return Err(ApiRefusal::bad(format!("`value`: expected -{most:e} to {most:e}, found {value:e}")));
    }
    let (least, most) = bounds(quantity);
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let possible = if most.is_finite() { format!("{least} to {most}") } else { format!("at least {least}") };
    Err(ApiRefusal::bad(format!("`value`: expected {possible} for {quantity}, found {value}")))
}

fn time(time_s: Option<f64>, now: i64) -> Result<i64, ApiRefusal> {
    let Some(time_s) = time_s else { return Ok(now) };
    let time_ns = (time_s * 1e9) as i64;
    if time_s.is_finite() && time_s >= 0.0 {
        Ok(time_ns)
    } else {
        Err(ApiRefusal::bad(format!("`time_s`: expected seconds since 1970, found {time_s}")))
    }
}

/// Maximum number of bytes of a body: a thousand records of 250 bytes.
const BODY_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of records of one request; they are committed together.
const RECORDS_MAX: usize = 1000;
/// Longest time until a body has arrived. A client that takes longer is broken or attacks the
/// station.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
