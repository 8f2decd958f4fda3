//! Many idle connections from many addresses: a well-behaved page and member are still served.
//!
//! The station is in one network namespace and all callers are in a different one, because these
//! limits do not apply to callers on the station's own host.

mod slots;

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use barograph_probe::wire;
use barograph_sim::{Link, Network, network_or_report};
use barograph_station::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use crate::engine::invite;
use crate::{quiet, serve};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Attack {
    /// No attack; the results are for comparison.
    None,
    /// Connections on which no request is sent.
    Idle,
    /// Connections on which a request head is sent byte by byte. The head never ends.
    SlowHeads,
}

impl Attack {
    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Idle => "idle",
            Self::SlowHeads => "slow heads",
        }
    }
}

/// Results of one caller: times of the successful requests, and number of failed requests.
#[derive(Debug)]
struct Served {
    times: Vec<Duration>,
    failures: usize,
}

impl Served {
    fn quantile_ms(&self, quantile: f64) -> f64 {
        let mut times = self.times.clone();
        times.sort_unstable();
        let at = ((times.len() as f64 * quantile) as usize).min(times.len().saturating_sub(1));
        times.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }
}

/// Well-behaved callers, in the order of the results of [`attacked`].
const CALLERS: [&str; 3] = ["page", "member", "member's probe"];

/// Attacks a station with the limit `connections_max`. The attackers open `connections` connections
/// from 41 addresses in four networks. Returns the results of the [`CALLERS`]. Each caller sends
/// `requests` requests, each request on a new connection.
fn attacked(
    attack: Attack,
    connections_max: usize,
    connections: usize,
    requests: usize,
    deadline: Duration,
) -> Option<[Served; CALLERS.len()]> {
    let network = network_or_report(Link::Veth { rate_bps: None }, "a crowd of connections")?;
    add_addresses(&network);
    let state = tempfile::tempdir().unwrap();
    let config = Config {
        listen: "0.0.0.0:0".parse().unwrap(),
        allowed_hosts: vec!["station".into()],
        connections_max,
        ..quiet(state.path())
    };
    let (station, token) = network
        .b
        .run(|| {
            let station = serve(config);
            let token = invite(([127, 0, 0, 1], station.address().port()).into(), Some("member"));
            (station, token)
        })
        .unwrap();
    let own_token = std::fs::read_to_string(state.path().join("token")).unwrap();
    let address = SocketAddr::from((barograph_sim::B_V4, station.address().port()));
    let (over, open) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let attackers = {
        let (over, open) = (Arc::clone(&over), Arc::clone(&open));
        let host = &network.a;
        std::thread::scope(|scope| {
            let attacker =
                scope.spawn(|| host.run(|| begin_attack(attack, address, connections, over, open)));
            attacker.join().unwrap().unwrap()
        })
    };
    let served = network.a.run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let wanted = if attack == Attack::None { 0 } else { connections.min(connections_max) / 2 };
            let began = Instant::now();
            while open.load(Ordering::Relaxed) < wanted && began.elapsed() < Duration::from_secs(10) {
                sleep(Duration::from_millis(10)).await;
            }
            let page = "GET /v1/series HTTP/1.1\r\nHost: station\r\nConnection: close\r\n\r\n".to_string();
            let member = format!(
                "GET /v1/engine/next_seq?origin=member HTTP/1.1\r\nHost: station\r\nAuthorization: Bearer {token}\r\n\
                 Connection: close\r\n\r\n"
            );
            let probe = format!(
                "GET {} HTTP/1.1\r\nHost: station\r\nAuthorization: Bearer {}\r\nConnection: Upgrade\r\n\
                 Upgrade: {}\r\n\r\n",
                wire::PATH,
                own_token.trim(),
                wire::UPGRADE
            );
            assert!(wanted <= open.load(Ordering::Relaxed), "the attackers are connected");
            let (of_page, of_member) = ([198, 51, 100, 1].into(), [198, 51, 100, 2].into());
            let page = often(requests, deadline, || ask(of_page, address, &page));
            let member = often(requests, deadline, || ask(of_member, address, &member));
            let probe = often(requests, deadline, || exchange(of_member, address, &probe));
            tokio::join!(page, member, probe).into()
        })
    });
    over.store(true, Ordering::Relaxed);
    attackers.join().unwrap();
    station.stop(crate::LIMIT);
    Some(served.unwrap())
}

/// Adds 41 addresses in four networks for attackers, and two addresses for well-behaved callers.
fn add_addresses(network: &Network) {
    let add = |address: Ipv4Addr| {
        let added =
            Command::new("ip").args(["address", "add", &format!("{address}/32"), "dev", "lo"]).status();
        assert!(added.unwrap().success());
    };
    network
        .a
        .run(|| attackers().chain([[198, 51, 100, 1].into(), [198, 51, 100, 2].into()]).for_each(add))
        .unwrap();
    let via = barograph_sim::A_V4.to_string();
    network
        .b
        .run(|| {
            for net in ["203.0.113.0/24", "198.51.100.0/24", "198.18.0.0/15"] {
                let added = Command::new("ip").args(["route", "add", net, "via", &via]).status();
                assert!(added.unwrap().success());
            }
        })
        .unwrap();
}

/// Addresses of the ranges for documentation and benchmarks (RFC 5737 §3, RFC 2544 §C.2.2).
fn attackers() -> impl Iterator<Item = Ipv4Addr> {
    (0..41_u8).map(|i| match i % 4 {
        0 => Ipv4Addr::new(203, 0, 113, i + 1),
        network => Ipv4Addr::new(198, 18, network, i + 1),
    })
}

fn begin_attack(
    attack: Attack,
    address: SocketAddr,
    connections: usize,
    over: Arc<AtomicBool>,
    open: Arc<AtomicUsize>,
) -> std::thread::JoinHandle<()> {
    // A thread inherits the namespace of its parent.
    std::thread::spawn(move || {
        if attack == Attack::None {
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let sources: Vec<Ipv4Addr> = attackers().collect();
            for i in 0..connections {
                let source = sources[i % sources.len()];
                tokio::spawn(hold(attack, source.into(), address, Arc::clone(&open)));
            }
            while !over.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(20)).await;
            }
        });
    })
}

/// Keeps a connection open. When the connection ends, opens a new connection.
async fn hold(attack: Attack, source: IpAddr, address: SocketAddr, open: Arc<AtomicUsize>) {
    loop {
        if let Ok(Ok(mut stream)) = timeout(Duration::from_secs(5), connect(source, address)).await {
            open.fetch_add(1, Ordering::Relaxed);
            let mut buffer = [0; 1024];
            let mut head = b"GET /".iter().chain(std::iter::repeat(&b'x'));
            loop {
                let ended = timeout(Duration::from_millis(500), stream.read(&mut buffer)).await;
                let is_over = match ended {
                    Ok(Ok(0) | Err(_)) => true,
                    Ok(Ok(_)) => false,
                    Err(_) if attack == Attack::SlowHeads => {
                        let byte = *head.next().expect("the head has no end");
                        stream.write_all(&[byte]).await.is_err()
                    }
                    Err(_) => false,
                };
                if is_over {
                    break;
                }
            }
            open.fetch_sub(1, Ordering::Relaxed);
        }
        sleep(Duration::from_millis(50)).await;
    }
}

async fn connect(source: IpAddr, address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((source, 0).into())?;
    socket.connect(address).await
}

/// Sends a request several times. Each request without a successful response within `deadline`
/// counts as failed.
async fn often<F: Future<Output = std::io::Result<()>>>(
    requests: usize,
    deadline: Duration,
    ask: impl Fn() -> F,
) -> Served {
    let mut served = Served { times: Vec::new(), failures: 0 };
    for _ in 0..requests {
        let began = Instant::now();
        match timeout(deadline, ask()).await {
            Ok(Ok(())) => served.times.push(began.elapsed()),
            _ => served.failures += 1,
        }
        sleep(Duration::from_millis(20)).await;
    }
    served
}

/// Sends a request on a connection of its own.
async fn ask(source: IpAddr, address: SocketAddr, request: &str) -> std::io::Result<()> {
    let mut stream = connect(source, address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    if answer.starts_with(b"HTTP/1.1 200") { Ok(()) } else { Err(ErrorKind::ConnectionRefused.into()) }
}

/// Opens a connection with a probe session, and makes one exchange.
async fn exchange(source: IpAddr, address: SocketAddr, upgrade: &str) -> std::io::Result<()> {
    let mut stream = connect(source, address).await?;
    stream.write_all(upgrade.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    if !head.starts_with(b"HTTP/1.1 101") {
        return Err(ErrorKind::ConnectionRefused.into());
    }
    stream.write_all(&wire::Request::Rtt { n: 1 }.encode()).await?;
    let mut reply = [0; wire::REPLY_BYTES];
    stream.read_exact(&mut reply).await?;
    if !matches!(wire::Reply::decode(&reply), Ok(wire::Reply::Ready { .. })) {
        return Err(ErrorKind::ConnectionRefused.into());
    }
    let mut echo = [0; wire::EXCHANGE_BYTES];
    stream.write_all(&echo).await?;
    stream.read_exact(&mut echo).await?;
    Ok(())
}

/// Number of requests of each caller in the test. One of these requests may fail.
const REQUESTS: usize = 50;
/// Time limit of a request during an attack, as a multiple of the median time without an attack.
/// [`DEADLINE_S`] bounds the limit: a lost packet (sent again after 1 s) and a busy computer must
/// not fail the test.
const SLOWER_MAX: f64 = 200.0;
const DEADLINE_S: std::ops::RangeInclusive<f64> = 3.0..=10.0;

#[test]
fn many_silent_connections_do_not_lock_out_pages_or_members() {
    let Some(unloaded) = attacked(Attack::None, 64, 0, REQUESTS, crate::LIMIT) else { return };
    let usual_ms = unloaded.iter().map(|served| served.quantile_ms(0.5)).fold(0.0, f64::max);
    let deadline_s = (usual_ms / 1e3 * SLOWER_MAX).clamp(*DEADLINE_S.start(), *DEADLINE_S.end());
    let deadline = Duration::from_secs_f64(deadline_s);
    for attack in [Attack::Idle, Attack::SlowHeads] {
        let Some(served) = attacked(attack, 64, 200, REQUESTS, deadline) else { return };
        for (caller, served) in CALLERS.into_iter().zip(served) {
            let failures = served.failures;
            assert!(
                failures <= 1,
                "{attack:?}: {failures} of {REQUESTS} of the {caller} failed in {deadline:?}"
            );
        }
    }
}

/// Number of file descriptors for 10 000 connections if the callers and the station are in one
/// process.
const DESCRIPTORS: u64 = 12_000;

/// Writes `lab/results/crowds.md`, which contains the command to run this test.
#[test]
#[ignore = "writes what depends on the computer"]
fn table_of_attacks() {
    // The station raises this process's limit to the hard limit.
    let (_, most) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    assert!(most >= DESCRIPTORS, "needs {DESCRIPTORS} file descriptors (ulimit -Hn), and may have {most}");
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/results/crowds.md");
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    let load = load.split(' ').next().unwrap();
    let mut rows = String::new();
    let attacks =
        [(Attack::None, 0), (Attack::Idle, 1000), (Attack::SlowHeads, 1000), (Attack::Idle, 10_000)];
    for (attack, connections) in attacks {
        let Some(served) = attacked(attack, 256, connections, 100, Duration::from_secs(2)) else { return };
        for (caller, served) in CALLERS.into_iter().zip(served) {
            let times = |quantile| match served.times.len() {
                0 => "–".to_string(),
                _ => format!("{:.0}", served.quantile_ms(quantile)),
            };
            let (failed, p50, p99) = (served.failures, times(0.5), times(0.99));
            let row = format!("| {} | {connections} | {caller} | {failed} | {p50} | {p99} |", attack.name());
            println!("{row}");
            rows.extend([row.as_str(), "\n"]);
        }
        // Write after each run, so that an aborted experiment keeps its results.
        std::fs::write(&path, page(&rows, load)).unwrap();
    }
}

fn page(rows: &str, load: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let cores = std::thread::available_parallelism().unwrap();
    format!(
        "# What a crowd of connections costs honest callers

Written by `cargo test -p barograph-station --all-features --test station -- --ignored table_of_attacks`:
version {version}, a debug build, {cores} processors, on which attackers, station and callers run
together. The load average of the machine was {load} before the run. It needs network namespaces and
{DESCRIPTORS} file descriptors (`ulimit -Hn`), and raises its own limit.

Attackers at 41 addresses in four networks hold so many connections to a station with
`connections_max = 256`, and make each one anew 50 ms after it was closed. Three honest callers ask 100
times each, on connections of their own: a page, a member with its invitation, and a probe from the
member's address (a session and one exchange). A request fails after 2 s. Times are of the requests
that did not fail.

| attack | connections | caller | failed of 100 | p50 (ms) | p99 (ms) |
|---|---:|---|---:|---:|---:|
{rows}
Before connections were shed (until commit 24c695c) no request of a page or a member was answered under
1000 idle connections, 1000 slow heads or 8000 idle connections; a probe was not measured.
"
    )
}
