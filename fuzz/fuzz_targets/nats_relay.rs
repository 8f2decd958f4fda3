//! Bytes of a NATS server, as the proxy forwards them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| barograph_engine::fuzz_relay(data));
