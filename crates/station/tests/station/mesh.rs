//! Tests of stations with a common directory: the stations find each other, sign requests, measure
//! each other, and detect lost peers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use barograph_engine::{Capabilities, Engine, EngineError, Entry, Local};
use barograph_station::{Config, Station, open_archive};
use barograph_testkit::{EngineCall, EngineHooks, HookedEngine, name};
use serde_json::Value;

use crate::http::{SseReader, get, get_until, send};
use crate::{LIMIT, Running, quiet, start_new, start_over};

/// Engine with the station's own archive, and with a directory that several stations share. Without
/// `directory`, the directory is unreachable.
struct Shared {
    own: Arc<dyn Engine>,
    directory: Option<Arc<Local>>,
    registrations: Arc<AtomicUsize>,
}

fn away() -> EngineError {
    EngineError::Unavailable("nobody is there".into())
}

impl EngineHooks for Shared {
    fn route(&self, call: EngineCall<'_>) -> Result<Arc<dyn Engine>, EngineError> {
        match call {
            EngineCall::Register(_) | EngineCall::Watch | EngineCall::Remove => {
                let count = usize::from(matches!(call, EngineCall::Register(_)));
                self.registrations.fetch_add(count, Ordering::SeqCst);
                self.directory.clone().map(|directory| directory as _).ok_or_else(away)
            }
            _ => Ok(Arc::clone(&self.own)),
        }
    }
}

pub(crate) fn directory(state: &Path) -> Arc<Local> {
    Arc::new(Local::open(barograph_engine::LocalConfig::new(state)).unwrap())
}

/// A station for which callers on this host are anonymous, like those on other hosts.
fn config(state: &Path, host: &str) -> Config {
    let mut config = quiet(state);
    config.host = Some(name(host));
    config.loopback_needs_token = true;
    config.probe_period = Duration::from_millis(200);
    config
}

pub(crate) fn joined(config: Config, directory: Option<&Arc<Local>>) -> Running {
    counted(config, directory, &Arc::default())
}

/// Starts a station like [`joined`], and counts its registrations.
fn counted(config: Config, directory: Option<&Arc<Local>>, registrations: &Arc<AtomicUsize>) -> Running {
    let own = Arc::new(open_archive(&config).unwrap());
    let registrations = Arc::clone(registrations);
    let engine = HookedEngine::new(Shared { own, directory: directory.cloned(), registrations });
    start_over(config, engine)
}

pub(crate) fn entry(host: &str, addresses: &[&str]) -> Entry {
    Entry {
        addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        version: env!("CARGO_PKG_VERSION").into(),
        groups: vec![name("local:default")],
        capabilities: Capabilities { responder: true, ..Capabilities::default() },
        key: Some([9; 32]),
        ..barograph_testkit::entry(host)
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn peer(answer: &Value, host: &str) -> Option<Value> {
    answer["peers"].as_array().unwrap().iter().find(|peer| peer["host"] == host).cloned()
}

fn until_peer(station: &Station, host: &str, satisfied: impl Fn(&Value) -> bool) -> Value {
    let is_so = |peer: Option<Value>| peer.is_some_and(|peer| satisfied(&peer));
    let answer = get_until(station.address(), "/v1/peers", |answer| is_so(peer(&answer.json(), host)));
    peer(&answer.json(), host).unwrap()
}

fn until_forecast(station: &Station, target: &str, quantity: &str) {
    let path = format!("/v1/forecast?target={target}&quantity={quantity}");
    get_until(station.address(), &path, |answer| !answer.json()["forecasts"].as_array().unwrap().is_empty());
}

#[test]
fn two_stations_forecast_each_other_without_a_token_and_report_a_lost_peer() {
    let state = tempfile::tempdir().unwrap();
    let directory = directory(&state.path().join("d"));
    let a = joined(config(&state.path().join("a"), "a"), Some(&directory));
    let b_config = config(&state.path().join("b"), "b");
    let b = joined(b_config.clone(), Some(&directory));
    for (station, other) in [(&a, "b"), (&b, "a")] {
        until_forecast(station, other, "rtt");
        until_forecast(station, other, "loss");
        let seen = until_peer(station, other, |peer| peer["address"].is_string());
        assert_eq!(
            (seen["state"].as_str(), seen["version"].as_str()),
            (Some("up"), Some(env!("CARGO_PKG_VERSION")))
        );
        assert_eq!(seen["capabilities"], serde_json::json!(["responder", "bulk"]));
    }
    let series = get(a.address(), "/v1/series?target=b").json();
    let quantities: Vec<&str> =
        series["series"].as_array().unwrap().iter().map(|one| one["quantity"].as_str().unwrap()).collect();
    assert_eq!(quantities, ["loss", "rtt"]);
    assert_eq!(series["series"][1]["failures"], 0, "no refusal came before the signature");
    let targets = get(a.address(), "/v1/targets").json();
    assert_eq!(targets["targets"][0]["from"], "mesh", "{targets}");
    let mesh = get(a.address(), "/v1/mesh").json();
    assert_eq!((mesh["role"].as_str(), mesh["directory"]["connected"].as_bool()), (Some("host"), Some(true)));
    assert_eq!(mesh["groups"], serde_json::json!(["local:default"]));
    let spread = get(a.address(), "/v1/latency?target=b&quantity=rtt").json()["latencies"][0].clone();
    assert_eq!((spread["source"].as_str(), spread["target"].as_str()), (Some("a"), Some("b")), "{spread}");
    assert!(spread["count"].as_u64().is_some_and(|count| count >= 11), "{spread}");
    assert!(spread["p50_s"].as_f64().is_some_and(|median| 0.0 < median && median < 0.1), "{spread}");
    assert_eq!(get(a.address(), "/v1/latency?from=b").status, 400);
    assert_eq!(get(a.address(), "/v1/latency?target=c").json()["latencies"], serde_json::json!([]));
    let histogram =
        "barograph_mesh_latency_seconds_bucket{quantity=\"rtt\",source=\"a\",target=\"b\",le=\"10.0\"} ";
    assert!(get(a.address(), "/metrics").body.contains(histogram));

    let mut events = SseReader::open(a.address(), "/v1/peers/events");
    let (first, joined_event) = events.next().unwrap();
    assert_eq!((first.as_str(), joined_event["host"].as_str()), ("joined", Some("b")));
    b.stop(LIMIT);
    let (word, lost) = events.next().unwrap();
    assert_eq!((word.as_str(), lost["host"].as_str()), ("lost", Some("b")));
    until_peer(&a, "b", |peer| peer["state"] == "lost");
    assert_eq!(get(a.address(), "/v1/latency?target=b").json()["latencies"][0]["target"], "b", "it stays");
    get_until(a.address(), "/v1/targets", |answer| answer.json()["targets"].as_array().unwrap().is_empty());
    let b = joined(b_config, Some(&directory));
    let (word, returned) = events.next().unwrap();
    assert_eq!((word.as_str(), returned["host"].as_str()), ("returned", Some("b")));
    assert!(joined_event["id"].as_u64() < lost["id"].as_u64());
    until_peer(&a, "b", |peer| peer["state"] == "up" && peer["address"] == b.address().to_string());

    let metrics = get(a.address(), "/metrics").body;
    assert!(metrics.contains("barograph_mesh_peers{state=\"up\"} 1.0"), "{metrics}");
    assert!(metrics.contains("barograph_mesh_directory_up 1.0"));
}

#[test]
fn a_subscriber_that_was_away_gets_the_missed_events() {
    let state = tempfile::tempdir().unwrap();
    let directory = directory(&state.path().join("d"));
    let a = joined(config(&state.path().join("a"), "a"), Some(&directory));
    let mut events = SseReader::open(a.address(), "/v1/peers/events");
    let ttl = Duration::from_secs(10);
    let leases =
        ["x", "y"].map(|host| block_on(directory.register(&entry(host, &["127.0.0.1:9"]), ttl)).unwrap());
    let (_, first) = events.next().unwrap();
    let (_, second) = events.next().unwrap();
    let id = first["id"].to_string();
    let address = a.address();
    let head = format!("GET /v1/peers/events HTTP/1.1\r\nHost: {address}\r\nLast-Event-ID: {id}\r\n\r\n");
    let mut stream = crate::http::connect(address);
    std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stream));
    let data = lines.find_map(|line| line.unwrap().strip_prefix("data: ").map(String::from)).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&data).unwrap(), second);
    let wrong = send(address, "GET", "/v1/peers/events", &[("Last-Event-ID", "x")], "");
    assert_eq!(wrong.status, 400, "{}", wrong.body);
    drop(leases);
}

#[test]
fn a_request_without_a_valid_signature_is_refused_with_a_reason() {
    let state = tempfile::tempdir().unwrap();
    let directory = directory(&state.path().join("d"));
    let a = joined(config(&state.path().join("a"), "a"), Some(&directory));
    let ask = |authorization: &str| {
        let headers =
            [("Authorization", authorization), ("Connection", "Upgrade"), ("Upgrade", "barograph-probe/1")];
        send(a.address(), "GET", "/v1/probe", &headers, "")
    };
    let challenge_of = |head: &str| {
        let at = head.find("challenge=\"").unwrap() + "challenge=\"".len();
        head[at..at + 32].to_string()
    };
    let refused = get(a.address(), "/v1/probe");
    assert_eq!(refused.status, 401);
    assert!(
        refused.head.contains("www-authenticate: barograph-station realm=\"a\", challenge=\""),
        "{}",
        refused.head
    );
    assert!(
        refused.head.contains("www-authenticate: bearer")
            && refused.head.contains("\r\nbarograph-station: a\r\n")
    );
    let challenge = challenge_of(&refused.head);
    let signature = "0".repeat(128);
    let with = |name: &str, challenge: &str| {
        format!("Barograph-Station name=\"{name}\", challenge=\"{challenge}\", signature=\"{signature}\"")
    };
    let answer = ask(&with("nobody", &challenge));
    assert_eq!(answer.status, 401);
    assert!(answer.error().contains("no peer of this station"), "{}", answer.body);
    let never_issued = "0".repeat(32);
    assert!(ask(&with("nobody", &never_issued)).error().contains("unknown, used or expired"));
    let lease = block_on(directory.register(&entry("x", &["127.0.0.1:9"]), Duration::from_secs(10))).unwrap();
    until_peer(&a, "x", |peer| peer["state"] == "up");
    let challenge = challenge_of(&ask("Bearer wrong").head);
    let answer = ask(&with("x", &challenge));
    assert!(answer.status == 401 && answer.error().contains("does not match"), "{}", answer.body);
    assert!(ask("Barograph-Station name=\"x\"").error().contains("expected"));
    // An unknown challenge, and a name that is not in the directory (yet), do not count as guesses.
    let metrics = get(a.address(), "/metrics").body;
    assert!(metrics.contains("barograph_wrong_credentials_total{kind=\"signature\"} 2.0\n"), "{metrics}");
    // A signature does not permit other requests, such as the removal of a target.
    let headers = [("Authorization", with("x", &challenge))];
    let headers = headers.each_ref().map(|(key, value)| (*key, value.as_str()));
    let other = send(a.address(), "DELETE", "/v1/targets?target=a:1", &headers, "");
    assert_eq!(other.status, 401);
    assert!(!other.head.contains("challenge="), "{}", other.head);
    drop(lease);
}

#[test]
fn invalid_peers_are_shown_with_a_reason_and_not_measured() {
    let state = tempfile::tempdir().unwrap();
    let directory = directory(&state.path().join("d"));
    let a = joined(config(&state.path().join("a"), "a"), Some(&directory));
    // This address accepts connections in its backlog and never sends anything.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap().to_string();
    let entries = [
        Entry { version: "0.0.1".into(), ..entry("old", &[&at]) },
        Entry { version: "\u{1}nonsense".into(), ..entry("odd", &[&at]) },
        entry("nowhere", &["0.0.0.0:1", "224.0.0.1:1", "127.0.0.1:0"]),
        entry("mirror", &[&a.address().to_string()]),
        entry("silent", &[&at]),
    ];
    let ttl = Duration::from_secs(10);
    let leases = entries.map(|entry| block_on(directory.register(&entry, ttl)).unwrap());
    for (host, word) in
        [("old", "0.0.1"), ("odd", "nonsense"), ("nowhere", "0.0.0.0:1"), ("mirror", "this station's own")]
    {
        let seen = until_peer(&a, host, |peer| peer["state"] == "ignored");
        let reason = seen["reason"].as_str().unwrap();
        assert!(reason.contains(word) && !reason.contains('\u{1}'), "{host}: {reason}");
    }
    let seen = until_peer(&a, "silent", |peer| peer["reason"].is_string());
    assert!(seen["state"] == "up" && seen["reason"].as_str().unwrap().contains("no answer for"), "{seen}");
    get_until(a.address(), "/v1/series?target=silent&quantity=rtt", |answer| {
        answer.json()["series"][0]["failures"].as_u64().is_some_and(|failures| failures > 0)
    });
    let targets = get(a.address(), "/v1/targets").json();
    assert!(targets["targets"].as_array().unwrap().is_empty(), "looking for it is enough: {targets}");
    drop(leases);
}

#[test]
fn a_name_conflict_is_reported_until_the_name_is_free() {
    let state = tempfile::tempdir().unwrap();
    let directory = directory(&state.path().join("d"));
    let a = joined(config(&state.path().join("a"), "a"), Some(&directory));
    get_until(a.address(), "/v1/mesh", |answer| answer.json()["directory"]["connected"] == true);
    let lease = block_on(directory.register(&entry("a", &["127.0.0.1:9"]), Duration::from_secs(10))).unwrap();
    let answer = get_until(a.address(), "/healthz", |answer| answer.status == 503);
    assert!(answer.body.contains("another station is registered as `a` (at 127.0.0.1:9)"), "{}", answer.body);
    assert!(get(a.address(), "/v1/mesh").json()["directory"]["conflict"].is_string());
    drop(lease);
    // The name is free again, and the station registers.
    get_until(a.address(), "/healthz", |answer| answer.status == 200);
    a.stop(LIMIT);
}

/// Two stations of one name both run: the first station reports that it has lost its name, and
/// neither station displaces the other station again.
fn two_of_one_name(copy_the_key: bool) {
    let state = tempfile::tempdir().unwrap();
    let directory = directory(&state.path().join("d"));
    let registrations = Arc::<AtomicUsize>::default();
    let first = counted(config(&state.path().join("1"), "a"), Some(&directory), &registrations);
    get_until(first.address(), "/v1/mesh", |answer| answer.json()["directory"]["connected"] == true);
    let second_config = config(&state.path().join("2"), "a");
    if copy_the_key {
        std::fs::create_dir(&second_config.state).unwrap();
        let [from, to] = ["1", "2"].map(|which| state.path().join(which).join("station.key"));
        std::fs::copy(from, to).unwrap();
    }
    let second = counted(second_config, Some(&directory), &registrations);
    let answer = get_until(first.address(), "/healthz", |answer| answer.status == 503);
    let at = format!("is registered as `a` (at {})", second.address());
    assert!(answer.body.contains(&at), "{}", answer.body);
    assert_eq!(answer.body.contains("with this station's key"), copy_the_key, "{}", answer.body);
    let mesh = get(first.address(), "/v1/mesh").json();
    assert!(mesh["directory"]["conflict"].is_string() && mesh["directory"]["connected"] == false, "{mesh}");
    // Wait long enough for a possible conflict: until a third station has joined and has a
    // forecast.
    let other = joined(config(&state.path().join("b"), "b"), Some(&directory));
    until_forecast(&other, "a", "rtt");
    assert_eq!(registrations.load(Ordering::SeqCst), 2);
    assert_eq!(get(second.address(), "/healthz").status, 200);
    second.stop(LIMIT);
    // The name is free again, and the first station registers.
    get_until(first.address(), "/healthz", |answer| answer.status == 200);
    until_peer(&other, "a", |peer| peer["address"] == first.address().to_string());
    assert_eq!(registrations.load(Ordering::SeqCst), 3);
}

#[test]
fn two_running_stations_of_one_name_do_not_displace_each_other_repeatedly() {
    two_of_one_name(false);
}

#[test]
fn a_copy_of_a_station_is_distinguished_from_the_station() {
    two_of_one_name(true);
}

#[test]
fn an_unreachable_directory_is_reported_and_known_peers_are_measured() {
    let state = tempfile::tempdir().unwrap();
    let directory = directory(&state.path().join("d"));
    let a_config = config(&state.path().join("a"), "a");
    let a = joined(a_config.clone(), Some(&directory));
    let _b = joined(config(&state.path().join("b"), "b"), Some(&directory));
    until_forecast(&a, "b", "rtt");
    a.stop(LIMIT);
    let a = joined(a_config, None);
    let count = || get(a.address(), "/v1/series?target=b&quantity=rtt").json()["series"][0]["count"].as_u64();
    let before = count();
    get_until(a.address(), "/v1/series?target=b&quantity=rtt", |_| before < count());
    let mesh =
        get_until(a.address(), "/v1/mesh", |answer| answer.json()["directory"]["error"].is_string()).json();
    assert_eq!(mesh["directory"]["connected"], false);
    assert!(mesh["directory"]["error"].as_str().unwrap().contains("nobody is there"), "{mesh}");
    assert!(!state.path().join("a/peers.json.new").exists() && state.path().join("a/peers.json").exists());
}

#[test]
fn a_single_station_is_its_own_directory_and_is_healthy() {
    let station = start_new(quiet);
    get_until(station.address(), "/v1/mesh", |answer| answer.json()["directory"]["connected"] == true);
    let mesh = get(station.address(), "/v1/mesh").json();
    assert_eq!((mesh["engine"].as_str(), mesh["spool"].is_null()), (Some("local"), true));
    assert!(get(station.address(), "/v1/peers").json()["peers"].as_array().unwrap().is_empty());
    assert_eq!(get(station.address(), "/healthz").status, 200);
}
