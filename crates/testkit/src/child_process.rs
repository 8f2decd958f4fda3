//! Programs under test, as processes.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::wait_for;

/// A running process, killed when it is dropped.
pub struct ChildProcess {
    child: Child,
    stdout: Option<BufReader<ChildStdout>>,
}

impl ChildProcess {
    /// Starts the command as it is configured.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdout = child.stdout.take().map(BufReader::new);
        Self { child, stdout }
    }

    /// Starts the command with its standard output on a pipe; also returns the first line of that
    /// output.
    pub fn with_line(command: &mut Command) -> (Self, String) {
        let mut program = Self::start(command.stdout(Stdio::piped()));
        let line = program.read_line();
        (program, line)
    }

    /// The next line of standard output; empty after the last line.
    pub fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.as_mut().unwrap().read_line(&mut line).unwrap();
        line
    }

    /// The rest of standard output; `None` if standard output is not a pipe, or was taken before.
    pub fn take_stdout(&mut self) -> Option<BufReader<ChildStdout>> {
        self.stdout.take()
    }

    /// The ID of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends the process a signal, `HUP` for example.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.id().to_string()).status();
        assert!(status.unwrap().success());
    }

    /// Whether the process is running.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Kills the process with `SIGKILL`, so that it cannot clean up.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until the process ends. Returns its exit code and the rest of standard error, if
    /// standard error is a pipe.
    pub fn wait(&mut self) -> (Option<i32>, String) {
        let status = wait_for(|| self.child.try_wait().unwrap().ok_or("the program is still running"));
        (status.code(), self.stderr())
    }

    /// The rest of standard error; empty if standard error is not a pipe.
    pub fn stderr(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut text).unwrap());
        text
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
