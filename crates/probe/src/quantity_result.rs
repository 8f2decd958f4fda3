//! Result of an experiment: a value with its samples, or a typed failure.

use barograph_forecast::{Failure, Outcome, Quantity};

use crate::wire::DeclineReason;

pub use crate::tcp_info::{SenderLimit, TcpInfo};

/// One quantity that an experiment measured or failed to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantityResult {
    /// The quantity and its unit.
    pub quantity: Quantity,
    /// The value with its samples, or the reason why there is no value.
    pub result: Result<MeasuredValue, ProbeError>,
}

impl QuantityResult {
    /// Converts the result to the form that a series stores.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match &self.result {
            Ok(measured) => Outcome::Value(measured.value),
            Err(error) => Outcome::Failed { failure: error.failure, after_s: error.after_s },
        }
    }
}

/// A measured value with its samples and `TCP_INFO`.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredValue {
    /// The value, in the quantity's unit: the median of [`samples`](Self::samples). For goodput,
    /// the value is the rate, corrected by the forecast of the round-trip time if such a forecast
    /// was given.
    pub value: f64,
    /// Number of samples behind the value: answered exchanges, handshakes or transfers. For `loss`,
    /// this is the number of datagrams sent; for `rtt_udp`, the number of datagrams answered.
    pub n: u32,
    /// Goodput without the correction, in bit/s; `None` for every other quantity.
    pub raw: Option<f64>,
    /// Bytes of the transfer; `None` for every other quantity than goodput.
    pub bytes: Option<u64>,
    /// All samples in the order measured, in the quantity's unit, so that stalls stay visible.
    /// Empty if the value has no samples (loss).
    pub samples: Vec<f64>,
    /// `TCP_INFO` at the end of the connection; `None` for UDP, or if it is not known.
    pub tcp_info: Option<TcpInfo>,
    /// Whether at least one sample of a `connect` is the time of a refusal: the host answers, but
    /// the port is closed. `false` for every other quantity.
    pub refused: bool,
}

/// Reason why an experiment gave no value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ProbeError {
    /// The kind of failure, as a series stores it.
    pub failure: Failure,
    /// Seconds from the start of the experiment to its failure.
    pub after_s: f64,
    /// One sentence for the user, with the relevant values.
    pub message: String,
    /// Whether the caller cancelled the experiment ([`Failure::Local`]). Such a failure describes
    /// no property of the target; do not record it.
    pub stopped: bool,
    /// Why the station declined the experiment ([`Failure::Declined`]); `None` if it refused the
    /// whole session.
    pub declined: Option<DeclineReason>,
}
