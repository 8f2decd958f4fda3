//! Four stations on four hosts at three sites (network namespaces around a router), used by hand:
//! peers, a test on demand, `best` towards a host that is never measured, and a site that is cut
//! off and returns. Without root, the test is skipped with a message. Only the creation of the
//! hosts needs root; an ordinary user runs the stations.

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use barograph_sim::{Link, network_or_report};
use barograph_testkit::{ChildProcess, wait_for, wait_until};
use serde_json::{Value, json};

/// Lease of these stations, in seconds. A peer may be reported as lost up to one second after the
/// end of its lease.
const LEASE_S: f64 = 3.0;
/// User ID of the user without privileges.
const USER: u32 = 65_534;

/// A router and its hosts, each on a subnet of its own; removed when dropped. The names follow the
/// pattern of `barograph-sim`. So if this process is killed, `barograph-sim` removes the router and
/// the hosts later.
struct Hosts(Vec<String>);

impl Hosts {
    /// Creates a router and `count` hosts; prints a message and returns `None` if that is not
    /// permitted.
    fn new(count: usize) -> Option<Self> {
        network_or_report(Link::Veth { rate_bps: None }, "stations at three sites")?;
        let mut hosts = Self(Vec::new());
        for index in 0..=count {
            let name = format!("barograph-{}-{}b", std::process::id(), 1000 + index);
            ip("", &format!("netns add {name}"));
            ip(&name, "link set lo up");
            hosts.0.push(name);
        }
        let router = &hosts.0[0];
        for (index, host) in hosts.0.iter().enumerate().skip(1) {
            let near = format!("192.0.2.{}", 4 * index + 1);
            ip(router, &format!("link add port{index} type veth peer name link0 netns {host}"));
            ip(router, &format!("addr add {near}/30 dev port{index}"));
            ip(router, &format!("link set port{index} up"));
            ip(host, &format!("addr add {}/30 dev link0", Self::address(index)));
            ip(host, "link set link0 up");
            ip(host, &format!("route add default via {near}"));
        }
        let forward = ["netns", "exec", router, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"];
        assert!(Command::new("ip").args(forward).status().unwrap().success(), "the router forwards");
        Some(hosts)
    }

    fn address(index: usize) -> String {
        format!("192.0.2.{}", 4 * index + 2)
    }

    fn set_link(&self, index: usize, state: &str) {
        ip(&self.0[0], &format!("link set port{index} {state}"));
    }

    fn command(&self, index: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[index]]);
        command.args(["setpriv", &format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups"]);
        command.arg(program);
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// Runs an `ip` command, in a namespace if one is given.
fn ip(namespace: &str, line: &str) {
    let inside = (!namespace.is_empty()).then_some(["-n", namespace]);
    let done = Command::new("ip").args(inside.into_iter().flatten()).args(line.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {namespace} {line}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A station on a host.
struct Up<'a> {
    hosts: &'a Hosts,
    index: usize,
    program: PathBuf,
    state: PathBuf,
    _running: ChildProcess,
}

impl<'a> Up<'a> {
    fn start(hosts: &'a Hosts, index: usize, directory: &Path, more: &[&str], token: Option<&str>) -> Self {
        let name = more[0];
        let (program, state) = (directory.join("barograph"), directory.join(name));
        std::fs::create_dir(&state).unwrap();
        chown(&state, Some(USER), Some(USER)).unwrap();
        let mut command = hosts.command(index, &program);
        command.args(["up", "--no-default-targets", "--listen", "[::]:10132", "--state"]).arg(&state);
        for setting in [format!("mesh.lease_s={LEASE_S}"), "probe.period_s=1".into()] {
            command.args(["--set", &setting]);
        }
        command.arg("--host").args(more).envs(token.map(|token| ("BAROGRAPH_JOIN_TOKEN", token)));
        let told = state.with_extension("stderr");
        let stderr = std::fs::File::create(&told).unwrap();
        let (running, line) = ChildProcess::with_line(command.stderr(stderr));
        let up = Self { hosts, index, program, state, _running: running };
        let told = || std::fs::read_to_string(&told).unwrap_or_default();
        assert!(line.starts_with("listening on http://[::1]:10132/"), "{name}: {line:?} {}", told());
        up
    }

    /// Runs a command on this station's host, with this state directory; returns its JSON output
    /// and its standard error.
    fn says(&self, state: &Path, arguments: &[&str]) -> (Value, String) {
        let mut command = self.hosts.command(self.index, &self.program);
        let done = command.args(arguments).args(["--json", "--state"]).arg(state).output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        (serde_json::from_slice(&done.stdout).unwrap_or_default(), told)
    }

    /// Repeats a command until its output satisfies a condition.
    fn until(&self, state: &Path, arguments: &[&str], satisfied: impl Fn(&Value) -> bool) -> Value {
        wait_for(|| {
            let (answer, told) = self.says(state, arguments);
            if satisfied(&answer) {
                return Ok(answer);
            }
            Err(format!("{arguments:?} still says {answer} {told}"))
        })
    }

    /// Waits until the station has exactly these peers.
    fn until_peers(&self, peers: &[(&str, &str)]) -> Value {
        self.until(&self.state, &["peers"], |answer| {
            let all = answer["peers"].as_array().into_iter().flatten();
            let standing = |peer: &Value| json!([peer["host"], peer["state"]]);
            all.map(standing).eq(peers.iter().map(|peer| json!([peer.0, peer.1])))
        })
    }

    /// Text output of `barograph peers`.
    fn peers(&self) -> String {
        let mut command = self.hosts.command(self.index, &self.program);
        let done = command.args(["peers", "--state"]).arg(&self.state).output().unwrap();
        String::from_utf8_lossy(&done.stdout).into_owned()
    }
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

#[test]
fn stations_at_three_sites_test_and_compose_and_report_a_disconnected_station() {
    let Some(hosts) = Hosts::new(4) else { return };
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    std::fs::set_permissions(root, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_barograph"), root.join("barograph")).unwrap();
    let began = Instant::now();

    let of_a = ["a", "--set", "mesh.site=paris", "--set", "mesh.groups=global"];
    let a = Up::start(&hosts, 1, root, &of_a, None);
    let head = Hosts::address(1);
    let join = |index: usize, name: &str, settings: &[&str]| {
        let (invitation, told) = a.says(&a.state, &["invite"]);
        let token = invitation["token"].as_str().unwrap_or_else(|| panic!("{told}"));
        let mut arguments = vec![name, "--join", head.as_str()];
        arguments.extend(settings.iter().flat_map(|setting| ["--set", *setting]));
        Up::start(&hosts, index, root, &arguments, Some(token))
    };
    let b = join(2, "b", &["mesh.site=lyon", "mesh.groups=global"]);
    let x = join(3, "x", &["mesh.site=lyon"]);
    let c = join(4, "c", &["mesh.site=nice", "mesh.groups=global"]);

    // Two stations are peers if they share a group, and x is only in the group of its site.
    a.until_peers(&[("b", "up"), ("c", "up")]);
    b.until_peers(&[("a", "up"), ("c", "up"), ("x", "up")]);
    c.until_peers(&[("a", "up"), ("b", "up")]);
    x.until_peers(&[("b", "up")]);

    // Start a test from a with the token of a on a third host, and a test from b on the host of b.
    // The scheduled turns of a and b may delay these tests.
    let is_done = |test: &Value| test["state"] == "done";
    c.until(&a.state, &["probe", "--from", &head, "b"], is_done);
    b.until(&b.state, &["probe", "--from", "127.0.0.1", "x"], is_done);
    let (refused, told) = c.says(&a.state, &["probe", "--from", &head, "x"]);
    assert!(refused.is_null() && told.contains("there is no peer `x` with bulk tests enabled"), "{told}");

    let best = ["best", "--to", "local:lyon", "--bytes", "100MB"];
    let answer = a.until(&a.state, &best, |answer| {
        let hosts = answer["hosts"].as_array();
        hosts.is_some_and(|hosts| hosts.len() == 2 && hosts.iter().all(|host| host["goodput"].is_object()))
    });
    let of = |name: &str| {
        answer["hosts"].as_array().unwrap().iter().find(|host| host["host"] == name).unwrap().clone()
    };
    assert_eq!(of("b")["basis"], "measured", "{answer}");
    assert_eq!(of("x")["basis"], "composed", "{answer}");
    assert_eq!(of("x")["rtt"]["via"], json!(["a", "b", "x"]), "{answer}");
    let ends = ["lower", "forecast", "upper"].map(|key| of("x")[key].as_f64().unwrap());
    assert!(0.0 < ends[0] && ends[0] < ends[1] && ends[1] < ends[2], "{answer}");

    // Cut off Nice: the other stations lose station c, and station c loses the directory.
    let cut_s = now_s();
    hosts.set_link(4, "down");
    let peers = a.until_peers(&[("b", "up"), ("c", "lost")]);
    let took_s = peers["peers"][1]["since_s"].as_f64().unwrap() - cut_s;
    assert!(took_s <= LEASE_S + 1.0, "lost after {took_s:.1} s");
    b.until_peers(&[("a", "up"), ("c", "lost"), ("x", "up")]);
    wait_until("c says that it is cut off", || c.peers().contains("not connected"));
    hosts.set_link(4, "up");
    let back_s = now_s();
    a.until_peers(&[("b", "up"), ("c", "up")]);
    wait_until("c is connected again", || !c.peers().contains("not connected"));
    let _ = writeln!(
        std::io::stderr(),
        "lost after {took_s:.1} s, back after {:.1} s, all in {:.1} s",
        now_s() - back_s,
        began.elapsed().as_secs_f64()
    );
}
