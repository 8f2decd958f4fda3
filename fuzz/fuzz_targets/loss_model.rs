//! Models of the loss classifiers.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| barograph_loss::fuzzing::fuzz_model(data));
