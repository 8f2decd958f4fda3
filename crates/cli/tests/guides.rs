//! Checks the commands of README, and runs those of the guides, `docs/guide/*.md`: the `sh` blocks
//! of a page, one after the other, in an empty directory. Blocks marked `sh no-test` need another
//! host. `nats.md` has a test of its own (`guide.rs`).
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use barograph_testkit::fenced;

#[test]
fn alerts() {
    run("alerts");
}

#[test]
fn first_station() {
    run("first-station");
}

#[test]
fn forecast_a_series() {
    run("forecast-a-series");
}

#[test]
fn mesh() {
    run("mesh");
}

#[test]
fn metrics() {
    run("metrics");
}

#[test]
fn move_files() {
    run("move-files");
    run("move-files-more");
}

/// Checks that README's commands exist: each target of make, and each verb with its options. The
/// commands are not run here, because some commands need a different host or the internet. The
/// guides run similar commands.
#[test]
fn readme() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    let (makefile, readme) = (text("Makefile"), text("README.md"));
    let help = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_barograph")).args(arguments).arg("--help").output();
        let output = output.unwrap();
        assert!(output.status.success(), "barograph {arguments:?} --help");
        String::from_utf8(output.stdout).unwrap()
    };
    let mut verbs = Vec::new();
    for line in fenced(&readme, "sh").lines() {
        let command = line.split(" # ").next().unwrap().split("  #").next().unwrap();
        let mut words = command.split_whitespace().skip_while(|word| word.contains('='));
        match words.next() {
            Some("make") => {
                let target = words.next().unwrap();
                assert!(makefile.contains(&format!("\n{target}:")), "{line}");
            }
            Some("barograph" | "target/up/barograph") => {
                let verb = words.next().unwrap();
                let help = help(&[verb]);
                let mut options = words.filter(|word| word.starts_with("--"));
                assert!(options.all(|option| help.contains(option)), "{line}");
                verbs.push(verb.to_owned());
            }
            _ => assert!(line.contains("barograph") || line.starts_with("curl "), "{line}"),
        }
    }
    assert!(10 <= verbs.len(), "{verbs:?}");
    let listed = readme.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    for (verb, _) in listed {
        help(&[verb]);
    }
}

/// Every page with commands must have one of the tests above, so that no page stays untested.
#[test]
fn each_page_with_commands_has_a_test() {
    let tested =
        ["alerts", "first-station", "forecast-a-series", "mesh", "metrics", "move-files", "move-files-more"];
    let pages = std::fs::read_dir(guides()).unwrap().map(|entry| entry.unwrap().path());
    let with_commands = pages.filter(|page| !commands(page).is_empty());
    let names = with_commands.map(|page| page.file_stem().unwrap().to_str().unwrap().to_owned());
    let mut untested: Vec<String> = names.filter(|name| !tested.contains(&name.as_str())).collect();
    untested.retain(|name| name != "nats");
    assert_eq!(untested, Vec::<String>::new());
}

fn run(page: &str) {
    if Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_err() {
        barograph_sim::report_missing(&format!(
            "the commands of docs/guide/{page}.md: `curl` is not installed"
        ));
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let script = with_free_ports(&commands(&guides().join(page).with_extension("md")));
    assert!(!script.is_empty(), "{page} has no commands");
    let output = shell(directory.path(), &script);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{page}: {}\n{out}\n{err}\n{script}", output.status);
}

/// Runs a script until it ends, then kills all processes that it started.
fn shell(directory: &Path, script: &str) -> Output {
    let binary = Path::new(env!("CARGO_BIN_EXE_barograph")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BAROGRAPH_") {
            command.env_remove(name);
        }
    }
    command.args(["-euc", script]).current_dir(directory).env("PATH", path).env("HOME", directory);
    command.env_remove("XDG_STATE_HOME").env_remove("XDG_CONFIG_HOME").env("BAROGRAPH_LISTEN", "127.0.0.1:0");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().unwrap();
    let group = format!("-{}", child.id());
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let output = receiver.recv_timeout(LIMIT);
    // Kill what the script left running: a station would keep the pipes open.
    let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    output.unwrap_or_else(|_| panic!("not done after {LIMIT:?}:\n{script}")).unwrap()
}

fn commands(page: &Path) -> String {
    fenced(&std::fs::read_to_string(page).unwrap(), "sh")
}

/// Replaces each port of the guides, 30200 to 30299, by a free port.
fn with_free_ports(script: &str) -> String {
    let mut ports = BTreeMap::new();
    let mut listeners = Vec::new();
    for port in 30_200..30_300 {
        if script.contains(&format!(":{port}")) {
            let listener = TcpListener::bind("[::]:0").unwrap();
            ports.insert(port, listener.local_addr().unwrap().port());
            listeners.push(listener);
        }
    }
    ports.iter().fold(script.to_owned(), |script, (port, free)| {
        script.replace(&format!(":{port}"), &format!(":{free}"))
    })
}

fn guides() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide")
}

/// Time limit of a page. The page about the mesh takes longest, because it waits for the first bulk
/// tests.
const LIMIT: Duration = Duration::from_secs(240);
