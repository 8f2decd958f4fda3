//! The `barograph` binary as people run it: start, kill, restart, reload, stop, and mistakes.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use barograph_testkit::{ChildProcess, http, wait_for};
use serde_json::{Value, json};

fn barograph() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_barograph"));
    // Remove the settings of the user that runs the tests.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BAROGRAPH_") {
            command.env_remove(name);
        }
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    command
}

/// A station that runs as a program of its own.
struct Up {
    program: ChildProcess,
    address: SocketAddr,
}

impl Up {
    fn start(state: &Path, arguments: &[&str]) -> Self {
        let mut command = barograph();
        command.args(["up", "--listen", "127.0.0.1:0", "--no-default-targets", "--state"]).arg(state);
        let (program, line) = ChildProcess::with_line(command.args(arguments).stderr(Stdio::piped()));
        let address = line
            .strip_prefix("listening on http://")
            .or_else(|| line.strip_prefix("listening on https://"))
            .and_then(|rest| rest.strip_suffix("/\n"));
        let address = address.unwrap_or_else(|| panic!("the first line is {line:?}")).parse().unwrap();
        Self { program, address }
    }

    fn get(&self, path: &str) -> Value {
        http::get(self.address, path).json()
    }

    fn until(&self, path: &str, satisfied: impl Fn(&Value) -> bool) -> Value {
        http::get_until(self.address, path, |answer| satisfied(&answer.json())).json()
    }

    fn signal(&self, name: &str) {
        self.program.signal(name);
    }

    /// Waits for the end; returns the exit code and standard error.
    fn end(mut self) -> (Option<i32>, String) {
        self.program.wait()
    }
}

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn record(state: &Path, value: &str) -> Output {
    run(barograph()
        .args(["record", "--target", "queue", "--quantity", "length", "--state"])
        .arg(state)
        .arg(value))
}

#[test]
fn a_station_that_other_hosts_cannot_reach_refuses_to_invite() {
    let state = tempfile::tempdir().unwrap();
    let up = Up::start(state.path(), &[]);
    let output = run(barograph().args(["invite", "south", "--state"]).arg(state.path()));
    let told = stderr(&output);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{told}");
    assert!(told.contains("barograph up --listen '[::]:10132'"), "{told}");
    let open = run(barograph().args(["invite", "--state"]).arg(state.path()));
    assert_eq!(open.status.code(), Some(1), "{}", stderr(&open));
    let json = run(barograph().args(["invite", "--json", "--state"]).arg(state.path()));
    assert_eq!((json.status.code(), json.stdout.len()), (Some(1), 0), "{}", stderr(&json));
    let members = up.get("/v1/members");
    assert_eq!(members["members"].as_array().map(Vec::len), Some(0), "nothing stays open: {members}");
    drop(up);

    let other = tempfile::tempdir().unwrap();
    let _up = Up::start(other.path(), &["--set", "mesh.advertise=192.0.2.7:10132"]);
    let output = run(barograph().args(["invite", "--state"]).arg(other.path()));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let line = String::from_utf8(output.stdout).unwrap();
    assert!(line.ends_with("barograph up --join http://192.0.2.7:10132\n"), "behind a proxy: {line}");
}

#[test]
fn a_probe_that_needs_a_token_names_the_option() {
    let state = tempfile::tempdir().unwrap();
    let up = Up::start(state.path(), &["--set", "loopback_needs_token=true"]);
    let output = run(barograph().arg("probe").arg(up.address.to_string()));
    let told = String::from_utf8(output.stdout.clone()).unwrap() + &stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("--token"), "{told}");
}

#[test]
fn a_killed_and_restarted_station_keeps_its_history_and_forecasts() {
    let state = tempfile::tempdir().unwrap();
    let mut up = Up::start(state.path(), &["--host", "here", "--set", "sensors.period_s=0.1"]);
    let series = "source=here&target=queue&quantity=length";
    for value in ["3", "-1.5", "4e2", "7"] {
        let output = record(state.path(), value);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let before = up.get(&format!("/v1/recent?{series}"));
    assert_eq!(before["points"].as_array().unwrap().len(), 4);
    assert!(before["points"][3]["forecast"].is_number());
    // With SIGKILL, the station flushes nothing, so acknowledged values must be on the disk
    // already.
    up.program.kill();

    let up = Up::start(state.path(), &["--host", "here"]);
    assert_eq!(up.get(&format!("/v1/recent?{series}")), before);
    let history = up.get(&format!("/v1/history?{series}"));
    assert_eq!(history["records"].as_array().unwrap().len(), 4);
}

#[test]
fn a_stopped_station_exits_cleanly_and_keeps_its_measurements() {
    for signal in ["TERM", "INT"] {
        let state = tempfile::tempdir().unwrap();
        let up = Up::start(
            state.path(),
            &["--host", "here", "--set", "sensors.period_s=0.1", "--set", "archive.commit_s=1"],
        );
        let memory = "/v1/series?quantity=memory_free";
        let seen = up.until(memory, |answer| answer["series"][0]["count"].as_u64().unwrap_or(0) >= 3);
        up.signal(signal);
        let (code, stderr) = up.end();
        assert_eq!(code, Some(0), "{stderr}");
        let again = Up::start(state.path(), &["--host", "here", "--set", "sensors.period_s=3600"]);
        let kept = again.get(memory)["series"][0]["count"].as_u64().unwrap();
        assert!(seen["series"][0]["count"].as_u64().unwrap() <= kept, "{kept}");
    }
}

#[test]
fn a_hangup_reloads_the_config_and_a_bad_config_changes_nothing() {
    let state = tempfile::tempdir().unwrap();
    let file = state.path().join("b.toml");
    std::fs::write(&file, "").unwrap();
    let listening = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listening.local_addr().unwrap().to_string();
    let up = Up::start(state.path(), &["--config", file.to_str().unwrap()]);
    assert_eq!(up.get("/v1/targets")["targets"].as_array().unwrap().len(), 0);
    let target = format!("[[target]]\ntarget = \"{address}\"\nquantities = [\"connect\"]\n");
    std::fs::write(&file, &target).unwrap();
    up.signal("HUP");
    up.until("/v1/targets", |answer| answer["targets"][0]["target"] == address.as_str());
    std::fs::write(&file, format!("{target}\n[probe]\nperoid_s = 1\n")).unwrap();
    up.signal("HUP");
    // A hangup that arrives first is handled first.
    up.signal("TERM");
    let (code, stderr) = up.end();
    assert_eq!(code, Some(0));
    assert!(
        stderr.contains("b.toml:6: unknown key `probe.peroid_s`; did you mean `probe.period_s`?"),
        "{stderr}"
    );
    assert!(stderr.contains("kept the old configuration"), "{stderr}");
}

#[test]
fn each_mistake_prints_one_sentence_and_sets_an_exit_code() {
    let state = tempfile::tempdir().unwrap();
    let file = state.path().join("b.toml");
    std::fs::write(&file, "\nlisen = \"127.0.0.1:0\"\n").unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let state_text = state.path().to_str().unwrap();
    let damaged = tempfile::tempdir().unwrap();
    std::fs::write(
        damaged.path().join("archive.db"),
        "this is not a database, and long enough to be looked at",
    )
    .unwrap();
    for (arguments, code, words) in [
        (
            vec!["up", "--state", state_text, "--config", file.to_str().unwrap()],
            2,
            "b.toml:2: unknown key `lisen`; did you mean `listen`?",
        ),
        (vec!["up", "--state", state_text, "--config", "/nowhere.toml"], 2, "/nowhere.toml"),
        (vec!["up", "--state", state_text, "--listen", "here"], 2, "ADDRESS:PORT"),
        (vec!["up", "--state", state_text, "--set", "nonsense"], 2, "KEY=VALUE"),
        (vec!["up", "--state", state_text, "--set", "probe.period=1"], 2, "probe.period_s"),
        (vec!["up", "--state", state_text, "--target", "nowhere"], 2, "`nowhere`"),
        (vec!["up", "--state", state_text, "--log", "a=b=c"], 2, "--log"),
        (vec!["up", "--state", state_text, "--listen", &taken], 1, &taken),
        (vec!["up", "--state", "/proc/nowhere"], 1, "/proc/nowhere"),
        (vec!["up", "--state", damaged.path().to_str().unwrap(), "--listen", "127.0.0.1:0"], 1, "archive.db"),
        (vec!["up", "--nonsense"], 2, "--nonsense"),
        (vec!["probe"], 2, "TARGET"),
        (vec!["probe", "nowhere"], 2, "`nowhere`"),
        (vec!["probe", "a:1", "--quantity", "color"], 2, "`color`"),
        (vec!["probe", "a:1", "--timeout", "0"], 2, "seconds"),
        (vec!["probe", "a:1", "--bytes", "0"], 2, "bytes"),
        (vec!["record", "--quantity", "q", "nan", "--station", "http://127.0.0.1:1"], 2, "`nan`"),
        (
            vec!["record", "--quantity", "q", "1", "--station", "http://127.0.0.1:1"],
            1,
            "is `barograph up` running?",
        ),
        (vec!["target", "add", "nowhere"], 2, "`nowhere`"),
        (vec!["target", "add", "a:1", "--quantity", "color"], 2, "`color`"),
        (vec!["target", "add", "a:1", "--period", "0"], 2, "--period"),
        (vec!["record", "--quantity", "Bad Q", "1"], 2, "--quantity"),
        (vec!["record", "--quantity", "q", "1e200"], 2, "out of range"),
        (vec!["target", "list", "--station", "https://127.0.0.1:1"], 1, "is `barograph up` running?"),
    ] {
        let output = run(barograph().args(&arguments));
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    let output =
        run(barograph().arg("up").env("BAROGRAPH_PROBE_PERIOD_S", "fast").args(["--state", state_text]));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("variable BAROGRAPH_PROBE_PERIOD_S"), "{}", stderr(&output));
}

#[test]
fn values_on_a_pipe_are_recorded_and_bad_lines_skipped() {
    let state = tempfile::tempdir().unwrap();
    let up = Up::start(state.path(), &["--host", "here"]);
    let output = record_lines(state.path(), b"1\n\n# comment\nnan\n2\nx\n3");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("line 4: `nan` is not a finite number; skipped"), "{}", stderr(&output));
    assert!(stderr(&output).contains("2 lines were skipped"), "{}", stderr(&output));
    assert_eq!(up.get("/v1/series?quantity=depth")["series"][0]["count"], 3);
}

/// Runs `barograph record --quantity depth -` with these lines on standard input.
fn record_lines(state: &Path, lines: &[u8]) -> Output {
    let mut child = barograph()
        .args(["record", "--quantity", "depth", "-", "--state"])
        .arg(state)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lines).unwrap();
    child.wait_with_output().unwrap()
}

/// The station rejects a whole request if one line of it is invalid. The command must still store
/// the valid lines.
#[test]
fn a_refused_line_does_not_prevent_storing_other_lines() {
    let state = tempfile::tempdir().unwrap();
    let up = Up::start(state.path(), &["--host", "here"]);
    // Line 2 is older than the oldest record that the archive keeps. Line 4 is outside of the range
    // of a battery.
    let output = record_lines(state.path(), b"1\n1,2\n3\n1e200\n5\n");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("line 2: ") && said.contains("line 4: "), "{said}");
    assert!(!["line 1:", "line 3:", "line 5:"].iter().any(|good| said.contains(good)), "{said}");
    assert!(said.contains("2 lines were skipped"), "{said}");
    assert_eq!(up.get("/v1/series?quantity=depth")["series"][0]["count"], 3);
}

#[test]
fn commands_reach_a_station_with_a_private_certificate_over_tls() {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../probe/tests/data");
    let state = tempfile::tempdir().unwrap();
    let certificate = format!("tls.certificate={}", data.join("localhost.pem").display());
    let key = format!("tls.key={}", data.join("localhost.key").display());
    let up = Up::start(state.path(), &["--set", &certificate, "--set", &key]);
    let url = format!("https://{}/", up.address);
    let token = std::fs::read_to_string(state.path().join("token")).unwrap();
    let record = |extra: &[&str]| {
        let station = ["record", "--quantity", "q", "1", "--station", &url, "--token", token.trim()];
        run(barograph().args(station).args(extra).env_remove("BAROGRAPH_CA"))
    };
    let ca = data.join("ca.pem");
    let output = record(&["--ca", ca.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let untrusted = record(&[]);
    assert_eq!(untrusted.status.code(), Some(1), "{}", stderr(&untrusted));
    let missing = record(&["--ca", "/nowhere.pem"]);
    assert_eq!(missing.status.code(), Some(2), "{}", stderr(&missing));
}

#[test]
fn probing_a_station_prints_one_object_a_line() {
    let state = tempfile::tempdir().unwrap();
    let up = Up::start(state.path(), &[]);
    let address = up.address.to_string();
    let output = run(barograph().args(["probe", &address, "--json", "--bytes", "64k"]));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let mut quantities = Vec::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let reading: Value = serde_json::from_str(line).unwrap();
        for key in ["time_s", "quantity", "target", "value", "unit", "n", "tcp_info"] {
            assert!(reading.get(key).is_some(), "{key} is missing: {line}");
        }
        assert_eq!(reading["target"], address.as_str());
        if reading["quantity"] == "goodput" {
            for key in ["min_rtt_s", "total_retrans", "congestion", "limited_by"] {
                assert!(reading["tcp_info"].get(key).is_some(), "{key} is missing: {line}");
            }
        }
        quantities.push(reading["quantity"].as_str().unwrap().to_string());
    }
    assert_eq!(quantities, ["rtt", "rtt_nagle", "loss", "rtt_udp", "goodput", "goodput_down"]);
}

#[test]
fn a_probe_of_a_closed_port_reports_that_the_host_answers() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let output = run(barograph().args(["probe", &closed]));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.starts_with("connect ") && text.lines().count() == 1, "{text}");
    assert!(
        text.contains(" refused in ") && text.contains("s: the host answers, the port is closed"),
        "{text}"
    );
    let output = run(barograph().args(["probe", &closed, "--json"]));
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(line["refused"] == true && line["value"].is_number(), "{line}");
    // Quantities that need an answer of the service fail if the port is closed.
    for arguments in [["--quantity", "rtt"], ["--quantity", "response_time"]] {
        let output = run(barograph().args(["probe", &closed, "--json"]).args(arguments));
        assert_eq!(output.status.code(), Some(1));
        let line: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(line["error"], "refused", "{line}");
    }
}

#[test]
fn a_failed_probe_reports_the_reason_and_exits_with_1() {
    // The kernel accepts connections into the backlog, but no program answers them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let output =
        run(barograph().args(["probe", &url, "--json", "--quantity", "response_time", "--timeout", "0.3"]));
    assert_eq!(output.status.code(), Some(1));
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(line["error"], "timed_out");
}

#[test]
fn targets_are_added_listed_and_removed() {
    let state = tempfile::tempdir().unwrap();
    let up = Up::start(state.path(), &[]);
    let target =
        |arguments: &[&str]| run(barograph().arg("target").args(arguments).arg("--state").arg(state.path()));
    assert_eq!(
        target(&["add", "127.0.0.1:9", "--quantity", "connect", "--period", "3600"]).status.code(),
        Some(0)
    );
    let list = target(&["list"]);
    let shown = String::from_utf8(list.stdout).unwrap();
    assert!(shown.contains("127.0.0.1:9") && shown.contains("added") && shown.contains("3600 s"), "{shown}");
    assert_eq!(target(&["rm", "127.0.0.1:9"]).status.code(), Some(0));
    // Only the station knows the shortest period.
    let hasty = target(&["add", "127.0.0.1:9", "--period", "0.001"]);
    assert_eq!(hasty.status.code(), Some(2), "{}", stderr(&hasty));
    let gone = target(&["rm", "127.0.0.1:9"]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(stderr(&gone).contains("is not a target"), "{}", stderr(&gone));
    assert_eq!(up.get("/v1/targets")["targets"].as_array().unwrap().len(), 0);
}

#[test]
fn version_completions_and_man_pages_are_made() {
    let version: Value =
        serde_json::from_slice(&run(barograph().args(["version", "--json"])).stdout).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    let completions = run(barograph().args(["completions", "bash"]));
    assert!(String::from_utf8(completions.stdout).unwrap().contains("_barograph"));
    let directory = tempfile::tempdir().unwrap();
    assert!(run(barograph().arg("man").arg(directory.path())).status.success());
    assert!(directory.path().join("barograph-up.1").exists());
}

#[test]
fn the_best_host_is_shown_and_an_unknown_result_is_a_failure() {
    let state = tempfile::tempdir().unwrap();
    let _up = Up::start(state.path(), &["--host", "here"]);
    let best =
        |arguments: &[&str]| run(barograph().args(["best", "--state"]).arg(state.path()).args(arguments));
    for (target, rtt, goodput) in [("near", "0.001", "1e7"), ("wide", "0.1", "1e9")] {
        // Each quantity is recorded twice, because an interval needs a forecast that was scored.
        for (quantity, value) in [("rtt", rtt), ("goodput", goodput), ("rtt", rtt), ("goodput", goodput)] {
            let output = run(barograph()
                .args(["record", "--target", target, "--quantity", quantity, "--state"])
                .arg(state.path())
                .arg(value));
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        }
    }
    let output = best(&["--to", "near,wide", "--bytes", "1GB"]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(text.starts_with("best: wide\n") && text.contains("9.08 s"), "{text}");
    assert!(text.contains("goodput measured") && text.contains('●'), "{text}");
    let output = best(&["--to", "near", "--to", "wide", "--size", "1kB", "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["best"], &answer["bytes"]), (&Value::from("near"), &Value::from(1000)));
    let output = best(&["--from", "near", "--to", "here", "--bytes", "1GB"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no host near is known here"), "{}", stderr(&output));
    let output = best(&["--to", "ghost", "--bytes", "1GB"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("ghost"), "{}", stderr(&output));
    assert_eq!(best(&["--to", "near", "--bytes", "0"]).status.code(), Some(2));
    assert_eq!(best(&["--to", ",", "--bytes", "1"]).status.code(), Some(2));
    // Only the round-trip time of this target is known. The time to send a gigabyte cannot be
    // computed from the round-trip time alone.
    let output = run(barograph()
        .args(["record", "--target", "silent", "--quantity", "rtt", "--state"])
        .arg(state.path())
        .arg("0.01"));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let output = best(&["--to", "silent", "--bytes", "1GB"]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(text.starts_with("silent: no forecast: no goodput forecast (round trip 10.0 ms)"), "{text}");
    assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(1), 1));
}

/// Ways to lose a station's output.
#[derive(Clone, Copy, Debug)]
enum Lost {
    /// Standard error is a pipe without a reader.
    ErrorReader,
    /// Standard error is a closed descriptor.
    Error,
    /// Standard output is a pipe without a reader.
    OutputReader,
}

/// The write end of a pipe without a reader.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// Starts a station with its output lost, and reads its address from its state directory.
fn start_unheard(lost: Lost, state: &Path, arguments: &[&str], token: Option<&str>) -> Up {
    let mut command = barograph();
    if let Lost::Error = lost {
        let program = command.get_program().to_owned();
        command = Command::new("sh");
        command.env_clear().env("XDG_CONFIG_HOME", "/nonexistent");
        command.args(["-c", "exec \"$@\" 2>&-", "sh"]).arg(program);
    }
    command.args(["up", "--listen", "127.0.0.1:0", "--no-default-targets", "--state"]).arg(state);
    command.args(arguments).envs(token.map(|token| ("BAROGRAPH_JOIN_TOKEN", token)));
    command.args(["--set", "mesh.lease_s=1", "--set", "sensors.period_s=0.1"]);
    let (stdout, stderr) = match lost {
        Lost::ErrorReader => (Stdio::piped(), unread()),
        Lost::Error => (Stdio::piped(), Stdio::null()),
        Lost::OutputReader => (unread(), Stdio::piped()),
    };
    let mut program = ChildProcess::start(command.stdout(stdout).stderr(stderr));
    let url = wait_for(|| {
        assert!(program.is_running(), "{lost:?}: the station ended");
        barograph_station::state::read_url(state).ok_or("the station says its address")
    });
    let address = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix('/')).unwrap();
    Up { address: address.parse().unwrap(), program }
}

/// If a station cannot write its log, it loses only the log: both stations of a mesh continue to
/// run for several leases.
#[test]
fn a_mesh_continues_when_the_output_of_its_stations_is_not_read() {
    for lost in [Lost::ErrorReader, Lost::Error, Lost::OutputReader] {
        let [a_state, b_state] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let a = start_unheard(lost, a_state.path(), &["--host", "a"], None);
        a.until("/v1/station", |answer| answer["host"] == "a");
        // `barograph invite` fails if the station listens on loopback, because other hosts cannot
        // reach loopback.
        let invitation = http::post(a.address, "/v1/invitations", "{}").json();
        let head = format!("http://{}", a.address);
        let join = ["--host", "b", "--join", head.as_str()];
        let b = start_unheard(lost, b_state.path(), &join, invitation["token"].as_str());
        a.until("/v1/peers", |answer| {
            answer["peers"][0]["host"] == "b" && answer["peers"][0]["state"] == "up"
        });
        // Wait for several leases of one second each. The stations log their events during this
        // time.
        b.until("/v1/station", |answer| answer["uptime_s"].as_f64().unwrap_or(0.0) > 4.0);
        for (up, state) in [(&a, &a_state), (&b, &b_state)] {
            let forgotten = run(barograph().args(["sites", "--forget", "--state"]).arg(state.path()));
            assert_eq!(forgotten.status.code(), Some(0), "{lost:?}: {}", stderr(&forgotten));
            let health = up.get("/healthz");
            assert_eq!(health["status"], "ok", "{lost:?}: {health}");
        }
        let peers = a.get("/v1/peers");
        assert_eq!(peers["peers"][0]["state"], "up", "{lost:?}: {peers}");
        for up in [b, a] {
            up.signal("TERM");
            assert_eq!(up.end().0, Some(0), "{lost:?}");
        }
    }
}

/// Sends 600 values of a queue to a station, ten seconds apart; the newest is two hours old.
fn feed_queue(address: SocketAddr) {
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let records: Vec<Value> = (0..600_u32)
        .map(|n| {
            let (time_s, value) =
                (now_s - 7200.0 - 10.0 * f64::from(599 - n), 50.0 + f64::from(n * 7919 % 101));
            json!({ "target": "queue", "quantity": "length", "time_s": time_s, "value": value })
        })
        .collect();
    let body = json!({ "records": records }).to_string();
    assert_eq!(http::post(address, "/v1/measurements", &body).status, 201);
}

#[test]
fn a_station_lists_its_series_their_history_and_their_forecasts() {
    let state = tempfile::tempdir().unwrap();
    let up = Up::start(state.path(), &["--host", "here"]);
    feed_queue(up.address);
    let ask = |arguments: &[&str]| {
        let output = run(barograph().args(arguments).arg("--state").arg(state.path()));
        (output.status.code(), String::from_utf8(output.stdout.clone()).unwrap(), stderr(&output))
    };

    let (code, series, errors) = ask(&["series", "--quantity", "length"]);
    assert_eq!(code, Some(0), "{errors}");
    let words: Vec<&str> = series.lines().nth(1).unwrap().split_whitespace().take(5).collect();
    assert_eq!(words, ["here", "queue", "length", "600", "0"], "{series}");
    assert!(ask(&["series", "--quantity", "rate"]).1.starts_with("no such series"));

    let history = ["history", "here", "queue", "length"];
    let csv = ask(&[&history[..], &["--csv"]].concat()).1;
    assert_eq!(csv.lines().next(), Some("time_s,quantity,value,error"));
    assert_eq!(csv.lines().count(), 601, "all of them, on one page");
    assert!(csv.lines().nth(1).unwrap().ends_with(",length,50,"), "the oldest is first: {csv}");
    let newest = ask(&[&history[..], &["--json", "--limit", "2"]].concat()).1;
    let values: Vec<Value> = newest.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(values.len(), 2);
    assert_eq!(values[1]["value"], 50.0 + f64::from(599 * 7919 % 101));
    assert_eq!(ask(&[&history[..], &["--from", "1h"]].concat()).1, "no measurements in this time\n");
    assert_eq!(ask(&[&history[..], &["--to", "2h"]].concat()).1.lines().count(), 601);

    let file = state.path().join("queue.csv");
    std::fs::write(&file, csv).unwrap();
    let of_file = run(barograph().arg("forecast").arg(&file));
    let of_file = String::from_utf8(of_file.stdout).unwrap();
    let (code, text, errors) = ask(&["forecast", "--series", "here/queue/length"]);
    assert_eq!(code, Some(0), "{errors}");
    let next = |text: &str| text.split_once(" Next").map(|(next, _)| next.to_owned()).unwrap();
    assert_eq!(next(&text), next(&of_file), "the same forecast of the next value");
    assert!(text.starts_with("Next: ") && text.contains(". Next 15 minutes: "), "{text}");
    assert!(text.contains("\nNow: ") && text.contains("The newest value is 2 h old."), "{text}");
    let horizon = ["--horizon", "30", "--of", "value", "--quantiles", "0.1,0.9"];
    let (_, text, errors) = ask(&[&["forecast", "--series", "here/queue/length"][..], &horizon].concat());
    assert!(text.lines().next().unwrap().contains(" In 30 values: "), "{text}{errors}");
    assert!(text.contains("q0.1 ") && text.contains("q0.9 "), "{text}");

    let record = |quantity, value| json!({ "target": "far", "quantity": quantity, "value": value });
    let records: Vec<Value> = (0..20).flat_map(|_| [record("rtt", 0.01), record("goodput", 1e8)]).collect();
    let body = json!({ "records": records }).to_string();
    assert_eq!(http::post(up.address, "/v1/measurements", &body).status, 201);
    let (_, text, errors) = ask(&["forecast", "--series", "here/far/goodput", "--bytes", "1GB"]);
    assert!(text.starts_with("1 GB: about 1 min 20 s (") && text.contains("\nNext: 100"), "{text}{errors}");
    let (code, _, errors) = ask(&["forecast", "--series", "here/far/rtt", "--bytes", "1GB"]);
    assert!(code == Some(2) && errors.contains("expected a series of goodput"), "{errors}");

    let (code, _, errors) = ask(&["forecast", "--series", "here/queu/length"]);
    let hint = "no series here/queu/length; did you mean here/queue/length";
    assert!(code == Some(1) && errors.contains(hint), "{errors}");
    let (code, _, errors) = ask(&["history", "here", "queue", "lenght"]);
    assert!(code == Some(1) && errors.contains("did you mean here/queue/length"), "{errors}");
    let (code, _, errors) = ask(&["forecast", "--series", "here/queue/length", "--steps"]);
    assert!(code == Some(2) && errors.contains("--steps"), "{errors}");
    up.signal("TERM");
    assert_eq!(up.end().0, Some(0));
}

/// A command ends without a panic if the reader of the command's output closes the pipe early.
#[test]
fn a_verb_with_a_closed_output_ends_quietly() {
    let state = tempfile::tempdir().unwrap();
    let up = Up::start(state.path(), &["--host", "here"]);
    let series = state.path().join("series.csv");
    std::fs::write(&series, "1\n2\n3\n4\n").unwrap();
    let (state, series) = (state.path().to_str().unwrap(), series.to_str().unwrap());
    let address = up.address.to_string();
    for arguments in [
        vec!["forecast", series],
        vec!["forecast", series, "--steps"],
        vec!["version"],
        vec!["completions", "bash"],
        vec!["help"],
        vec!["probe", &address, "--json", "--quantity", "rtt"],
        vec!["target", "list", "--state", state],
        vec!["peers", "--state", state],
        vec!["series", "--state", state],
        vec!["sites", "--state", state],
        vec!["invite", "--state", state],
        vec!["members", "--state", state],
        vec!["transfers", "--state", state],
    ] {
        let output = barograph().args(&arguments).stdin(Stdio::null()).stdout(unread()).output().unwrap();
        assert!(!stderr(&output).contains("panicked"), "{arguments:?}: {}", stderr(&output));
        assert_ne!(output.status.code(), Some(101), "{arguments:?}: a panic");
        let errors = barograph().args(&arguments).stdin(Stdio::null()).stderr(unread()).output().unwrap();
        assert_ne!(errors.status.code(), Some(101), "{arguments:?}: a panic");
    }
}
