//! Measuring: the sensors, the targets, the timetable of experiments, and the prober that runs
//! them.

pub(crate) mod prober;
pub mod sensor;
pub mod surroundings;
pub(crate) mod targets;
pub mod timetable;
