//! The browser, driven by a script of Node over JSON lines.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use barograph_sim::Host;
use serde::Deserialize;
use serde_json::{Value, json};

use super::collect::Asked;
use super::{Args, ClockName, PageName};

/// A browser on a host, and the script that drives it; both end when this is dropped.
pub(crate) struct Browser {
    child: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
}

/// What a browser said of itself.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Ready {
    /// The smallest step of the page's clock.
    pub(crate) clock_resolution_s: f64,
    /// Whether the page is isolated from other origins, and so has the finer clock.
    pub(crate) isolated: bool,
    /// Its name and version.
    pub(crate) browser: String,
    /// Whose code measures: `own` or `bare`.
    pub(crate) page: String,
}

#[derive(Deserialize)]
struct Measured {
    value: f64,
}

/// What there would have to be for a browser to run, in a sentence; `None` = all is there.
pub(crate) fn missing(chromium: &Path) -> Option<String> {
    let driver = driver();
    let modules = web().join("node_modules/playwright-core");
    let node = Command::new("node").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !node.is_ok_and(|status| status.success()) {
        Some("node is not there".to_owned())
    } else if !chromium.exists() {
        Some(format!("{} is not there (install chromium, or set CHROMIUM)", chromium.display()))
    } else if !modules.exists() {
        Some(format!("{} is not there (run `npm ci` in web/)", modules.display()))
    } else if !driver.exists() {
        Some(format!("{} is not there", driver.display()))
    } else {
        None
    }
}

impl Browser {
    /// Starts the script on a host.
    pub(crate) fn start(host: &Host) -> anyhow::Result<Self> {
        let mut command = host.command("node");
        // A group of its own: an interrupt from the terminal is for us, and what runs is to end in order.
        command.arg(driver()).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start node")?;
        let requests = child.stdin.take();
        let output = child.stdout.take().context("the script has an output")?;
        let (sender, answers) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, requests, answers })
    }

    /// Opens the station's page.
    pub(crate) fn open(&mut self, url: &str, args: &Args, clock: ClockName) -> anyhow::Result<Ready> {
        let page = match args.page {
            PageName::Own => "own",
            PageName::Bare => "bare",
        };
        let fine_clock = clock == ClockName::Fine;
        let request = json!({"do": "open", "url": url, "chromium": args.chromium, "fine_clock": fine_clock, "page": page});
        let ready: Ready = self.ask(&request).context("the browser cannot open the page")?;
        if page != ready.page {
            eprintln!(
                "SKIPPED: the page's own communicator, which it does not offer; a bare one measures instead"
            );
        }
        Ok(ready)
    }

    /// One sample, in seconds, or in bit/s without any correction.
    pub(crate) fn measure(&mut self, asked: &Asked) -> anyhow::Result<f64> {
        let request = json!({
            "do": "measure",
            "quantity": asked.quantity.as_str(),
            "n": 1,
            "bytes": asked.bytes,
            "message_bytes": asked.message_bytes,
            "fresh": asked.quantity.is_transfer(),
        });
        Ok(self.ask::<Measured>(&request)?.value)
    }

    fn ask<T: for<'a> Deserialize<'a>>(&mut self, request: &Value) -> anyhow::Result<T> {
        let requests = self.requests.as_mut().context("the script was told to end")?;
        writeln!(requests, "{request}").and_then(|()| requests.flush()).context("the script has ended")?;
        let line = match self.answers.recv_timeout(ANSWER_MAX) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                bail!("the browser did not answer within {} s", ANSWER_MAX.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => bail!("the script has ended"),
        };
        let answer: Value = serde_json::from_str(&line).context("the script answers with JSON")?;
        if let Some(error) = answer.get("error").and_then(Value::as_str) {
            bail!("{error}");
        }
        serde_json::from_value(answer).with_context(|| format!("the script answered {line}"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The end of its input is its end; the browser closes in some tenths of a second.
        self.requests = None;
        let began = Instant::now();
        while began.elapsed() < END_MAX {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        // What it started dies with the network.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The page's folder, where the tools are installed.
fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../web")
}

fn driver() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("equivalence/driver.mjs")
}

/// Longer than a transfer may take and than a browser may need to start, each with the script's own limit.
const ANSWER_MAX: Duration = Duration::from_secs(90);

/// How long a browser may take to end.
const END_MAX: Duration = Duration::from_secs(5);
