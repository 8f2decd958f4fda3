//! The measuring end: detects what the target is, runs experiments and returns their results.

mod connect;
mod context;
mod datagrams;
mod exchange;
mod iperf3;
mod paced;
mod stream;
mod train;
mod transfer;
mod trust;
mod web;

use std::time::Duration;

use barograph_forecast::{Failure, Quantity};

use self::connect::UpgradeResponse;
use crate::io::deadline::Deadline;
use crate::quantity_result::MeasuredValue;
use crate::target::Scheme;
use crate::{Experiment, Plan, ProbeError, QuantityResult, Target};

pub use context::{ChallengeSigner, ProbeContext, ProbeProgress, ProgressFn};
pub use iperf3::iperf3_session;
pub use paced::{PacedResult, exchange_on_timer};
pub use stream::{stream, stream_counted};
pub use train::train;
pub use trust::trusting;

/// Kind of the target, as detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// A station that answers probes.
    Station,
    /// A TCP server that is not a station.
    Server,
}

/// Detects the target's plan with [`plan`] and runs this plan. If [`plan`] fails, returns only the
/// failed result of [`plan`].
#[must_use]
pub fn probe(target: &Target, goodput_bytes: u64, context: &ProbeContext) -> Vec<QuantityResult> {
    match plan(target, goodput_bytes, context) {
        Ok(plan) => run(target, &plan, context),
        Err(failed) => vec![*failed],
    }
}

/// Detects what `target` is and returns the experiments that it can answer: [`Plan::station`] with
/// `goodput_bytes` (and `rtt_tls` for `https`), [`Plan::web`] for a URL, or [`Plan::address`] for
/// `host:port`. A target that refuses the connection gets the plan for a server that is not a
/// station ([`Plan::server`]): the value of `connect` is then the time of the refusal.
///
/// # Errors
/// A failed result of `connect` or of `rtt`, if the target cannot be reached or is a station that
/// refuses.
pub fn plan(
    target: &Target,
    goodput_bytes: u64,
    context: &ProbeContext,
) -> Result<Plan, Box<QuantityResult>> {
    match detect(target, context) {
        Ok(TargetKind::Station) => {
            let mut plan = Plan::station(goodput_bytes);
            if target.scheme() == Scheme::Https {
                plan.experiments.insert(1, Experiment::RttTls { n: Plan::RTT_EXCHANGES });
            }
            Ok(plan)
        }
        Ok(TargetKind::Server) => Ok(Plan::server(target.scheme())),
        Err(error) if error.failure == Failure::Refused => Ok(Plan::server(target.scheme())),
        Err(error) => {
            let quantity = match error.failure {
                Failure::Declined => Quantity::RTT,
                _ => Quantity::CONNECT,
            };
            Err(Box::new(QuantityResult { quantity, result: Err(error) }))
        }
    }
}

/// Detects whether `target` is a station, by requesting an Upgrade.
///
/// A server that accepts the connection but does not answer with HTTP within 3 s (or half the
/// deadline, if less) is not a station.
///
/// # Errors
/// [`ProbeError`] if the target cannot be reached, or if a station refuses (a token is missing, or
/// no slot is free). After a refusal, other experiments would give misleading results.
pub fn detect(target: &Target, context: &ProbeContext) -> Result<TargetKind, ProbeError> {
    let deadline = Deadline::start(context.deadline, &context.cancel);
    match connect::request_upgrade(DETECT.min(context.deadline / 2), target, context, &deadline) {
        Ok(UpgradeResponse::Upgraded(..) | UpgradeResponse::Token(..)) => Ok(TargetKind::Station),
        Ok(UpgradeResponse::Refused(status, _)) => Err(connect::refused(status, &deadline)),
        Ok(UpgradeResponse::Plain(_)) => Ok(TargetKind::Server),
        Err(error) if error.stopped => Err(error),
        // The target accepted the connection but gave no valid answer, or the target never accepted
        // the connection. A second handshake in the remaining time distinguishes the two cases.
        Err(ProbeError {
            failure: Failure::InvalidResponse | Failure::Reset | Failure::TimedOut | Failure::TlsFailed,
            ..
        }) => connect::dial(target, &deadline).map(|_| TargetKind::Server),
        Err(error) => Err(error),
    }
}

/// Maximum wait for the answer to an Upgrade. A station answers within one or two round trips (four
/// with TLS), so a longer wait for a silent listener has no use.
const DETECT: Duration = Duration::from_secs(3);

/// Runs all experiments of `plan` with `target`, one after the other, each on its own connection.
/// Blocks for at most the deadline times the number of experiments.
///
/// Returns one result for each of [`Experiment::quantities`], in order, even after failures.
#[must_use]
pub fn run(target: &Target, plan: &Plan, context: &ProbeContext) -> Vec<QuantityResult> {
    plan.experiments.iter().flat_map(|experiment| run_one(target, *experiment, context)).collect()
}

/// Runs one experiment, as [`run`] does.
#[must_use]
pub fn run_one(target: &Target, experiment: Experiment, context: &ProbeContext) -> Vec<QuantityResult> {
    let deadline = Deadline::start(context.deadline, &context.cancel);
    let results = measure(target, experiment, context, &deadline);
    let quantities = experiment.quantities().iter().cloned();
    quantities.zip(results).map(|(quantity, result)| QuantityResult { quantity, result }).collect()
}

/// Results in the order of the experiment's quantities.
fn measure(
    target: &Target,
    experiment: Experiment,
    context: &ProbeContext,
    deadline: &Deadline,
) -> Vec<Result<MeasuredValue, ProbeError>> {
    match experiment {
        Experiment::Rtt { n } => vec![exchange::rtt(target, n, context, deadline)],
        Experiment::RttTls { n } => vec![exchange::rtt_tls(target, n, context, deadline)],
        Experiment::RttNagle { n } => vec![exchange::rtt_nagle(target, n, context, deadline)],
        Experiment::Goodput { direction, bytes } => {
            vec![transfer::goodput(target, direction, bytes, context, deadline)]
        }
        Experiment::Loss { n } => datagrams::loss(target, n, context, deadline).into(),
        Experiment::Connect { n } => vec![web::handshakes(target, n, deadline)],
        Experiment::ResponseTime => web::response_time(target, context, deadline).into(),
    }
}
