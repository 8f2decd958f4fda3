//! Messages that stations send each other about directory, records and streams.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| barograph_station::fuzzing::fuzz_engine(data));
