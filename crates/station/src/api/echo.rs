//! `GET /v1/echo`: opens a WebSocket for probes (docs/spec/echo.md §1).

use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::extract::{Extension, Request};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::guard::{self, RemoteEnd};
use super::{ApiRefusal, ApiState, ApiStateExtractor, upgrade};
use crate::echo::{EchoSessionSlot, SUBPROTOCOL};
use crate::limits::Limit;

pub(super) async fn echo(
    axum::extract::State(shared): ApiStateExtractor,
    Extension(remote): Extension<RemoteEnd>,
    mut request: Request<Body>,
) -> Response {
    let (admission, accept) = match open(&shared, &remote, &request) {
        Ok(opened) => opened,
        Err(refusal) => {
            // A request without the header `Upgrade` only checks the address, so do not count a
            // refused session.
            if request.headers().contains_key(header::UPGRADE) {
                shared.echo.counters().sessions_refused.fetch_add(1, Ordering::Relaxed);
            }
            return with_version(refusal);
        }
    };
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrade::take(upgraded).await {
            Ok((stream, already_read)) => admission.serve(stream, already_read).await,
            Err(error) => tracing::debug!("an echo session did not begin: {error}"),
        }
    });
    let headers = [
        (header::CONNECTION, HeaderValue::from_static("upgrade")),
        (header::UPGRADE, HeaderValue::from_static(PROTOCOL)),
        (header::SEC_WEBSOCKET_ACCEPT, accept),
        (header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL)),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}

/// Admits and charges a session; also returns the value of `Sec-WebSocket-Accept`.
fn open(
    shared: &ApiState,
    remote: &RemoteEnd,
    request: &Request<Body>,
) -> Result<(EchoSessionSlot, HeaderValue), ApiRefusal> {
    let admission = admit(shared, remote, request)?;
    let accept = handshake(request.method(), request.headers())?;
    admission.pay().map_err(unavailable)?;
    Ok((admission, accept))
}

/// Admits a session if the page may open a session.
fn admit(
    shared: &ApiState,
    remote: &RemoteEnd,
    request: &Request<Body>,
) -> Result<EchoSessionSlot, ApiRefusal> {
    let config = shared.config();
    if !config.echo.enabled {
        return Err(ApiRefusal::new(
            StatusCode::FORBIDDEN,
            "pages may not measure this station (echo.enabled = false)",
        ));
    }
    if guard::is_from_other_origin(request, remote.encryption, &config.echo.origins) {
        let error = "pages of this origin may not measure this station; add it to echo.origins";
        return Err(ApiRefusal::new(StatusCode::FORBIDDEN, error));
    }
    let is_local = remote.is_local(request.version(), request.headers(), &config);
    match shared.echo.admit(remote.address.ip(), is_local) {
        Ok((admission, has_shed)) => {
            shared.health.refused(Limit::EchoSessions, has_shed.into());
            Ok(admission)
        }
        Err((error, limit)) => {
            shared.health.refused(limit, 1);
            Err(unavailable(error))
        }
    }
}

fn unavailable(error: &'static str) -> ApiRefusal {
    ApiRefusal::new(StatusCode::SERVICE_UNAVAILABLE, error)
}

/// Value of `Sec-WebSocket-Accept` (RFC 6455 §4.2).
fn handshake(method: &Method, headers: &HeaderMap) -> Result<HeaderValue, ApiRefusal> {
    let required = |error: &str| Err(ApiRefusal::new(StatusCode::UPGRADE_REQUIRED, error));
    if *method != Method::GET || !upgrade::is_asked(headers, PROTOCOL) {
        return required("expected a WebSocket handshake: Connection: Upgrade, Upgrade: websocket");
    }
    if headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != VERSION) {
        return required("expected Sec-WebSocket-Version: 13");
    }
    if !upgrade::has_word(headers, &header::SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL) {
        return Err(ApiRefusal::bad(format!("expected Sec-WebSocket-Protocol: {SUBPROTOCOL}")));
    }
    let mut keys = headers.get_all(header::SEC_WEBSOCKET_KEY).iter();
    let key = match (keys.next(), keys.next()) {
        (Some(key), None) if is_key(key.as_bytes()) => key,
        _ => return Err(ApiRefusal::bad("expected one Sec-WebSocket-Key of 16 bytes in Base64")),
    };
    HeaderValue::from_str(&derive_accept_key(key.as_bytes()))
        .map_err(|_| ApiRefusal::bad("the Sec-WebSocket-Key is not valid"))
}

/// Whether the key has the form of 16 bytes in Base64: 22 digits and `==` (RFC 4648 §4).
fn is_key(key: &[u8]) -> bool {
    match key.strip_suffix(b"==") {
        Some(digits) => {
            digits.len() == 22
                && digits.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(byte))
        }
        None => false,
    }
}

/// Makes a refusal that names the protocol and version of this address (RFC 9110 §15.5.22, RFC 6455
/// §4.4).
fn with_version(refusal: ApiRefusal) -> Response {
    let mut response = refusal.into_response();
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
    headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
    response
}

const PROTOCOL: &str = "websocket";
const VERSION: &str = "13";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const HEADERS: [header::HeaderName; 5] = [
        header::CONNECTION,
        header::UPGRADE,
        header::SEC_WEBSOCKET_VERSION,
        header::SEC_WEBSOCKET_PROTOCOL,
        header::SEC_WEBSOCKET_KEY,
    ];

    fn handshake_of(values: &[&[u8]; 5]) -> Result<HeaderValue, ApiRefusal> {
        let pairs = HEADERS.into_iter().zip(values);
        let headers = pairs.filter_map(|(name, value)| Some((name, HeaderValue::from_bytes(value).ok()?)));
        handshake(&Method::GET, &headers.collect())
    }

    const GOOD: [&[u8]; 5] =
        [b"Upgrade", b"websocket", b"13", b"barograph-probe.1", b"dGhlIHNhbXBsZSBub25jZQ=="];

    #[test]
    fn the_handshake_example_of_the_standard_is_accepted() {
        // Key and result from RFC 6455 §1.3.
        assert_eq!(handshake_of(&GOOD).unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    proptest::proptest! {
        /// Test: one header, or each header, is replaced by arbitrary text. An accepted key has 24
        /// bytes.
        #[test]
        fn an_arbitrary_handshake_does_not_panic(
            at in 0_usize..5,
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..40),
            near in "[A-Za-z0-9+/]{20,23}={0,3}",
        ) {
            for text in [&bytes[..], near.as_bytes()] {
                let mut values = GOOD;
                values[at] = text;
                let is_accepted = handshake_of(&values).is_ok();
                proptest::prop_assert!(!is_accepted || at != 4 || text.len() == 24);
                let _ = handshake_of(&[text; 5]);
            }
        }
    }
}
