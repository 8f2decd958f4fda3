//! Time of `GET /v1/best` at a station with 15 000 series and 1000 new values a second.
//!
//! `cargo bench -p barograph-station --bench best [-- QUESTIONS]`. The mesh has 40 sites of ten
//! hosts. The measured pairs are those within each site and those between the representatives: 5160
//! pairs, each with a round trip, a goodput and a loss. One connection sends a hundred requests a
//! second, one after the other; the time is measured by the caller. Meanwhile, the station reads
//! the directory and learns all models again every ten seconds. Another caller requests an unknown
//! host every second. Because of these requests, the station reads the directory one more time in
//! every ten seconds.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use barograph_engine::{Capabilities, Engine, Entry};
use barograph_forecast::Name;
use barograph_station::{Config, Station, open_archive};

fn main() {
    let questions = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(2000);
    let state = tempfile::tempdir().unwrap();
    let mut config = Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        state: state.path().to_path_buf(),
        host: Some(Name::new("archive").unwrap()),
        default_targets: false,
        series_max: 20_000,
        // Use no commit interval: the station acknowledges each batch after its commit, so an
        // interval would delay this benchmark.
        commit: Duration::ZERO,
        ..Config::default()
    };
    config.mesh.site = Name::new("elsewhere").unwrap();
    let archive = Arc::new(open_archive(&config).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let entries = (0..HOSTS).map(entry);
    let _leases: Vec<_> = entries
        .map(|entry| runtime.block_on(archive.register(&entry, Duration::from_secs(60))).unwrap())
        .collect();
    let station = Station::serve(config, archive).unwrap();
    let mut page = Page::open(station.address());
    let pairs = pairs();
    for round in 0..3 {
        pairs.chunks(50).for_each(|chunk| page.feed(chunk, round));
    }
    let stopped = Arc::new(AtomicBool::new(false));
    let feeder = std::thread::spawn({
        let (stopped, mut page, pairs) = (Arc::clone(&stopped), Page::open(station.address()), pairs.clone());
        move || {
            for (i, chunk) in pairs.chunks(50).cycle().enumerate() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                page.feed(chunk, i);
                std::thread::sleep(Duration::from_millis(150));
            }
        }
    });
    let misser = std::thread::spawn({
        let (stopped, mut page) = (Arc::clone(&stopped), Page::open(station.address()));
        move || {
            let mut worst = Duration::ZERO;
            let mut misses = 0;
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                let answer = page.ask("GET", "/v1/best?from=n3&to=nobody&bytes=1", "");
                assert!(answer.contains("there is no host"), "{answer}");
                worst = worst.max(began.elapsed());
                misses += 1;
                std::thread::sleep(Duration::from_secs(1));
            }
            println!(
                "{misses} questions for a host that is not there meanwhile, the longest {:.0} ms",
                1e3 * worst.as_secs_f64()
            );
        }
    });
    println!("{} series, 1000 values a second", QUANTITIES.len() * pairs.len());
    let others: Vec<String> = (1..40).map(|site| format!("local:s{site}")).collect();
    let ten: Vec<String> = (20..30).map(|site| format!("local:s{site}")).collect();
    for (what, to) in [
        ("9 hosts of the same site, measured", "local:s0".to_string()),
        ("10 hosts of another site, composed", "local:s20".to_string()),
        ("100 hosts of ten sites, composed", ten.join(",")),
        ("390 hosts of all other sites, composed", others.join(",")),
    ] {
        let path = format!("/v1/best?from=n3&to={to}&bytes=100000000");
        // Do not measure the first request, because it waits for the directory.
        let answer = page.ask("GET", &path, "");
        assert!(answer.contains("\"hosts\":[{"), "{answer}");
        let mut times: Vec<Duration> = (0..questions)
            .map(|_| {
                let began = Instant::now();
                page.ask("GET", &path, "");
                let took = began.elapsed();
                std::thread::sleep(Duration::from_millis(10).saturating_sub(took));
                took
            })
            .collect();
        times.sort_unstable();
        let at = |share: f64| 1e3 * times[(share * (times.len() - 1) as f64) as usize].as_secs_f64();
        println!(
            "{what}: median {:.2} ms, 99th percentile {:.2} ms, worst {:.2} ms",
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
    stopped.store(true, Ordering::Relaxed);
    feeder.join().unwrap();
    misser.join().unwrap();
    station.stop(Duration::from_secs(5));
}

fn entry(host: usize) -> Entry {
    let mut groups = vec![Name::new(&format!("local:s{}", host / SITE)).unwrap()];
    groups.extend(host.is_multiple_of(SITE).then(|| Name::new("global").unwrap()));
    Entry {
        host: Name::new(&format!("n{host}")).unwrap(),
        addresses: vec![SocketAddr::from(([192, 0, 2, 1], 10_132))],
        version: env!("CARGO_PKG_VERSION").into(),
        groups,
        capabilities: Capabilities { responder: true, ..Capabilities::default() },
        key: None,
    }
}

fn pairs() -> Vec<(usize, usize)> {
    let all = (0..HOSTS).flat_map(|a| (0..HOSTS).map(move |b| (a, b)));
    let is_tested = |(a, b): &(usize, usize)| {
        a != b && (a / SITE == b / SITE || (a.is_multiple_of(SITE) && b.is_multiple_of(SITE)))
    };
    all.filter(is_tested).collect()
}

/// HTTP connection that stays open for all requests.
struct Page {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
}

impl Page {
    fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { stream: BufReader::new(stream), address }
    }

    fn ask(&mut self, method: &str, path: &str, body: &str) -> String {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}",
            self.address
        );
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            assert_ne!(self.stream.read_line(&mut line).unwrap(), 0, "the station has closed");
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }

    fn feed(&mut self, pairs: &[(usize, usize)], round: usize) {
        let mut records = String::new();
        for (a, b) in pairs {
            let noise = 1.0 + 0.01 * ((a * 7 + b * 3 + round) % 5) as f64;
            for (quantity, mean) in QUANTITIES {
                let value = mean * noise;
                let comma = if records.is_empty() { "" } else { "," };
                write!(
                    records,
                    r#"{comma}{{"source":"n{a}","target":"n{b}","quantity":"{quantity}","value":{value}}}"#
                )
                .unwrap();
            }
        }
        let answer = self.ask("POST", "/v1/measurements", &format!(r#"{{"records":[{records}]}}"#));
        assert!(answer.contains("stored"), "{answer}");
    }
}

const QUANTITIES: [(&str, f64); 3] = [("rtt", 0.002), ("goodput", 1e8), ("loss", 0.01)];
const SITE: usize = 10;
const HOSTS: usize = 400;
