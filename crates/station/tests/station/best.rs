//! `GET /v1/best` of a whole station, with measurements of others.

use std::sync::Arc;
use std::time::Duration;

use barograph_engine::{Capabilities, Engine, Entry};
use barograph_station::{Config, Station, open_archive};
use barograph_testkit::name;
use serde_json::{Value, json};

use crate::http::{HttpResponse, get, get_until, post};
use crate::{LIMIT, quiet, start_new};

/// For each pair, stores twelve values of the round-trip time (s), the goodput (bit/s) and the loss
/// (1 %). The values of a series differ by about 1 %.
fn feed(station: &Station, pairs: &[(&str, &str, f64, f64)]) {
    for (source, target, rtt, goodput) in pairs {
        let records = (0..12).flat_map(|i| {
            let value = |value: f64| value * (1.0 + 1e-3 * f64::from(i % 5));
            [("rtt", *rtt), ("goodput", *goodput), ("loss", 0.01)].map(|(quantity, mean)| {
                json!({ "source": source, "target": target, "quantity": quantity, "value": value(mean) })
            })
        });
        let body = json!({ "records": records.collect::<Vec<_>>() }).to_string();
        let answer = post(station.address(), "/v1/measurements", &body);
        assert_eq!(answer.status, 201, "{}", answer.body);
    }
}

fn ask(station: &Station, query: &str) -> HttpResponse {
    get(station.address(), &format!("/v1/best?{query}"))
}

fn names(answer: &Value) -> Vec<&str> {
    answer["hosts"].as_array().unwrap().iter().map(|host| host["host"].as_str().unwrap()).collect()
}

#[test]
fn measured_hosts_are_ranked_for_the_bytes_asked() {
    let station = start_new(quiet);
    feed(
        &station,
        &[
            ("here", "near", 0.001, 1e7),
            ("here", "wide", 0.1, 1e9),
            ("here", "twin", 0.1, 1.0001e9),
            ("far", "near", 0.2, 1e8),
        ],
    );
    let small = ask(&station, "to=near,wide&bytes=1000").json();
    assert_eq!((names(&small), &small["best"]), (vec!["near", "wide"], &json!("near")));
    let large = ask(&station, "to=near,wide,twin&bytes=1000000000").json();
    assert_eq!(names(&large)[2], "near");
    assert_eq!((&large["best"], &large["too_close_to_call"]), (&Value::Null, &json!(names(&large)[..2])));
    let first = &large["hosts"][0];
    let ends = ["lower", "forecast", "upper"].map(|key| first[key].as_f64().unwrap());
    // Two round trips, ten of slow start, and 985 MB at 1 Gbit/s.
    assert!(9.0 < ends[1] && ends[1] < 9.2 && ends[0] < ends[1] && ends[1] < ends[2], "{first}");
    assert_eq!(first["is_calibrating"], false, "{first}");
    assert_eq!((&first["basis"], &first["goodput"]["basis"]), (&json!("measured"), &json!("measured")));
    // Request with a different source: this station also has measurements of `far`.
    let far = ask(&station, "from=far&to=near&bytes=1000").json();
    assert!((far["hosts"][0]["rtt"]["forecast"].as_f64().unwrap() - 0.2).abs() < 0.01, "{far}");
}

#[test]
fn many_hosts_are_ranked_like_few_hosts() {
    let station = start_new(quiet);
    let targets: Vec<String> = (0..20).map(|at| format!("t{at}")).collect();
    let pair = |(at, target)| ("here", target, 0.01 * f64::from(at), 1e8);
    let pairs: Vec<_> = (1..).zip(targets.iter().map(String::as_str)).map(pair).collect();
    feed(&station, &pairs);
    let to = targets.join(",");
    let answer = ask(&station, &format!("to={to}&bytes=1000")).json();
    assert_eq!(
        (names(&answer), &answer["best"]),
        (targets.iter().map(String::as_str).collect(), &json!("t0"))
    );
    let missing = ask(&station, &format!("to={to},ghost&bytes=1000"));
    assert_eq!(missing.status, 404, "{}", missing.body);
}

#[test]
fn invalid_queries_are_refused_with_the_parameter_name() {
    let station = start_new(quiet);
    feed(&station, &[("here", "near", 0.001, 1e7)]);
    for (query, status, told) in [
        (
            "to=near,ghost&bytes=1",
            404,
            "`to`: there is no host or group ghost, and here has not measured such a target",
        ),
        ("to=near&bytes=1&from=ghost", 404, "`from`: no host ghost is known here"),
        ("to=,&bytes=1", 400, "`to`: expected a group, or hosts separated by commas, found none"),
        ("to=here&bytes=1", 400, "`to`: here is also `from`; name another host"),
        ("to=near&bytes=0", 400, "`bytes`: expected 1 to 1000000000000000, found 0"),
        ("to=near&bytes=1000000000000001", 400, "`bytes`: expected 1 to"),
        ("to=near&bytes=-1", 400, "the query: bytes: invalid digit"),
        ("to=near", 400, "the query: missing field `bytes`"),
        ("bytes=1", 400, "to"),
        ("to=a%20b&bytes=1", 400, "`to`: "),
        ("to=near&bytes=1&level=0.5", 400, "level"),
    ] {
        let answer = ask(&station, query);
        assert_eq!(answer.status, status, "{query}: {}", answer.body);
        assert!(answer.error().contains(told), "{query}: {}", answer.body);
    }
    station.stop(LIMIT);
}

/// An entry with these groups and without an address. If the entry had an address, the station
/// would measure this address and add a failed round trip to the stored values.
fn entry(host: &str, groups: &[&str]) -> Entry {
    Entry {
        addresses: Vec::new(),
        version: env!("CARGO_PKG_VERSION").into(),
        groups: groups.iter().map(|group| name(group)).collect(),
        capabilities: Capabilities { responder: true, ..Capabilities::default() },
        ..barograph_testkit::entry(host)
    }
}

#[test]
fn groups_come_from_the_directory_and_paths_between_groups_are_composed() {
    let state = tempfile::tempdir().unwrap();
    let mut config: Config = quiet(state.path());
    config.mesh.site = name("a");
    let archive = Arc::new(open_archive(&config).unwrap());
    let entries = [
        entry("ra", &["local:a", "global"]),
        entry("rb", &["local:b", "global"]),
        entry("x", &["local:b"]),
        entry("y", &["local:b"]),
    ];
    // This station does not watch the group of another site; it reads the entry in `global`.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let register = |entry| runtime.block_on(archive.register(entry, Duration::from_secs(60))).unwrap();
    let leases: Vec<_> = entries.iter().map(register).collect();
    let station = Station::serve(config, Arc::clone(&archive)).unwrap();
    feed(
        &station,
        &[
            ("here", "ra", 0.001, 9e8),
            ("ra", "rb", 0.02, 2e8),
            ("rb", "x", 0.001, 9e8),
            ("here", "rb", 0.02, 1e8),
        ],
    );
    let answer = ask(&station, "to=local:b&bytes=100000000").json();
    assert_eq!(names(&answer).len(), 2, "{answer}");
    let host = |name: &str| {
        answer["hosts"].as_array().unwrap().iter().find(|host| host["host"] == name).unwrap().clone()
    };
    assert_eq!((&host("rb")["basis"], &host("rb")["rtt"]["via"]), (&json!("measured"), &Value::Null));
    let x = host("x");
    assert_eq!((&x["basis"], &x["goodput"]["via"]), (&json!("composed"), &json!(["here", "ra", "rb", "x"])));
    let loss = x["loss"]["forecast"].as_f64().unwrap();
    assert!((0.029..0.031).contains(&loss) && x["loss"]["via"] == x["goodput"]["via"], "{x}");
    let wide = |host: &Value| host["upper"].as_f64().unwrap() / host["forecast"].as_f64().unwrap();
    assert!(wide(&x) > 2.0 && wide(&host("rb")) < 1.5, "{answer}");
    let reason = answer["unknown"][0]["reason"].as_str().unwrap();
    assert_eq!(answer["unknown"][0]["host"], "y");
    assert!(reason.contains("no forecast from rb to y"), "{reason}");
    // With `group`, the responses contain only series with the source or the target in this group.
    let pairs = |query: &str| {
        let lists = ["series", "latest", "forecast"].map(|path| {
            let answer = get(station.address(), &format!("/v1/{path}?quantity=rtt&{query}")).json();
            let key = if path == "forecast" { "forecasts" } else { path };
            let pair = |one: &Value| {
                format!("{} {}", one["source"].as_str().unwrap(), one["target"].as_str().unwrap())
            };
            let mut pairs: Vec<String> = answer[key].as_array().unwrap().iter().map(pair).collect();
            pairs.sort();
            pairs
        });
        assert!(lists[0] == lists[1] && lists[1] == lists[2], "{query}: {lists:?}");
        lists[0].join(", ")
    };
    assert_eq!(pairs("group=local:b"), "here rb, ra rb, rb x");
    assert_eq!(pairs("group=local:b&source=here"), "here rb");
    assert_eq!(pairs("group=local:a&target=x"), "");
    for (query, status, told) in [
        ("series?group=local:z", 404, "`group`: no station of a group local:z is known here"),
        ("latest?group=a%20b", 400, "`group`: "),
        ("history?group=local:b", 400, "group"),
        ("recent?group=local:b", 400, "group"),
    ] {
        let answer = get(station.address(), &format!("/v1/{query}"));
        assert_eq!(answer.status, status, "{query}: {}", answer.body);
        assert!(answer.error().contains(told), "{query}: {}", answer.body);
    }
    let site = ask(&station, "to=b&bytes=1");
    assert_eq!(site.status, 404, "{}", site.body);
    assert!(
        site.error().ends_with(
            "no host or group b, and here has not measured such a target; there is a group local:b"
        ),
        "{}",
        site.error()
    );
    // The response includes a station that registered after the last request.
    let late = register(&entry("late", &["local:b"]));
    get_until(station.address(), "/v1/best?to=late&bytes=1", |answer| answer.status == 200);
    station.stop(LIMIT);
    drop((leases, late));
}

#[test]
fn a_group_named_like_a_host_or_target_does_not_replace_the_host() {
    let state = tempfile::tempdir().unwrap();
    let mut config: Config = quiet(state.path());
    config.mesh.site = name("a");
    let archive = Arc::new(open_archive(&config).unwrap());
    let entries = [entry("x", &["local:a"]), entry("mal", &["local:a", "x", "here", "target", "mine"])];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let register = |entry| runtime.block_on(archive.register(entry, Duration::from_secs(60))).unwrap();
    let leases: Vec<_> = entries.iter().map(register).collect();
    let station = Station::serve(config, Arc::clone(&archive) as _).unwrap();
    feed(&station, &[("here", "x", 0.001, 1e8), ("here", "mal", 0.001, 1e9), ("here", "target", 0.1, 1e7)]);
    for (to, host) in [("mine", "mal"), ("x", "x"), ("target", "target")] {
        let answer = ask(&station, &format!("to={to}&bytes=1000")).json();
        assert_eq!(names(&answer), [host], "to={to}: {answer}");
    }
    let itself = ask(&station, "to=here&bytes=1000");
    assert_eq!(itself.status, 400, "{}", itself.body);
    station.stop(LIMIT);
    drop(leases);
}

#[test]
fn a_lost_host_is_reported_at_once() {
    let state = tempfile::tempdir().unwrap();
    let mut config: Config = quiet(state.path());
    config.mesh.site = name("a");
    let archive = Arc::new(open_archive(&config).unwrap());
    let entry = Entry {
        host: name("peer"),
        // No station responds at this address, and a failed round trip is not learnt.
        addresses: vec!["192.0.2.1:10132".parse().unwrap()],
        version: env!("CARGO_PKG_VERSION").into(),
        groups: vec![name("local:a")],
        capabilities: Capabilities { responder: true, ..Capabilities::default() },
        key: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let station = Station::serve(config, Arc::clone(&archive) as _).unwrap();
    // Store the values before the peer is measured: a value that is older than the newest value of
    // its series is stored but not learnt.
    feed(&station, &[("here", "peer", 0.001, 1e7)]);
    let lease = runtime.block_on(archive.register(&entry, Duration::from_secs(60))).unwrap();
    let state_is = |state: &str| {
        let told = format!("\"state\":\"{state}\"");
        get_until(station.address(), "/v1/peers", |answer| answer.body.contains(&told));
    };
    state_is("up");
    assert_eq!(names(&ask(&station, "to=peer&bytes=1000").json()), ["peer"]);
    drop(lease);
    state_is("lost");
    // The forecasts are still fresh, and the mesh snapshot is not refreshed yet.
    let answer = ask(&station, "to=peer&bytes=1000").json();
    assert_eq!((names(&answer), answer["unknown"][0]["host"].as_str()), (vec![], Some("peer")), "{answer}");
    assert_eq!(answer["unknown"][0]["reason"], "its lease has ended (lost)");
    station.stop(LIMIT);
}
