//! Training of classifiers from labelled windows.

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

/// A window with the known cause of its losses.
#[derive(Clone, Debug)]
pub struct Labelled {
    /// Which packets were received and which were lost.
    pub signature: Signature,
    /// Metrics of the signature.
    pub metrics: Metrics,
    /// Other evidence on the window.
    pub evidence: Evidence,
    /// Cause of the losses; [`Cause::Unknown`] if both causes lost packets.
    pub cause: Cause,
    /// Kind of experiment that caused the losses: `random`, `gen`, …
    pub kind: String,
    /// Run that the window is part of. Windows of one run are not independent.
    pub run: String,
}

/// Reason why no model was fitted.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum FitError {
    /// There are too few windows of a cause.
    #[error("too few windows with losses of {} alone{at}: {found}, and {needed} are needed", whose(*cause))]
    TooFew {
        cause: Cause,
        /// Suffix of the message that names the loss rates; empty for all.
        at: &'static str,
        found: usize,
        needed: usize,
    },
    #[error("no curve was found through the complexities of the losses of {}: {reason}", whose(*cause))]
    NoCurve { cause: Cause, reason: &'static str },
    /// No model could be fitted for any length of windows.
    #[error("{}", listed(.0))]
    NoLength(Vec<LeftOut>),
}

/// A length of windows without a fitted model.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("windows of {packets} packets: {reason}")]
pub struct LeftOut {
    /// Length of the windows, in packets.
    pub packets: u32,
    /// Reason why no model was fitted.
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
