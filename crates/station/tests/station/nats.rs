//! A station that keeps the archive of a mesh on NATS: it receives the measurements of members
//! through the stream.

use std::path::Path;
use std::time::{Duration, Instant};

use barograph_engine::{Engine as _, Nats, NatsConfig, Record};
use barograph_forecast::{Name, Outcome};
use barograph_station::Config;
use barograph_testkit::nats::NatsServer;

use crate::http::{get, get_until};
use crate::{LIMIT, quiet, up};

const SERIES: &str = "/v1/series?source=b&target=c&quantity=rtt";

#[test]
fn an_archive_forecasts_from_measurements_of_members() {
    let directory = tempfile::tempdir().unwrap();
    let Some(server) = NatsServer::start(directory.path()) else { return };
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
        // The archive creates the stream.
        while let Err(error) = runtime.block_on(member.append(&records)) {
            assert!(began.elapsed() < LIMIT, "{error}");
        }
    };
    let count = |address| get(address, SERIES).json()["series"][0]["count"].clone();
    let until_count = |address, count: u64| {
        get_until(address, SERIES, |answer| answer.json()["series"][0]["count"] == count);
    };
    send(1..=20);
    until_count(station.address(), 20);
    // A repeated record is not learnt again.
    send(20..=21);
    until_count(station.address(), 21);
    station.stop(LIMIT);

    let station = up(config);
    assert_eq!(count(station.address()), 21);
    send(22..=30);
    until_count(station.address(), 30);

    // With a stolen token, an attacker can send a record with a high sequence number. The records
    // of the member below this number are still learnt.
    let forged = Record { outcome: Outcome::Value(0.5), ..record(Record::SEQ_JUMP_MAX) };
    runtime.block_on(member.append(&[forged])).unwrap();
    until_count(station.address(), 31);
    send(31..=40);
    until_count(station.address(), 41);
}

fn record(seq: u64) -> Record {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let time_unix_ns = i64::try_from(now.as_nanos()).unwrap();
    let outcome = Outcome::Value(0.25 + 0.001 * seq as f64);
    Record { time_unix_ns, outcome, ..barograph_testkit::record("b", "c", seq) }
}

fn archive(directory: &Path, url: &str) -> Config {
    let state = directory.join("state");
    let mut config = Config { sensor_period: Duration::from_hours(24), ..quiet(&state) };
    config.mesh.nats = vec![url.to_owned()];
    config.mesh.archive = true;
    config
}
