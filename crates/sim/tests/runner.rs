//! `scripts/test`: every suite runs, even after another suite failed, and a summary reports all
//! suites. Stub scripts replace the programs that the suites start.

#![cfg(unix)]
#![expect(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Runs two suites with a stub `cargo` that fails in the Rust tests.
fn run(must_run: bool) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let cargo = folder.path().join("cargo");
    fs::write(
        &cargo,
        "#!/bin/sh\n\
         [ \"$1\" = test ] || exit 0\n\
         case \"$*\" in *--no-fail-fast*) ;; *) exit 3 ;; esac\n\
         echo 'SKIPPED: a test that needs root'\n\
         echo 'test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out'\n\
         echo 'test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out'\n\
         echo '4 passed, 1 failed in 2.50s'\n\
         exit 101\n",
    )
    .unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    // There is no C compiler, so the C suite is skipped, or fails if tests must run.
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/test");
    let mut run = Command::new(script);
    run.args(["rust", "c"]).env("PATH", path).env("CC", "no-such-compiler");
    run.env("CARGO_TARGET_DIR", folder.path().join("target")).env_remove("TESTS_MUST_RUN");
    if must_run {
        run.env("TESTS_MUST_RUN", "1");
    }
    run.output().unwrap()
}

#[test]
fn a_failed_suite_does_not_stop_the_next_and_the_summary_lists_both_suites() {
    let output = run(false);
    let text = String::from_utf8_lossy(&output.stdout);
    let summary = text.split("== summary").nth(1).unwrap_or_else(|| panic!("no summary: {text}"));
    assert_eq!(output.status.code(), Some(1), "{text}");
    for line in [
        "rust      FAILED: 9 passed, 2 failed",
        "c         skipped: 0 passed, 0 failed",
        "skipped in rust: a test that needs root",
        "skipped in c: the C library: no-such-compiler is not installed",
        "9 passed, 2 failed, 2 skipped",
    ] {
        assert!(summary.contains(line), "{line:?} is not in {summary}");
    }
}

#[test]
fn a_suite_without_its_program_fails_if_tests_must_run() {
    let output = run(true);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("c         FAILED"), "{text}");
}
