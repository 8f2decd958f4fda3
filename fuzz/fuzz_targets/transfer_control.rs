//! Messages of a transfer's control connection.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| barograph_transfer::testkit::fuzz::fuzz_control(data));
