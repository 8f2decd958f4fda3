//! Sends requests to one station, over a few connections that are kept. Each request is limited in
//! time and bytes.

use std::time::Duration;

use barograph_api::EngineAppended;
use barograph_api::client::{self, ApiRequest, ClientConfig, ErrorChain, RootCertificates, TrustStore};
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Method, StatusCode};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::RemoteConfig;
use crate::EngineError;
use crate::wire::{self, LineAssembler};

pub(super) struct Client {
    http: client::Client,
    deadline: Duration,
}

/// A successful response of which the head has arrived.
pub(super) struct Answer(client::ApiResponse);

/// Reason why there is no successful response.
#[derive(Debug)]
pub(super) enum HttpRequestError {
    /// There is no connection, so nothing was sent.
    Unreached(String),
    /// The request may have arrived.
    Lost(String),
    /// The station refused the request, with an error in the response if the station sent an error.
    Refused { status: StatusCode, error: Option<EngineError> },
    /// The station limits the rate: retry after this time.
    Throttled { reason: String, wait: Duration },
}

impl Client {
    pub(super) fn new(config: &RemoteConfig) -> Result<Self, EngineError> {
        let is_https = config.url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"));
        let trust = match &config.ca {
            // A host without any certificates can still use HTTP.
            _ if !is_https => RootCertificates::Nothing,
            Some(file) => RootCertificates::Only(file.clone()),
            None => RootCertificates::System,
        };
        let tls = TrustStore::new(&trust).map_err(EngineError::Invalid)?;
        let http = client::Client::new(ClientConfig {
            token: config.token.clone(),
            idle_connections: IDLE_CONNECTIONS,
            connect_timeout: CONNECT_TIMEOUT.min(config.deadline),
            ..ClientConfig::new(&config.url, tls)
        });
        Ok(Self { http: http.map_err(EngineError::Invalid)?, deadline: config.deadline })
    }

    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Appends lines. A lost request is repeated; no record is stored twice. Returns the wait that
    /// the station requires before the next append.
    pub(super) async fn append(&self, body: Bytes) -> Result<Duration, EngineError> {
        let seconds = u32::try_from(body.len() / BYTES_PER_S).expect("a body has some megabytes");
        let until = Instant::now() + self.deadline + seconds * Duration::from_secs(1);
        let content_type = "application/x-ndjson";
        let request =
            ApiRequest { method: Method::POST, path: "records", content_type, body, ..ApiRequest::default() };
        let answer = self.request(&request, until).await.map_err(HttpRequestError::of_append)?;
        // The head of the response confirms that the records are stored, so an unreadable body is
        // ignored.
        let EngineAppended { wait_s, .. } = answer.json(until).await.unwrap_or_default();
        Ok(Duration::try_from_secs_f64(wait_s).unwrap_or_default().min(WAIT_MAX))
    }

    /// Sends a request for a path below `/v1/engine/`. A lost request is repeated once, for example
    /// if the station has just closed a kept connection: every request of this protocol may be
    /// repeated.
    ///
    /// Waits for the head of the response until `until`, at the latest.
    pub(super) async fn request(
        &self,
        request: &ApiRequest<'_>,
        until: Instant,
    ) -> Result<Answer, HttpRequestError> {
        match self.request_once(request, until).await {
            Err(HttpRequestError::Lost(why)) if Instant::now() < until => {
                match self.request_once(request, until).await {
                    // If only the second attempt failed to connect, the station may still have
                    // received the first request.
                    Err(HttpRequestError::Unreached(_)) => Err(HttpRequestError::Lost(why)),
                    second => second,
                }
            }
            first => first,
        }
    }

    async fn request_once(
        &self,
        request: &ApiRequest<'_>,
        until: Instant,
    ) -> Result<Answer, HttpRequestError> {
        let path = format!("/v1/engine/{}", request.path);
        let request = ApiRequest { path: &path, headers: &[wire::REMOVED_EVENTS_HEADER], ..request.clone() };
        let answer = match self.http.send(&request, until).await {
            Ok(answer) => answer,
            Err(client::ClientError::NotSent(cause)) => {
                return Err(HttpRequestError::Unreached(self.sentence(&cause)));
            }
            Err(client::ClientError::Interrupted(cause)) => {
                return Err(HttpRequestError::Lost(self.sentence(&cause)));
            }
            Err(client::ClientError::TimedOut) => {
                return Err(HttpRequestError::Lost(format!(
                    "{} does not respond before the deadline",
                    self.http.authority()
                )));
            }
        };
        let (status, wait) = (answer.status, retry_after(&answer.headers));
        let answer = Answer(answer);
        if status.is_success() {
            return Ok(answer);
        }
        let error = match answer.whole(until).await {
            Ok(text) => wire::read_error(&text).map(EngineError::of_another_archive),
            Err(_) => None,
        };
        if status == StatusCode::TOO_MANY_REQUESTS {
            let reason = match error {
                Some(EngineError::Unavailable(reason)) => reason,
                _ => format!("the response is {status}"),
            };
            return Err(HttpRequestError::Throttled { reason, wait });
        }
        Err(HttpRequestError::Refused { status, error })
    }

    /// Describes the cause of an error in one sentence, with the address of the station.
    fn sentence(&self, cause: &ErrorChain) -> String {
        match cause.is_plaintext_response() {
            true => format!("{} does not use HTTPS on this port; try http://", self.http.authority()),
            false => format!("{}: {cause}", self.http.authority()),
        }
    }
}

impl Answer {
    /// The response as lines of at most `bytes_max` bytes each.
    pub(super) fn lines(self, bytes_max: usize) -> Body {
        Body { answer: self.0, lines: LineAssembler::new(bytes_max) }
    }

    /// Parses a small response as JSON.
    pub(super) async fn json<T: DeserializeOwned>(self, until: Instant) -> Result<T, HttpRequestError> {
        let text = self.whole(until).await.map_err(HttpRequestError::Lost)?;
        serde_json::from_slice(&text)
            .map_err(|error| HttpRequestError::Lost(format!("invalid response: {error}")))
    }

    async fn whole(self, until: Instant) -> Result<Vec<u8>, String> {
        self.0.body(wire::ERROR_BYTES_MAX, until).await.map_err(cut_short)
    }
}

/// Reason for the end of a response's body.
fn cut_short(trouble: client::ClientError) -> String {
    match trouble {
        client::ClientError::TimedOut => "no byte before the deadline".into(),
        client::ClientError::Interrupted(cause) | client::ClientError::NotSent(cause) => {
            format!("the response was cut off: {}", cause.chain)
        }
    }
}

/// A response in lines.
pub(super) struct Body {
    answer: client::ApiResponse,
    lines: LineAssembler,
}

impl Body {
    /// Reads the next line; `None` at the end of the response.
    pub(super) async fn next(&mut self, until: Instant) -> Result<Option<Vec<u8>>, EngineError> {
        loop {
            if let Some(line) = self.lines.next_line() {
                return Ok(Some(line));
            }
            match self
                .answer
                .next_chunk(until)
                .await
                .map_err(|trouble| EngineError::Unavailable(cut_short(trouble)))?
            {
                Some(bytes) => {
                    self.lines.push(&bytes).map_err(|error| invalid_response(&error.to_string()))?
                }
                None => return Ok(None),
            }
        }
    }

    /// Reads the next line, if each byte arrives within `silence`.
    pub(super) async fn next_within(&mut self, silence: Duration) -> Result<Option<Vec<u8>>, EngineError> {
        self.next(Instant::now() + silence).await
    }
}

impl HttpRequestError {
    /// Error of a request that stores nothing.
    pub(super) fn of_read(self) -> EngineError {
        match self {
            Self::Unreached(why) | Self::Lost(why) => EngineError::Unavailable(why),
            Self::Refused { status, error } => {
                error.unwrap_or_else(|| unexplained(status, EngineError::Unavailable))
            }
            Self::Throttled { reason, wait } => EngineError::Throttled { reason, wait },
        }
    }

    /// Error of a request that may have stored something.
    pub(super) fn of_append(self) -> EngineError {
        match self {
            Self::Unreached(why) => EngineError::Unavailable(why),
            Self::Lost(why) => EngineError::Unknown(why),
            Self::Refused { status, error } => {
                error.unwrap_or_else(|| unexplained(status, EngineError::Unknown))
            }
            Self::Throttled { reason, wait } => EngineError::Throttled { reason, wait },
        }
    }
}

/// Error of a response without a known kind: a proxy in front of the station, or a different
/// server, sent the response.
fn unexplained(status: StatusCode, other: fn(String) -> EngineError) -> EngineError {
    let why = format!("the response is {status}");
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST => {
            EngineError::Denied(why)
        }
        // A request that is too large for a proxy can be sent in parts.
        StatusCode::PAYLOAD_TOO_LARGE => EngineError::Invalid(why),
        // The cause is probably a misconfigured proxy, so the records are not refused.
        _ if status.is_client_error() => EngineError::Unavailable(why),
        _ => other(why),
    }
}

/// Returns the time after which to retry (RFC 9110 §10.2.3, in seconds; dates are ignored, because
/// they would need a clock).
fn retry_after(headers: &HeaderMap) -> Duration {
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    seconds.map_or(WAIT_DEFAULT, Duration::from_secs).min(WAIT_MAX)
}

/// Error of a response that breaks the protocol.
pub(super) fn invalid_response(why: &str) -> EngineError {
    EngineError::Unavailable(format!("invalid response: {why}"))
}

/// Escapes `text` for a query: everything but unreserved characters (RFC 3986 §2.3).
pub(super) fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// Time after which a host that accepted no connection counts as unreachable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of idle connections that are kept. A station sends one request after the other; only the
/// requests of its lease are concurrent.
const IDLE_CONNECTIONS: usize = 2;

/// Wait after a 429 without `Retry-After`.
const WAIT_DEFAULT: Duration = Duration::from_secs(5);

/// Longest wait that a station can impose. Within a minute, the budgets of a station refill enough
/// for one batch.
const WAIT_MAX: Duration = Duration::from_mins(5);

/// Lowest rate, in bytes per second, at which an append still succeeds.
const BYTES_PER_S: usize = 128 << 10;
