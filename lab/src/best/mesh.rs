//! Six real stations, `barograph up`, one on each host.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use barograph_api::HostRanking;
use barograph_sim::Host;
use serde_json::{Value, json};

use super::hosts::{ASKER, Hosts};
use crate::http::{get, post};
use crate::process::Process;

/// The station of the asking host, which the others join.
pub(super) struct Mesh<'a> {
    hosts: &'a Hosts,
    program: &'a Path,
    /// State and log of each station.
    directory: &'a Path,
    /// Token of each station that joins.
    tokens: BTreeMap<String, String>,
    running: Vec<(String, Process)>,
}

impl<'a> Mesh<'a> {
    /// A mesh without a running station; `program` is an absolute path.
    pub(super) fn new(hosts: &'a Hosts, program: &'a Path, directory: &'a Path) -> Self {
        Self { hosts, program, directory, tokens: BTreeMap::new(), running: Vec::new() }
    }

    /// Starts all stations with these settings, and waits until all are peers of the asking one.
    pub(super) fn start(&mut self, settings: &[&str]) -> anyhow::Result<()> {
        let hosts = self.hosts;
        self.start_one(hosts.asker(), ASKER_NAME, settings)?;
        for link in hosts.links.iter() {
            if !self.tokens.contains_key(&link.name) {
                let invitation = self.post("/v1/invitations", &json!({ "name": link.name }))?;
                let token = invitation["token"].as_str().context("an invitation has a token")?;
                self.tokens.insert(link.name.clone(), token.to_owned());
            }
            self.start_one(link.host(), &link.name, settings)?;
        }
        let (began, others) = (Instant::now(), hosts.links.len() as u64);
        while self.get("/v1/mesh")?["peers"]["up"].as_u64() != Some(others) {
            ensure!(began.elapsed() < MET_WITHIN, "not all stations have met: {}", self.logs());
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn start_one(&mut self, host: &Host, name: &str, settings: &[&str]) -> anyhow::Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(self.log(name))?;
        // Without the environment, so that files and variables of the user's own station have no
        // effect.
        let mut command = host.command("env");
        command.arg("-i").arg(format!("HOME={}", self.directory.display()));
        let token = self.tokens.get(name);
        command.args(token.map(|token| format!("BAROGRAPH_JOIN_TOKEN={token}")));
        command.arg(self.program).args(["up", "--listen", "[::]:10132", "--log", "warn", "--host", name]);
        // A host of this network has no gateway or resolver to measure.
        command.arg("--no-default-targets").arg("--state").arg(self.directory.join(name));
        if token.is_some() {
            command.args(["--join", &ASKER.to_string()]);
        }
        command.args(settings.iter().flat_map(|setting| ["--set", *setting]));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut process = Process::spawn(&mut command)?;
        let mut line = String::new();
        BufReader::new(process.take_stdout().context("the output is a pipe")?).read_line(&mut line)?;
        ensure!(line.starts_with("listening on "), "{name} does not listen: {line} {}", self.logs());
        self.running.push((name.to_owned(), process));
        Ok(())
    }

    /// Stops all stations, and starts them with default settings and budgets of which nothing is
    /// spent. What they have measured stays.
    pub(super) fn restart(&mut self) -> anyhow::Result<()> {
        self.stop()?;
        for name in self.hosts.names().into_iter().chain([ASKER_NAME]) {
            match fs::remove_file(self.directory.join(name).join(BUDGET)) {
                Err(error) if error.kind() != ErrorKind::NotFound => bail!("{BUDGET} of {name}: {error}"),
                _ => {}
            }
        }
        self.start(&[])
    }

    fn stop(&mut self) -> anyhow::Result<()> {
        self.running.iter().try_for_each(|(_, process)| process.signal("TERM"))?;
        let began = Instant::now();
        for (name, process) in &mut self.running {
            while !process.has_ended() {
                ensure!(began.elapsed() < STOP_WITHIN, "{name} does not stop");
                thread::sleep(POLL_INTERVAL);
            }
        }
        self.running.clear();
        Ok(())
    }

    /// What the asking station answers now for so many bytes to all others.
    pub(super) fn best(&self, bytes: u64) -> anyhow::Result<HostRanking> {
        let to = self.hosts.names().join(",");
        let answer = self.get(&format!("/v1/best?to={to}&bytes={bytes}"))?;
        Ok(serde_json::from_value(answer)?)
    }

    /// Makes a bulk test to a host now. While one of the ends has another test, this waits.
    pub(super) fn test(&self, host: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let refused = match self.post("/v1/tests", &json!({ "to": host, "seconds": TEST_S })) {
                Ok(test) if test["state"] == "done" => return Ok(()),
                Ok(test) => test.to_string(),
                Err(error) => format!("{error:#}"),
            };
            ensure!(began.elapsed() < TEST_WITHIN, "no test to {host}: {refused}");
            thread::sleep(10 * POLL_INTERVAL);
        }
    }

    /// Start (s since 1970) of the first successful test to a host that began after `since_s`.
    pub(super) fn first_test_s(&self, host: &str, since_s: f64) -> anyhow::Result<Option<f64>> {
        Ok(first_test_s(&self.get("/v1/tests")?, host, since_s))
    }

    fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.hosts.asker().run(|| get(ASKER_API, path))?
    }

    fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.hosts.asker().run(|| post(ASKER_API, path, body))?
    }

    fn log(&self, name: &str) -> PathBuf {
        self.directory.join(name).with_extension("log")
    }

    /// Logs of all stations, for an error message.
    fn logs(&self) -> String {
        let names = self.hosts.names().into_iter().chain([ASKER_NAME]);
        names.filter_map(|name| fs::read_to_string(self.log(name)).ok()).collect()
    }
}

/// As [`Mesh::first_test_s`], from the answer to `GET /v1/tests`.
fn first_test_s(answer: &Value, host: &str, since_s: f64) -> Option<f64> {
    let tests = answer["tests"].as_array().into_iter().flatten();
    let own = |test: &&Value| test["role"] == "source" && test["peer"] == host && test["state"] == "done";
    let times = tests.filter(own).filter_map(|test| test["time_s"].as_f64());
    times.filter(|time_s| *time_s > since_s).min_by(f64::total_cmp)
}

const ASKER_NAME: &str = "asker";

/// The asking station, from its own host.
const ASKER_API: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 10_132);

/// File of a station's state that logs what tests have cost.
const BUDGET: &str = "budget.json";

/// Length of a test of the warm-up: that of a station by default (`mesh.bulk_seconds`).
pub(super) const TEST_S: f64 = 5.0;

/// Hosts test each other at the same time, for at most five seconds each.
const TEST_WITHIN: Duration = Duration::from_secs(60);

/// Several leases of a directory (10 s each).
const MET_WITHIN: Duration = Duration::from_secs(60);

/// A stopping station ends its tests and writes its archive.
const STOP_WITHIN: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_test_to_a_host_is_its_earliest_successful_one() {
        let test = |time_s: f64, role: &str, peer: &str, state: &str| json!({ "time_s": time_s, "role": role, "peer": peer, "state": state });
        let answer = json!({ "tests": [
            test(9.0, "source", "host1", "done"),
            test(8.0, "source", "host1", "done"),
            test(7.0, "source", "host1", "failed"),
            test(6.0, "target", "host1", "done"),
            test(5.0, "source", "host2", "done"),
            test(4.0, "source", "host1", "done"),
        ] });
        assert_eq!(first_test_s(&answer, "host1", 4.5), Some(8.0));
        assert_eq!(first_test_s(&answer, "host1", 9.0), None);
        assert_eq!(first_test_s(&json!({}), "host1", 0.0), None);
    }
}
