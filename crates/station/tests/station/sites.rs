//! Tests of `/v1/sites` with whole stations: sites are proposed, accepted, removed, and taken
//! automatically.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use barograph_engine::{Engine, Local};
use barograph_forecast::Name;
use barograph_station::{Config, MeshConfig, Station};
use serde_json::{Value, json};

use crate::http::{get, get_until, post, send};
use crate::mesh::{block_on, directory, entry, joined};
use crate::{LIMIT, Running, quiet};

fn feed(station: &Station, pairs: &[(&str, &str, f64)]) {
    let records = pairs.iter().flat_map(|(source, target, ms)| {
        (0..30).flat_map(move |i| {
            let value = ms / 1e3 * (1.0 + 1e-3 * f64::from(i % 5));
            [(source, target), (target, source)].map(|(source, target)| {
                json!({ "source": source, "target": target, "quantity": "rtt", "value": value })
            })
        })
    });
    let body = json!({ "records": records.collect::<Vec<_>>() }).to_string();
    let answer = post(station.address(), "/v1/measurements", &body);
    assert_eq!(answer.status, 201, "{}", answer.body);
}

fn sites(answer: &Value) -> Vec<(String, Value)> {
    let sites = answer["sites"].as_array().unwrap();
    sites.iter().map(|site| (site["site"].as_str().unwrap().to_string(), site["hosts"].clone())).collect()
}

#[test]
fn a_site_is_proposed_with_its_reason_accepted_stored_and_forgotten() {
    let state = tempfile::tempdir().unwrap();
    let directory = directory(&state.path().join("d"));
    let entries: Vec<_> = ["near", "far", "mute"]
        .map(|host| block_on(directory.register(&entry(host, &[]), Duration::from_secs(60))).unwrap())
        .into();
    let config = quiet(&state.path().join("here"));
    let station = joined(config.clone(), Some(&directory));
    let address = station.address();
    let refused = post(address, "/v1/sites", "{}");
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert!(refused.error().contains("too few forecasts yet"), "{}", refused.body);
    feed(&station, &[("here", "near", 0.3), ("here", "far", 20.0), ("near", "far", 21.0)]);
    let answer = get_until(address, "/v1/sites", |answer| !answer.json()["proposed"].is_null()).json();
    assert_eq!(sites(&answer)[0], ("far".to_string(), json!(["far"])));
    assert_eq!(sites(&answer)[1], ("here".to_string(), json!(["here", "near"])));
    assert_eq!(answer["unknown"], json!(["mute"]));
    assert_eq!(answer["now"], json!({ "site": "default", "represents": false, "from": "default" }));
    assert_eq!(answer["proposed"], json!({ "site": "here", "represents": true }));
    let site = &answer["sites"][1];
    assert_eq!(
        site["reason"],
        "here, near are within 0.3 ms of each other; the next host, far, is 20.5 ms away"
    );
    assert!(site["within"]["lower"].as_f64().unwrap() <= site["within"]["forecast"].as_f64().unwrap());
    assert_eq!((&site["next"]["host"], &site["too_close_to_call"]), (&json!("far"), &json!([])));
    // Only a proposed site is accepted, and only from callers on this host or with the token.
    for (body, status, told) in [
        (r#"{"site":"there"}"#, 409, "the site proposed for this station is here, not there"),
        (r#"{"sites":1}"#, 400, "unknown field"),
        ("", 400, "the body"),
    ] {
        let answer = post(address, "/v1/sites", body);
        assert_eq!(answer.status, status, "{}", answer.body);
        assert!(answer.error().contains(told), "{}", answer.body);
    }
    let accepted = post(address, "/v1/sites", r#"{"site":"here"}"#);
    assert_eq!(accepted.status, 200, "{}", accepted.body);
    assert_eq!(accepted.json()["now"], json!({ "site": "here", "represents": true, "from": "accepted" }));
    let mesh = get(address, "/v1/mesh").json();
    // The other stations have no site yet.
    let groups = json!(["local:here", "global", "local:default"]);
    assert_eq!((&mesh["site"], &mesh["groups"]), (&json!("here"), &groups));
    // The directory has the change without a restart.
    get_until(address, "/v1/mesh", |answer| answer.json()["directory"]["connected"] == true);
    let told = block_on(async {
        use futures_util::StreamExt;
        directory.watch(&Name::new("local:here").unwrap()).next().await.unwrap().unwrap()
    });
    assert!(matches!(&told, barograph_engine::Event::Up(entry) if entry.host.as_str() == "here"), "{told:?}");
    station.stop(LIMIT);
    let station = joined(config.clone(), Some(&directory));
    assert_eq!(get(station.address(), "/v1/mesh").json()["groups"], groups);
    let forgotten = send(station.address(), "DELETE", "/v1/sites", &[], "");
    assert_eq!(forgotten.json()["now"]["from"], "default", "{}", forgotten.body);
    assert_eq!(get(station.address(), "/v1/mesh").json()["groups"], json!(["local:default"]));
    station.stop(LIMIT);
    drop(entries);
}

#[test]
fn site_changes_are_refused_for_strangers_and_for_a_configured_site() {
    let state = tempfile::tempdir().unwrap();
    let mut config: Config = quiet(&state.path().join("here"));
    config.mesh.site = Name::new("lab").unwrap();
    let station = joined(config.clone(), None);
    let refused = post(station.address(), "/v1/sites", "{}");
    assert_eq!((refused.status, refused.error().contains("mesh.site is lab")), (409, true));
    assert_eq!(send(station.address(), "DELETE", "/v1/sites", &[], "").status, 409);
    station.stop(LIMIT);
    config.loopback_needs_token = true;
    let station = joined(config, None);
    assert_eq!(get(station.address(), "/v1/sites").status, 200);
    assert_eq!(post(station.address(), "/v1/sites", "{}").status, 401);
    assert_eq!(send(station.address(), "DELETE", "/v1/sites", &[], "").status, 401);
    station.stop(LIMIT);
}

/// A station with short rounds, in the mesh of `directory`.
fn quick(state: &Path, host: &str, directory: &Arc<Local>, change: impl FnOnce(&mut MeshConfig)) -> Running {
    let mut config = quiet(&state.join(host));
    config.host = Some(Name::new(host).unwrap());
    config.probe_period = Duration::from_millis(100);
    config.mesh.latency_per_s = 100.0;
    config.mesh.sites_hold = Duration::from_secs(1);
    config.mesh.bulk = false;
    change(&mut config.mesh);
    joined(config, Some(directory))
}

fn until_groups(station: &Station, groups: &[&str]) {
    get_until(station.address(), "/v1/mesh", |answer| answer.json()["groups"] == json!(groups));
}

/// Checks that each station has the other as a peer in these groups, and still measures it.
fn assert_measure_each_other(stations: [&Station; 2], groups: [&[&str]; 2]) {
    let hosts = ["a", "b"];
    for (own, other) in [(0, 1), (1, 0)] {
        let address = stations[own].address();
        get_until(address, "/v1/peers", |answer| {
            let peers = &answer.json()["peers"];
            let is_seen = |peer: &Value| {
                peer["host"] == hosts[other]
                    && peer["state"] == "up"
                    && peer["groups"] == json!(groups[other])
            };
            peers.as_array().unwrap().iter().any(is_seen)
        });
        let path = format!("/v1/latency?target={}&quantity=rtt", hosts[other]);
        let count = |answer: &Value| answer["latencies"][0]["count"].as_u64().unwrap_or(0);
        let before = count(&get(address, &path).json());
        get_until(address, &path, |answer| before < count(&answer.json()));
    }
}

#[test]
fn stations_that_accept_sites_in_turn_keep_measuring_each_other() {
    let state = tempfile::tempdir().unwrap();
    let directory = directory(&state.path().join("d"));
    let [a, b] = ["a", "b"].map(|host| quick(state.path(), host, &directory, |_| {}));
    let is_proposed = |station: &Station, represents: bool| {
        let position = json!({ "site": "a", "represents": represents });
        get_until(station.address(), "/v1/sites", |answer| answer.json()["proposed"] == position);
    };
    let accept = |station: &Station| {
        let answer = post(station.address(), "/v1/sites", "{}");
        assert_eq!(answer.status, 200, "{}", answer.body);
    };
    // First accept the site at station b. In the end, b must not represent the site.
    is_proposed(&b, true);
    accept(&b);
    assert_measure_each_other([&a, &b], [&["local:default"], &["local:a", "global", "local:default"]]);
    is_proposed(&a, true);
    accept(&a);
    // All stations have a site now.
    for station in [&a, &b] {
        until_groups(station, &["local:a", "global"]);
    }
    assert_measure_each_other([&a, &b], [&["local:a", "global"]; 2]);
    // After station b has accepted the site again, only station a represents the site.
    is_proposed(&b, false);
    accept(&b);
    assert_measure_each_other([&a, &b], [&["local:a", "global"], &["local:a"]]);
    // A new station without a site has peers.
    let c = quick(state.path(), "c", &directory, |_| {});
    get_until(c.address(), "/v1/mesh", |answer| answer.json()["peers"]["up"] == 2);
    for station in [a, b, c] {
        station.stop(LIMIT);
    }
}

#[test]
fn in_auto_mode_an_accepted_site_can_be_reset_and_an_automatic_site_cannot() {
    let state = tempfile::tempdir().unwrap();
    let directory = directory(&state.path().join("d"));
    let entries: Vec<_> = ["near", "other"]
        .map(|host| block_on(directory.register(&entry(host, &[]), Duration::from_secs(60))).unwrap())
        .into();
    // This time is so long that an operator can accept the site first.
    let hold = Duration::from_secs(3600);
    let station = quick(state.path(), "here", &directory, |mesh| {
        (mesh.sites_auto, mesh.sites_hold) = (true, hold);
    });
    let address = station.address();
    let refused = send(address, "DELETE", "/v1/sites", &[], "");
    assert_eq!((refused.status, refused.error().contains("mesh.sites is \"auto\"")), (409, true));
    feed(&station, &[("here", "near", 0.3), ("here", "other", 20.0), ("near", "other", 21.0)]);
    get_until(address, "/v1/sites", |answer| !answer.json()["proposed"].is_null());
    let accepted = post(address, "/v1/sites", "{}");
    assert_eq!(accepted.json()["now"]["from"], "accepted", "{}", accepted.body);
    let forgotten = send(address, "DELETE", "/v1/sites", &[], "");
    assert_eq!(forgotten.json()["now"], json!({ "site": "default", "represents": true, "from": "auto" }));
    station.stop(LIMIT);
    drop(entries);
}

#[test]
fn concurrent_site_changes_are_applied_one_after_the_other() {
    let state = tempfile::tempdir().unwrap();
    let directory = directory(&state.path().join("d"));
    let near = block_on(directory.register(&entry("near", &[]), Duration::from_secs(60))).unwrap();
    let station = quick(state.path(), "here", &directory, |_| {});
    let address = station.address();
    feed(&station, &[("here", "near", 0.3)]);
    get_until(address, "/v1/sites", |answer| !answer.json()["proposed"].is_null());
    let kept = state.path().join("here/site.json");
    for _ in 0..20 {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(post(address, "/v1/sites", "{}").status, 200));
                scope.spawn(|| assert_eq!(send(address, "DELETE", "/v1/sites", &[], "").status, 200));
            }
        });
        let is_taken = get(address, "/v1/mesh").json()["site"] == "here";
        assert_eq!(kept.exists(), is_taken, "what is kept is where it stands");
    }
    station.stop(LIMIT);
    drop(near);
}

#[test]
fn stations_of_one_host_settle_at_one_site_with_one_representative() {
    let state = tempfile::tempdir().unwrap();
    let directory = directory(&state.path().join("d"));
    // The configuration keeps station `c` in `global`, even if no proposal selects `c`. The sites
    // of the stations must still become stable.
    let start = |host: &str| {
        quick(state.path(), host, &directory, |mesh| {
            mesh.sites_auto = true;
            mesh.groups = (host == "c").then(|| Name::new("global").unwrap()).into_iter().collect();
        })
    };
    let stations = ["a", "b", "c"].map(start);
    let now = || stations.each_ref().map(|station| get(station.address(), "/v1/sites").json());
    get_until(stations[0].address(), "/v1/sites", |_| {
        // Each station has only its own measurements, and the groups of the other stations.
        let is_there = |answer: &Value| answer["now"]["site"] == "a" && answer["pending"].is_null();
        let represent =
            |answers: &[Value]| answers.iter().filter(|one| one["now"]["represents"] == true).count();
        let answers = now();
        answers.iter().all(is_there) && represent(&answers[..2]) <= 1
    });
    for (station, answer) in stations.iter().zip(now()) {
        assert_eq!(answer["now"]["from"], "auto");
        let groups = ["local:a", "global"];
        until_groups(station, if answer["now"]["represents"] == true { &groups } else { &groups[..1] });
        get_until(station.address(), "/v1/mesh", |answer| answer.json()["peers"]["up"] == 2);
    }
    for station in stations {
        station.stop(LIMIT);
    }
}
