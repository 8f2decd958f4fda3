//! The measuring end: detects what the target is, runs experiments and returns their readings.

mod connect;
mod context;
mod datagrams;
mod exchange;
mod iperf3;
mod paced;
mod stream;
mod transfer;
mod trust;
mod web;

use std::time::Duration;

use barograph_forecast::{Failure, Quantity};

use self::connect::Answer;
use crate::io::clock::Clock;
use crate::reading::Measured;
use crate::target::Scheme;
use crate::{Experiment, Plan, ProbeError, Reading, Target};

pub use context::{Context, Progress, ProgressFn, Sign};
pub use iperf3::beside;
pub use paced::{Paced, paced};
pub use stream::{stream, stream_counted};
pub use trust::trusting;

/// Kind of the target, as detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A station that answers probes.
    Station,
    /// A TCP server that is not a station.
    Plain,
}

/// Detects the target's plan with [`plan`] and runs it. If there is no plan, returns the one failed
/// reading.
#[must_use]
pub fn probe(target: &Target, goodput_bytes: u64, context: &Context) -> Vec<Reading> {
    match plan(target, goodput_bytes, context) {
        Ok(plan) => run(target, &plan, context),
        Err(reading) => vec![*reading],
    }
}

/// Detects what `target` is and returns the experiments that it can answer: [`Plan::station`] with
/// `goodput_bytes` (and `rtt_tls` for `https`), [`Plan::web`] for a URL, or [`Plan::address`] for
/// `host:port`. A target that refuses the connection gets the plan of a server: the value of
/// `connect` is then the time of the refusal.
///
/// # Errors
/// If the target cannot be reached, or is a station that refuses: a failed reading of `connect` or
/// of `rtt`.
pub fn plan(target: &Target, goodput_bytes: u64, context: &Context) -> Result<Plan, Box<Reading>> {
    match detect(target, context) {
        Ok(Peer::Station) => {
            let mut plan = Plan::station(goodput_bytes);
            if target.scheme() == Scheme::Https {
                plan.experiments.insert(1, Experiment::RttTls { n: Plan::RTT_EXCHANGES });
            }
            Ok(plan)
        }
        Ok(Peer::Plain) => Ok(Plan::server(target.scheme())),
        Err(error) if error.failure == Failure::Refused => Ok(Plan::server(target.scheme())),
        Err(error) => {
            let quantity = match error.failure {
                Failure::Declined => Quantity::RTT,
                _ => Quantity::CONNECT,
            };
            Err(Box::new(Reading { quantity, result: Err(error) }))
        }
    }
}

/// Detects whether `target` is a station, by requesting an Upgrade.
///
/// A server that accepts the connection but does not answer with HTTP within 3 s (or half the
/// deadline, if less) is not a station.
///
/// # Errors
/// [`ProbeError`] if the target cannot be reached, and if a station refuses (a token is missing, or
/// no slot is free): other experiments would then give misleading results.
pub fn detect(target: &Target, context: &Context) -> Result<Peer, ProbeError> {
    let clock = Clock::start(context.deadline, &context.cancel);
    match connect::ask(DETECT.min(context.deadline / 2), target, context, &clock) {
        Ok(Answer::Upgraded(..) | Answer::Token(..)) => Ok(Peer::Station),
        Ok(Answer::Refused(status, _)) => Err(connect::refused(status, &clock)),
        Ok(Answer::Plain(_)) => Ok(Peer::Plain),
        Err(error) if error.stopped => Err(error),
        // The target accepted the connection but gave no valid answer, or it never accepted it. A
        // second handshake in the remaining time distinguishes the two cases.
        Err(ProbeError {
            failure: Failure::Garbage | Failure::Reset | Failure::TimedOut | Failure::Untrusted,
            ..
        }) => connect::dial(target, &clock).map(|_| Peer::Plain),
        Err(error) => Err(error),
    }
}

/// Maximum wait for the answer to an Upgrade. A station answers within one or two round trips (four
/// with TLS), so a longer wait for a silent listener has no use.
const DETECT: Duration = Duration::from_secs(3);

/// Runs all experiments of `plan` with `target`, one after the other, each on its own connection.
/// Blocks for at most the deadline times the number of experiments.
///
/// Returns one reading for each of [`Experiment::quantities`], in order, even after failures.
#[must_use]
pub fn run(target: &Target, plan: &Plan, context: &Context) -> Vec<Reading> {
    plan.experiments.iter().flat_map(|experiment| run_one(target, *experiment, context)).collect()
}

/// Runs one experiment, as [`run`] does.
#[must_use]
pub fn run_one(target: &Target, experiment: Experiment, context: &Context) -> Vec<Reading> {
    let clock = Clock::start(context.deadline, &context.cancel);
    let results = measure(target, experiment, context, &clock);
    let quantities = experiment.quantities().iter().cloned();
    quantities.zip(results).map(|(quantity, result)| Reading { quantity, result }).collect()
}

/// Results in the order of the experiment's quantities.
fn measure(
    target: &Target,
    experiment: Experiment,
    context: &Context,
    clock: &Clock,
) -> Vec<Result<Measured, ProbeError>> {
    match experiment {
        Experiment::Rtt { n } => vec![exchange::rtt(target, n, context, clock)],
        Experiment::RttTls { n } => vec![exchange::rtt_tls(target, n, context, clock)],
        Experiment::RttNagle { n } => vec![exchange::rtt_nagle(target, n, context, clock)],
        Experiment::Goodput { direction, bytes } => {
            vec![transfer::goodput(target, direction, bytes, context, clock)]
        }
        Experiment::Loss { n } => datagrams::loss(target, n, context, clock).into(),
        Experiment::Connect { n } => vec![web::handshakes(target, n, clock)],
        Experiment::ResponseTime => web::response_time(target, context, clock).into(),
    }
}
