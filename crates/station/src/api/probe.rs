//! `GET /v1/probe`: gives a connection to the probe responder, which has its own threads.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use barograph_probe::io::{Seat, Upgraded};
use barograph_probe::wire;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::guard::{Channel, Peer};
use super::{Refusal, State};

pub(super) async fn probe(
    axum::extract::State(shared): State,
    Extension(peer): Extension<Peer>,
    mut request: Request<Body>,
) -> Result<Response, Refusal> {
    let asks = |name, word: &str| {
        request.headers().get_all(name).iter().any(|value| {
            value.to_str().unwrap_or_default().split(',').any(|part| part.trim().eq_ignore_ascii_case(word))
        })
    };
    if !asks(header::CONNECTION, "upgrade") || !asks(header::UPGRADE, wire::UPGRADE) {
        let error = format!("here probes begin: Connection: Upgrade, Upgrade: {}", wire::UPGRADE);
        return Err(Refusal::new(StatusCode::UPGRADE_REQUIRED, error));
    }
    let seat = shared
        .responder
        .admit(peer.address.ip())
        .map_err(|declined| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, declined.to_string()))?;
    let token = match peer.channel {
        Channel::Tls => shared.responder.issue_token(),
        Channel::Plain | Channel::PlainBesideTls => None,
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Err(error) = hand_over(upgrade, seat).await {
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

/// Takes the connection out of the HTTP server, makes it blocking, and seats it.
async fn hand_over(upgrade: OnUpgrade, seat: Seat) -> std::io::Result<()> {
    let upgraded = tokio::time::timeout(UPGRADE_TIMEOUT, upgrade)
        .await
        .map_err(|_| std::io::ErrorKind::TimedOut)?
        .map_err(std::io::Error::other)?;
    let blocking = |stream: TcpStream| -> std::io::Result<std::net::TcpStream> {
        let stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        Ok(stream)
    };
    match upgraded.downcast::<TokioIo<TcpStream>>() {
        Ok(parts) => {
            let stream = blocking(parts.io.into_inner())?;
            seat.serve(Upgraded::Plain(stream), parts.read_buf.to_vec())
        }
        Err(upgraded) => {
            let parts = upgraded
                .downcast::<TokioIo<TlsStream<TcpStream>>>()
                .map_err(|_| std::io::Error::other("the connection is of an unknown kind"))?;
            let (stream, connection) = parts.io.into_inner().into_inner();
            seat.serve(Upgraded::Tls(Box::new(connection), blocking(stream)?), parts.read_buf.to_vec())
        }
    }
}

/// The answer `101` must be written within this time.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);
