//! A small HTTP client: it sends exactly what a test passes, and waits with a limit.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use serde_json::Value;

use crate::{LIMIT, wait_for};

/// A response of a server.
pub struct HttpResponse {
    /// The status code, such as 200.
    pub status: u16,
    /// The status line and headers, in lower case.
    pub head: String,
    /// The text after the head.
    pub body: String,
}

impl HttpResponse {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The `error` field of the JSON body of a rejection.
    pub fn error(&self) -> String {
        self.json()["error"].as_str().unwrap().to_string()
    }
}

/// Sends a GET without further headers.
pub fn get(address: SocketAddr, path: &str) -> HttpResponse {
    send(address, "GET", path, &[], "")
}

/// Sends a POST with a JSON body.
pub fn post(address: SocketAddr, path: &str, body: &str) -> HttpResponse {
    send(address, "POST", path, &[("Content-Type", "application/json")], body)
}

/// Sends a request with these headers, a `Content-Length` and `Connection: close`. Adds a `Host`
/// header if `headers` contains none.
pub fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> HttpResponse {
    let mut head =
        format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        head += &format!("Host: {address}\r\n");
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    raw(address, format!("{head}\r\n{body}").as_bytes())
}

/// Sends these bytes and reads the response to its end; the response must be text.
pub fn raw(address: SocketAddr, bytes: &[u8]) -> HttpResponse {
    let mut stream = connect(address);
    // The station may respond and close the connection before it has read all bytes.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8(answer).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    HttpResponse { status, head: head.to_ascii_lowercase(), body: body.to_string() }
}

/// Sends a GET and returns the whole response, which need not be text.
pub fn bytes(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut stream = connect(address);
    let mut head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

/// Opens a connection; its reads end after [`LIMIT`].
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, LIMIT).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Server-sent events of an open stream.
pub struct SseReader {
    lines: BufReader<TcpStream>,
    opened: Instant,
}

impl SseReader {
    /// Opens a stream. From this time on, the station sends every new point.
    pub fn open(address: SocketAddr, path: &str) -> Self {
        let mut stream = connect(address);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        let mut lines = BufReader::new(stream);
        let mut status = String::new();
        lines.read_line(&mut status).unwrap();
        assert!(status.starts_with("HTTP/1.1 200"), "{status}");
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            lines.read_line(&mut line).unwrap();
        }
        Self { lines, opened: Instant::now() }
    }

    /// Returns the name and data of the next event, or `None` at the end of the stream. Chunk
    /// framing and comments are skipped.
    #[expect(clippy::should_implement_trait, reason = "a test asks for one event after the other")]
    pub fn next(&mut self) -> Option<(String, Value)> {
        let mut name = None;
        loop {
            assert!(self.opened.elapsed() < LIMIT, "no event in time");
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some(rest) = line.trim_end().strip_prefix("event: ") {
                name = Some(rest.to_string());
            } else if let Some(rest) = line.trim_end().strip_prefix("data: ") {
                return Some((name.take().unwrap(), serde_json::from_str(rest).unwrap()));
            }
        }
    }
}

/// Repeats a GET until `satisfied` returns true for the response, and returns that response.
pub fn get_until(address: SocketAddr, path: &str, satisfied: impl Fn(&HttpResponse) -> bool) -> HttpResponse {
    wait_for(|| {
        let answer = get(address, path);
        if satisfied(&answer) {
            return Ok(answer);
        }
        Err(format!("{path} still answers {} {}", answer.status, answer.body))
    })
}

/// Waits until the station accepts connections again.
pub fn wait_until_reachable(address: SocketAddr) {
    wait_for(|| {
        let mut stream = connect(address);
        let _ = write!(stream, "GET /v1/station HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        if answer.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(answer) }
    });
}
