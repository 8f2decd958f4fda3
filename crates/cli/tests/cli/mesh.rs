//! Stations on two hosts (network namespaces), as people run them: joined, killed, restarted, and
//! at sites that they found. Without root, the tests are skipped with a message. Only the creation
//! of the hosts needs root; an ordinary user runs the stations where possible.

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use barograph_sim::{Host, Link, LinkSpec, Network, network_or_skip};
use barograph_testkit::{ChildProcess, http};
use serde_json::{Value, json};

/// Time limit in which two new stations must have forecasts of each other.
const FRESH: Duration = Duration::from_secs(60);
/// Time limit in which stations must find their sites. The limit includes the time until the first
/// forecasts, twice the eight seconds for which a change must be stable, and delays of a busy
/// machine.
const SETTLED: Duration = Duration::from_secs(180);
/// Time limit in which the end of a lease must be detected: the default lease, plus one second.
const LEASE: Duration = Duration::from_secs(11);
/// User ID of the user without privileges.
const USER: u32 = 65_534;

/// A station on a host.
struct Up<'a> {
    host: &'a Host,
    address: SocketAddr,
    /// The program, killed when dropped.
    _program: ChildProcess,
}

impl<'a> Up<'a> {
    fn start(host: &'a Host, state: &Path, program: &Path, arguments: &[&str], token: Option<&str>) -> Self {
        let mut command = std::process::Command::new(program);
        command.args(["up", "--no-default-targets", "--state"]).arg(state).args(arguments);
        command.env_clear().env("HOME", state).stderr(Stdio::null());
        command.envs(token.map(|token| ("BAROGRAPH_JOIN_TOKEN", token)));
        command.uid(USER).gid(USER);
        // A child runs on the host of the thread that starts it.
        let (mut program, line) = host.run(move || ChildProcess::with_line(&mut command)).unwrap();
        let port = line.strip_prefix("listening on http://[::1]:").and_then(|rest| rest.split('/').next());
        let port = port.and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("{line:?}"));
        let far = format!("for other hosts: http://{}:{port}/ http://[{}]:{port}/\n", host.v4(), host.v6());
        assert_eq!(program.read_line(), far);
        Self { host, address: SocketAddr::from(([127, 0, 0, 1], port)), _program: program }
    }

    fn post(&self, path: &str, body: &str) -> Value {
        self.host.run(|| http::post(self.address, path, body).json()).unwrap()
    }

    fn get(&self, path: &str) -> Value {
        self.host.run(|| http::get(self.address, path).json()).unwrap()
    }

    fn until(&self, path: &str, satisfied: impl Fn(&Value) -> bool + Sync) -> Value {
        let until = || http::get_until(self.address, path, |answer| satisfied(&answer.json())).json();
        self.host.run(until).unwrap()
    }

    fn until_forecast(&self, source: &str, target: &str) {
        let path = format!("/v1/forecast?source={source}&target={target}&quantity=rtt");
        self.until(&path, |answer| !answer["forecasts"].as_array().unwrap().is_empty());
    }
}

/// Creates a state directory for each host, and a copy of the program; an ordinary user can access
/// all of them.
fn prepare<const N: usize>(directory: &Path, hosts: [&str; N]) -> (PathBuf, [PathBuf; N]) {
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = directory.join("barograph");
    std::fs::copy(env!("CARGO_BIN_EXE_barograph"), &program).unwrap();
    let states = hosts.map(|host| {
        let state = directory.join(host);
        std::fs::create_dir(&state).unwrap();
        std::os::unix::fs::chown(&state, Some(USER), Some(USER)).unwrap();
        state
    });
    (program, states)
}

#[test]
fn two_new_stations_forecast_each_other_in_a_minute_and_report_a_killed_peer() {
    let network: Network = network_or_skip!(Link::Veth { rate_bps: None });
    let directory = tempfile::tempdir().unwrap();
    let (program, [a_state, b_state]) = prepare(directory.path(), ["a", "b"]);
    let began = Instant::now();
    let a = Up::start(&network.a, &a_state, &program, &["--host", "a", "--listen", "[::]:10132"], None);
    let invitation = a.post("/v1/invitations", "{}");
    let token = invitation["token"].as_str().unwrap();
    let head = network.a.v4().to_string();
    let join = ["--host", "b", "--join", head.as_str()];
    let b = Up::start(&network.b, &b_state, &program, &join, Some(token));
    a.until_forecast("a", "b");
    b.until_forecast("b", "a");
    let took = began.elapsed();
    let _ = writeln!(std::io::stderr(), "first forecasts of each other after {:.1} s", took.as_secs_f64());
    assert!(took <= FRESH);
    let peers = a.get("/v1/peers");
    let addresses: Vec<&str> =
        peers["peers"][0]["addresses"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    let (v4, v6) = (format!("{}:10132", network.b.v4()), format!("[{}]:10132", network.b.v6()));
    assert_eq!(addresses, [v4, v6], "both families");
    let member = b.get("/v1/mesh");
    assert_eq!((member["role"].as_str(), member["engine"].as_str()), (Some("member"), Some("remote")));
    // The measurements of b arrive at a.
    b.until("/v1/mesh", |answer| {
        answer["spool"]["watermark"].as_u64().is_some_and(|watermark| watermark > 0)
    });
    let began = Instant::now();
    drop(b);
    a.until("/v1/peers", |answer| answer["peers"][0]["state"] == "lost");
    let took = began.elapsed();
    let _ = writeln!(std::io::stderr(), "lost after {:.1} s", took.as_secs_f64());
    assert!(took <= LEASE, "lost after {took:?}");
    let b = Up::start(&network.b, &b_state, &program, &join, Some(token));
    a.until("/v1/peers", |answer| answer["peers"][0]["state"] == "up");
    // If the station with the directory is gone, members continue to measure, and keep their
    // measurements.
    drop(a);
    b.until("/v1/mesh", |answer| {
        answer["directory"]["connected"] == false && answer["spool"]["error"].is_string()
    });
    assert_eq!(b.get("/v1/peers")["peers"][0]["state"], "up", "no peer is lost with the directory");
    let a = Up::start(&network.a, &a_state, &program, &["--host", "a", "--listen", "[::]:10132"], None);
    b.until("/v1/mesh", |answer| answer["directory"]["connected"] == true);
    a.until("/v1/peers", |answer| answer["peers"][0]["state"] == "up");
}

#[test]
fn stations_find_their_two_sites_by_themselves() {
    // The round-trip time is 20 ms between the two hosts, and close to 0 between stations on one
    // host.
    let spec = LinkSpec { delay: Duration::from_millis(10), ..LinkSpec::default() };
    let network: Network = network_or_skip!(Link::symmetric(spec));
    let directory = tempfile::tempdir().unwrap();
    let hosts = ["a1", "a2", "b1", "b2"];
    let (program, states) = prepare(directory.path(), hosts);
    let settings =
        "probe.period_s=1 mesh.latency_per_s=20 mesh.bulk=false mesh.sites=auto mesh.sites_hold_s=8";
    let settings: Vec<&str> = settings.split(' ').flat_map(|setting| ["--set", setting]).collect();
    let head = network.a.v4().to_string();
    let start = |at: usize, token: Option<&str>| {
        let host = if at < 2 { &network.a } else { &network.b };
        let listen = if at.is_multiple_of(2) { "[::]:10132" } else { "[::]:10133" };
        let join = token.map(|_| ["--join", head.as_str()]);
        let names = ["--host", hosts[at], "--listen", listen];
        let arguments = [&names[..], join.as_ref().map_or(&[], |join| &join[..]), &settings].concat();
        Up::start(host, &states[at], &program, &arguments, token)
    };
    let first = start(0, None);
    let began = Instant::now();
    let token = || first.post("/v1/invitations", "{}")["token"].as_str().unwrap().to_string();
    let others = [1, 2, 3].map(|at| start(at, Some(&token())));
    let stations: Vec<&Up<'_>> = std::iter::once(&first).chain(&others).collect();
    // Noise decides which of two hosts represents their site.
    let now = || -> Vec<Value> { stations.iter().map(|station| station.get("/v1/sites")).collect() };
    let represents = |answer: &Value| answer["now"]["represents"] == true;
    let is_settled = |pair: &[Value], site: &str| {
        pair.iter().all(|one| one["now"]["site"] == site && one["pending"].is_null())
            && pair.iter().filter(|one| represents(one)).count() == 1
    };
    let settled = loop {
        let answers = now();
        if is_settled(&answers[..2], "a1") && is_settled(&answers[2..], "b1") {
            break answers;
        }
        let told: Vec<&Value> = answers.iter().map(|answer| &answer["now"]).collect();
        assert!(began.elapsed() < SETTLED, "they are still at {told:?}");
        std::thread::park_timeout(Duration::from_millis(500));
    };
    let _ = writeln!(
        std::io::stderr(),
        "four stations at two sites after {:.1} s",
        began.elapsed().as_secs_f64()
    );
    let answer = first.get("/v1/sites");
    let sites: Vec<&Value> = answer["sites"].as_array().unwrap().iter().map(|site| &site["hosts"]).collect();
    assert_eq!(sites, [&json!(["a1", "a2"]), &json!(["b1", "b2"])], "{answer}");
    // Each station has the other station of its site as a peer, and a representative also has the
    // other representative. So the mesh runs fewer tests.
    for (station, answer) in stations.iter().zip(&settled) {
        let up = if represents(answer) { 2 } else { 1 };
        station.until("/v1/mesh", |answer| answer["peers"]["up"] == up);
    }
}
