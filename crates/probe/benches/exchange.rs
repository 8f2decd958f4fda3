//! Compares our exchanges with a bare blocking ping-pong, and our goodput with iperf3. The two
//! programs of each comparison run alternately on loopback: `cargo bench -p barograph-probe
//! --features io`.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark may panic and reads the clock"
)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use barograph_probe::io::{Listener, ProbeContext, ResponderLimits, run_one};
use barograph_probe::reduce::median;
use barograph_probe::{Direction, Experiment, MeasuredValue, Target};

/// Number of exchanges in one run of a program. The runs of the two programs alternate, so that
/// both programs run under the same conditions.
const EXCHANGES: u32 = 2_000;
const TURNS: u32 = 40;
/// Number of bytes in one transfer. A transfer takes about one second on loopback.
const BYTES: u64 = 2 << 30;
const TRANSFERS: u32 = 9;

fn main() {
    let limits =
        ResponderLimits { transfer_bytes_max: BYTES, session_bytes_max: BYTES, ..ResponderLimits::default() };
    let listener = Listener::start("127.0.0.1:0".parse().unwrap(), limits).unwrap();
    let target = Target::parse(&listener.address().to_string()).unwrap();
    exchanges(&target);
    nagle(&target);
    for direction in [Direction::Up, Direction::Down] {
        goodput(&target, direction);
    }
}

fn exchanges(target: &Target) {
    let (mut ours_s, mut bare_s) = (Vec::new(), Vec::new());
    let mut bare = BarePingPong::start();
    for _ in 0..TURNS {
        ours_s.push(ours(target, Experiment::Rtt { n: EXCHANGES }).value);
        bare_s.push(median(&bare.exchange(EXCHANGES)).unwrap());
    }
    // On a host with few processors, the scheduler sometimes runs both ends on one processor, and
    // an exchange then consists mainly of switches between the two ends. So the output shows the
    // quartiles and the median.
    let show = |name: &str, medians: &[f64]| {
        let mut sorted: Vec<f64> = medians.iter().map(|s| s * 1e6).collect();
        sorted.sort_by(f64::total_cmp);
        let at = |share: usize| sorted[(sorted.len() - 1) * share / 4];
        println!("rtt {name}: median {:.2} us (quartiles {:.2} and {:.2})", at(2), at(1), at(3));
        at(2)
    };
    let ratio = show("ours", &ours_s) / show("bare", &bare_s);
    println!("rtt ratio {ratio:.3}, {TURNS} turns of {EXCHANGES} exchanges each");
}

fn nagle(target: &Target) {
    let stalled = ours(target, Experiment::RttNagle { n: 20 });
    println!("rtt_nagle: median {:.1} ms of {} exchanges", stalled.value * 1e3, stalled.n);
}

fn goodput(target: &Target, direction: Direction) {
    let (mut ours_rate, mut iperf_rate) = (Vec::new(), Vec::new());
    let mut limited_by = None;
    for _ in 0..TRANSFERS {
        let measured = ours(target, Experiment::Goodput { direction, bytes: BYTES });
        limited_by = measured.tcp_info.and_then(|info| info.limited_by);
        ours_rate.push(measured.value);
        iperf_rate.extend(iperf3(direction));
    }
    let ours = median(&ours_rate).unwrap() / 1e9;
    match median(&iperf_rate) {
        Some(iperf) => println!(
            "goodput {direction:?}: ours {ours:.2} Gbit/s, iperf3 {:.2} Gbit/s, ratio {:.3} ({limited_by:?})",
            iperf / 1e9,
            ours * 1e9 / iperf,
        ),
        None => println!("goodput {direction:?}: ours {ours:.2} Gbit/s (SKIPPED: no iperf3 here)"),
    }
}

fn ours(target: &Target, experiment: Experiment) -> MeasuredValue {
    let context = ProbeContext { deadline: Duration::from_secs(120), ..ProbeContext::default() };
    run_one(target, experiment, &context).remove(0).result.unwrap()
}

/// Exchanges two bytes between two threads over one connection. This is the minimum work of an
/// exchange, because no thread and no connection is created.
struct BarePingPong(TcpStream);

impl BarePingPong {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.set_nodelay(true).unwrap();
            let mut bytes = [0; 2];
            while stream.read_exact(&mut bytes).is_ok() {
                stream.write_all(&bytes).unwrap();
            }
        });
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    fn exchange(&mut self, n: u32) -> Vec<f64> {
        let mut bytes = [0; 2];
        let one = |_| {
            let began = Instant::now();
            self.0.write_all(&bytes).unwrap();
            self.0.read_exact(&mut bytes).unwrap();
            began.elapsed().as_secs_f64()
        };
        (0..n).map(one).collect()
    }
}

/// Rate at iperf3's receiver in bit/s; `None` if iperf3 is not installed.
fn iperf3(direction: Direction) -> Option<f64> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut server = Server(
        Command::new("iperf3")
            .args(["-s", "-1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .spawn()
            .ok()?,
    );
    wait_for(&mut server.0, port);
    let mut client = Command::new("iperf3");
    client.args(["-c", "127.0.0.1", "-J", "-p", &port.to_string(), "-n", &BYTES.to_string()]);
    if direction == Direction::Down {
        client.arg("-R");
    }
    let output = client.output().ok()?;
    let report = String::from_utf8(output.stdout).ok()?;
    let sum = report.split("\"sum_received\"").nth(1)?;
    sum.split("\"bits_per_second\":").nth(1)?.split([',', '}']).next()?.trim().parse().ok()
}

/// Waits until the kernel's table shows that the server listens. Do not test the port with a
/// connection, because the server accepts only one test.
fn wait_for(server: &mut Child, port: u16) {
    let listening = format!(":{port:04X} ");
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(5) && server.try_wait().unwrap().is_none() {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"]
            .map(|table| std::fs::read_to_string(table).unwrap_or_default());
        if tables
            .iter()
            .flat_map(|table| table.lines())
            .any(|line| line.contains(&listening) && line.contains(" 0A "))
        {
            return;
        }
        thread::yield_now();
    }
}

/// A server process. Dropping the value kills the process.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
