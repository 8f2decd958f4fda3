//! What `barograph send` and `barograph recv` share: options, progress, JSON events, summaries and
//! errors.

pub(crate) mod causes;
pub(crate) mod failure;
pub(crate) mod json;
pub(crate) mod options;
pub(crate) mod progress;
pub(crate) mod remaining;
pub(crate) mod show;
pub(crate) mod summary;
