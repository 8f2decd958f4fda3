//! Runs the commands of README that one host can run, and the commands of the guides,
//! `docs/guide/*.md`: the `sh` blocks of a page, one after the other, in an empty directory. The
//! commands must print what the `text` block after them shows, apart from numbers. Blocks marked
//! `sh no-test` need another host. The output in blocks marked `text example` depends on the host.
//! `nats.md` has a test of its own (`guide.rs`).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use barograph_testkit::{code_blocks, fenced};

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

/// Checks that the commands of README, and of the README of this crate, exist: each target of make,
/// and each verb with its options.
#[test]
fn readme() {
    let readme = read(&root().join("README.md"));
    let verbs = existing_verbs(&readme);
    assert!(verbs.len() >= 10, "{verbs:?}");
    let listed = readme.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    for (verb, _) in listed {
        help(verb);
    }
    assert!(!existing_verbs(&read(&root().join("crates/cli/README.md"))).is_empty());
}

/// Runs the commands of README, except [`NOT_RUN`], beside the station that README starts for a
/// mesh.
#[test]
fn readme_commands_run() {
    if !has_curl("README.md") {
        return;
    }
    let commands = fenced(&read(&root().join("README.md")), "sh");
    let commands: Vec<&str> = commands.lines().map(without_comment).collect();
    let up = commands.iter().find(|line| line.starts_with("barograph up --listen")).unwrap();
    let mut script = format!("{} >log 2>&1 &\n", up.replace(":10132", ":0"));
    script += "file=$HOME/.local/state/barograph/url\n";
    script += "until [ -s \"$file\" ]; do sleep 0.1; done\nurl=$(cat \"$file\")\n";
    let is_run = |line: &&&str| !NOT_RUN.iter().any(|start| line.starts_with(start));
    let run: Vec<&&str> = commands.iter().filter(is_run).collect();
    assert!(run.len() >= 6, "{run:?}");
    for line in run {
        let line =
            line.replace("target/up/barograph", "barograph").replace("some-command", "cat latency.csv");
        script += &line.replace("curl -s 'localhost:10132/", "curl -sf \"$url\"'");
        script.push('\n');
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("latency.csv"), "20.1\n20.4\n19.8\n").unwrap();
    succeed("README.md", directory.path(), &script);
    assert!(directory.path().join("latency.svg").exists());
}

/// Every page with commands must have one of the tests above, and every block must have a known
/// mark, so that nothing stays untested by mistake.
#[test]
fn each_page_with_commands_has_a_test() {
    let tested =
        ["alerts", "first-station", "forecast-a-series", "mesh", "metrics", "move-files", "move-files-more"];
    for page in pages() {
        let name = page.file_stem().unwrap().to_str().unwrap();
        for (mark, lines) in code_blocks(&read(&page)) {
            assert!(MARKS.contains(&mark), "{name} has a block with the mark `{mark}`:\n{lines}");
            let is_tested = tested.contains(&name) || (name == "nats" && mark == "sh");
            assert!(is_tested || !["sh", "text"].contains(&mark), "{name} has no test");
        }
    }
}

/// Rust blocks are doctests of the crate that includes their page.
#[test]
fn each_page_with_rust_is_included_by_a_crate() {
    let folders = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let has_rust = |page: &Path| code_blocks(&read(page)).iter().any(|(mark, _)| mark.starts_with("rust"));
    let mut libraries = String::new();
    for folder in folders.filter(|folder| folder.join("src/lib.rs").exists()) {
        let library = read(&folder.join("src/lib.rs"));
        let is_included = library.contains("include_str!(\"../README.md\")");
        assert!(is_included || !has_rust(&folder.join("README.md")), "{}", folder.display());
        libraries += &library;
    }
    for page in pages().into_iter().chain([root().join("README.md")]).filter(|page| has_rust(page)) {
        let name = page.strip_prefix(root()).unwrap().display().to_string();
        assert!(libraries.contains(&format!("include_str!(\"../../../{name}\")")), "{name}");
    }
}

/// Runs the commands of a page, and compares what they print with what the page shows.
fn run(page: &str) {
    if !has_curl(page) {
        return;
    }
    let text = read(&guides().join(page).with_extension("md"));
    let (mut script, mut shown, mut number) = (String::new(), Vec::new(), 0);
    for (mark, lines) in code_blocks(&text) {
        match mark {
            "sh" => {
                number += 1;
                script += &format!("printf '\\036'\n{lines}");
            }
            "text" => shown.push((number, lines)),
            _ => {}
        }
    }
    assert!(number > 0, "{page} has no commands");
    let directory = tempfile::tempdir().unwrap();
    let printed = succeed(page, directory.path(), &with_free_ports(&script));
    for (number, lines) in shown {
        // What a process in the background prints may come after the next block has begun.
        let printed: Vec<&str> = printed.split('\u{1e}').skip(number).collect();
        assert_printed(page, &lines, &printed.join("\n"));
    }
}

/// Checks that each line of `shown` has the [`shape`] of a printed line, or of the beginning of
/// one. On a slow host, commands print more lines than the page shows.
fn assert_printed(page: &str, shown: &str, printed: &str) {
    let shapes: Vec<String> = printed.lines().map(shape).collect();
    for line in shown.lines() {
        let start = shape(line);
        let is_printed = shapes.iter().any(|printed| printed.starts_with(&start));
        assert!(is_printed, "{page} shows\n{line}\nand its commands printed\n{printed}");
    }
}

/// Replaces the parts of a line that differ between runs and hosts: numbers with their units,
/// times, addresses, identifiers and the widths of columns.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for word in line.split_whitespace() {
        let value = word.trim_start_matches('(').trim_end_matches([',', ';', ':', ')']);
        let is_address = value.parse::<SocketAddr>().is_ok() || value.parse::<IpAddr>().is_ok();
        let is_id = value.len() >= 8 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
        if shape.ends_with('#') && UNITS.contains(&value) {
            shape += &word.replacen(value, "", 1);
            continue;
        }
        shape.push(' ');
        if is_address || is_id {
            shape += &word.replacen(value, "#", 1);
        } else {
            shape += &without_numbers(word);
        }
    }
    shape
}

/// Replaces each number, date and time in a word by `#`.
fn without_numbers(word: &str) -> String {
    let mut shape = String::new();
    let mut chars = word.chars().peekable();
    while let Some(c) = chars.next() {
        let is_inside = shape.ends_with('#');
        let is_separator = ['.', ':', '-'].contains(&c) && chars.peek().is_some_and(char::is_ascii_digit);
        if is_inside && (c.is_ascii_digit() || is_separator) {
            continue;
        }
        shape.push(if c.is_ascii_digit() { '#' } else { c });
    }
    shape
}

#[test]
fn shapes_differ_in_words_only() {
    for (shown, printed) in [
        ("peers: 2 up  2026-11-26 02:39:10Z", "peers: 1 up 2027-01-02 03:04:05Z"),
        ("to 192.0.2.11:30231 in 97 ms: 2.48 Gbit/s", "to [fd00::1]:7 in 1.2 s: 3 kbit/s"),
        ("(0.00 %), 30.0 MB", "(12 %), 5 B"),
        ("7a579ab78f6917f1  done", "f4574973b054da94  done"),
        ("1,11.70,Last Value,2", "3,1,Last Value,0.5"),
    ] {
        assert_eq!(shape(shown), shape(printed));
    }
    assert_ne!(shape("  from before  30.0 MB"), shape("  resumed  30.0 MB"));
}

/// Checks that the commands of a page exist, and returns their verbs.
fn existing_verbs(page: &str) -> Vec<String> {
    let makefile = read(&root().join("Makefile"));
    let mut verbs = Vec::new();
    for line in fenced(page, "sh").lines() {
        let mut words = without_comment(line).split_whitespace().skip_while(|word| word.contains('='));
        match words.next() {
            Some("make") => {
                let target = words.next().unwrap();
                assert!(makefile.contains(&format!("\n{target}:")), "{line}");
            }
            Some("barograph" | "target/up/barograph") => {
                let verb = words.next().unwrap();
                let help = help(verb);
                let mut options = words.filter(|word| word.starts_with("--"));
                assert!(options.all(|option| help.contains(option)), "{line}");
                verbs.push(verb.to_owned());
            }
            _ => assert!(line.contains("barograph") || line.starts_with("curl "), "{line}"),
        }
    }
    verbs
}

fn help(verb: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_barograph")).args([verb, "--help"]).output().unwrap();
    assert!(output.status.success(), "barograph {verb} --help");
    String::from_utf8(output.stdout).unwrap()
}

fn without_comment(line: &str) -> &str {
    line.split(" #").next().unwrap().trim_end()
}

fn has_curl(page: &str) -> bool {
    let has_curl = Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !has_curl {
        barograph_sim::report_missing(&format!("the commands of {page}: `curl` is not installed"));
    }
    has_curl
}

/// Runs a script, which must succeed, and returns its standard output.
fn succeed(page: &str, directory: &Path, script: &str) -> String {
    let output = shell(directory, script);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{page}: {}\n{out}\n{err}\n{script}", output.status);
    out
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

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn guides() -> PathBuf {
    root().join("docs/guide")
}

/// All pages of the guides.
fn pages() -> Vec<PathBuf> {
    std::fs::read_dir(guides()).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap()
}

/// Commands of README that are not run. `make test` runs these tests, and `make up` would build the
/// program again. The others need the internet, a second host or what a person fills in, or run
/// until a signal stops them. The guides run similar commands.
const NOT_RUN: [&str; 7] = [
    "make ",
    "barograph up",
    "barograph probe",
    "BAROGRAPH_JOIN_TOKEN=",
    "barograph best",
    "barograph recv",
    "barograph send",
];

/// Marks of the blocks of a page. Python blocks are run by the tests of the Python package.
const MARKS: [&str; 13] = [
    "html",
    "js",
    "json",
    "nginx",
    "python",
    "python no-test",
    "rust",
    "sh",
    "sh no-test",
    "text",
    "text example",
    "toml",
    "yaml",
];

const UNITS: [&str; 16] = [
    "%", "ns", "µs", "ms", "s", "min", "h", "d", "B", "kB", "MB", "GB", "bit/s", "kbit/s", "Mbit/s", "Gbit/s",
];

/// Time limit of a page. The page about the mesh takes longest, because it waits for the first bulk
/// tests.
const LIMIT: Duration = Duration::from_secs(240);
