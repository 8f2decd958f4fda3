//! The daemon: sensors, probing, storage, HTTP API, page and metrics.
#![forbid(unsafe_code)]

pub mod bank;
pub mod config;
pub mod hub;
pub mod sensor;
pub mod surroundings;
pub mod target;
pub mod timetable;
mod detail;
mod health;
mod prober;
mod recorder;
mod replay;
