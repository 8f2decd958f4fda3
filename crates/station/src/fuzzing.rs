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
}
