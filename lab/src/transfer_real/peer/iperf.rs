//! iperf3.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use anyhow::{Context as _, bail};
use barograph_sim::Network;
use serde_json::Value;

use super::super::tool::{Ended, run};
use super::Bench;
use crate::process::Process;

/// What its receiver saw.
pub(super) fn tcp(bench: &Bench<'_>, congestion: &str) -> anyhow::Result<f64> {
    let report = report(bench, &["-C", congestion])?;
    report["end"]["sum_received"]["bits_per_second"].as_f64().context("iperf3 tells no rate")
}

/// What its receiver saw of datagrams that are sent as fast as it can; at a bottleneck, at its rate.
pub(super) fn udp(bench: &Bench<'_>) -> anyhow::Result<f64> {
    let rate = bench.rate_bps.unwrap_or(0).to_string();
    let report = report(bench, &["-u", "-l", "1472", "-b", &rate])?;
    let sum = &report["end"]["sum"];
    let (sent, lost) = (sum["bits_per_second"].as_f64(), sum["lost_percent"].as_f64());
    let (sent, lost) = sent.zip(lost).context("iperf3 tells no rate")?;
    Ok(sent * (1.0 - lost / 100.0))
}

fn report(bench: &Bench<'_>, options: &[&str]) -> anyhow::Result<Value> {
    let _server = serve(bench.network, PORT)?;
    let (to, seconds) = (bench.network.b.v4().to_string(), bench.seconds.to_string());
    let mut words = vec!["iperf3", "-c", &to, "-p", PORT_TEXT, "-J", "-t", &seconds];
    words.extend(options);
    parse(run(&bench.network.a, &words, bench.seconds + GRACE_S)?)
}

/// A client's report.
pub(in super::super) fn parse(ended: Ended) -> anyhow::Result<Value> {
    let Ended::Done(text) = ended else { bail!("iperf3 did not end in time") };
    // Warnings come behind it.
    let mut values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let report = values.next().context("iperf3 says nothing")?.context("iperf3's report is no JSON")?;
    match report.get("error") {
        Some(error) => bail!("iperf3: {error}"),
        None => Ok(report),
    }
}

/// A server for one client in the far host.
pub(in super::super) fn serve(network: &Network, port: u16) -> anyhow::Result<Process> {
    let mut command = network.b.command("iperf3");
    command.args(["-s", "-1", "--forceflush", "-p", &port.to_string()]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Process::spawn(&mut command)?;
    let output = server.take_stdout().context("iperf3's output is piped")?;
    let mut lines = BufReader::new(output).lines();
    if !lines.any(|line| line.is_ok_and(|line| line.contains("Server listening"))) {
        bail!("iperf3's server ended before it listened");
    }
    // It prints on, and would end if nobody took it.
    std::thread::spawn(move || lines.for_each(drop));
    Ok(server)
}

const PORT: u16 = 5201;
const PORT_TEXT: &str = "5201";

/// More than iperf3 needs to begin and to end.
const GRACE_S: u64 = 15;
