//! What an experiment needs beside its target.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Experiment;
use crate::io::{Cancel, payload};
use crate::signed::{Challenge, Credentials};

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
