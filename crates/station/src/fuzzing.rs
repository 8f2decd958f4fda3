//! Entry points for fuzzers: plain functions that must hold for any bytes.

use crate::echo::reports::Report;

/// Reads `data` as what a page reports; whatever is accepted must survive a round trip and be kept apart
/// from what hosts measure.
///
/// # Panics
/// When a report is accepted that breaks these promises: a defect.
pub fn fuzz_report(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some(report) = Report::parse(text) else { return };
    let name = report.source.as_str().strip_prefix("web:");
    let name = name.unwrap_or_else(|| panic!("{report:?} poses as a host"));
    assert!(report.value.is_finite() && 0.0 <= report.value, "{report:?}");
    let again =
        serde_json::json!({ "source": name, "quantity": report.quantity.as_str(), "value": report.value });
    assert_eq!(Report::parse(&again.to_string()), Some(report));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    #[test]
    fn the_kept_corpus_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/report");
        let mut replayed = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            super::fuzz_report(&std::fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(8 <= replayed, "the corpus is there, not {replayed} files");
    }

    proptest::proptest! {
        /// Texts that are nearly reports.
        #[test]
        fn near_reports_hold(
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
