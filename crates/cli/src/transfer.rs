//! What `barograph send` and `barograph recv` share: options, progress, JSON events, summaries and
//! errors.

pub(crate) mod causes;
pub(crate) mod course;
pub(crate) mod json;
pub(crate) mod left;
pub(crate) mod options;
pub(crate) mod show;
pub(crate) mod summary;
pub(crate) mod trouble;
