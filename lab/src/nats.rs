//! NATS servers, one or three, that sync data to the disk before they acknowledge it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::{Value, json};

use crate::http::get;
use crate::process::{Port, Process};

/// The program `nats-server`: the given one, else `NATS_SERVER`, else the one on the path, else the
/// one that `scripts/install-test-needs` installs; `None` if there is none.
pub(crate) fn program(named: Option<&Path>) -> Option<PathBuf> {
    let variable = std::env::var_os("NATS_SERVER").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|directory| directory.join("nats-server"));
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/nats-server");
    let named = named.map(Path::to_path_buf);
    named.into_iter().chain(variable).chain(on_path).chain([tools]).find(|file| file.is_file())
}

/// Servers of one cluster, some of which may be dead.
pub(crate) struct Cluster {
    program: PathBuf,
    directory: PathBuf,
    members: Vec<Member>,
}

struct Member {
    client: Port,
    route: Port,
    monitor: Port,
    process: Option<Process>,
}

impl Cluster {
    /// Starts `count` servers that store below `directory`, and waits until they are healthy.
    pub(crate) fn start(program: &Path, directory: &Path, count: usize) -> anyhow::Result<Self> {
        let member = |_| {
            let [client, route, monitor] = [Port::new()?, Port::new()?, Port::new()?];
            anyhow::Ok(Member { client, route, monitor, process: None })
        };
        let members = (0..count).map(member).collect::<anyhow::Result<Vec<_>>>()?;
        let (program, directory) = (program.to_path_buf(), directory.to_path_buf());
        let mut cluster = Self { program, directory, members };
        for index in 0..count {
            cluster.revive(index)?;
        }
        cluster.wait_until_serving()?;
        Ok(cluster)
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| SocketAddr::from(([127, 0, 0, 1], member.client.number))).collect()
    }

    pub(crate) fn kill(&mut self, index: usize) {
        self.members[index].process = None;
    }

    /// Starts a server, again if it was killed, with the data that it stored.
    pub(crate) fn revive(&mut self, index: usize) -> anyhow::Result<()> {
        let file = self.directory.join(format!("server{index}.conf"));
        std::fs::write(&file, self.configuration(index))?;
        let log = std::fs::File::create(self.directory.join(format!("server{index}.log")))?;
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.members[index].process = Some(Process::spawn(&mut command)?);
        Ok(())
    }

    pub(crate) fn signal(&self, index: usize, name: &str) -> anyhow::Result<()> {
        self.members[index].process.as_ref().map_or(Ok(()), |process| process.signal(name))
    }

    pub(crate) fn id(&self, index: usize) -> Option<u32> {
        self.members[index].process.as_ref().map(Process::id)
    }

    /// Index of the server that leads the stream of records; a single server leads it.
    pub(crate) fn leader(&self) -> anyhow::Result<usize> {
        if self.len() == 1 {
            return Ok(0);
        }
        let began = Instant::now();
        loop {
            if let Some(leader) = (0..self.len()).find_map(|index| self.leader_says(index)) {
                return Ok(leader);
            }
            ensure!(began.elapsed() < SERVING_WITHIN, "no server leads the stream");
            thread::sleep(PAUSE);
        }
    }

    /// Returns `index` if this server reports itself as the leader. A server that was cut off may
    /// report an older leader.
    fn leader_says(&self, index: usize) -> Option<usize> {
        let answer = get(self.monitor(index), "/jsz?accounts=true&streams=true").ok()?;
        let accounts = answer["account_details"].as_array()?;
        let streams = accounts.iter().filter_map(|account| account["stream_detail"].as_array()).flatten();
        let leader = streams.filter(|stream| stream["name"] == "BAROGRAPH").find_map(|stream| {
            stream["cluster"]["leader"].as_str()?.strip_prefix("server")?.parse::<usize>().ok()
        })?;
        (leader == index).then_some(leader)
    }

    /// Name, creation time, configuration and first sequence number of each stream of the first
    /// server.
    pub(crate) fn streams(&self) -> anyhow::Result<Vec<Value>> {
        let answer = get(self.monitor(0), "/jsz?accounts=true&streams=true&config=true")?;
        let accounts = answer["account_details"].as_array().into_iter().flatten();
        let streams = accounts.flat_map(|account| account["stream_detail"].as_array().into_iter().flatten());
        let mut streams: Vec<Value> = streams
            .map(|stream| {
                let is_records = stream["name"] == "BAROGRAPH";
                json!({
                    "name": stream["name"],
                    "created": stream["created"],
                    "config": stream["config"],
                    // The directory keeps only the newest entry of each key, so its first number
                    // changes.
                    "first": if is_records { stream["state"]["first_seq"].clone() } else { Value::Null },
                })
            })
            .collect();
        streams.sort_by_key(|stream| stream["name"].to_string());
        ensure!(!streams.is_empty(), "the server has no stream");
        Ok(streams)
    }

    fn wait_until_serving(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        for index in 0..self.len() {
            while let Err(error) = get(self.monitor(index), "/healthz") {
                ensure!(began.elapsed() < SERVING_WITHIN, "NATS server {index} is not healthy: {error:#}");
                thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    fn monitor(&self, index: usize) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.members[index].monitor.number))
    }

    /// Configuration file of a server. With `sync_interval: always` acknowledged data is on the
    /// disk. With `no_advertise` clients do not learn the other servers' addresses, so that no
    /// second way remains when an experiment cuts a connection.
    fn configuration(&self, index: usize) -> String {
        let member = &self.members[index];
        let [client, route, monitor] =
            [&member.client, &member.route, &member.monitor].map(|port| port.number);
        let store = self.directory.join(format!("jetstream{index}"));
        let mut text = format!(
            "server_name: \"server{index}\"\nlisten: \"127.0.0.1:{client}\"\nhttp: \"127.0.0.1:{monitor}\"\n\
             jetstream {{ store_dir: {store:?}, sync_interval: always, max_file_store: 20GB }}\n"
        );
        if self.len() > 1 {
            let routes: Vec<String> = self
                .members
                .iter()
                .map(|other| format!("\"nats://127.0.0.1:{}\"", other.route.number))
                .collect();
            text += &format!(
                "cluster {{ name: barograph, listen: \"127.0.0.1:{route}\", no_advertise: true, routes: [{}] }}\n",
                routes.join(", ")
            );
        }
        // Accounts that the script `deploy/nats/accounts` made, if it ran.
        text + &std::fs::read_to_string(self.directory.join("accounts.conf")).unwrap_or_default()
    }
}

/// A cluster elects its leader within seconds; two busy cores take longer.
const SERVING_WITHIN: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);
