//! Tables and lines of labelled windows.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| barograph_loss::fuzzing::fuzz_table(data));
