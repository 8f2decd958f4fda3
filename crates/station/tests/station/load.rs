//! Costly requests: callers that do not read their responses, and callers that repeat requests.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use barograph_engine::{Engine as _, Record};
use barograph_forecast::{Name, Outcome, Quantity, SeriesId};
use barograph_station::{Config, open_archive};
use serde_json::{Value, json};

use crate::engine::{ask, invite, register};
use crate::http::{get, get_until, post};
use crate::{LIMIT, Running, quiet, serve, start_over};

/// Number of records of one series. Each record has details of 4 KB, so all records take 8 MB.
const RECORDS: u64 = 2000;
const HISTORY: &str = "/v1/history?source=here&target=there&quantity=rtt&limit=10000";

/// A station with [`RECORDS`] in its archive.
fn with_long_history(config: Config) -> Running {
    let archive = open_archive(&config).unwrap();
    let name = |text: &str| Name::new(text).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i64;
    let records: Vec<Record> = (1..=RECORDS)
        .map(|seq| Record {
            origin: name("here"),
            seq,
            series: SeriesId {
                source: name("here"),
                target: name("there"),
                quantity: Quantity::new("rtt").unwrap(),
            },
            time_unix_ns: now - 3_600_000_000_000 + seq as i64,
            outcome: Outcome::Value(0.1),
            detail: json!({ "x": "x".repeat(4000) }).to_string(),
        })
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(archive.append(&records)).unwrap();
    start_over(config, Arc::new(archive))
}

#[test]
fn a_history_page_is_bounded_in_bytes_and_continues_at_its_cursor() {
    let state = tempfile::tempdir().unwrap();
    let station = with_long_history(quiet(state.path()));
    let (mut path, mut times, mut pages) = (HISTORY.to_string(), Vec::new(), 0);
    loop {
        let page = get(station.address(), &path);
        assert!(page.body.len() < 5 << 20, "a page of {} bytes", page.body.len());
        let page = page.json();
        let records = page["records"].as_array().unwrap();
        times.extend(records.iter().map(|record| record["time_s"].as_f64().unwrap()));
        pages += 1;
        match page["next"].as_str() {
            Some(next) => path = format!("{HISTORY}&after={next}"),
            None => break,
        }
    }
    assert_eq!((times.len(), pages), (RECORDS as usize, 3));
    assert!(times.is_sorted_by(|newer, older| older <= newer));
    station.stop(LIMIT);
}

/// Sends a request on a connection with a small receive buffer, and reads only the status code of
/// the response.
fn unread(address: SocketAddr, path: &str) -> (u16, TcpStream) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&address.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).unwrap();
    let status = std::str::from_utf8(&start[9..]).unwrap().parse().unwrap();
    (status, stream)
}

#[test]
fn unread_responses_stay_within_their_memory_budget() {
    let state = tempfile::tempdir().unwrap();
    let station = with_long_history(quiet(state.path()));
    let address = station.address();
    let held: Vec<(u16, TcpStream)> = (0..40).map(|_| unread(address, HISTORY)).collect();
    let served = held.iter().filter(|(status, _)| *status == 200).count();
    let refused = held.iter().filter(|(status, _)| *status == 503).count();
    // On a busy machine the station closes the first connections as slow readers before the last
    // requests have arrived.
    assert!(served >= 4 && refused > 0, "{served} answers of 4 MiB wait for their readers");
    assert_eq!(served + refused, held.len());
    let row = || {
        let health = get(address, "/healthz").json();
        let rows = health["limits"].as_array().unwrap();
        rows.iter().find(|row| row["limit"] == "unread_answer_bytes").unwrap().clone()
    };
    let full = row();
    let (now, max) = (full["now"].as_u64().unwrap(), full["max"].as_u64().unwrap());
    assert!(4_000_000 <= now && now <= max + (5 << 20), "{full}");
    assert_eq!(full["refused"], refused);
    let health = get(address, "/healthz");
    assert_eq!(health.status, 200, "callers can cause that: {}", health.body);
    assert!(
        health.json()["warnings"].to_string().contains("too many responses were in progress"),
        "{}",
        health.body
    );
    // Small responses are still sent. A request for a large response is refused, and the refusal
    // contains the time before a retry.
    assert_eq!(get(address, "/v1/station").status, 200);
    let (_, refused) = held.iter().find(|(status, _)| *status == 503).unwrap();
    let head: Vec<String> = BufReader::new(refused)
        .lines()
        .map(|line| line.unwrap().to_ascii_lowercase())
        .take_while(|line| !line.is_empty())
        .collect();
    assert!(head.iter().any(|line| line.starts_with("retry-after: ")), "{head:?}");
    drop(held);
    get_until(address, "/healthz", |_| row()["now"] == 0);
    assert_eq!(get(address, HISTORY).status, 200);
    station.stop(LIMIT);
}

/// Number of series of the station in the test below.
const SERIES: usize = 2000;
/// Number of anonymous callers. Each caller repeatedly opens a connection, sends a request, and
/// closes the connection before the body of the response.
const STRANGERS: usize = 100;

/// Opens one connection after the other. On each connection, requests all metrics and reads at most
/// the head of the response.
fn ask_for_all(address: SocketAddr, method: &str, over: &AtomicBool, answers: &AtomicUsize) {
    while !over.load(Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect_timeout(&address, LIMIT) else { continue };
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let _ = write!(stream, "{method} /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n");
        let mut status = String::new();
        let _ = BufReader::new(&stream).read_line(&mut status);
        if status.starts_with("HTTP/1.1 200") {
            answers.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn fill(address: SocketAddr) {
    for half in 0..2 {
        let records: Vec<Value> = (0..SERIES / 2)
            .map(|i| json!({ "target": format!("t{half}-{i}"), "quantity": "rtt", "value": 0.1 }))
            .collect();
        for _ in 0..2 {
            let answer = post(address, "/v1/measurements", &json!({ "records": records }).to_string());
            assert_eq!(answer.status, 201, "{}", answer.body);
        }
    }
}

#[test]
fn a_member_is_served_while_strangers_ask_for_all_metrics() {
    let state = tempfile::tempdir().unwrap();
    let station = serve(Config { series_max: SERIES + 100, ..quiet(state.path()) });
    let address = station.address();
    fill(address);
    let token = invite(address, Some("b"));
    assert_eq!(register(address, &token, "b").status, 200);
    let began = Instant::now();
    assert!(SERIES * 100 < get(address, "/metrics").body.len());
    let alone = began.elapsed();
    let (over, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for i in 0..STRANGERS {
            let method = if i % 2 == 0 { "GET" } else { "HEAD" };
            let (over, answers) = (&over, &answers);
            scope.spawn(move || ask_for_all(address, method, over, answers));
        }
        let began = Instant::now();
        while answers.load(Ordering::Relaxed) < STRANGERS && began.elapsed() < LIMIT {
            std::thread::park_timeout(Duration::from_millis(10));
        }
        let mut times: Vec<Duration> = (0..9)
            .map(|_| {
                let began = Instant::now();
                assert_eq!(ask(address, &token, "GET", "next_seq?origin=b", "").status, 200);
                assert_eq!(register(address, &token, "b").status, 200);
                assert_eq!(get(address, "/healthz").status, 200);
                began.elapsed()
            })
            .collect();
        over.store(true, Ordering::Relaxed);
        times.sort_unstable();
        // The test would fail if the thread that serves all callers made a new text for each
        // request. Three requests would then wait for the texts of a hundred anonymous callers, and
        // take three hundred times as long.
        assert!(times[4] < 30 * alone, "{:?}, one text takes {alone:?}", times[4]);
    });
    assert!(answers.into_inner() >= STRANGERS);
    assert_eq!(get(address, "/healthz").json()["reasons"], json!([]));
}
