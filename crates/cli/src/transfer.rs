//! What `barograph send` and `barograph recv` share: how a transfer is shown, how it is told to programs, and what is said when it fails.

pub(crate) mod causes;
pub(crate) mod course;
pub(crate) mod json;
pub(crate) mod left;
pub(crate) mod options;
pub(crate) mod show;
pub(crate) mod summary;
pub(crate) mod trouble;
