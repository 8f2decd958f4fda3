//! Values on their way to the archive, and back from it at a start.

pub(crate) mod recorder;
pub(crate) mod replay;
