//! The operator's guide, `docs/nats.md`, as it is written: its scripts, its configurations, its stations. Addresses and
//! ports are this host's; the three servers of step 5 are checked, and run as a cluster in the tests of the engine.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Every wait ends after this.
const LIMIT: Duration = Duration::from_secs(60);

/// A process, killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_newcomer_gets_a_secured_mesh() {
    let Some(server) = server() else { return };
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let guide = std::fs::read_to_string(repository("docs/nats.md")).unwrap();
    for file in std::fs::read_dir(repository("deploy/nats")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), root.join(file.file_name())).unwrap();
    }
    let commands = blocks(&guide, "sh");
    for line in commands.lines().filter(|line| line.starts_with("./")) {
        run(root, &line.replace("192.0.2.11", "127.0.0.1"));
    }
    for file in ["single.conf", "n1.conf", "n2.conf", "n3.conf"] {
        assert!(guide.contains(file), "{file} is in the guide");
        run(root, &format!("{} -t -c {file}", server.display()));
    }

    assert!(commands.contains("nats-server -c single.conf"));
    let configuration = std::fs::read_to_string(root.join("single.conf")).unwrap();
    let ports = format!("ports_file_dir: {root:?}\n");
    let local = configuration.replace("0.0.0.0:4222", "127.0.0.1:-1") + &ports;
    std::fs::write(root.join("single.conf"), local).unwrap();
    let nats =
        Command::new(&server).args(["-c", "single.conf"]).current_dir(root).stderr(Stdio::null()).spawn();
    let nats = Running(nats.unwrap());
    let file = root.join(format!("nats-server_{}.ports", nats.0.id()));
    let address = until("the server listens", || {
        let text = std::fs::read_to_string(&file).ok()?;
        Some(text.split('"').find_map(|part| part.split_once("://127.0.0.1:"))?.1.to_string())
    });

    let toml = blocks(&guide, "toml")
        .replace("north.example.net:4222", &format!("127.0.0.1:{address}"))
        .replace("/etc/barograph", root.join("tls").to_str().unwrap());
    let _north = station(root, "north.example.net", &toml);
    let others = toml.replace("north.example.net", "south.example.net").replace("archive = true\n", "");
    let _south = station(root, "south.example.net", &others);
    let peers = |host: &str| said(root, &["peers", "--state", root.join(host).to_str().unwrap()]);
    let shows = |host: &'static str, what: &'static str| {
        until(what, || peers(host).lines().any(|line| line.contains(what)).then_some(()));
    };
    shows("north.example.net", "north.example.net (archive)");
    shows("north.example.net", "south.example.net  up");
    shows("south.example.net", "south.example.net (member)");
    shows("south.example.net", "north.example.net  up");

    // Step 6: one is withdrawn.
    let reload = "nats-server --signal reload=nats.pid";
    assert!(guide.contains(reload));
    run(root, "./stations north.example.net east.example.net >stations.conf");
    run(root, &reload.replace("nats-server", server.to_str().unwrap()));
    shows("north.example.net", "south.example.net  lost");
    shows("south.example.net", "not connected");
    shows("south.example.net", "the servers do not know this station's certificate");
}

/// A station with this configuration; it has said where it listens.
fn station(root: &Path, host: &str, configuration: &str) -> Running {
    let file = root.join(format!("{host}.toml"));
    std::fs::write(&file, configuration).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_barograph"));
    command.args(["up", "--no-default-targets", "--listen", "127.0.0.1:0", "--host", host, "--config"]);
    command.arg(file).arg("--state").arg(root.join(host));
    let mut child = command.env_clear().stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let child = Running(child);
    assert!(line.starts_with("listening on"), "{line}");
    child
}

/// What the program prints; nothing where it fails.
fn said(root: &Path, arguments: &[&str]) -> String {
    let done = Command::new(env!("CARGO_BIN_EXE_barograph"))
        .args(arguments)
        .current_dir(root)
        .env_clear()
        .output()
        .unwrap();
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn run(root: &Path, line: &str) {
    let done = Command::new("sh").args(["-c", line]).current_dir(root).output().unwrap();
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

/// All fenced blocks of a language.
fn blocks(text: &str, language: &str) -> String {
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// `nats-server` where there is one, and what the scripts need.
fn server() -> Option<PathBuf> {
    let named = std::env::var_os("NATS_SERVER").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|directory| directory.join("nats-server"));
    let found = named
        .into_iter()
        .chain(on_path)
        .chain([repository("target/tools/nats-server")])
        .find(|file| file.is_file());
    let has_tools = Command::new("openssl").arg("version").output().is_ok();
    if found.is_none() || !has_tools {
        println!(
            "SKIPPED: the operator's guide: there is no nats-server (scripts/install-test-needs), or no openssl"
        );
    }
    found.filter(|_| has_tools)
}
