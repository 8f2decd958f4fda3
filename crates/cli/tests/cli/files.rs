//! Runs the built binary: output, messages and exit codes of `plan` and of the commands that read
//! files.

mod classify;
mod compare;
mod documents;
mod forecast;
mod golden;
mod horizon;
mod plan;
mod tradeoff;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

/// `barograph VERB` with its output on pipes.
fn barograph(verb: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_barograph"));
    command.arg(verb).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a command with `input` on a pipe.
fn piped(mut command: Command, input: &[u8]) -> Output {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    // Ignore the result: the command may stop reading at the first error.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// Runs a command, and reads only the first line of its output.
fn read_one_line(mut command: Command) -> Output {
    let mut child = command.spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

/// The JSON output of a successful run.
fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Asserts exit code 2, and a message on standard error.
fn assert_refused(output: &Output, message: &str, case: impl std::fmt::Debug) {
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{case:?}: {told}");
    assert!(told.contains(message), "{case:?}: {told}");
}
