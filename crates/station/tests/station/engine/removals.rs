//! Removals of members: each is complete, is written before the answer, and is not undone by
//! applications.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use barograph_station::Config;
use serde_json::json;

use super::{ask, invite, keeping, lines, record, register, register_in};
use crate::http::{get, get_until, post, send};
use crate::{Running, serve};

fn is_in_file(state: &Path, name: &str) -> bool {
    let text = std::fs::read_to_string(state.join("removed.json")).unwrap_or_default();
    text.contains(&format!("\"{name}\""))
}

fn remove(address: SocketAddr, name: &str) -> u16 {
    send(address, "DELETE", &format!("/v1/members?name={name}"), &[], "").status
}

fn series_from(address: SocketAddr, source: &str) -> serde_json::Value {
    get(address, &format!("/v1/series?source={source}")).json()["series"].clone()
}

fn is_member(address: SocketAddr, name: &str) -> bool {
    let members = get(address, "/v1/members").json();
    members["members"].as_array().unwrap().iter().any(|member| member["name"] == name)
}

/// Starts a station in `state`. The returned configuration starts it again at the same address.
fn serve_in(state: &Path) -> (Running, Config) {
    let mut config = keeping(state);
    let station = serve(config.clone());
    config.listen = station.address();
    (station, config)
}

/// Invites and registers a station, which forwards a record.
fn join(address: SocketAddr, name: &str) {
    let token = invite(address, Some(name));
    assert_eq!(register(address, &token, name).status, 200);
    measure(address, &token, name, 1);
}

fn measure(address: SocketAddr, token: &str, name: &str, seq: u64) {
    let measured = ask(address, token, "POST", "records", &lines(&[record(name, name, seq)]));
    assert_eq!(measured.status, 200, "{}", measured.body);
}

#[test]
fn a_removal_is_completed_after_its_caller_disconnected() {
    let state = tempfile::tempdir().unwrap();
    let station = serve(keeping(state.path()));
    let address = station.address();
    let names: Vec<String> = (0..10).map(|i| format!("m{i}")).collect();
    for name in &names {
        join(address, name);
    }
    for name in &names {
        let request = format!(
            "DELETE /v1/members?name={name} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
        );
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        drop(stream);
    }
    // The last removal arrives after the others.
    assert_eq!(register(address, &invite(address, Some("last")), "last").status, 200);
    assert_eq!(remove(address, "last"), 200);
    for name in names {
        // The station may have noticed the end of the connection before it read the request.
        if is_member(address, &name) {
            assert_eq!(remove(address, &name), 200);
        }
        get_until(address, &format!("/v1/series?source={name}"), |answer| {
            answer.json() == json!({ "series": [] }) && is_in_file(state.path(), &name)
        });
    }
}

/// A station that stops between the two writes of a removal has withdrawn the invitation, and has
/// not recorded the removal.
#[test]
fn a_removal_that_a_crash_cut_short_can_be_repeated() {
    let state = tempfile::tempdir().unwrap();
    let (station, config) = serve_in(state.path());
    let address = station.address();
    join(address, "b");
    drop(station);
    std::fs::remove_file(state.path().join("members")).unwrap();
    let _station = serve(config);
    assert_ne!(series_from(address, "b"), json!([]));
    for _ in 0..2 {
        assert_eq!(remove(address, "b"), 200);
        assert!(is_in_file(state.path(), "b"));
        assert_eq!(series_from(address, "b"), json!([]));
    }
    let application =
        json!({ "origin": "app", "records": [{ "target": "q", "quantity": "depth", "value": 1, "seq": 1 }] });
    assert_eq!(post(address, "/v1/measurements", &application.to_string()).status, 201);
    assert_eq!(["app", "unknown"].map(|name| remove(address, name)), [404, 404], "they are no stations");
}

#[test]
fn a_station_that_returned_in_other_groups_can_be_removed_again() {
    let state = tempfile::tempdir().unwrap();
    let station = serve(keeping(state.path()));
    let address = station.address();
    for seq in 1..=3 {
        // No watch of the serving station covers this group.
        let token = invite(address, Some("b"));
        assert_eq!(register_in(address, &token, "b", &["local:elsewhere"]).status, 200);
        measure(address, &token, "b", seq);
        get_until(address, "/v1/series?source=b", |answer| answer.json() != json!({ "series": [] }));
        assert_eq!(remove(address, "b"), 200);
        assert!(is_in_file(state.path(), "b"));
        assert_eq!(series_from(address, "b"), json!([]));
    }
}

#[test]
fn an_application_does_not_bring_back_a_removed_station() {
    let state = tempfile::tempdir().unwrap();
    let (station, config) = serve_in(state.path());
    let address = station.address();
    join(address, "b");
    let submit = |body: serde_json::Value| {
        let answer = post(address, "/v1/measurements", &json!({ "records": [body] }).to_string());
        assert_eq!(answer.status, 201, "{}", answer.body);
    };
    assert_eq!(remove(address, "b"), 200);
    submit(json!({ "target": "b", "quantity": "depth", "value": 1 }));
    // A value of before the removal is stored and not shown.
    submit(json!({ "target": "b", "quantity": "old", "value": 1, "time_s": 1_767_225_600 }));
    let targets = |quantity: &str| {
        get(address, &format!("/v1/series?target=b&quantity={quantity}")).json()["series"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!((targets("depth"), targets("old")), (1, 0));
    let latest = get(address, "/v1/latest?target=b").json();
    assert_eq!(latest["latest"].as_array().unwrap().len(), 1, "{latest}");
    // A registration wakes the thread that writes the list of removed stations.
    assert_eq!(register(address, &invite(address, Some("c")), "c").status, 200);
    assert_eq!(remove(address, "c"), 200);
    assert!(is_in_file(state.path(), "b"));
    drop(station);
    let _station = serve(config);
    assert_eq!(series_from(address, "b"), json!([]));
}

#[test]
fn a_member_with_the_name_of_a_target_can_be_removed() {
    let state = tempfile::tempdir().unwrap();
    let (station, config) = serve_in(state.path());
    let address = station.address();
    let name = "192.0.2.9:80";
    assert_eq!(register(address, &invite(address, Some(name)), name).status, 200);
    let target =
        post(address, "/v1/targets", &json!({ "target": name, "quantities": ["connect"] }).to_string());
    assert_eq!(target.status, 201, "{}", target.body);
    assert_eq!(remove(address, name), 200);
    assert!(is_in_file(state.path(), name));
    drop(station);
    let _station = serve(config);
    assert!(is_in_file(state.path(), name));
}
