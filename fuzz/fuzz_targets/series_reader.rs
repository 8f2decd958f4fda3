//! The reader of series: CSV, JSON lines, bare numbers.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| barograph_study::fuzzing::fuzz_series_reader(data));
