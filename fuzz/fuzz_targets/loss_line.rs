//! Windows as lines of bits or of run lengths, with evidence, and their classification.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| barograph_loss::fuzzing::fuzz_line(data));
