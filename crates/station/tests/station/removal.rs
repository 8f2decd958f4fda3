//! Tests of a station that is removed from the mesh. All other stations remove the series of this
//! station. A station that was stopped at that time does so after its start.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use barograph_forecast::Name;
use barograph_station::Config;
use barograph_station::target::Secret;

use crate::engine::invite;
use crate::http::{SseReader, get, get_until, send};
use crate::{LIMIT, quiet, serve, up};

fn config(state: &Path, host: &str) -> Config {
    let mut config = quiet(&state.join(host));
    config.host = Some(Name::new(host).unwrap());
    config.probe_period = Duration::from_millis(200);
    config.mesh.latency_per_s = 10.0;
    config.mesh.bulk = false;
    config
}

fn member(state: &Path, host: &str, head: SocketAddr) -> Config {
    let mut config = config(state, host);
    config.mesh.join = Some(format!("http://{head}/"));
    config.mesh.join_token = Some(Secret::new(invite(head, None)));
    config
}

fn knows(address: SocketAddr, host: &str) -> bool {
    let peers = get(address, "/v1/peers").json();
    peers["peers"].as_array().unwrap().iter().any(|peer| peer["host"] == host)
}

fn until_forgotten(address: SocketAddr, host: &str) {
    get_until(address, "/v1/peers", |_| !knows(address, host));
}

/// Checks that the host is not a peer, and that no series has this host as source or target.
fn shows_nothing_of(address: SocketAddr, host: &str) {
    let quoted = format!("\"{host}\"");
    for path in
        ["/v1/peers", "/metrics", "/v1/series", "/v1/latest", "/v1/forecast", "/v1/latency", "/v1/targets"]
    {
        let answer = get(address, path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        assert!(!answer.body.contains(&quoted), "{path}: {}", answer.body);
    }
}

/// Waits until `count` peers are lost, by the metric that the alert `BarographMeshPeersLost` uses.
fn until_lost(address: SocketAddr, count: u32) {
    let sample = format!("barograph_mesh_peers{{state=\"lost\"}} {count}.0\n");
    get_until(address, "/metrics", |answer| answer.body.contains(&sample));
}

fn has_history(address: SocketAddr, source: &str, target: &str) {
    let path = format!("/v1/history?source={source}&target={target}&quantity=rtt");
    let history = get(address, &path);
    assert_eq!(history.status, 200, "{}", history.body);
    assert!(!history.json()["records"].as_array().unwrap().is_empty());
}

#[test]
fn a_removed_station_is_forgotten_everywhere_and_its_history_is_kept() {
    let state = tempfile::tempdir().unwrap();
    let mut head_config = config(state.path(), "head");
    let head = serve(head_config.clone());
    head_config.listen = head.address();
    let [mut gone_config, c_config, away_config] =
        ["gone", "c", "away"].map(|host| member(state.path(), host, head.address()));
    let [gone, c, away] = [&gone_config, &c_config, &away_config].map(|config| up(config.clone()));
    for (station, source) in [(&head, "head"), (&c, "c"), (&away, "away")] {
        let path = format!("/v1/forecast?source={source}&target=gone&quantity=rtt");
        get_until(station.address(), &path, |answer| {
            !answer.json()["forecasts"].as_array().unwrap().is_empty()
        });
    }
    let measured = "/v1/series?source=gone&target=head&quantity=rtt";
    get_until(head.address(), measured, |answer| !answer.json()["series"].as_array().unwrap().is_empty());
    // Station `away` has the other stations as peers. Stop it before one of these peers is removed.
    away.stop(LIMIT);
    let mut events = SseReader::open(c.address(), "/v1/peers/events");
    let removed = send(head.address(), "DELETE", "/v1/members?name=gone", &[], "");
    assert_eq!(removed.status, 200, "{}", removed.body);
    for station in [&head, &c] {
        until_forgotten(station.address(), "gone");
        shows_nothing_of(station.address(), "gone");
        until_lost(station.address(), 1);
    }
    let told = std::iter::from_fn(|| events.next())
        .find(|(_, data)| data["host"] == "gone" && data["event"] != "joined");
    assert_eq!(told.unwrap().0, "removed");
    has_history(c.address(), "c", "gone");
    has_history(head.address(), "gone", "head");
    // Station `gone` is refused, however often it tries to register.
    let refused = get_until(gone.address(), "/v1/mesh", |answer| {
        answer.json()["directory"]["error"].as_str().is_some_and(|why| why.contains("withdrawn"))
    });
    assert_eq!(refused.json()["directory"]["connected"], false);
    gone.stop(LIMIT);

    // After restarts of a member and of the station that serves the mesh, station `gone` is still
    // removed.
    c.stop(LIMIT);
    let c = up(c_config.clone());
    head.stop(LIMIT);
    let head = serve(head_config);
    let away = up(away_config.clone());
    for station in [&head, &c, &away] {
        get_until(station.address(), "/v1/peers", |answer| {
            answer.json()["peers"].as_array().unwrap().len() == 2
        });
        until_forgotten(station.address(), "gone");
        shows_nothing_of(station.address(), "gone");
        until_lost(station.address(), 0);
    }
    has_history(away.address(), "away", "gone");

    // After a new invitation, `gone` counts as a new station.
    let mut events = SseReader::open(away.address(), "/v1/peers/events");
    gone_config.mesh.join_token = Some(Secret::new(invite(head.address(), Some("gone"))));
    let gone = up(gone_config.clone());
    let told = std::iter::from_fn(|| events.next())
        .find(|(_, data)| data["host"] == "gone" && data["event"] != "removed");
    assert_eq!(told.unwrap().0, "joined");
    let path = "/v1/forecast?source=away&target=gone&quantity=rtt";
    get_until(away.address(), path, |answer| !answer.json()["forecasts"].as_array().unwrap().is_empty());
    // A station that is stopped without a removal becomes lost, and is up again after a restart, as
    // before.
    gone.stop(LIMIT);
    until_lost(away.address(), 1);
    for station in [away, c, head] {
        station.stop(LIMIT);
    }
}

fn hand_in(address: SocketAddr, target: &str) {
    let body = format!(r#"{{"records": [{{"target": "{target}", "quantity": "depth", "value": 1}}]}}"#);
    let answer = send(address, "POST", "/v1/measurements", &[("Content-Type", "application/json")], &body);
    assert_eq!(answer.status, 201, "{}", answer.body);
}

#[test]
fn a_station_that_is_admitted_again_at_another_site_is_shown_again() {
    let state = tempfile::tempdir().unwrap();
    let head = serve(config(state.path(), "head"));
    let mut gone_config = member(state.path(), "gone", head.address());
    let gone = up(gone_config.clone());
    let measured = "/v1/series?source=gone&quantity=depth";
    hand_in(gone.address(), "gone");
    get_until(head.address(), measured, |answer| !answer.json()["series"].as_array().unwrap().is_empty());
    assert_eq!(send(head.address(), "DELETE", "/v1/members?name=gone", &[], "").status, 200);
    until_forgotten(head.address(), "gone");
    gone.stop(LIMIT);
    // The station that serves the mesh shares no group with `gone` any more, so no watch of this
    // station reports that `gone` is back.
    gone_config.mesh.site = Name::new("lyon").unwrap();
    gone_config.mesh.join_token = Some(Secret::new(invite(head.address(), Some("gone"))));
    let gone = up(gone_config.clone());
    hand_in(gone.address(), "gone");
    get_until(head.address(), measured, |answer| !answer.json()["series"].as_array().unwrap().is_empty());
    for station in [gone, head] {
        station.stop(LIMIT);
    }
}

/// The directory reports a removal again at each new watch.
#[test]
fn a_repeated_report_of_a_removal_does_not_hide_the_values_of_an_application() {
    let state = tempfile::tempdir().unwrap();
    let mut head_config = config(state.path(), "head");
    let head = serve(head_config.clone());
    head_config.listen = head.address();
    let b = up(member(state.path(), "b", head.address()));
    let gone = up(member(state.path(), "gone", head.address()));
    get_until(b.address(), "/v1/peers", |_| knows(b.address(), "gone"));
    assert_eq!(send(head.address(), "DELETE", "/v1/members?name=gone", &[], "").status, 200);
    until_forgotten(b.address(), "gone");
    gone.stop(LIMIT);
    let has = |count: u32| {
        get_until(b.address(), "/v1/series?target=gone&quantity=depth", |answer| {
            answer.json()["series"][0]["count"] == count
        })
    };
    hand_in(b.address(), "gone");
    has(1);
    head.stop(LIMIT);
    get_until(b.address(), "/v1/mesh", |answer| answer.json()["directory"]["connected"] == false);
    let head = serve(head_config);
    get_until(b.address(), "/v1/mesh", |answer| answer.json()["directory"]["connected"] == true);
    // The station has handled the report when it has handled a later event.
    let c = up(member(state.path(), "c", head.address()));
    get_until(b.address(), "/v1/peers", |_| knows(b.address(), "c"));
    hand_in(b.address(), "gone");
    has(2);
    for station in [c, b, head] {
        station.stop(LIMIT);
    }
}

#[test]
fn withdrawing_an_unused_invitation_removes_no_station() {
    let state = tempfile::tempdir().unwrap();
    let head = serve(config(state.path(), "head"));
    hand_in(head.address(), "db");
    invite(head.address(), Some("db"));
    assert_eq!(send(head.address(), "DELETE", "/v1/members?name=db", &[], "").status, 200);
    // The next record arrives after all effects of the removal.
    hand_in(head.address(), "other");
    let series = |target| get(head.address(), &format!("/v1/series?target={target}")).json();
    get_until(head.address(), "/v1/series?target=other", |answer| answer.json()["series"][0]["count"] == 1);
    assert_eq!(series("db")["series"][0]["count"], 1);
    let list = std::fs::read_to_string(state.path().join("head/removed.json")).unwrap_or_default();
    assert!(!list.contains("db"), "{list}");
}
