//! A few requests to a running station: plain HTTP/1.1, one request a connection.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use barograph_probe::Target;
use barograph_probe::target::Scheme;

/// How a verb finds its station.
#[derive(clap::Args)]
pub(crate) struct StationArgs {
    /// The station [default: that of the state directory, else http://127.0.0.1:10132/]
    #[arg(long, value_name = "URL", env = "BAROGRAPH_STATION")]
    station: Option<String>,
    /// The local station's state directory, for its address and token [default: ~/.local/state/barograph]
    #[arg(long, value_name = "DIR", env = "BAROGRAPH_STATE")]
    state: Option<PathBuf>,
    /// The station's token [default: from the state directory]
    #[arg(long, value_name = "TOKEN", env = "BAROGRAPH_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

/// A station to ask.
pub(crate) struct Client {
    target: Target,
    token: Option<String>,
}

/// An answer: its status and its body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Client {
    pub(crate) fn new(args: &StationArgs) -> Result<Self, String> {
        let state = args.state.clone().unwrap_or_else(|| barograph_station::Config::default().state);
        let announced = barograph_station::state::announced(&state);
        let is_local = args.station.is_none();
        let url = args.station.clone().or(announced);
        let url = url.unwrap_or_else(|| format!("http://127.0.0.1:{}/", barograph_station::config::PORT));
        let target = Target::parse(&url).map_err(|error| error.to_string())?;
        if target.scheme() == Scheme::Https {
            return Err(format!(
                "{url}: this verb does not speak HTTPS; use a client that does, such as curl"
            ));
        }
        // The token is shown to the station that it belongs to, and to no other without being asked.
        let token = args.token.clone().or_else(|| if is_local { token_of(&state) } else { None });
        Ok(Self { target, token })
    }

    /// Asks; gives the body of a 2xx answer, else the station's sentence.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&str>) -> Result<String, String> {
        let answer = self.request(method, path, body).map_err(|error| {
            format!("the station at {} does not answer: {error} (is `barograph up` running?)", self.target)
        })?;
        if (200..300).contains(&answer.status) {
            return Ok(answer.body);
        }
        let sentence = serde_json::from_str::<serde_json::Value>(&answer.body)
            .ok()
            .and_then(|value| Some(value.get("error")?.as_str()?.to_string()));
        Err(sentence.unwrap_or_else(|| format!("{} answered {}", self.target, answer.status)))
    }

    fn request(&self, method: &str, path: &str, body: Option<&str>) -> std::io::Result<Answer> {
        let mut stream = self.connect()?;
        let body = body.unwrap_or_default();
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAccept: application/json\r\n",
            self.target.authority()
        );
        if let Some(token) = &self.token {
            head += &format!("Authorization: Bearer {token}\r\n");
        }
        if method == "POST" {
            head += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
        let mut bytes = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes)?;
        parse(&bytes).ok_or_else(|| std::io::Error::other("the answer is not HTTP"))
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        let mut last = std::io::Error::other("the name has no address");
        for address in (self.target.host(), self.target.port()).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn token_of(state: &Path) -> Option<String> {
    let text = std::fs::read_to_string(state.join(barograph_station::state::TOKEN_FILE)).ok()?;
    Some(text.trim().to_string())
}

/// Status and body of a whole answer; a station sends small answers with their length.
fn parse(bytes: &[u8]) -> Option<Answer> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, body: body.to_string() })
}

/// `text` as part of a query (RFC 3986 §2.3: everything but unreserved characters is escaped).
pub(crate) fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than the station's own limit for storing.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// No answer that these verbs ask for comes near it.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_garbage_is_not() {
        let answer = parse(b"HTTP/1.1 201 Created\r\nA: b\r\n\r\n{}").expect("an answer");
        assert_eq!((answer.status, answer.body.as_str()), (201, "{}"));
        for garbage in [&b""[..], b"\r\n\r\n", b"SSH-2.0\r\n\r\n", b"HTTP/1.1 x\r\n\r\n", b"\xff\r\n\r\n"] {
            assert!(parse(garbage).is_none());
        }
    }

    #[test]
    fn queries_are_escaped() {
        assert_eq!(escaped("http://a/?b&c d"), "http%3A%2F%2Fa%2F%3Fb%26c%20d");
    }
}
