//! What needs no socket: the wire format, the rule that ends a stream early, what is learned of a path.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod calibration;
mod stop;
mod wire;
