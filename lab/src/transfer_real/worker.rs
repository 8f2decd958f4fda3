//! What runs in a host: a process of this program, so that its CPU can be told, and limited, apart.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::Context as _;
use barograph_sim::Host;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::process::Process;

/// Where a receiver listens.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) port: u16,
    /// As the kernel counts (bytes).
    pub(crate) buffer_bytes: u64,
}

/// Says something to whoever started this process.
pub(crate) fn say(what: &impl Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(what)?)?;
    Ok(out.flush()?)
}

/// Such a process, seen from the experiment. It prints a line of JSON when it is ready, and one when its input ends.
pub(crate) struct Worker {
    process: Process,
    lines: Receiver<String>,
}

impl Worker {
    /// Starts it in a host, in a role and with a plan for it.
    pub(crate) fn start(host: &Host, role: &str, plan: &impl Serialize) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["transfer-real", "--role", &json!({ role: plan }).to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // A process is in the namespace of the thread that starts it.
        let mut process = host.run(|| Process::spawn(&mut command))??;
        Ok(Self { lines: process.lines()?, process })
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
            .context("a process of the experiment ended, or does not answer")?;
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
