//! Manifests of what a transfer sends.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| barograph_transfer::fuzzing::fuzz_manifest(data));
