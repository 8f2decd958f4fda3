//! `/v1/transfers`: files that this station sends or receives at the request of a caller.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use barograph_api::{NewReceiver, NewTransfer, TransferList, WaitingTransfer};
use serde::Deserialize;

use super::query::{NoParameters, query};
use super::{ApiRefusal, ApiState, ApiStateExtractor, feed, json};
use crate::http::server;
use crate::limits::Limit;
use crate::transfer::{TransferError, Transfers};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelQuery {
    id: String,
}

pub(super) async fn list(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
) -> Result<Response, ApiRefusal> {
    let NoParameters {} = query(&uri)?;
    Ok(json(StatusCode::OK, &TransferList { transfers: shared.transfers.rows() }))
}

/// Prepares to receive from one sender; returns the receiver address.
pub(super) async fn receive(
    axum::extract::State(shared): ApiStateExtractor,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiRefusal> {
    let asked: NewReceiver = feed::json_body(&headers, body).await?;
    let listen = shared.address.ip();
    // The advertised address if there is one; otherwise the address at which this host reaches the
    // station.
    let advertised = shared.mesh_state.directory().addresses().first().map(|address| address.ip());
    let host = asked
        .host
        .unwrap_or_else(|| advertised.unwrap_or_else(|| server::reachable(shared.address).ip()).to_string());
    let config = shared.config();
    let made = blocking(&shared, move |transfers| {
        transfers.receive(&config.transfer, &asked.directory, listen, &host)
    });
    let (transfer, line) = made.await?;
    Ok(json(StatusCode::CREATED, &WaitingTransfer { receiver_address: line.to_string(), transfer }))
}

/// Begins to send files.
pub(super) async fn send(
    axum::extract::State(shared): ApiStateExtractor,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiRefusal> {
    let asked: NewTransfer = feed::json_body(&headers, body).await?;
    let line =
        asked.receiver_address.trim().parse().map_err(|error| ApiRefusal::bad(format!("`line`: {error}")))?;
    let config = shared.config();
    let made = blocking(&shared, move |transfers| transfers.send(&config.transfer, &asked.paths, line));
    Ok(json(StatusCode::ACCEPTED, &made.await?))
}

pub(super) async fn cancel(
    axum::extract::State(shared): ApiStateExtractor,
    uri: Uri,
) -> Result<Response, ApiRefusal> {
    let asked: CancelQuery = query(&uri)?;
    let row = blocking(&shared, move |transfers| transfers.cancel(&asked.id)).await?;
    Ok(json(StatusCode::OK, &row))
}

/// Runs work that waits for file systems, outside the HTTP thread.
async fn blocking<T: Send + 'static>(
    shared: &ApiState,
    work: impl FnOnce(&Arc<Transfers>) -> Result<T, TransferError> + Send + 'static,
) -> Result<T, ApiRefusal> {
    let transfers = Arc::clone(&shared.transfers);
    match tokio::task::spawn_blocking(move || work(&transfers)).await {
        Ok(result) => result.map_err(|error| {
            let status = match &error {
                TransferError::NotAllowed(_) => StatusCode::FORBIDDEN,
                TransferError::Bad(_) => StatusCode::BAD_REQUEST,
                TransferError::Unknown(_) => StatusCode::NOT_FOUND,
                TransferError::Busy(_) => {
                    shared.health.refused(Limit::Transfers, 1);
                    StatusCode::TOO_MANY_REQUESTS
                }
                TransferError::Failed(_) => StatusCode::SERVICE_UNAVAILABLE,
            };
            ApiRefusal::new(status, error.to_string())
        }),
        Err(error) => Err(ApiRefusal::ended(&error)),
    }
}
