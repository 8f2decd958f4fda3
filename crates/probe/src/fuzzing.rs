//! Entry points for fuzzers: functions that must not panic for any bytes.

use crate::target::Target;
use crate::token;
use crate::wire::{BulkSummary, Datagram, Reply, Request};

/// Decodes `data` as every kind of frame; each accepted frame must encode to the same bytes.
///
/// # Panics
/// If a decoder accepts a frame that its encoder would write differently, which is a defect.
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
    // A rate above 2^53 bit/s is rounded to the nearest `f64`. The second decoding of this rate is
    // exact.
    if let Ok(done) = BulkSummary::decode(data) {
        assert_eq!(BulkSummary::decode(&done.encode()), Ok(done));
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
