//! The wire format of links, and messages that arrive in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| barograph_timeout::link::fuzzing::fuzz_wire(data));
