//! Bulk tests between stations, within the budgets of both ends.

mod neighbours;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use barograph_engine::Engine;
use barograph_forecast::Name;
use barograph_probe::wire::{self, DeclineReason, Reply, Request};
use barograph_station::target::Secret;
use barograph_station::{Config, Station};
use serde_json::{Value, json};

use crate::http::{HttpResponse, get, get_until, post};
use crate::mesh::{block_on, directory, entry, joined};
use crate::{LIMIT, Running, quiet, serve, up};

pub(crate) fn config(state: &Path, host: &str) -> Config {
    let mut config = quiet(state);
    config.host = Some(Name::new(host).unwrap());
    config.probe_period = Duration::from_millis(200);
    // This period is so long that no scheduled bulk test starts while a test of this file runs.
    // Some tests of this file set a shorter period.
    config.mesh.bulk_every = Duration::from_secs(86_400);
    config
}

/// Starts a station that joins `head`.
pub(crate) fn join(head: &Station, mut config: Config) -> Running {
    let answer = post(head.address(), "/v1/invitations", "{}");
    assert_eq!(answer.status, 201, "{}", answer.body);
    config.mesh.join = Some(head.url());
    config.mesh.join_token = Some(Secret::new(answer.json()["token"].as_str().unwrap().into()));
    up(config)
}

pub(crate) fn until_peers(station: &Station, other: &str) {
    get_until(station.address(), "/v1/peers", |answer| {
        let peers = answer.json()["peers"].as_array().unwrap().clone();
        peers.iter().any(|peer| peer["host"] == other && peer["address"].is_string())
    });
}

pub(crate) fn test(station: &Station, to: &str) -> HttpResponse {
    post(station.address(), "/v1/tests", &json!({"to": to, "seconds": 0.2}).to_string())
}

pub(crate) fn tests(address: SocketAddr) -> Vec<Value> {
    get(address, "/v1/tests").json()["tests"].as_array().unwrap().clone()
}

#[test]
fn new_peers_test_each_other_in_their_turns_and_forecast_goodput() {
    let state = tempfile::tempdir().unwrap();
    let [a_config, b_config, c_config] = ["a", "b", "c"].map(|host| {
        let mut config = config(&state.path().join(host), host);
        config.mesh.bulk_every = Duration::from_secs(2);
        // Use short tests: they seldom run at the same time, and each station can test both other
        // stations before its budget is used up.
        config.mesh.bulk_length = Duration::from_millis(100);
        config.mesh.bulk_share = Some(1.0);
        config.mesh.bulk_bytes_per_hour = Some(1_000_000_000_000);
        config
    });
    let a = serve(a_config);
    let b = join(&a, b_config);
    let c = join(&a, c_config);
    for (station, others) in [(&a, ["b", "c"]), (&b, ["a", "c"]), (&c, ["a", "b"])] {
        for other in others {
            let path = format!("/v1/forecast?source={}&target={other}&quantity=goodput", station.host());
            // A refused station tries again after ten or twenty seconds.
            let is_forecast =
                || !get(station.address(), &path).json()["forecasts"].as_array().unwrap().is_empty();
            let began = Instant::now();
            while !is_forecast() {
                assert!(began.elapsed() < 3 * LIMIT, "{path}: {}", get(station.address(), "/v1/tests").body);
                std::thread::park_timeout(Duration::from_millis(50));
            }
        }
    }
    // The archive stores the record a moment after it is learnt.
    let path = "/v1/latest?source=a&target=b&quantity=goodput";
    let latest = get_until(a.address(), path, |answer| answer.json()["latest"] != json!([])).json();
    let record = &latest["latest"][0];
    let detail = &record["detail"];
    assert!(record["value"].as_f64().is_some_and(|rate| rate > 1e6), "{record}");
    assert!(detail["test_s"].as_f64().is_some_and(|seconds| 0.0 < seconds && seconds <= 0.1), "{record}");
    assert!(detail["bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{record}");
    let metrics = get(a.address(), "/metrics").body;
    assert!(metrics.contains("barograph_mesh_tests_total{role=\"source\",result=\"done\"}"), "{metrics}");
    for station in [c, b, a] {
        station.stop(LIMIT);
    }
}

#[test]
fn a_test_on_demand_counts_at_both_ends_and_a_spent_budget_refuses() {
    let state = tempfile::tempdir().unwrap();
    let small = |host: &str, bytes: u64| {
        let mut config = config(&state.path().join(host), host);
        config.mesh.bulk_bytes_per_hour = Some(bytes);
        config
    };
    let a = serve(small("a", 1_000_000_000));
    let b = join(&a, small("b", 10_000_000));
    until_peers(&a, "b");
    until_peers(&b, "a");
    let answer = test(&a, "b");
    assert_eq!(answer.status, 200, "{}", answer.body);
    let made = answer.json();
    assert_eq!((made["state"].as_str(), made["role"].as_str()), (Some("done"), Some("source")), "{made}");
    let bytes = made["bytes"].as_u64().unwrap();
    assert!(0 < bytes && bytes <= 5_000_000, "the target allows half of its hour's bytes: {made}");
    let of_b = get(b.address(), "/v1/tests").json();
    assert_eq!(of_b["tests"][0]["role"], "target", "{of_b}");
    assert_eq!(of_b["tests"][0]["bytes"].as_u64(), Some(bytes), "{of_b}");
    assert_eq!(of_b["budget"]["spent"]["target"]["bytes"].as_u64(), Some(bytes), "{of_b}");
    let of_a = get(a.address(), "/v1/tests").json();
    assert_eq!(of_a["budget"]["spent"]["source"]["bytes"].as_u64(), Some(bytes), "{of_a}");
    // On loopback each test moves the maximum of 5 MB, so the budget of this station or of the peer
    // is soon used up.
    let mut refused = None;
    for _ in 0..4 {
        let answer = test(&a, "b");
        if answer.status == 429 {
            refused = Some(answer);
            break;
        }
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let refused = refused.expect("a budget that is spent");
    assert!(refused.error().contains("budget") && refused.head.contains("retry-after: "), "{}", refused.body);
    assert!(refused.json()["retry_after_s"].as_f64().is_some_and(|wait| wait > 60.0), "{}", refused.body);
    let newest = &tests(b.address())[0];
    assert_eq!((newest["state"].as_str(), newest["role"].as_str()), (Some("refused"), Some("target")));
    // A refusal is not a measurement.
    let path = "/v1/series?source=a&target=b&quantity=goodput";
    let series = get_until(a.address(), path, |answer| answer.json()["series"] != json!([])).json();
    assert_eq!(series["series"][0]["failures"], 0, "{series}");
    // The target's own budget includes the tests that it accepted.
    let own = test(&b, "a");
    let spent = get(b.address(), "/v1/tests").json();
    let part = |role: &str| spent["budget"]["spent"][role]["bytes"].as_u64().unwrap();
    assert!(part("source") + part("target") <= 15_000_000, "{spent}");
    assert!(matches!(own.status, 200 | 429), "{}", own.body);
}

#[test]
fn only_a_station_that_makes_early_tests_offers_packet_trains() {
    let state = tempfile::tempdir().unwrap();
    let a = serve(config(&state.path().join("a"), "a"));
    let early = |host: &str, is_paper: bool| {
        let mut config = config(&state.path().join(host), host);
        config.mesh.bulk_early_tests = true;
        config.mesh.bulk_paper = is_paper;
        config
    };
    let (b, c) = (join(&a, early("b", false)), join(&a, early("c", true)));
    for (station, other, offers) in [(&a, "b", true), (&a, "c", false), (&b, "a", false)] {
        until_peers(station, other);
        let peers = get(station.address(), "/v1/peers").json()["peers"].clone();
        let peer = peers.as_array().unwrap().iter().find(|peer| peer["host"] == other).unwrap();
        let capabilities = peer["capabilities"].as_array().unwrap();
        assert_eq!(capabilities.contains(&json!("trains")), offers, "{peer}");
    }
    let metrics = get(b.address(), "/metrics").body;
    for name in ["early_tests_total{reason=\"train\"} 0", "trains_total{result=\"lost\"} 0"] {
        assert!(metrics.contains(&format!("barograph_mesh_{name}")), "{metrics}");
    }
    for station in [c, b, a] {
        station.stop(LIMIT);
    }
}

#[test]
fn a_restart_does_not_restore_spent_budget() {
    let state = tempfile::tempdir().unwrap();
    let of_a = || config(&state.path().join("a"), "a");
    let a = serve(of_a());
    let b = join(&a, config(&state.path().join("b"), "b"));
    until_peers(&a, "b");
    until_peers(&b, "a");
    let answer = test(&a, "b");
    assert_eq!(answer.status, 200, "{}", answer.body);
    let spent = |station: &Station| get(station.address(), "/v1/tests").json()["budget"]["spent"].clone();
    let before = spent(&a);
    assert!(before["source"]["bytes"].as_u64().unwrap() > 0, "{before}");
    b.stop(LIMIT);
    a.stop(LIMIT);
    let a = serve(of_a());
    assert_eq!(spent(&a), before);
}

#[test]
fn a_station_without_consent_or_outside_the_mesh_is_not_tested() {
    let state = tempfile::tempdir().unwrap();
    let a = serve(config(&state.path().join("a"), "a"));
    let mut unwilling = config(&state.path().join("b"), "b");
    unwilling.mesh.bulk = false;
    let b = join(&a, unwilling);
    until_peers(&a, "b");
    until_peers(&b, "a");
    assert_eq!(test(&a, "b").status, 404, "it says that it takes part in none");
    assert_eq!(test(&a, "nobody").status, 404);
    let answer = test(&b, "a");
    assert!(answer.status == 403 && answer.error().contains("mesh.bulk"), "{}", answer.body);
    for body in [r#"{"to": "b", "seconds": 0}"#, r#"{"to": "b", "seconds": 60}"#, r#"{"to": ""}"#, "{}"] {
        let answer = post(a.address(), "/v1/tests", body);
        assert_eq!(answer.status, 400, "{body}: {}", answer.body);
    }
    assert!(tests(a.address()).is_empty() && tests(b.address()).is_empty());
    b.stop(LIMIT);
    a.stop(LIMIT);
}

/// Function that handles a connection. The arguments are the connection and the request that was
/// read from the connection.
type Served = fn(TcpStream, Option<Request>);

/// A fake station: it admits every caller, then handles the connection and its request with
/// `served`.
fn fake(name: &'static str, served: Served) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                stream.set_read_timeout(Some(LIMIT)).unwrap();
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
                    head.push(byte[0]);
                }
                let answer = format!(
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: {}\r\nBarograph-Station: {name}\r\n\r\n",
                    wire::UPGRADE
                );
                let _ = stream.write_all(answer.as_bytes());
                let mut request = [0; wire::REQUEST_BYTES];
                if stream.read_exact(&mut request).is_ok() {
                    served(stream, Request::decode(&request).ok());
                }
            });
        }
    });
    address
}

/// A station of a version without streams: it declines every request.
pub(crate) fn old_station(name: &'static str) -> SocketAddr {
    fake(name, declines)
}

fn declines(mut stream: TcpStream, _: Option<Request>) {
    let _ = stream.write_all(&Reply::Declined(DeclineReason::Malformed).encode());
}

#[test]
fn goodput_fails_for_a_peer_without_stream_support() {
    let state = tempfile::tempdir().unwrap();
    let directory = directory(&state.path().join("d"));
    let a = joined(config(&state.path().join("a"), "a"), Some(&directory));
    let at = old_station("old").to_string();
    let mut old = entry("old", &[&at]);
    old.capabilities.bulk = true;
    let lease = block_on(directory.register(&old, Duration::from_secs(10))).unwrap();
    until_peers(&a, "old");
    let answer = test(&a, "old");
    assert_eq!(answer.status, 200, "{}", answer.body);
    let made = answer.json();
    assert_eq!((made["state"].as_str(), made["bytes"].as_u64()), (Some("failed"), Some(0)), "{made}");
    let path = "/v1/latest?source=a&target=old&quantity=goodput";
    let latest =
        get_until(a.address(), path, |answer| !answer.json()["latest"].as_array().unwrap().is_empty());
    assert_eq!(latest.json()["latest"][0]["error"], "declined", "{}", latest.body);
    drop(lease);
}
