//! Compares the emulated link with its description, over real sockets. Without root, each test
//! prints that the test is skipped.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used)]

use barograph_sim::{
    Host, InvalidRun, Jitter, Link, LinkChange, LinkDirection, LinkSpec, Network, PacketFate, PacketLoss,
    Queue, RelayOptions, network_or_report, network_or_skip, report_missing, report_skipped,
};
use std::{
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

const MS: Duration = Duration::from_millis(1);

/// Time limit of a step: longer than any successful step takes.
const LIMIT: Duration = Duration::from_secs(10);

/// Maximum number of runs of a test. A busy machine may spoil single runs. If no run is good, the
/// test fails, or is skipped if the emulator was the bottleneck in every run.
const RUNS: usize = 6;

/// Tests that measure times or rates run one after the other.
static SERIAL: Mutex<()> = Mutex::new(());

fn udp(host: &Host, address: IpAddr) -> UdpSocket {
    let socket = host.run(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

/// Opens a UDP socket in each host, the first connected to the second.
fn udp_pair(network: &Network) -> (UdpSocket, UdpSocket) {
    let (a, b) = (udp(&network.a, network.a.v4().into()), udp(&network.b, network.b.v4().into()));
    a.connect(b.local_addr().unwrap()).unwrap();
    (a, b)
}

fn delayed(delay: Duration) -> LinkSpec {
    LinkSpec { delay, ..LinkSpec::default() }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Runs `attempt` on new networks, one test at a time, until a run is good. On a busy machine a run
/// may be void or slow. After a slow run, `attempt` returns an error. `attempt` panics on an error
/// that a busy machine cannot cause.
fn in_a_quiet_run(link: impl Fn() -> Link, attempt: impl Fn(&Network) -> Result<(), String>) {
    let _guard = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    let test = thread::current().name().unwrap_or(file!()).to_owned();
    let mut all_void = true;
    for _ in 0..RUNS {
        let Some(network) = network_or_report(link(), &test) else { return };
        let outcome = attempt(&network);
        let void = network.report().and_then(|report| report.invalid_reason());
        match (outcome, void) {
            (Ok(()), None) => return,
            (outcome, void) => {
                all_void &= void.is_some();
                eprintln!("again: {outcome:?}, {void:?}");
            }
        }
    }
    // If the emulator was the bottleneck in every run, the runs are no evidence.
    assert!(all_void, "none of {RUNS} runs was good");
    report_skipped(&format!("{test}: this machine was too busy to emulate the link in {RUNS} runs"));
}

/// Time that a round trip may take beyond the path: half a millisecond, plus four times the present
/// lateness of a timer on this machine. The relay waits for a timer in each direction and wakes two
/// programs.
fn overhead() -> Duration {
    let (_sender, receiver) = std::sync::mpsc::channel::<()>();
    let late = (0..21).map(|_| {
        let start = Instant::now();
        let _ = receiver.recv_timeout(5 * MS);
        start.elapsed().saturating_sub(5 * MS)
    });
    MS / 2 + 4 * median(late.collect())
}

fn expect(holds: bool, else_say: String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(else_say) }
}

/// Round-trip times of `count` datagrams that the other host echoes, one at a time.
fn udp_round_trips(network: &Network, v6: bool, count: usize) -> Vec<Duration> {
    let address = |host: &Host| if v6 { host.v6().into() } else { IpAddr::from(host.v4()) };
    let (client, server) = (udp(&network.a, address(&network.a)), udp(&network.b, address(&network.b)));
    client.connect(server.local_addr().unwrap()).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut buffer = [0; 64];
            for _ in 0..count {
                let (length, from) = server.recv_from(&mut buffer).unwrap();
                server.send_to(&buffer[..length], from).unwrap();
            }
        });
        let mut buffer = [0; 64];
        (0..count)
            .map(|_| {
                let sent = Instant::now();
                client.send(b"echo").unwrap();
                client.recv(&mut buffer).unwrap();
                sent.elapsed()
            })
            .collect()
    })
}

fn tcp_round_trips(network: &Network, count: usize) -> Vec<Duration> {
    let server = network.b.run(|| TcpListener::bind((network.b.v4(), 0))).unwrap().unwrap();
    let to: SocketAddr = server.local_addr().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            let mut byte = [0];
            while stream.read(&mut byte).unwrap() == 1 {
                stream.write_all(&byte).unwrap();
            }
        });
        let connect = || TcpStream::connect_timeout(&to, LIMIT);
        let mut stream = network.a.run(connect).unwrap().unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut exchange = || {
            let sent = Instant::now();
            stream.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).unwrap();
            sent.elapsed()
        };
        (0..count).map(|_| exchange()).collect()
    })
}

#[test]
fn a_round_trip_takes_twice_the_delay() {
    type Measure = fn(&Network) -> Vec<Duration>;
    let ways: [(&str, Measure); 3] = [
        ("UDP over IPv4", |network| udp_round_trips(network, false, 50)),
        ("UDP over IPv6", |network| udp_round_trips(network, true, 50)),
        ("TCP", |network| tcp_round_trips(network, 50)),
    ];
    for (name, measure) in ways {
        in_a_quiet_run(
            || Link::symmetric(delayed(10 * MS)),
            |network| {
                let median = median(measure(network));
                assert!(median >= 20 * MS, "{name}: {median:?} is less than the path takes");
                expect(median < 20 * MS + overhead(), format!("{name}: median {median:?}"))
            },
        );
    }
}

/// Receives until the relay has accounted for all `sent` packets from A to B and all forwarded
/// packets have arrived, so that the function never waits for lost packets. `received` counts from
/// the network's start, as the relay does.
fn receive_all(network: &Network, b: &UdpSocket, sent: u64, received: &mut u64, mut each: impl FnMut(&[u8])) {
    b.set_read_timeout(Some(10 * MS)).unwrap();
    let (started, mut buffer) = (Instant::now(), [0; 2000]);
    loop {
        match b.recv(&mut buffer) {
            Ok(length) => {
                *received += 1;
                each(&buffer[..length]);
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let report = network.report().unwrap();
                let counts = report.forward;
                if counts.forwarded == *received && counts.forwarded + counts.lost + counts.queue_full == sent
                {
                    return;
                }
                assert!(started.elapsed() < LIMIT, "received {received} of {sent}\n{report}");
            }
            Err(e) => panic!("{e}"),
        }
    }
}

/// Sends `count` numbered datagrams and returns, for each datagram, whether it arrived at host B.
fn arrivals(network: &Network, count: u32) -> Vec<bool> {
    let (a, b) = udp_pair(network);
    let (mut arrived, mut received) = (vec![false; count as usize], 0);
    // Send in batches that fit into the receiver's buffer.
    for lot in (0..count).step_by(LOT) {
        let end = (lot + LOT as u32).min(count);
        for number in lot..end {
            a.send(&number.to_be_bytes()).unwrap();
        }
        receive_all(network, &b, end.into(), &mut received, |bytes| {
            arrived[u32::from_be_bytes(bytes.try_into().unwrap()) as usize] = true;
        });
    }
    arrived
}

/// Batch size; a default socket buffer holds about 270 datagrams.
const LOT: usize = 100;

#[test]
fn the_seed_decides_which_packets_are_lost() {
    let count = 2000;
    let p = 0.05;
    let spec = LinkSpec { loss: PacketLoss::Independent(p), seed: 11, ..delayed(2 * MS) };
    let run = |spec: &LinkSpec| -> Option<Vec<bool>> {
        let network = network_or_report(Link::symmetric(spec.clone()), "loss")?;
        let arrived = arrivals(&network, count);
        let report = network.report().unwrap();
        let lost = arrived.iter().filter(|&&arrived| !arrived).count() as u64;
        assert_eq!(report.forward.lost, lost, "{report}");
        assert_eq!(report.forward.forwarded, u64::from(count) - lost, "{report}");
        Some(arrived)
    };
    let Some(first) = run(&spec) else { return };
    // The model alone predicts the fate of each packet.
    let mut model = LinkDirection::new(spec.clone()).unwrap();
    let foretold: Vec<bool> = (0..count).map(|n| model.send(MS * n, 32) != PacketFate::Lost).collect();
    assert!(first == foretold, "the link and the model disagree");
    assert!(run(&spec).unwrap() == first, "a second run differs");
    let other = LinkSpec { seed: 12, ..spec };
    assert!(run(&other).unwrap() != first, "another seed changes nothing");
    // The tolerance is four standard deviations of the binomial distribution.
    let lost = first.iter().filter(|&&arrived| !arrived).count() as f64;
    let n = f64::from(count);
    assert!((lost - n * p).abs() < 4.0 * (n * p * (1.0 - p)).sqrt(), "{lost} of {n} lost");
}

#[test]
fn replayed_jitter_follows_its_values() {
    let delays: Vec<Duration> = [1, 9, 4, 25, 2, 16].map(|ms| MS * ms).into();
    let link = || {
        let forward = LinkSpec { jitter: Jitter::Replay(delays.clone()), ..delayed(5 * MS) };
        Link::Relay { forward, back: delayed(5 * MS), options: RelayOptions::default() }
    };
    in_a_quiet_run(link, |network| {
        let times = udp_round_trips(network, false, 5 * delays.len());
        for (n, &delay) in delays.iter().enumerate() {
            let expected = 10 * MS + delay;
            let of_value: Vec<Duration> = times.iter().skip(n).step_by(delays.len()).copied().collect();
            assert!(of_value.iter().all(|&time| time >= expected), "value {n}: {of_value:?}");
            let time = median(of_value);
            expect(time < expected + MS + overhead(), format!("value {n}: {time:?}, not {expected:?}"))?;
        }
        Ok(())
    });
}

#[test]
fn a_full_queue_drops_packets_and_the_rate_is_kept() {
    let link = || {
        let queue = Queue::Bytes(30_000);
        Link::symmetric(LinkSpec { rate_bps: Some(10_000_000), queue, ..delayed(MS) })
    };
    in_a_quiet_run(link, |network| {
        let (a, b) = udp_pair(network);
        // 100 packets of 1250 bytes at once: 24 packets fit into the queue, and some more packets
        // are accepted, because packets leave while others arrive.
        let sent = 100;
        for _ in 0..sent {
            a.send(&[0; 1250 - 28]).unwrap();
        }
        let mut times = Vec::new();
        receive_all(network, &b, sent, &mut 0, |_| times.push(Instant::now()));
        let report = network.report().unwrap();
        assert_eq!(report.forward.forwarded, times.len() as u64, "{report}");
        assert_eq!(report.forward.queue_full, sent - times.len() as u64, "{report}");
        assert!(times.len() >= 24, "{} came through; {report}", times.len());
        expect(times.len() < 60, format!("{} came through", times.len()))?;
        // One packet takes a millisecond on the wire.
        let took = *times.last().unwrap() - times[0];
        let ideal = MS * (times.len() as u32 - 1);
        expect(took > ideal * 9 / 10 && took < ideal * 11 / 10 + MS, format!("{took:?} for {ideal:?}"))
    });
}

/// Runs iperf3 from A to B and returns the received bit/s. Without iperf3, reports that iperf3 is
/// missing and returns `None`.
fn iperf3_bps(network: &Network) -> Option<f64> {
    if Command::new("iperf3").arg("--version").output().is_err() {
        report_missing("iperf3 is not installed");
        return None;
    }
    // Each namespace has its own ports. `timeout` limits both ends.
    let inside = |host: &Host| {
        let mut command = host.command("timeout");
        command.args(["20", "iperf3"]);
        command
    };
    let mut server =
        inside(&network.b).args(["-s", "-1", "--forceflush"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("Server listening")));
    let to = network.b.v4().to_string();
    let output = inside(&network.a).args(["-c", &to, "-t", "3", "-O", "1", "-J"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    // `"sum_received": { … "bits_per_second": 4.8e7, …`
    let (_, sum) = text.split_once("\"sum_received\"").unwrap_or_else(|| panic!("{text}"));
    let (_, rate) = sum.split_once("\"bits_per_second\":").unwrap();
    Some(rate.split([',', '\n']).next().unwrap().trim().parse().unwrap())
}

#[test]
fn iperf3_reaches_the_rate_and_does_not_exceed_it() {
    let rate = 50_000_000;
    let link =
        || Link::symmetric(LinkSpec { rate_bps: Some(rate), queue: Queue::Bdp(1.0), ..delayed(10 * MS) });
    in_a_quiet_run(link, |network| {
        let Some(measured) = iperf3_bps(network) else { return Ok(()) };
        let share = measured / rate as f64;
        assert!(share <= 1.0, "{share} of the rate");
        expect(share >= 0.9, format!("{share} of the rate"))
    });
}

/// Time until host B has received so many bytes over a new connection, and host A knows it.
fn upload(network: &Network, bytes: usize) -> Duration {
    let server = network.b.run(|| TcpListener::bind((network.b.v4(), 0))).unwrap().unwrap();
    let to: SocketAddr = server.local_addr().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            assert_eq!(received, vec![7; bytes]);
            stream.write_all(b"x").unwrap();
        });
        let began = Instant::now();
        let mut stream = network.a.run(|| TcpStream::connect_timeout(&to, LIMIT)).unwrap().unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(&vec![7; bytes]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        began.elapsed()
    })
}

#[test]
fn segments_pass_the_relay_whole_and_the_rate_can_change() {
    let link = || {
        let spec = LinkSpec { rate_bps: Some(80_000_000), queue: Queue::Bytes(400_000), ..delayed(MS) };
        Link::symmetric_with(spec, RelayOptions { offload: true, ..RelayOptions::default() })
    };
    in_a_quiet_run(link, |network| {
        // 1 MB takes 0.1 s, and a second at a tenth of the rate.
        let fast = upload(network, 1_000_000);
        let packets = network.report().unwrap().forward.forwarded;
        let tenth = LinkChange { rate_bps: 8_000_000, delay: MS };
        network.change(tenth, tenth).unwrap();
        let slow = upload(network, 1_000_000);
        assert!(slow >= 990 * MS, "{slow:?} is less than the path takes");
        let stopped = LinkChange { rate_bps: 0, ..tenth };
        assert!(network.change(stopped, tenth).is_err());
        expect(packets < 500, format!("{packets} packets, where 691 have a segment each"))?;
        expect(fast < 400 * MS && slow < 2000 * MS, format!("{fast:?} and {slow:?}"))
    });
}

#[test]
fn a_veth_carries_packets_with_and_without_a_rate() {
    let plain = || Link::Veth { rate_bps: None };
    in_a_quiet_run(plain, |network| {
        assert!(network.report().is_none());
        let median = median(udp_round_trips(network, true, 20));
        expect(median < MS + overhead(), format!("median {median:?}"))
    });
    let rate = 200_000_000;
    let shaped = || Link::Veth { rate_bps: Some(rate) };
    in_a_quiet_run(shaped, |network| {
        let Some(measured) = iperf3_bps(network) else { return Ok(()) };
        let share = measured / rate as f64;
        assert!(share <= 1.0, "{share} of the rate");
        expect(share >= 0.8, format!("{share} of the rate"))
    });
}

#[test]
fn two_networks_at_the_same_time_do_not_interfere() {
    let (near, far) = (delayed(2 * MS), delayed(20 * MS));
    let near = network_or_skip!(Link::symmetric(near));
    let far = network_or_skip!(Link::symmetric(far));
    let (near_times, far_times) = thread::scope(|scope| {
        let near = scope.spawn(|| udp_round_trips(&near, false, 20));
        let far = scope.spawn(|| udp_round_trips(&far, false, 20));
        (near.join().unwrap(), far.join().unwrap())
    });
    assert!((4 * MS..20 * MS).contains(&median(near_times)));
    assert!((40 * MS..60 * MS).contains(&median(far_times)));
}

fn namespaces() -> String {
    String::from_utf8(Command::new("ip").args(["netns", "list"]).output().unwrap().stdout).unwrap()
}

#[test]
fn a_dropped_network_removes_its_namespaces_and_processes() {
    let network = network_or_skip!(Link::symmetric(delayed(MS)));
    let names = [network.a.name().to_owned(), network.b.name().to_owned()];
    assert!(names.iter().all(|name| namespaces().contains(name)));
    // Start a program that runs until it is killed, and that keeps the namespace alive.
    let mut stays = network.b.command("cat").stdin(Stdio::piped()).spawn().unwrap();
    drop(network);
    assert!(!names.iter().any(|name| namespaces().contains(name)), "{}", namespaces());
    assert!(!stays.wait().unwrap().success(), "killed, while its input was still open");

    // The namespaces must also be removed after a panic in a test.
    let panicked = thread::spawn(|| {
        let network = Network::new(Link::symmetric(delayed(MS))).unwrap();
        let name = network.a.name().to_owned();
        std::panic::panic_any(name);
    });
    let name = *panicked.join().unwrap_err().downcast::<String>().unwrap();
    assert!(!namespaces().contains(&name), "{}", namespaces());
    // The host's own namespace never contained the device.
    assert!(!std::fs::read_to_string("/proc/net/dev").unwrap().contains("link0"));
}

#[test]
fn a_deleted_device_makes_the_run_invalid() {
    let network = network_or_skip!(Link::symmetric(delayed(MS)));
    let deleted = network.a.command("ip").args(["link", "del", "link0"]).status().unwrap();
    assert!(deleted.success());
    let started = Instant::now();
    while network.report().unwrap().invalid_reason() != Some(InvalidRun::Ended) {
        assert!(started.elapsed() < LIMIT, "{}", network.report().unwrap());
        thread::yield_now();
    }
    assert_eq!(network.report().unwrap().forward.read_errors, 1);
}

#[test]
fn namespaces_of_a_killed_process_are_removed() {
    let first = network_or_skip!(Link::symmetric(delayed(MS)));
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let left = format!("barograph-{}-0a", gone.id());
    assert!(Command::new("ip").args(["netns", "add", &left]).status().unwrap().success());
    drop(Network::new(Link::Veth { rate_bps: None }).unwrap());
    assert!(!namespaces().contains(&left), "{}", namespaces());
    assert!(namespaces().contains(first.a.name()), "a network in use was removed");
}

#[test]
fn closures_and_commands_run_inside_a_host_and_panics_propagate() {
    let network = network_or_skip!(Link::symmetric(delayed(MS)));
    let devices =
        |host: &Host| host.run(|| std::fs::read_to_string("/proc/thread-self/net/dev")).unwrap().unwrap();
    assert!(devices(&network.a).contains("link0"));
    let shown = network.b.command("ip").args(["-br", "addr"]).output().unwrap();
    assert!(String::from_utf8(shown.stdout).unwrap().contains("192.0.2.2/24"));
    let caught = std::panic::catch_unwind(|| network.a.run(|| panic!("inside")));
    assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "inside");
}
