//! Requests to one station: bounded in time and bytes, on a few kept connections.

use std::time::Duration;

use barograph_api::EngineAppended;
use barograph_api::client::{self, Ask, Cause, ClientConfig, Tls, Trust};
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Method, StatusCode};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::RemoteConfig;
use crate::Error;
use crate::wire::{self, Lines};

/// Asks one station.
pub(super) struct Client {
    http: client::Client,
    deadline: Duration,
}

/// The head of a good answer has come.
pub(super) struct Answer(client::Answer);

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

impl Client {
    pub(super) fn new(config: &RemoteConfig) -> Result<Self, Error> {
        let is_https = config.url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"));
        let trust = match &config.ca {
            // A host without any certificates can still ask plainly.
            _ if !is_https => Trust::Nothing,
            Some(file) => Trust::Only(file.clone()),
            None => Trust::System,
        };
        let tls = Tls::new(&trust).map_err(Error::Invalid)?;
        let http = client::Client::new(ClientConfig {
            token: config.token.clone(),
            idle_connections: IDLE_CONNECTIONS,
            connect_timeout: CONNECT_TIMEOUT.min(config.deadline),
            ..ClientConfig::new(&config.url, tls)
        });
        Ok(Self { http: http.map_err(Error::Invalid)?, deadline: config.deadline })
    }

    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Appends lines; repeats a request that was lost, which stores nothing twice. Gives how long the
    /// station wants to be left in peace then.
    pub(super) async fn append(&self, body: Bytes) -> Result<Duration, Error> {
        let seconds = u32::try_from(body.len() / BYTES_PER_S).expect("a body has some megabytes");
        let until = Instant::now() + self.deadline + seconds * Duration::from_secs(1);
        let content_type = "application/x-ndjson";
        let ask = Ask { method: Method::POST, path: "records", content_type, body, ..Ask::default() };
        let answer = self.ask(&ask, until).await.map_err(Trouble::of_append)?;
        // The head says that it is stored, whatever follows.
        let EngineAppended { wait_s, .. } = answer.json(until).await.unwrap_or_default();
        Ok(Duration::try_from_secs_f64(wait_s).unwrap_or_default().min(PACE_MAX))
    }

    /// Asks for a path below `/v1/engine/`; a request that was lost, as when the station has just closed a kept connection, is asked once
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
        let path = format!("/v1/engine/{}", ask.path);
        let request = Ask { path: &path, headers: &[wire::EVENTS], ..ask.clone() };
        let answer = match self.http.ask(&request, until).await {
            Ok(answer) => answer,
            Err(client::Trouble::Unreached(cause)) => return Err(Trouble::Unreached(self.sentence(&cause))),
            Err(client::Trouble::Lost(cause)) => return Err(Trouble::Lost(self.sentence(&cause))),
            Err(client::Trouble::Late) => {
                return Err(Trouble::Lost(format!("{} does not answer in time", self.http.authority())));
            }
        };
        let (status, wait) = (answer.status, pace(&answer.headers));
        let answer = Answer(answer);
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

    /// An error with what caused it, in one sentence.
    fn sentence(&self, cause: &Cause) -> String {
        match cause.is_plain() {
            true => format!("{} does not speak HTTPS there; was http:// meant?", self.http.authority()),
            false => format!("{}: {cause}", self.http.authority()),
        }
    }
}

impl Answer {
    /// The answer as lines of at most `bytes_max` bytes each.
    pub(super) fn lines(self, bytes_max: usize) -> Body {
        Body { answer: self.0, lines: Lines::new(bytes_max) }
    }

    /// A small answer as JSON.
    pub(super) async fn json<T: DeserializeOwned>(self, until: Instant) -> Result<T, Trouble> {
        let text = self.whole(until).await.map_err(Trouble::Lost)?;
        serde_json::from_slice(&text)
            .map_err(|error| Trouble::Lost(format!("the answer is garbage: {error}")))
    }

    /// A small answer.
    async fn whole(self, until: Instant) -> Result<Vec<u8>, String> {
        self.0.whole(wire::ERROR_BYTES_MAX, until).await.map_err(cut_short)
    }
}

/// What ended the body of an answer.
fn cut_short(trouble: client::Trouble) -> String {
    match trouble {
        client::Trouble::Late => "no byte in time".into(),
        client::Trouble::Lost(cause) | client::Trouble::Unreached(cause) => {
            format!("the answer was cut short: {}", cause.chain)
        }
    }
}

/// An answer that comes in lines.
pub(super) struct Body {
    answer: client::Answer,
    lines: Lines,
}

impl Body {
    /// The next line; `None` = the answer has ended.
    pub(super) async fn next(&mut self, until: Instant) -> Result<Option<Vec<u8>>, Error> {
        loop {
            if let Some(line) = self.lines.next_line() {
                return Ok(Some(line));
            }
            match self.answer.next(until).await.map_err(|trouble| Error::Unavailable(cut_short(trouble)))? {
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

/// `text` as part of a query (RFC 3986 §2.3: everything but unreserved characters is escaped).
pub(super) fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// A host that does not take a connection for so long is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A station asks one thing after the other, but for its lease.
const IDLE_CONNECTIONS: usize = 2;

/// The wait after a 429 that names none.
const PACE: Duration = Duration::from_secs(5);

/// Whatever a station says: its budgets refill a batch within a minute, and nobody is to be put off for days.
const PACE_MAX: Duration = Duration::from_mins(5);

/// The slowest way that an append still gets through.
const BYTES_PER_S: usize = 128 << 10;
