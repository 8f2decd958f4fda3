//! An HTTP client: [`Client`] for asynchronous callers, [`BlockingClient`] for others.
//!
//! Each request has a deadline, and each response has a maximum size. Redirects are not followed. A
//! request is sent once, unless the caller sends it again. The client speaks HTTP/1.1, with or
//! without TLS.

mod blocking;
mod tls;

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderValue, Request, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{Instant, timeout_at};

pub use blocking::{BlockingClient, FollowEnd};
pub use http::{Method, StatusCode};
pub use tls::{RootCertificates, TrustStore};

/// Sends requests to one server.
pub struct Client {
    http: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    scheme: Scheme,
    authority: Authority,
    /// Prefix of every request's path, without its last `/`.
    prefix: String,
    authorization: Option<HeaderValue>,
}

/// Configuration of a client for one server.
#[derive(Clone)]
pub struct ClientConfig {
    /// `http://host:port/` or `https://host:port/`, without query.
    pub url: String,
    /// API token that each request carries; `None` = no token.
    pub token: Option<String>,
    /// Certificates that are trusted.
    pub tls: TrustStore,
    /// Number of idle connections that are kept for 10 s; 0 = a new connection for each request.
    pub idle_connections: usize,
    /// Maximum time to open a connection. Default 5 s.
    pub connect_timeout: Duration,
    /// Maximum number of bytes in a response's head, at least 8 KiB. Default 64 KiB; a station
    /// sends about 1 KiB.
    pub head_bytes_max: usize,
}

/// A request to the server of a [`Client`].
#[derive(Clone, Debug, Default)]
pub struct ApiRequest<'a> {
    /// HTTP method, by default `GET`.
    pub method: Method,
    /// Path with its query.
    pub path: &'a str,
    /// Headers in addition to `Authorization` and `Content-Type`; the client writes these two
    /// headers.
    pub headers: &'a [(&'static str, &'a str)],
    /// `Content-Type` of the body; empty = no such header.
    pub content_type: &'static str,
    /// Bytes sent after the head; may be empty.
    pub body: Bytes,
}

/// A response; its head has arrived, and its body can be read.
#[derive(Debug)]
pub struct ApiResponse {
    /// HTTP status code of the response.
    pub status: StatusCode,
    /// All headers of the response.
    pub headers: HeaderMap,
    body: Incoming,
}

/// Why a request has no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientError {
    /// No connection was opened: nothing was sent.
    NotSent(ErrorChain),
    /// The connection failed after the request was sent, so the server may have received the
    /// request.
    Interrupted(ErrorChain),
    /// The deadline passed; the server may have received the request.
    TimedOut,
}

/// The error, as text for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorChain {
    /// The error and all its causes in order, separated by `: `.
    pub chain: String,
    /// The last cause of the chain.
    pub root: String,
}

impl ErrorChain {
    fn of(error: &dyn StdError) -> Self {
        let (mut chain, mut root) = (error.to_string(), error.to_string());
        let mut cause = error.source();
        while let Some(error) = cause {
            root = error.to_string();
            chain += &format!(": {root}");
            cause = error.source();
        }
        Self { chain, root }
    }

    /// Whether the server answered the TLS handshake with data that is not TLS.
    pub fn is_plaintext_response(&self) -> bool {
        self.root.ends_with(NO_TLS)
    }
}

impl From<&str> for ErrorChain {
    fn from(sentence: &str) -> Self {
        Self { chain: sentence.into(), root: sentence.into() }
    }
}

impl fmt::Display for ErrorChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.chain)
    }
}

impl ClientConfig {
    /// Returns a configuration without a token, and with a new connection for each request.
    pub fn new(url: impl Into<String>, tls: TrustStore) -> Self {
        Self {
            url: url.into(),
            token: None,
            tls,
            idle_connections: 0,
            connect_timeout: CONNECT_TIMEOUT,
            head_bytes_max: HEAD_BYTES_MAX,
        }
    }
}

impl Client {
    /// Creates a client; it does not connect yet.
    ///
    /// # Errors
    /// A sentence about the URL, the token or the certificates.
    pub fn new(config: ClientConfig) -> Result<Self, String> {
        let (scheme, authority, prefix) = base(&config.url)?;
        if scheme == Scheme::HTTPS && config.tls.is_empty {
            return Err("the system has no usable certificates, so no https server is trusted; install ca-certificates, or \
                        name a certificate file"
                .into());
        }
        let authorization = config.token.as_deref().map(bearer).transpose()?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(config.connect_timeout));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config.tls.config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(config.idle_connections)
            .http1_max_buf_size(config.head_bytes_max)
            .http1_max_headers(HEADERS_MAX)
            .build(connector);
        Ok(Self { http, scheme, authority, prefix, authorization })
    }

    /// Host and port of the server.
    pub fn authority(&self) -> &str {
        self.authority.as_str()
    }

    /// Sends a request once, and waits for the head of the response.
    ///
    /// # Errors
    /// [`ClientError`] if the request fails; the call returns at `until` at the latest.
    pub async fn send(&self, request: &ApiRequest<'_>, until: Instant) -> Result<ApiResponse, ClientError> {
        let request =
            self.http_request(request).map_err(|error| ClientError::NotSent(ErrorChain::of(&error)))?;
        match timeout_at(until, self.http.request(request)).await {
            Ok(Ok(response)) => {
                let (head, body) = response.into_parts();
                Ok(ApiResponse { status: head.status, headers: head.headers, body })
            }
            Ok(Err(error)) if error.is_connect() => Err(ClientError::NotSent(ErrorChain::of(&error))),
            Ok(Err(error)) => Err(ClientError::Interrupted(ErrorChain::of(&error))),
            Err(_) => Err(ClientError::TimedOut),
        }
    }

    fn http_request(&self, request: &ApiRequest<'_>) -> http::Result<Request<Full<Bytes>>> {
        let uri = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        let uri = uri.path_and_query(format!("{}{}", self.prefix, request.path)).build()?;
        let mut built = Request::builder().method(request.method.clone()).uri(uri);
        if let Some(authorization) = &self.authorization {
            built = built.header(AUTHORIZATION, authorization.clone());
        }
        for (name, value) in request.headers {
            built = built.header(*name, *value);
        }
        if !request.content_type.is_empty() {
            built = built.header(CONTENT_TYPE, request.content_type);
        }
        built.body(Full::new(request.body.clone()))
    }
}

impl ApiResponse {
    /// The next bytes of the body; `None` = the body has ended.
    ///
    /// # Errors
    /// [`ClientError::Interrupted`] if the body is cut short, [`ClientError::TimedOut`] if no bytes
    /// arrive by `until`.
    pub async fn next_chunk(&mut self, until: Instant) -> Result<Option<Bytes>, ClientError> {
        loop {
            let frame = timeout_at(until, self.body.frame()).await.map_err(|_| ClientError::TimedOut)?;
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(ClientError::Interrupted(ErrorChain::of(&error))),
                // Trailers are ignored.
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }

    /// The whole body, `bytes_max` bytes at most.
    ///
    /// # Errors
    /// The errors of [`next_chunk`](Self::next_chunk), and [`ClientError::Interrupted`] if the body
    /// has more than
    /// `bytes_max` bytes.
    pub async fn body(mut self, bytes_max: usize, until: Instant) -> Result<Vec<u8>, ClientError> {
        let mut text = Vec::new();
        while let Some(bytes) = self.next_chunk(until).await? {
            if text.len() + bytes.len() > bytes_max {
                return Err(ClientError::Interrupted(
                    "the response is longer than the client accepts".into(),
                ));
            }
            text.extend_from_slice(&bytes);
        }
        Ok(text)
    }
}

fn base(url: &str) -> Result<(Scheme, Authority, String), String> {
    let invalid = |why: &str| format!("`{url}`: {why}");
    let uri: Uri = url.parse().map_err(|_| invalid("expected http://host:port/ or https://host:port/"))?;
    let parts = uri.into_parts();
    let scheme = parts.scheme.filter(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS);
    let scheme = scheme.ok_or_else(|| invalid("expected http:// or https://"))?;
    let authority = parts.authority.ok_or_else(|| invalid("expected a host after http:// or https://"))?;
    if authority.host().is_empty() || authority.as_str().contains('@') {
        return Err(invalid("expected a host without a user name"));
    }
    let path = parts.path_and_query.filter(|path| path.query().is_none());
    let path = path.ok_or_else(|| invalid("expected a URL without a query"))?;
    Ok((scheme, authority, path.path().trim_end_matches('/').to_string()))
}

fn bearer(token: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
        "the token has characters that an HTTP header cannot carry; copy it again".to_string()
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// The error of rustls if the first bytes from the server are not TLS.
const NO_TLS: &str = "InvalidContentType";

/// Default maximum time to open a connection. A host that does not accept a connection within this
/// time counts as unreachable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for which the client keeps an idle connection. A station keeps an idle connection for 20 s,
/// so the station does not close a connection that the client is about to use.
const IDLE: Duration = Duration::from_secs(10);

const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 64;
