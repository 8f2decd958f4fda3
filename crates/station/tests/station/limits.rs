//! Limits of a station: nothing is refused in silence.

use std::net::SocketAddr;

use barograph_station::Config;
use serde_json::Value;

use crate::engine::{ask, invite, lines, record, register};
use crate::http::{get, post, send};
use crate::{quiet, serve, start};

/// The row of a limit in `/healthz`.
fn limit(address: SocketAddr, name: &str) -> Value {
    let health = get(address, "/healthz").json();
    let rows = health["limits"].as_array().unwrap();
    rows.iter().find(|row| row["limit"] == name).unwrap_or_else(|| panic!("{health}")).clone()
}

#[test]
fn a_full_bank_is_degraded_and_names_the_setting() {
    let state = tempfile::tempdir().unwrap();
    let station = start(Config { series_max: 1, ..quiet(state.path()) });
    let address = station.address();
    let before = limit(address, "series");
    assert_eq!((&before["max"], &before["refused"], &before["since"]), (&1.into(), &0.into(), &Value::Null));
    let two = r#"{"records": [{"quantity": "a", "value": 1}, {"quantity": "b", "value": 1}]}"#;
    assert_eq!(post(address, "/v1/measurements", two).status, 429);
    let full = limit(address, "series");
    assert_eq!(full["setting"], "limits.series_max");
    assert!(0 < full["refused"].as_u64().unwrap() && full["since"].as_f64().is_some(), "{full}");
    let health = get(address, "/healthz");
    assert_eq!(health.status, 503);
    assert!(health.json()["reasons"].to_string().contains("raise limits.series_max"), "{}", health.body);
    let station_says = get(address, "/v1/station").json()["refusing"].to_string();
    assert!(station_says.contains("raise limits.series_max"), "{station_says}");
    let metrics = get(address, "/metrics").body;
    assert!(!metrics.contains("barograph_limit_refused_total{limit=\"series\"} 0"), "{metrics}");
}

#[test]
fn a_stream_too_many_is_counted() {
    let state = tempfile::tempdir().unwrap();
    let station = start(Config { streams_max: 0, ..quiet(state.path()) });
    assert_eq!(get(station.address(), "/v1/stream").status, 503);
    assert_eq!(get(station.address(), "/v1/peers/events").status, 503);
    let streams = limit(station.address(), "streams");
    assert_eq!((&streams["refused"], &streams["max"]), (&2.into(), &0.into()));
    // Callers can cause that at will, and monitoring shall not take the station for broken.
    let health = get(station.address(), "/healthz");
    assert_eq!((health.status, &health.json()["reasons"]), (200, &serde_json::json!([])));
    let says = health.json()["warnings"].to_string();
    assert!(says.contains("live streams") && says.contains("raise limits.streams_max"), "{says}");
}

#[test]
fn an_address_with_its_share_is_a_warning_that_names_the_settings() {
    let state = tempfile::tempdir().unwrap();
    let mut config = quiet(state.path());
    config.echo.peer_bytes_per_hour = 1;
    let station = start(config);
    let address = station.address();
    let host = format!("127.0.0.1:{}", address.port());
    let headers = [("Host", host.as_str()), ("X-Forwarded-For", "192.0.2.1")];
    assert_eq!(send(address, "GET", "/v1/echo", &headers, "").status, 503);
    let share = limit(address, "address_share");
    let setting = share["setting"].as_str().unwrap_or_default();
    assert!(setting.contains("limits.connections_max") && share["refused"] == 1, "{share}");
    let health = get(address, "/healthz");
    assert_eq!(health.status, 200);
    assert!(health.json()["warnings"].to_string().contains("one address"), "{}", health.body);
}

/// The pace of a member that has sent too much is no fault, and is counted.
#[test]
fn a_member_that_has_to_wait_is_counted_and_no_warning() {
    let state = tempfile::tempdir().unwrap();
    let station = serve(quiet(state.path()));
    let address = station.address();
    let token = invite(address, None);
    let last = (0..40).map(|_| register(address, &token, "a")).find(|answer| answer.status == 429);
    assert!(last.is_some(), "40 registrations at once are more than a burst");
    assert_eq!(limit(address, "member_pace")["refused"], 1);
    assert_eq!(get(address, "/healthz").json()["warnings"], serde_json::json!([]));
}

#[test]
fn a_transfer_too_many_is_counted() {
    let state = tempfile::tempdir().unwrap();
    let places = tempfile::tempdir().unwrap();
    let mut config = quiet(state.path());
    config.transfer.receive = vec![places.path().into()];
    config.transfer.transfers_max = 0;
    let station = start(config);
    let body = serde_json::json!({ "directory": places.path() }).to_string();
    assert_eq!(post(station.address(), "/v1/transfers/lines", &body).status, 429);
    let transfers = limit(station.address(), "transfers");
    assert_eq!(transfers["setting"], "transfer.transfers_max");
    assert_eq!(transfers["refused"], 1);
}

/// A mesh larger than the station that keeps it can hold says so to the station that joins, and to nobody later.
#[test]
fn a_member_whose_series_find_no_room_is_refused_at_joining() {
    let state = tempfile::tempdir().unwrap();
    // The station itself is in other groups: two members need six series, and three need eighteen.
    let station = serve(Config { series_max: 17, ..quiet(state.path()) });
    let address = station.address();
    let tokens: Vec<String> = (0..3).map(|_| invite(address, None)).collect();
    for (token, host) in tokens.iter().zip(["a", "b"]) {
        assert_eq!(register(address, token, host).status, 200);
    }
    let refused = register(address, &tokens[2], "c");
    assert_eq!(refused.status, 403, "{}", refused.body);
    assert!(refused.error().contains("set limits.series_max to 18 or more"), "{}", refused.body);
    assert_eq!(ask(address, &tokens[2], "POST", "records", &lines(&[record("c", "c", 1)])).status, 200);
    assert_eq!(register(address, &tokens[2], "c").status, 403, "an append makes no room");
    assert_eq!(register(address, &tokens[1], "b").status, 200, "who is in may come back");
    let stations = limit(address, "mesh_series");
    assert_eq!((&stations["refused"], &stations["setting"]), (&2.into(), &"limits.series_max".into()));
    let members = limit(address, "members");
    assert_eq!((&members["refused"], &members["setting"]), (&0.into(), &Value::Null), "1000 for ever");
}
