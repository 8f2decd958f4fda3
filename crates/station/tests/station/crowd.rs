//! Many connections that say nothing, from many addresses: an honest page and an honest member are served meanwhile.
//!
//! The station is in one network namespace, attackers and honest callers in another: a caller on the station's own
//! host is never bounded by these limits.

mod seats;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use barograph_sim::{Link, Network, network_or_say};
use barograph_station::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use crate::engine::invite;
use crate::{quiet, serve};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Attack {
    /// Nobody attacks.
    None,
    /// Connections that say nothing.
    Idle,
    /// Connections that send a head byte by byte, and never its end.
    SlowHeads,
}

/// Of one caller.
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

/// A station of `connections_max`, attacked by `connections` from 41 addresses in four networks; what a page and a
/// member get meanwhile, each in `requests` requests on connections of their own.
fn attacked(
    attack: Attack,
    connections_max: usize,
    connections: usize,
    requests: usize,
    deadline: Duration,
) -> Option<[Served; 2]> {
    let network = network_or_say(Link::Veth { rate_bps: None }, "a crowd of connections")?;
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
            assert!(wanted <= open.load(Ordering::Relaxed), "the attackers are connected");
            let page = ask_often([198, 51, 100, 1].into(), address, page, requests, deadline);
            let member = ask_often([198, 51, 100, 2].into(), address, member, requests, deadline);
            let (page, member) = tokio::join!(page, member);
            [page, member]
        })
    });
    over.store(true, Ordering::Relaxed);
    attackers.join().unwrap();
    station.stop(crate::LIMIT);
    Some(served.unwrap())
}

/// 41 addresses in four networks for attackers, and two for honest callers.
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

/// Of the ranges for documentation and benchmarks (RFC 5737 §3, RFC 2544 §C.2.2).
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
    // A thread is in the namespace of the one that started it.
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

/// Holds a connection, and makes another one when it ends.
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

/// Asks again and again on new connections; what is not answered with 200 in time has failed.
async fn ask_often(
    source: IpAddr,
    address: SocketAddr,
    request: String,
    requests: usize,
    deadline: Duration,
) -> Served {
    let mut served = Served { times: Vec::new(), failures: 0 };
    for _ in 0..requests {
        let began = Instant::now();
        let answered = timeout(deadline, ask(source, address, &request)).await;
        if answered.is_ok_and(|answer| answer.is_ok_and(|answer| answer.starts_with(b"HTTP/1.1 200"))) {
            served.times.push(began.elapsed());
        } else {
            served.failures += 1;
        }
        sleep(Duration::from_millis(20)).await;
    }
    served
}

async fn ask(source: IpAddr, address: SocketAddr, request: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = connect(source, address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer)
}

#[test]
fn a_crowd_that_says_nothing_keeps_neither_pages_nor_members_out() {
    for attack in [Attack::Idle, Attack::SlowHeads] {
        let Some(served) = attacked(attack, 64, 200, 10, crate::LIMIT) else { return };
        for (caller, served) in ["page", "member"].into_iter().zip(served) {
            // One of a crowd may be closed in its stead; without room for it every request fails.
            assert!(served.failures <= 2, "{attack:?}: the {caller} was kept out");
        }
    }
}

/// `cargo test … --test station -- --ignored --nocapture table_of_attacks`
#[test]
#[ignore = "prints what depends on the computer"]
fn table_of_attacks() {
    println!("| attack | connections | caller | failed | p50, ms | p99, ms |\n|---|---:|---|---:|---:|---:|");
    let attacks = [(Attack::None, 0), (Attack::Idle, 1000), (Attack::SlowHeads, 1000), (Attack::Idle, 8000)];
    for (attack, connections) in attacks {
        let Some(served) = attacked(attack, 256, connections, 100, Duration::from_secs(2)) else { return };
        for (caller, served) in ["page", "member"].into_iter().zip(served) {
            let (p50, p99) = (served.quantile_ms(0.5), served.quantile_ms(0.99));
            println!(
                "| {attack:?} | {connections} | {caller} | {} of 100 | {p50:.1} | {p99:.1} |",
                served.failures
            );
        }
    }
}
