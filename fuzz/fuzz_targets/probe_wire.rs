//! The probe's wire format.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| barograph_probe::fuzzing::fuzz_wire(data));
