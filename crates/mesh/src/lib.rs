//! The thinking of a mesh of stations: who is there, who tests whom and when, within budgets.
//!
//! Pure: time comes in as a [`Duration`](core::time::Duration) since some start, values go out; no clock, no socket.
#![forbid(unsafe_code)]

pub mod roster;
