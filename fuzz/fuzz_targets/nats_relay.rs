//! What a NATS server sends, as the relay passes it on.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| barograph_engine::fuzz_relay(data));
