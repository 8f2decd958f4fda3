//! Recording: stores measurements in the archive, and replays them from the archive at the start.

pub(crate) mod recorder;
pub(crate) mod replay;
