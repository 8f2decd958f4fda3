//! Entry points for fuzzers: plain functions with assertions that must hold for any bytes.

use crate::wire::{Datagram, RISES_MAX};

/// Decodes `data` as a datagram of the extension. A decoded datagram must encode to the same bytes
/// and keep its bounds.
///
/// # Panics
/// If an assertion fails, which is a defect.
pub fn fuzz_datagram(data: &[u8]) {
    let Ok(datagram) = Datagram::decode(data) else { return };
    assert_eq!(datagram.encode(), data);
    if let Datagram::Report(report) = datagram {
        assert!(report.rises.len() <= RISES_MAX && report.rises.len() <= report.number as usize);
        assert!(report.rises.iter().all(|rise| rise.to_us <= rise.from_us && rise.bytes > 0));
    }
}
