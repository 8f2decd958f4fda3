//! Creates valid names, series, records and entries.

use barograph_engine::{Capabilities, Entry, Record};
use barograph_forecast::{Name, Outcome, Quantity, SeriesId};

/// Creates a name; panics if `text` is not valid.
pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// The series of round-trip times from `source` to `target`.
pub fn series(source: &str, target: &str) -> SeriesId {
    SeriesId { source: name(source), target: name(target), quantity: Quantity::RTT }
}

/// Record `seq` of `origin`. Its time is `seq` seconds after the beginning of 2026 (UTC), its value
/// `seq` / 8.
pub fn record(origin: &str, target: &str, seq: u64) -> Record {
    Record {
        origin: name(origin),
        seq,
        series: series(origin, target),
        time_unix_ns: 1_767_225_600_000_000_000_i64
            .saturating_add(seq.cast_signed().saturating_mul(1_000_000_000)),
        outcome: Outcome::Value(seq as f64 / 8.0),
        detail: String::new(),
    }
}

/// The entry of a station without capabilities, in the group `local`.
pub fn entry(host: &str) -> Entry {
    Entry {
        host: name(host),
        addresses: vec![std::net::SocketAddr::from(([127, 0, 0, 1], 9))],
        version: "1".into(),
        groups: vec![name("local")],
        capabilities: Capabilities::default(),
        key: None,
    }
}
