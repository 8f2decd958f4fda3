//! What an experiment gave: a value and what stands beside it, or a typed failure.

use barograph_forecast::{Failure, Outcome, Quantity};

use crate::wire::Declined;

pub use crate::tcp_info::{Limit, TcpInfo};

/// One quantity that an experiment measured, or failed to.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// What was measured.
    pub quantity: Quantity,
    /// The value and its circumstances, or why there is none.
    pub result: Result<Measured, ProbeError>,
}

impl Reading {
    /// The reading as a series stores it.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match &self.result {
            Ok(measured) => Outcome::Value(measured.value),
            Err(error) => Outcome::Failed { failure: error.failure, after_s: error.after_s },
        }
    }
}

/// A measured value and what stands beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The value, in the quantity's unit: the median of [`samples`](Self::samples), or for goodput
    /// the rate corrected by the forecast of the round-trip time where one was given.
    pub value: f64,
    /// How many samples, exchanges, datagrams or transfers the value is made of.
    pub n: u32,
    /// Goodput without the correction, in bit/s; `None` for every other quantity.
    pub raw: Option<f64>,
    /// Every sample in the order taken, in the quantity's unit, so that stalls stay visible.
    /// Empty where the value is not made of samples (loss).
    pub samples: Vec<f64>,
    /// The kernel's view of the connection at the end; `None` for UDP and where not known.
    pub tcp_info: Option<TcpInfo>,
    /// At least one sample of a `connect` is the time of a refusal: the host answers, the port is closed.
    /// `false` for every other quantity.
    pub refused: bool,
}

#[cfg(feature = "io")]
impl Measured {
    /// The median of `samples`; `None` when there is none.
    pub(crate) fn median_of(samples: Vec<f64>, tcp_info: Option<TcpInfo>) -> Option<Self> {
        let value = crate::reduce::median(&samples)?;
        let n = u32::try_from(samples.len()).unwrap_or(u32::MAX);
        Some(Self { n, samples, ..Self::one(value, tcp_info) })
    }

    /// One sample, which is the value.
    pub(crate) fn one(value: f64, tcp_info: Option<TcpInfo>) -> Self {
        Self { value, n: 1, raw: None, samples: vec![value], tcp_info, refused: false }
    }
}

/// Why an experiment gave no value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ProbeError {
    /// The kind of failure, as a series stores it.
    pub failure: Failure,
    /// Seconds from the beginning of the experiment to its failure.
    pub after_s: f64,
    /// One sentence for people, with the values in it.
    pub message: String,
    /// It was stopped from outside ([`Failure::Local`]): no word about the target, do not record it.
    pub stopped: bool,
    /// What the station said when it declined the experiment ([`Failure::Declined`]); `None` = it refused the session.
    pub declined: Option<Declined>,
}
