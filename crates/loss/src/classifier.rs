//! Who lost the packets of a window, by the best evidence there is.

use crate::{Diagnosis, Evidence, GapEvidence, Metrics, ModelError, Signature};

/// Tells by the best evidence present; when in doubt the network.
#[derive(Clone, Debug)]
pub struct Classifier {}

impl Classifier {
    /// With the model that comes with it.
    pub fn shipped() -> Self {
        Self {}
    }

    /// With a model that was saved.
    ///
    /// # Errors
    /// A model that is truncated, newer, or not possible.
    pub fn read(_model: &str) -> Result<Self, ModelError> {
        Ok(Self {})
    }

    /// The model, to be saved.
    pub fn write(&self) -> String {
        String::new()
    }

    /// Who lost the packets of a window, of which `metrics` were measured.
    pub fn diagnose(&self, _signature: &Signature, metrics: &Metrics, _evidence: &Evidence) -> Diagnosis {
        Diagnosis::inconclusive(metrics.lost)
    }

    /// The same with evidence for each gap, in the order of [`Signature::gaps`]; missing ones are as [`GapEvidence::default`].
    /// `say` hears of each gap who lost it, and the probability that the host did.
    pub fn diagnose_gaps(
        &self,
        _signature: &Signature,
        metrics: &Metrics,
        _evidence: &Evidence,
        _gaps: impl Iterator<Item = GapEvidence> + Clone,
        _say: impl FnMut(crate::Gap, crate::Cause, f64),
    ) -> Diagnosis {
        Diagnosis::inconclusive(metrics.lost)
    }
}
