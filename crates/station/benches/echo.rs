//! CPU time that 200 pages cost a station, and the effect of the pages on each other's round-trip
//! times.
//!
//! `cargo bench -p barograph-station --bench echo [-- CLIENTS SECONDS]`. The station is a process
//! of its own (this program again), so that its CPU time is separate from the clients'. Every
//! second, each client makes an exchange and a transfer of 64 KiB. Half of the clients transfer
//! data to the station, and the other half receive data from the station. All clients connect from
//! one address, and the station charges this address for their bytes. One more client makes an
//! exchange every 20 ms, first alone, then together with the other clients.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use barograph_probe::Direction;
use barograph_probe::wire::{Reply, Request};
use barograph_station::{Config, EchoConfig, Station, open_archive};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if words.first().is_some_and(|word| word == STATION) {
        return station();
    }
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    let (clients, seconds) = (number(0).unwrap_or(200), number(1).unwrap_or(20));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg(STATION)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    load(line.trim().parse().unwrap(), &child, clients, seconds);
    // The station process ends when its standard input ends.
    drop(child.stdin.take());
    child.wait().unwrap();
}

fn load(address: SocketAddr, child: &Child, clients: u64, seconds: u64) {
    let mut page = Page::open(address);
    page.exchanges(Duration::from_secs(1));
    let alone = median(page.exchanges(Duration::from_secs(5)));
    let crowded = beside_bulk(address, &mut page);
    let idle_s = cpu_s(child.id());
    let failed = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let threads: Vec<_> = (0..clients)
        .map(|i| {
            let failed = Arc::clone(&failed);
            let due = began + Duration::from_secs(1).mul_f64(i as f64 / clients as f64);
            let work = move || Page::open(address).measure(due, i % 2 == 0, seconds, &failed);
            std::thread::Builder::new().stack_size(256 * 1024).spawn(work).unwrap()
        })
        .collect();
    let beside = median(page.exchanges(Duration::from_secs(seconds)));
    let share = (cpu_s(child.id()) - idle_s) / began.elapsed().as_secs_f64();
    for thread in threads {
        thread.join().unwrap();
    }
    let inflation_us = beside - alone;
    println!("{clients} clients for {seconds} s: {:.1} % of one core", 100.0 * share);
    println!("median rtt alone {alone:.0} µs, beside them {beside:.0} µs: {inflation_us:+.0} µs");
    println!("median rtt beside one that moves 16 MiB after 16 MiB: {crowded:.0} µs");
    println!("declined or late by more than a second: {}", failed.load(Ordering::Relaxed));
}

/// Median round-trip time (µs) while another session transfers without a pause, alternately to and
/// from the station.
fn beside_bulk(address: SocketAddr, page: &mut Page) -> f64 {
    let until = Instant::now() + Duration::from_secs(5);
    let bulk = std::thread::spawn(move || {
        let mut bulk = Page::open(address);
        let mut moved = 0;
        while Instant::now() < until {
            assert!(bulk.transfer(true, BULK_BYTES) && bulk.transfer(false, BULK_BYTES));
            moved += 2 * BULK_BYTES;
        }
        moved
    });
    let times = page.exchanges(until.saturating_duration_since(Instant::now()));
    let moved = bulk.join().unwrap();
    println!("one session alone moves {:.1} Gbit/s", moved as f64 * 8.0 / 5.0 / 1e9);
    median(times)
}

/// Runs the station until its input ends.
fn station() {
    let state = tempfile::tempdir().unwrap();
    let config = Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        state: state.path().to_path_buf(),
        default_targets: false,
        // With this setting, each client counts as a caller on a different host, and the station
        // charges its bytes.
        loopback_needs_token: true,
        echo: EchoConfig {
            sessions_max: 2048,
            bytes_per_hour: 1 << 40,
            peer_bytes_per_hour: 1 << 40,
            ..EchoConfig::default()
        },
        ..Config::default()
    };
    let archive = open_archive(&config).unwrap();
    let station = Station::start(config, Arc::new(archive)).unwrap();
    println!("{}", station.address());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    station.stop(Duration::from_secs(5));
}

struct Page(WebSocket<TcpStream>);

impl Page {
    fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut request = format!("ws://{address}/v1/echo").into_client_request().unwrap();
        let protocol = HeaderValue::from_static("barograph-probe.1");
        request.headers_mut().insert("sec-websocket-protocol", protocol);
        Self(client(request, stream).unwrap().0)
    }

    /// Makes an exchange and a transfer every second, from `due` on.
    fn measure(mut self, mut due: Instant, is_up: bool, seconds: u64, failed: &AtomicU64) {
        for _ in 0..seconds {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            due += Duration::from_secs(1);
            let is_served = self.exchange_s().is_some() && self.transfer(is_up, BYTES);
            if !is_served || due < Instant::now() {
                failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Makes one exchange every 20 ms for the duration `time`; returns the round-trip times in
    /// seconds.
    fn exchanges(&mut self, time: Duration) -> Vec<f64> {
        let began = Instant::now();
        let mut times = Vec::new();
        while began.elapsed() < time {
            times.extend(self.exchange_s());
            std::thread::sleep(Duration::from_millis(20));
        }
        times
    }

    fn exchange_s(&mut self) -> Option<f64> {
        self.ask(Request::Rtt { n: 1 }).then(|| {
            let began = Instant::now();
            self.send(&[1, 2]);
            self.take();
            began.elapsed().as_secs_f64()
        })
    }

    fn transfer(&mut self, is_up: bool, bytes: usize) -> bool {
        let direction = if is_up { Direction::Up } else { Direction::Down };
        if !self.ask(Request::Goodput { direction, bytes: bytes as u64 }) {
            return false;
        }
        if !is_up {
            self.send(&[0, 0]);
        }
        let mut moved = 0;
        while moved < bytes {
            if is_up {
                self.send(&[0x5A; BYTES]);
                moved += BYTES;
            } else {
                moved += self.take().len();
            }
        }
        // Read the result of the transfer.
        self.take();
        true
    }

    fn ask(&mut self, request: Request) -> bool {
        self.send(&request.encode());
        Reply::decode(&self.take()).unwrap() == Reply::Ready { nonce: 0 }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.send(Message::binary(bytes.to_vec())).unwrap();
    }

    fn take(&mut self) -> Vec<u8> {
        loop {
            if let Message::Binary(bytes) = self.0.read().unwrap() {
                return bytes.to_vec();
            }
        }
    }
}

/// Median in microseconds of times in seconds.
fn median(mut times_s: Vec<f64>) -> f64 {
    times_s.sort_by(f64::total_cmp);
    times_s[times_s.len() / 2] * 1e6
}

/// CPU time of a process, user and kernel (proc(5), `/proc/pid/stat`).
fn cpu_s(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The command name may contain spaces and parentheses, so read the fields after the last
    // parenthesis.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    ticks as f64 / TICKS_PER_S
}

/// Command-line argument that makes this program run the station.
const STATION: &str = "station";
/// Number of bytes of each client's transfer, which is one message.
const BYTES: usize = 64 * 1024;
/// Number of bytes of the largest possible transfer.
const BULK_BYTES: usize = 16 << 20;
/// Number of clock ticks per second in the times that Linux reports to programs (`USER_HZ`).
const TICKS_PER_S: f64 = 100.0;
