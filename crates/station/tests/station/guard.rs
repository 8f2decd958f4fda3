//! Access control of requests, and attacks that must fail.

use std::io::{Read, Write};

use serde_json::json;

use crate::http::{SseReader, connect, get, post, raw, send};
use crate::{quiet, start, start_new, up};

const TYPE: (&str, &str) = ("Content-Type", "application/json");

#[test]
fn a_caller_on_another_host_needs_the_token() {
    let state = tempfile::tempdir().unwrap();
    let station = start(quiet(state.path()));
    let address = station.address();
    let token = std::fs::read_to_string(state.path().join("token")).unwrap();
    let bearer = format!("Bearer {}", token.trim());
    // With a proxy's header, a request on loopback counts as a request from another host.
    let elsewhere = ("X-Forwarded-For", "192.0.2.9");
    let body = r#"{"records": []}"#;
    let ask = |headers: &[(&str, &str)]| send(address, "POST", "/v1/measurements", headers, body).status;
    assert_eq!(ask(&[TYPE]), 201);
    assert_eq!(ask(&[TYPE, elsewhere]), 401);
    assert_eq!(ask(&[TYPE, elsewhere, ("Authorization", "Bearer wrong")]), 401);
    assert_eq!(ask(&[TYPE, elsewhere, ("Authorization", "Basic eDp5")]), 401);
    assert_eq!(
        ask(&[TYPE, ("Authorization", "Bearer wrong")]),
        401,
        "a wrong token is told also on loopback"
    );
    assert_eq!(ask(&[TYPE, elsewhere, ("Authorization", &bearer)]), 201);
    assert_eq!(send(address, "GET", "/v1/series", &[elsewhere], "").status, 200, "reading is free");
    assert_eq!(send(address, "DELETE", "/v1/targets?target=a:1", &[elsewhere], "").status, 401);
    let upgrade = [("Connection", "Upgrade"), ("Upgrade", "barograph-probe/1"), elsewhere];
    let refused = send(address, "GET", "/v1/probe", &upgrade, "");
    assert_eq!(refused.status, 401);
    assert!(refused.head.contains("upgrade: barograph-probe/1"), "a refusal says that here is a station");
    let old =
        "POST /v1/measurements HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n";
    assert_eq!(raw(address, format!("{old}{body}").as_bytes()).status, 401, "as proxies speak by default");
}

#[test]
fn other_hosts_cannot_add_targets_unless_allowed() {
    let state = tempfile::tempdir().unwrap();
    let station = start(quiet(state.path()));
    let token = std::fs::read_to_string(state.path().join("token")).unwrap();
    let bearer = format!("Bearer {}", token.trim());
    let headers = [TYPE, ("X-Forwarded-For", "192.0.2.9"), ("Authorization", bearer.as_str())];
    let body = json!({ "target": "192.0.2.1:80", "quantities": ["connect"], "period_s": 86400 }).to_string();
    let add = || send(station.address(), "POST", "/v1/targets", &headers, &body);
    let refused = add();
    assert_eq!(refused.status, 403);
    assert!(refused.error().contains("allow_remote_targets"));
    let mut config = quiet(state.path());
    config.allow_remote_targets = true;
    assert!(station.reload(config).unwrap().is_empty());
    assert_eq!(add().status, 201);
}

#[test]
fn requests_of_pages_of_other_sites_are_refused() {
    let state = tempfile::tempdir().unwrap();
    let mut config = quiet(state.path());
    config.allowed_hosts = vec!["weather.example".into()];
    let station = start(config);
    let address = station.address();
    let status = |method: &str, headers: &[(&str, &str)]| {
        let path = if method == "GET" { "/v1/series" } else { "/v1/measurements" };
        send(address, method, path, headers, r#"{"records": []}"#).status
    };
    // A name that was rebound to 127.0.0.1 by DNS.
    assert_eq!(status("GET", &[("Host", "evil.example")]), 421);
    assert_eq!(status("GET", &[("Host", &format!("evil.example:{}", address.port()))]), 421);
    for host in ["localhost", "here", "weather.example", "[::1]:7", "127.0.0.1"] {
        assert_eq!(status("GET", &[("Host", host)]), 200, "{host}");
    }
    let own = format!("http://{address}");
    assert_eq!(status("POST", &[TYPE, ("Origin", "http://evil.example")]), 403);
    assert_eq!(status("POST", &[TYPE, ("Origin", "null")]), 403);
    assert_eq!(status("POST", &[TYPE, ("Sec-Fetch-Site", "cross-site")]), 403);
    assert_eq!(status("POST", &[TYPE, ("Origin", &own), ("Sec-Fetch-Site", "same-origin")]), 201);
    assert_eq!(
        status("POST", &[("Content-Type", "text/plain")]),
        415,
        "a form needs no permission to be sent"
    );
    for hosts in ["", "Host: a\r\nHost: localhost\r\n"] {
        let bad = format!("GET / HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n");
        assert_eq!(raw(address, bad.as_bytes()).status, 400, "{bad}");
    }
    assert_eq!(
        raw(address, b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .status,
        421
    );
}

#[test]
fn heads_streams_and_connections_are_bounded() {
    let state = tempfile::tempdir().unwrap();
    let mut config = quiet(state.path());
    config.connections_max = 3;
    config.streams_max = 1;
    let station = start(config);
    let address = station.address();
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(40_000));
    assert_eq!(raw(address, long.as_bytes()).status, 431);
    let many: String = (0..100).map(|i| format!("X-{i}: y\r\n")).collect();
    assert_eq!(
        raw(address, format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n").as_bytes()).status,
        431
    );
    assert_eq!(raw(address, b"\x00\x01garbage\r\n\r\n").status, 400);

    let events = SseReader::open(address, "/v1/stream");
    let second = crate::http::get_until(address, "/v1/stream", |answer| answer.status == 503);
    assert!(second.error().contains("streams_max"));
    // Two more idle connections take the last slots. The station closes one of these two
    // connections for the next caller.
    let silent = [connect(address), connect(address)];
    assert_eq!(get(address, "/v1/station").status, 200);
    drop((events, silent));
}

#[test]
fn a_caller_that_finds_all_connections_busy_gets_the_reason() {
    let state = tempfile::tempdir().unwrap();
    let station = start(barograph_station::Config { connections_max: 1, ..quiet(state.path()) });
    let address = station.address();
    let events = SseReader::open(address, "/v1/stream");
    let mut refused = String::new();
    let mut asking = connect(address);
    asking.set_read_timeout(Some(crate::LIMIT)).unwrap();
    // A caller that has sent a request must get the response. The station must not reset the
    // connection, because a reset would discard the response.
    asking.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    asking.read_to_string(&mut refused).unwrap();
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("connections_max"), "{refused}");
    drop(events);
    crate::http::wait_until_reachable(address);
    station.stop(crate::LIMIT);
}

/// A request that waits for a mesh without a response does not keep its connection. The station
/// closes this connection for a new caller.
#[test]
fn a_waiting_request_gives_its_connection_to_a_new_caller() {
    let state = tempfile::tempdir().unwrap();
    let mesh = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = barograph_station::Config { connections_max: 2, ..quiet(state.path()) };
    config.mesh.join = Some(format!("http://{}/", mesh.local_addr().unwrap()));
    config.mesh.join_token = Some(barograph_station::target::Secret::new("0123456789abcdef".into()));
    let station = up(config);
    let address = station.address();
    let mut waiting = connect(address);
    waiting.set_read_timeout(Some(crate::LIMIT)).unwrap();
    waiting.write_all(b"GET /v1/latest?source=elsewhere HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    // When the stream is open, the waiting request has arrived, too.
    let events = SseReader::open(address, "/v1/stream");
    assert_eq!(get(address, "/v1/station").status, 200);
    assert!(matches!(waiting.read(&mut [0; 16]), Ok(0) | Err(_)), "it was closed for the newcomer");
    drop(events);
}

#[test]
fn a_probe_needs_an_upgrade_and_then_uses_the_connection() {
    let station = start_new(quiet);
    let address = station.address();
    assert_eq!(get(address, "/v1/probe").status, 426);
    let target = barograph_probe::Target::parse(&format!("http://{address}/")).unwrap();
    let context = barograph_probe::io::ProbeContext::default();
    let readings = barograph_probe::io::probe(&target, 65_536, &context);
    let quantities: Vec<&str> = readings.iter().map(|reading| reading.quantity.as_str()).collect();
    assert_eq!(quantities, ["rtt", "rtt_nagle", "loss", "rtt_udp", "goodput", "goodput_down"]);
    for reading in readings {
        assert!(reading.result.is_ok(), "{reading:?}");
    }
}

#[test]
fn targets_can_be_added_listed_and_removed_and_survive_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let station = start(quiet(state.path()));
    let address = station.address();
    let body =
        json!({ "target": "HTTP://127.0.0.1:9", "quantities": ["connect"], "period_s": 86400 }).to_string();
    let added = post(address, "/v1/targets", &body);
    assert_eq!((added.status, added.json()["target"].as_str()), (201, Some("http://127.0.0.1:9/")));
    assert_eq!(post(address, "/v1/targets", &body).status, 409);
    for (body, word) in [
        (r#"{"target": "nowhere"}"#, "nowhere"),
        (r#"{"target": "a:1", "period_s": 0}"#, "period_s"),
        (r#"{"target": "a:1", "quantities": ["x"]}"#, "`x`"),
        (r#"{"target": "a:1", "perod_s": 1}"#, "perod_s"),
    ] {
        let refused = post(address, "/v1/targets", body);
        assert!(refused.status == 400 && refused.error().contains(word), "{body}: {}", refused.body);
    }
    station.stop(crate::LIMIT);
    let station = start(quiet(state.path()));
    let address = station.address();
    let list = get(address, "/v1/targets").json();
    assert_eq!(list["targets"][0]["target"], "http://127.0.0.1:9/");
    assert_eq!(list["targets"][0]["from"], "added");
    let remove = || send(address, "DELETE", "/v1/targets?target=http%3A%2F%2F127.0.0.1%3A9", &[], "");
    assert_eq!(remove().status, 200);
    assert_eq!(remove().status, 404);
}

#[test]
fn a_peer_that_sends_half_a_request_does_not_delay_the_stop() {
    let station = start_new(quiet);
    let address = station.address();
    let mut slow = connect(address);
    slow.write_all(b"POST /v1/measurements HTTP/1.1\r\nHost: localhost\r\n").unwrap();
    assert_eq!(get(address, "/healthz").status, 200);
    let began = std::time::Instant::now();
    station.stop(crate::LIMIT);
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "it waited for the slow peer");
}

#[test]
fn wrong_credentials_are_counted_and_do_not_slow_right_credentials() {
    let state = tempfile::tempdir().unwrap();
    let station = crate::serve(quiet(state.path()));
    let address = station.address();
    let with = |path: &str, token: &str| {
        let method = if path.starts_with("/v1/engine") { "GET" } else { "DELETE" };
        send(address, method, path, &[("Authorization", &format!("Bearer {token}"))], "").status
    };
    let began = std::time::Instant::now();
    for _ in 0..6 {
        assert_eq!(with("/v1/targets?target=a:1", "wrong"), 401);
        assert_eq!(with("/v1/engine/next_seq?origin=a", "wrong"), 401);
    }
    // The delays are 100, 200, 400 and 800 ms, reduced by the time that has elapsed.
    assert!(std::time::Duration::from_secs(1) <= began.elapsed(), "{:?}", began.elapsed());
    let metrics = crate::http::get(address, "/metrics").body;
    for kind in ["token", "invitation"] {
        let line = format!("barograph_wrong_credentials_total{{kind=\"{kind}\"}} 6");
        assert!(metrics.contains(&line), "{metrics}");
    }
    // While the response to a wrong token is delayed, the station answers other requests.
    let token = std::fs::read_to_string(state.path().join("token")).unwrap();
    let wrong = std::thread::spawn(move || {
        let began = std::time::Instant::now();
        let bearer = [("Authorization", "Bearer wrong")];
        assert_eq!(send(address, "DELETE", "/v1/targets?target=a:1", &bearer, "").status, 401);
        began.elapsed()
    });
    let began = std::time::Instant::now();
    assert_eq!(with("/v1/targets?target=a:1", token.trim()), 404);
    let right = began.elapsed();
    assert!(right < wrong.join().unwrap(), "{right:?}");
    station.stop(crate::LIMIT);
}

/// A peer repeatedly requests a challenge by sending only the scheme. Such a request does not count
/// as a wrong signature, and its response is not delayed.
#[test]
fn a_challenge_request_does_not_count_as_a_wrong_signature() {
    let station = start_new(quiet);
    let headers =
        [("Authorization", "Barograph-Station"), ("Connection", "Upgrade"), ("Upgrade", "barograph-probe/1")];
    for _ in 0..40 {
        assert_eq!(send(station.address(), "GET", "/v1/probe", &headers, "").status, 401);
    }
    let metrics = get(station.address(), "/metrics").body;
    assert!(metrics.contains("barograph_wrong_credentials_total{kind=\"signature\"} 0"), "{metrics}");
}
