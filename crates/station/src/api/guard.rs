//! Access control of requests: host names, pages of other sites, and the token (docs/spec/api.md).

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::body::{Body, HttpBody as _};
use axum::extract::{Extension, Request};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use barograph_forecast::Name;
use barograph_probe::{signed, wire};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use subtle::ConstantTimeEq;

use super::{ApiRefusal, ApiState, ApiStateExtractor, engine};
use crate::config::Config;
use crate::limits::connections::ConnectionGuard;
use crate::limits::unread::{CHUNK_BYTES, in_chunks};
use crate::mesh::identity::SignatureError;
use barograph_limits::authenticated::CredentialOwner;
use barograph_limits::credentials::Credential;

pub(super) use crate::http::remote_end::{Encryption, RemoteEnd};

/// The station of this mesh that signed a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) name: Name,
    /// Time just before the station verified the signature.
    pub(crate) signed_at: Instant,
}

impl RemoteEnd {
    /// Whether the request was made on this host, as far as this can be detected.
    ///
    /// A proxy on this host makes every request look local. A proxy is detected by the headers that
    /// most proxies add, or by HTTP/1.0, the default of many proxies. For other proxies the
    /// operator must set `loopback_needs_token`.
    pub(crate) fn is_local(&self, version: Version, headers: &HeaderMap, config: &Config) -> bool {
        let forwarded = headers.keys().any(|name| {
            let name = name.as_str();
            FORWARDED.contains(&name) || name.starts_with(FORWARDED_PREFIX)
        });
        self.is_same_host() && !forwarded && version >= Version::HTTP_11 && !config.loopback_needs_token
    }
}

/// Passes a request on or refuses it, and adds the security headers for browsers.
pub(super) async fn guard(
    axum::extract::State(shared): ApiStateExtractor,
    Extension(remote): Extension<RemoteEnd>,
    Extension(connection): Extension<Arc<ConnectionGuard>>,
    mut request: Request<Body>,
    next: Next,
) -> Response {
    let is_generated = is_generated(&request);
    // A generated response may wait long for its permit. During this wait the connection counts as
    // idle, so that it can be closed for another one.
    let mut request_guard = if is_generated {
        connection.request_arrived();
        None
    } else {
        Some(connection.request())
    };
    let shown = if is_public_read(&request) { None } else { credential(&request) };
    let authorised = authorise_request(&shared, &remote, &request);
    let is_probe = is_probe(&request);
    let member = match shown {
        Some(Credential::Invitation) => engine::member_of_token(&shared, request.headers()),
        _ => None,
    };
    let owner = authorised.as_ref().ok().map(|caller| match caller {
        Some(Caller { name, .. }) => CredentialOwner::Station(name.clone()),
        None => CredentialOwner::Operator,
    });
    // A member's token may still be wrong after this check, because the handler checks it.
    let is_wrong_here = authorised.as_ref().err().is_none_or(|denial| denial.is_wrong);
    let cors = is_public_read(&request).then(|| CorsPolicy::of(&request, &shared.config().echo.origins));
    let mut response = match authorised {
        Ok(caller) => {
            if let Some(caller) = caller {
                request.extensions_mut().insert(caller);
            }
            if is_generated {
                let response = bounded(&shared, &remote, &connection, next.run(request).await).await;
                // Only a stream counts as in progress, until it ends. With a known length, the
                // first frame would already end the request (`RequestGuard::until_sent`).
                if response.body().size_hint().exact().is_none() {
                    request_guard = Some(connection.request());
                }
                response
            } else {
                next.run(request).await
            }
        }
        Err(AccessDenied { refusal, .. }) => {
            shared.health.requests_refused.fetch_add(1, Ordering::Relaxed);
            refusal.into_response()
        }
    };
    if let Some(credential) = shown {
        if is_wrong_here && response.status() == StatusCode::UNAUTHORIZED {
            let delay = shared.health.wrong(credential, remote.address.ip());
            // No request is in progress during the delay, so that the connection can be closed to
            // make room.
            drop(request_guard);
            tokio::time::sleep(delay).await;
            request_guard = Some(connection.request());
        } else if credential != Credential::Invitation {
            if let Some(owner) = owner {
                connection.record_authentication(owner);
            }
        } else if response.status().is_success()
            && let Some(member) = member
            && let Some(name) = member.name()
        {
            connection.record_authentication(CredentialOwner::Station(name.clone()));
            // The member may have been removed while the request was in progress.
            if member.is_removed() {
                shared.authenticated.with(|authenticated| authenticated.forget(&name));
            }
        }
    }
    let refused_probe = is_probe && response.status() == StatusCode::UNAUTHORIZED;
    let headers = response.headers_mut();
    for (name, value) in SAFETY_HEADERS {
        headers.insert(*name, HeaderValue::from_static(value));
    }
    if let Some(cors) = cors {
        cors.add_headers(headers);
    }
    if is_probe {
        // Also send this header with a refusal, to show that a station is at this address.
        headers.insert(header::UPGRADE, HeaderValue::from_static(wire::UPGRADE));
        // Also send the name of the station: in a different network, a different host may have this
        // address.
        if let Ok(name) = HeaderValue::from_str(&signed::name_text(&shared.host)) {
            headers.insert(signed::NAME_HEADER, name);
        }
    }
    if refused_probe
        && let Ok(challenge) = HeaderValue::from_str(&shared.mesh_state.identity.challenge().header())
    {
        // A peer of the mesh needs no token; it signs the challenge.
        headers.append(header::WWW_AUTHENTICATE, challenge);
    }
    response.map(|body| match request_guard {
        Some(request_guard) => request_guard.until_sent(body),
        None => body,
    })
}

/// Whether the station generates the response to the request, instead of sending an embedded file.
fn is_generated(request: &Request<Body>) -> bool {
    let path = request.uri().path();
    is_public_read(request) && (path.starts_with("/v1/") || path == "/metrics")
}

/// Returns the response if it is small, or if the budget of unread responses has room for its
/// bytes; otherwise returns a refusal.
async fn bounded(
    shared: &ApiState,
    remote: &RemoteEnd,
    connection: &Arc<ConnectionGuard>,
    response: Response,
) -> Response {
    let (parts, mut body) = response.into_parts();
    // Streams have no length, and limits of their own.
    if body.size_hint().exact().is_none_or(|bytes| bytes <= CHUNK_BYTES as u64) {
        return Response::from_parts(parts, body);
    }
    // The body of a text response is one frame.
    let Some(Ok(Ok(text))) = body.frame().await.map(|frame| frame.map(Frame::into_data)) else {
        return ApiRefusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal error: a response without a body",
        )
        .into_response();
    };
    match shared.unread.hold(shared.caller_class(remote), &text) {
        Some(held) => Response::from_parts(parts, in_chunks(text, held, Arc::clone(connection))),
        None => shared.too_much_unread().into_response(),
    }
}

/// Refusal of a request, with its cause.
struct AccessDenied {
    refusal: ApiRefusal,
    /// Whether the request has a wrong credential, which may be a guess.
    is_wrong: bool,
}

impl From<ApiRefusal> for AccessDenied {
    fn from(refusal: ApiRefusal) -> Self {
        Self { refusal, is_wrong: false }
    }
}

/// Decides whether a request may pass; returns the station that signed it, if any.
fn authorise_request(
    shared: &ApiState,
    remote: &RemoteEnd,
    request: &Request<Body>,
) -> Result<Option<Caller>, AccessDenied> {
    if remote.encryption == Encryption::PlainWithTls && !is_probe(request) {
        return Err(ApiRefusal::new(StatusCode::FORBIDDEN, "this station serves HTTPS: use https://").into());
    }
    let host = asked_host(request)?;
    let config = shared.config();
    if host.is_some_and(|host| !is_own_name(host, shared.host.as_str(), &config.allowed_hosts)) {
        let error = format!(
            "`{}` is not a name of this station; add it to allowed_hosts",
            host.unwrap_or_default().chars().take(80).collect::<String>()
        );
        return Err(ApiRefusal::new(StatusCode::MISDIRECTED_REQUEST, error).into());
    }
    if is_public_read(request) {
        return Ok(None);
    }
    if is_from_other_site(request.headers(), host) {
        return Err(ApiRefusal::new(StatusCode::FORBIDDEN, "pages of other sites may only read").into());
    }
    if engine::is_below(request.uri().path()) {
        // The routes of the engine check the member's token, wherever the request comes from.
        return Ok(None);
    }
    authorise(shared, remote, request, &config)
}

/// Whether a request opens a session of probes.
fn is_probe(request: &Request<Body>) -> bool {
    request.uri().path() == wire::PATH
}

/// Kind of credential in a request; `None` for a request without a credential.
fn credential(request: &Request<Body>) -> Option<Credential> {
    let given = request.headers().get(header::AUTHORIZATION)?.to_str().unwrap_or_default();
    let scheme = given.split(' ').next().unwrap_or_default();
    Some(match scheme {
        _ if engine::is_below(request.uri().path()) => Credential::Invitation,
        scheme if scheme.eq_ignore_ascii_case(signed::SCHEME) => {
            // A peer that needs a challenge sends the scheme without a credential.
            let (_, shown) = given.split_once(' ')?;
            (!shown.trim().is_empty()).then_some(Credential::Signature)?
        }
        _ => Credential::Token,
    })
}

/// Whether a request changes nothing, starts no other traffic, and is allowed to every caller.
fn is_public_read(request: &Request<Body>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
        && !is_probe(request)
        && !engine::is_below(request.uri().path())
}

/// Pages that may read the response to a read (Fetch, §3.2 "CORS protocol").
enum CorsPolicy {
    /// Pages of this origin, and pages of this station.
    Origin(HeaderValue),
    /// Only pages of this station.
    Own,
}

impl CorsPolicy {
    fn of(request: &Request<Body>, allowed: &[String]) -> Self {
        match request.headers().get(header::ORIGIN) {
            Some(origin) if is_listed(origin, allowed) => Self::Origin(origin.clone()),
            _ => Self::Own,
        }
    }

    fn add_headers(self, headers: &mut HeaderMap) {
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
        if headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN) {
            // Only a file for pages of any site has this header already.
            headers.insert(RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
        } else if let Self::Origin(origin) = self {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            // Lets a page that measures downloads read the time of the first byte (Resource Timing,
            // §4.5).
            headers.insert("timing-allow-origin", origin);
            headers.insert(RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
        }
    }
}

fn is_listed(origin: &HeaderValue, allowed: &[String]) -> bool {
    origin.to_str().is_ok_and(|origin| allowed.iter().any(|one| one == "*" || one == origin))
}

/// Requires that the caller is on this host or has the token. A probe may have a single-use token
/// or a peer's signature instead.
fn authorise(
    shared: &ApiState,
    remote: &RemoteEnd,
    request: &Request<Body>,
    config: &Config,
) -> Result<Option<Caller>, AccessDenied> {
    let (is_probe, headers) = (is_probe(request), request.headers());
    let given = headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap_or_default());
    let refusal = |error: &str| ApiRefusal::new(StatusCode::UNAUTHORIZED, error);
    let wrong = |error: &str| Err(AccessDenied { refusal: refusal(error), is_wrong: true });
    match given.map(|value| value.split_once(' ').unwrap_or((value, ""))) {
        Some((scheme, token)) if is_probe && scheme.eq_ignore_ascii_case(wire::TOKEN_SCHEME) => {
            if shared.responder.redeem_token(token.trim()) {
                Ok(None)
            } else {
                wrong("the probe token is unknown, used or expired")
            }
        }
        // A signature is valid on any channel, because it cannot be used again. It opens a session
        // without TLS, also at a station with TLS.
        Some((scheme, _)) if is_probe && scheme.eq_ignore_ascii_case(signed::SCHEME) => {
            let (signature, signed_at) = (given.unwrap_or_default(), Instant::now());
            match shared.mesh_state.verify(signature, Method::GET.as_str(), wire::PATH) {
                Ok(name) => Ok(Some(Caller { name, signed_at })),
                Err(error) => {
                    Err(AccessDenied { refusal: refusal(&error.to_string()), is_wrong: may_be_guess(error) })
                }
            }
        }
        _ if remote.encryption == Encryption::PlainWithTls => {
            Err(refusal("a probe without TLS needs a token that was issued over HTTPS").into())
        }
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("Bearer") => {
            if bool::from(token.trim().as_bytes().ct_eq(shared.token.as_bytes())) {
                Ok(None)
            } else {
                wrong("the token is wrong")
            }
        }
        // Report an invalid `Authorization` header also to a caller that needs no token.
        Some(_) => wrong("expected `Authorization: Bearer TOKEN`"),
        None if remote.is_local(request.version(), headers, config) => Ok(None),
        None => Err(refusal("a token is needed: Authorization: Bearer TOKEN").into()),
    }
}

/// Whether a refused signature may be a guess. The other errors also occur with honest peers: the
/// response to the challenge was late, or the peer is not in the directory of this station yet.
fn may_be_guess(error: SignatureError) -> bool {
    match error {
        SignatureError::Malformed | SignatureError::Signature => true,
        SignatureError::Challenge
        | SignatureError::TooMany
        | SignatureError::Unknown
        | SignatureError::Keyless => false,
    }
}

/// Whether a request has an `Origin` other than the origin of the station's own page and the
/// origins in `allowed`. Programs send no `Origin`.
///
/// Over TLS only an `https` page is the station's own: an attacker on the path can forge a page
/// over plain HTTP. Without TLS the scheme proves nothing, because a proxy may have terminated TLS.
pub(super) fn is_from_other_origin(
    request: &Request<Body>,
    encryption: Encryption,
    allowed: &[String],
) -> bool {
    let headers = request.headers();
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let is_one = headers.get_all(header::ORIGIN).iter().count() == 1;
    let host = asked_host(request).ok().flatten();
    let is_own = has_authority(origin, host) && (encryption != Encryption::Tls || is_https(origin));
    !(is_one && (is_listed(origin, allowed) || is_own))
}

/// The requested host with its port; `None` for an HTTP/1.0 request without a host.
fn asked_host(request: &Request<Body>) -> Result<Option<&str>, ApiRefusal> {
    // An absolute request target overrides the header (RFC 9112 §3.2.2).
    if let Some(authority) = request.uri().authority() {
        return Ok(Some(authority.as_str()));
    }
    let mut all = request.headers().get_all(header::HOST).iter();
    let first = all.next();
    let several = all.next().is_some();
    match first.map(|value| value.to_str()) {
        Some(Ok(host)) if !several => Ok(Some(host)),
        None if request.version() < Version::HTTP_11 => Ok(None),
        _ => Err(ApiRefusal::bad("the request needs one Host header")),
    }
}

/// Whether `host` (with or without port) is a name of this station. Any address is accepted,
/// because it cannot be rebound by DNS; names must be known to the station.
fn is_own_name(host: &str, own: &str, allowed: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    name.parse::<IpAddr>().is_ok() || is("localhost") || is(own) || allowed.iter().any(|known| is(known))
}

/// Whether a page of another site sent the request. Programs send neither `Origin` nor
/// `Sec-Fetch-Site`.
fn is_from_other_site(headers: &HeaderMap, host: Option<&str>) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let other_origin = headers.get(header::ORIGIN).is_some_and(|origin| !has_authority(origin, host));
    // Fetch Metadata: `same-site` is another port or another name of the domain.
    let other_site = text("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none"));
    other_origin || other_site
}

/// Whether an origin has the authority `host`; false for `null` and for unreadable values.
fn has_authority(origin: &HeaderValue, host: Option<&str>) -> bool {
    let uri = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
    match (uri.as_ref().and_then(Uri::authority), host) {
        (Some(authority), Some(host)) => authority.as_str().eq_ignore_ascii_case(host),
        _ => false,
    }
}

fn is_https(origin: &HeaderValue) -> bool {
    origin.as_bytes().starts_with(b"https://")
}

/// Headers that proxies add: standard headers (RFC 9110 §7.6.3, RFC 7239 §4) and headers that are
/// in common use.
const FORWARDED: [&str; 3] = ["forwarded", "via", "x-real-ip"];
const FORWARDED_PREFIX: &str = "x-forwarded-";

/// Security headers: the page loads only its own files, no other page can frame it, and browsers do
/// not guess the types of its files. It may connect to any station or mirror that its reader
/// chooses. `wasm-unsafe-eval` permits WebAssembly and no other code (CSP 3, §6.1.10). The two
/// policies that isolate the page from other origins give the page a finer clock if its origin is
/// secure (High Resolution Time, §8.1). Files of the page's workers need the second policy, too.
const SAFETY_HEADERS: &[(&str, &str)] = &[
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; \
         style-src 'self'; img-src 'self' data:; connect-src 'self' http: https: ws: wss:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-embedder-policy", "require-corp"),
    (RESOURCE_POLICY, "same-origin"),
];

const RESOURCE_POLICY: &str = "cross-origin-resource-policy";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn own_host_names_include_addresses_and_known_names_but_no_rebound_names() {
        let allowed = ["weather.example".to_string()];
        for host in [
            "127.0.0.1:10132",
            "[::1]:1",
            "[::1]",
            "LOCALHOST:1",
            "localhost",
            "office",
            "weather.example:443",
        ] {
            assert!(is_own_name(host, "office", &allowed), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:10132",
            "127.0.0.1.evil.example",
            "localhost.evil",
            "",
            ":1",
            "[",
            "[evil]",
        ] {
            assert!(!is_own_name(host, "office", &allowed), "{host}");
        }
    }

    #[test]
    fn requests_of_other_sites_are_detected_by_origin_or_fetch_metadata() {
        let headers = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
            pairs
                .iter()
                .map(|(name, value)| ((*name).parse().unwrap(), HeaderValue::from_static(value)))
                .collect()
        };
        let host = Some("127.0.0.1:1");
        assert!(!is_from_other_site(&headers(&[]), host));
        assert!(!is_from_other_site(&headers(&[("origin", "http://127.0.0.1:1")]), host));
        assert!(!is_from_other_site(&headers(&[("sec-fetch-site", "same-origin")]), host));
        for bad in [
            ("origin", "http://evil.example"),
            ("origin", "http://127.0.0.1:2"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert!(is_from_other_site(&headers(&[bad]), host), "{bad:?}");
        }
    }

    #[test]
    fn a_plain_http_page_is_a_foreign_origin_for_a_station_with_tls() {
        let other = |origin: &'static str, host: &'static str, encryption, allowed: &[String]| {
            let request = Request::builder().uri("/v1/echo").header("origin", origin).header("host", host);
            is_from_other_origin(&request.body(Body::empty()).unwrap(), encryption, allowed)
        };
        let host = "a.example:10132";
        assert!(!other("https://a.example:10132", host, Encryption::Tls, &[]));
        assert!(other("http://a.example:10132", host, Encryption::Tls, &[]));
        assert!(!other("http://a.example:10132", host, Encryption::Tls, &["http://a.example:10132".into()]));
        assert!(!other("http://a.example:10132", host, Encryption::Plain, &[]));
        assert!(!other("https://a.example:10132", host, Encryption::Plain, &[]), "behind a proxy");
        // An IPv6 address contains colons.
        let v6 = "[::1]:10132";
        assert!(!other("http://[::1]:10132", v6, Encryption::Plain, &[]));
        assert!(other("http://[::1]:10133", v6, Encryption::Plain, &[]));
        assert!(other("http://[::2]:10132", v6, Encryption::Plain, &[]));
    }

    #[test]
    fn a_proxy_does_not_make_a_caller_local() {
        let at = |text: &str| RemoteEnd {
            address: text.parse().unwrap(),
            local_ip: "192.0.2.7".parse().unwrap(),
            encryption: Encryption::Plain,
        };
        let config = Config::default();
        let none = HeaderMap::new();
        let local = |text: &str| at(text).is_local(Version::HTTP_11, &none, &config);
        assert!(local("127.0.0.1:1") && local("[::1]:1") && local("[::ffff:127.0.0.1]:1"));
        assert!(local("192.0.2.7:1"), "the address it came to is this host's own");
        assert!(!local("192.0.2.1:1"));
        let here = at("127.0.0.1:1");
        assert!(!here.is_local(Version::HTTP_10, &none, &config), "what proxies speak by default");
        for name in ["x-forwarded-for", "x-forwarded-proto", "forwarded", "via", "x-real-ip"] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static("192.0.2.1"));
            assert!(!here.is_local(Version::HTTP_11, &headers, &config), "{name}");
        }
        let behind_a_proxy = Config { loopback_needs_token: true, ..Config::default() };
        assert!(!here.is_local(Version::HTTP_11, &none, &behind_a_proxy));
    }
}
