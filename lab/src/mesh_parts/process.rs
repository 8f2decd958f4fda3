//! Processes that end with the experiment.

use std::io::Write as _;
use std::process::{Child, ChildStdin, ChildStdout, Command};

use anyhow::{Context as _, ensure};

/// A process that is killed when it is dropped.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> anyhow::Result<Self> {
        command.spawn().map(Self).with_context(|| format!("{:?} cannot be run", command.get_program()))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Its input and its output, where they are pipes that nobody has taken.
    pub(crate) fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.0.stdin.take()
    }

    pub(crate) fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.0.stdout.take()
    }

    /// Writes a line to its input, where that is a pipe that nobody has taken.
    pub(crate) fn write_line(&mut self, line: &str) -> anyhow::Result<()> {
        let input = self.0.stdin.as_mut().context("the input is a pipe")?;
        Ok(writeln!(input, "{line}")?)
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Sends a signal by its name, `STOP` or `CONT`.
    pub(crate) fn signal(&self, name: &str) -> anyhow::Result<()> {
        let sent = Command::new("kill").args(["-s", name, &self.0.id().to_string()]).status()?;
        ensure!(sent.success(), "no signal {name} to process {}", self.0.id());
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL; one that has ended already is only waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
