//! Datagrams of the transfer protocol: headers, heads of data, feedback.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| barograph_transfer::testkit::fuzz::fuzz_datagram(data));
