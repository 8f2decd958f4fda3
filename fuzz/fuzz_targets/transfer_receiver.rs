//! A transfer's receiver, driven by a sequence of operations.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| barograph_transfer::testkit::fuzz::fuzz_receiver(data));
