//! Runs iperf3 in the hosts of a network.

use std::net::Ipv4Addr;
use std::process::Stdio;

use anyhow::{Context as _, bail};
use barograph_sim::Host;
use serde_json::Value;

use crate::process::Process;
use crate::tool::{Ended, find, run};

pub(crate) fn is_here() -> bool {
    find("iperf3").is_some()
}

/// Starts a server for one client and waits until it listens.
pub(crate) fn serve(host: &Host, port: u16) -> anyhow::Result<Process> {
    let mut command = host.command("iperf3");
    command.args(["-s", "-1", "--forceflush", "-p", &port.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Process::spawn(&mut command)?;
    let lines = server.lines()?;
    if !lines.iter().any(|line| line.contains("Server listening")) {
        bail!("the iperf3 server ended before it listened");
    }
    Ok(server)
}

/// Runs a client for at most `seconds_max` and returns its report. The receiver's numbers are in
/// `sum_received` of `end`.
pub(crate) fn report(
    from: &Host,
    to: (Ipv4Addr, u16),
    seconds_max: u64,
    options: &[&str],
) -> anyhow::Result<Value> {
    let (address, port) = (to.0.to_string(), to.1.to_string());
    let words = [&["iperf3", "-c", &address, "-p", &port, "-J"], options].concat();
    let Ended::Done(text) = run(from, &words, seconds_max)? else { bail!("iperf3 did not end in time") };
    // Warnings may follow the report.
    let mut values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let report = values.next().context("iperf3 printed nothing")?.context("iperf3's report is not JSON")?;
    match report.get("error") {
        Some(error) => bail!("iperf3: {error}"),
        None => Ok(report),
    }
}

/// One transfer from A to B: starts both ends and returns the client's report.
pub(crate) fn measured(
    network: &barograph_sim::Network,
    seconds_max: u64,
    options: &[&str],
) -> anyhow::Result<Value> {
    let _server = serve(&network.b, PORT)?;
    report(&network.a, (network.b.v4(), PORT), seconds_max, options)
}

const PORT: u16 = 5201;

/// More than iperf3 needs to start and to end (s).
pub(crate) const GRACE_S: u64 = 20;
