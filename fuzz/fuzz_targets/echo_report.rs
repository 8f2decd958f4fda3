//! Reports of a page's measurements.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| barograph_station::fuzzing::fuzz_report(data));
