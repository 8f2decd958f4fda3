//! Tests with wrong clocks of a member and of the station. Forecasts continue with the next value,
//! also after a restart.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use barograph_engine::{Engine as _, Record};
use barograph_forecast::{Name, Outcome, Quantity, SeriesId};
use barograph_station::{Config, open_archive};
use serde_json::{Value, json};

use crate::engine::{ask, invite};
use crate::http::{get, post};
use crate::{quiet, serve, serve_new};

const SECOND_NS: i64 = 1_000_000_000;
const HOUR_NS: i64 = 3600 * SECOND_NS;
const YEAR_NS: i64 = 365 * 24 * HOUR_NS;
const SERIES: &str = "source=b&target=c&quantity=rtt";

fn now_unix_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos().try_into().unwrap()
}

fn quietest(state: &std::path::Path) -> Config {
    Config { sensor_period: std::time::Duration::from_hours(24), ..quiet(state) }
}

/// Sends one record as member `b`, and checks that the station accepts the record.
fn send(address: SocketAddr, token: &str, seq: u64, time_unix_ns: i64) {
    let record = json!({ "origin": "b", "seq": seq, "source": "b", "target": "c", "quantity": "rtt",
        "time_unix_ns": time_unix_ns, "value": 0.25 + 0.001 * seq as f64 });
    let answer = ask(address, token, "POST", "records", &format!("{record}\n"));
    assert_eq!(answer.status, 200, "{}", answer.body);
}

fn series(address: SocketAddr) -> Value {
    get(address, &format!("/v1/series?{SERIES}")).json()["series"][0].clone()
}

/// Checks that forecasts continue after a member's clock was `ahead_ns` ahead. Sends 20 records
/// with correct times, 5 records with times that are `ahead_ns` ahead, and 10 correct records. Then
/// restarts the station and sends 10 more records.
fn forecasts_go_on_after_a_jump_of(ahead_ns: i64) {
    let state = tempfile::tempdir().unwrap();
    let station = serve(quietest(state.path()));
    let token = invite(station.address(), Some("b"));
    let mut seq = 0;
    let mut send = |address, count: u64, ahead_ns: i64| {
        for _ in 0..count {
            seq += 1;
            send(address, &token, seq, now_unix_ns() + ahead_ns);
        }
    };
    send(station.address(), 20, 0);
    send(station.address(), 5, ahead_ns);
    assert_eq!(series(station.address())["count"], 25);
    send(station.address(), 10, 0);
    let before = series(station.address());
    assert_eq!(before["count"], 35, "values after the jump are forecast from");
    assert!(before["last"]["time_s"].as_f64().unwrap() < now_unix_ns() as f64 / 1e9 + 1.0, "{before}");
    station.stop(crate::LIMIT);

    let station = serve(quietest(state.path()));
    let after = series(station.address());
    assert_eq!(after["next"], before["next"], "a restart forecasts as before");
    send(station.address(), 10, 0);
    assert_eq!(series(station.address())["count"], 45);
    let latest = get(station.address(), &format!("/v1/latest?{SERIES}")).json()["latest"][0].clone();
    assert_eq!(latest["value"], 0.25 + 0.001 * 45.0, "{latest}");
}

#[test]
fn a_member_clock_that_is_ahead_is_reported_everywhere() {
    let station = serve_new(quietest);
    let address = station.address();
    let token = invite(address, Some("b"));
    let health = || get(address, "/healthz");
    for seq in 1..=20 {
        send(address, &token, seq, now_unix_ns() + HOUR_NS);
    }
    assert_eq!((health().status, health().json()["status"].clone()), (200, json!("ok")));
    let warning = health().json()["warnings"][0].as_str().unwrap().to_string();
    assert!(warning.starts_with("the clock of b is 3"), "{warning}");
    let part = |answer: &Value| answer["hosts"][0]["rtt"].clone();
    let rtt = part(&get(address, "/v1/best?from=b&to=c&bytes=1000").json());
    assert!(
        (3590.0..3601.0).contains(&rtt["ahead_s"].as_f64().unwrap()) && rtt["age_s"].is_number(),
        "{rtt}"
    );
    for path in ["latest", "history"] {
        let answer = get(address, &format!("/v1/{path}?{SERIES}")).json();
        let record = &answer[if path == "latest" { "latest" } else { "records" }][0];
        assert!(record["ahead_s"].as_f64().unwrap() > 3590.0, "{record}");
        let (time_s, label_s) = (record["time_s"].as_f64(), record["detail"]["labelled_s"].as_f64());
        assert!(time_s.unwrap() <= now_unix_ns() as f64 / 1e9, "{record}");
        assert!((label_s.unwrap() - time_s.unwrap() - record["ahead_s"].as_f64().unwrap()).abs() < 1e-3);
    }
    send(address, &token, 21, now_unix_ns());
    assert_eq!(health().json()["warnings"], json!([]));
    assert_eq!(part(&get(address, "/v1/best?from=b&to=c&bytes=1000").json())["ahead_s"], Value::Null);
}

#[test]
fn forecasts_continue_after_a_member_clock_was_an_hour_ahead() {
    forecasts_go_on_after_a_jump_of(HOUR_NS);
}

#[test]
fn forecasts_continue_after_a_member_sent_the_year_2100() {
    forecasts_go_on_after_a_jump_of(4_102_444_800 * SECOND_NS - now_unix_ns());
}

/// Starts with the archive of a station after its own clock was `ahead_ns` ahead for a while.
fn forecasts_go_on_after_own_clock_was_ahead_by(ahead_ns: i64) {
    let state = tempfile::tempdir().unwrap();
    let config = quietest(state.path());
    let archive = open_archive(&config).unwrap();
    let here = Name::new("here").unwrap();
    let queue = Quantity::new("queue").unwrap();
    let series = SeriesId { source: here.clone(), target: here.clone(), quantity: queue };
    let now = now_unix_ns();
    let records: Vec<Record> = (1..=25)
        .map(|seq| {
            let jump_ns = if seq > 20 { ahead_ns } else { 0 };
            Record {
                origin: here.clone(),
                seq,
                series: series.clone(),
                time_unix_ns: now - 10 * SECOND_NS * (30 - seq.cast_signed()) + jump_ns,
                outcome: Outcome::Value(seq as f64),
                detail: String::new(),
            }
        })
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(archive.append(&records)).unwrap();
    drop(archive);
    let count = |address| {
        get(address, "/v1/series?source=here&target=here&quantity=queue").json()["series"][0]["count"].clone()
    };
    let feed = json!({ "records": [{ "quantity": "queue", "value": 7 }] }).to_string();
    for restart in 0..2_u64 {
        let station = serve(config.clone());
        assert_eq!(count(station.address()), 25 + 10 * restart);
        for _ in 0..10 {
            assert_eq!(post(station.address(), "/v1/measurements", &feed).status, 201);
        }
        assert_eq!(count(station.address()), 35 + 10 * restart, "what is fed is forecast from");
        let latest = get(station.address(), "/v1/latest?quantity=queue").json()["latest"][0].clone();
        assert_eq!(latest["value"], 7.0, "{latest}");
        station.stop(crate::LIMIT);
    }
}

#[test]
fn submitted_values_are_forecast_after_own_clock_was_an_hour_ahead() {
    forecasts_go_on_after_own_clock_was_ahead_by(HOUR_NS);
}

#[test]
fn submitted_values_are_forecast_after_own_clock_was_20_years_ahead() {
    forecasts_go_on_after_own_clock_was_ahead_by(20 * YEAR_NS);
}

/// Sends one record as an application, with this sequence number and time label. Checks that the
/// station stores the record.
fn feed(address: SocketAddr, seq: u64, time_unix_ns: i64) {
    let record = json!({ "seq": seq, "quantity": "queue", "value": 0.25 + 0.001 * seq as f64,
        "time_s": time_unix_ns as f64 / 1e9 });
    let body = json!({ "origin": "feeder", "records": [record] }).to_string();
    let answer = post(address, "/v1/measurements", &body);
    assert_eq!(answer.status, 201, "{}", answer.body);
}

#[test]
fn submitted_values_are_forecast_after_the_sender_clock_went_back_an_hour() {
    let state = tempfile::tempdir().unwrap();
    let series = |address| {
        get(address, "/v1/series?source=feeder&target=feeder&quantity=queue").json()["series"][0].clone()
    };
    let station = serve(quietest(state.path()));
    for seq in 1..=30 {
        feed(station.address(), seq, now_unix_ns() - if seq <= 20 { 0 } else { HOUR_NS });
    }
    let before = series(station.address());
    assert_eq!(before["count"], 30, "its numbers are the order, with any clock");
    station.stop(crate::LIMIT);
    let station = serve(quietest(state.path()));
    assert_eq!(series(station.address())["next"], before["next"], "a restart forecasts as before");
}

#[test]
fn a_submitted_future_time_label_counts_as_now_and_is_marked() {
    let station = serve_new(quietest);
    let address = station.address();
    let label = now_unix_ns() + HOUR_NS;
    feed(address, 1, label);
    feed(address, 1, label);
    let latest = get(address, "/v1/latest?quantity=queue").json()["latest"][0].clone();
    assert!(latest["time_s"].as_f64().unwrap() <= now_unix_ns() as f64 / 1e9, "{latest}");
    assert!((3590.0..3601.0).contains(&latest["ahead_s"].as_f64().unwrap()), "{latest}");
    let label_s = latest["detail"]["labelled_s"].as_f64().unwrap();
    assert!((label_s - label as f64 / 1e9).abs() < 1e-3, "{latest}");
    let count = get(address, "/v1/series?quantity=queue").json()["series"][0]["count"].clone();
    assert_eq!(count, 1, "a repetition is one");
    let other = json!({ "origin": "feeder", "records": [{ "seq": 1, "quantity": "queue", "value": 0.251,
        "time_s": (label + HOUR_NS) as f64 / 1e9 }] });
    assert_eq!(post(address, "/v1/measurements", &other.to_string()).status, 409, "another label");
}
