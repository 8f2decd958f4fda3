//! Manifests of what a transfer sends.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| barograph_transfer::testkit::fuzz::fuzz_manifest(data));
