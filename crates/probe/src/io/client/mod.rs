//! The end that measures.

mod connect;
mod datagrams;
mod exchange;
mod iperf3;
mod paced;
mod stream;
mod trust;
mod web;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use barograph_forecast::{Failure, Quantity};

use self::exchange::Answer;
use super::clock::{Cancel, Clock};
use super::payload;
use crate::reading::Measured;
use crate::signed::{Challenge, Credentials};
use crate::target::Scheme;
use crate::{Experiment, Plan, ProbeError, Reading, Target};

pub use iperf3::beside;
pub use paced::{Paced, paced};
pub use stream::{stream, stream_counted};
pub use trust::trusting;

/// Everything an experiment needs to know beside its target.
#[derive(Clone)]
pub struct Context {
    /// Each experiment, from resolving the name to its last byte, ends within this time.
    pub deadline: Duration,
    /// Presented as `Authorization: Bearer …`, and only to a target that first refused, with 401 or
    /// 403, as a station does. Anyone can imitate that, so the token must be meant for this target.
    pub token: Option<String>,
    /// Answers the challenge of a station that knows this one by its public key; goes before the token.
    pub sign: Option<Arc<dyn Sign>>,
    /// Asks to be asked for the signature, also by a station that would let this host in without: whoever signed is
    /// known by name there.
    pub signs_first: bool,
    /// Forecast of the `rtt` series of this target, in seconds, subtracted from the time of a
    /// transfer within the bounds of [`goodput`](crate::reduce::goodput). Never that of `rtt_nagle`.
    pub rtt_forecast_s: Option<f64>,
    /// Stops the experiments of this context from outside.
    pub cancel: Cancel,
    /// Called a few times a second by long transfers, on the measuring thread.
    pub progress: Option<ProgressFn>,
    /// A response body longer than this ends the experiment as a failure.
    pub body_bytes_max: u64,
    /// Bytes that an upload hands to the system at once: 1 to 128 KiB, beyond that as the nearest of these.
    pub write_bytes: usize,
    /// Whom to trust over TLS; `None` is the system's certificates.
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

/// Signs for this host what a station asks to be signed (docs/spec/mesh.md §2).
pub trait Sign: Send + Sync {
    /// The answer to `challenge` for a request of `method` and `path`; `None` = it is declined: the station
    /// is not the one that this signs for, and might pass the challenge of another on.
    fn answer(&self, challenge: &Challenge, method: &str, path: &str) -> Option<Credentials>;
}

/// A callback for the progress of a transfer.
pub type ProgressFn = Arc<dyn Fn(Progress) + Send + Sync>;

/// How far a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What runs.
    pub experiment: Experiment,
    /// Bytes so far.
    pub bytes: u64,
    /// Bytes in all.
    pub bytes_total: u64,
}

impl Default for Context {
    /// 10 s for each experiment, bodies up to 64 MiB, writes of 128 KiB, no token or key, no forecast, the
    /// system's trust.
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            token: None,
            sign: None,
            signs_first: false,
            rtt_forecast_s: None,
            cancel: Cancel::default(),
            progress: None,
            body_bytes_max: 64 << 20,
            write_bytes: payload::BLOCK_BYTES,
            tls: None,
        }
    }
}

impl fmt::Debug for Context {
    /// Without the token and the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("deadline", &self.deadline)
            .field("rtt_forecast_s", &self.rtt_forecast_s)
            .field("body_bytes_max", &self.body_bytes_max)
            .finish_non_exhaustive()
    }
}

/// What is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A station that answers probes.
    Station,
    /// Something that listens.
    Plain,
}

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

/// Finds out whether `target` is a station, by asking it for an Upgrade.
///
/// What takes the connection but does not answer HTTP within 3 s (or half the deadline, if that is
/// less) is none.
///
/// # Errors
/// [`ProbeError`] when it cannot be reached at all, and when a station refuses (a token is
/// missing, or it has no place): then it is a station, and other experiments would mislead.
pub fn detect(target: &Target, context: &Context) -> Result<Peer, ProbeError> {
    let clock = Clock::start(context.deadline, &context.cancel);
    match exchange::ask_within(DETECT.min(context.deadline / 2), target, context, &clock) {
        Ok(Answer::Upgraded(..) | Answer::Token(..)) => Ok(Peer::Station),
        Ok(Answer::Refused(status, _)) => Err(exchange::refused(status, &clock)),
        Ok(Answer::Plain(_)) => Ok(Peer::Plain),
        Err(error) if error.stopped => Err(error),
        // It took the connection and then said nothing that we understand, or it never took it:
        // a second handshake, in the time that is left, tells which.
        Err(ProbeError {
            failure: Failure::Garbage | Failure::Reset | Failure::TimedOut | Failure::Untrusted,
            ..
        }) => connect::dial(target, &clock).map(|_| Peer::Plain),
        Err(error) => Err(error),
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

/// Makes the experiments of [`plan`]; where there is none, the one reading is the failed one.
#[must_use]
pub fn probe(target: &Target, goodput_bytes: u64, context: &Context) -> Vec<Reading> {
    match plan(target, goodput_bytes, context) {
        Ok(plan) => run(target, &plan, context),
        Err(reading) => vec![*reading],
    }
}

/// Results in the order of the experiment's quantities.
fn measure(
    target: &Target,
    experiment: Experiment,
    context: &Context,
    clock: &Clock,
) -> Vec<Result<Measured, ProbeError>> {
    let plain = || exchange::open_plain(target, context, clock);
    match experiment {
        Experiment::Rtt { n } => vec![plain().and_then(|session| exchange::rtt(session, n, clock))],
        Experiment::RttTls { n } => {
            let session = exchange::open_tls(target, context, clock);
            vec![session.and_then(|session| exchange::rtt(session, n, clock))]
        }
        Experiment::RttNagle { n } => {
            vec![plain().and_then(|session| exchange::rtt_nagle(session, n, clock))]
        }
        Experiment::Goodput { direction, bytes } => {
            vec![plain().and_then(|session| exchange::goodput(session, direction, bytes, context, clock))]
        }
        Experiment::Loss { n } => match plain().and_then(|session| datagrams::loss(session, n, clock)) {
            Ok(returned) => vec![Ok(returned.loss), returned.rtt],
            Err(error) => vec![Err(error.clone()), Err(error)],
        },
        Experiment::Connect { n } => vec![web::handshakes(target, n, clock)],
        Experiment::ResponseTime => {
            let (first_byte, last_byte) = web::response_time(target, context, clock);
            vec![first_byte, last_byte]
        }
    }
}

/// A station answers an Upgrade in a round trip or two (four with TLS); nobody waits longer to
/// learn that a silent listener is none.
const DETECT: Duration = Duration::from_secs(3);
