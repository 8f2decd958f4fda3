//! Measuring: the sensors, the targets, the timetable of experiments, and the prober that runs
//! them.

pub mod default_targets;
pub(crate) mod prober;
pub mod sensor;
pub(crate) mod targets;
pub mod timetable;
