//! Processes that end with the experiment, and ports for them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

use anyhow::{Context as _, ensure};
use socket2::{Domain, Socket, Type};

/// A process that is killed when it is dropped.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> anyhow::Result<Self> {
        command.spawn().map(Self).with_context(|| format!("{:?} cannot be run", command.get_program()))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Takes its input, if that is a pipe and was not taken before; [`Self::take_stdout`] takes its
    /// output.
    pub(crate) fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.0.stdin.take()
    }

    pub(crate) fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.0.stdout.take()
    }

    /// Returns the lines that it prints, if its output is a pipe and was not taken. A thread reads
    /// them to the end, so that the process never waits for a reader.
    pub(crate) fn lines(&mut self) -> anyhow::Result<Receiver<String>> {
        let output = self.take_stdout().context("the output is a pipe")?;
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            // The caller may have dropped the receiver.
            BufReader::new(output).lines().map_while(Result::ok).for_each(|line| drop(tell.send(line)));
        });
        Ok(lines)
    }

    /// Writes a line to its input, if that is a pipe and was not taken.
    pub(crate) fn write_line(&mut self, line: &str) -> anyhow::Result<()> {
        let input = self.0.stdin.as_mut().context("the input is a pipe")?;
        Ok(writeln!(input, "{line}")?)
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Sends a signal by its name, such as `STOP` or `CONT`.
    pub(crate) fn signal(&self, name: &str) -> anyhow::Result<()> {
        let sent = Command::new("kill").args(["-s", name, &self.0.id().to_string()]).status()?;
        ensure!(sent.success(), "cannot send signal {name} to process {}", self.0.id());
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL; a process that has ended already is only waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn input_ends() -> Arc<AtomicBool> {
    let is_over = Arc::new(AtomicBool::new(false));
    std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            std::io::stdin().lines().for_each(drop);
            is_over.store(true, Ordering::Relaxed);
        }
    });
    is_over
}

/// A port of this machine, reserved until this is dropped.
///
/// The socket is bound and does not listen, so connections are refused and the system gives the
/// port to no other program. A process that sets `SO_REUSEADDR`, as servers do, can listen on it,
/// also after it was killed.
pub(crate) struct Port {
    pub(crate) number: u16,
    _held: Socket,
}

impl Port {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let held = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        held.set_reuse_address(true)?;
        held.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
        let number = held.local_addr()?.as_socket_ipv4().context("an IPv4 address was bound")?.port();
        Ok(Self { number, _held: held })
    }
}
