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
mod own;
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
    order::assign_folds,
    own::{HeldBackScores, OwnModel, VerdictShares, fit_own},
    paper::{PAPER_KINDS, PaperFit, fit_paper},
    pattern::fit,
    report::{BinReport, CurveReport, FitReport, LowReport},
};
use crate::{Evidence, Metrics, Signature};

/// Known cause of the losses of a labelled window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Label {
    /// The receiving host lost all the packets.
    Host,
    /// The network lost all the packets.
    Network,
    /// Each of the two causes lost some of the packets.
    Both,
}

/// A window with the known cause of its losses.
#[derive(Clone, Debug)]
pub struct LabelledWindow {
    /// Which packets were received and which were lost.
    pub signature: Signature,
    /// Metrics of the signature.
    pub metrics: Metrics,
    /// Other evidence on the window.
    pub evidence: Evidence,
    /// Cause of the losses.
    pub cause: Label,
    /// Kind of experiment that caused the losses: `random`, `gen`, …
    pub kind: String,
    /// Run that the window is part of. Windows of one run are not independent.
    pub run: String,
}

/// Reason why no model was fitted.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages state what happened")]
pub enum FitError {
    /// There are too few windows of a cause.
    #[error(
        "too few windows with losses of {} only{at}: {found} of the {needed} needed",
        label_name(*cause)
    )]
    TooFew {
        cause: Label,
        /// Suffix of the message, with the loss rates of these windows; empty for windows of any
        /// loss rate.
        at: &'static str,
        found: usize,
        needed: usize,
    },
    /// The windows of a cause come from too few runs.
    #[error("too few runs with losses of {} only: {found} of the {needed} needed", label_name(*cause))]
    TooFewRuns { cause: Label, found: usize, needed: usize },
    #[error("no curve fits the complexities of losses of {}: {reason}", label_name(*cause))]
    NoCurve { cause: Label, reason: &'static str },
    /// No model could be fitted for any length of windows.
    #[error("{}", listed(.0))]
    NoLength(Vec<UnfittedLength>),
}

/// A length of windows without a fitted model.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("windows of {packets} packets: {reason}")]
pub struct UnfittedLength {
    /// Length of the windows, in packets.
    pub packets: u32,
    /// Reason why no model was fitted.
    pub reason: FitError,
}

fn listed(left_out: &[UnfittedLength]) -> String {
    left_out.iter().map(UnfittedLength::to_string).collect::<Vec<_>>().join("; ")
}

fn label_name(label: Label) -> &'static str {
    match label {
        Label::Host => "the host",
        Label::Network => "the network",
        Label::Both => "both",
    }
}
