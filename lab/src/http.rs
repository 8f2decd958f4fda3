//! One question, one connection, one answer; read by HTTP/1.0 (RFC 1945), in which no answer comes in pieces.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// What `path` of the server at `address` says.
pub(crate) fn get(address: SocketAddr, path: &str) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&text(address, path)?)?)
}

/// The same, also with the status of an error.
pub(crate) fn get_any(address: SocketAddr, path: &str) -> anyhow::Result<Value> {
    let (_, body) = exchange(address, &format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n"))?;
    Ok(serde_json::from_str(&body)?)
}

/// The same as it came.
pub(crate) fn text(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    ask(address, &format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n"))
}

pub(crate) fn post(address: SocketAddr, path: &str, body: &Value) -> anyhow::Result<Value> {
    let body = body.to_string();
    // A station takes HTTP/1.0 for a proxy's, and would ask for a token; it knows the length of what it answers.
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

/// The head and the body of the answer.
fn exchange(address: SocketAddr, request: &str) -> anyhow::Result<(String, String)> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer is no HTTP")?;
    Ok((head.to_string(), body.to_string()))
}

/// A machine that runs a hundred stations answers late.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: u64 = 8 << 20;
