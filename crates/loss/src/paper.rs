//! The paper's classifier (Dickens §3).

use crate::{Diagnosis, Metrics, ModelError};

/// The classifier exactly as Dickens §3 describes it.
#[derive(Clone, Debug)]
pub struct PaperClassifier {}

impl PaperClassifier {
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

    /// Who lost the packets of a window.
    pub fn diagnose(&self, metrics: &Metrics) -> Diagnosis {
        Diagnosis::inconclusive(metrics.lost)
    }
}
