//! Experiments on emulated paths with known delay and loss. Without root, each test prints that the
//! test is skipped. `lab probe` is the long version, with numbers.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may panic, and its peer reads the clock"
)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use barograph_probe::io::{Listener, ProbeContext, ResponderLimits, run_one, train};
use barograph_probe::reduce::median;
use barograph_probe::{Experiment, MeasuredValue, Target};
use barograph_sim::{Link, LinkSpec, Network, PacketLoss, network_or_report, report_skipped};

/// One-way delay; a round trip takes twice as long.
const DELAY: Duration = Duration::from_millis(5);
const RTT_S: f64 = 0.010;

/// Maximum number of runs of a test. A busy machine may spoil single runs. If no run is good, the
/// test fails, or is skipped if the emulator was the bottleneck in every run.
const ATTEMPTS: usize = 6;

/// Time limit of a step: longer than any successful step takes.
const LIMIT: Duration = Duration::from_secs(15);

/// Tests that measure times run one after the other.
static SERIAL: Mutex<()> = Mutex::new(());

#[test]
fn measured_rtt_equals_that_of_a_plain_ping_pong() {
    const EXCHANGES: u32 = 11;
    in_a_quiet_run("rtt", PacketLoss::None, |network, target| {
        let mut bare = BarePingPong::start(network);
        let (mut ours_s, mut bare_s) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            ours_s.extend(only(measure(network, target, Experiment::Rtt { n: EXCHANGES })?).samples);
            bare_s.extend((0..EXCHANGES).map(|_| bare.exchange()));
        }
        let (ours, bare) = (median(&ours_s).unwrap(), median(&bare_s).unwrap());
        assert!(ours >= RTT_S, "{ours} s is less than the path takes");
        expect((ours / bare - 1.0).abs() <= 0.05, format!("rtt {ours} s, bare {bare} s"))
    });
}

#[test]
fn rtt_nagle_includes_the_delayed_acknowledgement() {
    in_a_quiet_run("rtt_nagle", PacketLoss::None, |network, target| {
        let rtt = only(measure(network, target, Experiment::Rtt { n: 5 })?).value;
        let nagle = only(measure(network, target, Experiment::RttNagle { n: 3 })?).value;
        // The second byte waits for the acknowledgement of the first byte. This wait is a round
        // trip plus the stall.
        let stall = nagle - 2.0 * rtt;
        expect((0.035..0.080).contains(&stall), format!("rtt_nagle {nagle} s, rtt {rtt} s"))
    });
}

#[test]
fn a_lossless_path_has_loss_0_and_the_rtt_of_the_path_over_udp() {
    in_a_quiet_run("rtt_udp", PacketLoss::None, |network, target| {
        let measured = measure(network, target, Experiment::Loss { n: 10 })?;
        let [loss, rtt] = &measured[..] else { panic!("{measured:?}") };
        assert_eq!(loss.value, 0.0);
        assert!(rtt.value >= RTT_S, "{} s is less than the path takes", rtt.value);
        expect(rtt.value < RTT_S * 1.1, format!("rtt_udp {} s", rtt.value))
    });
}

#[test]
fn a_handshake_takes_a_round_trip() {
    in_a_quiet_run("connect", PacketLoss::None, |network, target| {
        let connect = only(measure(network, target, Experiment::Connect { n: 5 })?).value;
        assert!(connect >= RTT_S, "{connect} s is less than the path takes");
        expect(connect < RTT_S * 1.1, format!("connect {connect} s"))
    });
}

#[test]
fn measured_loss_equals_the_loss_rate_of_the_path() {
    const DATAGRAMS: u32 = 100;
    // The share is low enough that the TCP session succeeds, and high enough that a run without any
    // loss cannot be chance.
    let (share, n) = (0.2, f64::from(DATAGRAMS));
    let deviation = (share * (1.0 - share) / n).sqrt();
    in_a_quiet_run("loss", PacketLoss::Independent(share), |network, target| {
        let measured = measure(network, target, Experiment::Loss { n: DATAGRAMS })?;
        let [loss, rtt] = &measured[..] else { panic!("{measured:?}") };
        assert_eq!(f64::from(rtt.n), (n * (1.0 - loss.value)).round(), "what is not lost has a round trip");
        // The tolerance is four standard deviations of the binomial distribution.
        expect((loss.value - share).abs() < 4.0 * deviation, format!("{} lost, not {share}", loss.value))
    });
}

#[test]
fn a_packet_train_shows_the_rate_of_the_slowest_link() {
    const RATE_BIT_S: u32 = 10_000_000;
    let forward = LinkSpec { rate_bps: Some(RATE_BIT_S.into()), ..LinkSpec::default() };
    in_a_quiet_run_over("train", forward, |network, target| {
        let context = ProbeContext { deadline: LIMIT, ..ProbeContext::default() };
        let rate = network.a.run(|| train(target, &context)).unwrap().map_err(|error| error.to_string())?;
        let rate = rate.ok_or("too few packets were answered")?;
        expect((rate / f64::from(RATE_BIT_S) - 1.0).abs() < 0.2, format!("train {rate} bit/s"))
    });
}

/// Runs [`in_a_quiet_run_over`] a link that only loses datagrams.
fn in_a_quiet_run(test: &str, loss: PacketLoss, attempt: impl Fn(&Network, &Target) -> Result<(), String>) {
    in_a_quiet_run_over(test, LinkSpec { loss, ..LinkSpec::default() }, attempt);
}

/// Runs `attempt` on new networks, with a responder in the far host, until a run is good. On a busy
/// machine a run may be void or slow. After a slow run, `attempt` returns an error. `attempt`
/// panics on an error that a busy machine cannot cause.
fn in_a_quiet_run_over(
    test: &str,
    forward: LinkSpec,
    attempt: impl Fn(&Network, &Target) -> Result<(), String>,
) {
    let _guard = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    let mut all_void = true;
    for seed in 0..ATTEMPTS as u64 {
        let back = LinkSpec { delay: DELAY, seed: !seed, ..LinkSpec::default() };
        // Only questions are lost, never answers, so that the measured share is the share of the
        // path.
        let forward = LinkSpec { delay: DELAY, seed, ..forward.clone() };
        let link = Link::Relay { forward, back, options: Default::default() };
        let Some(network) = network_or_report(link, test) else { return };
        let at = (network.b.v4(), 0).into();
        let listener = network.b.run(|| Listener::start(at, ResponderLimits::default())).unwrap().unwrap();
        let target = Target::parse(&listener.address().to_string()).unwrap();
        let outcome = attempt(&network, &target);
        match (outcome, network.report().and_then(|report| report.invalid_reason())) {
            (Ok(()), None) => return,
            (outcome, void) => {
                all_void &= void.is_some();
                eprintln!("again: {outcome:?}, {void:?}");
            }
        }
    }
    // If the emulator was the bottleneck in every run, the runs are no evidence.
    assert!(all_void, "none of {ATTEMPTS} runs was good");
    report_skipped(&format!("{test}: this machine was too busy to emulate the link in {ATTEMPTS} runs"));
}

fn expect(holds: bool, else_say: String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(else_say) }
}

/// Runs an experiment from the near host. On a lossy path, the experiment may exceed the time
/// limit.
fn measure(network: &Network, target: &Target, experiment: Experiment) -> Result<Vec<MeasuredValue>, String> {
    let context = ProbeContext { deadline: LIMIT, ..ProbeContext::default() };
    let readings = network.a.run(|| run_one(target, experiment, &context)).unwrap();
    readings.into_iter().map(|reading| reading.result.map_err(|error| error.to_string())).collect()
}

fn only(mut measured: Vec<MeasuredValue>) -> MeasuredValue {
    assert_eq!(measured.len(), 1, "{measured:?}");
    measured.remove(0)
}

/// Exchanges two bytes between two threads over one connection, with blocking calls.
struct BarePingPong(TcpStream);

impl BarePingPong {
    fn start(network: &Network) -> Self {
        let listener = network.b.run(|| TcpListener::bind((network.b.v4(), 0))).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        // The thread ends with the connection.
        thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            let mut bytes = [0; 2];
            while stream.read_exact(&mut bytes).is_ok() && stream.write_all(&bytes).is_ok() {}
        });
        let stream = network.a.run(|| TcpStream::connect_timeout(&address, LIMIT)).unwrap().unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Self(stream)
    }

    /// Time of one exchange in seconds.
    fn exchange(&mut self) -> f64 {
        let mut bytes = [0; 2];
        let began = Instant::now();
        self.0.write_all(&bytes).unwrap();
        self.0.read_exact(&mut bytes).unwrap();
        began.elapsed().as_secs_f64()
    }
}
