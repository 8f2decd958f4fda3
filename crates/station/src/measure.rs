//! What a station measures and when: its sensors, its targets, their timetable and the prober.

pub(crate) mod prober;
pub mod sensor;
pub mod surroundings;
pub(crate) mod targets;
pub mod timetable;
