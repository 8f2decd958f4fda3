//! Recording: the way of measurements to the archive, and replay from the archive at the start.

pub(crate) mod recorder;
pub(crate) mod replay;
