//! Tests of measuring: sensors; targets that respond, do not respond, or refuse connections; and a
//! changed configuration.

use std::net::TcpListener;
use std::time::Duration;

use barograph_station::target::{Provenance, Target};

use crate::http::{SseReader, get, get_until};
use crate::{quiet, start, start_new};

fn target(address: &str, quantities: &[&str]) -> Target {
    let words: Vec<String> = quantities.iter().map(ToString::to_string).collect();
    Target::parse(address, &words, Some(Duration::from_millis(100)), Provenance::Config).unwrap()
}

#[test]
fn the_host_and_its_own_responder_are_measured_and_streamed_with_forecasts() {
    let state = tempfile::tempdir().unwrap();
    let mut config = quiet(state.path());
    config.default_targets = true;
    config.probe_period = Duration::from_millis(200);
    config.sensor_period = Duration::from_millis(200);
    let station = start(config);
    let mut events = SseReader::open(station.address(), "/v1/stream?target=here");
    let mut forecast = std::collections::BTreeSet::new();
    while forecast.len() < 3 {
        let (_, point) = events.next().unwrap();
        assert!(point["value"].is_number(), "{point}");
        if point.get("forecast").is_some() {
            forecast.insert(point["quantity"].as_str().unwrap().to_string());
        }
    }
    assert_eq!(forecast.into_iter().collect::<Vec<_>>(), ["cpu_available", "memory_free", "rtt"]);
    let recent = "/v1/recent?source=here&target=here&quantity=rtt";
    get_until(station.address(), recent, |answer| {
        answer.json()["points"].as_array().unwrap().iter().any(|point| point.get("lower").is_some())
    });
}

#[test]
fn a_hanging_target_does_not_delay_other_targets() {
    let state = tempfile::tempdir().unwrap();
    // This target accepts connections in its backlog and never responds.
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let listening = TcpListener::bind("127.0.0.1:0").unwrap();
    let hanging_name = format!("http://{}/x", hanging.local_addr().unwrap());
    let mut config = quiet(state.path());
    config.probe_timeout = Duration::from_millis(700);
    config.targets = vec![
        target(&hanging_name, &["response_time"]),
        target(&listening.local_addr().unwrap().to_string(), &["connect"]),
    ];
    let station = start(config);
    let address = station.address();
    let hung =
        get_until(address, &of(&hanging_name, "response_time"), |answer| number(answer, "failures") >= 2);
    assert_eq!(hung.json()["series"][0]["last"]["error"], "timed_out");
    assert!(hung.json()["series"][0]["next"].is_null(), "no forecast from failures");
    let well = get(address, &of(&listening.local_addr().unwrap().to_string(), "connect"));
    assert!(number(&well, "count") >= 5, "delayed by the one that hangs: {}", well.body);
    station.stop(crate::LIMIT);
}

/// Path of the series of a target and a quantity.
fn of(name: &str, quantity: &str) -> String {
    let name = name.replace(':', "%3A").replace('/', "%2F");
    format!("/v1/series?target={name}&quantity={quantity}")
}

fn number(answer: &crate::http::HttpResponse, key: &str) -> u64 {
    answer.json()["series"][0][key].as_u64().unwrap_or(0)
}

#[test]
fn a_closed_port_counts_as_a_host_response_and_a_service_failure() {
    let state = tempfile::tempdir().unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let service = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{service}/");
    let mut config = quiet(state.path());
    // The first target is measured like the default gateway.
    config.targets = vec![target(&closed, &["connect"]), target(&url, &[])];
    let station = start(config);
    let address = station.address();
    let mut events = SseReader::open(address, "/v1/stream?quantity=connect");
    let (_, point) = events.next().unwrap();
    assert_eq!(point["refused"], true, "{point}");
    for name in [&closed, &url] {
        let answered = get_until(address, &of(name, "connect"), |answer| number(answer, "count") >= 2);
        let series = &answered.json()["series"][0];
        assert_eq!(series["failures"], 0, "{series}");
        assert_eq!(series["last"]["detail"]["refused"], true, "{series}");
    }
    let failed = get_until(address, &of(&url, "response_time"), |answer| number(answer, "failures") >= 1);
    assert_eq!(failed.json()["series"][0]["last"]["error"], "refused", "{}", failed.body);
    let metrics = get(address, "/metrics").body;
    let labels = format!("{{quantity=\"connect\",source=\"here\",target=\"{closed}\"}}");
    assert!(metrics.contains(&format!("barograph_port_refused{labels} 1.0")), "{metrics}");
    assert!(metrics.contains(&format!("barograph_failures_total{labels} 0.0")), "{metrics}");
    // The metric `barograph_port_refused` becomes 0 after the first accepted connection.
    let _server = TcpListener::bind(&closed).unwrap();
    get_until(address, "/metrics", |answer| {
        answer.body.contains(&format!("barograph_port_refused{labels} 0.0"))
    });
}

#[test]
fn measurements_of_a_stopped_station_fail_also_after_a_restart() {
    let far_state = tempfile::tempdir().unwrap();
    let far = start(quiet(far_state.path()));
    let name = far.address().to_string();
    let state = tempfile::tempdir().unwrap();
    let mut config = quiet(state.path());
    config.targets = vec![target(&name, &[])];
    let station = start(config.clone());
    get_until(station.address(), &of(&name, "rtt"), |answer| number(answer, "count") >= 1);
    far.stop(crate::LIMIT);
    get_until(station.address(), &of(&name, "rtt"), |answer| number(answer, "failures") >= 1);
    station.stop(crate::LIMIT);
    let station = start(config);
    let before = number(&get(station.address(), &of(&name, "rtt")), "failures");
    get_until(station.address(), &of(&name, "rtt"), |answer| before < number(answer, "failures"));
    let connect = get_until(station.address(), &of(&name, "connect"), |answer| number(answer, "count") >= 1);
    assert_eq!(connect.json()["series"][0]["failures"], 0, "{}", connect.body);
}

#[test]
fn connect_is_measured_for_a_server_that_never_responds() {
    let state = tempfile::tempdir().unwrap();
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = quiet(state.path());
    config.probe_timeout = Duration::from_millis(300);
    config.targets = vec![target(&format!("http://{}/", hanging.local_addr().unwrap()), &[])];
    let station = start(config);
    let answer = get_until(station.address(), "/v1/series?quantity=connect", |answer| {
        answer.json()["series"][0]["count"].as_u64().is_some_and(|count| count > 0)
    });
    assert_eq!(answer.json()["series"][0]["failures"], 0, "{}", answer.body);
}

#[test]
fn a_target_that_is_a_station_is_detected_and_measured_as_a_station() {
    let far_state = tempfile::tempdir().unwrap();
    let far = start(quiet(far_state.path()));
    let state = tempfile::tempdir().unwrap();
    let mut config = quiet(state.path());
    config.goodput_period = Duration::from_secs(1);
    config.targets = vec![target(&far.address().to_string(), &[])];
    let station = start(config.clone());
    let name = far.address().to_string().replace(':', "%3A");
    for quantity in ["rtt", "loss", "rtt_udp"] {
        get_until(station.address(), &format!("/v1/series?target={name}&quantity={quantity}"), |answer| {
            answer.json()["series"][0]["count"].as_u64().unwrap_or(0) > 0
        });
    }
    // A new configuration adds a bulk test; measurements during the bulk test belong to separate
    // series.
    config.targets = vec![target(&far.address().to_string(), &["rtt", "goodput"])];
    assert!(station.reload(config).unwrap().is_empty());
    get_until(station.address(), &format!("/v1/series?target={name}&quantity=goodput"), |answer| {
        answer.json()["series"][0]["count"].as_u64().unwrap_or(0) > 0
    });
}

#[test]
fn a_reload_changes_targets_and_lists_settings_that_need_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let config = quiet(state.path());
    let station = start(config.clone());
    let listening = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut new = config.clone();
    new.targets = vec![target(&listening.local_addr().unwrap().to_string(), &["connect"])];
    new.series_max = 7;
    assert_eq!(station.reload(new).unwrap(), ["limits.series_max"]);
    get_until(station.address(), "/v1/series?quantity=connect", |answer| {
        !answer.json()["series"].as_array().unwrap().is_empty()
    });
    assert!(station.reload(config).unwrap().is_empty(), "it is as it was started");
    assert_eq!(get(station.address(), "/v1/targets").json()["targets"], serde_json::json!([]));
}

#[test]
fn a_slow_subscriber_gets_the_count_of_missed_events() {
    let station = start_new(quiet);
    let address = station.address();
    let mut events = SseReader::open(address, "/v1/stream?quantity=depth");
    let records: Vec<_> = (0..1000).map(|i| serde_json::json!({ "quantity": "depth", "value": i })).collect();
    let body = serde_json::json!({ "records": records }).to_string();
    // Send more events than the socket buffers can store, while the subscriber reads nothing.
    for _ in 0..24 {
        assert_eq!(crate::http::post(address, "/v1/measurements", &body).status, 201);
    }
    let mut points = 0;
    let missed = loop {
        let (name, data) = events.next().unwrap();
        if name == "lag" {
            break data["missed"].as_u64().unwrap();
        }
        points += 1;
        assert!(points < 24_000, "nothing was missed");
    };
    assert!(0 < missed && missed < 24_000, "{missed}");
}

#[test]
fn a_token_is_sent_only_to_its_configured_target() {
    let (far_state, other_state, state) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let behind_a_proxy = |state: &std::path::Path| {
        let mut config = quiet(state);
        config.loopback_needs_token = true;
        config
    };
    let far = start(behind_a_proxy(far_state.path()));
    let other = start(behind_a_proxy(other_state.path()));
    // Both stations have the same token, so each station would accept the token of the other.
    let mut config = quiet(state.path());
    config.token_file = Some(far_state.path().join("token"));
    config.targets = vec![target(&far.address().to_string(), &["rtt"])];
    let station = start(config);
    let added = serde_json::json!({ "target": other.address().to_string(), "quantities": ["rtt"],
        "period_s": 0.1 });
    assert_eq!(crate::http::post(station.address(), "/v1/targets", &added.to_string()).status, 201);
    let series = |target: std::net::SocketAddr| {
        format!("/v1/series?quantity=rtt&target={}", target.to_string().replace(':', "%3A"))
    };
    let count = |answer: &crate::http::HttpResponse, key: &str| answer.json()["series"][0][key].as_u64();
    get_until(station.address(), &series(far.address()), |answer| Some(1) <= count(answer, "count"));
    get_until(station.address(), &series(other.address()), |answer| Some(1) <= count(answer, "failures"));
    let refused = get(station.address(), &series(other.address())).json();
    assert_eq!(refused["series"][0]["last"]["error"], "declined");
    for station in [station, far, other] {
        station.stop(crate::LIMIT);
    }
}

#[test]
fn a_token_file_is_reloaded_and_a_bad_token_file_changes_nothing() {
    let far_state = tempfile::tempdir().unwrap();
    let mut config = quiet(far_state.path());
    config.loopback_needs_token = true;
    let far = start(config);
    let state = tempfile::tempdir().unwrap();
    let file = state.path().join("other-token");
    std::fs::write(&file, "0000000000000000000000\n").unwrap();
    let mut config = quiet(state.path());
    let mut watched = target(&far.address().to_string(), &["rtt"]);
    watched.token_file = Some(file.clone());
    config.targets = vec![watched];
    let station = start(config.clone());
    let rtt = "/v1/series?quantity=rtt";
    let count = |answer: &crate::http::HttpResponse, key: &str| answer.json()["series"][0][key].as_u64();
    get_until(station.address(), rtt, |answer| Some(1) <= count(answer, "failures"));
    std::fs::write(&file, "short\n").unwrap();
    assert!(station.reload(config.clone()).unwrap_err().to_string().contains("other-token"));
    std::fs::copy(far_state.path().join("token"), &file).unwrap();
    assert!(station.reload(config).unwrap().is_empty());
    get_until(station.address(), rtt, |answer| Some(1) <= count(answer, "count"));
}

#[test]
fn a_station_on_one_address_measures_itself_and_accepts_local_targets() {
    let Some(ip) = own_address() else {
        barograph_sim::report_skipped("this host has no address but loopback");
        return;
    };
    let state = tempfile::tempdir().unwrap();
    let mut config = quiet(state.path());
    config.listen = std::net::SocketAddr::new(ip, 0);
    config.default_targets = true;
    config.probe_period = Duration::from_millis(200);
    let station = start(config);
    get_until(station.address(), "/v1/series?target=here&quantity=rtt", |answer| {
        answer.json()["series"][0]["count"].as_u64().is_some_and(|count| count > 0)
    });
    let body = r#"{"target": "192.0.2.1:9", "quantities": ["connect"], "period_s": 86400}"#;
    assert_eq!(crate::http::post(station.address(), "/v1/targets", body).status, 201);
    station.stop(crate::LIMIT);
}

/// An address of this host that other hosts can reach, found by selecting a route; nothing is sent.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback()).then_some(ip)
}
