//! Requests to one station: bounded in time and bytes, on a few kept connections.

use std::error::Error as StdError;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::RemoteConfig;
use crate::Error;
use crate::wire::{self, Lines};

/// Asks one station.
pub(super) struct Client {
    http: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    scheme: Scheme,
    authority: Authority,
    /// What stands before every path, without its last `/`.
    prefix: String,
    authorization: Option<HeaderValue>,
    deadline: Duration,
}

/// A request.
pub(super) struct Ask<'a> {
    pub(super) method: Method,
    /// Below `/v1/engine/`, with its query.
    pub(super) path: &'a str,
    pub(super) body: Bytes,
    /// Empty = there is no body.
    pub(super) content_type: &'static str,
}

/// The head of a good answer has come.
pub(super) struct Answer(Incoming);

/// Why there is no good answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// There is no connection: nothing was sent.
    Unreached(String),
    /// The request may have arrived.
    Lost(String),
    /// The station's own words.
    Refused { status: StatusCode, error: Option<Error> },
    /// The station's pace: again after this time.
    Paced { why: String, wait: Duration },
}

/// What is read of the answer to an append; a host of an earlier version says nothing of a wait.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Appended {
    wait_s: f64,
}

impl Client {
    pub(super) fn new(config: &RemoteConfig) -> Result<Self, Error> {
        let (scheme, authority, prefix) = base(&config.url)?;
        let authorization = config.token.as_deref().map(bearer).transpose()?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT.min(config.deadline)));
        let tls = tls(&scheme, config.ca.as_deref())?;
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .http1_max_headers(HEADERS_MAX)
            .build(connector);
        Ok(Self { http, scheme, authority, prefix, authorization, deadline: config.deadline })
    }

    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Appends lines; repeats a request that was lost, which stores nothing twice. Gives how long the
    /// station wants to be left in peace then.
    pub(super) async fn append(&self, body: Bytes) -> Result<Duration, Error> {
        let seconds = u32::try_from(body.len() / BYTES_PER_S).expect("a body has some megabytes");
        let until = Instant::now() + self.deadline + seconds * Duration::from_secs(1);
        let ask = Ask { method: Method::POST, path: "records", body, content_type: "application/x-ndjson" };
        let answer = self.ask(&ask, until).await.map_err(Trouble::of_append)?;
        // The head says that it is stored, whatever follows.
        let Appended { wait_s } = answer.json(until).await.unwrap_or_default();
        Ok(Duration::try_from_secs_f64(wait_s).unwrap_or_default().min(PACE_MAX))
    }

    /// Asks; a request that was lost, as when the station has just closed a kept connection, is asked once
    /// more: every request of this protocol may be repeated.
    ///
    /// The answer's head has come by `until`.
    pub(super) async fn ask(&self, ask: &Ask<'_>, until: Instant) -> Result<Answer, Trouble> {
        match self.ask_once(ask, until).await {
            Err(Trouble::Lost(why)) if Instant::now() < until => match self.ask_once(ask, until).await {
                // The first one may have arrived.
                Err(Trouble::Unreached(_)) => Err(Trouble::Lost(why)),
                second => second,
            },
            first => first,
        }
    }

    async fn ask_once(&self, ask: &Ask<'_>, until: Instant) -> Result<Answer, Trouble> {
        let request = self.request(ask).map_err(Trouble::Unreached)?;
        let response = match timeout_at(until, self.http.request(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) if error.is_connect() => return Err(Trouble::Unreached(self.sentence(&error))),
            Ok(Err(error)) => return Err(Trouble::Lost(self.sentence(&error))),
            Err(_) => return Err(Trouble::Lost(format!("{} does not answer in time", self.authority))),
        };
        let status = response.status();
        let wait = pace(response.headers());
        let answer = Answer(response.into_body());
        if status.is_success() {
            return Ok(answer);
        }
        let error = match answer.whole(until).await {
            Ok(text) => wire::read_error(&text).map(Error::of_another_archive),
            Err(_) => None,
        };
        if status == StatusCode::TOO_MANY_REQUESTS {
            let why = match error {
                Some(Error::Unavailable(why)) => why,
                _ => format!("the answer is {status}"),
            };
            return Err(Trouble::Paced { why, wait });
        }
        Err(Trouble::Refused { status, error })
    }

    fn request(&self, ask: &Ask<'_>) -> Result<Request<Full<Bytes>>, String> {
        let path = format!("{}/v1/engine/{}", self.prefix, ask.path);
        let uri = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        let uri = uri.path_and_query(path).build().map_err(|error| error.to_string())?;
        let mut request = Request::builder().method(ask.method.clone()).uri(uri);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let (header, events) = wire::EVENTS;
        request = request.header(header, events);
        if !ask.content_type.is_empty() {
            request = request.header(CONTENT_TYPE, ask.content_type);
        }
        request.body(Full::new(ask.body.clone())).map_err(|error| error.to_string())
    }

    /// An error with what caused it, in one sentence.
    fn sentence(&self, error: &legacy::Error) -> String {
        let mut sentence = self.authority.to_string();
        let mut cause: Option<&dyn StdError> = Some(error);
        while let Some(error) = cause {
            sentence += &format!(": {error}");
            cause = error.source();
        }
        if sentence.ends_with(NO_TLS) {
            return format!("{} does not speak HTTPS there; was http:// meant?", self.authority);
        }
        sentence
    }
}

impl Answer {
    /// The answer as lines of at most `bytes_max` bytes each.
    pub(super) fn lines(self, bytes_max: usize) -> Body {
        Body { incoming: self.0, lines: Lines::new(bytes_max) }
    }

    /// A small answer as JSON.
    pub(super) async fn json<T: DeserializeOwned>(self, until: Instant) -> Result<T, Trouble> {
        let text = self.whole(until).await.map_err(Trouble::Lost)?;
        serde_json::from_slice(&text)
            .map_err(|error| Trouble::Lost(format!("the answer is garbage: {error}")))
    }

    /// A small answer.
    async fn whole(mut self, until: Instant) -> Result<Vec<u8>, String> {
        let mut text = Vec::new();
        while let Some(bytes) = next_bytes(&mut self.0, until).await? {
            if wire::ERROR_BYTES_MAX < text.len() + bytes.len() {
                return Err("the answer is too long".into());
            }
            text.extend_from_slice(&bytes);
        }
        Ok(text)
    }
}

/// An answer that comes in lines.
pub(super) struct Body {
    incoming: Incoming,
    lines: Lines,
}

impl Body {
    /// The next line; `None` = the answer has ended.
    pub(super) async fn next(&mut self, until: Instant) -> Result<Option<Vec<u8>>, Error> {
        loop {
            if let Some(line) = self.lines.next_line() {
                return Ok(Some(line));
            }
            match next_bytes(&mut self.incoming, until).await.map_err(Error::Unavailable)? {
                Some(bytes) => self.lines.push(&bytes).map_err(|error| garbage(&error.to_string()))?,
                None => return Ok(None),
            }
        }
    }

    /// The next line, if no more than `silence` goes by without a byte.
    pub(super) async fn next_within(&mut self, silence: Duration) -> Result<Option<Vec<u8>>, Error> {
        self.next(Instant::now() + silence).await
    }
}

impl Trouble {
    /// What it means where nothing is stored.
    pub(super) fn of_read(self) -> Error {
        match self {
            Self::Unreached(why) | Self::Lost(why) => Error::Unavailable(why),
            Self::Refused { status, error } => {
                error.unwrap_or_else(|| unexplained(status, Error::Unavailable))
            }
            Self::Paced { why, wait } => Error::Throttled { why, wait },
        }
    }

    /// What it means where something may have been stored.
    pub(super) fn of_append(self) -> Error {
        match self {
            Self::Unreached(why) => Error::Unavailable(why),
            Self::Lost(why) => Error::Unknown(why),
            Self::Refused { status, error } => error.unwrap_or_else(|| unexplained(status, Error::Unknown)),
            Self::Paced { why, wait } => Error::Throttled { why, wait },
        }
    }
}

/// A refusal without a kind that is known: of what stands before the engine, or of something else altogether.
fn unexplained(status: StatusCode, other: fn(String) -> Error) -> Error {
    let why = format!("the answer is {status}");
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST => {
            Error::Denied(why)
        }
        // What is too large for a proxy passes in parts.
        StatusCode::PAYLOAD_TOO_LARGE => Error::Invalid(why),
        // A proxy whose configuration is wrong says nothing of the records.
        _ if status.is_client_error() => Error::Unavailable(why),
        _ => other(why),
    }
}

/// When to ask again (RFC 9110 §10.2.3, in seconds; a date is not worth reading a clock for).
fn pace(headers: &HeaderMap) -> Duration {
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    seconds.map_or(PACE, Duration::from_secs).min(PACE_MAX)
}

/// An answer that breaks the protocol.
pub(super) fn garbage(why: &str) -> Error {
    Error::Unavailable(format!("the answer is garbage: {why}"))
}

async fn next_bytes(incoming: &mut Incoming, until: Instant) -> Result<Option<Bytes>, String> {
    loop {
        let frame = timeout_at(until, incoming.frame()).await.map_err(|_| "no byte in time".to_string())?;
        match frame {
            None => return Ok(None),
            Some(Err(error)) => return Err(format!("the answer was cut short: {error}")),
            // Trailers say nothing.
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    return Ok(Some(bytes));
                }
            }
        }
    }
}

fn base(url: &str) -> Result<(Scheme, Authority, String), Error> {
    let invalid = |why: &str| Error::Invalid(format!("`{url}`: {why}"));
    let uri: Uri = url.parse().map_err(|_| invalid("expected http://host:port/ or https://host:port/"))?;
    let parts = uri.into_parts();
    let scheme = parts.scheme.filter(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS);
    let scheme = scheme.ok_or_else(|| invalid("expected http:// or https://"))?;
    let authority = parts.authority.ok_or_else(|| invalid("there is no host"))?;
    if authority.host().is_empty() || authority.as_str().contains('@') {
        return Err(invalid("expected a host, and no user"));
    }
    let path = parts.path_and_query.filter(|path| path.query().is_none());
    let path = path.ok_or_else(|| invalid("expected no query"))?;
    Ok((scheme, authority, path.path().trim_end_matches('/').to_string()))
}

fn bearer(token: &str) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| Error::Invalid("the token has characters that no token has".into()))?;
    value.set_sensitive(true);
    Ok(value)
}

fn tls(scheme: &Scheme, ca: Option<&std::path::Path>) -> Result<rustls::ClientConfig, Error> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Invalid(format!("no TLS: {error}")))?;
    if *scheme == Scheme::HTTP {
        // A host without any certificates can still ask plainly.
        return Ok(config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth());
    }
    let Some(file) = ca else {
        use hyper_rustls::ConfigBuilderExt as _;
        return match config.with_native_roots() {
            Ok(config) => Ok(config.with_no_client_auth()),
            Err(error) => Err(Error::Invalid(format!("the system's certificates: {error}"))),
        };
    };
    let unusable = |error: &dyn std::fmt::Display| Error::Invalid(format!("{}: {error}", file.display()));
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unusable(&error))? {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    if roots.is_empty() {
        return Err(unusable(&"there is no certificate in it"));
    }
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// `text` as part of a query (RFC 3986 §2.3: everything but unreserved characters is escaped).
pub(super) fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// What rustls says of a first answer that is no TLS.
const NO_TLS: &str = "InvalidContentType";

/// A host that does not take a connection for so long is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Shorter than a station keeps an idle connection (20 s), so that it does not close one that is about to be used.
const IDLE: Duration = Duration::from_secs(10);

/// A station asks one thing after the other, but for its lease.
const IDLE_CONNECTIONS: usize = 2;

/// A station sends about 1 KiB of head.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 64;

/// The wait after a 429 that names none.
const PACE: Duration = Duration::from_secs(5);

/// Whatever a station says: its budgets refill a batch within a minute, and nobody is to be put off for days.
const PACE_MAX: Duration = Duration::from_mins(5);

/// The slowest way that an append still gets through.
const BYTES_PER_S: usize = 128 << 10;
