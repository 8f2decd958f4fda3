//! What runs in a host: a process of this program, so that its CPU can be told, and limited, apart.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::Context as _;
use barograph_sim::Host;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{flow, raw};
use crate::process::Process;

/// What a process is. Each says a line of JSON when it is ready, and one when its input ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Sends sealed or clear trains, and nothing else.
    RawSend(raw::SendPlan),
    /// Receives them.
    RawReceive(raw::ReceivePlan),
    /// The sending end of one object without end.
    Send(flow::SendPlan),
    /// Its receiving end.
    Receive(flow::ReceivePlan),
}

/// Where a receiver listens.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) port: u16,
    /// As the kernel counts (bytes).
    pub(crate) buffer_bytes: u64,
}

/// The process itself.
pub(crate) fn run(text: &str) -> anyhow::Result<()> {
    match serde_json::from_str(text).context("--role is for the experiment alone")? {
        Role::RawSend(plan) => raw::send(&plan),
        Role::RawReceive(plan) => raw::receive(&plan),
        Role::Send(plan) => flow::send(&plan),
        Role::Receive(plan) => flow::receive(&plan),
    }
}

/// Says something to whoever started this process.
pub(crate) fn say(what: &impl Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(what)?)?;
    Ok(out.flush()?)
}

/// Set when the input of this process ends.
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

/// Such a process, seen from the experiment.
pub(crate) struct Worker {
    process: Process,
    lines: Receiver<std::io::Result<String>>,
}

impl Worker {
    /// Starts it in a host.
    pub(crate) fn start(host: &Host, role: &Role) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["transfer-real", "--role", &serde_json::to_string(role)?]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // A process is in the namespace of the thread that starts it.
        let mut process = host.run(|| Process::spawn(&mut command))??;
        let output = process.take_stdout().context("its output is piped")?;
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                // Whoever listens may have given up.
                let _ = tell.send(line);
            }
        });
        Ok(Self { process, lines })
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// The next line.
    pub(crate) fn hear<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        self.hear_after(Duration::ZERO)
    }

    /// The next line, of a process that has to work for so long first.
    pub(crate) fn hear_after<T: DeserializeOwned>(&self, work: Duration) -> anyhow::Result<T> {
        let line = self
            .lines
            .recv_timeout(LIMIT + work)
            .context("a process of the experiment ended, or does not answer")??;
        serde_json::from_str(&line).context("a process of the experiment says something else")
    }

    /// Lets it end, and tells what it says at last.
    pub(crate) fn finish<T: DeserializeOwned>(mut self) -> anyhow::Result<T> {
        drop(self.process.take_stdin());
        self.hear()
    }
}

/// Far more than any of them needs to begin or to end.
const LIMIT: Duration = Duration::from_secs(20);
