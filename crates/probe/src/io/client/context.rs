//! Options of an experiment, except its target.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Experiment;
use crate::io::{CancellationToken, payload};
use crate::signed::{Challenge, Credentials};

/// Options of an experiment, except its target.
#[derive(Clone)]
pub struct ProbeContext {
    /// Maximum time of each experiment, from the resolution of the name to the last byte of the
    /// experiment.
    pub deadline: Duration,
    /// API token, sent as `Authorization: Bearer …`. The token is sent only to a target that first
    /// refused a request as a station does, with 401 or 403. Any server can refuse in this way and
    /// so receive the token. So set only a token that is meant for this target.
    pub token: Option<String>,
    /// Signs the challenge of a station that has this host's public key; preferred to the token.
    pub sign: Option<Arc<dyn ChallengeSigner>>,
    /// Whether to request a challenge first, even from a station that would admit this host without
    /// a signature. A station identifies only signed callers by name.
    pub signs_first: bool,
    /// Forecast of the `rtt` series of this target, in seconds. The forecast is subtracted from the
    /// time of a transfer, within the bounds of [`goodput`](crate::reduce::goodput). Never use a
    /// forecast of `rtt_nagle`.
    pub rtt_forecast_s: Option<f64>,
    /// Cancels the experiments of this context from another thread.
    pub cancel: CancellationToken,
    /// Receives the progress of long transfers a few times a second, on the measuring thread.
    pub progress: Option<ProgressFn>,
    /// Maximum length of a response body in bytes; a longer body is a failure.
    pub body_bytes_max: u64,
    /// Bytes that an upload writes in one system call, limited to the range from 1 byte to 128 KiB.
    pub write_bytes: usize,
    /// Certificates to trust for TLS; `None` means the certificates of the system.
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

/// Signs the challenges of stations for this host (docs/spec/mesh.md §2).
pub trait ChallengeSigner: Send + Sync {
    /// Credentials for `challenge` and a request of `method` to `path`. `None` if the challenge
    /// names a station other than the signer's station: the target may have forwarded the challenge
    /// of a different station.
    fn sign(&self, challenge: &Challenge, method: &str, path: &str) -> Option<Credentials>;
}

/// Callback that receives the progress of a transfer.
pub type ProgressFn = Arc<dyn Fn(ProbeProgress) + Send + Sync>;

/// Progress of a running transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeProgress {
    /// The experiment that runs.
    pub experiment: Experiment,
    /// Number of bytes moved so far.
    pub bytes: u64,
    /// Total number of bytes in the transfer.
    pub bytes_total: u64,
}

impl Default for ProbeContext {
    /// Returns the defaults: 10 s for each experiment, bodies of up to 64 MiB, writes of 128 KiB,
    /// no token, no key, no forecast, and the system's certificates.
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            token: None,
            sign: None,
            signs_first: false,
            rtt_forecast_s: None,
            cancel: CancellationToken::default(),
            progress: None,
            body_bytes_max: 64 << 20,
            write_bytes: payload::BLOCK_BYTES,
            tls: None,
        }
    }
}

impl fmt::Debug for ProbeContext {
    /// Formats the options without the token and the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeContext")
            .field("deadline", &self.deadline)
            .field("rtt_forecast_s", &self.rtt_forecast_s)
            .field("body_bytes_max", &self.body_bytes_max)
            .finish_non_exhaustive()
    }
}
