//! Limits of a station: every refusal is reported.

use std::net::SocketAddr;
use std::sync::Arc;

use barograph_engine::Local;
use barograph_station::{Config, Station};
use serde_json::{Value, json};

use crate::engine::{ask, invite, lines, record, register, register_in};
use crate::http::{get, post, send};
use crate::{quiet, serve, serve_new, start};

/// Row in `/healthz` for the limit with this name.
pub(crate) fn limit(address: SocketAddr, name: &str) -> Value {
    let health = get(address, "/healthz").json();
    let rows = health["limits"].as_array().unwrap();
    rows.iter().find(|row| row["limit"] == name).unwrap_or_else(|| panic!("{health}")).clone()
}

#[test]
fn a_full_series_table_degrades_health_and_names_the_setting() {
    let state = tempfile::tempdir().unwrap();
    let station = start(Config { series_max: 1, ..quiet(state.path()) });
    let address = station.address();
    let before = limit(address, "series");
    assert_eq!((&before["max"], &before["refused"], &before["since"]), (&1.into(), &0.into(), &Value::Null));
    let two = r#"{"records": [{"quantity": "a", "value": 1}, {"quantity": "b", "value": 1}]}"#;
    assert_eq!(post(address, "/v1/measurements", two).status, 429);
    let full = limit(address, "series");
    assert_eq!(full["setting"], "limits.series_max");
    assert!(full["refused"].as_u64().unwrap() > 0 && full["since"].as_f64().is_some(), "{full}");
    let health = get(address, "/healthz");
    assert_eq!(health.status, 503);
    assert!(health.json()["reasons"].to_string().contains("raise limits.series_max"), "{}", health.body);
    let station_says = get(address, "/v1/station").json()["refusing"].to_string();
    assert!(station_says.contains("raise limits.series_max"), "{station_says}");
    assert!(refused_total(address, "series") > 0.0);
}

/// Value of `barograph_limit_refused_total` for a limit; a missing sample fails the test.
fn refused_total(address: SocketAddr, name: &str) -> f64 {
    let metrics = get(address, "/metrics").body;
    let sample = format!("barograph_limit_refused_total{{limit=\"{name}\"}} ");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&sample));
    value.unwrap_or_else(|| panic!("no {sample}in {metrics}")).parse().unwrap()
}

/// Forwards records as a member, in batches of the largest size.
fn forward(address: SocketAddr, token: &str, records: &[Value]) -> Vec<u16> {
    let append = |batch: &[Value]| ask(address, token, "POST", "records", &lines(batch)).status;
    records.chunks(1000).map(append).collect()
}

/// A record of `origin` with the sequence number `seq`, measured now.
fn fresh(origin: &str, seq: u64, target: &str) -> Value {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let mut record = record(origin, origin, seq);
    record["time_unix_ns"] = (now.as_nanos() as u64).into();
    record["target"] = target.into();
    record
}

/// Records that the archive acknowledges and does not keep are counted by cause.
#[test]
fn records_that_the_archive_does_not_keep_are_counted_by_cause() {
    let state = tempfile::tempdir().unwrap();
    // The series table has no room for series of members.
    let station = serve(Config { series_max: 3, ..quiet(state.path()) });
    let address = station.address();
    let token = invite(address, Some("a"));
    let mut old = record("a", "a", 2);
    old["time_unix_ns"] = 1.into();
    let mut foreign = fresh("a", 3, "south");
    foreign["source"] = "other".into();
    assert_eq!(forward(address, &token, &[fresh("a", 1, "south")]), [200], "age counts from it");
    assert_eq!(forward(address, &token, &[old, foreign]), [200], "they are acknowledged");
    for (name, setting) in [("archive_old", "archive.keep_days".into()), ("archive_foreign", Value::Null)] {
        let row = limit(address, name);
        assert_eq!((&row["refused"], &row["setting"]), (&1.into(), &setting), "{row}");
        assert!(row["since"].as_f64().is_some(), "{row}");
        assert_eq!(refused_total(address, name), 1.0);
    }
    // Two of the records are the member's own records, and their series exceed the member's share
    // of the forecast series.
    assert_eq!(limit(address, "member_series")["refused"], 2);
    let health = get(address, "/healthz");
    assert_eq!(health.status, 200, "a member can cause that");
    assert!(health.json()["warnings"].to_string().contains("archive.keep_days"), "{}", health.body);
}

#[test]
fn a_batch_beyond_the_members_half_of_the_spool_is_refused_and_keeps_status() {
    let state = tempfile::tempdir().unwrap();
    let station = serve(Config { spool_records_max: 20, ..quiet(state.path()) });
    let address = station.address();
    let token = invite(address, Some("a"));
    let records: Vec<Value> = (1..=21).map(|seq| fresh("a", seq, "south")).collect();
    let refused = ask(address, &token, "POST", "records", &lines(&records));
    assert_eq!(refused.status, 400, "it could never be taken: {}", refused.body);
    assert!(refused.body.contains("limits.spool_records_max"), "{}", refused.body);
    assert_eq!(forward(address, &token, &records[..10]), [200]);
    assert_eq!(limit(address, "spool_records")["refused"], 0);
    assert_eq!(limit(address, "member_spool_records")["refused"], 21);
    let health = get(address, "/healthz");
    assert_eq!(health.status, 200, "a member can cause that: {}", health.body);
}

/// One member fills its eighth of an archive with few series.
#[test]
fn a_member_beyond_its_share_of_the_archive_is_counted() {
    let state = tempfile::tempdir().unwrap();
    let station = serve(Config { series_max: 40, ..quiet(state.path()) });
    let address = station.address();
    let token = invite(address, Some("a"));
    let records: Vec<Value> = (1..=12_503).map(|seq| fresh("a", seq, &format!("t{seq}"))).collect();
    assert!(forward(address, &token, &records).iter().all(|status| *status == 200));
    let row = limit(address, "archive_member_series");
    assert_eq!((&row["refused"], &row["max"]), (&3.into(), &12_500.into()), "{row}");
    assert_eq!(limit(address, "archive_series")["max"], 87_500);
}

/// The archive has no room for measurements of members: these measurements are lost, and the
/// station is degraded.
#[test]
fn a_full_archive_degrades_health_and_names_the_setting() {
    let state = tempfile::tempdir().unwrap();
    let start = || {
        // All members together may have seventy of the eighty series, and each member ten.
        let archive = barograph_engine::LocalConfig {
            series_max: 80,
            ..barograph_engine::LocalConfig::new(state.path())
        };
        Station::serve(quiet(state.path()), Arc::new(Local::open(archive).unwrap())).unwrap()
    };
    let station = std::thread::scope(|scope| scope.spawn(start).join().unwrap());
    let address = station.address();
    for at in 0..8 {
        let member = format!("member-{at}");
        let health = get(address, "/healthz");
        assert!(at == 7 || health.status == 200, "{at} members: {}", health.body);
        let token = invite(address, Some(&member));
        let records: Vec<Value> = (1..=10).map(|seq| fresh(&member, seq, &format!("t{seq}"))).collect();
        assert_eq!(forward(address, &token, &records), [200]);
    }
    let row = limit(address, "archive_series");
    assert_eq!(row["setting"], "limits.series_max");
    // The station's own two series may be among those that fill the archive.
    let refused = row["refused"].as_u64().unwrap();
    assert!((10..=12).contains(&refused), "{row}");
    assert_eq!(refused_total(address, "archive_series"), refused as f64);
    let health = get(address, "/healthz");
    assert_eq!(health.status, 503);
    assert!(health.json()["reasons"].to_string().contains("no room in the archive"), "{}", health.body);
}

/// The station counts the series for which the series table has no room during the replay at the
/// start.
#[test]
fn series_left_out_at_the_start_are_counted() {
    let state = tempfile::tempdir().unwrap();
    let station = start(quiet(state.path()));
    let record = |at| json!({ "quantity": "a", "target": format!("t{at}"), "value": 1 });
    let records: Vec<Value> = (0..30).map(record).collect();
    let body = json!({ "records": records }).to_string();
    assert_eq!(post(station.address(), "/v1/measurements", &body).status, 201);
    station.stop(crate::LIMIT);
    let station = start(Config { series_max: 1, ..quiet(state.path()) });
    let full = limit(station.address(), "series");
    assert!(full["refused"].as_u64().unwrap() >= 29, "{full}");
    assert_eq!(get(station.address(), "/healthz").status, 503);
}

#[test]
fn a_stream_beyond_the_limit_is_counted() {
    let state = tempfile::tempdir().unwrap();
    let station = start(Config { streams_max: 0, ..quiet(state.path()) });
    assert_eq!(get(station.address(), "/v1/stream").status, 503);
    assert_eq!(get(station.address(), "/v1/peers/events").status, 503);
    let streams = limit(station.address(), "streams");
    assert_eq!((&streams["refused"], &streams["max"]), (&2.into(), &0.into()));
    // Any caller can cause these refusals, so monitoring must not report the station as broken.
    let health = get(station.address(), "/healthz");
    assert_eq!((health.status, &health.json()["reasons"]), (200, &serde_json::json!([])));
    let says = health.json()["warnings"].to_string();
    assert!(says.contains("live streams") && says.contains("raise limits.streams_max"), "{says}");
}

#[test]
fn an_address_beyond_its_share_causes_a_warning_that_names_the_settings() {
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

/// A member that must wait before its next request is not a problem of the station. The station
/// only counts such requests.
#[test]
fn a_member_that_must_wait_is_counted_without_a_warning() {
    let station = serve_new(quiet);
    let address = station.address();
    let token = invite(address, None);
    let last = (0..40).map(|_| register(address, &token, "a")).find(|answer| answer.status == 429);
    assert!(last.is_some(), "40 registrations at once are more than a burst");
    assert_eq!(limit(address, "member_pace")["refused"], 1);
    assert_eq!(get(address, "/healthz").json()["warnings"], serde_json::json!([]));
}

#[test]
fn a_transfer_beyond_the_limit_is_counted() {
    let state = tempfile::tempdir().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut config = quiet(state.path());
    config.transfer.receive = vec![directory.path().into()];
    config.transfer.transfers_max = 0;
    let station = start(config);
    let body = serde_json::json!({ "directory": directory.path() }).to_string();
    assert_eq!(post(station.address(), "/v1/transfers/lines", &body).status, 429);
    let transfers = limit(station.address(), "transfers");
    assert_eq!(transfers["setting"], "transfer.transfers_max");
    assert_eq!(transfers["refused"], 1);
}

/// If the mesh becomes too large for the station that serves it, this station refuses new stations,
/// and continues to accept its members.
#[test]
fn a_member_with_too_many_series_is_refused_at_joining() {
    let state = tempfile::tempdir().unwrap();
    // The station is not in the groups of the members: with two members the mesh needs 40 series,
    // with three 70.
    let station = serve(Config { series_max: 69, ..quiet(state.path()) });
    let address = station.address();
    let tokens: Vec<String> = (0..3).map(|_| invite(address, None)).collect();
    for (token, host) in tokens.iter().zip(["a", "b"]) {
        assert_eq!(register(address, token, host).status, 200);
    }
    let refused = register(address, &tokens[2], "c");
    assert_eq!(refused.status, 403, "{}", refused.body);
    assert!(refused.error().contains("set it to 70 or more"), "{}", refused.body);
    assert_eq!(ask(address, &tokens[2], "POST", "records", &lines(&[record("c", "c", 1)])).status, 200);
    assert_eq!(register(address, &tokens[2], "c").status, 403, "an append makes no room");
    assert_eq!(register(address, &tokens[1], "b").status, 200, "a member may register again");
    let stations = limit(address, "mesh_series");
    assert_eq!((&stations["refused"], &stations["setting"]), (&2.into(), &"limits.series_max".into()));
    let members = limit(address, "members");
    assert_eq!((&members["refused"], &members["setting"]), (&0.into(), &Value::Null), "1000 for ever");
}

/// The room for the series of admitted members stays reserved while these members are not
/// connected, and after a restart of the station that serves the mesh.
#[test]
fn series_room_of_disconnected_members_stays_reserved() {
    let state = tempfile::tempdir().unwrap();
    let config = Config { series_max: 69, ..quiet(state.path()) };
    let station = serve(config.clone());
    let tokens: Vec<String> = (0..3).map(|_| invite(station.address(), None)).collect();
    for (token, host) in tokens.iter().zip(["a", "b"]) {
        let answer = register(station.address(), token, host);
        assert_eq!(answer.status, 200);
        let registration = answer.json()["registration"].as_str().unwrap().to_string();
        let entry = format!("entry?registration={registration}");
        assert_eq!(ask(station.address(), token, "DELETE", &entry, "").status, 200);
    }
    assert_eq!(register(station.address(), &tokens[2], "c").status, 403, "two are away");
    station.stop(crate::LIMIT);
    let station = serve(config);
    assert_eq!(register(station.address(), &tokens[2], "c").status, 403, "after a restart");
    assert_eq!(register(station.address(), &tokens[1], "b").status, 200, "a member may register again");
}

/// A member that changes to groups with more peers needs room for the series with these peers.
#[test]
fn a_change_of_groups_is_checked_like_a_new_member() {
    let state = tempfile::tempdir().unwrap();
    // Three stations that do not measure each other need 30 series; if two of these stations
    // measure each other, 40.
    let station = serve(Config { series_max: 39, ..quiet(state.path()) });
    let address = station.address();
    let tokens = [invite(address, None), invite(address, None)];
    assert_eq!(register_in(address, &tokens[0], "a", &["local:x"]).status, 200);
    assert_eq!(register_in(address, &tokens[1], "b", &["local:y"]).status, 200);
    let refused = register_in(address, &tokens[1], "b", &["local:x"]);
    assert_eq!(refused.status, 403, "{}", refused.body);
    assert_eq!(register_in(address, &tokens[1], "b", &["local:y"]).status, 200, "as before");
    assert_eq!(register_in(address, &tokens[1], "b", &["local:z"]).status, 200, "no more than before");
}
