//! Saved states of timeouts and hosts.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| barograph_timeout::fuzzing::fuzz_state(data));
