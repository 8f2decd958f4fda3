//! What `barograph send` and `barograph recv` share: options, progress, JSON events, summaries and
//! errors.

pub(crate) mod causes;
pub(crate) mod classification;
pub(crate) mod failure;
pub(crate) mod json;
#[cfg_attr(not(feature = "fit"), path = "transfer/learned_without_fit.rs")]
mod learned;
pub(crate) mod options;
pub(crate) mod progress;
pub(crate) mod remaining;
pub(crate) mod show;
pub(crate) mod summary;
