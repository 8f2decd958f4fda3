//! `barograph recv` and `barograph send` as people run them: on loopback, between two hosts,
//! stopped, killed and started again.

mod elsewhere;
mod hosts;
mod killed;
mod local;
mod tree;

use std::ffi::OsStr;
use std::io::BufRead as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use barograph_testkit::{ChildProcess, LIMIT};
use serde_json::Value;

fn barograph() -> Command {
    of(Path::new(env!("CARGO_BIN_EXE_barograph")))
}

/// The program at this path, without settings of the user that runs the tests.
fn of(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().stdin(Stdio::null());
    command
}

/// A running command with `--json`, and the events that it prints.
struct Running {
    program: ChildProcess,
    events: Receiver<Value>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let piped = command.arg("--json").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = ChildProcess::start(piped);
        let stdout = program.take_stdout().unwrap();
        let (sender, events) = channel();
        // The thread ends when the command ends, and dropping this value ends the command.
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(serde_json::from_str(&line).unwrap_or(Value::String(line))).is_err() {
                    return;
                }
            }
        });
        Self { program, events }
    }

    /// Waits for an event of this name.
    fn until(&mut self, name: &str) -> Value {
        let (began, mut seen) = (Instant::now(), Vec::new());
        while let Ok(event) = self.events.recv_timeout(LIMIT.saturating_sub(began.elapsed())) {
            if event["event"] == name {
                return event;
            }
            seen.push(event);
        }
        self.program.kill();
        panic!("no {name} in {seen:?}; {}", self.program.stderr());
    }

    fn signal(&self, name: &str) {
        self.program.signal(name);
    }

    /// Kills the program with SIGKILL.
    fn kill(mut self) {
        self.program.kill();
    }

    /// Waits for the end; returns the exit code, the remaining events, and standard error.
    fn end(mut self) -> (Option<i32>, Vec<Value>, String) {
        let (code, stderr) = self.program.wait();
        (code, self.events.iter().collect(), stderr)
    }
}

/// Starts a receiver; returns the receiver and the first receiver address that it prints.
fn receive(command: &mut Command, directory: &Path, options: &[&str]) -> (Running, String) {
    let mut recv = Running::start(command.arg("recv").arg(directory).args(options));
    let line = recv.until("listening")["lines"][0].as_str().unwrap().to_owned();
    (recv, line)
}

/// A receiver on loopback.
fn receive_here(directory: &Path, options: &[&str]) -> (Running, String) {
    receive(&mut barograph(), directory, &[&["--listen", "127.0.0.1:0"], options].concat())
}

fn send(command: &mut Command, path: impl AsRef<OsStr>, line: &str, options: &[&str]) -> Running {
    Running::start(command.arg("send").arg(path).arg(line).args(options))
}

/// Sends everything; returns the last event.
fn send_all(path: &Path, line: &str, options: &[&str]) -> Value {
    let (code, events, stderr) = send(&mut barograph(), path, line, options).end();
    assert_eq!(code, Some(0), "{stderr}");
    let done = events.last().unwrap().clone();
    assert_eq!(done["event"], "done", "{events:?}");
    done
}
