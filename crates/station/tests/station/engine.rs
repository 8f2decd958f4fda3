//! A station that serves its engine to members, well-behaved and hostile.

mod abuse;
mod conformance;
mod members;
mod relay;
mod remote;
mod removals;

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::http::{HttpResponse, post, send};

/// Invites a station with this name, or with any name if `name` is `None`; returns the token of the
/// invitation.
pub(crate) fn invite(address: SocketAddr, name: Option<&str>) -> String {
    let body = name.map_or(json!({}), |name| json!({ "name": name }));
    let answer = post(address, "/v1/invitations", &body.to_string());
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["token"].as_str().unwrap().to_string()
}

/// Sends a request as a member.
pub(crate) fn ask(address: SocketAddr, token: &str, method: &str, path: &str, body: &str) -> HttpResponse {
    let bearer = format!("Bearer {token}");
    let media_type = if path.starts_with("records") { "application/x-ndjson" } else { "application/json" };
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", media_type)];
    send(address, method, &format!("/v1/engine/{path}"), &headers, body)
}

pub(crate) fn register(address: SocketAddr, token: &str, host: &str) -> HttpResponse {
    ask(address, token, "PUT", "entry?ttl_s=60", &entry(host).to_string())
}

/// As [`register`], in these groups.
pub(crate) fn register_in(address: SocketAddr, token: &str, host: &str, groups: &[&str]) -> HttpResponse {
    let mut entry = entry(host);
    entry["groups"] = json!(groups);
    ask(address, token, "PUT", "entry?ttl_s=60", &entry.to_string())
}

fn entry(host: &str) -> Value {
    json!({ "host": host, "addresses": ["192.0.2.1:10132"], "version": "0.1.0", "groups": ["local:lab"],
        "capabilities": ["responder"] })
}

pub(crate) fn record(origin: &str, source: &str, seq: u64) -> Value {
    let time_unix_ns = 1_767_225_600_000_000_000_u64 + (seq % (1 << 20)) * 1_000_000_000;
    json!({ "origin": origin, "seq": seq, "source": source, "target": "south", "quantity": "rtt",
        "time_unix_ns": time_unix_ns, "value": 0.25 })
}

/// The body of a request with these records, one record on each line.
pub(crate) fn lines(records: &[Value]) -> String {
    records.iter().map(|record| format!("{record}\n")).collect()
}

fn kind(answer: &HttpResponse) -> String {
    answer.json()["kind"].as_str().unwrap_or_else(|| panic!("{}", answer.body)).to_string()
}

/// A configuration that keeps records with old labels, and measures nothing itself.
fn keeping(state: &std::path::Path) -> barograph_station::Config {
    let mut config = crate::quiet(state);
    config.sensor_period = std::time::Duration::from_hours(24);
    config.keep = std::time::Duration::MAX;
    config
}
