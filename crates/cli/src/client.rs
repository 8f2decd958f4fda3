//! A few requests to a running station: HTTP/1.1, plain or through TLS, one request a connection.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use barograph_probe::Target;
use barograph_probe::target::Scheme;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::exit::{bad_input, failed};

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
    /// A certificate (PEM) to trust beside the system's, for a station that speaks HTTPS with a private one
    #[arg(long, value_name = "FILE", env = "BAROGRAPH_CA")]
    ca: Option<PathBuf>,
}

/// A station to ask.
pub(crate) struct Client {
    target: Target,
    token: Option<String>,
    /// For a station that speaks HTTPS.
    tls: Option<Arc<ClientConfig>>,
}

/// An answer: its status and its body.
struct Answer {
    status: u16,
    body: String,
}

/// Why there is no good answer.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// None at all.
    Silent(String),
    /// The station's refusal, in its own words.
    Refused { status: u16, sentence: String },
}

impl Trouble {
    /// Whether the station calls what it was asked a mistake (RFC 9110 §15.5.1).
    pub(crate) fn is_mistake(&self) -> bool {
        matches!(self, Self::Refused { status: 400, .. })
    }

    /// Says it; a mistake of the caller's is bad usage, everything else a failure.
    pub(crate) fn exit(&self) -> ExitCode {
        if self.is_mistake() { bad_input(self) } else { failed(self) }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(sentence) | Self::Refused { sentence, .. } => f.write_str(sentence),
        }
    }
}

impl Client {
    /// # Errors
    /// A sentence about what is wrong with the arguments.
    pub(crate) fn new(args: &StationArgs) -> Result<Self, String> {
        let state = args.state.clone().unwrap_or_else(|| barograph_station::Config::default().state);
        let announced = barograph_station::state::announced(&state);
        let is_local = args.station.is_none();
        let url = args.station.clone().or(announced);
        let url = url.unwrap_or_else(|| format!("http://127.0.0.1:{}/", barograph_station::config::PORT));
        let target = Target::parse(&url).map_err(|error| error.to_string())?;
        let tls = match target.scheme() {
            Scheme::Https => Some(Arc::new(trust(args.ca.as_deref())?)),
            Scheme::Http | Scheme::Address => None,
        };
        // The token is shown to the station that it belongs to, and to no other without being asked.
        let token = args.token.clone().or_else(|| if is_local { token_of(&state) } else { None });
        Ok(Self { target, token, tls })
    }

    /// A client of the station at `url`, which is shown `token` if there is one; `ca` is trusted beside the system's.
    ///
    /// # Errors
    /// A sentence about what is wrong with the address.
    pub(crate) fn of(url: &str, token: Option<String>, ca: Option<PathBuf>) -> Result<Self, String> {
        Self::new(&StationArgs { station: Some(url.into()), state: None, token, ca })
    }

    /// Whether the station speaks HTTPS.
    pub(crate) fn is_https(&self) -> bool {
        self.target.scheme() == Scheme::Https
    }

    /// Asks; gives the body of a 2xx answer.
    ///
    /// # Errors
    /// [`Trouble`], after [`DEADLINE`] at the latest, whatever the station sends.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&str>) -> Result<String, Trouble> {
        self.ask_until(Instant::now() + DEADLINE, method, path, body)
    }

    fn ask_until(
        &self,
        ends: Instant,
        method: &str,
        path: &str,
        body: Option<&str>,
    ) -> Result<String, Trouble> {
        let answer = self.request(ends, method, path, body).map_err(|error| {
            let error = match error.kind() {
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                    format!("no whole answer within {} s", DEADLINE.as_secs())
                }
                io::ErrorKind::InvalidData if self.is_https() && error.to_string().ends_with(NO_TLS) => {
                    "it does not speak HTTPS there; was http:// meant?".into()
                }
                _ => printable(&error.to_string()),
            };
            Trouble::Silent(format!(
                "the station at {} does not answer: {error} (is `barograph up` running?)",
                self.target
            ))
        })?;
        if (200..300).contains(&answer.status) {
            return Ok(answer.body);
        }
        Err(self.refusal(&answer))
    }

    /// A refusal in the station's own words, where it has any.
    fn refusal(&self, answer: &Answer) -> Trouble {
        let status = answer.status;
        let sentence = serde_json::from_str::<serde_json::Value>(&answer.body)
            .ok()
            .and_then(|value| Some(printable(value.get("error")?.as_str()?)));
        let sentence = sentence.unwrap_or_else(|| format!("{} answered {status}", self.target));
        Trouble::Refused { status, sentence }
    }

    /// Follows server-sent events (WHATWG HTML §9.2) and gives the data of each to `take`, until it says
    /// false; connects again when the station was restarted, and goes on after the last event seen.
    ///
    /// # Errors
    /// [`Trouble`] when the station refuses, or does not answer for [`FOLLOW_PATIENCE`].
    pub(crate) fn follow(&self, path: &str, mut take: impl FnMut(&str) -> bool) -> Result<(), Trouble> {
        let mut last_id: Option<String> = None;
        let mut heard = Instant::now();
        loop {
            match self.follow_once(path, &mut last_id, &mut heard, &mut take) {
                Ok(Followed::Enough) => return Ok(()),
                Ok(Followed::Refused(answer)) => return Err(self.refusal(&answer)),
                Ok(Followed::Ended) => {}
                Err(error) if FOLLOW_PATIENCE < heard.elapsed() => {
                    let error = printable(&error.to_string());
                    return Err(Trouble::Silent(format!("the station at {} is gone: {error}", self.target)));
                }
                Err(_) => {}
            }
            std::thread::sleep(FOLLOW_PAUSE);
        }
    }

    fn follow_once(
        &self,
        path: &str,
        last_id: &mut Option<String>,
        heard: &mut Instant,
        take: &mut impl FnMut(&str) -> bool,
    ) -> io::Result<Followed> {
        let mut head = format!(
            "GET {path} HTTP/1.0\r\nHost: {}\r\nAccept: text/event-stream\r\n",
            self.target.authority()
        );
        if let Some(token) = &self.token {
            head += &format!("Authorization: Bearer {token}\r\n");
        }
        if let Some(id) = last_id.as_ref() {
            head += &format!("Last-Event-ID: {id}\r\n");
        }
        let mut stream = self.open(Instant::now() + DEADLINE)?;
        stream.write_all(format!("{head}\r\n").as_bytes())?;
        stream.flush()?;
        let mut lines = BufReader::new(stream);
        let mut line = String::new();
        let mut status = None;
        // Comments come every 15 s, so that silence is an end.
        loop {
            lines.get_mut().set_ends(Instant::now() + FOLLOW_SILENCE);
            line.clear();
            if lines.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)? == 0 {
                return Ok(Followed::Ended);
            }
            *heard = Instant::now();
            let text = line.trim_end();
            match (status, text) {
                (None, _) => {
                    let code = text.split(' ').nth(1).and_then(|code| code.parse().ok());
                    let code: u16 = code.ok_or_else(|| io::Error::other("the answer is not HTTP"))?;
                    if code != 200 {
                        let mut rest = String::new();
                        lines.take(LINE_BYTES_MAX).read_to_string(&mut rest)?;
                        let body = rest.split_once("\r\n\r\n").map_or("", |(_, body)| body);
                        return Ok(Followed::Refused(Answer { status: code, body: body.to_string() }));
                    }
                    status = Some(code);
                }
                (Some(_), text) => {
                    if let Some(id) = text.strip_prefix("id: ") {
                        *last_id = Some(id.to_string());
                    } else if let Some(data) = text.strip_prefix("data: ")
                        && !take(data)
                    {
                        return Ok(Followed::Enough);
                    }
                }
            }
        }
    }

    /// A connection, with TLS where the station speaks it.
    fn open(&self, ends: Instant) -> io::Result<Line> {
        let tcp = self.connect(ends)?;
        let Some(config) = &self.tls else { return Ok(Line::Plain(tcp)) };
        let name = ServerName::try_from(self.target.host().to_string()).map_err(io::Error::other)?;
        let tls = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        Ok(Line::Tls(Box::new(StreamOwned::new(tls, tcp))))
    }

    fn request(&self, ends: Instant, method: &str, path: &str, body: Option<&str>) -> io::Result<Answer> {
        let stream = self.open(ends)?;
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
        let request = format!("{head}\r\n{body}");
        exchange(stream, &request)
    }

    fn connect(&self, ends: Instant) -> io::Result<Timed> {
        let mut last = io::Error::other("the name has no address");
        for address in (self.target.host(), self.target.port()).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT.min(left(ends)?)) {
                Ok(tcp) => return Ok(Timed { tcp, ends }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// A connection that is over at a time, however busy it is.
struct Timed {
    tcp: TcpStream,
    ends: Instant,
}

/// A connection to a station, plain or not.
enum Line {
    Plain(Timed),
    Tls(Box<StreamOwned<ClientConnection, Timed>>),
}

impl Line {
    fn set_ends(&mut self, ends: Instant) {
        match self {
            Self::Plain(tcp) => tcp.ends = ends,
            Self::Tls(tls) => tls.sock.ends = ends,
        }
    }
}

impl Read for Line {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.read(buffer),
            Self::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.write(bytes),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(tcp) => tcp.flush(),
            Self::Tls(tls) => tls.flush(),
        }
    }
}

/// How following ended.
enum Followed {
    /// Nobody wants more.
    Enough,
    /// The connection is over.
    Ended,
    /// The station's answer to the request itself.
    Refused(Answer),
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.tcp.set_read_timeout(Some(left(self.ends)?))?;
        self.tcp.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tcp.set_write_timeout(Some(left(self.ends)?))?;
        self.tcp.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tcp.flush()
    }
}

fn left(ends: Instant) -> io::Result<Duration> {
    let left = ends.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Sends a request and reads its answer, to the length that it announces, else to its end.
fn exchange(mut stream: impl Read + Write, request: &str) -> io::Result<Answer> {
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        let whole = whole_length(&bytes);
        if whole.is_some_and(|whole| whole <= bytes.len()) {
            bytes.truncate(whole.unwrap_or(bytes.len()));
            break;
        }
        if ANSWER_BYTES_MAX < bytes.len() {
            return Err(io::Error::other("the answer is too long"));
        }
        match stream.read(&mut buffer) {
            Ok(0) if whole.is_some() => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(0) => break,
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
            // TLS that ends without a goodbye, where nothing announced a length.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && whole.is_none() => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    parse(&bytes).ok_or_else(|| io::Error::other("the answer is not HTTP"))
}

/// Bytes of head and body together, once the head is there and if it says so.
fn whole_length(bytes: &[u8]) -> Option<usize> {
    let head_length = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..head_length]).ok()?;
    let lengths = head.split("\r\n").filter_map(|line| line.split_once(':'));
    let (_, length) = lengths.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"))?;
    head_length.checked_add(length.trim().parse().ok()?)
}

/// The system's certificates, and those in the file.
fn trust(file: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    // Systems carry certificates that no strict reader takes; the rest is what counts.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(file) = file {
        let unusable = |error: &dyn fmt::Display| format!("{}: {error}", file.display());
        let certificates = CertificateDer::pem_file_iter(file).map_err(|error| unusable(&error))?;
        let mut any = false;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| unusable(&error))?;
            roots.add(certificate).map_err(|error| unusable(&error))?;
            any = true;
        }
        if !any {
            return Err(unusable(&"there is no certificate in it"));
        }
    }
    barograph_probe::io::trusting(roots).map_err(|error| error.to_string())
}

/// `text` from elsewhere, fit for a terminal: what would steer it, or turn the writing round, is escaped.
pub(crate) fn printable(text: &str) -> String {
    let steers = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if steers(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

pub(crate) fn token_of(state: &Path) -> Option<String> {
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

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// What rustls says of a first answer that is no TLS.
const NO_TLS: &str = "InvalidContentType";
/// From the first handshake to the last byte; longer than the station's own limit for storing.
const DEADLINE: Duration = Duration::from_secs(20);
/// A station that is restarted comes back within this, or is gone.
const FOLLOW_PATIENCE: Duration = Duration::from_secs(60);
/// Between two attempts to connect.
const FOLLOW_PAUSE: Duration = Duration::from_secs(1);
/// Three of the comments that keep a stream alive.
const FOLLOW_SILENCE: Duration = Duration::from_secs(45);
/// An event has an entry of the directory in it.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// No answer that these verbs ask for comes near it.
const ANSWER_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, SocketAddr, TcpListener};
    use std::thread::{self, JoinHandle};

    use super::*;

    fn client(address: SocketAddr) -> Client {
        let target = Target::parse(&format!("http://{address}/")).expect("a target");
        Client { target, token: None, tls: None }
    }

    /// A station that does `answer` with the one connection it takes.
    fn station(answer: impl FnOnce(TcpStream) + Send + 'static) -> (SocketAddr, JoinHandle<()>) {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = tcp.local_addr().expect("an address");
        (address, thread::spawn(move || answer(tcp.accept().expect("a connection").0)))
    }

    #[test]
    fn a_station_that_drips_bytes_is_left_at_the_deadline() {
        let (address, thread) = station(|mut stream| {
            // As much as one likes, each byte sooner than any single read would give up.
            while stream.write_all(b"H").is_ok() {
                thread::park_timeout(Duration::from_millis(5));
            }
        });
        let began = Instant::now();
        let ends = began + Duration::from_millis(200);
        let trouble = client(address).ask_until(ends, "GET", "/", None).expect_err("no answer");
        assert!(began.elapsed() < Duration::from_secs(5), "{trouble}");
        assert!(trouble.to_string().contains("no whole answer"), "{trouble}");
        thread.join().expect("no panic");
    }

    #[test]
    fn an_answer_ends_with_its_length_and_not_with_the_connection() {
        let (address, thread) = station(|mut stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").expect("written");
            // Open until the client goes.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        assert_eq!(client(address).ask("GET", "/", None).expect("an answer"), "{}");
        thread.join().expect("no panic");
        let (address, thread) = station(|mut stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}").expect("written");
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        });
        assert!(client(address).ask("GET", "/", None).is_err(), "cut short");
        thread.join().expect("no panic");
    }

    #[test]
    fn words_of_the_station_do_not_steer_the_terminal() {
        let (address, thread) = station(|mut stream| {
            let body = r#"{"error":"a\u001b[2Jb\u202ec\nd"}"#;
            let head = format!("HTTP/1.1 400 Bad\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all((head + body).as_bytes()).expect("written");
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let trouble = client(address).ask("GET", "/", None).expect_err("refused");
        assert!(trouble.is_mistake());
        assert_eq!(trouble.to_string(), r"a\u{1b}[2Jb\u{202e}c\nd");
        thread.join().expect("no panic");
        assert_eq!(printable("häuser 日本"), "häuser 日本");
    }

    #[test]
    fn answers_are_read_and_garbage_is_not() {
        let answer = parse(b"HTTP/1.1 201 Created\r\nA: b\r\n\r\n{}").expect("an answer");
        assert_eq!((answer.status, answer.body.as_str()), (201, "{}"));
        for garbage in [&b""[..], b"\r\n\r\n", b"SSH-2.0\r\n\r\n", b"HTTP/1.1 x\r\n\r\n", b"\xff\r\n\r\n"] {
            assert!(parse(garbage).is_none());
        }
    }
}
