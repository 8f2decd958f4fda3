//! Records of a receiver's journal.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| barograph_transfer::testkit::fuzz::fuzz_journal(data));
