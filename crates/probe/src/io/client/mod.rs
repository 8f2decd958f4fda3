//! The end that measures: detects what the target is, makes the experiments, returns their readings.

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

/// What is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A station that answers probes.
    Station,
    /// Something that listens.
    Plain,
}

/// Makes the experiments of [`plan`]; where there is none, the one reading is the failed one.
#[must_use]
pub fn probe(target: &Target, goodput_bytes: u64, context: &Context) -> Vec<Reading> {
    match plan(target, goodput_bytes, context) {
        Ok(plan) => run(target, &plan, context),
        Err(reading) => vec![*reading],
    }
}

/// Detects what `target` is, and gives the experiments that it answers: [`Plan::station`] with
/// `goodput_bytes` (and `rtt_tls` for `https`), [`Plan::web`] for a URL, [`Plan::address`] for `host:port`.
/// A target that refuses the connection gets the plan of a server: `connect` has the time of the refusal.
///
/// # Errors
/// When it cannot be reached, or is a station that refuses: a failed reading, of `connect` or of `rtt`.
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

/// Finds out whether `target` is a station, by asking it for an Upgrade.
///
/// What takes the connection but does not answer HTTP within 3 s (or half the deadline, if that is
/// less) is none.
///
/// # Errors
/// [`ProbeError`] when it cannot be reached at all, and when a station refuses (a token is
/// missing, or it has no slot): then it is a station, and other experiments would mislead.
pub fn detect(target: &Target, context: &Context) -> Result<Peer, ProbeError> {
    let clock = Clock::start(context.deadline, &context.cancel);
    match connect::ask(DETECT.min(context.deadline / 2), target, context, &clock) {
        Ok(Answer::Upgraded(..) | Answer::Token(..)) => Ok(Peer::Station),
        Ok(Answer::Refused(status, _)) => Err(connect::refused(status, &clock)),
        Ok(Answer::Plain(_)) => Ok(Peer::Plain),
        Err(error) if error.stopped => Err(error),
        // The target took the connection and its answer was not understood, or it never took it:
        // a second handshake, in the time that is left, shows which.
        Err(ProbeError {
            failure: Failure::Garbage | Failure::Reset | Failure::TimedOut | Failure::Untrusted,
            ..
        }) => connect::dial(target, &clock).map(|_| Peer::Plain),
        Err(error) => Err(error),
    }
}

/// A station answers an Upgrade in a round trip or two (four with TLS); waiting longer for a silent
/// listener would show nothing.
const DETECT: Duration = Duration::from_secs(3);

/// Makes every experiment of `plan` with `target`, one after the other, each on a connection of
/// its own; blocks for at most the deadline times the number of experiments.
///
/// Gives one reading for each of [`Experiment::quantities`], in order, whatever fails.
#[must_use]
pub fn run(target: &Target, plan: &Plan, context: &Context) -> Vec<Reading> {
    plan.experiments.iter().flat_map(|experiment| run_one(target, *experiment, context)).collect()
}

/// Makes one experiment, as [`run`] does.
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
