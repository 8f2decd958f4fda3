//! `POST /v1/engine/records`: stores measurements of a member.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::Response;
use barograph_api::EngineAppended;
use barograph_engine::{EngineError, Record, wire};
use barograph_forecast::{Name, Outcome};
use futures_util::StreamExt as _;

use super::{
    EngineRefusal, LINES, bind_member, count_throttled, done, expect_type, late, length, member, too_large,
};
use crate::api::feed::check_value;
use crate::api::{ApiState, ApiStateExtractor};
use crate::record::recorder::FeedError;

pub(super) async fn append(
    axum::extract::State(shared): ApiStateExtractor,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, EngineRefusal> {
    let (_, member) = member(&shared, &headers)?;
    let _request = member.quota.request().map_err(|why| EngineRefusal::too_much(&shared, why))?;
    let _append = member.quota.append().map_err(|why| EngineRefusal::too_much(&shared, why))?;
    expect_type(&headers, LINES)?;
    // Charge before reading, so that a refused body does not use up the budget for a smaller body.
    let length = length(&headers, BODY_BYTES_MAX)?;
    member.quota.take_body(length, Instant::now()).inspect_err(|_| count_throttled(&shared))?;
    let records = match tokio::time::timeout(BODY_TIMEOUT, read(body)).await {
        Ok(records) => records?,
        Err(_) => return Err(late()),
    };
    let Some(first) = records.first() else { return Ok(done(&EngineAppended { records: 0, wait_s: 0.0 })) };
    check_origin(&records, &first.origin)?;
    check_values(&records)?;
    bind_member(&shared, &member, &first.origin).await?;
    check_numbers(&shared, &records, &first.origin).await?;
    member.quota.take_records(records.len(), Instant::now());
    let stored = shared.inbox.forward(records).await.map_err(|error| match error {
        FeedError::Unknown => EngineError::Unknown("the archive has not answered in time".into()),
        FeedError::Invalid(why) => EngineError::Invalid(why),
        other => EngineError::Unavailable(other.to_string()),
    })?;
    let wait_s = member.quota.wait(length, Instant::now()).as_secs_f64();
    Ok(done(&EngineAppended { records: stored, wait_s }))
}

/// Reads the records of a body, each within its limits.
async fn read(body: Body) -> Result<Vec<Record>, EngineRefusal> {
    let mut pieces = body.into_data_stream();
    let mut lines = wire::LineAssembler::new(wire::RECORD_BYTES_MAX);
    let mut records = Vec::new();
    let mut bytes = 0;
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| EngineRefusal::invalid("the body was cut short"))?;
        bytes += piece.len();
        if bytes > BODY_BYTES_MAX {
            return Err(too_large(BODY_BYTES_MAX));
        }
        lines.push(&piece)?;
        while let Some(line) = lines.next_line() {
            if line.is_empty() {
                continue;
            }
            if records.len() == Record::BATCH_MAX {
                let most = Record::BATCH_MAX;
                return Err(EngineRefusal::invalid(format!("a batch has at most {most} records")));
            }
            let record = wire::read_record(&line);
            records.push(
                record
                    .map_err(|error| EngineRefusal::invalid(format!("record {}: {error}", records.len())))?,
            );
        }
    }
    if !lines.rest().is_empty() {
        return Err(EngineRefusal::invalid("the last line has no line end"));
    }
    Ok(records)
}

/// Checks that all records have the origin `origin`.
fn check_origin(records: &[Record], origin: &Name) -> Result<(), EngineRefusal> {
    match records.iter().find(|record| record.origin != *origin) {
        None => Ok(()),
        Some(other) => {
            let why = format!(
                "a station may write only its own records; found records of {origin} and {}",
                other.origin
            );
            Err(EngineError::Denied(why).into())
        }
    }
}

/// Checks that each value is possible for its quantity.
fn check_values(records: &[Record]) -> Result<(), EngineRefusal> {
    for (index, record) in records.iter().enumerate() {
        if let Outcome::Value(value) = record.outcome {
            check_value(&record.series.quantity, value)
                .map_err(|refusal| EngineRefusal::invalid(format!("record {index}: {}", refusal.error)))?;
        }
    }
    Ok(())
}

/// Checks that no sequence number is too far above the sequence numbers that the member has used.
async fn check_numbers(shared: &ApiState, records: &[Record], origin: &Name) -> Result<(), EngineRefusal> {
    let highest = records.iter().map(|record| record.seq).max().unwrap_or(0);
    if Record::is_seq_plausible(highest, 0) {
        return Ok(());
    }
    // Read the archive only for such high numbers, which are rare. Other appends then do not wait
    // for the archive.
    let used = shared.engine.next_seq(origin).await?.saturating_sub(1);
    if Record::is_seq_plausible(highest, used) {
        return Ok(());
    }
    Err(EngineRefusal::invalid(format!(
        "record {highest} of {origin}: the number is too far above its highest, {used}"
    )))
}

/// Maximum number of bytes of a body: ten thousand records with 1.6 KiB each, details included.
const BODY_BYTES_MAX: usize = 16 << 20;

/// Longest time for a body. At the lowest supported rate, 128 KiB/s, a body made by our client
/// takes half of this time.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
