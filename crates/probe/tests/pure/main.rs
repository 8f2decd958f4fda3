//! Tests without sockets: the wire format, the early end of a stream, and calibration.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod calibration;
mod stop;
mod wire;
