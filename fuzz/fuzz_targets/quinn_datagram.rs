//! Datagrams of the extension for QUIC: offers and reports of drops.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| barograph_quinn::fuzzing::fuzz_datagram(data));
