//! The emulated paths, and repeating what the emulator spoilt.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use barograph_probe::io::{Context, Limits, paced, run_one};
use barograph_probe::{Experiment, Measured, Target};
use barograph_sim::{Link, LinkSpec, Loss, Network, Queue};
use indicatif::ProgressBar;

use super::row::Verdict;
use crate::emulation::{Responder, forget_connections, set_tcp, void};
use crate::machine;

/// A path between two hosts: the same both ways, but for the loss, which is on the way there.
#[derive(Clone)]
pub(crate) struct Path {
    pub(crate) name: String,
    rtt: Duration,
    rate_bps: Option<u64>,
    loss: f64,
    /// With what TCP sends, where it matters.
    congestion: Option<String>,
}

impl Path {
    /// A delay and nothing else.
    pub(crate) fn of_ms(rtt_ms: u64) -> Self {
        let rtt = Duration::from_millis(rtt_ms);
        Self { name: format!("{rtt_ms} ms"), rtt, rate_bps: None, loss: 0.0, congestion: None }
    }

    /// A delay and a rate, with a queue of one bandwidth–delay product; TCP sends with `congestion`, or with the
    /// kernel's default.
    pub(crate) fn shaped(rtt_ms: u64, rate_bps: u64, congestion: Option<&str>) -> Self {
        let congestion = congestion.map_or_else(machine::congestion, str::to_owned);
        let name = format!("{rtt_ms} ms, {} Mbit/s, {congestion}", rate_bps / 1_000_000);
        Self { name, rate_bps: Some(rate_bps), congestion: Some(congestion), ..Self::of_ms(rtt_ms) }
    }

    /// A delay and independent loss on the way there, so that a question is lost with this probability
    /// and an answer never.
    pub(crate) fn lossy(rtt_ms: u64, loss: f64) -> Self {
        let name = format!("{rtt_ms} ms, {:.0} % loss", loss * 100.0);
        Self { name, loss, ..Self::of_ms(rtt_ms) }
    }

    /// Its round-trip time in seconds.
    pub(crate) fn rtt_s(&self) -> f64 {
        self.rtt.as_secs_f64()
    }

    fn link(&self, seed: u64) -> Link {
        let queue = if self.rate_bps.is_some() { Queue::Bdp(1.0) } else { Queue::Unlimited };
        let spec =
            LinkSpec { delay: self.rtt / 2, rate_bps: self.rate_bps, queue, seed, ..LinkSpec::default() };
        let forward = LinkSpec { loss: Loss::Independent(self.loss), ..spec.clone() };
        Link::Relay { forward, back: spec, options: Default::default() }
    }
}

/// What all measurements share: the progress shown, and until when something may be repeated.
pub(crate) struct Bench {
    bar: ProgressBar,
    repeat_until: Instant,
}

/// Why there is no value.
pub(crate) struct Unanswered {
    pub(crate) verdict: Verdict,
    pub(crate) why: String,
}

impl Bench {
    pub(crate) fn new(bar: ProgressBar, repeats: Duration) -> Self {
        Self { bar, repeat_until: Instant::now() + repeats }
    }

    /// Shows what is done next.
    pub(crate) fn begin(&self, step: &str) {
        self.bar.set_message(step.to_owned());
    }

    /// Shows that it is done.
    pub(crate) fn done(&self) {
        self.bar.inc(1);
    }

    /// Whether there is time to repeat what was void.
    pub(crate) fn may_repeat(&self) -> bool {
        Instant::now() < self.repeat_until
    }

    /// Does `work` on a fresh network; again, at most [`ATTEMPTS`] times in all, when the emulator was the
    /// bottleneck. Gives the value and how many attempts were void before it.
    pub(crate) fn on<T>(
        &self,
        path: &Path,
        work: impl Fn(&Network) -> anyhow::Result<T>,
    ) -> Result<(T, u32), Unanswered> {
        let mut attempt = 0;
        loop {
            let spoilt = match once(path, attempt.into(), &work) {
                Ok(value) => return Ok((value, attempt)),
                Err(unanswered) if unanswered.verdict != Verdict::Void => return Err(unanswered),
                Err(spoilt) => spoilt,
            };
            attempt += 1;
            if ATTEMPTS <= attempt || !self.may_repeat() {
                return Err(spoilt);
            }
        }
    }
}

/// One attempt on a fresh network; a failure on a network that is void is no failure.
pub(crate) fn once<T>(
    path: &Path,
    seed: u64,
    work: &impl Fn(&Network) -> anyhow::Result<T>,
) -> Result<T, Unanswered> {
    let failed = |error: anyhow::Error| Unanswered { verdict: Verdict::Failed, why: format!("{error:#}") };
    let network = Network::new(path.link(seed)).map_err(|error| failed(error.into()))?;
    let prepare = || {
        forget_connections(&network)?;
        let hosts = [&network.a, &network.b];
        let congestion = path.congestion.iter();
        congestion
            .flat_map(|name| hosts.map(|host| (host, name)))
            .try_for_each(|(host, name)| set_tcp(host, "tcp_congestion_control", name))
    };
    prepare().map_err(failed)?;
    let result = work(&network);
    match void(&network) {
        Some(why) => Err(Unanswered { verdict: Verdict::Void, why }),
        None => result.map_err(failed),
    }
}

/// One in the far host.
pub(crate) fn responder(network: &Network) -> anyhow::Result<Responder> {
    Responder::start(&network.b, Limits::default())
}

/// What `experiment` gives from the near host, a value for each of its quantities.
pub(crate) fn measure(
    network: &Network,
    target: &Target,
    experiment: Experiment,
    rtt_forecast_s: Option<f64>,
) -> anyhow::Result<Vec<Measured>> {
    let context = Context { deadline: DEADLINE, rtt_forecast_s, ..Context::default() };
    let readings = network.a.run(|| run_one(target, experiment, &context))?;
    let name = |quantity| format!("{quantity:?} of {target}");
    readings.into_iter().map(|reading| reading.result.with_context(|| name(reading.quantity))).collect()
}

/// The latencies of `n` exchanges on a timer, as between stations; all must be answered.
pub(crate) fn latencies(network: &Network, target: &Target, n: u32) -> anyhow::Result<Vec<f64>> {
    let context = Context { deadline: DEADLINE, ..Context::default() };
    let paced = network.a.run(|| paced(target, n, Duration::from_millis(20), &context))?;
    Ok(paced.result?.samples)
}

/// Attempts at one measurement before it is void.
const ATTEMPTS: u32 = 4;

/// Far beyond what any experiment takes here.
const DEADLINE: Duration = Duration::from_secs(30);
