//! `/v1/sites` of whole stations: proposed, accepted, forgotten, and taken by stations themselves.

use std::time::Duration;

use barograph_engine::Engine;
use barograph_forecast::Name;
use barograph_station::{Config, Station};
use serde_json::{Value, json};

use crate::http::{get, post, send, until};
use crate::mesh::{block_on, directory, entry, joined};
use crate::{LIMIT, quiet};

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
fn a_place_is_proposed_with_its_reason_accepted_kept_and_forgotten() {
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
    assert!(refused.error().contains("too little is forecast yet"), "{}", refused.body);
    feed(&station, &[("here", "near", 0.3), ("here", "far", 20.0), ("near", "far", 21.0)]);
    let answer = until(address, "/v1/sites", |answer| !answer.json()["proposed"].is_null()).json();
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
    // Only what was seen is accepted, and by somebody here or with the token.
    for (body, status, told) in [
        (r#"{"site":"there"}"#, 409, "there is not proposed for this station now, but here"),
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
    assert_eq!((&mesh["site"], &mesh["groups"]), (&json!("here"), &json!(["local:here", "global"])));
    // The directory knows, without a restart.
    until(address, "/v1/mesh", |answer| answer.json()["directory"]["connected"] == true);
    let told = block_on(async {
        use futures_util::StreamExt;
        directory.watch(&Name::new("local:here").unwrap()).next().await.unwrap().unwrap()
    });
    assert!(matches!(&told, barograph_engine::Event::Up(entry) if entry.host.as_str() == "here"), "{told:?}");
    station.stop(LIMIT);
    let station = joined(config.clone(), Some(&directory));
    assert_eq!(get(station.address(), "/v1/mesh").json()["groups"], json!(["local:here", "global"]));
    let forgotten = send(station.address(), "DELETE", "/v1/sites", &[], "");
    assert_eq!(forgotten.json()["now"]["from"], "default", "{}", forgotten.body);
    assert_eq!(get(station.address(), "/v1/mesh").json()["groups"], json!(["local:default"]));
    station.stop(LIMIT);
    drop(entries);
}

#[test]
fn strangers_and_a_configured_site_are_refused() {
    let state = tempfile::tempdir().unwrap();
    let mut config: Config = quiet(&state.path().join("here"));
    config.mesh.site = Name::new("lab").unwrap();
    let station = joined(config.clone(), None);
    let refused = post(station.address(), "/v1/sites", "{}");
    assert_eq!((refused.status, refused.error().contains("mesh.site is set to lab")), (409, true));
    station.stop(LIMIT);
    config.loopback_needs_token = true;
    let station = joined(config, None);
    assert_eq!(get(station.address(), "/v1/sites").status, 200);
    assert_eq!(post(station.address(), "/v1/sites", "{}").status, 401);
    assert_eq!(send(station.address(), "DELETE", "/v1/sites", &[], "").status, 401);
    station.stop(LIMIT);
}

#[test]
fn stations_of_one_host_settle_at_one_site_with_one_representative() {
    let state = tempfile::tempdir().unwrap();
    let directory = directory(&state.path().join("d"));
    let start = |host: &str| {
        let mut config = quiet(&state.path().join(host));
        config.host = Some(Name::new(host).unwrap());
        config.probe_period = Duration::from_millis(100);
        config.mesh.latency_per_s = 100.0;
        config.mesh.sites_auto = true;
        config.mesh.sites_hold = Duration::from_secs(1);
        config.mesh.bulk = false;
        joined(config, Some(&directory))
    };
    let stations = ["a", "b", "c"].map(start);
    for station in &stations {
        until(station.address(), "/v1/sites", |answer| {
            let answer = answer.json();
            // Each of them sees its own row alone, and the others' word for their sites.
            answer["now"]["from"] == "auto"
                && answer["now"]["site"] == "a"
                && answer["now"]["represents"] == (answer["host"] == "a")
        });
    }
    for station in stations {
        let mesh = get(station.address(), "/v1/mesh").json();
        assert_eq!(mesh["peers"]["up"], 2, "{mesh}");
        station.stop(LIMIT);
    }
}
