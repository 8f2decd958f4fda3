//! The link's wire format, and messages put together from pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| barograph_timeout::link::fuzzing::fuzz_wire(data));
