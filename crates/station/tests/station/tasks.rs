//! Each long-lived task and thread of a station is killed; `/healthz` and `/metrics` name it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use barograph_forecast::Name;
use barograph_station::{Config, Station};
use serde_json::json;

use crate::engine::{ask, invite};
use crate::http::{get, get_until};
use crate::{LIMIT, Running, quiet, serve, up};

/// State of a task after the test has killed the task.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Down,
    /// The station started the task again.
    Up,
}

/// Gives work to the task that the test kills, so that the task runs and ends.
type Trigger = fn(&Pair, &str);

/// A station that serves its engine, and a member that has joined that station.
struct Pair {
    host: Running,
    member: Running,
}

fn by_itself(_: &Pair, _: &str) {}

/// Adds another peer to the directory: the member checks the addresses of this peer, and calls the
/// hooks.
fn new_peer(pair: &Pair, task: &str) {
    let name = format!("new-{}", task.replace('_', "-"));
    let token = invite(pair.host.address(), Some(&name));
    let entry = json!({ "host": name, "addresses": ["127.0.0.1:9"], "version": "0.1.0", "groups": ["local:default"],
        "capabilities": ["responder"] });
    let answer = ask(pair.host.address(), &token, "PUT", "entry?ttl_s=60", &entry.to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
}

fn question(pair: &Pair, _: &str) {
    let answer = get(pair.member.address(), "/v1/best?to=host&bytes=1");
    assert_ne!(answer.status, 400, "{}", answer.body);
}

/// All tasks of a station that has joined a mesh, in an order in which no task needs a task that
/// was killed earlier.
const MEMBER: &[(&str, Then, Trigger)] = &[
    ("http", Then::Up, by_itself),
    ("registration", Then::Up, by_itself),
    ("watch", Then::Up, by_itself),
    ("sites", Then::Up, by_itself),
    ("mesh_snapshot", Then::Up, question),
    ("check", Then::Up, new_peer),
    ("on_change", Then::Up, new_peer),
    ("webhook", Then::Up, new_peer),
    ("datagrams", Then::Down, by_itself),
    ("tester", Then::Down, by_itself),
    ("lease_renewal", Then::Up, by_itself),
    ("directory", Then::Down, by_itself),
    ("forwarder", Then::Down, by_itself),
    ("remote", Then::Down, by_itself),
    ("archive", Then::Down, by_itself),
    ("prober", Then::Down, by_itself),
    ("recorder", Then::Down, by_itself),
];

/// Tasks that run only at the station that serves the mesh.
const HOST: &[(&str, Then, Trigger)] = &[("member_leases", Then::Up, by_itself)];

fn config(state: &Path, host: &str) -> Config {
    let mut config = quiet(state);
    config.host = Some(Name::new(host).unwrap());
    config.sensor_period = Duration::from_millis(200);
    config
}

fn names(station: &Station) -> BTreeSet<&'static str> {
    station.tasks().iter().map(|task| task.name()).collect()
}

impl Pair {
    fn start(state: &Path) -> Self {
        let host = serve(config(&state.join("host"), "host"));
        let token = invite(host.address(), Some("member"));
        let mut config = config(&state.join("member"), "member");
        config.mesh.join = Some(host.url());
        let file = state.join("invitation");
        std::fs::write(&file, &token).unwrap();
        config.mesh.join_token_file = Some(file);
        // Use a short lease: if the task that renews the lease is killed, the station registers
        // again within seconds.
        config.mesh.lease = Duration::from_secs(2);
        config.mesh.on_change = Some("true".into());
        config.mesh.webhook = Some("http://127.0.0.1:9/".into());
        let member = up(config);
        let pair = Self { host, member };
        barograph_testkit::wait_until("the hooks have begun", || names(&pair.member).contains("webhook"));
        get_until(pair.member.address(), "/v1/mesh", |answer| {
            answer.json()["directory"]["connected"] == true
        });
        pair
    }
}

/// Kills a task, and waits until its death is reported.
fn kill(pair: &Pair, station: &Station, name: &str, then: Then, trigger: Trigger) {
    let task = station.tasks().into_iter().find(|task| task.name() == name).unwrap();
    assert_eq!((task.is_up(), task.panics()), (true, 0), "{name}");
    task.kill();
    trigger(pair, name);
    let address: SocketAddr = station.address();
    let ended = format!("the task '{name}' ended");
    let health = get_until(address, "/healthz", |answer| answer.body.contains(&ended));
    assert_eq!(health.status, 503, "{}", health.body);
    assert!(health.body.contains("killed by a test"), "{}", health.body);
    let up = if then == Then::Up { "1.0" } else { "0.0" };
    let line = format!("barograph_task_up{{task=\"{name}\"}} {up}\n");
    let metrics = get_until(address, "/metrics", |answer| answer.body.contains(&line)).body;
    let panics = format!("barograph_task_panics_total{{task=\"{name}\"}} 1.0\n");
    assert!(metrics.contains(&panics), "{name}: {metrics}");
}

#[test]
fn the_failure_of_each_task_is_reported() {
    let state = tempfile::tempdir().unwrap();
    let pair = Pair::start(state.path());
    let known = |tasks: &[(&'static str, Then, Trigger)]| -> BTreeSet<&str> {
        tasks.iter().map(|(name, ..)| *name).collect()
    };
    assert_eq!(names(&pair.member), known(MEMBER), "a task that no test kills");
    let also_host: BTreeSet<_> = known(MEMBER).union(&known(HOST)).copied().collect();
    assert!(names(&pair.host).is_subset(&also_host), "a task that no test kills: {:?}", names(&pair.host));
    for (name, then, trigger) in HOST {
        kill(&pair, &pair.host, name, *then, *trigger);
    }
    for (name, then, trigger) in MEMBER {
        kill(&pair, &pair.member, name, *then, *trigger);
    }
    let Pair { host, member } = pair;
    member.stop(LIMIT);
    host.stop(LIMIT);
}

#[test]
fn a_stopped_station_reports_no_task_failure() {
    let state = tempfile::tempdir().unwrap();
    let Pair { host, member } = Pair::start(state.path());
    let tasks: Vec<_> = [&host, &member].iter().flat_map(|station| station.tasks()).collect();
    member.stop(LIMIT);
    host.stop(LIMIT);
    let failures: Vec<_> = tasks.iter().filter_map(|task| task.failure()).collect();
    assert_eq!(failures, Vec::<String>::new());
}
