//! Cost of a timeout: per message, per link, and per call of a tower service.
//!
//! `cargo bench -p barograph-timeout --features tower --bench cost` prints three tables. Each time
//! is the smallest wall-clock time of many short runs, because other work on the machine can only
//! make a run longer. The times exclude building the series.
//!
//! Calls go to a service that does nothing, so the measured time is the cost of the layers. One
//! service responds at once. The other service first yields to the runtime, like a service that
//! waits for a peer. So each layer registers its timer.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use barograph_forecast::{Battery, BatteryConfig, Preset, Rule};
use barograph_timeout::tower::{AdaptiveTimeoutLayer, BoxError, Targets, TargetsConfig};
use barograph_timeout::{
    Adaptive, AttemptOutcome, FixedTimeout, MessageAttempts, Nws, Rfc6298, TimeoutEstimator,
};
use tower::hedge::{Hedge, Policy};
use tower::timeout::Timeout as Fixed;
use tower::{Layer, Service, ServiceExt};

/// Number of messages or calls in a run: enough that the start does not matter, and few enough that
/// some runs are not interrupted.
const MESSAGES: usize = 20_000;
const RUNS: usize = 40;
/// Index of the median among the sorted costs of all messages. Fewer than half of the messages make
/// an estimator compute a new timeout, so the median excludes this cost.
const HALF: usize = MESSAGES / 2;
/// Number of links. The state of all links together is far larger than any cache.
const LINKS: usize = 10_000;
const MANY_RUNS: usize = 10;
const ROUNDS: u32 = 10;

fn main() {
    println!("{:<28} {:>11} {:>13} {:>12}", "per message", "median ns", "amortised ns", "bytes a link");
    for (sizes, bytes) in [("one size", one_size as fn(Duration) -> u64), ("many sizes", many_sizes)] {
        let name = |estimator| format!("{estimator}, {sizes}");
        estimator(
            &name("static"),
            bytes,
            || FixedTimeout(Duration::from_secs(1)),
            |_| size_of::<FixedTimeout>(),
        );
        estimator(&name("rfc6298"), bytes, Rfc6298::default, |_| size_of::<Rfc6298>());
        estimator(&name("nws"), bytes, || Nws::new(2.0), |_| nws_bytes());
        estimator(&name("adaptive"), bytes, Adaptive::default, Adaptive::size_bytes);
    }
    calls();
    links();
}

/// Prints one row: the time that an estimator takes to decide and record, for each message of a
/// link.
fn estimator<T: TimeoutEstimator>(name: &str, bytes: Bytes, new: impl Fn() -> T, size: impl Fn(&T) -> usize) {
    let times = series();
    let mut link = new();
    feed(&mut link, &times, bytes);
    let held = size(&link);
    let clock = best(RUNS, clock_ns);
    let amortised = best(RUNS, || {
        let start = Instant::now();
        feed(&mut link, &times, bytes);
        start.elapsed().as_nanos() as f64 / MESSAGES as f64
    });
    let median = best(RUNS, || median_ns(&mut link, &times, bytes)) - clock;
    println!("{name:<28} {median:>11.0} {amortised:>13.0} {held:>12}");
}

/// Memory of [`Nws`] with its two-level battery, in bytes.
fn nws_bytes() -> usize {
    let battery =
        Battery::new(&BatteryConfig { preset: Preset::Nws, rule: Rule::TwoLevel, levels: Vec::new() });
    size_of::<Nws>() - size_of::<Battery>() + battery.size_bytes()
}

type Bytes = fn(Duration) -> u64;

fn one_size(_: Duration) -> u64 {
    1024
}

/// Returns one of 65 536 sizes. The size does not depend on the magnitude of the time.
fn many_sizes(took: Duration) -> u64 {
    u64::from(took.subsec_nanos() & 0xFFFF)
}

fn feed<T: TimeoutEstimator>(link: &mut T, times: &[Duration], bytes: Bytes) {
    for took in times {
        message(link, *took, bytes);
    }
}

/// One message of a link: an attempt that takes too long is cut off, and the retry takes half the
/// time that this attempt would have taken.
fn message<T: TimeoutEstimator>(link: &mut T, took: Duration, bytes: Bytes) {
    let mut message = MessageAttempts::new(bytes(took), 3);
    let attempt = message.attempt(Duration::ZERO);
    let timeout = link.decide(black_box(&attempt)).timeout;
    if took <= timeout {
        link.record(&attempt, AttemptOutcome::Completed(took));
        return;
    }
    link.record(&attempt, AttemptOutcome::TimedOut(timeout));
    message.advance();
    link.record(&message.attempt(timeout), AttemptOutcome::Completed(took / 2));
}

/// Median of the costs of all messages, ns. The median excludes the cost of computing a new
/// timeout.
fn median_ns<T: TimeoutEstimator>(link: &mut T, times: &[Duration], bytes: Bytes) -> f64 {
    let mut costs: Vec<_> = times
        .iter()
        .map(|took| {
            let start = Instant::now();
            message(link, *took, bytes);
            start.elapsed().as_nanos()
        })
        .collect();
    *costs.select_nth_unstable(HALF).1 as f64
}

/// Time to read the clock for one message, ns. Each message is timed by itself, so each measured
/// time contains this cost.
fn clock_ns() -> f64 {
    let mut costs: Vec<_> = (0..MESSAGES).map(|_| Instant::now().elapsed().as_nanos()).collect();
    *costs.select_nth_unstable(HALF).1 as f64
}

/// Prints the cost of layers on a service that responds at once, and on a service that yields
/// first.
fn calls() {
    println!("\n{:<28} {:>8} {:>14}", "per call, one target", "ns", "over tower's");
    rows("at once", &Echo { yields: false });
    rows("yields", &Echo { yields: true });
}

fn rows(kind: &str, echo: &Echo) {
    let layer = || AdaptiveTimeoutLayer::new(|key: &u32| *key);
    let retry = layer().retry(3, |_| true, |key| Some(*key));
    let hedge = layer().hedge(|_| true, |key| Some(*key));
    let again = Hedge::new(echo.clone(), Always, 10, 0.95, Duration::from_secs(60));
    runtime().block_on(async {
        let bare = call_ns(echo.clone()).await;
        let fixed = call_ns(Fixed::new(echo.clone(), Duration::from_secs(1))).await;
        for (name, ns) in [
            ("no layer", bare),
            ("tower::timeout", fixed),
            ("adaptive", call_ns(layer().layer(echo.clone())).await),
            ("adaptive, retry", call_ns(retry.layer(echo.clone())).await),
            ("adaptive, hedge", call_ns(hedge.layer(echo.clone())).await),
            ("tower::hedge", call_ns(again).await),
        ] {
            println!("{:<28} {ns:>8.0} {:>+14.0}", format!("{name}, {kind}"), ns - fixed);
        }
    });
}

async fn call_ns<S>(mut service: S) -> f64
where
    S: Service<u32>,
    S::Error: Into<BoxError>,
{
    let mut least = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        for _ in 0..MESSAGES {
            if let Err(error) = call(&mut service, 7).await {
                panic!("the service answers at once: {}", error.into());
            }
        }
        least = least.min(start.elapsed().as_nanos() as f64 / MESSAGES as f64);
    }
    least
}

async fn call<S: Service<u32>>(service: &mut S, key: u32) -> Result<S::Response, S::Error> {
    service.ready().await?.call(black_box(key)).await
}

/// Prints the rate of calls to many targets in turn: by one thread, by two threads that share the
/// targets, and by two threads that share nothing. The last rate shows how much faster two threads
/// are on this machine.
fn links() {
    println!("\n{:<28} {:>8} {:>9}", format!("{LINKS} targets"), "M calls/s", "ratio");
    let [one, shared, apart] = [(1, true), (2, true), (2, false)]
        .map(|(threads, shared)| best(MANY_RUNS, || ns_per_call(threads, shared)));
    for (name, ns) in
        [("1 thread", one), ("2 threads, same targets", shared), ("2 threads, own targets", apart)]
    {
        println!("{name:<28} {:>9.2} {:>9.2}", 1e3 / ns, one / ns);
    }
}

/// Time from one call to the next, of all threads together.
fn ns_per_call(threads: u32, shared: bool) -> f64 {
    let targets = || Targets::new(TargetsConfig { max_targets: LINKS, ..TargetsConfig::default() });
    let common = targets();
    let of_thread: Vec<_> = (0..threads).map(|_| if shared { common.clone() } else { targets() }).collect();
    of_thread.iter().for_each(|targets| round(targets, 0, 1));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for (thread, targets) in of_thread.iter().enumerate() {
            scope.spawn(move || round(targets, (thread * LINKS) as u32 / threads, ROUNDS));
        }
    });
    start.elapsed().as_nanos() as f64 / f64::from(threads * ROUNDS * LINKS as u32)
}

fn round(targets: &Targets<u32>, from: u32, rounds: u32) {
    let mut client = AdaptiveTimeoutLayer::sharing(targets, |key: &u32| *key).layer(Echo { yields: false });
    runtime().block_on(async {
        for n in 0..rounds * LINKS as u32 {
            let answer = call(&mut client, (n + from) % LINKS as u32).await;
            assert!(answer.is_ok(), "the service answers at once");
        }
    });
}

/// A service that is always ready. It responds at the first poll, or at the second poll if the
/// service yields.
#[derive(Clone)]
struct Echo {
    yields: bool,
}

struct Answer {
    yields: bool,
    request: u32,
}

impl Future for Answer {
    type Output = io::Result<u32>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if std::mem::take(&mut self.yields) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(self.request))
    }
}

impl Service<u32> for Echo {
    type Response = u32;
    type Error = io::Error;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u32) -> Self::Future {
        Answer { yields: self.yields, request }
    }
}

/// Policy: every request may be hedged.
#[derive(Clone)]
struct Always;

impl Policy<u32> for Always {
    fn clone_request(&self, request: &u32) -> Option<u32> {
        Some(*request)
    }

    fn can_retry(&self, _: &u32) -> bool {
        true
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a timer needs no permission")
}

fn best(runs: usize, mut run: impl FnMut() -> f64) -> f64 {
    (0..runs).map(|_| run()).fold(f64::INFINITY, f64::min)
}

/// Response times like those of a WAN: a level that shifts, noise, and a heavy tail. The seed is
/// fixed, so every run has the same times.
fn series() -> Vec<Duration> {
    let mut rng = barograph_sim::SeededRng::new(42, 0);
    // The result is above 0, because it is used as a divisor.
    let mut uniform = move || 1.0 - rng.uniform();
    let mut level = 0.02;
    (0..MESSAGES)
        .map(|_| {
            if uniform() < 0.005 {
                level = 0.01 + 0.04 * uniform();
            }
            let tail = if uniform() < 0.02 { 0.005 / uniform() } else { 0.0 };
            Duration::from_secs_f64(level * (0.9 + 0.2 * uniform()) + tail)
        })
        .collect()
}
