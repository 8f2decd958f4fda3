//! Entry points for fuzzers: plain functions that must hold for any bytes.

use crate::target::Target;
use crate::token;
use crate::wire::{Datagram, Done, Reply, Request};

/// Decodes `data` as every frame; whatever is accepted must survive a round trip.
///
/// # Panics
/// When a decoder accepts a frame that its encoder would write differently: a defect.
pub fn fuzz_wire(data: &[u8]) {
    if let Ok(request) = Request::decode(data) {
        assert_eq!(request.encode(), data, "{request:?}");
    }
    if let Ok(reply) = Reply::decode(data) {
        assert_eq!(reply.encode(), data, "{reply:?}");
    }
    if let Ok(datagram) = Datagram::decode(data) {
        assert_eq!(datagram.encode(), data, "{datagram:?}");
    }
    // A rate above 2^53 bit/s is rounded to the nearest `f64`; the second round is exact.
    if let Ok(done) = Done::decode(data) {
        assert_eq!(Done::decode(&done.encode()), Ok(done));
    }
    if let Ok(text) = std::str::from_utf8(data) {
        fuzz_text(text);
    }
}

fn fuzz_text(text: &str) {
    if let Some(token) = token::from_hex(text) {
        assert_eq!(token::to_hex(&token), text.to_ascii_lowercase());
    }
    if let Ok(target) = Target::parse(text) {
        assert_eq!(Target::parse(&target.to_string()), Ok(target));
    }
}
