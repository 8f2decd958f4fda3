//! Learning a classifier from labelled windows.

#[cfg(feature = "fit")]
mod curve;
#[cfg(feature = "fit")]
mod logistic;
#[cfg(feature = "fit")]
mod normality;
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
    paper::{PAPER_KINDS, fit_paper},
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
pub enum FitError {
    /// Too few windows of a cause.
    #[error("{found} windows of {cause:?} are too few to learn from; {needed} are needed")]
    TooFew {
        /// Of which cause.
        cause: Cause,
        /// How many there are.
        found: usize,
        /// How many are needed.
        needed: usize,
    },
    /// The curve was not found.
    #[error("no curve was found: {0}")]
    NoCurve(String),
}
