//! A minimal HTTP client: one request on each connection. It reads HTTP/1.0 (RFC 1945), which has
//! no chunked responses.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// Returns the JSON at `path` of the server at `address`; a status other than 2xx is an error.
pub(crate) fn get(address: SocketAddr, path: &str) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&text(address, path)?)?)
}

/// As [`get`], but also returns the body of an error status.
pub(crate) fn get_any(address: SocketAddr, path: &str) -> anyhow::Result<Value> {
    let (_, body) = exchange(address, &format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n"))?;
    Ok(serde_json::from_str(&body)?)
}

/// As [`get`], but returns the text of the body.
pub(crate) fn text(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    ask(address, &format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n"))
}

pub(crate) fn post(address: SocketAddr, path: &str, body: &Value) -> anyhow::Result<Value> {
    let body = body.to_string();
    // HTTP/1.1, because a station treats HTTP/1.0 as a proxy's and requires a token. The response
    // is not chunked, because the station knows its length.
    let head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    let length = body.len();
    let rest = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
    Ok(serde_json::from_str(&ask(address, &(head + &rest))?)?)
}

fn ask(address: SocketAddr, request: &str) -> anyhow::Result<String> {
    let (head, body) = exchange(address, request)?;
    let is_good = head.split(' ').nth(1).is_some_and(|status| status.starts_with('2'));
    ensure!(is_good, "{address}: {}: {body}", head.lines().next().unwrap_or_default());
    Ok(body)
}

/// Sends a request; returns head and body of the response.
fn exchange(address: SocketAddr, request: &str) -> anyhow::Result<(String, String)> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the response is not HTTP")?;
    Ok((head.to_string(), body.to_string()))
}

/// A machine that runs a hundred stations responds late.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: u64 = 8 << 20;
