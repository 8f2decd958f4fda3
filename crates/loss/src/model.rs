//! Models as files.

use thiserror::Error;

/// What is no model.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ModelError {
    /// A version that this program does not know.
    #[error("this model has version {0}, and this program knows 1")]
    Version(u64),
    /// What is wrong with it.
    #[error("this is no model: {0}")]
    Invalid(String),
}
