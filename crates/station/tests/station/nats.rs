//! A station that keeps the archive of a mesh on NATS: what members measure reaches it through the stream.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use barograph_engine::{Engine as _, Nats, NatsConfig, Record};
use barograph_forecast::{Name, Outcome, Quantity, Series};
use barograph_station::Config;

use crate::http::{get, until};
use crate::{LIMIT, quiet};

const SERIES: &str = "/v1/series?source=b&target=c&quantity=rtt";

#[test]
fn an_archive_forecasts_from_what_members_measure() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(directory.path()) else { return };
    let config = archive(directory.path(), &server.url);
    let station = up(config.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let member = {
        let _within = runtime.enter();
        Nats::new(NatsConfig::new(vec![server.url.clone()], Name::new("b").unwrap())).unwrap()
    };
    let send = |seqs: std::ops::RangeInclusive<u64>| {
        let records: Vec<Record> = seqs.map(record).collect();
        let began = Instant::now();
        // The archive makes the stream.
        while let Err(error) = runtime.block_on(member.append(&records)) {
            assert!(began.elapsed() < LIMIT, "{error}");
        }
    };
    let count = |address| get(address, SERIES).json()["series"][0]["count"].clone();
    let until_count = |address, count: u64| {
        until(address, SERIES, |answer| answer.json()["series"][0]["count"] == count);
    };
    send(1..=20);
    until_count(station.address(), 20);
    // Sent again, it is nothing new.
    send(20..=21);
    until_count(station.address(), 21);
    station.stop(LIMIT);

    let station = up(config);
    assert_eq!(count(station.address()), 21);
    send(22..=30);
    until_count(station.address(), 30);

    // With a stolen token a record under a high number may be sent. The member goes on below it.
    let forged = Record { outcome: Outcome::Value(0.5), ..record(Record::SEQ_JUMP_MAX) };
    runtime.block_on(member.append(&[forged])).unwrap();
    until_count(station.address(), 31);
    send(31..=40);
    until_count(station.address(), 41);
    station.stop(LIMIT);
}

fn record(seq: u64) -> Record {
    let [b, c] = ["b", "c"].map(|name| Name::new(name).unwrap());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Record {
        origin: b.clone(),
        seq,
        series: Series { source: b, target: c, quantity: Quantity::RTT },
        time_unix_ns: i64::try_from(now.as_nanos()).unwrap(),
        outcome: Outcome::Value(0.25 + 0.001 * seq as f64),
        detail: String::new(),
    }
}

fn archive(directory: &Path, url: &str) -> Config {
    let state = directory.join("state");
    let mut config = Config { sensor_period: Duration::from_hours(24), ..quiet(&state) };
    config.mesh.nats = vec![url.to_owned()];
    config.mesh.archive = true;
    config
}

/// From a thread of its own, as `serve` does.
fn up(config: Config) -> barograph_station::Station {
    std::thread::spawn(move || barograph_station::Station::up(config).unwrap()).join().unwrap()
}

/// A running `nats-server`, killed when it is dropped.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// `None` = there is none, and it was said.
    fn start(directory: &Path) -> Option<Self> {
        let named = std::env::var_os("NATS_SERVER").map(PathBuf::from);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let on_path = std::env::split_paths(&path).map(|directory| directory.join("nats-server"));
        let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/nats-server");
        let Some(program) = named.into_iter().chain(on_path).chain([tools]).find(|file| file.is_file())
        else {
            barograph_sim::say_missing(
                "an archive on NATS: there is no nats-server (scripts/install-test-needs gets it)",
            );
            return None;
        };
        let (store, file) = (directory.join("jetstream"), directory.join("server.conf"));
        let text = format!(
            "listen: 127.0.0.1:-1\nports_file_dir: {directory:?}\n\
             jetstream {{ store_dir: {store:?}, max_file_store: 8GB }}\n"
        );
        std::fs::write(&file, text).unwrap();
        let child =
            Command::new(program).arg("-c").arg(file).arg("-l").arg(directory.join("log")).spawn().unwrap();
        let mut server = Self { child, url: String::new() };
        let ports = directory.join(format!("nats-server_{}.ports", server.child.id()));
        let began = Instant::now();
        while server.url.is_empty() {
            assert!(began.elapsed() < LIMIT, "nats-server does not listen");
            let text = std::fs::read_to_string(&ports).unwrap_or_default();
            server.url =
                text.split('"').find(|part| part.starts_with("nats://127.")).unwrap_or("").to_owned();
            std::thread::yield_now();
        }
        Some(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
