//! `GET /v1/probe`: passes a connection to the probe responder, which has its own threads.

use axum::body::Body;
use axum::extract::{Extension, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use barograph_probe::io::{SessionSlot, Upgraded};
use barograph_probe::wire::{self, DeclineReason};
use hyper::upgrade::OnUpgrade;
use tokio::net::TcpStream;

use super::guard::{Caller, Encryption, RemoteEnd};
use super::upgrade::{self, UpgradedStream};
use super::{ApiRefusal, ApiStateExtractor};
use crate::limits::Limit;

pub(super) async fn probe(
    axum::extract::State(shared): ApiStateExtractor,
    Extension(remote): Extension<RemoteEnd>,
    caller: Option<Extension<Caller>>,
    mut request: Request<Body>,
) -> Result<Response, ApiRefusal> {
    if !upgrade::is_asked(request.headers(), wire::UPGRADE) {
        let error = format!("expected a probe: Connection: Upgrade, Upgrade: {}", wire::UPGRADE);
        return Err(ApiRefusal::new(StatusCode::UPGRADE_REQUIRED, error));
    }
    let slot = shared.responder.admit(remote.address.ip());
    let slot = match &caller {
        Some(Extension(Caller { name, signed_at })) => {
            slot.and_then(|slot| slot.signed_by(name.as_str(), *signed_at))
        }
        None => slot,
    };
    let slot = slot.map_err(|declined| {
        if declined == DeclineReason::Full {
            shared.health.refused(Limit::ProbeSessions, 1);
        }
        ApiRefusal::new(StatusCode::SERVICE_UNAVAILABLE, declined.to_string())
    })?;
    let token = match remote.encryption {
        // Issue no token to a peer. A token contains no name, so the station would take the peer
        // for the operator. A peer can sign its request on the plain channel.
        Encryption::Tls if caller.is_none() => shared.responder.issue_token(),
        Encryption::Tls | Encryption::Plain | Encryption::PlainWithTls => None,
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Err(error) = hand_over(upgrade, slot).await {
            tracing::debug!("a probe session did not begin: {error}");
        }
    });
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    if let Some(token) = token.and_then(|token| HeaderValue::from_str(&token).ok()) {
        headers.insert(wire::TOKEN_HEADER, token);
    }
    Ok(response)
}

/// Takes the connection out of the HTTP server, makes the connection blocking, and passes the
/// connection to `slot`.
async fn hand_over(upgrade: OnUpgrade, slot: SessionSlot) -> std::io::Result<()> {
    let (upgraded, already_read) = upgrade::take(upgrade).await?;
    let blocking = |stream: TcpStream| -> std::io::Result<std::net::TcpStream> {
        let stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        Ok(stream)
    };
    match upgraded {
        UpgradedStream::Plain(stream) => slot.serve(Upgraded::Plain(blocking(stream)?), already_read),
        UpgradedStream::Tls(stream) => {
            let (stream, connection) = stream.into_inner();
            slot.serve(Upgraded::Tls(Box::new(connection), blocking(stream)?), already_read)
        }
    }
}
