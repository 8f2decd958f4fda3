//! The programs that measure: the native prober, a native client of the pages' WebSocket, and the
//! browser. A Node script drives the browser and exchanges JSON lines with this program.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use barograph_probe::io::{CancellationToken, run_one};
use barograph_probe::wire::{Reply, Request};
use barograph_probe::{Direction, Experiment, MeasuredValue, Target, io};
use barograph_sim::{Host, Network};
use barograph_study::compare::{Preference, TcpCounters};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};

use super::{Args, ClockName};
use crate::process::Process;
use crate::tool::find;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    Rtt,
    RttNagle,
    /// Goodput upwards, without any correction, as in the paper's study (§2.1.1).
    Goodput,
}

impl Quantity {
    pub(crate) const ALL: [Self; 3] = [Self::Rtt, Self::RttNagle, Self::Goodput];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Rtt => "rtt",
            Self::RttNagle => "rtt_nagle",
            Self::Goodput => "goodput",
        }
    }

    pub(crate) fn unit(self) -> &'static str {
        if self.is_transfer() { "bit/s" } else { "s" }
    }

    /// Whether bytes are transferred, so that larger values are better.
    pub(crate) fn is_transfer(self) -> bool {
        self == Self::Goodput
    }

    pub(crate) fn better(self) -> Preference {
        if self.is_transfer() { Preference::Larger } else { Preference::Smaller }
    }
}

pub(crate) struct SampleRequest {
    pub(crate) quantity: Quantity,
    pub(crate) bytes: u64,
    /// Bytes of a write of the native program; `None` is its default.
    pub(crate) write_bytes: Option<usize>,
    /// Bytes of a message of the page; `None` is its default.
    pub(crate) message_bytes: Option<usize>,
}

/// Takes one sample on a new connection, in seconds, or in bit/s without any correction; with the
/// kernel's numbers.
pub(crate) fn native_measure(
    network: &Network,
    target: &Target,
    request: &SampleRequest,
    cancel: &CancellationToken,
) -> anyhow::Result<(f64, TcpCounters)> {
    let experiment = match request.quantity {
        Quantity::Rtt => Experiment::Rtt { n: 1 },
        Quantity::RttNagle => Experiment::RttNagle { n: 1 },
        Quantity::Goodput => Experiment::Goodput { direction: Direction::Up, bytes: request.bytes },
    };
    let measured = one(network, target, experiment, DEADLINE, request.write_bytes, cancel)?;
    let kernel = measured
        .tcp_info
        .map(|info| TcpCounters { retrans: Some(info.total_retrans.into()), min_rtt_s: info.min_rtt_s });
    Ok((measured.raw.unwrap_or(measured.value), kernel.unwrap_or_default()))
}

pub(crate) fn native_exchanges(
    network: &Network,
    target: &Target,
    n: u32,
    cancel: &CancellationToken,
) -> anyhow::Result<Vec<f64>> {
    Ok(one(network, target, Experiment::Rtt { n }, DEADLINE, None, cancel)?.samples)
}

pub(crate) fn one(
    network: &Network,
    target: &Target,
    experiment: Experiment,
    deadline: Duration,
    write_bytes: Option<usize>,
    cancel: &CancellationToken,
) -> anyhow::Result<MeasuredValue> {
    let mut context = io::ProbeContext { deadline, cancel: cancel.clone(), ..Default::default() };
    context.write_bytes = write_bytes.unwrap_or(context.write_bytes);
    let mut readings = network.a.run(|| run_one(target, experiment, &context))?;
    let reading = readings.pop().context("the experiment returned no reading")?;
    Ok(reading.result?)
}

/// Far more than any sample takes on these links.
const DEADLINE: Duration = Duration::from_secs(60);

/// Times (s) of `n` exchanges one after another on one connection (docs/spec/echo.md).
pub(crate) fn websocket_exchanges(
    network: &Network,
    station: SocketAddr,
    n: u32,
) -> anyhow::Result<Vec<f64>> {
    // A socket stays in the namespace in which it was made.
    let stream = network.a.run(|| TcpStream::connect_timeout(&station, WAIT_MAX))??;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(WAIT_MAX))?;
    stream.set_write_timeout(Some(WAIT_MAX))?;
    let mut request = format!("ws://{station}/v1/echo").into_client_request()?;
    let protocol = HeaderValue::from_static("barograph-probe.1");
    request.headers_mut().insert("sec-websocket-protocol", protocol);
    let (mut socket, _) = client(request, stream).map_err(|error| anyhow::anyhow!("{error}"))?;
    socket.send(Message::binary(Request::Rtt { n }.encode().to_vec()))?;
    let reply = Reply::decode(&take_binary(&mut socket)?).context("the station's reply")?;
    ensure!(matches!(reply, Reply::Ready { .. }), "the station declined the exchanges: {reply:?}");
    let mut times_s = Vec::new();
    for i in 0..n {
        // Two bytes, as the page sends them.
        let message = (i as u16).to_be_bytes().to_vec();
        let began = Instant::now();
        socket.send(Message::binary(message))?;
        take_binary(&mut socket)?;
        times_s.push(began.elapsed().as_secs_f64());
    }
    socket.close(None)?;
    Ok(times_s)
}

fn take_binary(socket: &mut WebSocket<TcpStream>) -> anyhow::Result<Vec<u8>> {
    loop {
        match socket.read()? {
            Message::Binary(bytes) => return Ok(bytes.to_vec()),
            Message::Ping(_) | Message::Pong(_) => {}
            other => bail!("the station sent {other:?}"),
        }
    }
}

/// Far more than any step takes on loopback.
const WAIT_MAX: Duration = Duration::from_secs(10);

pub(crate) struct Browser {
    process: Process,
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
    /// Number of the newest request. A late answer to an earlier request is dropped.
    id: u64,
    is_lost: bool,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Ready {
    /// The smallest step of the page's clock.
    pub(crate) clock_resolution_s: f64,
    /// Whether the page is isolated from other origins, and so has the finer clock.
    pub(crate) isolated: bool,
    pub(crate) browser: String,
}

#[derive(Deserialize)]
struct PageMeasured {
    value: f64,
    samples: Vec<f64>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Shown {
    #[serde(rename(deserialize = "value"))]
    pub(crate) bit_s: f64,
    pub(crate) at_least: bool,
    pub(crate) bytes: u64,
}

#[derive(Deserialize)]
pub(crate) struct Cycle {
    pub(crate) goodput: Shown,
    pub(crate) goodput_down: Shown,
}

/// What is missing to run a browser, as a sentence; `None` if nothing is.
pub(crate) fn missing(chromium: &Path) -> Option<String> {
    let driver = driver();
    let modules = web().join("node_modules/playwright-core");
    if find("node").is_none() {
        Some("node is not installed".to_owned())
    } else if !chromium.exists() {
        Some(format!("{} does not exist (install chromium, or set CHROMIUM)", chromium.display()))
    } else if !modules.exists() {
        Some(format!("{} does not exist (run `npm ci` in web/)", modules.display()))
    } else if !driver.exists() {
        Some(format!("{} does not exist", driver.display()))
    } else {
        None
    }
}

impl Browser {
    pub(crate) fn start(host: &Host) -> anyhow::Result<Self> {
        let mut command = host.command("node");
        // Its own process group: Ctrl-C at the terminal reaches this program only, which then ends
        // the script in order.
        command.arg(driver()).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command)?;
        let (requests, answers) = (process.take_stdin(), process.lines()?);
        Ok(Self { process, requests, answers, id: 0, is_lost: false })
    }

    pub(crate) fn open(&mut self, url: &str, args: &Args, clock: ClockName) -> anyhow::Result<Ready> {
        let fine_clock = clock == ClockName::Fine;
        let request = json!({"do": "open", "url": url, "chromium": args.chromium, "fine_clock": fine_clock});
        self.ask(&request).context("the browser cannot open the page")
    }

    /// Takes one sample on a new connection, in seconds, or in bit/s without any correction.
    pub(crate) fn measure(&mut self, request: &SampleRequest) -> anyhow::Result<f64> {
        let message = json!({
            "do": "measure",
            "quantity": request.quantity.as_str(),
            "n": 1,
            "bytes": request.bytes,
            "message_bytes": request.message_bytes,
            "fresh": true,
        });
        Ok(self.ask::<PageMeasured>(&message)?.value)
    }

    /// Times (s) of `n` exchanges one after another on the open connection.
    pub(crate) fn exchanges(&mut self, n: u32) -> anyhow::Result<Vec<f64>> {
        let request = json!({"do": "measure", "quantity": "rtt", "n": n, "fresh": false});
        Ok(self.ask::<PageMeasured>(&request)?.samples)
    }

    /// Goodput that the page shows after a whole cycle, with transfers of `size` bytes, or of its
    /// default sizes with `auto`.
    pub(crate) fn cycle(&mut self, size: impl Into<Value>) -> anyhow::Result<Cycle> {
        self.ask(&json!({"do": "cycle", "size": size.into()}))
    }

    /// Whether the page is gone or in an unknown state; then a new script has to open it again.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    fn ask<T: for<'a> Deserialize<'a>>(&mut self, request: &Value) -> anyhow::Result<T> {
        self.id += 1;
        let answered = self.answer_to(request);
        // The answer may still arrive, so this script cannot be used again.
        let (answer, line) = answered.inspect_err(|_| self.is_lost = true)?;
        if let Some(error) = answer.get("error").and_then(Value::as_str) {
            self.is_lost |= answer.get("lost").and_then(Value::as_bool).unwrap_or(false);
            bail!("{error}");
        }
        serde_json::from_value(answer).with_context(|| format!("the script answered {line}"))
    }

    fn answer_to(&mut self, request: &Value) -> anyhow::Result<(Value, String)> {
        let mut request = request.clone();
        request["id"] = self.id.into();
        let requests = self.requests.as_mut().context("the script was stopped")?;
        writeln!(requests, "{request}").and_then(|()| requests.flush()).context("the script has ended")?;
        next_answer(&self.answers, self.id, Instant::now() + ANSWER_MAX)
    }
}

/// Reads the answer with this id, and drops late answers to earlier requests.
fn next_answer(answers: &Receiver<String>, id: u64, until: Instant) -> anyhow::Result<(Value, String)> {
    loop {
        let line = match answers.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                bail!("the browser did not answer within {} s", ANSWER_MAX.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => bail!("the script has ended"),
        };
        let answer: Value = serde_json::from_str(&line).context("the script's answer is not JSON")?;
        if answer.get("id").and_then(Value::as_u64) == Some(id) {
            return Ok((answer, line));
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The end of its input ends the script; the browser closes within some tenths of a second.
        self.requests = None;
        let began = Instant::now();
        while began.elapsed() < END_MAX {
            if self.process.has_ended() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        // The script is killed here; what it started ends with the network.
    }
}

fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../web")
}

fn driver() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("equivalence/driver.mjs")
}

/// Longer than the script's own limits: 150 s for a transfer; to start the browser, four of 30 s or
/// less, of which at most one is used up.
const ANSWER_MAX: Duration = Duration::from_secs(180);
const END_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn an_answer_to_an_earlier_request_is_discarded() {
        let (sender, answers) = channel();
        for line in [r#"{"id":1,"value":1.0}"#, r#"{"id":null,"error":"what?"}"#, r#"{"id":2,"value":2.0}"#] {
            sender.send(line.to_owned()).unwrap();
        }
        let until = Instant::now() + ANSWER_MAX;
        assert_eq!(next_answer(&answers, 2, until).unwrap().0["value"], 2.0);
        drop(sender);
        assert!(next_answer(&answers, 3, until).unwrap_err().to_string().contains("has ended"));
    }

    #[test]
    fn a_missing_answer_is_an_error_after_the_deadline() {
        let (_sender, answers) = channel();
        let error = next_answer(&answers, 1, Instant::now()).unwrap_err();
        assert!(error.to_string().contains("did not answer"));
    }
}
