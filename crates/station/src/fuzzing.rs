//! Entry points for fuzzers: plain functions that must not panic for any bytes.

use barograph_engine::wire;

use crate::echo::reports::PageMeasurement;

/// Parses `data` as a report of a page. The text of an accepted report must parse to an equal
/// report, and the source of the report must not be the name of a host.
///
/// # Panics
/// If an accepted report breaks these rules, which is a defect.
pub fn fuzz_report(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some(report) = PageMeasurement::parse(text) else { return };
    let name = report.source.as_str().strip_prefix("web:");
    let name = name.unwrap_or_else(|| panic!("{report:?} poses as a host"));
    assert!(report.value.is_finite() && report.value >= 0.0, "{report:?}");
    let again =
        serde_json::json!({ "source": name, "quantity": report.quantity.as_str(), "value": report.value });
    assert_eq!(PageMeasurement::parse(&again.to_string()), Some(report));
}

/// Parses `data` as messages between stations (docs/spec/engine.md): as lines in two pieces, and
/// each line as every type that a line can have. An accepted message must be within the limits, and
/// the text made from this message must parse to an equal message.
///
/// # Panics
/// If an accepted message breaks these rules, which is a defect.
pub fn fuzz_engine(data: &[u8]) {
    let mut lines = wire::LineAssembler::new(wire::SUBSCRIPTION_LINE_BYTES_MAX);
    let (first, second) = data.split_at(data.len() / 2);
    if lines.push(first).is_err() || lines.push(second).is_err() {
        return;
    }
    let rest = lines.rest().to_vec();
    while let Some(line) = lines.next_line() {
        engine_line(&line);
    }
    engine_line(&rest);
}

fn engine_line(line: &[u8]) {
    if let Ok(record) = wire::read_record(line) {
        assert_eq!(record.check(), Ok(()));
        assert_eq!(wire::read_record(wire::record_text(&record).as_bytes()), Ok(record));
    }
    if let Ok(entry) = wire::read_entry(line) {
        assert_eq!(entry.check(), Ok(()));
        assert_eq!(wire::read_entry(wire::entry_text(&entry).as_bytes()), Ok(entry));
    }
    if let Ok(event) = wire::read_event(line) {
        assert_eq!(wire::read_event(wire::event_text(&event).as_bytes()), Ok(event));
    }
    if let Ok((cursor, record)) = wire::read_subscription_line(line) {
        let text = wire::subscription_line(cursor, &record);
        assert_eq!(wire::read_subscription_line(text.as_bytes()), Ok((cursor, record)));
    }
    if let Some(error) = wire::read_error(line) {
        assert_eq!(wire::read_error(wire::error_text(&error).as_bytes()), Some(error));
    }
    if let Some(next) = wire::read_next(line) {
        assert_eq!(wire::read_next(wire::next_text(next).as_bytes()), Some(next));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    fn replay(folder: &str, fuzz: fn(&[u8])) {
        let folder = format!("{}/corpus/{folder}", env!("CARGO_MANIFEST_DIR"));
        let mut replayed = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            fuzz(&std::fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed >= 8, "the corpus is there, not {replayed} files");
    }

    #[test]
    fn stored_corpus_inputs_pass_the_fuzz_checks() {
        replay("report", super::fuzz_report);
        replay("engine", super::fuzz_engine);
    }

    proptest::proptest! {
        /// Generates texts that are nearly reports.
        #[test]
        fn almost_valid_reports_pass_the_fuzz_checks(
            source in "[a-z.\\\\\"\u{7f}-\u{100}]{0,66}",
            quantity in "(rtt|rtt_nagle|goodput|cpu_available|[a-z_]{0,9})",
            value in "-?[0-9]{1,3}(\\.[0-9]{1,3})?(e-?[0-9]{1,3})?",
            tail in "[ ,}x]{0,3}",
        ) {
            let text = format!(r#"{{"source":"{source}","quantity":"{quantity}","value":{value}}}{tail}"#);
            super::fuzz_report(text.as_bytes());
        }
    }
}
