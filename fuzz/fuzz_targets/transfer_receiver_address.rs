//! The receiver address that a transfer's receiver prints.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| barograph_transfer::testkit::fuzz::fuzz_receiver_address(data));
