//! Stations that send files to each other at the request of a caller.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;

use barograph_forecast::Name;
use barograph_station::{Config, Station};
use serde_json::{Value, json};

use crate::http::{self, HttpResponse, get, get_until, post};
use crate::{LIMIT, quiet, serve};

fn config(top: &Path, host: &str) -> Config {
    let mut config = quiet(&top.join(format!("{host}-state")));
    config.host = Some(Name::new(host).unwrap());
    config.transfer.send = vec![top.join("out")];
    config.transfer.receive = vec![top.join("in")];
    config
}

fn line(at: &Station, directory: &Path) -> HttpResponse {
    post(at.address(), "/v1/transfers/lines", &json!({"directory": directory}).to_string())
}

fn send(at: &Station, paths: &[&Path], line: &str) -> HttpResponse {
    post(at.address(), "/v1/transfers", &json!({"paths": paths, "line": line}).to_string())
}

fn cancel(at: &Station, id: &str) -> HttpResponse {
    http::send(at.address(), "DELETE", &format!("/v1/transfers?id={id}"), &[], "")
}

/// Waits until the transfer is in this state.
fn until_state(at: &Station, id: &str, state: &str) -> Value {
    let find = |answer: &HttpResponse| {
        let rows = answer.json()["transfers"].as_array().unwrap().clone();
        rows.into_iter().find(|row| row["id"] == id && row["state"] == state)
    };
    let answer = get_until(at.address(), "/v1/transfers", |answer| {
        let rows = answer.json();
        let failed = rows["transfers"].as_array().unwrap().iter().any(|row| row["state"] == "failed");
        assert!(!failed || state == "failed", "{rows}");
        find(answer).is_some()
    });
    find(&answer).unwrap()
}

fn transfer_directories() -> tempfile::TempDir {
    let top = tempfile::tempdir().unwrap();
    for name in ["in/deep", "out/tree", "secret"] {
        fs::create_dir_all(top.path().join(name)).unwrap();
    }
    top
}

#[test]
fn a_third_party_starts_a_transfer_between_stations_with_a_measured_rate() {
    let directories = transfer_directories();
    let top = directories.path();
    let bytes: Vec<u8> = (0..48 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(top.join("out/tree/large"), &bytes).unwrap();
    fs::write(top.join("out/tree/small"), "x").unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut receiver = config(top, "b");
    receiver.transfer.ports = Some(port..=port);
    let (a, b) = (serve(config(top, "a")), serve(receiver));
    let made = line(&b, &top.join("in/deep"));
    assert_eq!(made.status, 201, "{}", made.body);
    let given = made.json()["line"].as_str().unwrap().to_string();
    assert!(given.contains(&format!(":{port}/")), "the one port that is allowed: {given}");
    let (line, waiting) = (made.json()["line"].clone(), made.json()["transfer"].clone());
    assert_eq!((&waiting["state"], &waiting["role"]), (&json!("waiting"), &json!("receiver")));
    let sent = send(&a, &[&top.join("out/tree")], line.as_str().unwrap());
    assert_eq!(sent.status, 202, "{}", sent.body);
    let row = until_state(&a, sent.json()["id"].as_str().unwrap(), "done");
    assert_eq!((&row["files"], &row["bytes"]), (&json!(2), &json!(bytes.len() + 1)), "{row}");
    assert!(row["lost"]["sent_packets"].as_u64().is_some_and(|packets| packets > 0), "{row}");
    until_state(&b, waiting["id"].as_str().unwrap(), "done");
    assert!(fs::read(top.join("in/deep/tree/large")).unwrap() == bytes, "the file came as it was");
    assert_eq!(fs::read(top.join("in/deep/tree/small")).unwrap(), b"x");
    // The record is stored shortly after the end of the transfer. The other station is in no mesh,
    // so its name is the host of the receiver address.
    let path = "/v1/latest?source=a&quantity=transfer";
    let latest = get_until(a.address(), path, |answer| answer.json()["latest"] != json!([])).json();
    let record = &latest["latest"][0];
    assert_eq!((&record["target"], &record["unit"]), (&json!("127.0.0.1"), &json!("bit/s")), "{record}");
    assert_eq!(record["value"], row["goodput_bit_s"], "{record}");
    // Receiver addresses and paths are not shown to all callers.
    let shown = get(b.address(), "/v1/transfers").body;
    assert!(!shown.contains("brg:") && !shown.contains("deep"), "{shown}");
    // The receiver address is valid for only one transfer.
    let again = send(&a, &[&top.join("out/tree")], line.as_str().unwrap());
    let row = until_state(&a, again.json()["id"].as_str().unwrap(), "failed");
    assert!(row["why"].is_string(), "{row}");
    for station in [a, b] {
        station.stop(LIMIT);
    }
}

#[test]
fn a_station_sends_and_receives_only_configured_paths() {
    let directories = transfer_directories();
    let top = directories.path();
    fs::write(top.join("secret/key"), "k").unwrap();
    symlink(top.join("secret"), top.join("out/way")).unwrap();
    let mut narrow = config(top, "a");
    narrow.transfer.transfers_max = 2;
    narrow.transfer.send.push(top.to_path_buf());
    narrow.transfer.receive.push(top.to_path_buf());
    let a = serve(narrow);
    let b = serve(Config { transfer: Default::default(), ..config(top, "b") });
    let given = line(&a, &top.join("in")).json();
    let given = given["line"].as_str().unwrap();
    for (station, path) in [(&b, "out"), (&a, "a-state"), (&a, "a-state/token"), (&a, "."), (&a, "none")] {
        let answer = send(station, &[&top.join(path)], given);
        assert_eq!(answer.status, 403, "{path}: {}", answer.body);
        let answer = line(station, &top.join(path));
        assert_eq!(answer.status, 403, "{path}: {}", answer.body);
    }
    assert_eq!(line(&a, Path::new("in")).status, 403, "no whole path");
    assert_eq!(send(&a, &[], given).status, 400);
    let answer = send(&a, &[&top.join("out")], "brg://nowhere");
    assert!(answer.status == 400 && answer.error().contains("`line`"), "{}", answer.body);
    // One transfer already waits for its sender.
    let second = line(&a, &top.join("in"));
    assert_eq!(second.status, 201, "{}", second.body);
    assert_eq!(line(&a, &top.join("in")).status, 429);
    let id = second.json()["transfer"]["id"].as_str().unwrap().to_string();
    let ended = cancel(&a, &id);
    assert_eq!((ended.status, &ended.json()["state"]), (200, &json!("cancelled")), "{}", ended.body);
    assert_eq!(cancel(&a, &id).status, 404);
    assert_eq!(line(&a, &top.join("in")).status, 201, "there is room again");
    for station in [a, b] {
        station.stop(LIMIT);
    }
}
