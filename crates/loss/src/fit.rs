//! Learning a classifier from labelled windows.

#[cfg(feature = "fit")]
mod curve;
#[cfg(feature = "fit")]
mod logistic;
#[cfg(feature = "fit")]
mod normality;
#[cfg(feature = "fit")]
mod order;
#[cfg(feature = "fit")]
mod paper;
#[cfg(feature = "fit")]
mod pattern;
#[cfg(feature = "fit")]
mod report;

use thiserror::Error;

#[cfg(feature = "fit")]
pub use self::{
    normality::ShapiroWilk,
    order::deal_runs,
    paper::{PAPER_KINDS, PaperFit, fit_paper},
    pattern::fit,
    report::{BinReport, CurveReport, FitReport, LowReport},
};
use crate::{Cause, Evidence, Metrics, Signature};

/// A window of which it is known who lost its packets.
#[derive(Clone, Debug)]
pub struct Labelled {
    /// The fate of each packet.
    pub signature: Signature,
    /// What was measured of it.
    pub metrics: Metrics,
    /// What else is known.
    pub evidence: Evidence,
    /// Who lost them: [`Cause::Unknown`] = both.
    pub cause: Cause,
    /// What made them: `random`, `gen`, …
    pub kind: String,
    /// The run it was cut from: windows of one run are not independent.
    pub run: String,
}

/// Why nothing was learned.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum FitError {
    /// Too few windows of a cause.
    #[error("too few windows with losses of {} alone{at}: {found}, and {needed} are needed", whose(*cause))]
    TooFew {
        cause: Cause,
        /// At which loss rates, as words to be put behind; nothing = at any.
        at: &'static str,
        found: usize,
        needed: usize,
    },
    #[error("no curve was found through the complexities of the losses of {}: {reason}", whose(*cause))]
    NoCurve { cause: Cause, reason: &'static str },
    /// No length of windows could be learned from.
    #[error("{}", listed(.0))]
    NoLength(Vec<LeftOut>),
}

/// A length of windows that nothing was learned of.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("windows of {packets} packets: {reason}")]
pub struct LeftOut {
    /// The length (packets).
    pub packets: u32,
    /// Why.
    pub reason: FitError,
}

fn listed(left_out: &[LeftOut]) -> String {
    left_out.iter().map(LeftOut::to_string).collect::<Vec<_>>().join("; ")
}

fn whose(cause: Cause) -> &'static str {
    match cause {
        Cause::Host => "the host",
        Cause::Network => "the network",
        Cause::Unknown => "both",
    }
}
