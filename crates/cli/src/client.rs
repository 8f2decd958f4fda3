//! Requests to a running station, each on a connection of its own, and errors as sentences.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use barograph_api::ErrorBody;
use barograph_api::client::{
    ApiRequest, BlockingClient, ClientConfig, FollowEnd, Method, RootCertificates, StatusCode, TrustStore,
};
use barograph_probe::Target;
use barograph_probe::target::Scheme;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::exit::Failure;

/// Options that select a running station.
#[derive(clap::Args)]
pub(crate) struct StationArgs {
    /// URL of the station [default: the URL in the state directory, else http://127.0.0.1:10132/]
    #[arg(long, value_name = "URL", env = "BAROGRAPH_STATION")]
    station: Option<String>,
    /// State directory of the local station, for its address and token [default:
    /// ~/.local/state/barograph]
    #[arg(long, value_name = "DIR", env = "BAROGRAPH_STATE")]
    state: Option<PathBuf>,
    /// API token of the station [default: from the state directory]
    #[arg(long, value_name = "TOKEN", env = "BAROGRAPH_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Certificate (PEM) to trust besides the system's, for a station with a private HTTPS
    /// certificate
    #[arg(long, value_name = "FILE", env = "BAROGRAPH_CA")]
    ca: Option<PathBuf>,
}

/// Sends requests to one station.
pub(crate) struct Client {
    target: Target,
    http: BlockingClient,
}

/// JSON text of a successful answer, as the station sent it.
#[derive(Debug)]
pub(crate) struct Answer(String);

impl Answer {
    /// Parses the answer. Missing fields get their defaults. If the text does not parse, all fields
    /// get their defaults.
    pub(crate) fn read<T: DeserializeOwned + Default>(&self) -> T {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The station did not answer.
    NoAnswer(String),
    /// The station refused the request with the HTTP status `status` and the message `sentence`.
    Refused { status: u16, sentence: String },
}

impl RequestError {
    /// Whether the station reports a mistake in the request: status 400 (RFC 9110 §15.5.1).
    pub(crate) fn is_bad_request(&self) -> bool {
        matches!(self, Self::Refused { status: 400, .. })
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAnswer(sentence) | Self::Refused { sentence, .. } => f.write_str(sentence),
        }
    }
}

/// A mistake in the request is bad usage; everything else is a failure.
impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        if error.is_bad_request() { Self::Input(error.to_string()) } else { Self::Failed(error.to_string()) }
    }
}

impl Client {
    /// A client of the station that `args` select.
    ///
    /// # Errors
    /// [`Failure::Input`] if the arguments are wrong.
    pub(crate) fn new(args: &StationArgs) -> Result<Self, Failure> {
        Self::for_args(args).map_err(Failure::Input)
    }

    fn for_args(args: &StationArgs) -> Result<Self, String> {
        let state = args.state.clone().unwrap_or_else(|| barograph_station::Config::default().state);
        let announced = barograph_station::state::read_url(&state);
        let is_local = args.station.is_none();
        let url = args.station.clone().or(announced);
        let url = url.unwrap_or_else(|| format!("http://127.0.0.1:{}/", barograph_station::config::PORT));
        let target = Target::parse(&url).map_err(|error| error.to_string())?;
        let trust = match (target.scheme(), &args.ca) {
            (Scheme::Https, Some(file)) => RootCertificates::SystemAnd(file.clone()),
            (Scheme::Https, None) => RootCertificates::System,
            (Scheme::Http | Scheme::Address, _) => RootCertificates::Nothing,
        };
        // The token in the state directory is for the local station. Do not send this token to a
        // different station.
        let token = args.token.clone().or_else(|| if is_local { token_of(&state) } else { None });
        let config = ClientConfig {
            token,
            connect_timeout: DEADLINE,
            ..ClientConfig::new(target.origin(), TrustStore::new(&trust)?)
        };
        Ok(Self { target, http: BlockingClient::new(config)? })
    }

    /// A client of the station at `url`. The client sends `token`, if given, and trusts `ca`
    /// besides the system's certificates.
    ///
    /// # Errors
    /// [`Failure::Input`] if the address is wrong.
    pub(crate) fn of(url: &str, token: Option<String>, ca: Option<PathBuf>) -> Result<Self, Failure> {
        Self::new(&StationArgs { station: Some(url.into()), state: None, token, ca })
    }

    /// Whether the station speaks HTTPS.
    pub(crate) fn is_https(&self) -> bool {
        self.target.scheme() == Scheme::Https
    }

    /// Sends a GET; returns the body of a 2xx answer.
    ///
    /// # Errors
    /// [`RequestError`], after [`DEADLINE`] at the latest, whatever the station sends.
    pub(crate) fn get(&self, path: &str) -> Result<Answer, RequestError> {
        self.send(&ApiRequest { path, ..ApiRequest::default() })
    }

    /// Sends a DELETE; returns the same as [`get`](Self::get).
    pub(crate) fn delete(&self, path: &str) -> Result<Answer, RequestError> {
        self.send(&ApiRequest { method: Method::DELETE, path, ..ApiRequest::default() })
    }

    /// Sends a POST of `body`; returns the same as [`get`](Self::get).
    pub(crate) fn post(&self, path: &str, body: &impl Serialize) -> Result<Answer, RequestError> {
        // Cannot fail: requests have text keys, and their serializers do not fail.
        let body = serde_json::to_string(body).unwrap_or_default().into();
        self.send(&ApiRequest {
            method: Method::POST,
            path,
            content_type: "application/json",
            body,
            ..ApiRequest::default()
        })
    }

    fn send(&self, request: &ApiRequest<'_>) -> Result<Answer, RequestError> {
        self.send_until(Instant::now() + DEADLINE, request)
    }

    fn send_until(&self, ends: Instant, request: &ApiRequest<'_>) -> Result<Answer, RequestError> {
        let headers = &[("accept", "application/json"), ("connection", "close")];
        let (status, body) = self
            .http
            .send(&ApiRequest { headers, ..request.clone() }, ANSWER_BYTES_MAX, ends)
            .map_err(|error| {
                RequestError::NoAnswer(format!(
                    "the station at {} does not answer: {} (is `barograph up` running?)",
                    self.target,
                    why(&error)
                ))
            })?;
        if status.is_success() {
            return Ok(Answer(String::from_utf8_lossy(&body).into_owned()));
        }
        Err(self.refusal(status, &body))
    }

    /// Error of a refused request, with the message from `body` or, if `body` has none, with the
    /// status.
    fn refusal(&self, status: StatusCode, body: &[u8]) -> RequestError {
        let status = status.as_u16();
        let sentence = match serde_json::from_slice::<ErrorBody<'_>>(body) {
            Ok(answer) => printable(&answer.error),
            Err(_) => format!("the station at {} answered with status {status}", self.target),
        };
        RequestError::Refused { status, sentence }
    }

    /// Follows server-sent events (WHATWG HTML §9.2), and passes the data of each event to `take`
    /// until `take` returns false. After a restart of the station, the function reconnects and
    /// resumes after the last event.
    ///
    /// # Errors
    /// [`RequestError`] when the station refuses, or does not answer for [`FOLLOW_TIMEOUT`].
    pub(crate) fn follow(&self, path: &str, mut take: impl FnMut(&str) -> bool) -> Result<(), RequestError> {
        let mut last_id: Option<String> = None;
        let mut last_received = Instant::now();
        loop {
            let seen = last_id.clone();
            let mut headers = vec![("accept", "text/event-stream"), ("connection", "close")];
            headers.extend(seen.as_deref().map(|id| ("last-event-id", id)));
            let request = ApiRequest { path, headers: &headers, ..ApiRequest::default() };
            let line = |text: &str| {
                last_received = Instant::now();
                if let Some(id) = text.strip_prefix("id: ") {
                    last_id = Some(id.to_string());
                }
                text.strip_prefix("data: ").is_none_or(&mut take)
            };
            let until = Instant::now() + DEADLINE;
            match self.http.follow(&request, until, FOLLOW_SILENCE, LINE_BYTES_MAX, line) {
                Ok(FollowEnd::StoppedByCaller) => return Ok(()),
                Ok(FollowEnd::Refused(status, body)) => return Err(self.refusal(status, &body)),
                Ok(FollowEnd::Ended) => {}
                Err(error) if last_received.elapsed() > FOLLOW_TIMEOUT => {
                    let why = why(&error);
                    return Err(RequestError::NoAnswer(format!(
                        "the station at {} no longer answers: {why}",
                        self.target
                    )));
                }
                Err(_) => {}
            }
            std::thread::sleep(FOLLOW_PAUSE);
        }
    }
}

fn why(error: &barograph_api::client::ClientError) -> String {
    use barograph_api::client::ClientError::{Interrupted, NotSent, TimedOut};
    match error {
        TimedOut => format!("no complete answer within {} s", DEADLINE.as_secs()),
        NotSent(cause) | Interrupted(cause) if cause.is_plaintext_response() => {
            "the port does not use HTTPS; try http://".into()
        }
        NotSent(cause) | Interrupted(cause) => printable(&cause.root),
    }
}

/// Escapes the characters of `text` that would control a terminal or reverse the writing direction.
/// Use this function for text from outside this program.
pub(crate) fn printable(text: &str) -> String {
    let steers = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if steers(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

pub(crate) fn token_of(state: &Path) -> Option<String> {
    let text = std::fs::read_to_string(state.join(barograph_station::state::TOKEN_FILE)).ok()?;
    Some(text.trim().to_string())
}

/// Time limit of a request, from the first handshake to the last byte. This limit is longer than
/// the time that a station allows itself to store values.
const DEADLINE: Duration = Duration::from_secs(20);
/// Maximum time for which a stream waits for a station that restarts. After this time the station
/// counts as gone.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two attempts to connect.
const FOLLOW_PAUSE: Duration = Duration::from_secs(1);
/// Maximum time without data on a stream: three intervals of the comments that keep a stream alive.
const FOLLOW_SILENCE: Duration = Duration::from_secs(45);
/// Maximum number of bytes in a line of a stream. The longest lines are events, which contain an
/// entry of the directory.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of bytes in an answer; the answers that the verbs request are far shorter.
const ANSWER_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
    use std::thread::{self, JoinHandle};

    use super::*;

    fn client(address: SocketAddr) -> Client {
        Client::of(&format!("http://{address}/"), None, None).expect("a client")
    }

    /// A station that accepts one connection, reads the request and runs `answer`.
    fn station(answer: impl FnOnce(TcpStream) + Send + 'static) -> (SocketAddr, JoinHandle<()>) {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = tcp.local_addr().expect("an address");
        let serve = move || {
            let mut stream = tcp.accept().expect("a connection").0;
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).expect("a request");
                request.extend(byte);
            }
            answer(stream);
        };
        (address, thread::spawn(serve))
    }

    #[test]
    fn a_station_that_sends_bytes_slowly_is_abandoned_at_the_deadline() {
        let (address, thread) = station(|mut stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\nA: ").expect("written");
            // Send a header without end. Each byte arrives before a single read would time out.
            while stream.write_all(b"H").is_ok() {
                thread::park_timeout(Duration::from_millis(5));
            }
        });
        let began = Instant::now();
        let ends = began + Duration::from_millis(200);
        let error = client(address)
            .send_until(ends, &ApiRequest { path: "/", ..ApiRequest::default() })
            .expect_err("no answer");
        assert!(began.elapsed() < Duration::from_secs(5), "{error}");
        assert!(error.to_string().contains("no complete answer"), "{error}");
        thread.join().expect("no panic");
    }

    #[test]
    fn a_response_ends_at_its_content_length_and_not_with_the_connection() {
        let (address, thread) = station(|mut stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").expect("written");
            // Keep the connection open until the client closes it.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        assert_eq!(client(address).get("/").expect("an answer").to_string(), "{}");
        thread.join().expect("no panic");
        let (address, thread) = station(|mut stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}").expect("written");
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        });
        assert!(client(address).get("/").is_err(), "cut short");
        thread.join().expect("no panic");
    }

    #[test]
    fn control_characters_from_the_station_are_escaped() {
        let (address, thread) = station(|mut stream| {
            let body = r#"{"error":"a\u001b[2Jb\u202ec\nd"}"#;
            let head = format!("HTTP/1.1 400 Bad\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all((head + body).as_bytes()).expect("written");
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let error = client(address).get("/").expect_err("refused");
        assert!(error.is_bad_request());
        assert_eq!(error.to_string(), r"a\u{1b}[2Jb\u{202e}c\nd");
        thread.join().expect("no panic");
        assert_eq!(printable("häuser 日本"), "häuser 日本");
    }

    #[test]
    fn valid_responses_are_parsed_and_garbage_is_refused() {
        let good = &b"HTTP/1.1 201 Created\r\nA: b\r\n\r\n{}"[..];
        let garbage = [&b""[..], b"\r\n\r\n", b"SSH-2.0\r\n\r\n", b"HTTP/1.1 x\r\n\r\n", b"\xff\r\n\r\n"];
        for (bytes, body) in [(good, Some("{}"))].into_iter().chain(garbage.map(|bytes| (bytes, None))) {
            let (address, thread) = station(|mut stream| {
                stream.write_all(bytes).expect("written");
                let _ = stream.shutdown(Shutdown::Write);
                let _ = stream.read_to_end(&mut Vec::new());
            });
            assert_eq!(client(address).get("/").ok().map(|answer| answer.to_string()).as_deref(), body);
            thread.join().expect("no panic");
        }
    }
}
